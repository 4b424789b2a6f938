(* One node uses every operation while it is cut off, the other makes a mailbox. Then each delivers what the other did. *)
From Whimbrel.spec Require Import Witness.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker.

Local Open Scope N_scope.

Definition make (n : N) (a : action) : op := Op (1, n) n ∅ a.
Definition spare : box_id := (1, 2).
Definition first : message_id := (1, 3, 0).
Definition parcel : message_id := (0, 0, 77).

Definition ops : list op := [
  make 1 (AOpen 1000 0);
  make 2 (ACreate None 5 0);
  make 3 (AAppend spare 0 65 [1; DELETED] 9);
  make 4 (ADeliver parcel (0, 7) INBOX 0 129 8);
  make 5 (ACopy INBOX 0 [(first, 193, [1])]);
  make 6 (AMove INBOX 0 [(first, 257, true)]);
  make 7 (AStore [first; parcel] [3] [1; DELETED] true);
  make 8 (ASubscribe 5);
  make 9 (AUnsubscribe 5 {[ (1, 8) ]});
  make 10 (ARename [spare] 6);
  make 11 (AClaim 0 [(parcel, (0, 7), 321)]);
  make 12 (ABump 50 0);
  make 13 (AExpunge [(parcel, {[ (1, 7) ]})]);
  make 14 (ADelete [(spare, {[ (1, 10) ]})] [(first, {[ (1, 7) ]})]);
  make 15 (AEpoch 2000)].
Definition other : op := Op (2, 1) 1 ∅ (ACreate None 5 0).

Definition histories : list (list (event op)) := [own ops ++ [Deliver other]; [Broadcast other; Deliver other] ++ (Deliver <$> ops)].

Lemma histories_ok : checked valid_ok histories = true.
Proof. vm_compute. reflexivity. Qed.

Lemma own_delivered o l : o ∈ l → Deliver o ∈ own l.
Proof. intros Ho. apply elem_of_list_join. exists [Broadcast o; Deliver o]. split; [right; by left|]. by apply (elem_of_list_fmap_1 (λ o, [Broadcast o; Deliver o])). Qed.

Lemma every_kind k : (k < 15)%nat → ∃ a, a ∈ ops ∧ kind (op_action a) = k.
Proof.
  intros Hk. assert (Forall (λ k, k ∈ (kind ∘ op_action) <$> ops) (seq 0 15)) as H by (apply (bool_decide_unpack _); by vm_compute).
  rewrite Forall_forall in H. specialize (H k). apply elem_of_list_fmap in H as (a & -> & Ha); [by exists a|]. apply elem_of_seq. lia.
Qed.

Theorem witness_execution : witness_statement.
Proof.
  exists (checked_execution valid valid_ok valid_ok_valid histories histories_ok). intros k Hk. destruct (every_kind k Hk) as (a & Ha & Hkind).
  exists a, other. split; [done|]. split; [|split; [|split; [|split]]].
  - apply elem_of_app. left. by apply own_delivered.
  - apply elem_of_app. right. by left.
  - apply elem_of_app. right. by apply elem_of_list_fmap_1.
  - right. by left.
  - assert (Forall (λ o, saw other (op_dot o) = false ∧ saw o (op_dot other) = false) ops) as H by (apply (bool_decide_unpack _); by vm_compute).
    rewrite Forall_forall in H. destruct (H a Ha). eapply checked_concurrent; [exact histories_ok|done|done].
Qed.
