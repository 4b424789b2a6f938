(* Both sides of the law are computed from the operations that were applied: what was put into a cell and not taken out, the greatest value written. *)
From Whimbrel.spec Require Import Join.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox.

Lemma cells_cell s k x : cells s !! k = Some x → cell s k = x.
Proof. unfold cell. by intros ->. Qed.

Lemma account_ext s t :
  (∀ k, cell s k = cell t k) → (∀ r, reg s r = reg t r) →
  (∀ k, is_Some (cells s !! k) ↔ is_Some (cells t !! k)) → (∀ r, is_Some (registers s !! r) ↔ is_Some (registers t !! r)) → s = t.
Proof.
  intros Hc Hr Hdc Hdr. apply account_eq; apply map_eq.
  - intros k. specialize (Hc k). specialize (Hdc k). unfold cell in Hc.
    destruct (cells s !! k) as [x|], (cells t !! k) as [y|]; simpl in *; [by f_equal|..|done].
    + destruct (proj1 Hdc) as [? [=]]. by eexists.
    + destruct (proj2 Hdc) as [? [=]]. by eexists.
  - intros r. specialize (Hr r). specialize (Hdr r). unfold reg in Hr.
    destruct (registers s !! r) as [x|], (registers t !! r) as [y|]; simpl in *; [by f_equal|..|done].
    + destruct (proj1 Hdr) as [? [=]]. by eexists.
    + destruct (proj2 Hdr) as [? [=]]. by eexists.
Qed.

(* Cells and registers that some operation touched are there. *)
Definition touches_cell (o : op) (k : key) : Prop := ∃ e, e ∈ effects o ∧ cell_of e = Some k.
Definition touches_reg (o : op) (r : register) : Prop := ∃ v, Raise r v ∈ effects o.

Lemma cells_effect own saw s e k : is_Some (cells (run_effect own saw s e) !! k) ↔ is_Some (cells s !! k) ∨ cell_of e = Some k.
Proof.
  destruct e as [k'|k'|k' ds|r v]; simpl; try (rewrite lookup_insert_is_Some';  naive_solver). naive_solver.
Qed.

Lemma registers_effect own saw s e r : is_Some (registers (run_effect own saw s e) !! r) ↔ is_Some (registers s !! r) ∨ ∃ v, Raise r v = e.
Proof.
  destruct e as [k'|k'|k' ds|r' v]; simpl; try naive_solver. rewrite lookup_insert_is_Some'. naive_solver.
Qed.

Lemma cells_effects own saw es s k : is_Some (cells (foldl (run_effect own saw) s es) !! k) ↔ is_Some (cells s !! k) ∨ ∃ e, e ∈ es ∧ cell_of e = Some k.
Proof.
  revert s. induction es as [|e es IH]; intros s; simpl.
  - split; [by left|]. intros [?|(e & He & _)]; [done|by apply elem_of_nil in He].
  - rewrite IH, cells_effect. setoid_rewrite elem_of_cons. naive_solver.
Qed.

Lemma registers_effects own saw es s r : is_Some (registers (foldl (run_effect own saw) s es) !! r) ↔ is_Some (registers s !! r) ∨ ∃ v, Raise r v ∈ es.
Proof.
  revert s. induction es as [|e es IH]; intros s; simpl.
  - split; [by left|]. intros [?|(v & He)]; [done|by apply elem_of_nil in He].
  - rewrite IH, registers_effect. setoid_rewrite elem_of_cons. naive_solver.
Qed.

Lemma cells_replay l s k : is_Some (cells (replay apply_op s l) !! k) ↔ is_Some (cells s !! k) ∨ ∃ o, o ∈ l ∧ touches_cell o k.
Proof.
  revert s. induction l as [|o l IH]; intros s; simpl.
  - split; [by left|]. intros [?|(o & Ho & _)]; [done|by apply elem_of_nil in Ho].
  - unfold replay in *. rewrite IH. unfold apply_op at 1. rewrite cells_effects. setoid_rewrite elem_of_cons. unfold touches_cell. naive_solver.
Qed.

Lemma registers_replay l s r : is_Some (registers (replay apply_op s l) !! r) ↔ is_Some (registers s !! r) ∨ ∃ o, o ∈ l ∧ touches_reg o r.
Proof.
  revert s. induction l as [|o l IH]; intros s; simpl.
  - split; [by left|]. intros [?|(o & Ho & _)]; [done|by apply elem_of_nil in Ho].
  - unfold replay in *. rewrite IH. unfold apply_op at 1. rewrite registers_effects. setoid_rewrite elem_of_cons. unfold touches_reg. naive_solver.
Qed.

(* What a join leaves. *)
Lemma cell_join mine s theirs t k : cell (contents (join mine s theirs t)) k = join_dots mine (cell (contents s) k) theirs (cell (contents t) k).
Proof.
  unfold cell, join. simpl. rewrite lookup_merge. unfold diag_None. destruct (cells (contents s) !! k), (cells (contents t) !! k); simpl; try done.
  apply set_eq. intros d. unfold join_dots. rewrite elem_of_union, !elem_of_filter. set_solver.
Qed.

Lemma cells_join mine s theirs t k :
  is_Some (cells (contents (join mine s theirs t)) !! k) ↔ is_Some (cells (contents s) !! k) ∨ is_Some (cells (contents t) !! k).
Proof.
  unfold join. simpl. rewrite lookup_merge. unfold diag_None. destruct (cells (contents s) !! k), (cells (contents t) !! k); simpl; naive_solver.
Qed.

Lemma at_most_nil a : at_most [] a = true.
Proof. by destruct a. Qed.

Lemma reg_join mine s theirs t r : reg (contents (join mine s theirs t)) r = greater (reg (contents s) r) (reg (contents t) r).
Proof.
  unfold reg, join. simpl. rewrite lookup_union_with. destruct (registers (contents s) !! r) as [a|], (registers (contents t) !! r) as [b|]; simpl; try done.
  - rewrite greater_comm. unfold greater. by rewrite at_most_nil.
Qed.

Lemma registers_join mine s theirs t r :
  is_Some (registers (contents (join mine s theirs t)) !! r) ↔ is_Some (registers (contents s) !! r) ∨ is_Some (registers (contents t) !! r).
Proof.
  unfold join. simpl. rewrite lookup_union_with. destruct (registers (contents s) !! r), (registers (contents t) !! r); simpl; naive_solver.
Qed.

Lemma contents_after p : contents (state_after empty apply p) = replay apply_op (contents empty) (deliveries p).
Proof. unfold state_after. by rewrite contents_replay. Qed.

Lemma replay_app {O S} (f : S → O → S) s l k : replay f s (l ++ k) = replay f (replay f s l) k.
Proof. unfold replay. by rewrite foldl_app. Qed.

Section execution.
  Context (E : mailbox_execution).
  Local Notation history := (history _ _ _ _ E).
  Local Notation hb := (happened_before history).

  Lemma prefix_delivered i p o : p `prefix_of` history i → o ∈ deliveries p → Deliver o ∈ history i.
  Proof. intros [q ->] Ho%elem_of_deliveries. apply elem_of_app. by left. Qed.

  (* What happened before something delivered is delivered. *)
  Lemma past_delivered i p o o' : p `prefix_of` history i → o ∈ deliveries p → hb o' o → o' ∈ deliveries p.
  Proof.
    intros [q Hq] (p1 & p2 & ->)%elem_of_deliveries%elem_of_list_split Hhb. rewrite <- app_assoc in Hq. simpl in Hq.
    apply elem_of_deliveries, elem_of_app. left. by eapply (delivered_before_piece E).
  Qed.

  Lemma same_operation i j o1 o2 : Deliver o1 ∈ history i → Deliver o2 ∈ history j → op_dot o1 = op_dot o2 → o1 = o2.
  Proof. apply (delivered_same E). Qed.

  (* A list of delivered operations that contradicts no causes is an orderly one. *)
  Lemma consistent_orderly l : (∀ o, o ∈ l → ∃ i, Deliver o ∈ history i) → consistent hb l → orderly l.
  Proof.
    intros Hdel Hc. unfold orderly, consistent in *. induction Hc as [|o l Hl IH Hf]; constructor.
    - apply IH. intros. apply Hdel. by right.
    - rewrite Forall_forall in *. intros o' Ho' [k Ht]. apply (Hf o' Ho').
      destruct (Hdel o) as [i Hi]; [by left|]. destruct (Hdel o') as [i' Hi']; [by right|].
      destruct (deliveries_have_causes _ _ _ _ E _ _ Hi) as [j Hj]. apply (takes_saw E _ _ _ _ Hj) in Ht. by eapply saw_is_past.
  Qed.

  Lemma not_own i o k : Deliver o ∈ history i → ¬ op_takes o k (op_dot o).
  Proof. intros [j Hj]%(deliveries_have_causes _ _ _ _ E). by eapply takes_not_own. Qed.

  Lemma in_applied i p o : p `prefix_of` history i → op_dot o ∈ applied (state_after empty apply p) → (∃ j, Deliver o ∈ history j) → o ∈ deliveries p.
  Proof.
    intros Hp (o' & Ho' & Hid)%applied_delivered [j Hj]. assert (o' = o) as ->; [|by apply elem_of_deliveries].
    eapply same_operation; [eapply prefix_delivered; [done|by apply elem_of_deliveries]|done|done].
  Qed.

  Lemma applied_in p o : o ∈ deliveries p → op_dot o ∈ applied (state_after empty apply p).
  Proof. intros Ho. apply applied_delivered. exists o. by rewrite <- elem_of_deliveries. Qed.

  (* What an operation took out of a cell was put there before it. *)
  Lemma taken_before i j r o k : Deliver r ∈ history i → Deliver o ∈ history j → op_takes r k (op_dot o) → hb o r.
  Proof.
    intros [j' Hj']%(deliveries_have_causes _ _ _ _ E) Ho Ht. apply (takes_saw E _ _ _ _ Hj') in Ht. by eapply saw_is_past.
  Qed.

  Section two.
    Context (i j : nat) (p q : list (event op)) (Hp : p `prefix_of` history i) (Hq : q `prefix_of` history j).
    Local Notation s := (state_after empty apply p).
    Local Notation t := (state_after empty apply q).
    Local Notation more := (missing s (deliveries q)).

    Lemma elem_of_more o : o ∈ more ↔ o ∈ deliveries q ∧ o ∉ deliveries p.
    Proof.
      unfold missing. rewrite elem_of_list_filter. split; intros [H1 H2].
      - split; [done|]. intros Ho. by apply H1, applied_in.
      - split; [|done]. intros Ha. apply H2. eapply in_applied; [done..|]. exists j. by eapply prefix_delivered.
    Qed.

    Lemma elem_of_both o : o ∈ deliveries p ++ more ↔ o ∈ deliveries p ∨ o ∈ deliveries q.
    Proof.
      rewrite elem_of_app, elem_of_more. split; [naive_solver|]. intros [?|Hin]; [by left|].
      destruct (decide (op_dot o ∈ applied s)) as [Ha|Hn].
      - left. eapply in_applied; [done..|]. exists j. by eapply prefix_delivered.
      - right. split; [done|]. intros ?. by apply Hn, applied_in.
    Qed.

    Lemma filter_sorted {A} (R : A → A → Prop) (P : A → Prop) `{!∀ x, Decision (P x)} l : StronglySorted R l → StronglySorted R (filter P l).
    Proof.
      induction 1 as [|x l Hl IH Hf]; [constructor|]. rewrite filter_cons. case_decide; [|done]. constructor; [done|].
      rewrite Forall_forall in *. intros y [_ Hy]%elem_of_list_filter. by apply Hf.
    Qed.

    Lemma both_consistent : consistent hb (deliveries p ++ more).
    Proof.
      apply consistent_app. split; [by eapply consistent_deliveries|]. split.
      - apply filter_sorted. by eapply consistent_deliveries.
      - intros x y Hx [_ Hy]%elem_of_more Hhb. apply Hy. by eapply past_delivered.
    Qed.

    Lemma both_delivered o : o ∈ deliveries p ++ more → ∃ i, Deliver o ∈ history i.
    Proof. intros [H|H]%elem_of_both; [exists i|exists j]; by eapply prefix_delivered. Qed.

    Lemma vector_exists : ∃ v, vector_of v s.
    Proof.
      set (top := λ (o : op) (v : gmap N N), <[(op_dot o).1 := N.max (op_dot o).2 (default 0%N (v !! (op_dot o).1))]> v).
      exists (foldr top ∅ (deliveries p)). intros d Hd.
      assert (∀ l, covers (foldr top ∅ l) d = true ↔ ∃ o, o ∈ l ∧ (op_dot o).1 = d.1 ∧ (d.2 ≤ (op_dot o).2)%N) as ->.
      { unfold covers. intros l. rewrite bool_decide_eq_true. induction l as [|o l IH]; simpl.
        - rewrite lookup_empty. simpl. split; [lia|]. intros (o & Ho & _). by apply elem_of_nil in Ho.
        - setoid_rewrite elem_of_cons. unfold top at 1. destruct (decide ((op_dot o).1 = d.1)) as [He|He].
          + rewrite He, lookup_insert. simpl. split.
            * intros Hle. destruct (decide (d.2 ≤ (op_dot o).2)%N); [exists o; auto|]. destruct (proj1 IH) as (o' & ? & ? & ?); [lia|]. exists o'. auto.
            * intros (o' & [->|Ho'] & ? & ?); [lia|]. cut (d.2 ≤ default 0 (foldr top ∅ l !! d.1))%N; [lia|]. apply IH. by exists o'.
          + rewrite lookup_insert_ne by done. rewrite IH. naive_solver. }
      split.
      - intros (o & Ho & He & Hle). destruct (decide (d = op_dot o)) as [->|Hne]; [by apply applied_in|].
        assert (saw o d = true) as Hs.
        { unfold saw. rewrite bool_decide_true by done. apply bool_decide_true. destruct (decide (d.2 = (op_dot o).2)) as [He2|]; [|lia].
          destruct Hne. rewrite (surjective_pairing d), (surjective_pairing (op_dot o)). by rewrite He, He2. }
        pose proof (prefix_delivered _ _ _ Hp Ho) as [j' Hj']%(deliveries_have_causes _ _ _ _ E).
        pose proof Hj' as (p' & q' & Heq & Hv)%broadcast_is_valid. apply (deps_exact _ _ Hv) in Hs; [|done].
        apply applied_delivered in Hs as (o2 & Ho2 & <-). apply applied_in. eapply past_delivered; [done|done|]. by eapply hb_of_delivery.
      - intros (o & Ho & <-)%applied_delivered. exists o. rewrite elem_of_deliveries. auto.
    Qed.

    Context (mine theirs : gmap N N) (Hmine : vector_of mine s) (Htheirs : vector_of theirs t).

    Lemma covers_no v w d : vector_of v w → (0 < d.2)%N → covers v d = false ↔ d ∉ applied w.
    Proof. intros Hv Hd. rewrite <- (Hv d Hd). by destruct (covers v d). Qed.

    Lemma join_cells k : cell (contents (join mine s theirs t)) k = cell (contents (replay apply s more)) k.
    Proof.
      rewrite cell_join, contents_replay, !contents_after, <- replay_app.
      apply set_eq. intros d. unfold join_dots. rewrite elem_of_union, !elem_of_filter.
      assert (∀ i' p', p' `prefix_of` history i' → orderly (deliveries p') ∧ ∀ o, o ∈ deliveries p' → ¬ op_takes o k (op_dot o)) as Hone.
      { intros i' p' Hp'. split; [by eapply orderly_deliveries|]. intros o Ho. eapply not_own. by eapply prefix_delivered. }
      assert (orderly (deliveries p ++ more) ∧ ∀ o, o ∈ deliveries p ++ more → ¬ op_takes o k (op_dot o)) as Hboth.
      { split; [apply consistent_orderly; [apply both_delivered|apply both_consistent]|]. intros o [i' Hi']%both_delivered. by eapply not_own. }
      rewrite !cell_replay by first [apply (Hone i p Hp)|apply (Hone j q Hq)|apply Hboth].
      split.
      - intros [[H [(o & Ho & <- & Hput) Hkeep]]|[H [(o & Ho & <- & Hput) Hkeep]]].
        + pose proof (prefix_delivered _ _ _ Hp Ho) as Hdel. split; [exists o; rewrite elem_of_both; auto|].
          intros r [Hr|Hr]%elem_of_both; [by apply Hkeep|]. destruct H as [[_ H]|H]; [by apply H|]. intros Ht.
          apply (covers_no _ _ _ Htheirs) in H; [|by eapply delivered_numbered]. apply H, applied_in. apply (past_delivered j q r); [done|done|].
          eapply taken_before; [exact (prefix_delivered j q r Hq Hr)|done|done].
        + pose proof (prefix_delivered _ _ _ Hq Ho) as Hdel. split; [exists o; rewrite elem_of_both; auto|].
          intros r [Hr|Hr]%elem_of_both; [|by apply Hkeep]. intros Ht.
          apply (covers_no _ _ _ Hmine) in H; [|by eapply delivered_numbered]. apply H, applied_in. apply (past_delivered i p r); [done|done|].
          eapply taken_before; [exact (prefix_delivered i p r Hp Hr)|done|done].
      - intros [(o & Ho & <- & Hput) Hkeep].
        assert (∀ r, r ∈ deliveries p → ¬ op_takes r k (op_dot o)) as Hkp by (intros; apply Hkeep, elem_of_both; auto).
        assert (∀ r, r ∈ deliveries q → ¬ op_takes r k (op_dot o)) as Hkq by (intros; apply Hkeep, elem_of_both; auto).
        pose proof (both_delivered _ Ho) as [i' Hi']. pose proof (delivered_numbered E _ _ Hi') as Hnum.
        destruct (decide (op_dot o ∈ applied s)) as [Hs|Hs].
        + left. split; [|split; [|done]].
          * destruct (decide (op_dot o ∈ applied t)) as [Ht|Ht].
            -- left. split; [|done]. exists o. split; [|done]. eapply in_applied; [done|done|by exists i'].
            -- right. by apply (covers_no _ _ _ Htheirs).
          * exists o. split; [|done]. eapply in_applied; [done|done|by exists i'].
        + right. split; [by apply (covers_no _ _ _ Hmine)|]. split; [|done]. exists o. split; [|done].
          apply elem_of_both in Ho as [Ho|Ho]; [|done]. by apply applied_in in Ho.
    Qed.

    Lemma join_registers r : reg (contents (join mine s theirs t)) r = reg (contents (replay apply s more)) r.
    Proof.
      rewrite reg_join, contents_replay, !contents_after, <- replay_app.
      apply greater_ext. intros c. rewrite greater_spec, !reg_replay. setoid_rewrite elem_of_both. naive_solver.
    Qed.

    Lemma join_is_replay : join mine s theirs t = replay apply s more.
    Proof.
      assert (∀ a b : replica, applied a = applied b → contents a = contents b → a = b) as Heq by (intros [] []; simpl; by intros -> ->).
      apply Heq.
      - simpl. rewrite applied_replay. apply set_eq. intros d. rewrite elem_of_union, !applied_delivered, elem_of_union, applied_delivered, elem_of_list_to_set, elem_of_list_fmap.
        setoid_rewrite elem_of_more. setoid_rewrite <- elem_of_deliveries. split.
        + intros [H|(o & Ho & <-)]; [by right|]. destruct (decide (op_dot o ∈ applied s)) as [Ha|Hn].
          * right. exists o. split; [|done]. eapply in_applied; [done..|]. exists j. by eapply prefix_delivered.
          * left. exists o. split; [done|]. split; [done|]. intros ?. by apply Hn, applied_in.
        + intros [(o & -> & Ho & _)|H]; [right; by exists o|by left].
      - apply account_ext; [apply join_cells|apply join_registers|..].
        + intros k. rewrite cells_join, contents_replay, !contents_after, !cells_replay. setoid_rewrite elem_of_more.
          split.
          * intros [?|[?|(o & Ho & Hk)]]; [by left|left; by left|]. pose proof (proj2 (elem_of_both o) (or_intror Ho)) as [H|H]%elem_of_app.
            -- left. right. by exists o.
            -- right. exists o. by apply elem_of_more in H.
          * intros [?|(o & [? _] & ?)]; [by left|]. right. right. by exists o.
        + intros r. rewrite registers_join, contents_replay, !contents_after, !registers_replay. setoid_rewrite elem_of_more.
          split.
          * intros [?|[?|(o & Ho & Hk)]]; [by left|left; by left|]. pose proof (proj2 (elem_of_both o) (or_intror Ho)) as [H|H]%elem_of_app.
            -- left. right. by exists o.
            -- right. exists o. by apply elem_of_more in H.
          * intros [?|(o & [? _] & ?)]; [by left|]. right. right. by exists o.
    Qed.
  End two.
End execution.

Theorem join_law : join_statement.
Proof.
  intros E i j p q Hp Hq s t. split; [by eapply vector_exists|]. split; [by eapply both_consistent|].
  intros. by eapply join_is_replay.
Qed.
