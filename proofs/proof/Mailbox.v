(* Whimbrel's mailbox CRDT: what a state holds, computed from the set of operations that made it, and that concurrent operations commute. *)
From Whimbrel.spec Require Import Mailbox.
From Whimbrel.proof Require Import Convergence Network Cells.

(* Whether an operation takes the dot [d] out of the cell [k]. *)
Definition op_takes (o : op) (k : key) (d : dot) : Prop := ∃ e, e ∈ effects o ∧ takes (saw o) e k d.
Definition op_puts (o : op) (k : key) : Prop := Supersede k ∈ effects o.

Lemma saw_irreflexive o : saw o (op_dot o) = false.
Proof. unfold saw. rewrite bool_decide_true by done. apply bool_decide_false. lia. Qed.

Lemma applied_replay l s : applied (replay apply s l) = list_to_set (op_dot <$> l) ∪ applied s.
Proof.
  revert s. induction l as [|o l IH]; intros s; simpl; [by rewrite union_empty_l_L|].
  unfold replay in *. simpl. rewrite IH. simpl. by rewrite (comm_L (∪) {[op_dot o]} (list_to_set _)), (assoc_L (∪)).
Qed.

Lemma contents_replay l s : contents (replay apply s l) = replay apply_op (contents s) l.
Proof. revert s. induction l as [|o l IH]; intros s; simpl; [done|]. apply IH. Qed.

Lemma cell_empty k : cell (contents empty) k = ∅.
Proof. done. Qed.

Lemma replay_snoc s l o : replay apply_op s (l ++ [o]) = foldl (run_effect (op_dot o) (saw o)) (replay apply_op s l) (effects o).
Proof. unfold replay. by rewrite foldl_app. Qed.

(* Whatever is in a cell was put there by an operation of that name. *)
Lemma cell_put l k d : d ∈ cell (replay apply_op (contents empty) l) k → ∃ o, o ∈ l ∧ op_dot o = d ∧ op_puts o k.
Proof.
  induction l as [|o l IH] using rev_ind; [done|].
  rewrite replay_snoc. generalize (replay apply_op (contents empty) l) IH. clear IH. intros s IH.
  assert (∀ es s, d ∈ cell (foldl (run_effect (op_dot o) (saw o)) s es) k → d ∈ cell s k ∨ (d = op_dot o ∧ Supersede k ∈ es)) as H.
  { clear. intros es. induction es as [|e es IH]; simpl; intros s Hd; [by left|].
    apply IH in Hd as [Hd|[-> Hd]]; [|right; by split; [|right]]. apply cell_effect in Hd as [[Hd _]|[-> ->]]; [by left|].
    right. split; [done|by left]. }
  intros [Hd|[-> Hd]]%H.
  - destruct (IH Hd) as (o' & ? & ?). exists o'. split; [|done]. apply elem_of_app. by left.
  - exists o. split; [|done]. apply elem_of_app. right. by left.
Qed.

(* An order of operations in which nothing takes out what comes later. *)
Definition orderly (l : list op) : Prop := consistent (λ x y, ∃ k, op_takes y k (op_dot x)) l.

(* The content of a cell, from the operations alone: the dots that were put there and that nothing took out. *)
Lemma cell_replay l k d : orderly l → (∀ o, o ∈ l → ¬ op_takes o k (op_dot o)) →
  d ∈ cell (replay apply_op (contents empty) l) k ↔ (∃ o, o ∈ l ∧ op_dot o = d ∧ op_puts o k) ∧ ∀ r, r ∈ l → ¬ op_takes r k d.
Proof.
  intros Hord Hown. induction l as [|o l IH] using rev_ind.
  - simpl. split; [done|]. intros [(o & Ho & _) _]. by apply elem_of_nil in Ho.
  - apply consistent_app in Hord as (Hord & _ & Hlast). rewrite replay_snoc.
    rewrite cell_effects by (intros e He Ht; apply (Hown o); [apply elem_of_app; right; by left|by exists e]).
    rewrite IH by (try done; intros; apply Hown, elem_of_app; by left). split.
    + intros [[[(o' & Ho' & Hd & Hp) Hn] Ho]|[-> Hp]].
      * split. { exists o'. split; [|done]. apply elem_of_app. by left. }
        intros r [Hr| ->%elem_of_list_singleton]%elem_of_app; [by apply Hn|]. intros (e & He & Ht). by apply (Ho e).
      * split. { exists o. split; [|done]. apply elem_of_app. right. by left. }
        intros r [Hr| ->%elem_of_list_singleton]%elem_of_app.
        -- intros Ht. apply (Hlast r o); [done|by left|]. by exists k.
        -- apply Hown. apply elem_of_app. right. by left.
    + intros [(o' & Ho' & Hd & Hp) Hn]. apply elem_of_app in Ho' as [Ho'| ->%elem_of_list_singleton].
      * left. split.
        -- split; [by exists o'|]. intros r Hr. apply Hn. apply elem_of_app. by left.
        -- intros e He Ht. apply (Hn o); [apply elem_of_app; right; by left|]. by exists e.
      * right. by split.
Qed.

(* A register holds the greatest value written. *)
Lemma reg_replay l s r c :
  at_most (reg (replay apply_op s l) r) c = true ↔
  at_most (reg s r) c = true ∧ ∀ o v, o ∈ l → Raise r v ∈ effects o → at_most v c = true.
Proof.
  revert s. induction l as [|o l IH]; intros s; simpl.
  - split; [|by intros [? _]]. intros. split; [done|]. intros o v Ho. by apply elem_of_nil in Ho.
  - unfold replay in *. rewrite IH. unfold apply_op at 1. rewrite reg_effects. split.
    + intros [[H1 H2] H3]. split; [done|]. intros o' v [->|Ho]%elem_of_cons; [by apply H2|by apply H3].
    + intros [H1 H2]. split; [split; [done|]|].
      * intros v. apply H2. by left.
      * intros o' v Ho. apply H2. by right.
Qed.

Lemma reg_replay_either l s r :
  reg (replay apply_op s l) r = reg s r ∨ ∃ o, o ∈ l ∧ Raise r (reg (replay apply_op s l) r) ∈ effects o.
Proof.
  revert s. induction l as [|o l IH]; intros s; simpl; [by left|].
  unfold replay in *. destruct (IH (apply_op s o)) as [H|(o' & Ho' & H)].
  - rewrite H. destruct (reg_effects_either (op_dot o) (saw o) (effects o) s r) as [H'|H'].
    + by left.
    + right. exists o. split; [by left|done].
  - right. exists o'. split; [by right|done].
Qed.

Lemma ops_commute o1 o2 :
  (∀ k, op_puts o1 k → ¬ op_takes o2 k (op_dot o1)) → (∀ k, op_puts o2 k → ¬ op_takes o1 k (op_dot o2)) → commute apply o1 o2.
Proof.
  intros H12 H21 s. unfold apply. simpl. f_equal.
  - by rewrite !(assoc_L (∪)), (comm_L (∪) {[op_dot o2]}).
  - unfold apply_op. apply foldl_swap. intros e1 e2 t He1 He2. apply effects_commute.
    + intros k -> Ht. apply (H12 k He1). by exists e2.
    + intros k -> Ht. apply (H21 k He2). by exists e1.
Qed.

Section execution.
  Context (E : mailbox_execution).
  Local Notation history := (history _ _ _ _ E).
  Local Notation hb := (happened_before history).

  Lemma applied_delivered p d : d ∈ applied (state_after empty apply p) ↔ ∃ o, Deliver o ∈ p ∧ op_dot o = d.
  Proof.
    unfold state_after. rewrite applied_replay. simpl. rewrite elem_of_union, elem_of_list_to_set, elem_of_list_fmap. split.
    - intros [(o & -> & Ho)|H]; [|by apply not_elem_of_empty in H]. exists o. by rewrite <- elem_of_deliveries.
    - intros (o & Ho & <-). left. exists o. by rewrite elem_of_deliveries.
  Qed.

  Lemma delivered_numbered i o : Deliver o ∈ history i → (0 < (op_dot o).2)%N.
  Proof. intros [j Hj]%(deliveries_have_causes _ _ _ _ E). apply broadcast_is_valid in Hj as (p & q & _ & Hv). by destruct Hv. Qed.

  (* What the maker of an operation had seen is what had been delivered to it. *)
  Lemma saw_is_past j o i o' : Broadcast o ∈ history j → Deliver o' ∈ history i → saw o (op_dot o') = true → hb o' o.
  Proof.
    intros (p & q & Heq & Hv)%broadcast_is_valid Ho' Hs. apply (deps_exact _ _ Hv) in Hs; [|by eapply delivered_numbered].
    apply applied_delivered in Hs as (o2 & H2 & Hid).
    assert (o2 = o') as ->.
    { apply (delivered_same E j i); [|done|done]. rewrite Heq. apply elem_of_app. by left. }
    by eapply hb_of_delivery.
  Qed.

  Lemma takes_saw j o k d : Broadcast o ∈ history j → op_takes o k d → saw o d = true.
  Proof.
    intros (p & q & Heq & Hv)%broadcast_is_valid (e & He & Ht).
    destruct e as [k'|k'|k' ds|r v]; simpl in Ht; [by destruct Ht as [_ ?]..| |done]. destruct Ht as [-> Hin].
    rewrite (dots_visible _ _ Hv _ _ He) in Hin. unfold state_after in *. rewrite contents_replay in Hin.
    apply cell_put in Hin as (o' & Ho' & <- & _). rewrite elem_of_deliveries in Ho'. apply (deps_exact _ _ Hv).
    - apply (delivered_numbered j). rewrite Heq. apply elem_of_app. by left.
    - apply applied_delivered. by exists o'.
  Qed.

  Lemma takes_not_own j o k : Broadcast o ∈ history j → ¬ op_takes o k (op_dot o).
  Proof. intros Hb Ht. apply (takes_saw _ _ _ _ Hb) in Ht. by rewrite saw_irreflexive in Ht. Qed.

  Lemma concurrent_commute i j o1 o2 :
    Broadcast o1 ∈ history i → Broadcast o2 ∈ history j → concurrent hb o1 o2 → commute apply o1 o2.
  Proof.
    intros H1 H2 [Hn12 Hn21].
    assert (∀ i o, Broadcast o ∈ history i → Deliver o ∈ history i) as Hloc.
    { intros i' o Ho. by apply (local_delivery _ _ _ _ E), before_elem in Ho as [_ ?]. }
    apply ops_commute; intros k _ Ht.
    - apply (takes_saw _ _ _ _ H2) in Ht. apply Hn12. eapply saw_is_past; [done|by apply Hloc in H1|done].
    - apply (takes_saw _ _ _ _ H1) in Ht. apply Hn21. eapply saw_is_past; [done|by apply Hloc in H2|done].
  Qed.

  Lemma mailbox_converges : strong_eventual_consistency _ _ _ _ E.
  Proof. apply commuting_is_enough. intros. by eapply concurrent_commute. Qed.

  (* What is delivered at a node is an orderly list. *)
  Lemma orderly_deliveries i p : p `prefix_of` history i → orderly (deliveries p).
  Proof.
    intros Hp. pose proof (consistent_deliveries E i p Hp) as Hc.
    assert (∀ o, o ∈ deliveries p → ∃ j, Broadcast o ∈ history j) as Hb.
    { intros o Ho%elem_of_deliveries. by eapply delivered_was_broadcast. }
    assert (∀ o, o ∈ deliveries p → Deliver o ∈ history i) as Hdel.
    { intros o Ho%elem_of_deliveries. destruct Hp as [q ->]. apply elem_of_app. by left. }
    unfold orderly, consistent in *. induction Hc as [|o l Hl IH Hf]; constructor.
    - apply IH; intros; [apply Hb|apply Hdel]; by right.
    - rewrite Forall_forall in *. intros o' Ho' [k Ht]. apply (Hf o' Ho').
      destruct (Hb o) as [j Hj]; [by left|]. apply (takes_saw _ _ _ _ Hj) in Ht. eapply saw_is_past; [done|apply Hdel; by right|done].
  Qed.
End execution.

Theorem mailbox_sec : mailbox_sec_statement.
Proof. unfold mailbox_sec_statement. apply mailbox_converges. Qed.
