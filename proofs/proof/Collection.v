(* Once a hidden message is stable, every operation that still comes was made by someone who saw it hidden, so none touches its record. *)
From Whimbrel.spec Require Import Collection.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Join.

(* Who touches a record names the message or makes it. *)
Lemma about_claim e m m' s epoch uid : e ∈ claim_effects m' s epoch uid → about e = Some m → m = m'.
Proof. unfold claim_effects. rewrite !elem_of_cons, elem_of_nil. intros [->|[->|[->|[]]]]; simpl; congruence. Qed.

Lemma about_set e m m' f : e ∈ set_flag m' f → about e = Some m → m = m'.
Proof. unfold set_flag. case_bool_decide; rewrite !elem_of_cons, elem_of_nil; [intros [->|[->|[]]]|intros [->|[]]]; simpl; congruence. Qed.

Lemma about_clear e m m' f : e ∈ clear_flag m' f → about e = Some m → m = m'.
Proof. unfold clear_flag. case_bool_decide; rewrite elem_of_cons, elem_of_nil; intros [->|[]]; simpl; congruence. Qed.

Lemma about_sets (e : effect) (m m' : message_id) (fs : list N) : e ∈ mjoin (set_flag m' <$> fs) → about e = Some m → m = m'.
Proof. intros (l & He & (f & -> & _)%elem_of_list_fmap)%elem_of_list_join Ha. by eapply about_set. Qed.

Lemma about_clears (e : effect) (m m' : message_id) (fs : list N) : e ∈ mjoin (clear_flag m' <$> fs) → about e = Some m → m = m'.
Proof. intros (l & He & (f & -> & _)%elem_of_list_fmap)%elem_of_list_join Ha. by eapply about_clear. Qed.

Lemma about_removals (e : effect) (m : message_id) (ms : list (message_id * gset dot)) : e ∈ mjoin (removal_effects <$> ms) → about e = Some m → m ∈ ms.*1.
Proof.
  intros (l & He & (r & -> & Hr)%elem_of_list_fmap)%elem_of_list_join Ha. unfold removal_effects in He. rewrite !elem_of_cons, elem_of_nil in He.
  assert (r.1 = m) as <- by (destruct He as [->|[->|[]]]; simpl in Ha; congruence). by apply elem_of_list_fmap_1.
Qed.

Lemma touches_how o m : touches o m → m ∈ named o ∨ makes o m.
Proof.
  intros (e & He & Ha). unfold effects in He. unfold named, makes.
  destruct (op_action o) as [created floor|derived name use|boxes messages|boxes to|name|name dots|b epoch u flags content|m' placed b epoch u content
    |b epoch entries|b epoch entries|messages set clear rescue|messages|epoch claims|counter epoch|uidvalidity].
  - rewrite !elem_of_cons, elem_of_nil in He. by destruct He as [->|[->|[]]].
  - rewrite !elem_of_cons, elem_of_nil in He. by destruct He as [->|[->|[->|[]]]].
  - left. apply elem_of_app in He as [(b & -> & _)%elem_of_list_fmap|He]; [done|]. by eapply about_removals.
  - apply elem_of_list_join in He as (l & He & (b & -> & _)%elem_of_list_fmap). rewrite !elem_of_cons, elem_of_nil in He. by destruct He as [->|[->|[]]].
  - rewrite elem_of_cons, elem_of_nil in He. by destruct He as [->|[]].
  - rewrite elem_of_cons, elem_of_nil in He. by destruct He as [->|[]].
  - right. right. assert (m = own_message (op_dot o) 0) as ->; [|done].
    rewrite !elem_of_cons, elem_of_app in He. destruct He as [->|[->|[->|[->|[He|He]]]]]; simpl in Ha; try congruence; [by eapply about_claim|by eapply about_sets].
  - right. left. assert (m = m') as ->; [|by repeat eexists].
    rewrite !elem_of_cons in He. destruct He as [->|[->|[->|[->|He]]]]; simpl in Ha; try congruence. by eapply about_claim.
  - right. right. rewrite elem_of_cons in He. destruct He as [->|He]; [done|].
    apply elem_of_list_join in He as (l & He & (n & Hn)%elem_of_list_lookup). rewrite list_lookup_imap in Hn.
    destruct (entries !! n) as [entry|]; [|done]. simpl in Hn. injection Hn as <-. unfold copy_effects in He.
    assert (m = own_message (op_dot o) (N.of_nat n)) as ->; [|done].
    rewrite !elem_of_cons, elem_of_app in He. destruct He as [->|[->|[He|He]]]; simpl in Ha; try congruence; [by eapply about_claim|by eapply about_sets].
  - left. rewrite elem_of_cons in He. destruct He as [->|He]; [done|].
    apply elem_of_list_join in He as (l & He & (entry & -> & Hin)%elem_of_list_fmap). unfold move_effects in He.
    assert (m = entry.1.1) as ->; [|by do 2 apply elem_of_list_fmap_1].
    rewrite !elem_of_cons, elem_of_app in He. destruct He as [->|[->|[He|He]]]; simpl in Ha; try congruence; [by eapply about_claim|].
    destruct entry.2; [by eapply about_clear|by apply elem_of_nil in He].
  - left. apply elem_of_list_join in He as (l & He & (m' & -> & Hin)%elem_of_list_fmap). unfold store_effects in He. rewrite !elem_of_app in He.
    assert (m = m') as ->; [|done]. destruct He as [He|[He|He]]; [by eapply about_clears|by eapply about_sets|].
    destruct rescue; [|by apply elem_of_nil in He]. apply elem_of_list_singleton in He as ->. simpl in Ha. congruence.
  - left. by eapply about_removals.
  - left. apply elem_of_list_join in He as (l & He & (c & -> & Hin)%elem_of_list_fmap).
    assert (m = c.1.1) as -> by by eapply about_claim. by do 2 apply elem_of_list_fmap_1.
  - rewrite elem_of_cons, elem_of_nil in He. by destruct He as [->|[]].
  - rewrite elem_of_cons, elem_of_nil in He. by destruct He as [->|[]].
Qed.

(* What an operation may take out by its dots. *)
Lemma removed_dots o k ds : RemoveDots k ds ∈ effects o → (∃ b, k = KBox b) ∨ (∃ n, k = KSubscription n) ∨ (∃ m, k = KMessage m).
Proof.
  assert (∀ r s epoch u, RemoveDots k ds ∈ claim_effects r s epoch u → False) as Hclaim.
  { unfold claim_effects. intros ????. by rewrite !elem_of_cons, elem_of_nil; intros [?|[?|[?|?]]]. }
  assert (∀ m f, RemoveDots k ds ∈ set_flag m f → False) as Hset.
  { unfold set_flag. intros ??. case_bool_decide; rewrite !elem_of_cons, elem_of_nil; naive_solver. }
  assert (∀ m f, RemoveDots k ds ∈ clear_flag m f → False) as Hclear.
  { unfold clear_flag. intros ??. case_bool_decide; rewrite !elem_of_cons, elem_of_nil; naive_solver. }
  assert (∀ m fs, RemoveDots k ds ∈ mjoin (set_flag m <$> fs) → False) as Hsets.
  { intros m fs (l & He & (f & -> & _)%elem_of_list_fmap)%elem_of_list_join. by apply Hset in He. }
  assert (∀ m fs, RemoveDots k ds ∈ mjoin (clear_flag m <$> fs) → False) as Hclears.
  { intros m fs (l & He & (f & -> & _)%elem_of_list_fmap)%elem_of_list_join. by apply Hclear in He. }
  assert (∀ ms : list (message_id * gset dot), RemoveDots k ds ∈ mjoin (removal_effects <$> ms) → ∃ m, k = KMessage m) as Hrem.
  { intros ms (l & He & (r & -> & _)%elem_of_list_fmap)%elem_of_list_join. unfold removal_effects in He. rewrite !elem_of_cons, elem_of_nil in He.
    destruct He as [[= -> _]|[?|?]]; [by eexists|done..]. }
  unfold effects.
  destruct (op_action o) as [created floor|derived name use|boxes messages|boxes to|name|name dots|b epoch u flags content|m' placed b epoch u content
    |b epoch entries|b epoch entries|messages set clear rescue|messages|epoch claims|counter epoch|uidvalidity]; intros He.
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - apply elem_of_app in He as [(b & [= -> _] & _)%elem_of_list_fmap|He]; [left; by eexists|]. right. right. by eapply Hrem.
  - apply elem_of_list_join in He as (l & He & (b & -> & _)%elem_of_list_fmap). rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite elem_of_cons, elem_of_nil in He. destruct He as [[= -> _]|[]]. right. left. by eexists.
  - rewrite !elem_of_cons, elem_of_app in He. exfalso. naive_solver.
  - rewrite !elem_of_cons in He. exfalso. naive_solver.
  - rewrite elem_of_cons in He. destruct He as [?|He]; [done|]. apply elem_of_list_join in He as (l & He & (n & Hn)%elem_of_list_lookup).
    rewrite list_lookup_imap in Hn. destruct (entries !! n) as [entry|]; [|done]. simpl in Hn. injection Hn as <-. unfold copy_effects in He.
    rewrite !elem_of_cons, elem_of_app in He. exfalso. naive_solver.
  - rewrite elem_of_cons in He. destruct He as [?|He]; [done|]. apply elem_of_list_join in He as (l & He & (entry & -> & Hin)%elem_of_list_fmap).
    unfold move_effects in He. rewrite !elem_of_cons, elem_of_app in He. exfalso. destruct He as [?|[?|[He|He]]]; [done|done|by eapply Hclaim|].
    destruct entry.2; [by eapply Hclear|by apply elem_of_nil in He].
  - apply elem_of_list_join in He as (l & He & (m' & -> & Hin)%elem_of_list_fmap). unfold store_effects in He. rewrite !elem_of_app in He. exfalso.
    destruct He as [He|[He|He]]; [by eapply Hclears|by eapply Hsets|]. destruct rescue; [|by apply elem_of_nil in He]. by apply elem_of_list_singleton in He.
  - right. right. by eapply Hrem.
  - apply elem_of_list_join in He as (l & He & (c & -> & Hin)%elem_of_list_fmap). exfalso. by eapply Hclaim.
  - rewrite elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite elem_of_cons, elem_of_nil in He. naive_solver.
Qed.

(* What the effects of one operation make of a cell or register depends on that one alone. *)
Lemma cell_same own saw es s t k : (∀ e, e ∈ es → ¬ takes saw e k own) → cell s k = cell t k →
  cell (foldl (run_effect own saw) s es) k = cell (foldl (run_effect own saw) t es) k.
Proof. intros Hown Heq. apply set_eq. intros d. by rewrite !cell_effects, Heq. Qed.

Lemma reg_same own saw es s t r : reg s r = reg t r → reg (foldl (run_effect own saw) s es) r = reg (foldl (run_effect own saw) t es) r.
Proof. intros Heq. apply greater_ext. intros c. by rewrite !reg_effects, Heq. Qed.

Lemma cell_untouched o s k m : key_message k = Some m → ¬ touches o m → cell (apply_op s o) k = cell s k.
Proof.
  intros Hk Hn. unfold apply_op. assert (∀ e, e ∈ effects o → about e ≠ Some m) as Hall by (intros e He Ha; apply Hn; by exists e).
  revert s Hall. clear Hn. generalize (effects o). intros es. induction es as [|e es IH]; intros s Hall; [done|]. simpl.
  rewrite IH by (intros; apply Hall; by right). specialize (Hall e ltac:(by left)).
  destruct e as [k'|k'|k' ds|r v]; simpl in *; rewrite ?cell_set_cell; try done; (case_decide; [subst; congruence|done]).
Qed.

Lemma reg_untouched o s r m : register_message r = Some m → ¬ touches o m → reg (apply_op s o) r = reg s r.
Proof.
  intros Hk Hn. unfold apply_op. assert (∀ e, e ∈ effects o → about e ≠ Some m) as Hall by (intros e He Ha; apply Hn; by exists e).
  revert s Hall. clear Hn. generalize (effects o). intros es. induction es as [|e es IH]; intros s Hall; [done|]. simpl.
  rewrite IH by (intros; apply Hall; by right). specialize (Hall e ltac:(by left)). rewrite reg_effect.
  destruct e as [k'|k'|k' ds|r' v]; simpl in *; try done. case_decide; [subst; congruence|done].
Qed.

Lemma prefix_snoc {A} (q p : list A) x : q `prefix_of` p ++ [x] → q `prefix_of` p ∨ q = p ++ [x].
Proof.
  intros [r Hr]. destruct r as [|y r _] using rev_ind; [right; by rewrite app_nil_r in Hr|].
  rewrite app_assoc in Hr. apply app_inj_tail in Hr as [-> _]. left. by eexists.
Qed.

Lemma lives_same s t m : cell s (KMessage m) = cell t (KMessage m) → reg s (RDelivered m) = reg t (RDelivered m) → reg s (RKilled m) = reg t (RKilled m) →
  lives s m ↔ lives t m.
Proof. unfold lives. by intros -> -> ->. Qed.

(* What is left when a record is dropped. *)
Lemma cell_drop m s k : cell (contents (drop_record m s)) k = if decide (key_message k = Some m) then ∅ else cell (contents s) k.
Proof.
  unfold cell, drop_record. simpl. case_decide as Hk.
  - rewrite map_filter_lookup_None_2; [done|]. right. intros x _ Hn. by apply Hn.
  - destruct (cells (contents s) !! k) as [x|] eqn:Hx.
    + by rewrite (map_filter_lookup_Some_2 _ _ _ _ Hx).
    + rewrite map_filter_lookup_None_2; [done|]. by left.
Qed.

Lemma reg_drop m s r : reg (contents (drop_record m s)) r = if decide (register_message r = Some m) then [] else reg (contents s) r.
Proof.
  unfold reg, drop_record. simpl. case_decide as Hk.
  - rewrite map_filter_lookup_None_2; [done|]. right. intros x _ Hn. by apply Hn.
  - destruct (registers (contents s) !! r) as [x|] eqn:Hx.
    + by rewrite (map_filter_lookup_Some_2 _ _ _ _ Hx).
    + rewrite map_filter_lookup_None_2; [done|]. by left.
Qed.

Section execution.
  Context (E : mailbox_execution).
  Local Notation history := (history _ _ _ _ E).
  Local Notation hb := (happened_before history).
  Local Notation state p := (contents (state_after empty apply p)).

  Lemma takes_touches o k m d : key_message k = Some m → op_takes o k d → touches o m.
  Proof. intros Hk (e & He & Ht). exists e. split; [done|]. destruct e; simpl in *; [by destruct Ht as [-> _]..|done]. Qed.

  Lemma same_register p q r : (∀ o v, Raise r v ∈ effects o → o ∈ deliveries p ↔ o ∈ deliveries q) → reg (state p) r = reg (state q) r.
  Proof.
    intros Hsame. apply greater_ext. intros c. rewrite !contents_after, !reg_replay.
    split; intros [H0 H]; (split; [done|]); intros o v Ho Hv; apply (H o v); try done; by apply (Hsame o v).
  Qed.

  (* Two histories with the same operations on a message agree on it. *)
  Lemma same_record i j p q m : p `prefix_of` history i → q `prefix_of` history j →
    (∀ o, touches o m → o ∈ deliveries p ↔ o ∈ deliveries q) → lives (state p) m ↔ lives (state q) m.
  Proof.
    intros Hp Hq Hsame.
    assert (∀ i' p', p' `prefix_of` history i' → orderly (deliveries p') ∧ ∀ o k, o ∈ deliveries p' → ¬ op_takes o k (op_dot o)) as Hone.
    { intros i' p' Hp'. split; [by eapply orderly_deliveries|]. intros o k Ho. eapply not_own. by eapply prefix_delivered. }
    apply lives_same.
    - apply set_eq. intros d. rewrite !contents_after.
      rewrite !cell_replay by first [apply (Hone i p Hp)|apply (Hone j q Hq)|intros; by apply (Hone i p Hp)|intros; by apply (Hone j q Hq)].
      assert (∀ o, op_puts o (KMessage m) → touches o m) as Hputs by (intros o Hin; by exists (Supersede (KMessage m))).
      assert (∀ o, touches o m → o ∈ deliveries p → o ∈ deliveries q) as Hpq by (intros o Ho; by apply Hsame).
      assert (∀ o, touches o m → o ∈ deliveries q → o ∈ deliveries p) as Hqp by (intros o Ho; by apply Hsame).
      split; intros [(o & Ho & <- & Hput) Hkeep]; split.
      + exists o. split; [apply Hpq; [by apply Hputs|done]|done].
      + intros r Hr Ht. apply (Hkeep r); [|done]. apply Hqp; [exact (takes_touches r (KMessage m) m _ eq_refl Ht)|done].
      + exists o. split; [apply Hqp; [by apply Hputs|done]|done].
      + intros r Hr Ht. apply (Hkeep r); [|done]. apply Hpq; [exact (takes_touches r (KMessage m) m _ eq_refl Ht)|done].
    - apply same_register. intros o v Hv. apply Hsame. by exists (Raise (RDelivered m) v).
    - apply same_register. intros o v Hv. apply Hsame. by exists (Raise (RKilled m) v).
  Qed.

  Section drop.
    Context (i : nat) (since p : list (event op)) (m : message_id) (Hp : p `prefix_of` history i) (Hdrop : may_drop E since p m).

    Lemma since_prefix : since `prefix_of` history i.
    Proof. etrans; [|exact Hp]. by apply (earlier _ _ _ _ Hdrop). Qed.

    (* Whoever broadcasts something that is not applied here, and had heard of no more on the message than what is applied here, does not see it. *)
    Lemma maker_saw_it_hidden j p' o q' : history j = p' ++ Broadcast o :: q' →
      (∀ x, x ∈ deliveries p' → touches x m → Deliver x ∈ p) → Deliver o ∈ p ∨ ¬ lives (state p') m.
    Proof.
      intros Heq Hbefore. destruct (stable _ _ _ _ Hdrop j o) as [|(q & Hq & Hseen & Hheard)].
      { rewrite Heq. apply elem_of_app. right. by left. }
      { by left. }
      assert (p' ++ [Broadcast o] `prefix_of` history j) as Hp' by (rewrite Heq; exists q'; by rewrite <- app_assoc).
      destruct (prefix_weak_total _ _ _ Hp' Hq) as [[r ->]|Hpre].
      { left. apply Hheard, elem_of_app. left. apply elem_of_app. right. by left. }
      apply prefix_snoc in Hpre as [Hpre| ->].
      2: { left. apply Hheard, elem_of_app. right. by left. }
      right. intros Hl. apply (hidden _ _ _ _ Hdrop). revert Hl.
      assert (p' `prefix_of` history j) as Hp'' by (rewrite Heq; by eexists).
      apply (same_record j i p' since m Hp'' since_prefix). intros x Hx. split; intros Hin.
      - assert (x ∈ deliveries p) as Hxp by by apply elem_of_deliveries, Hbefore. by destruct (not_named _ _ _ _ Hdrop x Hxp).
      - apply elem_of_deliveries in Hin. apply elem_of_deliveries. apply Hseen in Hin. destruct Hpre as [r ->]. apply elem_of_app. by left.
    Qed.

    (* Whoever broadcasts something on the message that is not applied here would have seen it alive: so nobody does. *)
    Lemma maker_saw_hidden j p' o q' : history j = p' ++ Broadcast o :: q' →
      (∀ x, x ∈ deliveries p' → touches x m → Deliver x ∈ p) → touches o m → Deliver o ∈ p.
    Proof.
      intros Heq Hbefore Htouch. destruct (touches_how _ _ Htouch) as [Hnamed|Hmakes].
      - destruct (maker_saw_it_hidden j p' o q' Heq Hbefore) as [|Hn]; [done|]. destruct Hn.
        by apply (named_live _ _ (valid_broadcasts _ _ _ _ E _ _ _ _ Heq)).
      - apply (finished _ _ _ _ Hdrop j o); [|done]. rewrite Heq. apply elem_of_app. right. by left.
    Qed.

    Lemma nobody_touches j p' : p' `prefix_of` history j → ∀ x, x ∈ deliveries p' → touches x m → Deliver x ∈ p.
    Proof.
      induction p' as [|e p' IH] using rev_ind; intros Hp' x Hx Ht; [by apply elem_of_nil in Hx|].
      assert (p' `prefix_of` history j) as Hpre by (etrans; [|exact Hp']; by eexists). specialize (IH Hpre).
      rewrite deliveries_app, elem_of_app in Hx. destruct Hx as [Hx|Hx]; [by apply IH|].
      destruct e as [o|o]; simpl in Hx; [by apply elem_of_nil in Hx|]. apply elem_of_list_singleton in Hx as ->.
      destruct Hp' as [r Hr]. rewrite <- app_assoc in Hr. simpl in Hr.
      assert (Deliver o ∈ history j) as Hdel by (rewrite Hr; apply elem_of_app; right; by left).
      destruct (deliveries_have_causes _ _ _ _ E _ _ Hdel) as [j' (p'' & q'' & Heq)%elem_of_list_split].
      eapply maker_saw_hidden; [done| |done]. intros y Hy. apply IH. apply elem_of_deliveries.
      eapply (delivered_before_piece E j p' o r y Hr). eapply hb_of_delivery; [done|]. by apply elem_of_deliveries.
    Qed.

    Lemma maker_sees_none j p' o q' : history j = p' ++ Broadcast o :: q' → Deliver o ∉ p → ¬ lives (state p') m.
    Proof.
      intros Heq Hn. destruct (maker_saw_it_hidden j p' o q' Heq); [|done|done]. apply nobody_touches with j. rewrite Heq. by eexists.
    Qed.

    Lemma still_hidden : ¬ lives (state p) m.
    Proof.
      intros H. apply (hidden _ _ _ _ Hdrop). revert H. apply (same_record i i p since m Hp since_prefix). intros o Ho. split; intros Hin.
      - by destruct (not_named _ _ _ _ Hdrop o Hin).
      - destruct (earlier _ _ _ _ Hdrop) as [r ->]. rewrite deliveries_app. apply elem_of_app. by left.
    Qed.
  End drop.
End execution.
