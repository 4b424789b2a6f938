(* A record is dropped though a removed node never reported that it had applied the message's removal. *)
From Whimbrel.spec Require Import Collection.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker Table.

Local Open Scope N_scope.

(* A message, and its removal; another node had heard of the message, and has written since, when it was removed. *)
Definition kept : op := Op (1, 1) 1 ∅ (AAppend INBOX 0 65 [] 9).
Definition gone : op := Op (1, 2) 2 ∅ (AExpunge [((1, 1, 0), {[ (1, 1) ]})]).
Definition last_word : op := Op (2, 1) 3 {[ 1 := 1 ]} (ASubscribe 9).
Definition removal : list (list (event op)) := [own [kept; gone] ++ [Deliver last_word]; [Deliver kept] ++ own [last_word]].
Lemma removal_ok : checked valid_ok removal = true. Proof. vm_compute. reflexivity. Qed.

Theorem removed_writer : removed_writer_statement.
Proof.
  set (E := checked_execution valid valid_ok valid_ok_valid _ removal_ok).
  exists E, 0%nat, 1%nat, (own [kept; gone]), (history_of removal 0), (1, 1, 0), last_word.
  assert (∀ j o, Broadcast o ∈ history _ _ _ _ E j → Deliver o ∈ history_of removal 0) as Hall.
  { intros j o Ho. apply in_all_ops in Ho. revert Ho. apply (all_of (λ x, Deliver x ∈ history_of removal 0)). vm_compute. reflexivity. }
  split; [done|]. split_and!.
  - split.
    + by exists [Deliver last_word].
    + apply (bool_decide_unpack _). vm_compute. reflexivity.
    + intros o Ho. assert (o ∈ [kept; gone; last_word]) as H by exact Ho. rewrite !elem_of_cons, elem_of_nil in H. destruct H as [->|[->|[->|[]]]].
      * left. by left.
      * left. right. by left.
      * right. intros (e & He%elem_of_list_singleton & Ha). by subst e.
    + intros j o Ho. left. by eapply Hall.
    + intros j o Ho _. by eapply Hall.
  - intros H. by vm_compute in H.
  - done.
  - right. by left.
  - apply (bool_decide_unpack (Deliver last_word ∉ own [kept; gone])). vm_compute. reflexivity.
  - intros q Hq. exists gone. split; [do 3 right; by left|]. intros Hin. apply (elem_of_prefix _ _ _ Hin) in Hq. revert Hq.
    apply (bool_decide_unpack (Deliver gone ∉ history_of removal 1)). vm_compute. reflexivity.
Qed.
