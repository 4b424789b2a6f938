(* What a client may name (docs/design.md#rule-2; crates/mailbox/src/record.rs, [claim]; read.rs, [resolve]).

   The UID of a message is the greatest claim for its present place. Those that it supersedes still name it, as many of them as are kept: a client
   that was told one, and not yet the next, and names it, means this message. U1, U2 and U4 do not need this rule: they hold whatever becomes of
   superseded UIDs. What it protects is that no command of such a client comes to nothing, or hits what it did not mean; and that all nodes show one
   UID once they have heard the same. *)
From Whimbrel.spec Require Export Patience.

Section superseded.
  (* So many superseded claims of a placement are kept, the greatest ones; in the code 8 (CLAIMS_KEPT_MAX). *)
  Context (kept : nat).
  Local Notation state p := (contents (state_after empty apply p)).

  (* The claims by which this one is superseded, of those that have come. *)
  Definition above (p : list (event op)) (m : message_id) (u : N) : gset N := filter (λ u', (u < u')%N) (claims_come p m).

  (* Who names this UID, in the mailbox of this name, means this message. *)
  Definition names (p : list (event op)) (name u : N) (m : message_id) : Prop :=
    lives (state p) m ∧ name_now (state p) m = name ∧ u ∈ claims_come p m ∧ size (above p m u) ≤ kept.
End superseded.

(* No UID names, at any node, another message than the one that some node has shown by it. *)
Definition names_nothing_else_statement : Prop := ∀ kept r slot readers (E : uid_execution r slot),
  slots_differ r = true → counters_follow r = true → slots_ok E →
  ∀ i p d t m name epoch u j q name' m', serves readers E i p d t → Show m name epoch u ∈ t →
    q `prefix_of` history _ _ _ _ E j → epoch_now (contents (state_after empty apply q)) = epoch → names kept q name' u m' → m' = m.

(* What a node may show (and may have shown, and told) it can be named by, there and wherever all is applied that was applied there, as long as it stays in its
   place, under its name, alive, in the same epoch, and was claimed again no more than so often. *)
Definition still_named (kept again : nat) : Prop := ∀ r slot readers (E : uid_execution r slot) i j p q m name epoch u,
  p `prefix_of` history _ _ _ _ E i → may_do r slot readers E p (Show m name epoch u) →
  q `prefix_of` history _ _ _ _ E j → (∀ o, Deliver o ∈ p → Deliver o ∈ q) →
  let s := contents (state_after empty apply p) in
  let t := contents (state_after empty apply q) in
  lives t m → name_now t m = name → placed_at t m = placed_at s m → epoch_now t = epoch → size (above q m u) ≤ again → names kept q name u m.

Definition still_named_statement : Prop := ∀ kept, still_named kept kept.

(* If superseded claims are forgotten, a client that knows only the old UID names nothing. *)
Definition keeping_is_needed_statement : Prop := ¬ still_named 0 1.

(* What nodes show when they have heard the same. *)
Definition agreed (shown_as : list (event op) → message_id → N) : Prop := ∀ (E : mailbox_execution) i j p q m,
  p `prefix_of` history _ _ _ _ E i → q `prefix_of` history _ _ _ _ E j → (∀ o, Deliver o ∈ p ↔ Deliver o ∈ q) → shown_as p m = shown_as q m.

(* The claim that came last, instead of the greatest. *)
Definition last_come (p : list (event op)) (m : message_id) : N :=
  let s := contents (state_after empty apply p) in
  default 0%N (last (omap (λ c : claim, if bool_decide (c.1 = (m, placed_at s m, epoch_now s)) then Some c.2 else None) (deliveries p ≫= claims))).

Definition greatest_is_needed_statement : Prop := agreed (λ p, uid (contents (state_after empty apply p))) ∧ ¬ agreed last_come.
