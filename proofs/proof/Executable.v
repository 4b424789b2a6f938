(* The programs of spec/Executable.v compute what was said. *)
From Whimbrel.spec Require Import Executable.

Lemma is_empty_true X : is_empty X = true ↔ X = ∅.
Proof. apply bool_decide_eq_true. Qed.

Lemma is_empty_false X : is_empty X = false ↔ X ≠ ∅.
Proof. apply bool_decide_eq_false. Qed.

Lemma lives_now_lives s m : lives_now s m = true ↔ lives s m.
Proof.
  unfold lives_now, lives. rewrite orb_true_iff, andb_true_iff, !negb_true_iff, is_empty_false, bool_decide_eq_true, bool_decide_eq_false. done.
Qed.

Lemma has_flag_now_has s m f : has_flag_now s m f = true ↔ has_flag s m f.
Proof.
  unfold has_flag_now, has_flag. case_bool_decide.
  - rewrite andb_true_iff, negb_true_iff, is_empty_true, bool_decide_eq_false. done.
  - rewrite negb_true_iff, is_empty_false. done.
Qed.

(* What is in a cell is listed. *)
Lemma cell_listed s k : cell s k ≠ ∅ ↔ ∃ ds, (k, ds) ∈ map_to_list (cells s) ∧ ds ≠ ∅.
Proof.
  unfold cell. setoid_rewrite elem_of_map_to_list. split.
  - intros H. destruct (cells s !! k) as [ds|]; [by exists ds|]. done.
  - by intros (ds & -> & H).
Qed.

Lemma reg_listed s r : reg s r ≠ [] → ∃ v, (r, v) ∈ map_to_list (registers s).
Proof.
  unfold reg. setoid_rewrite elem_of_map_to_list. intros H. destruct (registers s !! r) as [v|]; [by exists v|done].
Qed.

Lemma elem_of_living s m : m ∈ living s ↔ lives s m.
Proof.
  unfold living, living_among. rewrite elem_of_elements, elem_of_list_to_set, elem_of_list_filter, lives_now_lives, elem_of_app, !elem_of_list_omap.
  split; [by intros [H _]|]. intros H. split; [done|]. destruct H as [H|[H _]].
  - left. apply cell_listed in H as (ds & H & _). by exists (KMessage m, ds).
  - right. apply reg_listed in H as [v H]. by exists (RDelivered m, v).
Qed.

Lemma elem_of_flags s m f : f ∈ flags s m ↔ has_flag s m f.
Proof.
  unfold flags, flags_among. rewrite elem_of_list_filter, has_flag_now_has. split; [by intros [H _]|]. intros H. split; [done|].
  destruct (decide (f = DELETED)) as [->|Hf]; [by left|]. right. unfold has_flag in H. rewrite bool_decide_false in H by done.
  apply cell_listed in H as (ds & H & _). apply elem_of_list_omap. exists (KFlag m f, ds). split; [done|]. simpl. by rewrite bool_decide_true.
Qed.

Lemma elem_of_mailboxes s b : b ∈ mailboxes s ↔ box_exists s b.
Proof.
  unfold mailboxes, mailboxes_among, box_exists. rewrite elem_of_elements, elem_of_list_to_set, elem_of_cons, elem_of_app, elem_of_list_omap, elem_of_list_fmap, cell_listed.
  setoid_rewrite elem_of_living. split.
  - intros [H|[([k ds] & Hin & Hk)|(m & Hb & Hl)]]; [by left| |right; right; by exists m].
    right. left. simpl in Hk. destruct k as [b'| | |]; try done. destruct (is_empty ds) eqn:He; [done|]. injection Hk as ->.
    exists ds. split; [done|]. by apply is_empty_false.
  - intros [H|[(ds & Hin & Hds)|(m & Hl & Hb)]]; [by left|right; left|right; right; by exists m].
    exists (KBox b, ds). split; [done|]. simpl. apply is_empty_false in Hds. by rewrite Hds.
Qed.

Lemma elem_of_subscriptions s name : name ∈ subscriptions s ↔ subscribed s name.
Proof.
  unfold subscriptions, subscriptions_among, subscribed. rewrite elem_of_list_omap, cell_listed. split.
  - intros ([k ds] & Hin & Hk). simpl in Hk. destruct k as [|name'| |]; try done. destruct (is_empty ds) eqn:He; [done|]. injection Hk as ->.
    exists ds. split; [done|]. by apply is_empty_false.
  - intros (ds & Hin & Hds). exists (KSubscription name, ds). split; [done|]. simpl. apply is_empty_false in Hds. by rewrite Hds.
Qed.

Theorem view_is_exact : view_statement.
Proof.
  intros s. split; [apply elem_of_living|]. split; [apply elem_of_flags|]. split; [apply elem_of_mailboxes|apply elem_of_subscriptions].
Qed.

Lemma elem_of_uids_under d name u : u ∈ uids_under d name ↔ ∃ m, shown d !! m = Some (name, u).
Proof.
  unfold uids_under. rewrite elem_of_list_omap. split.
  - intros ([m [name' u']] & Hin%elem_of_map_to_list & Hu). simpl in Hu. case_bool_decide; [|done]. injection Hu as ->. subst. by exists m.
  - intros [m Hm%elem_of_map_to_list]. exists (m, (name, u)). split; [done|]. simpl. by rewrite bool_decide_true.
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

Lemma may_show_may r slot readers (E : uid_execution r slot) p a :
  claims_wait r = false → may_show (contents (state_after empty apply p)) a = true ↔ may_do r slot readers E p a.
Proof.
  intros Hr. destruct a; simpl; [|done..].
  rewrite !andb_true_iff, negb_true_iff, lives_now_lives, !bool_decide_eq_true, bool_decide_eq_false. split.
  - intros ((((Hl & Hn) & Hu) & H0) & He). repeat split; try done. congruence.
  - intros (Hl & Hn & Hu & H0 & He & _). done.
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
  intros Hk. eexists. apply (do_tell _ _ _ k); [done|..]; unfold uidnext, mark; rewrite Hk.
  - pose proof (uidnext_least (uids_under d name) (N.max 1 k)). lia.
  - intros m u Hm. apply uidnext_above, elem_of_uids_under. by exists m.
  - destruct (uidnext_from (uids_under d name) (N.max 1 k)) as [->|(u & [m Hm]%elem_of_uids_under & ->)]; [left; lia|right; by exists m, u].
Qed.

Theorem desk_is_exact : desk_statement.
Proof.
  split; [apply do_act_acts|]. split; [intros; by apply may_show_may|apply uidnext_may_be_told].
Qed.
