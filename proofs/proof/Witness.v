(* One node uses every operation while it is cut off, the other makes a mailbox. Then each delivers what the other did. The assumptions are checked by
   computation, place by place in the two histories. *)
From Whimbrel.spec Require Import Witness.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox.

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

Definition own (l : list op) : list (event op) := mjoin ((λ o, [Broadcast o; Deliver o]) <$> l).
Definition history0 : list (event op) := own ops ++ [Deliver other].
Definition history1 : list (event op) := [Broadcast other; Deliver other] ++ (Deliver <$> ops).
Definition histories (i : nat) : list (event op) := match i with 0%nat => history0 | 1%nat => history1 | _ => [] end.

(* Every place in a history: what came before it, and what is there. *)
Fixpoint places {A} (p l : list A) : list (list A * A) := match l with [] => [] | e :: l => (p, e) :: places (p ++ [e]) l end.

Lemma places_all {A} (p l p' : list A) e q : l = p' ++ e :: q → (p ++ p', e) ∈ places p l.
Proof.
  revert p l. induction p' as [|x p' IH]; intros p l ->; simpl.
  - rewrite app_nil_r. by left.
  - right. specialize (IH (p ++ [x]) _ eq_refl). by rewrite <- app_assoc in IH.
Qed.

Definition what (e : event op) : op := match e with Broadcast o | Deliver o => o end.
Definition tag (e : event op) : bool * (N * N) := match e with Broadcast o => (true, op_dot o) | Deliver o => (false, op_dot o) end.

Global Instance lives_dec s m : Decision (lives s m).
Proof. unfold lives. apply _. Defined.

Definition dots_ok (s : account) (e : effect) : bool := match e with RemoveDots k ds => bool_decide (ds = cell s k) | _ => true end.

Definition valid_at (p : list (event op)) (o : op) : bool :=
  let s := contents (state_after empty apply p) in
  bool_decide (0 < (op_dot o).2) && bool_decide (0 < op_time o) && bool_decide (op_deps o = ∅)
  && bool_decide (op_dot o = ((op_dot o).1, N.of_nat (S (length (deliveries p)))))
  && bool_decide (op_dot <$> deliveries p = (λ i, ((op_dot o).1, N.of_nat i)) <$> seq 1 (length (deliveries p)))
  && forallb (dots_ok s) (effects o) && forallb (λ m, bool_decide (lives s m)) (named o).

Lemma valid_at_valid p o : valid_at p o = true → valid (state_after empty apply p) o.
Proof.
  unfold valid_at. rewrite !andb_true_iff, !bool_decide_eq_true, !forallb_forall. intros ((((((Hn & Ht) & Hd) & Ho) & Hl) & He) & Hm). split; [done|done|..].
  - intros [x n] Hpos. simpl in Hpos. unfold state_after. rewrite applied_replay. unfold saw. rewrite Hd, lookup_empty. simpl.
    rewrite elem_of_union, elem_of_list_to_set, Hl, elem_of_list_fmap. split.
    + case_bool_decide as Hx; intros Hs%bool_decide_eq_true; [|lia]. left. exists (N.to_nat n). rewrite elem_of_seq.
      assert ((op_dot o).2 = N.of_nat (S (length (deliveries p)))) as H2 by by rewrite Ho at 1. split; [|lia]. by rewrite N2Nat.id, Hx.
    + intros [(i & [= -> ->] & Hi%elem_of_seq)|H]; [|by apply not_elem_of_empty in H]. rewrite bool_decide_true by done.
      assert ((op_dot o).2 = N.of_nat (S (length (deliveries p)))) as H2 by by rewrite Ho at 1. apply bool_decide_eq_true. rewrite H2. lia.
  - intros k ds Hin. apply elem_of_list_In, He in Hin. by apply bool_decide_eq_true in Hin.
  - intros m Hin. apply elem_of_list_In, Hm in Hin. by apply bool_decide_eq_true in Hin.
Qed.

(* What must hold at one place. *)
Definition place_ok (pe : list (event op) * event op) : bool :=
  match pe.2 with
  | Broadcast o => valid_at pe.1 o && bool_decide (Forall (λ e, (op_dot (what e)).1 = 1 ∧ (op_dot o).1 = 1 ∧ (op_dot (what e)).2 < (op_dot o).2) pe.1)
  | Deliver o => bool_decide (Forall (λ o', (op_dot o).1 = 1 → (op_dot o').2 < (op_dot o).2 → op_dot o' ∈ op_dot <$> deliveries pe.1) ops)
  end.

Lemma places_ok i : forallb place_ok (places [] (histories i)) = true.
Proof. destruct i as [|[|i]]; by vm_compute. Qed.

Lemma place_ok_at i p e q : histories i = p ++ e :: q → place_ok (p, e) = true.
Proof.
  intros Heq. pose proof (places_ok i) as H. rewrite forallb_forall in H. apply H, elem_of_list_In. by apply (places_all [] _ p e q).
Qed.

Definition all : list op := ops ++ [other].

Lemma same_dot o1 o2 : o1 ∈ all → o2 ∈ all → op_dot o1 = op_dot o2 → o1 = o2.
Proof.
  intros [i Hi]%elem_of_list_lookup [j Hj]%elem_of_list_lookup Heq.
  assert (NoDup (op_dot <$> all)) as Hnd by (apply (bool_decide_unpack _); by vm_compute).
  assert (i = j) as ->; [|congruence]. eapply (NoDup_lookup _ _ _ (op_dot o1) Hnd); rewrite list_lookup_fmap; [by rewrite Hi|rewrite Hj; simpl; by rewrite Heq].
Qed.

Lemma own_elem e l : e ∈ own l → what e ∈ l.
Proof. unfold own. induction l as [|o l IH]; simpl; [by intros ?%elem_of_nil|]. rewrite !elem_of_cons. intros [->|[->|H]]; [by left..|right; by apply IH]. Qed.

Lemma elem_all i e : e ∈ histories i → what e ∈ all.
Proof.
  unfold all. destruct i as [|[|i]]; cbn [histories]; [| |by intros ?%elem_of_nil].
  - unfold history0. rewrite !elem_of_app. intros [H| ->%elem_of_list_singleton]; [left; by apply own_elem|right; by left].
  - unfold history1. rewrite !elem_of_app. intros [H|(o & -> & H)%elem_of_list_fmap]; [|by left].
    right. apply elem_of_cons in H as [->| ->%elem_of_list_singleton]; by left.
Qed.

Lemma own_app l k : own (l ++ k) = own l ++ own k.
Proof.
  induction l as [|o l IH]; [done|]. change (Broadcast o :: Deliver o :: own (l ++ k) = Broadcast o :: Deliver o :: own l ++ own k). by rewrite IH.
Qed.

Lemma broadcast_at i o : Broadcast o ∈ histories i → (i = 0%nat ∧ o ∈ ops) ∨ (i = 1%nat ∧ o = other).
Proof.
  destruct i as [|[|i]]; cbn [histories]; [| |by intros ?%elem_of_nil].
  - unfold history0. rewrite elem_of_app. intros [H|H%elem_of_list_singleton]; [|done]. left. split; [done|]. by apply own_elem in H.
  - unfold history1. rewrite elem_of_app. intros [H|(o' & [=] & H)%elem_of_list_fmap].
    apply elem_of_cons in H as [[= ->]|[=]%elem_of_list_singleton]. by right.
Qed.

Lemma own_before o l : o ∈ l → before (own l) (Broadcast o) (Deliver o).
Proof. intros (x & y & ->)%elem_of_list_split. exists (own x), [], (own y). by rewrite own_app. Qed.

Lemma before_app {A} (l k : list A) x y : before l x y → before (l ++ k) x y.
Proof. intros (p & q & r & ->). exists p, q, (r ++ k). rewrite <- !app_assoc. simpl. by rewrite <- app_assoc. Qed.

Lemma first_is_one o : o ∈ all → (op_dot o).1 = 1 → o ∈ ops.
Proof. unfold all. rewrite elem_of_app. intros [H| ->%elem_of_list_singleton]; [done|]. by vm_compute. Qed.

Lemma past m1 m2 : happened_before histories m1 m2 → m1 ∈ ops ∧ (op_dot m2).1 = 1 ∧ (op_dot m1).2 < (op_dot m2).2.
Proof.
  assert (∀ i e m, before (histories i) e (Broadcast m) → what e ∈ ops ∧ (op_dot m).1 = 1 ∧ (op_dot (what e)).2 < (op_dot m).2) as Hone.
  { intros i e m Hb. pose proof (before_elem _ _ _ Hb) as [He _]. apply elem_all in He. destruct Hb as (p & q & r & Heq).
    assert (histories i = (p ++ e :: q) ++ Broadcast m :: r) as Heq' by by rewrite Heq, <- app_assoc.
    apply place_ok_at in Heq'. unfold place_ok in Heq'. cbn [fst snd] in Heq'. rewrite andb_true_iff, bool_decide_eq_true, Forall_forall in Heq'.
    destruct Heq' as [_ H]. destruct (H e) as (H1 & H2 & H3). { apply elem_of_app. right. by left. }
    split; [by apply first_is_one|done]. }
  induction 1 as [i m1 m2 H|i m1 m2 H|m1 m2 m3 _ IH1 _ IH2]; [by apply (Hone i) in H..|].
  destruct IH1 as (? & ? & ?), IH2 as (? & ? & ?). split; [done|]. split; [done|]. lia.
Qed.

Lemma distinct i : NoDup (histories i).
Proof. apply (NoDup_fmap_1 tag). destruct i as [|[|i]]; (apply (bool_decide_unpack _); by vm_compute). Qed.

Program Definition witness : mailbox_execution := {| history := histories |}.
Next Obligation. apply distinct. Qed.
Next Obligation.
  intros i m H%elem_all. simpl in H. unfold all in H. apply elem_of_app in H as [H| ->%elem_of_list_singleton].
  - exists 0%nat. apply own_before in H. apply before_elem in H as [H _]. apply elem_of_app. by left.
  - exists 1%nat. by left.
Qed.
Next Obligation.
  intros i m [[-> H]|[-> ->]]%broadcast_at; [by apply before_app, own_before|]. by exists [], [], (Deliver <$> ops).
Qed.
Next Obligation.
  intros i j m1 m2 H1 H2 Hid. assert (m1 = m2) as -> by (apply (same_dot m1 m2); [by apply elem_all in H1|by apply elem_all in H2|done]).
  split; [|done]. apply broadcast_at in H1 as [[-> H1]|[-> H1]]; apply broadcast_at in H2 as [[-> H2]|[-> H2]]; try done; subst;
    exfalso; [revert H1|revert H2]; intros H; assert (Forall (λ o, op_dot o ≠ op_dot other) ops) as Hf by (apply (bool_decide_unpack _); by vm_compute);
    rewrite Forall_forall in Hf; by apply Hf in H.
Qed.
Next Obligation.
  intros i m1 m2 Hin (H1 & H2 & H3)%past. apply elem_of_list_split in Hin as (p & q & Heq). pose proof Heq as Hok. apply place_ok_at in Hok.
  unfold place_ok in Hok. cbn [fst snd] in Hok. rewrite bool_decide_eq_true, Forall_forall in Hok.
  specialize (Hok m1 H1 H2 H3). apply elem_of_list_fmap in Hok as (m & Hd & Hm). apply elem_of_deliveries in Hm.
  assert (m = m1) as ->.
  { apply same_dot; [|apply elem_of_app; by left|done]. apply (elem_all i (Deliver m)). rewrite Heq. apply elem_of_app. by left. }
  apply elem_of_list_split in Hm as (x & y & ->). exists x, y, q. by rewrite Heq, <- app_assoc.
Qed.
Next Obligation.
  intros i p m q Heq. apply place_ok_at in Heq. unfold place_ok in Heq. cbn [fst snd] in Heq. apply andb_true_iff in Heq as [H _]. by apply valid_at_valid.
Qed.

Lemma every_kind k : (k < 15)%nat → ∃ a, a ∈ ops ∧ kind (op_action a) = k.
Proof.
  intros Hk. assert (Forall (λ k, k ∈ (kind ∘ op_action) <$> ops) (seq 0 15)) as H by (apply (bool_decide_unpack _); by vm_compute).
  rewrite Forall_forall in H. specialize (H k). apply elem_of_list_fmap in H as (a & -> & Ha); [by exists a|]. apply elem_of_seq. lia.
Qed.

Theorem witness_execution : witness_statement.
Proof.
  exists witness. intros k Hk. destruct (every_kind k Hk) as (a & Ha & Hkind). exists a, other. split; [done|].
  cbn [history witness histories]. split; [|split; [|split; [|split]]].
  - apply own_before, before_elem in Ha as [_ H]. apply elem_of_app. by left.
  - apply elem_of_app. right. by left.
  - apply elem_of_app. right. by apply elem_of_list_fmap_1.
  - right. by left.
  - split; intros (H1 & H2 & H3)%past; [by vm_compute in H2|].
    assert (Forall (λ o, op_dot o ≠ op_dot other) ops) as Hf by (apply (bool_decide_unpack _); by vm_compute).
    rewrite Forall_forall in Hf. by apply Hf in H1.
Qed.
