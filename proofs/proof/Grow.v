(* The greatest claim for a place is a register: it grows, if that of a later epoch does not come too early. *)
From Whimbrel.spec Require Import Grow.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Conflicts Join Collection Uids Checker Refuted.

Theorem uids_grow : uids_grow_statement.
Proof.
  intros E Hcome i p q m Hpq Hq s t Hplaced Hepoch. unfold uid. rewrite <- Hplaced, <- Hepoch. case_bool_decide as He; [|lia].
  assert (at_most (reg s (RClaim m (placed_at s m))) (reg t (RClaim m (placed_at s m))) = true) as Hgrows by by apply register_grows, prefix_deliveries.
  assert (nth 0 (reg t (RClaim m (placed_at s m))) 0 ≤ nth 0 (reg t REpoch) 0)%N as Hle.
  { unfold t at 1. rewrite contents_after.
    destruct (reg_replay_either (deliveries q) (contents empty) (RClaim m (placed_at s m))) as [->|(o & Ho & H)].
    { assert (reg (contents empty) (RClaim m (placed_at s m)) = []) as -> by done. apply N.le_0_l. }
    apply raise_is_claim in H as (epoch & u & -> & Hc). simpl. apply elem_of_deliveries in Ho.
    destruct (delivered_was_broadcast E _ _ _ Hq Ho) as [j (p' & q' & Heq)%elem_of_list_split].
    etrans; [exact (Hcome _ _ _ _ Heq _ _ _ _ Hc)|]. apply at_most_head, register_grows. intros x Hx. apply elem_of_deliveries in Ho.
    eapply (past_delivered E i q o x Hq Ho). eapply hb_of_delivery; [done|]. by apply elem_of_deliveries. }
  clearbody s t. pose proof (at_most_head _ _ Hgrows) as Hhead.
  assert (nth 0 (reg t (RClaim m (placed_at s m))) 0 = nth 0 (reg s REpoch) 0)%N as Hsame by lia.
  rewrite bool_decide_true by done. apply at_most_second; [done|congruence].
Qed.

Local Open Scope N_scope.

(* A node claims its message for an epoch that has not come. *)
Definition present : op := append_at (1, 1) 1 ∅ INBOX 65.
Definition ahead : op := Op (1, 2) 2 ∅ (AClaim 5 [((1, 1, 0), (1, 1), 129)]).
Definition run_ahead : list (list (event op)) := [[Broadcast present; Deliver present; Broadcast ahead; Deliver ahead]].
Lemma run_ahead_ok : checked valid_ok run_ahead = true. Proof. computed. Qed.

Theorem none_ahead_is_needed : none_ahead_is_needed_statement.
Proof.
  exists (checked_execution valid valid_ok valid_ok_valid _ run_ahead_ok), 0%nat, [Broadcast present; Deliver present], (history_of run_ahead 0), (1, 1, 0).
  split; [by eexists|]. split; [done|]. split; [|split; [computed|split; computed]]. apply (bool_decide_unpack _). vm_compute. reflexivity.
Qed.
