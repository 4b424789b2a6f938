(* The programs of spec/Executable.v compute what was said. *)
From Whimbrel.spec Require Import Executable.
From Whimbrel.proof Require Import Rows.

(* What is found in the rows of what the model has. *)
Lemma cell_nil x s k : stands_for x s → rows_cell x k = [] ↔ cell (contents s) k = ∅.
Proof.
  intros [_ _ _ _ Hc _]. rewrite <- (Hc k). destruct (rows_cell x k) as [|d l]; [done|]. split; [done|]. simpl. set_solver.
Qed.

Lemma lives_now_lives x s m : stands_for x s → lives_now m (row_of x (OfMessage m)) = true ↔ lives (contents s) m.
Proof.
  intros Hx. unfold lives. rewrite <- (cell_nil x s (KMessage m) Hx), <- !(same_registers _ _ Hx). unfold rows_cell, rows_reg, lives_now. simpl.
  destruct (row_cell _ _), (row_reg _ (RDelivered m)), (row_reg _ (RKilled m)); naive_solver.
Qed.

Lemma place_now_placed x s m : stands_for x s → place_now m (row_of x (OfMessage m)) = placed_in (contents s) m.
Proof. intros Hx. unfold placed_in. by rewrite <- !(same_registers _ _ Hx). Qed.

Lemma uid_now_uid x s m : stands_for x s → uid_now (nth 0 (reg (contents s) REpoch) 0%N) m (row_of x (OfMessage m)) = uid (contents s) m.
Proof.
  intros Hx. unfold uid, placed_at. rewrite <- !(same_registers _ _ Hx). unfold uid_now, rows_reg. simpl.
  destruct (N.eqb_spec (nth 0 (row_reg (row_of x (OfMessage m))
    (RClaim m (nth 0 (row_reg (row_of x (OfMessage m)) (RPlace m)) 0%N, nth 1 (row_reg (row_of x (OfMessage m)) (RPlace m)) 0%N))) 0%N)
    (nth 0 (row_reg (row_of x OfAccount) REpoch) 0%N));
    [by rewrite bool_decide_true|by rewrite bool_decide_false].
Qed.

Lemma row_cell_in w k ds : NoDup (row_cells w).*1 → (k, ds) ∈ row_cells w → row_cell w k = ds.
Proof. intros Hnd Hin. unfold row_cell. by rewrite (find_once _ equal_key_spec _ _ _ Hnd Hin). Qed.

Lemma row_cell_there w k : row_cell w k ≠ [] → (k, row_cell w k) ∈ row_cells w.
Proof.
  unfold row_cell. destruct (find equal_key k (row_cells w)) as [ds|] eqn:E; [|done]. intros _. by apply (find_some _ equal_key_spec).
Qed.

Lemma row_of_in x s j w : stands_for x s → (j, w) ∈ about_all x → row_of x j = w.
Proof. intros Hx Hin. unfold row_of. by rewrite (find_once _ equal_subject_spec _ _ _ (rows_once _ _ Hx) Hin). Qed.

Lemma row_of_tidy x s j : stands_for x s → tidy_row j (row_of x j).
Proof. intros [? [Hm _ _]]%stands_for_mirrors. by apply tidy_find. Qed.

Lemma row_there x j : (∃ k, row_cell (row_of x j) k ≠ []) ∨ (∃ r, row_reg (row_of x j) r ≠ []) → (j, row_of x j) ∈ about_all x.
Proof.
  unfold row_of. destruct (find equal_subject j (about_all x)) as [w|] eqn:E; simpl; [|by intros [[? []]|[? []]]]. intros _. by apply (find_some _ equal_subject_spec).
Qed.

Lemma lives_there x m : lives_now m (row_of x (OfMessage m)) = true → (OfMessage m, row_of x (OfMessage m)) ∈ about_all x.
Proof.
  intros H. apply row_there. unfold lives_now in H. destruct (row_cell _ (KMessage m)) eqn:E; [|left; eexists; by rewrite E].
  destruct (row_reg _ (RDelivered m)) eqn:E2; [done|]. right. eexists. by rewrite E2.
Qed.

Lemma flags_now_has x s m f : stands_for x s → f ∈ flags_now m (row_of x (OfMessage m)) ↔ has_flag (contents s) m f.
Proof.
  intros Hx. unfold has_flag, flags_now.
  assert (reg (contents s) (REverDeleted m) = row_reg (row_of x (OfMessage m)) (REverDeleted m)) as -> by by rewrite <- (same_registers _ _ Hx).
  pose proof (cell_nil x s (KFlag m f) Hx) as Hcell. unfold rows_cell in Hcell. simpl in Hcell.
  destruct (row_of_tidy x s (OfMessage m) Hx) as ([Hnd _] & Hk & _). set (w := row_of x (OfMessage m)) in *.
  set (set := omap _ (row_cells w)).
  assert (f ∈ set ↔ f ≠ DELETED ∧ row_cell w (KFlag m f) ≠ []) as Hset.
  { unfold set. rewrite elem_of_list_omap. split.
    - intros ([k ds] & Hin & Hf). assert (key_subject k = OfMessage m) as Hj by (apply Hk, elem_of_list_fmap; by exists (k, ds)).
      destruct k as [| | |m' f']; try done. destruct ds as [|d ds]; [done|]. destruct (N.eqb_spec f' DELETED) as [|Hd]; [done|]. simplify_eq/=.
      split; [done|]. by rewrite (row_cell_in w _ _ Hnd Hin).
    - intros [Hd Hin]. exists (KFlag m f, row_cell w (KFlag m f)). split; [by apply row_cell_there|]. destruct (row_cell w (KFlag m f)); [done|].
      by destruct (N.eqb_spec f DELETED). }
  case_bool_decide as Hf; rewrite <- Hcell.
  - subst f. destruct (row_reg w (REverDeleted m)) as [|a l], (row_cell w (KFlag m DELETED)) as [|d ds]; rewrite ?elem_of_cons, Hset; naive_solver.
  - destruct (row_reg w (REverDeleted m)) as [|a l], (row_cell w (KFlag m DELETED)) as [|d ds]; rewrite ?elem_of_cons, Hset; naive_solver.
Qed.

Lemma elem_of_messages x s v : stands_for x s →
  v ∈ seen_messages (see x) ↔ ∃ m, lives (contents s) m ∧ v = message_now (nth 0 (reg (contents s) REpoch) 0%N) m (row_of x (OfMessage m)).
Proof.
  intros Hx. unfold see. cbn [seen_messages].
  assert (reg (contents s) REpoch = row_reg (row_of x OfAccount) REpoch) as -> by by rewrite <- (same_registers _ _ Hx).
  rewrite elem_of_list_omap. split.
  - intros ([j w] & Hin & Hv). destruct j as [m| |]; try done. pose proof (row_of_in x s _ _ Hx Hin) as Hw.
    destruct (lives_now m w) eqn:Hl; [|done]. simplify_eq. exists m. split; [by apply (lives_now_lives x s m Hx)|done].
  - intros (m & Hl%(lives_now_lives x s m Hx) & ->). exists (OfMessage m, row_of x (OfMessage m)). split; [by apply lives_there|]. by rewrite Hl.
Qed.

Lemma elem_of_with_box b b' l : b ∈ with_box b' l ↔ b = b' ∨ b ∈ l.
Proof.
  unfold with_box. destruct (existsb (equal_pair b') l) eqn:E; [|by rewrite elem_of_cons].
  apply existsb_exists in E as (b2 & Hin%elem_of_list_In & <-%equal_pair_spec). naive_solver.
Qed.

Lemma elem_of_mailboxes_now x l b :
  b ∈ mailboxes_now x l ↔ b = INBOX ∨ (∃ v, v ∈ l ∧ b = seen_in v) ∨ ∃ w, (OfBox b, w) ∈ about_all x ∧ row_cell w (KBox b) ≠ [].
Proof.
  unfold mailboxes_now. set (inner := foldr _ _ l).
  assert (b ∈ inner ↔ b = INBOX ∨ ∃ v, v ∈ l ∧ b = seen_in v) as Hinner.
  { unfold inner. clear inner. induction l as [|v l IH]; simpl.
    - rewrite elem_of_list_singleton. split; [by left|]. intros [?|(v & Hv & _)]; [done|by apply elem_of_nil in Hv].
    - rewrite elem_of_with_box, IH. setoid_rewrite elem_of_cons. naive_solver. }
  transitivity (b ∈ inner ∨ ∃ w, (OfBox b, w) ∈ about_all x ∧ row_cell w (KBox b) ≠ []); [|rewrite Hinner; tauto]. clear Hinner.
  generalize (about_all x). intros rs. induction rs as [|[j w] rs IH]; simpl.
  - split; [by left|]. intros [?|(w & Hw & _)]; [done|by apply elem_of_nil in Hw].
  - setoid_rewrite elem_of_cons. destruct j as [m|b'|]; [rewrite IH; naive_solver| |rewrite IH; naive_solver].
    destruct (row_cell w (KBox b')) as [|d ds] eqn:E; [|rewrite elem_of_with_box]; rewrite IH; split.
    + naive_solver.
    + intros [?|(w' & [[= -> ->]|?] & ?)]; naive_solver.
    + intros [->|[?|(w' & ? & ?)]]; [right; exists w; split; [by left|by rewrite E]|by left|right; exists w'; split; [by right|done]].
    + intros [?|(w' & [[= -> ->]|?] & ?)]; naive_solver.
Qed.

Lemma box_there x s b : stands_for x s → cell (contents s) (KBox b) ≠ ∅ ↔ ∃ w, (OfBox b, w) ∈ about_all x ∧ row_cell w (KBox b) ≠ [].
Proof.
  intros Hx. rewrite <- (cell_nil x s (KBox b) Hx). unfold rows_cell. simpl. split.
  - intros H. exists (row_of x (OfBox b)). split; [|done]. apply row_there. left. by eexists.
  - intros (w & Hin & H). by rewrite (row_of_in x s _ _ Hx Hin).
Qed.

Lemma elem_of_mailboxes x s b : stands_for x s → b ∈ mailboxes_now x (seen_messages (see x)) ↔ box_exists (contents s) b.
Proof.
  intros Hx. rewrite elem_of_mailboxes_now, <- (box_there x s b Hx). setoid_rewrite (elem_of_messages x s); [|done..]. unfold box_exists. split.
  - intros [?|[(v & (m & Hl & ->) & ->)|?]]; [by left| |by right; left]. right. right. exists m. split; [done|]. simpl. by rewrite (place_now_placed x s m Hx).
  - intros [?|[?|(m & Hl & <-)]]; [by left|by right; right|]. right. left. eexists. split; [by exists m|]. simpl. by rewrite (place_now_placed x s m Hx).
Qed.

Theorem view_is_exact : view_statement.
Proof.
  intros x s Hx a. unfold a.
  assert (∀ b, row_reg (row_of x (OfBox b)) (RName b) = reg (contents s) (RName b) ∧ row_reg (row_of x (OfBox b)) (RUse b) = reg (contents s) (RUse b)) as Hbox.
  { intros b. by rewrite <- !(same_registers _ _ Hx). }
  assert (∀ r, register_subject r = OfAccount → row_reg (row_of x OfAccount) r = reg (contents s) r) as Haccount.
  { intros r Hr. rewrite <- (same_registers _ _ Hx). unfold rows_reg. by rewrite Hr. }
  destruct (row_of_tidy x s OfAccount Hx) as ([Hcells Hregs] & Hks & Hrs).
  split; [|split; [|split; [|split; [|split]]]].
  - intros m. rewrite elem_of_list_fmap. split.
    + intros (v & -> & Hv). apply (elem_of_messages x s _ Hx) in Hv as (m & Hl & ->). done.
    + intros Hl. eexists. split; [|apply (elem_of_messages x s _ Hx); by exists m]. done.
  - intros v Hv. apply (elem_of_messages x s _ Hx) in Hv as (m & Hl & ->). simpl. split; [by apply place_now_placed|]. split; [by apply uid_now_uid|].
    split; [intros f; by apply flags_now_has|]. by rewrite <- (same_registers _ _ Hx).
  - intros b. rewrite <- (elem_of_mailboxes x s b Hx). unfold see at 1. cbn [seen_mailboxes]. rewrite elem_of_list_fmap. split.
    + intros ([b' v] & -> & Hin). apply elem_of_list_In, in_map_iff in Hin as (b2 & [= <- _] & Hin). by apply elem_of_list_In.
    + intros Hin. eexists (b, _). split; [done|]. apply elem_of_list_In, in_map_iff. exists b. split; [done|]. by apply elem_of_list_In.
  - intros b v Hin. apply elem_of_list_In, in_map_iff in Hin as (b2 & [= <- <-] & _). by destruct (Hbox b2) as [-> ->].
  - intros name. unfold subscribed. rewrite <- (cell_nil x s (KSubscription name) Hx). unfold see, rows_cell. cbn [seen_subscriptions key_subject].
    rewrite elem_of_list_omap. split.
    + intros ([k ds] & Hin & Hk). destruct k as [|name'| |]; try done. destruct ds as [|d ds]; [done|]. simplify_eq.
      by rewrite (row_cell_in _ _ _ Hcells Hin).
    + intros H. exists (KSubscription name, row_cell (row_of x OfAccount) (KSubscription name)). split; [by apply row_cell_there|].
      by destruct (row_cell (row_of x OfAccount) (KSubscription name)).
  - cbn zeta. split.
    + unfold see. cbn [seen_numbers]. by rewrite !Haccount.
    + intros slot v Hv. unfold see. cbn [seen_claimed]. rewrite (Haccount REpoch) by done. set (epoch := nth 0 (reg (contents s) REpoch) 0%N).
      rewrite <- (Haccount (RClaimed epoch slot)) by done. rewrite elem_of_list_omap. split.
      * intros ([r v'] & Hin & Hr). destruct r; try done. destruct (N.eqb_spec epoch0 epoch) as [->|]; [|done]. simplify_eq.
        unfold row_reg. by rewrite (find_once _ equal_register_spec _ _ _ Hregs Hin).
      * intros <-. exists (RClaimed epoch slot, row_reg (row_of x OfAccount) (RClaimed epoch slot)). split; [|by rewrite N.eqb_refl].
        unfold row_reg in *. destruct (find equal_register (RClaimed epoch slot) _) as [v|] eqn:E; [|done]. by apply (find_some _ equal_register_spec).
Qed.

Lemma exists_now_exists x s b : stands_for x s → exists_now x b = true → box_exists (contents s) b.
Proof.
  intros Hx. unfold exists_now. rewrite !orb_true_iff, equal_pair_spec, existsb_exists. intros [[?|H]|([j w] & Hin%elem_of_list_In & H)]; [by left| |].
  - right. left. rewrite <- (cell_nil x s (KBox b) Hx). by destruct (rows_cell x (KBox b)).
  - destruct j as [m| |]; try done. apply andb_true_iff in H as [Hl Hp%equal_pair_spec]. rewrite <- (row_of_in x s _ _ Hx Hin) in Hl, Hp.
    right. right. exists m. split; [by apply (lives_now_lives x s m Hx)|]. by rewrite <- (place_now_placed x s m Hx).
Qed.

Lemma valid_now_valid x s o : stands_for x s → valid_now x o = true → valid s o.
Proof.
  intros Hx. unfold valid_now. destruct (op_dot o) as [origin seq] eqn:Ho. rewrite !andb_true_iff, !forallb_forall, N.ltb_lt, N.eqb_eq.
  intros ((((((Ht & Hn) & Hd) & Hc) & He) & Hm) & Hb). split; [rewrite Ho; simpl; lia|done|..].
  - intros [j n] Hpos. rewrite <- (same_vector _ _ Hx (j, n) Hpos). unfold saw, covers. rewrite Ho. simpl. case_bool_decide as Hj.
    + subst. rewrite !bool_decide_eq_true. lia.
    + assert (default 0 (op_deps o !! j) = default 0 (counts x !! j))%N as ->; [|done].
      destruct (op_deps o !! j) as [k|] eqn:Ek.
      * apply elem_of_map_to_list, elem_of_list_In, Hd, orb_true_iff in Ek as [Ek|Ek]; apply N.eqb_eq in Ek; done.
      * destruct (counts x !! j) as [k|] eqn:Ek2; [|done].
        apply elem_of_map_to_list, elem_of_list_In, Hc, orb_true_iff in Ek2 as [Ek2|Ek2]; apply N.eqb_eq in Ek2; simpl in Ek2; [done|]. by rewrite Ek in Ek2.
  - intros k ds Hin. apply elem_of_list_In, He in Hin. apply bool_decide_eq_true in Hin. by rewrite (same_cells _ _ Hx) in Hin.
  - intros m Hin. apply elem_of_list_In, Hm in Hin. by apply (lives_now_lives x s m Hx).
  - intros b Hin. apply elem_of_list_In, Hb in Hin. by eapply exists_now_exists.
Qed.

Lemma uids_now_rule_1 r slot x s o : stands_for x s → uids_now r slot x o = true → rule_1 r slot s o.
Proof.
  intros Hx. unfold uids_now. rewrite andb_true_iff, forallb_forall. intros [Hc Hnd]. split.
  - intros m placed epoch u Hin%elem_of_list_In%Hc. apply andb_true_iff in Hin as [H _]. by apply N.eqb_eq in H.
  - intros m placed epoch u Hr Hin%elem_of_list_In%Hc. rewrite Hr in Hin. apply andb_true_iff in Hin as [_ H]. simpl in H. apply N.ltb_lt in H.
    unfold counter. by rewrite <- (same_registers _ _ Hx).
  - by apply bool_decide_eq_true in Hnd.
Qed.

Lemma none_ahead_now_ahead x s o : stands_for x s → none_ahead_now x o = true → not_ahead (contents s) o.
Proof.
  intros Hx. unfold none_ahead_now, epoch_of. rewrite forallb_forall, (same_registers _ _ Hx). intros H m placed epoch u Hin%elem_of_list_In%H.
  by apply N.leb_le in Hin.
Qed.

Lemma no_rows_stand : stands_for no_rows empty.
Proof.
  apply stands_for_mirrors. split.
  - intros [j n] Hn. unfold covers. simpl. rewrite lookup_empty, bool_decide_eq_true. simpl in *. split; [lia|]. intros ?%elem_of_empty. done.
  - split.
    + split; [apply NoDup_singleton|]. intros j w [= -> ->]%elem_of_list_singleton. split; [split; simpl; [apply NoDup_nil_2|apply NoDup_singleton]|].
      split; simpl; [by intros k ?%elem_of_nil|by intros r ->%elem_of_list_singleton].
    + intros k. unfold cell. simpl. rewrite lookup_empty. simpl. unfold rows_cell, row_of. simpl. destruct (equal_subject _ _); done.
    + intros r. unfold reg. simpl. destruct (decide (r = RName INBOX)) as [->|Hr].
      * by rewrite lookup_singleton.
      * rewrite lookup_singleton_ne by done. simpl. unfold rows_reg, row_of. simpl. destruct (equal_subject _ _); [|done]. unfold row_reg. simpl.
        by rewrite (same_ne _ equal_register_spec).
Qed.

Theorem rows_are_exact : rows_statement.
Proof.
  split; [apply no_rows_stand|]. intros x s Hx. split; [intros; by eapply rows_apply_stands|]. split; [intros; by apply rows_join_stands|].
  split; [intros; by apply rows_drop_stands|]. split; [intros; by apply rows_drop_box_stands|].
  intros r slot o [[Hv Hu]%andb_true_iff Ha]%andb_true_iff. split; [by eapply valid_now_valid|]. split; [by eapply uids_now_rule_1|by eapply none_ahead_now_ahead].
Qed.

Lemma elem_of_uids_under d name u : u ∈ uids_under d name ↔ ∃ m, shown d !! m = Some (name, u).
Proof.
  unfold uids_under, uids_among. rewrite elem_of_list_omap. split.
  - intros ([m [name' u']] & Hin%elem_of_map_to_list & Hu). simpl in Hu. destruct (N.eqb_spec name' name); [|done]. injection Hu as ->. subst. by exists m.
  - intros [m Hm%elem_of_map_to_list]. exists (m, (name, u)). split; [done|]. simpl. by rewrite N.eqb_refl.
Qed.

Lemma told_enough d name next :
  forallb (λ u, bool_decide (u < next)%N) (uids_under d name) = true ↔ ∀ m u, shown d !! m = Some (name, u) → (u < next)%N.
Proof.
  rewrite forallb_forall. setoid_rewrite <- elem_of_list_In. setoid_rewrite elem_of_uids_under. setoid_rewrite bool_decide_eq_true.
  split; [intros H m u Hm; apply H; by exists m|intros H u [m Hm]; by eapply H].
Qed.

Lemma told_no_more d name k next :
  bool_decide (next ≤ N.max 1 k)%N || existsb (λ u, bool_decide (next = u + 1)%N) (uids_under d name) = true ↔
  (next ≤ N.max 1 k)%N ∨ ∃ m u, shown d !! m = Some (name, u) ∧ (next = u + 1)%N.
Proof.
  rewrite orb_true_iff, bool_decide_eq_true, existsb_exists. setoid_rewrite <- elem_of_list_In. setoid_rewrite elem_of_uids_under.
  setoid_rewrite bool_decide_eq_true. split; (intros [H|H]; [by left|right]).
  - destruct H as (u & [m Hm] & Hu). by exists m, u.
  - destruct H as (m & u & Hm & Hu). exists u. split; [by exists m|done].
Qed.

Lemma do_act_acts r d a d' : do_act r d a = Some d' ↔ acts r d a d'.
Proof.
  split.
  - destruct a as [m name epoch u|m|name epoch next|name next|name|name|name|epoch]; simpl; intros H.
    + destruct (marks d !! name) as [k|] eqn:Hk; [|done].
      destruct (bool_decide (epoch = era d) && _) eqn:Hc; [|done]. injection H as <-.
      rewrite andb_true_iff, orb_true_iff, negb_true_iff, !bool_decide_eq_true in Hc. destruct Hc as [-> Hc].
      eapply do_show; [done|]. intros Hr. destruct Hc as [Hc|Hc]; [congruence|done].
    + injection H as <-. constructor.
    + destruct (marks d !! name) as [k|] eqn:Hk; [|done].
      destruct (bool_decide (epoch = era d) && _ && _ && _) eqn:Hc; [|done]. injection H as <-.
      rewrite !andb_true_iff, told_enough, told_no_more, !bool_decide_eq_true in Hc. destruct Hc as [[[-> Hle] Hall] Hex].
      by eapply do_tell.
    + destruct (marks d !! name) as [k|] eqn:Hk; injection H as <-; [by apply do_believe_listed|by apply do_believe_gone].
    + destruct (marks d !! name) as [k|] eqn:Hk; [done|]. injection H as <-. by apply do_list.
    + destruct (marks d !! name) as [k|] eqn:Hk; [|done]. injection H as <-. by apply do_unlist.
    + destruct (gone_marks d !! name) as [k|] eqn:Hk; [|done]. injection H as <-. by apply do_fold.
    + case_bool_decide; [|done]. injection H as <-. by apply do_new_era.
  - intros H. destruct H as [m name k u Hk Hle|m|name k next Hk Hle Hall Hex|name k next Hk|name next Hk|name Hk|name k Hk|name k Hk|epoch Hlt]; simpl.
    + rewrite Hk, bool_decide_true by done. simpl. destruct (late_is_hidden r) eqn:Hr; simpl; [|done]. rewrite bool_decide_true by auto. done.
    + done.
    + rewrite Hk. apply told_enough in Hall. apply told_no_more in Hex. rewrite Hall, Hex, !bool_decide_true by done. done.
    + by rewrite Hk.
    + by rewrite Hk.
    + by rewrite Hk.
    + by rewrite Hk.
    + by rewrite Hk.
    + by rewrite bool_decide_true.
Qed.

Lemma may_show_may r slot readers (E : uid_execution r slot) p x a :
  claims_wait r = false → stands_for x (state_after empty apply p) → may_show x a = true ↔ may_do r slot readers E p a.
Proof.
  intros Hr Hx. unfold may_do. destruct a; simpl; [|done..]. set (s := state_after empty apply p) in *.
  assert (epoch_of x = nth 0 (reg (contents s) REpoch) 0%N) as -> by (unfold epoch_of; by rewrite (same_registers _ _ Hx)).
  rewrite !andb_true_iff, negb_true_iff, (lives_now_lives x s m Hx), (place_now_placed x s m Hx), (uid_now_uid x s m Hx), (same_registers _ _ Hx), !N.eqb_eq, N.eqb_neq.
  split.
  - intros ((((Hl & Hn) & Hu) & H0) & He). repeat split; try done. congruence.
  - intros (Hl & Hn & Hu & H0 & He & _). done.
Qed.

Lemma see_desk_uidnext d name k u : (name, (k, u)) ∈ see_desk d ↔ marks d !! name = Some k ∧ u = uidnext d name.
Proof.
  unfold see_desk, uidnext, uids_under, mark. rewrite elem_of_list_fmap. split.
  - intros ([name' k'] & [= -> -> ->] & Hin%elem_of_map_to_list). simpl. by rewrite Hin.
  - intros [H ->]. exists (name, k). rewrite H. split; [done|]. by apply elem_of_map_to_list.
Qed.

Lemma uidnext_above (l : list N) u n : u ∈ l → (u < foldr (λ u n, N.max n (u + 1)) n l)%N.
Proof. induction l as [|x l IH]; [by intros ?%elem_of_nil|]. intros [->|H]%elem_of_cons; simpl; [lia|]. apply IH in H. lia. Qed.

Lemma uidnext_from (l : list N) (n : N) : foldr (λ u n, N.max n (u + 1)) n l = n ∨ ∃ u, u ∈ l ∧ foldr (λ u n, N.max n (u + 1)) n l = (u + 1)%N.
Proof.
  induction l as [|x l IH]; simpl; [by left|].
  destruct (N.max_spec (foldr (λ u n, N.max n (u + 1)) n l) (x + 1)) as [[_ ->]|[_ ->]].
  - right. exists x. split; [by left|done].
  - destruct IH as [IH|(u & Hu & IH)]; [by left|]. right. exists u. split; [by right|done].
Qed.

Lemma uidnext_least (l : list N) (n : N) : (n ≤ foldr (λ u n, N.max n (u + 1)) n l)%N.
Proof. induction l as [|x l IH]; simpl; lia. Qed.

Lemma uidnext_may_be_told r d name k : marks d !! name = Some k → ∃ d', acts r d (Tell name (era d) (uidnext d name)) d'.
Proof.
  intros Hk. eexists. apply (do_tell _ _ _ k); [done|..]; unfold uidnext, next_after, mark; rewrite Hk.
  - pose proof (uidnext_least (uids_under d name) (N.max 1 k)). lia.
  - intros m u Hm. apply uidnext_above, elem_of_uids_under. by exists m.
  - destruct (uidnext_from (uids_under d name) (N.max 1 k)) as [->|(u & [m Hm]%elem_of_uids_under & ->)]; [left; lia|right; by exists m, u].
Qed.

Theorem desk_is_exact : desk_statement.
Proof.
  split; [apply do_act_acts|]. split; [intros; by apply may_show_may|]. split; [apply see_desk_uidnext|apply uidnext_may_be_told].
Qed.
