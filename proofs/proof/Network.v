(* Histories, what happened before what, and the law that commuting suffices. *)
From Whimbrel.spec Require Import Network.
From Whimbrel.proof Require Import Convergence.

Lemma elem_of_deliveries {M} (h : list (event M)) m : m ∈ deliveries h ↔ Deliver m ∈ h.
Proof.
  induction h as [|[a|a] h IH]; simpl.
  - by rewrite !elem_of_nil.
  - rewrite IH, elem_of_cons. naive_solver.
  - rewrite !elem_of_cons, IH. naive_solver.
Qed.

Lemma deliveries_app {M} (h k : list (event M)) : deliveries (h ++ k) = deliveries h ++ deliveries k.
Proof. induction h as [|[] h IH]; simpl; by rewrite ?IH. Qed.

Lemma NoDup_deliveries {M} (h : list (event M)) : NoDup h → NoDup (deliveries h).
Proof.
  induction h as [|[] h IH]; simpl; [by constructor|..]; intros [??]%NoDup_cons; [by auto|].
  constructor; [by rewrite elem_of_deliveries|by auto].
Qed.

Lemma before_elem {A} (l : list A) x y : before l x y → x ∈ l ∧ y ∈ l.
Proof. intros (p & q & r & ->). rewrite !elem_of_app, !elem_of_cons, !elem_of_app, !elem_of_cons. naive_solver. Qed.

(* In a list without repetition the piece before an element is what is before it. *)
Lemma before_split {A} (l p r : list A) x y : NoDup l → l = p ++ y :: r → before l x y → x ∈ p.
Proof.
  intros Hnd -> (p' & q' & r' & Heq).
  replace (p' ++ x :: q' ++ y :: r') with ((p' ++ x :: q') ++ y :: r') in Heq by by rewrite <- app_assoc.
  assert (p = p' ++ x :: q') as ->.
  { apply NoDup_app in Hnd as (_ & Hd & [Hnr _]%NoDup_cons).
    revert Heq Hd. generalize (p' ++ x :: q'). induction p as [|a p IH]; intros [|b k] Heq Hd; simplify_eq/=.
    - done.
    - exfalso. apply Hnr. apply elem_of_app. right. by left.
    - exfalso. eapply Hd; by left.
    - f_equal. apply IH; [done|]. intros. apply Hd. by right. }
  apply elem_of_app. right. by left.
Qed.

Section proof.
  Context {I M S : Type} {ident : M → I} {init : S} {apply : S → M → S} {valid : S → M → Prop}.
  Context (E : execution ident init apply valid).
  Local Notation history := (history _ _ _ _ E).
  Local Notation hb := (happened_before history).

  Lemma delivered_before_piece i p m q m1 :
    history i = p ++ Deliver m :: q → hb m1 m → Deliver m1 ∈ p.
  Proof.
    intros Heq Hhb. eapply before_split; [apply (histories_distinct _ _ _ _ E i)|done|].
    apply (causal_delivery _ _ _ _ E); [|done]. rewrite Heq. apply elem_of_app. right. by left.
  Qed.

  (* What was broadcast or delivered before a broadcast is in the past of it, and nobody delivers it later. *)
  Lemma hb_of_delivery i p m q m1 : history i = p ++ Broadcast m :: q → Deliver m1 ∈ p → hb m1 m.
  Proof.
    intros Heq (p1 & p2 & ->)%elem_of_list_split. apply hb_deliver with i. exists p1, p2, q. rewrite Heq. by rewrite <- app_assoc.
  Qed.

  Lemma hb_irreflexive i m : Deliver m ∈ history i → ¬ hb m m.
  Proof.
    intros Hin Hhb. pose proof (causal_delivery _ _ _ _ E _ _ _ Hin Hhb) as (p & q & r & Heq).
    pose proof (histories_distinct _ _ _ _ E i) as Hnd. rewrite Heq in Hnd.
    apply NoDup_app in Hnd as (_ & _ & [Hn _]%NoDup_cons). apply Hn. apply elem_of_app. right. by left.
  Qed.

  Lemma consistent_deliveries i p : p `prefix_of` history i → consistent hb (deliveries p).
  Proof.
    intros [q Hq]. revert q Hq. induction p as [|e p IH] using rev_ind; intros q Hq; simpl; [constructor|].
    rewrite deliveries_app. apply consistent_app. rewrite <- app_assoc in Hq. split; [by eapply IH|].
    destruct e as [m|m]; simpl.
    - split; [constructor|]. intros x y _ Hy. by apply elem_of_nil in Hy.
    - split; [repeat constructor|]. intros x y Hx Hy Hhb. apply elem_of_list_singleton in Hy as ->.
      apply elem_of_deliveries in Hx. apply elem_of_list_split in Hx as (p1 & p2 & ->).
      rewrite <- app_assoc in Hq. simpl in Hq. pose proof (delivered_before_piece _ _ _ _ _ Hq Hhb) as Hin.
      pose proof (histories_distinct _ _ _ _ E i) as Hnd. rewrite Hq in Hnd.
      apply NoDup_app in Hnd as (_ & Hd & _). apply (Hd _ Hin). right. apply elem_of_app. right. by left.
  Qed.

  Lemma delivered_was_broadcast i p m : p `prefix_of` history i → Deliver m ∈ p → ∃ j, Broadcast m ∈ history j.
  Proof.
    intros [q Hq] Hin. apply (deliveries_have_causes _ _ _ _ E i). rewrite Hq. apply elem_of_app. by left.
  Qed.

  Lemma broadcast_is_valid j m : Broadcast m ∈ history j →
    ∃ p q, history j = p ++ Broadcast m :: q ∧ valid (state_after init apply p) m.
  Proof.
    intros (p & q & Heq)%elem_of_list_split. exists p, q. split; [done|]. by eapply valid_broadcasts.
  Qed.

  Lemma delivered_same i j m1 m2 :
    Deliver m1 ∈ history i → Deliver m2 ∈ history j → ident m1 = ident m2 → m1 = m2.
  Proof.
    intros [i' H1]%(deliveries_have_causes _ _ _ _ E) [j' H2]%(deliveries_have_causes _ _ _ _ E) Hid.
    by destruct (unique_ids _ _ _ _ E _ _ _ _ H1 H2 Hid).
  Qed.

  Lemma commuting_is_enough :
    (∀ i j m1 m2, Broadcast m1 ∈ history i → Broadcast m2 ∈ history j → concurrent hb m1 m2 → commute apply m1 m2) →
    strong_eventual_consistency _ _ _ _ E.
  Proof.
    intros Hc i j p q Hp Hq Hsame. unfold state_after. apply (converges hb).
    - apply NoDup_deliveries. destruct Hp as [r Hr]. pose proof (histories_distinct _ _ _ _ E i) as Hnd. rewrite Hr in Hnd. by apply NoDup_app in Hnd as [? _].
    - apply NoDup_deliveries. destruct Hq as [r Hr]. pose proof (histories_distinct _ _ _ _ E j) as Hnd. rewrite Hr in Hnd. by apply NoDup_app in Hnd as [? _].
    - intros m. by rewrite !elem_of_deliveries.
    - by eapply consistent_deliveries.
    - by eapply consistent_deliveries.
    - intros x y Hx Hy Hconc. rewrite elem_of_deliveries in Hx, Hy.
      destruct (delivered_was_broadcast _ _ _ Hp Hx) as [jx ?]. destruct (delivered_was_broadcast _ _ _ Hp Hy) as [jy ?]. by eapply Hc.
  Qed.
End proof.

Theorem commuting_suffices {I M S} (ident : M → I) (init : S) apply valid :
  commuting_suffices_statement ident init apply valid.
Proof. unfold commuting_suffices_statement. intros E. apply commuting_is_enough. Qed.
