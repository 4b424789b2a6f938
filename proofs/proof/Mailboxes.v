(* Once a mailbox is gone, that is stable, and the records of all messages that lay in it are dropped, nobody names it any more. *)
From Whimbrel.spec Require Import Collection.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker Join Collection.

(* Who touches the record of a mailbox names the mailbox or makes it. *)
Lemma box_of_claim e (b : box_id) m s epoch uid : e ∈ claim_effects m s epoch uid → about_box e ≠ Some b.
Proof. unfold claim_effects. rewrite !elem_of_cons, elem_of_nil. by intros [->|[->|[->|[]]]]. Qed.

Lemma box_of_set e (b : box_id) m f : e ∈ set_flag m f → about_box e ≠ Some b.
Proof. unfold set_flag. case_bool_decide; rewrite !elem_of_cons, elem_of_nil; [by intros [->|[->|[]]]|by intros [->|[]]]. Qed.

Lemma box_of_clear e (b : box_id) m f : e ∈ clear_flag m f → about_box e ≠ Some b.
Proof. unfold clear_flag. case_bool_decide; rewrite elem_of_cons, elem_of_nil; by intros [->|[]]. Qed.

Lemma box_of_sets (e : effect) (b : box_id) (m : message_id) (fs : list N) : e ∈ mjoin (set_flag m <$> fs) → about_box e ≠ Some b.
Proof. intros (l & He & (f & -> & _)%elem_of_list_fmap)%elem_of_list_join. by eapply box_of_set. Qed.

Lemma box_of_clears (e : effect) (b : box_id) (m : message_id) (fs : list N) : e ∈ mjoin (clear_flag m <$> fs) → about_box e ≠ Some b.
Proof. intros (l & He & (f & -> & _)%elem_of_list_fmap)%elem_of_list_join. by eapply box_of_clear. Qed.

Lemma box_of_removals (e : effect) (b : box_id) (ms : list (message_id * gset dot)) : e ∈ mjoin (removal_effects <$> ms) → about_box e ≠ Some b.
Proof.
  intros (l & He & (r & -> & _)%elem_of_list_fmap)%elem_of_list_join. unfold removal_effects in He. rewrite !elem_of_cons, elem_of_nil in He.
  by destruct He as [->|[->|[]]].
Qed.

Lemma placed_box s (b : box_id) : (nth 2 (place_value s b) 0%N, nth 3 (place_value s b) 0%N) = b.
Proof. by destruct b. Qed.

Lemma touches_box_how o (b : box_id) : touches_box o b → b ∈ named_boxes o ∨ makes_box o b.
Proof.
  intros (e & He & Ha). unfold effects in He. unfold named_boxes, makes_box.
  destruct (op_action o) as [created floor|derived name use|boxes messages|boxes to|name|name dots|b' epoch u flags content|m' placed b' epoch u content
    |b' epoch entries|b' epoch entries|messages set clear rescue|messages|epoch claims|counter epoch|uidvalidity].
  - rewrite !elem_of_cons, elem_of_nil in He. by destruct He as [->|[->|[]]].
  - right. exists derived, name, use. split; [done|]. rewrite !elem_of_cons, elem_of_nil in He. destruct He as [->|[->|[->|[]]]]; simpl in Ha; congruence.
  - left. apply elem_of_app in He as [(r & -> & Hr)%elem_of_list_fmap|He]; [|by apply box_of_removals with (b := b) in He].
    simpl in Ha. injection Ha as <-. by apply elem_of_list_fmap_1.
  - left. apply elem_of_list_join in He as (l & He & (b' & -> & Hb)%elem_of_list_fmap). rewrite !elem_of_cons, elem_of_nil in He.
    destruct He as [->|[->|[]]]; simpl in Ha; by injection Ha as <-.
  - rewrite elem_of_cons, elem_of_nil in He. by destruct He as [->|[]].
  - rewrite elem_of_cons, elem_of_nil in He. by destruct He as [->|[]].
  - left. apply elem_of_list_singleton. rewrite !elem_of_cons, elem_of_app in He.
    destruct He as [->|[->|[->|[->|[He|He]]]]]; [..|by apply box_of_claim with (b := b) in He|by apply box_of_sets with (b := b) in He];
      cbn [about_box key_message register_box] in Ha; rewrite ?placed_box in Ha; congruence.
  - left. apply elem_of_list_singleton. rewrite !elem_of_cons in He.
    destruct He as [->|[->|[->|[->|He]]]]; [..|by apply box_of_claim with (b := b) in He];
      cbn [about_box key_message register_box] in Ha; rewrite ?placed_box in Ha; congruence.
  - left. apply elem_of_list_singleton. rewrite elem_of_cons in He. destruct He as [->|He]; [simpl in Ha; congruence|].
    apply elem_of_list_join in He as (l & He & (n & Hn)%elem_of_list_lookup). rewrite list_lookup_imap in Hn.
    destruct (entries !! n) as [entry|]; [|done]. simpl in Hn. injection Hn as <-. unfold copy_effects in He.
    rewrite !elem_of_cons, elem_of_app in He. destruct He as [->|[->|[He|He]]]; [..|by apply box_of_claim with (b := b) in He|by apply box_of_sets with (b := b) in He];
      cbn [about_box key_message register_box] in Ha; rewrite ?placed_box in Ha; congruence.
  - left. apply elem_of_list_singleton. rewrite elem_of_cons in He. destruct He as [->|He]; [simpl in Ha; congruence|].
    apply elem_of_list_join in He as (l & He & (entry & -> & Hin)%elem_of_list_fmap). unfold move_effects in He.
    rewrite !elem_of_cons, elem_of_app in He. destruct He as [->|[->|[He|He]]]; [..|by apply box_of_claim with (b := b) in He|];
      cbn [about_box key_message register_box] in Ha; rewrite ?placed_box in Ha; try congruence.
    exfalso. destruct entry.2; [|by apply elem_of_nil in He]. by apply box_of_clear with (b := b) in He.
  - exfalso. apply elem_of_list_join in He as (l & He & (m' & -> & Hin)%elem_of_list_fmap). unfold store_effects in He. rewrite !elem_of_app in He.
    destruct He as [He|[He|He]]; [by apply box_of_clears with (b := b) in He|by apply box_of_sets with (b := b) in He|].
    destruct rescue; [|by apply elem_of_nil in He]. apply elem_of_list_singleton in He as ->. done.
  - by apply box_of_removals with (b := b) in He.
  - apply elem_of_list_join in He as (l & He & (c & -> & Hin)%elem_of_list_fmap). by apply box_of_claim with (b := b) in He.
  - rewrite elem_of_cons, elem_of_nil in He. by destruct He as [->|[]].
  - rewrite elem_of_cons, elem_of_nil in He. by destruct He as [->|[]].
Qed.

(* What is left when a record is dropped, and what an operation leaves alone that does not touch it. *)
Lemma cell_drop_box b s k : cell (contents (drop_box b s)) k = if decide (k = KBox b) then ∅ else cell (contents s) k.
Proof.
  unfold cell, drop_box. simpl. case_decide as Hk.
  - rewrite map_filter_lookup_None_2; [done|]. right. intros x _ Hn. by apply Hn.
  - destruct (cells (contents s) !! k) as [x|] eqn:Hx.
    + by rewrite (map_filter_lookup_Some_2 _ _ _ _ Hx).
    + rewrite map_filter_lookup_None_2; [done|]. by left.
Qed.

Lemma reg_drop_box b s r : reg (contents (drop_box b s)) r = if decide (register_box r = Some b) then [] else reg (contents s) r.
Proof.
  unfold reg, drop_box. simpl. case_decide as Hk.
  - rewrite map_filter_lookup_None_2; [done|]. right. intros x _ Hn. by apply Hn.
  - destruct (registers (contents s) !! r) as [x|] eqn:Hx.
    + by rewrite (map_filter_lookup_Some_2 _ _ _ _ Hx).
    + rewrite map_filter_lookup_None_2; [done|]. by left.
Qed.

Lemma box_cell_untouched o s b : ¬ touches_box o b → cell (apply_op s o) (KBox b) = cell s (KBox b).
Proof.
  intros Hn. unfold apply_op. assert (∀ e, e ∈ effects o → about_box e ≠ Some b) as Hall by (intros e He Ha; apply Hn; by exists e).
  revert s Hall. clear Hn. generalize (effects o). intros es. induction es as [|e es IH]; intros s Hall; [done|]. simpl.
  rewrite IH by (intros; apply Hall; by right). specialize (Hall e ltac:(by left)).
  destruct e as [k'|k'|k' ds|r v]; simpl in *; rewrite ?cell_set_cell; try done; (case_decide; [subst; simpl in Hall; congruence|done]).
Qed.

Lemma box_reg_untouched o s r b : register_box r = Some b → ¬ touches_box o b → reg (apply_op s o) r = reg s r.
Proof.
  intros Hr Hn. unfold apply_op. destruct (reg_effects_either (op_dot o) (saw o) (effects o) s r) as [H|H]; [done|]. destruct Hn.
  eexists. split; [exact H|]. by destruct r.
Qed.

Lemma placed_untouched o s m b : ¬ touches_box o b → placed_in (apply_op s o) m = b → placed_in s m = b.
Proof.
  intros Hn. unfold placed_in, apply_op. destruct (reg_effects_either (op_dot o) (saw o) (effects o) s (RPlace m)) as [H|H]; [by rewrite H|].
  intros Hb. destruct Hn. eexists. split; [exact H|]. simpl. by rewrite Hb.
Qed.

Section execution.
  Context (E : mailbox_execution).
  Local Notation history := (history _ _ _ _ E).
  Local Notation hb := (happened_before history).
  Local Notation state p := (contents (state_after empty apply p)).

  Lemma box_takes_touches o b d : op_takes o (KBox b) d → touches_box o b.
  Proof. intros (e & He & Ht). exists e. split; [done|]. destruct e; simpl in *; [by destruct Ht as [-> _]..|done]. Qed.

  (* Two histories with the same operations on a mailbox agree on it. *)
  Lemma same_box i j p q b : p `prefix_of` history i → q `prefix_of` history j →
    (∀ o, touches_box o b → o ∈ deliveries p ↔ o ∈ deliveries q) → cell (state p) (KBox b) = cell (state q) (KBox b).
  Proof.
    intros Hp Hq Hsame.
    assert (∀ i' p', p' `prefix_of` history i' → orderly (deliveries p') ∧ ∀ o k, o ∈ deliveries p' → ¬ op_takes o k (op_dot o)) as Hone.
    { intros i' p' Hp'. split; [by eapply orderly_deliveries|]. intros o k Ho. eapply not_own. by eapply prefix_delivered. }
    apply set_eq. intros d. rewrite !contents_after.
    rewrite !cell_replay by first [apply (Hone i p Hp)|apply (Hone j q Hq)|intros; by apply (Hone i p Hp)|intros; by apply (Hone j q Hq)].
    assert (∀ o, op_puts o (KBox b) → touches_box o b) as Hputs by (intros o Hin; by exists (Supersede (KBox b))).
    assert (∀ o, touches_box o b → o ∈ deliveries p → o ∈ deliveries q) as Hpq by (intros o Ho; by apply Hsame).
    assert (∀ o, touches_box o b → o ∈ deliveries q → o ∈ deliveries p) as Hqp by (intros o Ho; by apply Hsame).
    split; intros [(o & Ho & <- & Hput) Hkeep]; split.
    - exists o. split; [apply Hpq; [by apply Hputs|done]|done].
    - intros r Hr Ht. apply (Hkeep r); [|done]. apply Hqp; [by eapply box_takes_touches|done].
    - exists o. split; [apply Hqp; [by apply Hputs|done]|done].
    - intros r Hr Ht. apply (Hkeep r); [|done]. apply Hpq; [by eapply box_takes_touches|done].
  Qed.

  Lemma place_above p q m : (∀ x, x ∈ deliveries p → x ∈ deliveries q) → at_most (reg (state p) (RPlace m)) (reg (state q) (RPlace m)) = true.
  Proof.
    intros Hsub. rewrite !contents_after. apply reg_replay. split; [done|]. intros o v Ho Hv.
    pose proof (proj1 (reg_replay (deliveries q) (contents empty) (RPlace m) _) (at_most_refl _)) as [_ H]. eapply H; [by apply Hsub|done].
  Qed.

  (* A message that lies in a mailbox where all that put something into it is known elsewhere, and more is known here, lies in it there. *)
  Lemma placed_same p q m b : (∀ x, x ∈ deliveries q → x ∈ deliveries p) → (∀ x, x ∈ deliveries p → touches_box x b → x ∈ deliveries q) →
    b ≠ INBOX → placed_in (state p) m = b → reg (state q) (RPlace m) = reg (state p) (RPlace m) ∧ reg (state p) (RPlace m) ≠ [].
  Proof.
    intros Hqp Hpq Hb Hm. unfold placed_in in Hm.
    assert (reg (state p) (RPlace m) ≠ []) as Hne by (intros Hnil; rewrite Hnil in Hm; by subst b).
    split; [|done]. apply at_most_antisym; [by apply place_above|].
    destruct (reg_replay_either (deliveries p) (contents empty) (RPlace m)) as [H|(o & Ho & Hv)]; rewrite <- contents_after in *; [done|].
    assert (o ∈ deliveries q) as Hoq by (apply Hpq; [done|]; eexists; split; [exact Hv|]; simpl; by rewrite Hm).
    rewrite (contents_after q). pose proof (proj1 (reg_replay (deliveries q) (contents empty) (RPlace m) _) (at_most_refl _)) as [_ H]. by eapply H.
  Qed.

  Section drop.
    Context (i : nat) (since p : list (event op)) (b : box_id) (Hp : p `prefix_of` history i) (Hdrop : may_drop_box E since p b).

    Lemma box_since_prefix : since `prefix_of` history i.
    Proof. etrans; [|exact Hp]. by apply (box_earlier _ _ _ _ Hdrop). Qed.

    Lemma not_inbox : b ≠ INBOX.
    Proof. intros ->. apply (box_hidden _ _ _ _ Hdrop). by left. Qed.

    Lemma since_no_dots : cell (state since) (KBox b) = ∅.
    Proof. destruct (decide (cell (state since) (KBox b) = ∅)) as [|Hne]; [done|]. destruct (box_hidden _ _ _ _ Hdrop). right. by left. Qed.

    Lemma back_to_since x : x ∈ deliveries p → touches_box x b → x ∈ deliveries since.
    Proof. intros Hx Ht. by destruct (box_not_named _ _ _ _ Hdrop x Hx). Qed.

    Lemma since_within x : x ∈ deliveries since → x ∈ deliveries p.
    Proof. intros Hx. destruct (box_earlier _ _ _ _ Hdrop) as [r ->]. rewrite deliveries_app. apply elem_of_app. by left. Qed.

    Lemma still_no_dots : cell (state p) (KBox b) = ∅.
    Proof.
      rewrite (same_box i i p since b Hp box_since_prefix); [apply since_no_dots|]. intros x Ht. split; [intros; by apply back_to_since|apply since_within].
    Qed.

    (* What lies in it lay in it then. *)
    Lemma lay_in_it m : placed_in (state p) m = b → placed_in (state since) m = b ∧ reg (state p) (RPlace m) ≠ [].
    Proof.
      intros Hm. destruct (placed_same p since m b since_within back_to_since not_inbox Hm) as [Hs Hne]. split; [|done]. unfold placed_in. by rewrite Hs.
    Qed.

    (* Of all messages that lay in it nobody who may still broadcast something sees any alive. *)
    Context (Hempty : ∀ m, placed_in (state since) m = b →
      ∀ j p' o q', history j = p' ++ Broadcast o :: q' → Deliver o ∉ p → ¬ lives (state p') m).

    Lemma maker_saw_gone j p' o q' : history j = p' ++ Broadcast o :: q' →
      (∀ x, x ∈ deliveries p' → touches_box x b → Deliver x ∈ p) → touches_box o b → Deliver o ∈ p.
    Proof.
      intros Heq Hbefore Htouch. destruct (touches_box_how _ _ Htouch) as [Hnamed|Hmakes].
      - destruct (decide (o ∈ deliveries p)) as [Hin|Hin]; [by apply elem_of_deliveries|]. exfalso. rewrite elem_of_deliveries in Hin.
        destruct (box_stable _ _ _ _ Hdrop j o) as [?|(q & Hq & Hseen & Hheard)].
        { rewrite Heq. apply elem_of_app. right. by left. }
        { done. }
        assert (p' ++ [Broadcast o] `prefix_of` history j) as Hp' by (rewrite Heq; exists q'; by rewrite <- app_assoc).
        destruct (prefix_weak_total _ _ _ Hp' Hq) as [[r ->]|Hpre].
        { apply Hin, Hheard, elem_of_app. left. apply elem_of_app. right. by left. }
        apply prefix_snoc in Hpre as [Hpre| ->].
        2: { apply Hin, Hheard, elem_of_app. right. by left. }
        assert (p' `prefix_of` history j) as Hp'' by (rewrite Heq; by eexists).
        assert (∀ x, x ∈ deliveries since → x ∈ deliveries p') as Hsub.
        { intros x Hx. apply elem_of_deliveries, Hseen in Hx. apply elem_of_deliveries. destruct Hpre as [r ->]. apply elem_of_app. by left. }
        assert (∀ x, x ∈ deliveries p' → touches_box x b → x ∈ deliveries since) as Hback.
        { intros x Hx Ht. assert (x ∈ deliveries p) as Hxp by by apply elem_of_deliveries, Hbefore. by destruct (box_not_named _ _ _ _ Hdrop x Hxp). }
        destruct (named_exists _ _ (valid_broadcasts _ _ _ _ E _ _ _ _ Heq) b Hnamed) as [?|[Hc|(m & Hl & Hm)]].
        + by apply not_inbox.
        + apply Hc. rewrite (same_box j i p' since b Hp'' box_since_prefix); [apply since_no_dots|]. intros x Ht. split; [|by auto]. intros. by apply Hback.
        + destruct (placed_same p' since m b Hsub Hback not_inbox Hm) as [Hs _].
          apply (Hempty m) with (2 := Heq) in Hl; [done| |done]. unfold placed_in. rewrite Hs. exact Hm.
      - apply (box_finished _ _ _ _ Hdrop j o); [|done]. rewrite Heq. apply elem_of_app. right. by left.
    Qed.

    Lemma nobody_touches_box j p' : p' `prefix_of` history j → ∀ x, x ∈ deliveries p' → touches_box x b → Deliver x ∈ p.
    Proof.
      induction p' as [|e p' IH] using rev_ind; intros Hp' x Hx Ht; [by apply elem_of_nil in Hx|].
      assert (p' `prefix_of` history j) as Hpre by (etrans; [|exact Hp']; by eexists). specialize (IH Hpre).
      rewrite deliveries_app, elem_of_app in Hx. destruct Hx as [Hx|Hx]; [by apply IH|].
      destruct e as [o|o]; simpl in Hx; [by apply elem_of_nil in Hx|]. apply elem_of_list_singleton in Hx as ->.
      destruct Hp' as [r Hr]. rewrite <- app_assoc in Hr. simpl in Hr.
      assert (Deliver o ∈ history j) as Hdel by (rewrite Hr; apply elem_of_app; right; by left).
      destruct (deliveries_have_causes _ _ _ _ E _ _ Hdel) as [j' (p'' & q'' & Heq)%elem_of_list_split].
      eapply maker_saw_gone; [done| |done]. intros y Hy. apply IH. apply elem_of_deliveries.
      eapply (delivered_before_piece E j p' o r y Hr). eapply hb_of_delivery; [done|]. by apply elem_of_deliveries.
    Qed.

  End drop.
End execution.
