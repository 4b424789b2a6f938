(* Concrete histories: all that an [execution] asks is decided by computation. *)
From Whimbrel.spec Require Import Mailbox.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox.

Global Instance action_eq_dec : EqDecision action.
Proof. solve_decision. Defined.
Global Instance op_eq_dec : EqDecision op.
Proof. solve_decision. Defined.
Global Instance event_eq_dec : EqDecision (event op).
Proof. solve_decision. Defined.
Global Instance effect_eq_dec : EqDecision effect.
Proof. solve_decision. Defined.
Global Instance lives_dec s m : Decision (lives s m).
Proof. unfold lives. apply _. Defined.

Definition living (s : account) : list message_id :=
  filter (lives s) (omap (λ kc, match kc.1 with KMessage m => Some m | _ => None end) (map_to_list (cells s))
    ++ omap (λ rv, match rv.1 with RDelivered m => Some m | _ => None end) (map_to_list (registers s))).

Lemma elem_of_living s m : m ∈ living s ↔ lives s m.
Proof.
  unfold living. rewrite elem_of_list_filter, elem_of_app, !elem_of_list_omap. setoid_rewrite elem_of_map_to_list'. split; [by intros [H _]|].
  intros H. split; [done|]. destruct H as [H|[H _]].
  - left. unfold cell in H. destruct (cells s !! KMessage m) as [ds|] eqn:E; [|done]. by exists (KMessage m, ds).
  - right. unfold reg in H. destruct (registers s !! RDelivered m) as [v|] eqn:E; [|done]. by exists (RDelivered m, v).
Qed.

Definition exists_ok (s : account) (b : box_id) : bool :=
  bool_decide (b = INBOX) || negb (bool_decide (cell s (KBox b) = ∅))
  || existsb (λ m, bool_decide (lives s m) && bool_decide (placed_in s m = b))
       (omap (λ rv, match rv.1 with RPlace m => Some m | _ => None end) (map_to_list (registers s))).

Lemma exists_ok_exists s b : exists_ok s b = true → box_exists s b.
Proof.
  unfold exists_ok. rewrite !orb_true_iff, bool_decide_eq_true, negb_true_iff, bool_decide_eq_false, existsb_exists.
  intros [[?|?]|(m & _ & [Hl%bool_decide_eq_true Hp%bool_decide_eq_true]%andb_true_iff)]; [by left|by right; left|right; right; by exists m].
Qed.

Definition what (e : event op) : op := match e with Broadcast o | Deliver o => o end.

Definition broadcasts (h : list (event op)) : list op := omap (λ e, match e with Broadcast o => Some o | Deliver _ => None end) h.

Lemma elem_of_broadcasts h o : o ∈ broadcasts h ↔ Broadcast o ∈ h.
Proof.
  unfold broadcasts. rewrite elem_of_list_omap. split.
  - intros ([o'|o'] & Ho & [=]). by subst.
  - intros Ho. by exists (Broadcast o).
Qed.

(* Every place in a history: what came before it, and what is there. *)
Fixpoint places {A} (p l : list A) : list (list A * A) := match l with [] => [] | e :: l => (p, e) :: places (p ++ [e]) l end.

Lemma places_all {A} (p l p' : list A) e q : l = p' ++ e :: q → (p ++ p', e) ∈ places p l.
Proof.
  revert p l. induction p' as [|x p' IH]; intros p l ->; simpl.
  - rewrite app_nil_r. by left.
  - right. specialize (IH (p ++ [x]) _ eq_refl). by rewrite <- app_assoc in IH.
Qed.

(* The rules for what is broadcast. *)
Definition upto (x n : N) : list dot := (λ i, (x, N.of_nat i)) <$> seq 1 (N.to_nat n).

Lemma elem_of_upto x n k : (0 < k)%N → (k ≤ n)%N → (x, k) ∈ upto x n.
Proof. intros. unfold upto. apply elem_of_list_fmap. exists (N.to_nat k). rewrite N2Nat.id, elem_of_seq. split; [done|lia]. Qed.

Definition all_in (ds : list dot) (X : gset dot) : bool := forallb (λ d, bool_decide (d ∈ X)) ds.

Lemma all_in_spec ds X : all_in ds X = true → ∀ d, d ∈ ds → d ∈ X.
Proof. unfold all_in. rewrite forallb_forall. intros H d Hd%elem_of_list_In%H. by apply bool_decide_eq_true in Hd. Qed.

Definition deps_ok (s : replica) (o : op) : bool :=
  forallb (saw o) (elements (applied s)) && all_in (upto (op_dot o).1 (N.pred (op_dot o).2)) (applied s)
  && forallb (λ xn : N * N, bool_decide (xn.1 = (op_dot o).1) || all_in (upto xn.1 xn.2) (applied s)) (map_to_list (op_deps o)).

Definition dots_ok (s : account) (e : effect) : bool := match e with RemoveDots k ds => bool_decide (ds = cell s k) | _ => true end.

Definition valid_ok (s : replica) (o : op) : bool :=
  bool_decide (0 < (op_dot o).2)%N && bool_decide (0 < op_time o)%N && deps_ok s o
  && forallb (dots_ok (contents s)) (effects o) && forallb (λ m, bool_decide (lives (contents s) m)) (named o)
  && forallb (exists_ok (contents s)) (named_boxes o).

Lemma valid_ok_valid s o : valid_ok s o = true → valid s o.
Proof.
  unfold valid_ok, deps_ok. rewrite !andb_true_iff, !bool_decide_eq_true, !forallb_forall. intros (((((Hn & Ht) & ((Ha & Hown) & Hdeps)) & He) & Hm) & Hb).
  split; [done|done|..].
  - intros d Hd. split.
    + intros Hs. unfold saw in Hs. case_bool_decide as Hx.
      * apply bool_decide_eq_true in Hs. apply (all_in_spec _ _ Hown). rewrite (surjective_pairing d), Hx. apply elem_of_upto; [done|lia].
      * apply bool_decide_eq_true in Hs. destruct (op_deps o !! d.1) as [n|] eqn:Hl; simpl in Hs; [|lia].
        apply elem_of_map_to_list, elem_of_list_In, Hdeps in Hl. simpl in Hl. apply orb_true_iff in Hl as [Hl|Hl].
        -- by apply bool_decide_eq_true in Hl.
        -- apply (all_in_spec _ _ Hl). rewrite (surjective_pairing d). by apply elem_of_upto.
    + intros Hin. by apply Ha, elem_of_list_In, elem_of_elements.
  - intros k ds Hin. apply elem_of_list_In, He in Hin. by apply bool_decide_eq_true in Hin.
  - intros m Hin. apply elem_of_list_In, Hm in Hin. by apply bool_decide_eq_true in Hin.
  - intros b Hin. by apply elem_of_list_In, Hb, exists_ok_exists in Hin.
Qed.

Section checker.
  Context (rules : replica → op → Prop) (rules_ok : replica → op → bool) (rules_sound : ∀ s o, rules_ok s o = true → rules s o).
  Context (hs : list (list (event op))).

  Definition history_of (i : nat) : list (event op) := default [] (hs !! i).
  Definition all_ops : list op := what <$> mjoin hs.

  Definition place_ok (h : list (event op)) (pe : list (event op) * event op) : bool :=
    match pe.2 with
    | Broadcast o => rules_ok (state_after empty apply pe.1) o && forallb (λ e, saw o (op_dot (what e))) pe.1 && bool_decide (Deliver o ∈ h)
    | Deliver o =>
        forallb (λ o', negb (saw o (op_dot o')) || bool_decide (Deliver o' ∈ pe.1)) all_ops
        && (bool_decide (Broadcast o ∉ h) || bool_decide (Broadcast o ∈ pe.1)) && existsb (λ h', bool_decide (Broadcast o ∈ h')) hs
    end.

  Definition unique_ok : bool :=
    forallb (λ i, forallb (λ j, forallb (λ m1, forallb (λ m2, negb (bool_decide (op_dot m1 = op_dot m2)) || (bool_decide (i = j) && bool_decide (m1 = m2)))
      (broadcasts (history_of j))) (broadcasts (history_of i))) (seq 0 (length hs))) (seq 0 (length hs)).

  Definition transitive_ok : bool :=
    forallb (λ x, forallb (λ y, negb (saw y (op_dot x)) || forallb (λ z, negb (saw z (op_dot y)) || saw z (op_dot x)) all_ops) all_ops) all_ops.

  Definition history_ok (h : list (event op)) : bool := bool_decide (NoDup h) && forallb (place_ok h) (places [] h).

  Definition checked : bool := forallb history_ok hs && unique_ok && transitive_ok.

  Context (Hok : checked = true).

  Lemma in_hs i e : e ∈ history_of i → ∃ h, hs !! i = Some h ∧ history_of i = h ∧ e ∈ h.
  Proof. unfold history_of. destruct (hs !! i) as [h|]; [by exists h|]. by intros ?%elem_of_nil. Qed.

  Lemma history_is_ok i : history_ok (history_of i) = true.
  Proof.
    unfold checked in Hok. rewrite !andb_true_iff, forallb_forall in Hok. destruct Hok as ((H & _) & _).
    unfold history_of. destruct (hs !! i) as [h|] eqn:Hh; [|done]. simpl. apply H, elem_of_list_In. by eapply elem_of_list_lookup_2.
  Qed.

  Lemma place_is_ok i p e q : history_of i = p ++ e :: q → place_ok (history_of i) (p, e) = true.
  Proof.
    intros Heq. pose proof (history_is_ok i) as H. unfold history_ok in H. rewrite andb_true_iff, forallb_forall in H. destruct H as [_ H].
    apply H, elem_of_list_In. by apply (places_all [] _ p e q).
  Qed.

  Lemma in_all_ops i e : e ∈ history_of i → what e ∈ all_ops.
  Proof.
    intros (h & Hh & _ & He)%in_hs. apply elem_of_list_fmap_1. apply elem_of_list_join. exists h. split; [done|]. by eapply elem_of_list_lookup_2.
  Qed.

  Lemma before_seen i e m : before (history_of i) e (Broadcast m) → saw m (op_dot (what e)) = true.
  Proof.
    intros (p & q & r & Heq). replace (p ++ e :: q ++ Broadcast m :: r) with ((p ++ e :: q) ++ Broadcast m :: r) in Heq by by rewrite <- app_assoc.
    apply place_is_ok in Heq. unfold place_ok in Heq. cbn [fst snd] in Heq. rewrite !andb_true_iff, !forallb_forall in Heq.
    destruct Heq as [[_ H] _]. apply H, elem_of_list_In, elem_of_app. right. by left.
  Qed.

  Lemma past_seen m1 m2 : happened_before history_of m1 m2 → saw m2 (op_dot m1) = true ∧ m1 ∈ all_ops ∧ m2 ∈ all_ops.
  Proof.
    induction 1 as [i m1 m2 H|i m1 m2 H|m1 m2 m3 _ (H12 & H1 & H2) _ (H23 & _ & H3)].
    - pose proof (before_elem _ _ _ H) as [H1%in_all_ops H2%in_all_ops]. split; [by apply before_seen in H|done].
    - pose proof (before_elem _ _ _ H) as [H1%in_all_ops H2%in_all_ops]. split; [by apply before_seen in H|done].
    - split; [|done]. unfold checked in Hok. rewrite !andb_true_iff in Hok. destruct Hok as [_ Ht]. unfold transitive_ok in Ht.
      rewrite forallb_forall in Ht. specialize (Ht m1 ltac:(by apply elem_of_list_In)). rewrite forallb_forall in Ht.
      specialize (Ht m2 ltac:(by apply elem_of_list_In)). rewrite H12 in Ht. simpl in Ht. rewrite forallb_forall in Ht.
      specialize (Ht m3 ltac:(by apply elem_of_list_In)). by rewrite H23 in Ht.
  Qed.

  Lemma elem_split {A} (l p q : list A) x y : l = p ++ y :: q → x ∈ p → before l x y.
  Proof. intros -> (p1 & p2 & ->)%elem_of_list_split. exists p1, p2, q. by rewrite <- app_assoc. Qed.

  Program Definition checked_execution : execution op_dot empty apply rules := {| history := history_of |}.
  Next Obligation.
    intros i. pose proof (history_is_ok i) as H. unfold history_ok in H. rewrite andb_true_iff in H. destruct H as [H _]. by apply bool_decide_eq_true in H.
  Qed.
  Next Obligation.
    intros i m (p & q & Heq)%elem_of_list_split. apply place_is_ok in Heq. unfold place_ok in Heq. cbn [fst snd] in Heq.
    rewrite !andb_true_iff, existsb_exists in Heq. destruct Heq as [_ (h & Hh%elem_of_list_In & Hin%bool_decide_eq_true)].
    apply elem_of_list_lookup in Hh as [j Hj]. exists j. unfold history_of. by rewrite Hj.
  Qed.
  Next Obligation.
    intros i m Hb. assert (Deliver m ∈ history_of i) as Hd.
    { pose proof Hb as (p & q & Heq)%elem_of_list_split. apply place_is_ok in Heq. unfold place_ok in Heq. cbn [fst snd] in Heq.
      rewrite !andb_true_iff in Heq. destruct Heq as [_ H]. by apply bool_decide_eq_true in H. }
    apply elem_of_list_split in Hd as (p & q & Heq). pose proof Heq as H. apply place_is_ok in H. unfold place_ok in H. cbn [fst snd] in H.
    rewrite !andb_true_iff, orb_true_iff, !bool_decide_eq_true in H. destruct H as [[_ [H|H]] _]; [done|]. by eapply elem_split.
  Qed.
  Next Obligation.
    intros i j m1 m2 H1 H2 Hid. unfold checked in Hok. rewrite !andb_true_iff in Hok. destruct Hok as [[_ H] _]. unfold unique_ok in H.
    assert (∀ k m, Broadcast m ∈ history_of k → In k (seq 0 (length hs))) as Hk.
    { intros k m (h & Hh & _)%in_hs. apply elem_of_list_In, elem_of_seq. apply lookup_lt_Some in Hh. lia. }
    rewrite forallb_forall in H. specialize (H i (Hk i _ H1)). rewrite forallb_forall in H. specialize (H j (Hk j _ H2)).
    rewrite forallb_forall in H. specialize (H m1 ltac:(by apply elem_of_list_In, elem_of_broadcasts)).
    rewrite forallb_forall in H. specialize (H m2 ltac:(by apply elem_of_list_In, elem_of_broadcasts)).
    rewrite bool_decide_true in H by done. simpl in H. by rewrite andb_true_iff, !bool_decide_eq_true in H.
  Qed.
  Next Obligation.
    intros i m1 m2 Hin (Hs & H1 & _)%past_seen. apply elem_of_list_split in Hin as (p & q & Heq). pose proof Heq as H. apply place_is_ok in H.
    unfold place_ok in H. cbn [fst snd] in H. rewrite !andb_true_iff, forallb_forall in H. destruct H as [[H _] _].
    specialize (H m1 ltac:(by apply elem_of_list_In)). rewrite Hs in H. simpl in H. apply bool_decide_eq_true in H. by eapply elem_split.
  Qed.
  Next Obligation.
    intros i p m q Heq. apply place_is_ok in Heq. unfold place_ok in Heq. cbn [fst snd] in Heq. rewrite !andb_true_iff in Heq.
    destruct Heq as [[H _] _]. by apply rules_sound.
  Qed.

  Lemma checked_concurrent a b : saw b (op_dot a) = false → saw a (op_dot b) = false → concurrent (happened_before history_of) a b.
  Proof. intros Hab Hba. split; intros (Hs & _)%past_seen; congruence. Qed.
End checker.

(* A node makes these operations one after the other. *)
Definition own (l : list op) : list (event op) := mjoin ((λ o, [Broadcast o; Deliver o]) <$> l).
