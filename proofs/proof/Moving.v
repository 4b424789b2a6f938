(* What the first node reports it shows; what it shows below a UIDNEXT it showed before it told that. *)
From Whimbrel.spec Require Import Moving.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Join Uids.

Lemma before_or_after {A} (l : list A) x y : x ∈ l → y ∈ l → x ≠ y → before l x y ∨ before l y x.
Proof.
  intros Hx Hy Hne. apply elem_of_list_split in Hx as (p & q & ->). apply elem_of_app in Hy as [Hy|Hy].
  - right. apply elem_of_list_split in Hy as (a & b & ->). exists a, b, q. by rewrite <- app_assoc.
  - apply elem_of_cons in Hy as [->|Hy]; [done|]. left. apply elem_of_list_split in Hy as (a & b & ->). by exists p, a, b.
Qed.

Section moving.
  Context {r : rules} {slot : N → N} {readers : nat → Prop} (E : uid_execution r slot).
  Context (Hstay : marks_stay r = true) (Hhide : late_is_hidden r = true).
  Local Notation history := (history _ _ _ _ E).
  Local Notation state p := (contents (state_after empty apply p)).

  Lemma serves_goes_on i q d t p d' t' : serves readers E i q d t → goes_on readers E i q d p d' t' → serves readers E i p d' (t ++ t').
  Proof.
    intros Hs. induction 1 as [|p' d' t' e _ IH Hp|p' d' t' a d2 _ IH Hmay Ha]; [by rewrite app_nil_r|by apply serves_event|].
    rewrite app_assoc. by eapply serves_act.
  Qed.

  (* What is shown was shown under that name. *)
  Lemma serves_shown i p d t : serves readers E i p d t → ∀ m n u, shown d !! m = Some (n, u) → Show m n (era d) u ∈ t.
  Proof.
    induction 1 as [|p d t e _ IH _|p d t a d' _ IH _ Ha]; [done|done|]. intros m n u.
    assert (∀ m n u, shown d !! m = Some (n, u) → Show m n (era d) u ∈ t ++ [a]) as IH' by (intros; apply elem_of_app; left; by apply IH).
    destruct Ha as [m' n' k u' ? ?|m'|? ? ? ? ? ? ?|? ? ? ?|? ? ?|? ?|n' k ?|? ? ?|epoch ?]; simpl in *; try apply IH'; try done.
    - destruct (decide (m' = m)) as [->|Hne].
      + rewrite lookup_insert. intros [= <- <-]. apply elem_of_app. right. by left.
      + rewrite lookup_insert_ne by done. apply IH'.
    - intros [_ Hin]%lookup_delete_Some. by apply IH'.
    - intros [Hin _]%map_filter_lookup_Some. by apply IH'.
  Qed.

  (* Both know the message by one claim. *)
  Lemma same_uid q p m o u : epoch_now (state q) = epoch_now (state p) → placed_at (state q) m = placed_at (state p) m →
    (∀ o epoch u, Deliver o ∈ q → (m, placed_at (state p) m, epoch, u) ∈ claims o → Deliver o ∈ p) →
    Deliver o ∈ q → (m, placed_at (state p) m, epoch_now (state p), u) ∈ claims o → uid (state p) m = u → u ≠ 0%N → uid (state q) m = u.
  Proof.
    intros Hepoch Hplaced Hall Ho Hclaim Hu Hne. set (x := RClaim m (placed_at (state p) m)).
    assert (reg (state p) x = [epoch_now (state p); u]) as Hp.
    { unfold uid in Hu. fold x in Hu. case_bool_decide as He; [|done].
      pose proof (reg_replay_either (deliveries p) (contents empty) x) as Hor. rewrite <- contents_after in Hor. destruct Hor as [H|(o' & _ & H)].
      - rewrite H in Hu. by subst u.
      - apply raise_is_claim in H as (e & u' & Hv & _). rewrite Hv in Hu, He. simpl in Hu, He. by rewrite Hv, Hu, He. }
    assert (reg (state q) x = reg (state p) x) as Hq.
    { apply at_most_antisym.
      - rewrite (contents_after q). apply reg_replay. split; [unfold x; by vm_compute|]. intros o' v Ho'%elem_of_deliveries Hv.
        pose proof Hv as (e & u' & -> & Hc)%raise_is_claim. pose proof (Hall _ _ _ Ho' Hc) as Hdel.
        rewrite contents_after. pose proof (reg_replay (deliveries p) (contents empty) x (reg (replay apply_op (contents empty) (deliveries p)) x)) as [H _].
        destruct H as [_ H]; [apply at_most_refl|]. eapply H; [by apply elem_of_deliveries|done].
      - rewrite Hp, (contents_after q). pose proof (reg_replay (deliveries q) (contents empty) x (reg (replay apply_op (contents empty) (deliveries q)) x)) as [H _].
        destruct H as [_ H]; [apply at_most_refl|]. eapply H; [by apply elem_of_deliveries|]. by apply claim_raises. }
    unfold uid. rewrite Hplaced. fold x. rewrite Hq, Hp. simpl. unfold epoch_now in Hepoch. rewrite Hepoch. by rewrite bool_decide_true.
  Qed.

  Lemma later_above i p d p' d' t' name next : (next ≤ mark d name)%N → goes_on readers E i p d p' d' t' →
    (era d ≤ era d')%N ∧ (era d' = era d → (next ≤ mark d' name)%N) ∧ ∀ m u, Show m name (era d) u ∈ t' → (next ≤ u)%N.
  Proof.
    intros Hmark. induction 1 as [|p' d' t' e _ IH _|p' d' t' a d2 _ (Hera & IHm & IHs) _ Ha]; [|done|].
    - split; [done|]. split; [done|]. by intros m u ?%elem_of_nil.
    - pose proof (era_grows _ _ _ Ha) as Hgrow. split; [lia|]. split.
      + intros He. assert (era d' = era d) as He' by lia. pose proof (mark_grows _ _ _ name Hstay Ha ltac:(lia)). specialize (IHm He'). lia.
      + intros m u [Hin|Hin]%elem_of_app; [by eapply IHs|]. apply elem_of_list_singleton in Hin. subst a. inversion Ha; subst.
        match goal with H : era d = era d' |- _ => specialize (IHm (eq_sym H)) | H : era d' = era d |- _ => specialize (IHm H) end.
        unfold mark in IHm. match goal with H : marks d' !! name = Some _ |- _ => rewrite H in IHm end.
        match goal with H : late_is_hidden r = true → _ |- _ => specialize (H Hhide) end. lia.
  Qed.
End moving.

Theorem uids_U2_moving : U2_moving_statement.
Proof.
  intros r slot readers E Hstay Hhide i j q dq tq pi di ti p d t name next Hsq [Heraq Hreport] Hgo Htell Hera Hsp [Hraised Herap Hpresent Hcovered].
  split.
  - intros m u Hshown Hthere. destruct (decide (next ≤ u)%N) as [|Hlt]; [by left|]. right. apply N.nle_gt in Hlt.
    destruct (Hpresent m u Hshown Hlt) as (Hlives & Hname & Hu & Hne). destruct (Hcovered m u eq_refl Hshown Hlt) as (o & Ho & Hclaim).
    destruct Hthere as (Hlq & Hplaced & Hnameq & Hall); [by do 4 eexists|].
    assert (uid (contents (state_after empty apply q)) m = u) as Huq.
    { rewrite Herap in Hclaim. eapply (same_uid q p m o u); [|done..]. congruence. }
    pose proof (Hreport eq_refl m Hlq) as Hs. rewrite Huq, Hnameq, Hname in Hs. pose proof (serves_shown E _ _ _ _ Hsq _ _ _ Hs) as Hshow.
    rewrite <- Hera in Hshow. assert (Show m name (era d) u ∈ tq ++ ti) as Hin by (apply elem_of_app; by left).
    destruct (before_or_after _ _ _ Hin Htell) as [Hb|Hb]; [done|done|].
    pose proof (serves_honest E _ _ _ _ Hstay Hhide (serves_goes_on E _ _ _ _ _ _ _ Hsq Hgo)) as Hh. apply (told_kept _ _ Hh) in Hb. lia.
  - intros p' d' t' m u Hgo' Hin. destruct (later_above E Hstay Hhide _ _ _ _ _ _ name next (Hraised eq_refl) Hgo') as (_ & _ & H). by eapply H.
Qed.
