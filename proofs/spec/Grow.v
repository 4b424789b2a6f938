(* Claims only grow (spec/Uids.v), if none is for an epoch that its maker has not seen. *)
From Whimbrel.spec Require Export Uids.

Definition none_ahead (E : mailbox_execution) : Prop := ∀ j p o q,
  history _ _ _ _ E j = p ++ Broadcast o :: q → not_ahead (contents (state_after empty apply p)) o.

(* Claims only grow: at one node the UID of a message does not fall while its placement and the epoch stay. *)
Definition uids_grow_statement : Prop := ∀ (E : mailbox_execution), none_ahead E →
  ∀ i p q m, p `prefix_of` q → q `prefix_of` history _ _ _ _ E i →
    let s := contents (state_after empty apply p) in
    let t := contents (state_after empty apply q) in
    placed_at s m = placed_at t m → nth 0 (reg s REpoch) 0%N = nth 0 (reg t REpoch) 0%N → (uid s m ≤ uid t m)%N.

Definition none_ahead_is_needed_statement : Prop :=
  ∃ (E : mailbox_execution) i p q m, p `prefix_of` q ∧ q `prefix_of` history _ _ _ _ E i ∧
    let s := contents (state_after empty apply p) in
    let t := contents (state_after empty apply q) in
    lives t m ∧ placed_at s m = placed_at t m ∧ nth 0 (reg s REpoch) 0%N = nth 0 (reg t REpoch) 0%N ∧ (uid t m < uid s m)%N.
