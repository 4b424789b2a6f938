(* A claim that came stays among those that have come; the greatest of them does not depend on the order. *)
From Whimbrel.spec Require Import Superseded.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Conflicts Join Collection Uids Quiet Patience Checker Refuted.

Theorem names_nothing_else : names_nothing_else_statement.
Proof.
  intros kept r slot readers E Hd Hf Hslots i p d t m name epoch u j q name' m' Hs Hshow Hq He (_ & _ & Hcome & _).
  destruct (shown_claimed E _ _ _ _ _ _ _ _ Hs Hshow) as (o & placed & Ho & Hc). apply come_iff in Hcome as (o' & Ho' & Hc'). rewrite He in Hc'.
  pose proof (serves_delivered E _ _ _ _ _ Hs Ho) as H. pose proof (elem_of_prefix _ _ _ Ho' Hq) as H'.
  by destruct (claims_unique E _ _ _ _ _ _ _ _ _ _ Hd Hf Hslots H' H Hc' Hc) as (_ & ? & _).
Qed.

Theorem superseded_still_named : still_named_statement.
Proof.
  intros kept r slot readers E i j p q m name epoch u Hp (Hl & _ & Hu & Hne & He & _) Hq Hsub s t Hlives Hname Hplaced Hepoch Hsize.
  split; [done|]. split; [done|]. split; [|done]. apply come_iff.
  assert (u ∈ claims_come p m) as (o & Ho & Hc)%come_iff by (rewrite <- Hu; apply uid_has_come; by rewrite Hu).
  exists o. split; [by apply Hsub|]. fold s in Hc. fold t. rewrite Hplaced, Hepoch, He. exact Hc.
Qed.

Local Open Scope N_scope.

(* A message is claimed again, by two nodes at once. *)
Definition told_first : op := append_at (1, 1) 1 ∅ INBOX 65.
Definition again_by (origin : N) : op := Op (origin, if bool_decide (origin = 1) then 2 else 1) 2 {[ 1 := 1 ]} (AClaim 0 [((1, 1, 0), (1, 1), 128 + origin)]).
Definition both_again : list (list (event op)) :=
  [own [told_first; again_by 1] ++ [Deliver (again_by 2)]; [Deliver told_first] ++ own [again_by 2] ++ [Deliver (again_by 1)]].
Lemma both_again_ok : checked (uid_ok nobody_waits own_slots) both_again = true. Proof. computed. Qed.
Lemma both_again_valid : checked valid_ok both_again = true. Proof. computed. Qed.

Theorem keeping_is_needed : keeping_is_needed_statement.
Proof.
  intros H. set (E := run nobody_waits own_slots both_again both_again_ok).
  set (p := own [told_first]). set (q := own [told_first; again_by 1]).
  assert (may_do nobody_waits own_slots all_read E p (Show (1, 1, 0) 0 0 65)) as Hmay.
  { split_and!; [apply (bool_decide_unpack _); computed|computed|computed|done|computed|done]. }
  destruct (H nobody_waits own_slots all_read E 0%nat 0%nat p q (1, 1, 0) 0 0 65) as (_ & _ & _ & Hsize); [|exact Hmay|..].
  - by eexists.
  - by eexists.
  - intros o Ho. apply (elem_of_prefix _ _ _ Ho). by eexists.
  - apply (bool_decide_unpack _). computed.
  - computed.
  - computed.
  - computed.
  - apply (bool_decide_unpack _). computed.
  - apply (bool_decide_unpack _) in Hsize || (revert Hsize; apply (bool_decide_unpack (¬ _)); computed).
Qed.

Theorem greatest_is_needed : greatest_is_needed_statement.
Proof.
  split.
  - intros E i j p q m Hp Hq Hsame. by rewrite (mailbox_sec E i j p q Hp Hq Hsame).
  - intros H. specialize (H (checked_execution valid valid_ok valid_ok_valid _ both_again_valid) 0%nat 1%nat (history_of both_again 0) (history_of both_again 1) (1, 1, 0)).
    assert (last_come (history_of both_again 0) (1, 1, 0) ≠ last_come (history_of both_again 1) (1, 1, 0)) as Hne by by vm_compute.
    apply Hne, H; [done|done|]. intros o. rewrite <- !elem_of_deliveries.
    assert (deliveries (history_of both_again 0) = [told_first; again_by 1; again_by 2]) as -> by computed.
    assert (deliveries (history_of both_again 1) = [told_first; again_by 2; again_by 1]) as -> by computed.
    rewrite !elem_of_cons. clear. generalize told_first (again_by 1) (again_by 2). tauto.
Qed.
