(* What an operation does to one cell and to one register, and when two effects commute. *)
From Whimbrel.spec Require Import Cells.
From Whimbrel.proof Require Import Convergence.

(* The order of values. *)
Lemma at_most_refl a : at_most a a = true.
Proof. induction a as [|x a IH]; simpl; [done|]. rewrite IH, (bool_decide_true (x = x)) by done. by rewrite orb_true_r. Qed.

Lemma at_most_cons x y a b : at_most (x :: a) (y :: b) = true ↔ (x < y)%N ∨ (x = y ∧ at_most a b = true).
Proof. simpl. rewrite orb_true_iff, andb_true_iff, !bool_decide_eq_true. done. Qed.

Lemma at_most_antisym a b : at_most a b = true → at_most b a = true → a = b.
Proof.
  revert b. induction a as [|x a IH]; intros [|y b]; try done.
  rewrite !at_most_cons. intros [?|[-> ?]] [?|[? ?]]; try lia. f_equal. auto.
Qed.

Lemma at_most_trans a b c : at_most a b = true → at_most b c = true → at_most a c = true.
Proof.
  revert b c. induction a as [|x a IH]; intros [|y b] [|z c]; try done.
  rewrite !at_most_cons. intros [?|[-> ?]] [?|[-> ?]]; [left; lia|by left|by left|right; eauto].
Qed.

Lemma at_most_total a b : at_most a b = true ∨ at_most b a = true.
Proof.
  revert b. induction a as [|x a IH]; intros [|y b]; [by left..|by right|].
  rewrite !at_most_cons. destruct (N.lt_trichotomy x y) as [?|[->|?]]; [by left; left| |by right; left].
  destruct (IH b); [left|right]; by right.
Qed.

Lemma greater_spec a b c : at_most (greater a b) c = true ↔ at_most a c = true ∧ at_most b c = true.
Proof.
  unfold greater. destruct (at_most a b) eqn:Hab.
  - split; [|by intros []]. intros. split; [by eapply at_most_trans|done].
  - split; [|by intros []]. intros. split; [done|]. destruct (at_most_total a b) as [?|?]; [congruence|]. by eapply at_most_trans.
Qed.

Lemma greater_ext a b : (∀ c, at_most a c = true ↔ at_most b c = true) → a = b.
Proof. intros H. apply at_most_antisym; apply H; apply at_most_refl. Qed.

Lemma greater_comm a b : greater a b = greater b a.
Proof. apply greater_ext. intros c. rewrite !greater_spec. tauto. Qed.

Lemma greater_swap a b c : greater (greater a b) c = greater (greater a c) b.
Proof. apply greater_ext. intros d. rewrite !greater_spec. tauto. Qed.

Lemma greater_l a b : at_most a (greater a b) = true.
Proof. apply (greater_spec a b). apply at_most_refl. Qed.

Lemma greater_r a b : at_most b (greater a b) = true.
Proof. apply (greater_spec a b). apply at_most_refl. Qed.

Lemma greater_either a b : greater a b = a ∨ greater a b = b.
Proof. unfold greater. destruct (at_most a b); auto. Qed.

(* Whether an effect takes the dot [d] out of the cell [k], whether it puts its own dot in, and what it writes to a register. *)
Definition takes (saw : dot → bool) (e : effect) (k : key) (d : dot) : Prop :=
  match e with
  | Supersede k' | RemoveSeen k' => k' = k ∧ saw d = true
  | RemoveDots k' ds => k' = k ∧ d ∈ ds
  | Raise _ _ => False
  end.

Lemma cell_set_cell s k ds k' : cell (set_cell s k ds) k' = if decide (k' = k) then ds else cell s k'.
Proof. unfold cell, set_cell. simpl. case_decide; subst; [by rewrite lookup_insert|by rewrite lookup_insert_ne]. Qed.

Lemma cell_effect own saw s e k d :
  d ∈ cell (run_effect own saw s e) k ↔ (d ∈ cell s k ∧ ¬ takes saw e k d) ∨ (d = own ∧ e = Supersede k).
Proof.
  destruct e as [k'|k'|k' ds|r v]; simpl.
  - rewrite cell_set_cell. case_decide as Hk.
    + subst k'. rewrite elem_of_union, elem_of_filter, elem_of_singleton. split.
      * intros [[Hs Hd]| ->]; [left|by right]. split; [done|]. intros [_ ?]. congruence.
      * intros [[Hd Hn]|[-> _]]; [left|by right]. split; [|done]. destruct (saw d); [|done]. by destruct Hn.
    + split.
      * intros Hd. left. split; [done|]. intros [? _]. congruence.
      * intros [[? _]|[_ [= ?]]]; [done|congruence].
  - rewrite cell_set_cell. case_decide as Hk.
    + subst k'. rewrite elem_of_filter. split.
      * intros [Hs Hd]. left. split; [done|]. intros [_ ?]. congruence.
      * intros [[Hd Hn]|[_ [=]]]. split; [|done]. destruct (saw d); [|done]. by destruct Hn.
    + split.
      * intros Hd. left. split; [done|]. intros [? _]. congruence.
      * intros [[? _]|[_ [=]]]. done.
  - rewrite cell_set_cell. case_decide as Hk.
    + subst k'. rewrite elem_of_difference. split.
      * intros [Hd Hn]. left. split; [done|]. by intros [_ ?].
      * intros [[Hd Hn]|[_ [=]]]. split; [done|]. intros ?. by apply Hn.
    + split.
      * intros Hd. left. split; [done|]. intros [? _]. congruence.
      * intros [[? _]|[_ [=]]]. done.
  - unfold cell. simpl. split.
    + intros Hd. left. split; [done|]. by intros [].
    + intros [[? _]|[_ [=]]]. done.
Qed.

Lemma reg_effect own saw s e r :
  reg (run_effect own saw s e) r = match e with Raise r' v => if decide (r = r') then greater (reg s r) v else reg s r | _ => reg s r end.
Proof.
  destruct e as [k'|k'|k' ds|r' v]; simpl; try done.
  unfold reg. simpl. case_decide; subst; [by rewrite lookup_insert|by rewrite lookup_insert_ne].
Qed.

Lemma account_eq s t : cells s = cells t → registers s = registers t → s = t.
Proof. destruct s, t. simpl. by intros -> ->. Qed.

(* The cell that an effect is for. *)
Definition cell_of (e : effect) : option key :=
  match e with Supersede k | RemoveSeen k | RemoveDots k _ => Some k | Raise _ _ => None end.

Lemma run_cell own saw s e k : cell_of e = Some k → run_effect own saw s e = set_cell s k (cell (run_effect own saw s e) k).
Proof. destruct e; simpl; intros [= ->]; rewrite cell_set_cell; by rewrite decide_True by done. Qed.

Lemma set_cell_same s k X Y : set_cell (set_cell s k X) k Y = set_cell s k Y.
Proof. unfold set_cell. simpl. by rewrite insert_insert. Qed.

Lemma cell_other own saw s e k k' : cell_of e = Some k → k' ≠ k → cell (run_effect own saw s e) k' = cell s k'.
Proof. intros He Hne. rewrite (run_cell _ _ _ _ _ He), cell_set_cell. by rewrite decide_False. Qed.

(* What an effect makes of its cell depends on that cell alone. *)
Lemma cell_only own saw s t e k : cell_of e = Some k → cell s k = cell t k → cell (run_effect own saw s e) k = cell (run_effect own saw t e) k.
Proof. intros He Heq. apply set_eq. intros d. by rewrite !cell_effect, Heq. Qed.

Lemma set_run_same own saw s e k X : cell_of e = Some k → set_cell (run_effect own saw s e) k X = set_cell s k X.
Proof. intros He. by rewrite (run_cell _ _ _ _ _ He), set_cell_same. Qed.

Lemma set_run_other own saw s e k k' X : cell_of e = Some k → k' ≠ k →
  set_cell (run_effect own saw s e) k' X = set_cell (set_cell s k' X) k (cell (run_effect own saw s e) k).
Proof.
  intros He Hne. rewrite (run_cell _ _ _ _ _ He) at 1. unfold set_cell at 1 2. unfold set_cell. simpl. f_equal. by apply insert_commute.
Qed.

Lemma effects_commute own1 saw1 e1 own2 saw2 e2 s :
  (∀ k, e1 = Supersede k → ¬ takes saw2 e2 k own1) → (∀ k, e2 = Supersede k → ¬ takes saw1 e1 k own2) →
  run_effect own2 saw2 (run_effect own1 saw1 s e1) e2 = run_effect own1 saw1 (run_effect own2 saw2 s e2) e1.
Proof.
  intros H12 H21. destruct (cell_of e1) as [k1|] eqn:E1, (cell_of e2) as [k2|] eqn:E2.
  - rewrite (run_cell own2 saw2 (run_effect own1 saw1 s e1) _ _ E2), (run_cell own1 saw1 (run_effect own2 saw2 s e2) _ _ E1).
    destruct (decide (k1 = k2)) as [->|Hne].
    + rewrite (set_run_same own1 saw1 s _ _ _ E1), (set_run_same own2 saw2 s _ _ _ E2).
      f_equal. apply set_eq. intros d. rewrite !cell_effect. split.
      * intros [[[[H1 H2]|[-> H]] H3]|[-> H]]; [left; split; [by left|done]|by right|left].
        split; [by right|]. by apply H21.
      * intros [[[[H1 H2]|[-> H]] H3]|[-> H]]; [left; split; [by left|done]|by right|left].
        split; [by right|]. by apply H12.
    + rewrite (cell_only own2 saw2 (run_effect own1 saw1 s e1) s e2 k2 E2) by (by apply (cell_other own1 saw1 s e1 k1)).
      rewrite (cell_only own1 saw1 (run_effect own2 saw2 s e2) s e1 k1 E1) by (by apply (cell_other own2 saw2 s e2 k2)).
      rewrite (set_run_other own1 saw1 s e1 k1 k2) by done. f_equal. symmetry. by apply run_cell.
  - destruct e2 as [| | |r2 v2]; try done. destruct e1; done.
  - destruct e1 as [| | |r1 v1]; try done. destruct e2; done.
  - destruct e1 as [| | |r1 v1]; try done. destruct e2 as [| | |r2 v2]; try done. simpl. f_equal. unfold reg. simpl.
    destruct (decide (r1 = r2)) as [->|Hne].
    + rewrite !lookup_insert. simpl. rewrite !insert_insert. f_equal. apply greater_swap.
    + rewrite !lookup_insert_ne by done. by apply insert_commute.
Qed.

Section lists.
  Context {S A B : Type} (f : S → A → S) (g : S → B → S).
  Lemma foldl_swap_one a l s : (∀ b s, b ∈ l → g (f s a) b = f (g s b) a) → foldl g (f s a) l = f (foldl g s l) a.
  Proof.
    revert s. induction l as [|b l IH]; simpl; intros s H; [done|]. rewrite H by by left. apply IH. intros. apply H. by right.
  Qed.
  Lemma foldl_swap l k s : (∀ a b s, a ∈ l → b ∈ k → g (f s a) b = f (g s b) a) → foldl g (foldl f s l) k = foldl f (foldl g s k) l.
  Proof.
    revert s. induction l as [|a l IH]; simpl; intros s H; [done|].
    rewrite IH by (intros; apply H; [by right|done]). f_equal. apply foldl_swap_one. intros. apply H; [by left|done].
  Qed.
End lists.

(* All effects of one operation. *)
Lemma cell_effects own saw es s k d :
  (∀ e, e ∈ es → ¬ takes saw e k own) →
  d ∈ cell (foldl (run_effect own saw) s es) k ↔ (d ∈ cell s k ∧ ∀ e, e ∈ es → ¬ takes saw e k d) ∨ (d = own ∧ Supersede k ∈ es).
Proof.
  revert s. induction es as [|e es IH]; intros s Hown; simpl.
  - split.
    + intros Hd. left. split; [done|]. intros e He. by apply elem_of_nil in He.
    + intros [[Hd _]|[_ He]]; [done|by apply elem_of_nil in He].
  - rewrite IH, cell_effect by (intros; apply Hown; by right). split.
    + intros [[[[H1 H2]|[-> ->]] H3]|[-> H]].
      * left. split; [done|]. intros e' [->|He]%elem_of_cons; [done|by apply H3].
      * right. split; [done|by left].
      * right. split; [done|by right].
    + intros [[H1 H2]|[-> H]].
      * left. split; [left; split; [done|apply H2; by left]|]. intros e' He. apply H2. by right.
      * apply elem_of_cons in H as [<-|H]; [left|by right]. split; [by right|]. intros e' He'. apply Hown. by right.
Qed.

Lemma reg_effects own saw es s r c :
  at_most (reg (foldl (run_effect own saw) s es) r) c = true ↔
  at_most (reg s r) c = true ∧ ∀ v, Raise r v ∈ es → at_most v c = true.
Proof.
  revert s. induction es as [|e es IH]; intros s; simpl.
  - split; [|by intros [? _]]. intros. split; [done|]. intros v Hv. by apply elem_of_nil in Hv.
  - rewrite IH, reg_effect.
    assert (match e with Raise r' v => if decide (r = r') then at_most (reg s r) c = true ∧ at_most v c = true else at_most (reg s r) c = true | _ => at_most (reg s r) c = true end
      ↔ at_most (reg s r) c = true ∧ ∀ v, Raise r v = e → at_most v c = true) as Hone.
    { destruct e as [k'|k'|k' ds|r' v']; try (split; [by split|by intros [? _]]). case_decide as Hr.
      - subst. split; [intros [? ?]; split; [done|by intros ? [= ->]]|]. intros [? H]. split; [done|by apply H].
      - split; [|by intros [? _]]. intros. split; [done|]. intros ? [= ? ?]. congruence. }
    assert (at_most (match e with Raise r' v => if decide (r = r') then greater (reg s r) v else reg s r | _ => reg s r end) c = true
      ↔ at_most (reg s r) c = true ∧ ∀ v, Raise r v = e → at_most v c = true) as ->.
    { rewrite <- Hone. destruct e; try done. case_decide; [|done]. apply greater_spec. }
    split.
    + intros [[H1 H2] H3]. split; [done|]. intros v [?|?]%elem_of_cons; auto.
    + intros [H1 H2]. split; [split; [done|]|]; intros v Hv; apply H2; [rewrite Hv; by left|by right].
Qed.

Lemma reg_effects_either own saw es s r :
  reg (foldl (run_effect own saw) s es) r = reg s r ∨ Raise r (reg (foldl (run_effect own saw) s es) r) ∈ es.
Proof.
  revert s. induction es as [|e es IH]; intros s; simpl; [by left|].
  destruct (IH (run_effect own saw s e)) as [H|H]; [|right; by right]. rewrite H, reg_effect.
  destruct e as [k'|k'|k' ds|r' v']; try by left. case_decide; [|by left]. subst.
  destruct (greater_either (reg s r') v') as [Hg|Hg]; rewrite Hg; [by left|right; by left].
Qed.
