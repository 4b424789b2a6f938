(* Takes the last of one order out of the other: what follows it there is concurrent with it, so that it can be moved to the end. *)
From Whimbrel.spec Require Import Convergence.

Section proof.
  Context {O S : Type} (hb : O → O → Prop) (apply : S → O → S).
  Local Notation consistent := (consistent hb).
  Local Notation replay := (replay apply).

  Lemma consistent_app l k :
    consistent (l ++ k) ↔ consistent l ∧ consistent k ∧ ∀ x y, x ∈ l → y ∈ k → ¬ hb y x.
  Proof.
    unfold consistent. induction l as [|a l IH]; simpl.
    - split; [|naive_solver]. intros. split; [constructor|]. split; [done|]. intros ?? Hin. by apply elem_of_nil in Hin.
    - split.
      + intros H. inversion H as [|? ? Hs Hf]; subst. apply IH in Hs as (H1 & H2 & H3).
        rewrite Forall_app in Hf. destruct Hf as [Hf1 Hf2]. split; [by constructor|]. split; [done|].
        intros x y [->|Hx]%elem_of_cons Hy; [|by eauto]. rewrite Forall_forall in Hf2. eauto.
      + intros (H1 & H2 & H3). inversion H1 as [|? ? Hs Hf]; subst. constructor.
        * apply IH. split; [done|]. split; [done|]. intros. apply H3; [|done]. by right.
        * rewrite Forall_app. split; [done|]. rewrite Forall_forall. intros y Hy. apply H3; [by left|done].
  Qed.

  (* One operation passes a whole list with which it commutes. *)
  Lemma replay_pass x q s : (∀ y, y ∈ q → commute apply x y) → replay (apply s x) q = apply (replay s q) x.
  Proof.
    revert s. induction q as [|y q IH]; simpl; intros s Hc; [done|].
    rewrite (Hc y); [|by left]. apply IH. intros. apply Hc. by right.
  Qed.

  Lemma converges xs ys :
    NoDup xs → NoDup ys → (∀ x, x ∈ xs ↔ x ∈ ys) → consistent xs → consistent ys →
    (∀ x y, x ∈ xs → y ∈ xs → concurrent hb x y → commute apply x y) →
    ∀ s, replay s xs = replay s ys.
  Proof.
    revert ys. induction xs as [|x xs IH] using rev_ind; intros ys Hnx Hny Hsame Hcx Hcy Hcomm s.
    - destruct ys as [|y ys]; [done|]. exfalso. apply (not_elem_of_nil y). apply Hsame. by left.
    - assert (x ∈ ys) as Hx. { apply Hsame. apply elem_of_app. right. by left. }
      apply elem_of_list_split in Hx as (p & q & ->).
      apply NoDup_app in Hnx as (Hnx & Hxx & _).
      assert (x ∉ xs) as Hnot. { intros Hin. apply (Hxx x Hin). by left. }
      apply NoDup_app in Hny as (Hnp & Hpq & Hnq). apply NoDup_cons in Hnq as [Hxq Hnq].
      assert (x ∉ p) as Hxp. { intros Hin. apply (Hpq x Hin). by left. }
      assert (∀ y, y ∈ p ++ q ↔ y ∈ xs) as Hsame'.
      { intros y. specialize (Hsame y). rewrite !elem_of_app, ?elem_of_cons in Hsame.
        rewrite elem_of_app. split.
        - intros Hy. assert (y ≠ x) as Hne by (intros ->; naive_solver).
          destruct (proj2 Hsame) as [?|[?|Hn]]; [naive_solver|done|done|by apply elem_of_nil in Hn].
        - intros Hy. assert (y ≠ x) as Hne by (intros ->; naive_solver).
          destruct (proj1 Hsame) as [?|[?|?]]; naive_solver. }
      apply consistent_app in Hcx as (Hcx & _ & Hlast).
      apply consistent_app in Hcy as (Hcp & Hcxq & Hpxq).
      inversion Hcxq as [|? ? Hcq Hafter]; subst. rewrite Forall_forall in Hafter.
      assert (replay s (p ++ x :: q) = apply (replay s (p ++ q)) x) as ->.
      { unfold replay. rewrite !foldl_app. simpl. apply replay_pass.
        intros y Hy. assert (y ∈ xs) as Hyx. { apply Hsame'. apply elem_of_app. by right. }
        apply Hcomm.
        - apply elem_of_app. right. by left.
        - apply elem_of_app. by left.
        - split.
          + apply Hlast; [done|by left].
          + by apply Hafter. }
      unfold replay at 1. rewrite foldl_app. simpl. f_equal. apply IH; try done.
      + apply NoDup_app. split; [done|]. split; [|done]. intros y Hy Hyq. apply (Hpq y Hy). by right.
      + apply consistent_app. split; [done|]. split; [done|]. intros. apply Hpxq; [done|]. by right.
      + intros. apply Hcomm; try done; apply elem_of_app; by left.
  Qed.
End proof.

Theorem convergence : convergence_statement.
Proof. unfold convergence_statement. intros. by eapply converges. Qed.
