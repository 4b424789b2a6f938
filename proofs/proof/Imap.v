(* Every operation takes tags out of a folder and puts its own one in. Two operations commute unless one takes out what the other puts in. What is taken
   out was there, so that whoever put it there happened before. *)
From Whimbrel.spec Require Import Imap.
From Whimbrel.proof Require Import Network.

Definition target (o : imap_op) : folder :=
  match o with Create _ f | Delete _ f | Append _ f | Expunge f _ _ | Store f _ _ => f end.

(* What is taken out of tags and files, and what is put into them. *)
Definition out1 (o : imap_op) : gset tag := match o with Delete s _ => s | _ => ∅ end.
Definition out2 (o : imap_op) : gset tag :=
  match o with Delete s _ => s | Expunge _ m _ => {[m]} | Store _ m _ => {[m]} | _ => ∅ end.
Definition in1 (o : imap_op) : gset tag := match o with Create t _ | Expunge _ _ t => {[t]} | _ => ∅ end.
Definition in2 (o : imap_op) : gset tag := match o with Append t _ | Store _ _ t => {[t]} | _ => ∅ end.

Lemma apply_uniform s m :
  imap_apply s m = <[target m.2 := (tags s (target m.2) ∖ out1 m.2 ∪ in1 m.2, files s (target m.2) ∖ out2 m.2 ∪ in2 m.2)]> s.
Proof. destruct m as [t o]. unfold imap_apply. destruct o; simpl; f_equal; f_equal; set_solver. Qed.

Lemma lookup_apply s m f :
  tags (imap_apply s m) f = (if decide (f = target m.2) then tags s f ∖ out1 m.2 ∪ in1 m.2 else tags s f) ∧
  files (imap_apply s m) f = (if decide (f = target m.2) then files s f ∖ out2 m.2 ∪ in2 m.2 else files s f).
Proof.
  rewrite apply_uniform. unfold tags, files. case_decide as Hf.
  - subst. by rewrite lookup_insert.
  - by rewrite lookup_insert_ne.
Qed.

Lemma imap_commute m1 m2 :
  (in1 m1.2 ∪ in2 m1.2) ## (out1 m2.2 ∪ out2 m2.2) → (in1 m2.2 ∪ in2 m2.2) ## (out1 m1.2 ∪ out2 m1.2) →
  commute imap_apply m1 m2.
Proof.
  intros H12 H21 s. rewrite (apply_uniform (imap_apply s m1)), (apply_uniform (imap_apply s m2)).
  destruct (lookup_apply s m1 (target m2.2)) as [-> ->]. destruct (lookup_apply s m2 (target m1.2)) as [-> ->].
  rewrite !(apply_uniform s). destruct (decide (target m2.2 = target m1.2)) as [Heq|Hne].
  - rewrite !decide_True by done. rewrite Heq, !insert_insert. f_equal. f_equal; set_solver.
  - rewrite !decide_False by done. by rewrite insert_commute.
Qed.

Section execution.
  Context (E : imap_execution).
  Local Notation history := (history _ _ _ _ E).
  Local Notation hb := (happened_before history).

  Lemma own_tags i m : Broadcast m ∈ history i → in1 m.2 ∪ in2 m.2 ⊆ {[m.1]}.
  Proof.
    intros (p & q & _ & Hv)%broadcast_is_valid. destruct m as [t o]. clear -Hv. simpl. destruct o; simpl in *.
    - subst. set_solver.
    - clear Hv. set_solver.
    - subst. set_solver.
    - destruct Hv as [-> _]. set_solver.
    - destruct Hv as [-> _]. set_solver.
  Qed.

  (* What is in a folder was put there by an operation of that name. *)
  Lemma contents_delivered i p f t : p `prefix_of` history i →
    t ∈ tags (state_after ∅ imap_apply p) f ∪ files (state_after ∅ imap_apply p) f → ∃ m, m.1 = t ∧ Deliver m ∈ p.
  Proof.
    revert f t. induction p as [|e p IH] using rev_ind; intros f t Hp Hin.
    - assert (tags ∅ f = ∅ ∧ files ∅ f = ∅) as [H1 H2]. { unfold tags, files. by rewrite lookup_empty. }
      unfold state_after, replay in Hin. simpl in Hin. rewrite H1, H2 in Hin. apply elem_of_union in Hin as [Hin|Hin]; by apply not_elem_of_empty in Hin.
    - assert (p `prefix_of` history i) as Hp'. { etrans; [|done]. by apply prefix_app_r. }
      unfold state_after in Hin, IH. rewrite deliveries_app in Hin. unfold replay in *. rewrite foldl_app in Hin.
      destruct e as [m|m]; simpl in Hin.
      + destruct (IH _ _ Hp' Hin) as (m' & ? & ?). exists m'. split; [done|]. apply elem_of_app. by left.
      + destruct (lookup_apply (foldl imap_apply ∅ (deliveries p)) m f) as [H1 H2]. rewrite H1, H2 in Hin.
        destruct (delivered_was_broadcast E _ _ m Hp) as [j Hj]. { apply elem_of_app. right. by left. }
        apply own_tags in Hj.
        assert (t ∈ tags (foldl imap_apply ∅ (deliveries p)) f ∪ files (foldl imap_apply ∅ (deliveries p)) f ∨ t = m.1) as [Ht| ->].
        { clear -Hin Hj. case_decide; set_solver. }
        * destruct (IH _ _ Hp' Ht) as (m' & ? & ?). exists m'. split; [done|]. apply elem_of_app. by left.
        * exists m. split; [done|]. apply elem_of_app. right. by left.
  Qed.

  (* Nobody takes out what a concurrent operation puts in. *)
  Lemma taken_is_past i j m1 m2 :
    Broadcast m1 ∈ history i → Broadcast m2 ∈ history j → ¬ hb m1 m2 → (in1 m1.2 ∪ in2 m1.2) ## (out1 m2.2 ∪ out2 m2.2).
  Proof.
    intros H1 H2 Hn t Hin Hout. apply (own_tags _ _ H1) in Hin as ->%elem_of_singleton.
    apply broadcast_is_valid in H2 as (p & q & Heq & Hv).
    assert (∃ f, m1.1 ∈ tags (state_after ∅ imap_apply p) f ∪ files (state_after ∅ imap_apply p) f) as [f Hf].
    { clear -Hv Hout. destruct m2 as [t [u f|u f|u f|f u v|f u v]]; simpl in *; rewrite elem_of_union in Hout.
      - clear Hv. exfalso. set_solver.
      - rewrite Hv in Hout. exists f. by destruct Hout.
      - clear Hv. exfalso. set_solver.
      - destruct Hv as [_ Hv]. exists f. apply elem_of_union. right. destruct Hout as [Hout|Hout%elem_of_singleton].
        + by apply not_elem_of_empty in Hout.
        + by rewrite Hout.
      - destruct Hv as [_ Hv]. exists f. apply elem_of_union. right. destruct Hout as [Hout|Hout%elem_of_singleton].
        + by apply not_elem_of_empty in Hout.
        + by rewrite Hout. }
    apply (contents_delivered j) in Hf as (m & Hid & Hm); [|rewrite Heq; by apply prefix_app_r].
    destruct (delivered_was_broadcast E j p m) as [k Hk]; [rewrite Heq; by apply prefix_app_r|done|].
    destruct (unique_ids _ _ _ _ E _ _ _ _ Hk H1 Hid) as [_ ->]. apply Hn. by eapply hb_of_delivery.
  Qed.

  Lemma imap_converges : strong_eventual_consistency _ _ _ _ E.
  Proof.
    apply commuting_is_enough. intros i j m1 m2 H1 H2 [Hn1 Hn2]. apply imap_commute; by eapply taken_is_past.
  Qed.
End execution.

Theorem imap_sec : imap_sec_statement.
Proof. unfold imap_sec_statement. apply imap_converges. Qed.
