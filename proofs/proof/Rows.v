(* Rows stand for what the model has, whatever is applied, joined or dropped. *)
From Whimbrel.spec Require Import Executable.
From Whimbrel.proof Require Import Cells Collection Mailboxes.

(* Lists of keys with what belongs to each. *)
Section listed.
  Context {K V : Type} (same : K → K → bool) (same_spec : ∀ a b, same a b = true ↔ a = b).
  Implicit Types l : list (K * V).

  Lemma same_refl k : same k k = true.
  Proof. by apply same_spec. Qed.
  Lemma same_ne k k' : k ≠ k' → same k k' = false.
  Proof. intros H. destruct (same k k') eqn:E; [|done]. by apply same_spec in E. Qed.

  Lemma find_some k v l : find same k l = Some v → (k, v) ∈ l.
  Proof.
    induction l as [|[k' v'] l IH]; csimpl; [done|]. destruct (same k k') eqn:E.
    - apply same_spec in E as ->. intros [= ->]. by left.
    - intros H. right. by apply IH.
  Qed.

  Lemma find_none k l : find same k l = None ↔ k ∉ l.*1.
  Proof.
    induction l as [|[k' v'] l IH]; csimpl; [by split; [intros _ ?%elem_of_nil|]|]. rewrite elem_of_cons. destruct (same k k') eqn:E.
    - apply same_spec in E as ->. split; [done|]. tauto.
    - rewrite IH. assert (k ≠ k') by (intros ->; by rewrite same_refl in E). tauto.
  Qed.

  Lemma find_once k v l : NoDup l.*1 → (k, v) ∈ l → find same k l = Some v.
  Proof.
    induction l as [|[k' v'] l IH]; csimpl; [by intros _ ?%elem_of_nil|]. intros [Hk' Hnd]%NoDup_cons [[= -> ->]|H]%elem_of_cons.
    - by rewrite same_refl.
    - rewrite same_ne; [by apply IH|]. intros ->. apply Hk'. apply elem_of_list_fmap. by exists (k', v).
  Qed.

  Lemma find_change h k k' l : find same k' (change same h k l) = if same k' k then Some (h (find same k l)) else find same k' l.
  Proof.
    induction l as [|[k2 v] l IH]; simpl.
    - done.
    - destruct (same k k2) eqn:E; simpl.
      + apply same_spec in E as ->. by destruct (same k' k2).
      + rewrite IH. destruct (same k' k2) eqn:E2, (same k' k) eqn:E3; try done.
        apply same_spec in E2 as ->. apply same_spec in E3 as ->. by rewrite same_refl in E.
  Qed.

  Lemma keys_change h k l : (change same h k l).*1 = l.*1 ∨ (k ∉ l.*1 ∧ (change same h k l).*1 = l.*1 ++ [k]).
  Proof.
    induction l as [|[k2 v] l IH]; csimpl; [right; by split; [apply not_elem_of_nil|]|]. destruct (same k k2) eqn:E; csimpl; [by left|].
    destruct IH as [->|[H ->]]; [by left|right]. split; [|done]. rewrite elem_of_cons. intros [->|?]; [by rewrite same_refl in E|done].
  Qed.

  Lemma once_change h k l : NoDup l.*1 → NoDup (change same h k l).*1.
  Proof.
    intros Hnd. destruct (keys_change h k l) as [->|[H ->]]; [done|]. apply NoDup_app. split; [done|]. split.
    - intros x Hx ->%elem_of_list_singleton. done.
    - apply NoDup_singleton.
  Qed.


  Lemma is_there k l : k ∈ l.*1 ↔ is_Some (find same k l).
  Proof.
    destruct (find same k l) as [v|] eqn:E.
    - split; [by eexists|]. intros _. apply find_some in E. apply elem_of_list_fmap. by exists (k, v).
    - apply find_none in E. split; [done|]. by intros [].
  Qed.

  Lemma elem_of_keys_change h k k' l : k' ∈ (change same h k l).*1 ↔ k' ∈ l.*1 ∨ k' = k.
  Proof.
    rewrite !is_there, find_change. destruct (same k' k) eqn:E.
    - apply same_spec in E. split; [by right|]. by eexists.
    - assert (k' ≠ k) by (intros ->; by rewrite same_refl in E). tauto.
  Qed.

  Lemma find_filter P k l : (∀ v, P (k, v) = true) → find same k (List.filter P l) = find same k l.
  Proof.
    intros HP. induction l as [|[k' v] l IH]; csimpl; [done|]. destruct (same k k') eqn:E.
    - apply same_spec in E as ->. rewrite HP. simpl. by rewrite same_refl.
    - destruct (P (k', v)); simpl; [by rewrite E|done].
  Qed.

  Lemma find_without k k' l : find same k' (without same k l) = if same k k' then None else find same k' l.
  Proof.
    destruct (same k k') eqn:E.
    - apply same_spec in E as ->. apply find_none. intros ([k v] & -> & H)%elem_of_list_fmap. simpl in H.
      apply elem_of_list_In, filter_In in H as [_ H]. simpl in H. by rewrite same_refl in H.
    - apply find_filter. intros v. simpl. by rewrite E.
  Qed.

  Lemma keys_filter P l k : k ∈ (List.filter P l).*1 → k ∈ l.*1.
  Proof.
    intros ([k' v] & -> & H%elem_of_list_In)%elem_of_list_fmap. apply filter_In in H as [H%elem_of_list_In _]. apply elem_of_list_fmap. by exists (k', v).
  Qed.

  Lemma once_filter P l : NoDup l.*1 → NoDup (List.filter P l).*1.
  Proof.
    induction l as [|[k v] l IH]; csimpl; [done|]. intros [Hk Hnd]%NoDup_cons. destruct (P (k, v)); csimpl; [|by apply IH].
    apply NoDup_cons. split; [|by apply IH]. intros H%keys_filter. done.
  Qed.

  Lemma find_map (g : K → V → V) k l : find same k (map (λ kv, (kv.1, g kv.1 kv.2)) l) = g k <$> find same k l.
  Proof.
    induction l as [|[k' v] l IH]; csimpl; [done|]. destruct (same k k') eqn:E; [|done]. by apply same_spec in E as ->.
  Qed.

  Lemma find_app k l1 l2 : find same k (l1 ++ l2) = match find same k l1 with Some v => Some v | None => find same k l2 end.
  Proof. induction l1 as [|[k' v] l IH]; simpl; [done|]. by destruct (same k k'). Qed.

  Lemma find_united both k l1 l2 :
    find same k (united same both l1 l2) = match find same k l1, find same k l2 with None, None => None | a, b => Some (both a b) end.
  Proof.
    unfold united. rewrite find_app, (find_map (λ k v, both (Some v) (find same k l2))), (find_map (λ k v, both None (Some v))).
    destruct (find same k l1) as [v|] eqn:E; simpl; [done|]. rewrite find_filter; [by destruct (find same k l2)|]. intros v. simpl. by rewrite E.
  Qed.

  Lemma keys_map (g : K * V → V) l : (map (λ kv, (kv.1, g kv)) l).*1 = l.*1.
  Proof. induction l as [|[k v] l IH]; csimpl; [done|]. by f_equal. Qed.

  Lemma once_united both l1 l2 : NoDup l1.*1 → NoDup l2.*1 → NoDup (united same both l1 l2).*1.
  Proof.
    intros H1 H2. unfold united. rewrite fmap_app, !keys_map. apply NoDup_app. split; [done|]. split; [|by apply once_filter].
    intros k Hk ([k' v] & -> & H%elem_of_list_In)%elem_of_list_fmap. apply filter_In in H as [_ H]. simpl in *.
    destruct (find same k' l1) eqn:E; [done|]. by apply find_none in E.
  Qed.

  Lemma elem_of_keys_united both l1 l2 k : k ∈ (united same both l1 l2).*1 → k ∈ l1.*1 ∨ k ∈ l2.*1.
  Proof. rewrite !is_there, find_united. destruct (find same k l1), (find same k l2); intros [? ?]; try done; eauto. Qed.
End listed.

Lemma equal_pair_spec a b : equal_pair a b = true ↔ a = b.
Proof. destruct a, b. unfold equal_pair. simpl. rewrite andb_true_iff, !N.eqb_eq. naive_solver. Qed.
Lemma equal_message_spec a b : equal_message a b = true ↔ a = b.
Proof. destruct a, b. unfold equal_message. simpl. rewrite andb_true_iff, N.eqb_eq, equal_pair_spec. naive_solver. Qed.
Lemma equal_key_spec a b : equal_key a b = true ↔ a = b.
Proof. destruct a, b; simpl; rewrite ?andb_true_iff, ?N.eqb_eq, ?equal_pair_spec, ?equal_message_spec; naive_solver. Qed.
Lemma equal_register_spec a b : equal_register a b = true ↔ a = b.
Proof. destruct a, b; simpl; rewrite ?andb_true_iff, ?N.eqb_eq, ?equal_pair_spec, ?equal_message_spec; naive_solver. Qed.
Lemma equal_subject_spec a b : equal_subject a b = true ↔ a = b.
Proof. destruct a, b; simpl; rewrite ?equal_pair_spec, ?equal_message_spec; naive_solver. Qed.

Definition all_rows (l : list (subject * row)) : rows := Rows ∅ l.

Lemma rows_cell_change h k k' l :
  rows_cell (all_rows (change_cell h k l)) k' = if equal_key k' k then h (rows_cell (all_rows l) k) else rows_cell (all_rows l) k'.
Proof.
  unfold rows_cell, row_of, change_cell. simpl. rewrite (find_change _ equal_subject_spec). destruct (equal_key k' k) eqn:E.
  - apply equal_key_spec in E as ->. rewrite (same_refl _ equal_subject_spec). simpl. unfold row_cell. simpl.
    by rewrite (find_change _ equal_key_spec), (same_refl _ equal_key_spec).
  - destruct (equal_subject (key_subject k') (key_subject k)) eqn:E2; [|done]. apply equal_subject_spec in E2 as ->. simpl. unfold row_cell. simpl.
    by rewrite (find_change _ equal_key_spec), E.
Qed.

Lemma rows_reg_change_cell h k r l : rows_reg (all_rows (change_cell h k l)) r = rows_reg (all_rows l) r.
Proof.
  unfold rows_reg, row_of, change_cell. simpl. rewrite (find_change _ equal_subject_spec).
  destruct (equal_subject (register_subject r) (key_subject k)) eqn:E; [|done]. by apply equal_subject_spec in E as ->.
Qed.

Lemma rows_reg_change h r r' l :
  rows_reg (all_rows (change_reg h r l)) r' = if equal_register r' r then h (rows_reg (all_rows l) r) else rows_reg (all_rows l) r'.
Proof.
  unfold rows_reg, row_of, change_reg. simpl. rewrite (find_change _ equal_subject_spec). destruct (equal_register r' r) eqn:E.
  - apply equal_register_spec in E as ->. rewrite (same_refl _ equal_subject_spec). simpl. unfold row_reg. simpl.
    by rewrite (find_change _ equal_register_spec), (same_refl _ equal_register_spec).
  - destruct (equal_subject (register_subject r') (register_subject r)) eqn:E2; [|done]. apply equal_subject_spec in E2 as ->. simpl. unfold row_reg. simpl.
    by rewrite (find_change _ equal_register_spec), E.
Qed.

Lemma rows_cell_change_reg h r k l : rows_cell (all_rows (change_reg h r l)) k = rows_cell (all_rows l) k.
Proof.
  unfold rows_cell, row_of, change_reg. simpl. rewrite (find_change _ equal_subject_spec).
  destruct (equal_subject (key_subject k) (register_subject r)) eqn:E; [|done]. by apply equal_subject_spec in E as ->.
Qed.

(* The rows by themselves: each key once, and where it belongs. *)
Definition tidy_row (j : subject) (w : row) : Prop :=
  (NoDup (row_cells w).*1 ∧ NoDup (row_registers w).*1) ∧
  (∀ k, k ∈ (row_cells w).*1 → key_subject k = j) ∧ (∀ r, r ∈ (row_registers w).*1 → register_subject r = j).
Definition tidy (l : list (subject * row)) : Prop := NoDup l.*1 ∧ ∀ j w, (j, w) ∈ l → tidy_row j w.

Lemma tidy_no_row j : tidy_row j no_row.
Proof. split; [split; apply NoDup_nil_2|split; by intros ? ?%elem_of_nil]. Qed.

Lemma tidy_find l j : tidy l → tidy_row j (default no_row (find equal_subject j l)).
Proof.
  intros [_ H]. destruct (find equal_subject j l) as [w|] eqn:E; simpl; [|apply tidy_no_row]. apply (find_some _ equal_subject_spec) in E. by apply H.
Qed.

(* It is enough to look at what is found. *)
Lemma tidy_found l : NoDup l.*1 → (∀ j w, find equal_subject j l = Some w → tidy_row j w) → tidy l.
Proof. intros Hnd H. split; [done|]. intros j w Hin. apply H. by apply find_once; [apply equal_subject_spec|..]. Qed.

Lemma tidy_change_cell h k l : tidy l → tidy (change_cell h k l).
Proof.
  intros Hl. apply tidy_found; [apply once_change; [apply equal_subject_spec|apply Hl]|]. intros j w. unfold change_cell.
  rewrite (find_change _ equal_subject_spec). destruct (equal_subject j (key_subject k)) eqn:E; [|intros H; apply (find_some _ equal_subject_spec) in H; by apply Hl].
  apply equal_subject_spec in E as ->. intros [= <-]. destruct (tidy_find l (key_subject k) Hl) as ([H1 H2] & H3 & H4).
  split; [split; simpl; [by apply (once_change _ equal_key_spec)|done]|]. split; simpl; [|done].
  intros k' [H| ->]%(elem_of_keys_change _ equal_key_spec); [by apply H3|done].
Qed.

Lemma tidy_change_reg h r l : tidy l → tidy (change_reg h r l).
Proof.
  intros Hl. apply tidy_found; [apply once_change; [apply equal_subject_spec|apply Hl]|]. intros j w. unfold change_reg.
  rewrite (find_change _ equal_subject_spec). destruct (equal_subject j (register_subject r)) eqn:E; [|intros H; apply (find_some _ equal_subject_spec) in H; by apply Hl].
  apply equal_subject_spec in E as ->. intros [= <-]. destruct (tidy_find l (register_subject r) Hl) as ([H1 H2] & H3 & H4).
  split; [split; simpl; [done|by apply (once_change _ equal_register_spec)]|]. split; simpl; [done|].
  intros k' [H| ->]%(elem_of_keys_change _ equal_register_spec); [by apply H4|done].
Qed.

Lemma elem_of_list_filter_bool {A} (P : A → bool) x l : x ∈ List.filter P l ↔ x ∈ l ∧ P x = true.
Proof. by rewrite elem_of_list_In, filter_In, <- elem_of_list_In. Qed.

(* What rows stand for, without the operations applied. *)
Record mirrors (l : list (subject * row)) (s : account) : Prop := {
  mirror_tidy : tidy l;
  mirror_cells k : list_to_set (rows_cell (all_rows l) k) = cell s k;
  mirror_registers r : rows_reg (all_rows l) r = reg s r;
}.

Lemma stands_for_mirrors x s : stands_for x s ↔ vector_of (counts x) s ∧ mirrors (about_all x) (contents s).
Proof.
  split.
  - intros [H1 H2 H3 H4 H5 H6]. split; [done|]. split; [|done..]. split; [done|]. intros j w Hin. split; [by eapply H2|by eapply H3].
  - intros [H1 [[H2 H3] H4 H5]]. split; try done; intros j w Hin; apply H3 in Hin as [? ?]; done.
Qed.

Lemma mirrors_effect own saw l s e : mirrors l s → mirrors (rows_effect own saw l e) (run_effect own saw s e).
Proof.
  intros [Ht Hc Hr]. split.
  - destruct e; simpl; by first [apply tidy_change_cell|apply tidy_change_reg].
  - intros k. destruct e as [k'|k'|k' ds|r v]; simpl; rewrite ?rows_cell_change, ?rows_cell_change_reg, ?cell_set_cell; [..|apply Hc].
    + destruct (equal_key k k') eqn:E; [apply equal_key_spec in E as ->; rewrite decide_True by done|].
      * apply set_eq. intros d. rewrite <- Hc, list_to_set_cons, !elem_of_union, !elem_of_singleton, elem_of_filter, !elem_of_list_to_set,
          elem_of_list_filter_bool, negb_true_iff. tauto.
      * rewrite decide_False; [apply Hc|]. intros ->. by rewrite (same_refl _ equal_key_spec) in E.
    + destruct (equal_key k k') eqn:E; [apply equal_key_spec in E as ->; rewrite decide_True by done|].
      * apply set_eq. intros d. rewrite <- Hc, elem_of_filter, !elem_of_list_to_set, elem_of_list_filter_bool, negb_true_iff. tauto.
      * rewrite decide_False; [apply Hc|]. intros ->. by rewrite (same_refl _ equal_key_spec) in E.
    + destruct (equal_key k k') eqn:E; [apply equal_key_spec in E as ->; rewrite decide_True by done|].
      * apply set_eq. intros d. rewrite <- Hc, elem_of_difference, !elem_of_list_to_set, elem_of_list_filter_bool, negb_true_iff, bool_decide_eq_false. tauto.
      * rewrite decide_False; [apply Hc|]. intros ->. by rewrite (same_refl _ equal_key_spec) in E.
  - intros r. rewrite reg_effect. destruct e as [k'|k'|k' ds|r' v]; simpl; rewrite ?rows_reg_change_cell, ?rows_reg_change; [apply Hr..|].
    destruct (equal_register r r') eqn:E; [apply equal_register_spec in E as ->; rewrite decide_True by done; by rewrite Hr|].
    rewrite decide_False; [apply Hr|]. intros ->. by rewrite (same_refl _ equal_register_spec) in E.
Qed.

Lemma mirrors_effects own saw es l s : mirrors l s → mirrors (foldl (rows_effect own saw) l es) (foldl (run_effect own saw) s es).
Proof. revert l s. induction es as [|e es IH]; intros l s H; simpl; [done|]. by apply IH, mirrors_effect. Qed.

Lemma rows_apply_stands x s o x' : stands_for x s → rows_apply x o = Some x' → stands_for x' (apply s o).
Proof.
  rewrite !stands_for_mirrors. intros [Hv Hm]. unfold rows_apply. destruct (op_dot o) as [origin seq] eqn:Ho.
  destruct (N.eqb seq _) eqn:E; [|done]. apply N.eqb_eq in E. intros [= <-]. simpl. split; [|rewrite <- Ho; by apply mirrors_effects].
  intros [j n] Hn. unfold vector_of in Hv. specialize (Hv (j, n) Hn). unfold covers in *. simpl in *. rewrite Ho, elem_of_union, elem_of_singleton, <- Hv.
  rewrite !bool_decide_eq_true. destruct (decide (j = origin)) as [->|Hj].
  - rewrite lookup_insert. simpl. split; [intros|intros [[= ->]|?]]; [|lia..]. destruct (decide (n = seq)) as [->|]; [by left|right; lia].
  - rewrite lookup_insert_ne by done. split; [by right|]. intros [[= ? ?]|?]; done.
Qed.

Lemma elem_of_joined mine theirs x y d :
  d ∈ joined_dots mine theirs x y ↔ (d ∈ x ∧ (d ∈ y ∨ covers theirs d = false)) ∨ (d ∈ y ∧ covers mine d = false).
Proof.
  unfold joined_dots. rewrite elem_of_app, !elem_of_list_filter_bool, orb_true_iff, !negb_true_iff, existsb_exists.
  assert ((∃ d', In d' y ∧ equal_pair d d' = true) ↔ d ∈ y) as ->; [|tauto]. split.
  - intros (d' & H%elem_of_list_In & E). by apply equal_pair_spec in E as ->.
  - intros H. exists d. by rewrite <- elem_of_list_In, equal_pair_spec.
Qed.

Definition joined_rows (mine theirs : vector) : list (subject * row) → list (subject * row) → list (subject * row) :=
  united equal_subject (λ a b, joined_row mine theirs (default no_row a) (default no_row b)).

Lemma cell_joined mine theirs l1 l2 k :
  rows_cell (all_rows (joined_rows mine theirs l1 l2)) k = joined_dots mine theirs (rows_cell (all_rows l1) k) (rows_cell (all_rows l2) k).
Proof.
  unfold rows_cell, row_of, joined_rows. simpl. rewrite (find_united _ equal_subject_spec).
  generalize (find equal_subject (key_subject k) l1), (find equal_subject (key_subject k) l2).
  intros a b. transitivity (row_cell (joined_row mine theirs (default no_row a) (default no_row b)) k); [by destruct a, b|].
  unfold row_cell, joined_row. simpl. rewrite (find_united _ equal_key_spec).
  by destruct (find equal_key k (row_cells (default no_row a))), (find equal_key k (row_cells (default no_row b))).
Qed.

Lemma reg_joined mine theirs l1 l2 r :
  rows_reg (all_rows (joined_rows mine theirs l1 l2)) r = greater (rows_reg (all_rows l1) r) (rows_reg (all_rows l2) r).
Proof.
  unfold rows_reg, row_of, joined_rows. simpl. rewrite (find_united _ equal_subject_spec).
  generalize (find equal_subject (register_subject r) l1), (find equal_subject (register_subject r) l2).
  intros a b. transitivity (row_reg (joined_row mine theirs (default no_row a) (default no_row b)) r); [by destruct a, b|].
  unfold row_reg, joined_row. simpl. rewrite (find_united _ equal_register_spec).
  by destruct (find equal_register r (row_registers (default no_row a))), (find equal_register r (row_registers (default no_row b))).
Qed.

Lemma tidy_joined mine theirs l1 l2 : tidy l1 → tidy l2 → tidy (joined_rows mine theirs l1 l2).
Proof.
  intros H1 H2. apply tidy_found; [apply once_united; [apply equal_subject_spec|apply H1|apply H2]|]. intros j w. unfold joined_rows.
  rewrite (find_united _ equal_subject_spec). pose proof (tidy_find l1 j H1) as Ha. pose proof (tidy_find l2 j H2) as Hb.
  intros H. assert (w = joined_row mine theirs (default no_row (find equal_subject j l1)) (default no_row (find equal_subject j l2))) as ->.
  { destruct (find equal_subject j l1), (find equal_subject j l2); by simplify_eq. }
  destruct Ha as ([Ha1 Ha2] & Ha3 & Ha4), Hb as ([Hb1 Hb2] & Hb3 & Hb4).
  split; [split; simpl; [by apply (once_united _ equal_key_spec)|by apply (once_united _ equal_register_spec)]|]. split; simpl.
  - intros k [?|?]%(elem_of_keys_united _ equal_key_spec); [by apply Ha3|by apply Hb3].
  - intros r [?|?]%(elem_of_keys_united _ equal_register_spec); [by apply Ha4|by apply Hb4].
Qed.

Lemma cell_join mine theirs s t k : cell (contents (Join.join mine s theirs t)) k = join_dots mine (cell (contents s) k) theirs (cell (contents t) k).
Proof.
  unfold cell. simpl. rewrite lookup_merge. unfold diag_None, join_cell. destruct (cells (contents s) !! k), (cells (contents t) !! k); simpl; [done..|].
  unfold join_dots. set_solver.
Qed.

Lemma reg_join mine theirs s t r : reg (contents (Join.join mine s theirs t)) r = greater (reg (contents s) r) (reg (contents t) r).
Proof.
  unfold reg. simpl. rewrite lookup_union_with. destruct (registers (contents s) !! r) as [v|], (registers (contents t) !! r) as [v'|]; simpl; try done.
  by destruct v.
Qed.

Lemma rows_join_stands x y s t : stands_for x s → stands_for y t → stands_for (rows_join x y) (Join.join (counts x) s (counts y) t).
Proof.
  rewrite !stands_for_mirrors. intros [Hv [Ht Hc Hr]] [Hv' [Ht' Hc' Hr']]. split.
  - intros d Hd. specialize (Hv d Hd). specialize (Hv' d Hd). simpl. rewrite elem_of_union, <- Hv, <- Hv'. unfold covers. rewrite !bool_decide_eq_true, lookup_union_with.
    destruct (counts x !! d.1) as [n|], (counts y !! d.1) as [n'|]; simpl; lia.
  - split.
    + by apply tidy_joined.
    + intros k. rewrite cell_join. change (about_all (rows_join x y)) with (joined_rows (counts x) (counts y) (about_all x) (about_all y)).
      rewrite cell_joined. apply set_eq. intros d. rewrite <- Hc, <- Hc'. unfold join_dots.
      rewrite elem_of_list_to_set, elem_of_joined, elem_of_union, !elem_of_filter, !elem_of_list_to_set. tauto.
    + intros r. rewrite reg_join. change (about_all (rows_join x y)) with (joined_rows (counts x) (counts y) (about_all x) (about_all y)).
      by rewrite reg_joined, Hr, Hr'.
Qed.

Lemma tidy_without j l : tidy l → tidy (without equal_subject j l).
Proof. intros [H1 H2]. split; [by apply once_filter|]. intros j' w [H _]%elem_of_list_filter_bool. by apply H2. Qed.

Lemma cell_without j l k : rows_cell (all_rows (without equal_subject j l)) k = if equal_subject j (key_subject k) then [] else rows_cell (all_rows l) k.
Proof. unfold rows_cell, row_of. simpl. rewrite (find_without _ equal_subject_spec). by destruct (equal_subject j (key_subject k)). Qed.

Lemma reg_without j l r : rows_reg (all_rows (without equal_subject j l)) r = if equal_subject j (register_subject r) then [] else rows_reg (all_rows l) r.
Proof. unfold rows_reg, row_of. simpl. rewrite (find_without _ equal_subject_spec). by destruct (equal_subject j (register_subject r)). Qed.

Lemma rows_drop_stands x s m : stands_for x s → stands_for (rows_drop (OfMessage m) x) (drop_record m s).
Proof.
  rewrite !stands_for_mirrors. intros [Hv [Ht Hc Hr]]. split; [done|]. split; [by apply tidy_without|..].
  - intros k. rewrite cell_drop, <- Hc; cbn [about_all rows_drop]; rewrite cell_without. destruct (equal_subject (OfMessage m) (key_subject k)) eqn:E.
    + apply equal_subject_spec in E. rewrite decide_True; [done|]. by destruct k; simplify_eq/=.
    + rewrite decide_False; [done|]. intros H. destruct k; simplify_eq/=; by rewrite (proj2 (equal_message_spec m m) eq_refl) in E.
  - intros r. rewrite reg_drop, <- Hr; cbn [about_all rows_drop]; rewrite reg_without. destruct (equal_subject (OfMessage m) (register_subject r)) eqn:E.
    + apply equal_subject_spec in E. rewrite decide_True; [done|]. by destruct r; simplify_eq/=.
    + rewrite decide_False; [done|]. intros H. destruct r; simplify_eq/=; by rewrite (proj2 (equal_message_spec m m) eq_refl) in E.
Qed.

Lemma rows_drop_box_stands x s b : stands_for x s → stands_for (rows_drop (OfBox b) x) (drop_box b s).
Proof.
  rewrite !stands_for_mirrors. intros [Hv [Ht Hc Hr]]. split; [done|]. split; [by apply tidy_without|..].
  - intros k. rewrite cell_drop_box, <- Hc; cbn [about_all rows_drop]; rewrite cell_without. destruct (equal_subject (OfBox b) (key_subject k)) eqn:E.
    + apply equal_subject_spec in E. rewrite decide_True; [done|]. by destruct k; simplify_eq/=.
    + rewrite decide_False; [done|]. intros ->. simpl in E. by rewrite (proj2 (equal_pair_spec b b) eq_refl) in E.
  - intros r. rewrite reg_drop_box, <- Hr; cbn [about_all rows_drop]; rewrite reg_without. destruct (equal_subject (OfBox b) (register_subject r)) eqn:E.
    + apply equal_subject_spec in E. rewrite decide_True; [done|]. by destruct r; simplify_eq/=.
    + rewrite decide_False; [done|]. intros H. destruct r; simplify_eq/=; by rewrite (proj2 (equal_pair_spec b b) eq_refl) in E.
Qed.
