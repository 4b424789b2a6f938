(* Of a message whose record may be dropped, everybody who is no older knows the same operations. *)
From Whimbrel.spec Require Import Forgotten.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Join Collection Collected Checker.

Lemma looks_same_but s t m :
  (∀ k, key_message k ≠ Some m → cell s k = cell t k) → (∀ r, register_message r ≠ Some m → reg s r = reg t r) →
  ¬ lives s m → ¬ lives t m → looks_same s t.
Proof.
  intros Hc Hr Hs Ht.
  assert (∀ m', lives s m' → m' ≠ m) as Hnot by by intros m' Hm ->.
  assert (∀ m', lives s m' ↔ lives t m') as Hl.
  { intros m'. destruct (decide (m' = m)) as [->|Hne]; [tauto|]. apply lives_same; [apply Hc|apply Hr..]; simpl; congruence. }
  assert (∀ r m', lives s m' → register_message r = Some m' → reg s r = reg t r) as Hreg.
  { intros r m' Hm Heq. apply Hr. rewrite Heq. intros [= ->]. by apply Hnot in Hm. }
  assert (∀ k m', lives s m' → key_message k = Some m' → cell s k = cell t k) as Hcell.
  { intros k m' Hm Heq. apply Hc. rewrite Heq. intros [= ->]. by apply Hnot in Hm. }
  assert (∀ m', lives s m' → placed_in s m' = placed_in t m' ∧ placed_at s m' = placed_at t m') as Hplace.
  { intros m' Hm. unfold placed_in, placed_at. by rewrite !(Hreg (RPlace m') m'). }
  assert (reg s REpoch = reg t REpoch) as Hepoch by by apply Hr.
  split.
  - done.
  - done.
  - intros m' Hm. unfold uid. destruct (Hplace m' Hm) as [_ ->]. by rewrite (Hreg (RClaim m' _) m'), Hepoch.
  - intros m' f Hm. unfold has_flag. case_bool_decide; by rewrite (Hcell (KFlag m' f) m'), ?(Hreg (REverDeleted m') m').
  - intros m' Hm. by apply (Hreg _ m').
  - intros b. unfold box_exists. rewrite (Hc (KBox b)) by done. split; intros [?|[?|(m' & Hm & Hb)]]; [by left|by right; left| |by left|by right; left|].
    + right. right. exists m'. destruct (Hplace m' Hm) as [<- _]. split; [by apply Hl|done].
    + right. right. exists m'. apply Hl in Hm. destruct (Hplace m' Hm) as [-> _]. done.
  - intros b. unfold box_name. by rewrite !Hr.
  - intros name. unfold subscribed. by rewrite Hc.
  - intros r Hin. apply Hr. rewrite !elem_of_cons, elem_of_nil in Hin.
    destruct Hin as [[->|[->|[->|[]]]]|[[e ->]|(e & slot & ->)]]; done.
Qed.

Lemma greater_nil a : greater [] a = a.
Proof. unfold greater. by rewrite at_most_nil. Qed.

Lemma greater_same a : greater a a = a.
Proof. unfold greater. by rewrite at_most_refl. Qed.

Section joined.
  Context (E : mailbox_execution) (i j : nat) (since p q : list (event op)) (m : message_id) (mine theirs : gmap N N).
  Context (H : dropped_and_joined E i j since p q m mine theirs) (Hold : no_older since q).
  Local Notation s := (state_after empty apply p).
  Local Notation t := (state_after empty apply q).

  Lemma knows_same o : touches o m → o ∈ deliveries p ↔ o ∈ deliveries q.
  Proof.
    intros Ht. split; intros Hin.
    - destruct (not_named _ _ _ _ (allowed _ _ _ _ _ _ _ _ _ H) o Hin) as [Hs|Hn]; [|done]. apply elem_of_deliveries, Hold. by apply elem_of_deliveries.
    - apply elem_of_deliveries. eapply (nobody_touches E i since p m); [apply (here _ _ _ _ _ _ _ _ _ H)|apply (allowed _ _ _ _ _ _ _ _ _ H)
        |apply (there _ _ _ _ _ _ _ _ _ H)|done|done].
  Qed.

  Lemma hidden_here : ¬ lives (contents s) m.
  Proof. eapply (still_hidden E i since p m); [apply (here _ _ _ _ _ _ _ _ _ H)|apply (allowed _ _ _ _ _ _ _ _ _ H)]. Qed.

  Lemma hidden_there : ¬ lives (contents t) m.
  Proof.
    intros Hl. apply hidden_here. revert Hl. apply (same_record E j i q p m); [apply (there _ _ _ _ _ _ _ _ _ H)|apply (here _ _ _ _ _ _ _ _ _ H)|].
    intros o Ho. symmetry. by apply knows_same.
  Qed.

  Lemma same_here_and_there r : register_message r = Some m → reg (contents s) r = reg (contents t) r.
  Proof. intros Hr. apply (same_register p q). intros o v Hv. apply knows_same. by exists (Raise r v). Qed.

  Lemma joined_same : looks_same (joined_after_drop p q m mine theirs) (joined p q mine theirs).
  Proof.
    destruct (proj1 (hidden_is _ _) hidden_here) as [Hcs Hrs]. destruct (proj1 (hidden_is _ _) hidden_there) as [Hct Hrt].
    unfold joined_after_drop, joined. apply (looks_same_but _ _ m).
    - intros k Hk. rewrite !cell_join, cell_drop. by rewrite decide_False.
    - intros r Hr. rewrite !reg_join, reg_drop. by rewrite decide_False.
    - intros [Hl|[Hd Hk]].
      + apply Hl. rewrite cell_join, cell_drop, decide_True, Hct by done. unfold join_dots. set_solver.
      + rewrite reg_join, reg_drop, decide_True, greater_nil in Hd, Hk by done. by destruct Hrt.
    - intros [Hl|[Hd Hk]].
      + apply Hl. rewrite cell_join, Hcs, Hct. unfold join_dots. set_solver.
      + rewrite reg_join, same_here_and_there, greater_same in Hd, Hk by done. by destruct Hrt.
  Qed.
End joined.

Theorem join_after_drop : join_after_drop_statement.
Proof. intros E i j since p q m mine theirs H Hold. by eapply joined_same. Qed.

Local Open Scope N_scope.

(* A delivery, the other node learns of it; it is expunged, and the other learns of that and goes on. *)
Definition parcel : message_id := (0, 0, 77).
Definition delivery : op := Op (1, 1) 1 ∅ (ADeliver parcel (0, 7) INBOX 0 65 8).
Definition expunge : op := Op (1, 2) 2 ∅ (AExpunge [(parcel, ∅)]).
Definition later : op := Op (2, 1) 3 {[ 1 := 2 ]} (ASubscribe 5).
Definition whole : list (event op) := [Broadcast delivery; Deliver delivery; Broadcast expunge; Deliver expunge].
Definition old : list (event op) := [Deliver delivery].
Definition report : list (event op) := [Deliver delivery; Deliver expunge].
Definition two : list (list (event op)) := [whole ++ [Deliver later]; report ++ [Broadcast later; Deliver later]].

Lemma two_ok : checked valid_ok two = true.
Proof. vm_compute. reflexivity. Qed.

Lemma vector_ok (v : gmap N N) s n : (∀ d : dot, d ∈ applied s ↔ d.1 = 1 ∧ 0 < d.2 ≤ n) → v = {[ 1 := n ]} → vector_of v s.
Proof.
  intros Hs -> d Hd. rewrite Hs. unfold covers. rewrite bool_decide_eq_true. destruct (decide (d.1 = 1)) as [->|Hne].
  - rewrite lookup_singleton. simpl. naive_solver.
  - rewrite lookup_singleton_ne by done. simpl. split; [lia|naive_solver].
Qed.

Theorem old_state_revives : old_state_revives_statement.
Proof.
  set (E := checked_execution valid valid_ok valid_ok_valid _ two_ok).
  exists E, 0%nat, 1%nat, whole, whole, old, parcel, {[ 1 := 2 ]}, {[ 1 := 1 ]}. split; [split|split].
  - by exists [Deliver later].
  - by exists [Deliver expunge; Broadcast later; Deliver later].
  - split.
    + done.
    + apply (bool_decide_unpack _). vm_compute. reflexivity.
    + intros o Ho. by left.
    + intros j o Ho. right. destruct j as [|[|j]]; [| |by apply elem_of_nil in Ho].
      * exists whole. split; [by exists [Deliver later]|]. split; [done|]. intros x Hx. unfold whole in *. rewrite !elem_of_cons, elem_of_nil in Hx. rewrite !elem_of_cons. naive_solver.
      * exists report. split; [by exists [Broadcast later; Deliver later]|].
        unfold whole, report. split; intros x Hx; rewrite !elem_of_cons, elem_of_nil in Hx; rewrite ?elem_of_cons; naive_solver.
    + intros j o Ho Hm. assert (o = delivery ∨ o = expunge ∨ o = later) as Hor.
      { assert (Broadcast o ∈ mjoin two) as Hin.
        { destruct j as [|[|j]]; [| |by apply elem_of_nil in Ho]; apply elem_of_list_join; eexists; (split; [exact Ho|]); [by left|right; by left]. }
        simpl in Hin. rewrite !elem_of_cons, elem_of_nil in Hin. naive_solver. }
      destruct Hor as [->|[->| ->]]; [right; by left|do 3 right; by left|]. destruct Hm as [(pl & b & e & u & c & [=])|[=]].
  - apply (vector_ok _ _ 2); [|done]. intros d.
    replace (applied (state_after empty apply whole)) with ({[ (1, 2); (1, 1) ]} : gset dot) by (apply (bool_decide_unpack _); vm_compute; reflexivity).
    rewrite elem_of_union, !elem_of_singleton. destruct d as [x n]. simpl. split; [intros [[= -> ->]|[= -> ->]]; lia|].
    intros [-> Hn]. assert (n = 1 ∨ n = 2) as [-> | ->] by lia; auto.
  - apply (vector_ok _ _ 1); [|done]. intros d.
    replace (applied (state_after empty apply old)) with ({[ (1, 1) ]} : gset dot) by (apply (bool_decide_unpack _); vm_compute; reflexivity).
    rewrite elem_of_singleton. destruct d as [x n]. simpl. split; [intros [= -> ->]; lia|]. intros [-> Hn]. f_equal. lia.
  - apply (bool_decide_unpack _). vm_compute. reflexivity.
  - apply (bool_decide_unpack _). vm_compute. reflexivity.
Qed.
