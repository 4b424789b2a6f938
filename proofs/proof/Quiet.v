(* What arrives after the cut and is above the counter of the cut is not below a mark: marks then rise only to what was heard. *)
From Whimbrel.spec Require Import Quiet.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Conflicts Join Collection Uids.

(* An operation that claims changes nothing else. *)
Definition claim_register (r : register) : bool :=
  match r with RClaim _ _ | RCounter _ | RClaimed _ _ => true | _ => false end.

Lemma claim_op_effects o epoch cs e : op_action o = AClaim epoch cs → e ∈ effects o →
  cell_of e = None ∧ ∀ r v, e = Raise r v → claim_register r = true.
Proof.
  intros Ho He. unfold effects in He. rewrite Ho in He. apply elem_of_list_join in He as (l & He & (c & -> & _)%elem_of_list_fmap).
  unfold claim_effects in He. rewrite !elem_of_cons, elem_of_nil in He. destruct He as [->|[->|[->|[]]]]; (split; [done|]); by intros r v [= <- <-].
Qed.

Lemma run_effects_kept own saw es s :
  (∀ e, e ∈ es → cell_of e = None ∧ ∀ r v, e = Raise r v → claim_register r = true) →
  (∀ k, cell (foldl (run_effect own saw) s es) k = cell s k) ∧
  (∀ r, claim_register r = false → reg (foldl (run_effect own saw) s es) r = reg s r).
Proof.
  revert s. induction es as [|e es IH]; intros s He; [done|]. simpl.
  destruct (IH (run_effect own saw s e)) as [Hc Hr]; [intros e' ?; apply He; by right|]. destruct (He e) as [Hn Hclaim]; [by left|].
  split; [intros k; rewrite Hc|intros x Hx; rewrite Hr by done]; destruct e as [k'|k'|k' ds|r' v]; try done.
  unfold run_effect, reg. simpl. specialize (Hclaim r' v eq_refl). rewrite lookup_insert_ne; [done|]. intros ->. congruence.
Qed.

Lemma claim_op_kept s o epoch cs : op_action o = AClaim epoch cs →
  (∀ k, cell (apply_op s o) k = cell s k) ∧ (∀ r, claim_register r = false → reg (apply_op s o) r = reg s r).
Proof. intros Ho. apply run_effects_kept. intros e. by eapply claim_op_effects. Qed.

Lemma div_bounds u : (64 * N.div u 64 ≤ u)%N ∧ (u < 64 * (N.div u 64 + 1))%N.
Proof. pose proof (N.div_mod u 64 ltac:(done)) as H. pose proof (N.mod_lt u 64 ltac:(done)). remember (N.div u 64) as x. remember (N.modulo u 64) as y. clear Heqx Heqy. lia. Qed.

Record same_but_claims (s t : account) : Prop := {
  kept_cells k : cell s k = cell t k;
  kept_registers r : claim_register r = false → reg s r = reg t r;
}.

Lemma same_facts s t m : same_but_claims s t →
  (lives s m ↔ lives t m) ∧ name_now s m = name_now t m ∧ placed_at s m = placed_at t m ∧ epoch_now s = epoch_now t.
Proof.
  intros [Hc Hr]. unfold lives, name_now, box_name, placed_in, placed_at, epoch_now.
  rewrite Hc, !(Hr (RDelivered m)), !(Hr (RKilled m)), !(Hr (RPlace m)), !(Hr REpoch) by done. by rewrite !(Hr (RName _)).
Qed.

Section quiet.
  Context {r : rules} {slot : N → N} {readers : nat → Prop} (E : uid_execution r slot) (cut : nat → list (event op)).
  Context (Hslots : slots_differ r = true) (Hcount : counters_follow r = true) (Hok : slots_ok E).
  Context (w : quiet_rules) (Hw : w = all_quiet_rules) (Q : quiet w readers E cut).
  Local Notation history := (history _ _ _ _ E).
  Local Notation state p := (contents (state_after empty apply p)).

  Lemma state_snoc p e : state (p ++ [e]) = match e with Deliver o => apply_op (state p) o | Broadcast _ => state p end.
  Proof. rewrite !contents_after, deliveries_app. destruct e as [o|o]; simpl; [by rewrite app_nil_r|]. unfold replay. by rewrite foldl_app. Qed.

  Lemma after_cut_claim i p o : cut i `prefix_of` p → p ++ [Deliver o] `prefix_of` history i → ∃ epoch cs, op_action o = AClaim epoch cs.
  Proof.
    intros Hc [q Hq]. rewrite <- app_assoc in Hq. simpl in Hq.
    destruct (only_claims _ _ _ _ Q i o) as [Hin|H]; [by eapply arrives| |done].
    destruct (just_arrived E _ _ _ _ Hq). by apply (elem_of_prefix _ _ _ Hin).
  Qed.

  Lemma settled i p k : cut i `prefix_of` p → p ++ k `prefix_of` history i → same_but_claims (state (p ++ k)) (state p).
  Proof.
    intros Hc. induction k as [|e k IH] using rev_ind; [by rewrite app_nil_r|]. intros Hp. rewrite app_assoc in Hp |- *.
    assert (p ++ k `prefix_of` history i) as Hp' by (etrans; [by eexists|exact Hp]). pose proof (IH Hp') as [H1 H2].
    rewrite state_snoc. destruct e as [o|o]; [done|].
    destruct (after_cut_claim i (p ++ k) o) as (epoch & cs & Ho); [|done|]; [etrans; [exact Hc|by eexists]|].
    destruct (claim_op_kept (state (p ++ k)) o epoch cs Ho) as [H3 H4]. split.
    - intros x. by rewrite H3.
    - intros x Hx. by rewrite H4, H2.
  Qed.

  Lemma since_cut i p : cut i `prefix_of` p → p `prefix_of` history i → same_but_claims (state p) (state (cut i)).
  Proof. intros [k ->] Hp. by apply (settled i). Qed.

  (* A claim in the present epoch for the present placement is not above the UID. *)
  Lemma uid_at_least i p o m epoch u : cut i `prefix_of` p → p `prefix_of` history i → Deliver o ∈ p →
    (m, placed_at (state p) m, epoch, u) ∈ claims o → epoch = epoch_now (state p) → (u ≤ uid (state p) m)%N.
  Proof.
    intros Hc Hp Ho Hclaim ->. remember (reg (state p) (RClaim m (placed_at (state p) m))) as v eqn:Hdef.
    assert (at_most [epoch_now (state p); u] v = true) as Hle.
    { pose proof (claim_raises _ _ _ _ _ Hclaim) as [Hraise _]. rewrite contents_after in Hdef.
      pose proof (reg_replay (deliveries p) (contents empty) (RClaim m (placed_at (state p) m)) v) as [H _].
      rewrite contents_after in H, Hraise. destruct H as [_ H]; [rewrite Hdef; apply at_most_refl|].
      rewrite contents_after. eapply H; [by apply elem_of_deliveries|exact Hraise]. }
    assert (∃ u', v = [epoch_now (state p); u'] ∧ (u ≤ u')%N) as (u' & Hv & Hu').
    { pose proof (reg_replay_either (deliveries p) (contents empty) (RClaim m (placed_at (state p) m))) as Hor.
      rewrite <- contents_after, <- Hdef in Hor. destruct Hor as [H|(o' & Ho' & H)].
      - rewrite H in Hle. done.
      - apply elem_of_deliveries in Ho'. apply raise_is_claim in H as (epoch' & u' & Hv & Hc'). rewrite Hv in Hle |- *.
        assert (epoch' ≤ epoch_now (state (cut i)))%N as He.
        { eapply (epochs_have_come _ _ _ _ Q i o'); [|exact Hc']. by eapply elem_of_prefix. }
        destruct (same_facts _ _ m (since_cut _ _ Hc Hp)) as (_ & _ & _ & Hepoch). rewrite <- Hepoch in He.
        apply at_most_cons in Hle as [Hlt|[Heq Hle]]; [lia|]. exists u'. split; [by rewrite Heq|].
        apply at_most_cons in Hle as [?|[-> _]]; lia. }
    unfold uid. rewrite <- Hdef, Hv. simpl. unfold epoch_now. by rewrite bool_decide_true.
  Qed.

  (* What a node claimed with this counter or after it is not below what was shown when it had been heard. *)
  Lemma heard_below i p j o epoch u u' m placed : heard r slot readers E p epoch (N.div u' 64) → readers j → Broadcast o ∈ history j → Deliver o ∉ p →
    (m, placed, epoch, u) ∈ claims o → p `prefix_of` history i → (u' < u)%N.
  Proof.
    intros Hheard Hj Hb Hnew Hclaim _. destruct (Hheard j o Hj Hb) as (k & Hk & Hc & Hall).
    pose proof Hb as (p' & q' & Heq)%elem_of_list_split. pose proof (broadcast_ruled E _ _ _ _ Heq) as Hrule.
    assert (k `prefix_of` p') as Hkp.
    { pose proof (with_broadcast E _ _ _ _ Heq) as Hp'. destruct (prefix_weak_total _ _ _ Hp' Hk) as [[x ->]|Hpre].
      - destruct Hnew. apply Hall, elem_of_app. left. apply elem_of_app. right. by left.
      - apply prefix_snoc in Hpre as [?| ->]; [done|]. destruct Hnew. apply Hall, elem_of_app. right. by left. }
    pose proof (counter_grows k p' epoch Hkp). pose proof (above_counter _ _ _ _ Hrule _ _ _ _ Hcount Hclaim).
    destruct (decide (u' < u)%N); [done|]. pose proof (N.div_le_mono u u' 64). lia.
  Qed.

  Lemma uid_changed s o m epoch cs : op_action o = AClaim epoch cs → uid (apply_op s o) m ≠ uid s m → uid (apply_op s o) m ≠ 0%N →
    ∃ placed, (m, placed, epoch_now (apply_op s o), uid (apply_op s o) m) ∈ claims o.
  Proof.
    intros Ho Hne Hpos. destruct (claim_op_kept s o epoch cs Ho) as [Hc Hr].
    assert (same_but_claims (apply_op s o) s) as Hsame by by split.
    destruct (same_facts _ _ m Hsame) as (_ & _ & Hplaced & Hepoch). unfold uid, epoch_now in *. rewrite Hplaced, Hepoch in *.
    destruct (reg_effects_either (op_dot o) (saw o) (effects o) s (RClaim m (placed_at s m))) as [H|H];
      change (foldl (run_effect (op_dot o) (saw o)) s (effects o)) with (apply_op s o) in H; [by rewrite H in Hne|].
    apply raise_is_claim in H as (e & u & Hv & Hclaim). rewrite Hv in Hpos |- *. simpl in *. case_bool_decide as He; [|done]. subst e.
    by exists (placed_at s m).
  Qed.

  Definition reached_at_cut (i : nat) : N := counter (state (cut i)) (epoch_now (state (cut i))).

  (* No mark is above it at the cut. *)
  Definition low (i : nat) : N := (64 * (reached_at_cut i + 1))%N.
  Lemma low_positive i : (1 ≤ low i)%N. Proof. unfold low. lia. Qed.

  Definition of_reader (m : message_id) (epoch u : N) : Prop :=
    ∃ o j placed, readers j ∧ Broadcast o ∈ history j ∧ (m, placed, epoch, u) ∈ claims o.

  Record resting (i : nat) (p : list (event op)) (d : desk) : Prop := {
    rest_cut : cut i `prefix_of` p;
    rest_prefix : p `prefix_of` history i;
    rest_era : era d = epoch_now (state p);
    rest_marks name : (mark d name ≤ low i)%N ∨
      readers i ∧ ∃ u, (mark d name ≤ u + 1)%N ∧ heard r slot readers E p (era d) (N.div u 64);
    rest_shown m n u : shown d !! m = Some (n, u) → (u + 1 ≤ low i)%N ∨ heard r slot readers E p (era d) (N.div u 64);
    rest_not_late m : lives (state p) m → (reached_at_cut i < N.div (uid (state p) m) 64)%N → (readers i → of_reader m (era d) (uid (state p) m)) →
      (mark d (name_now (state p) m) ≤ uid (state p) m)%N ∨ shown d !! m = Some (name_now (state p) m, uid (state p) m);
  }.

  Lemma rests_resting i p d t : rests w readers E cut i p d t → resting i p d.
  Proof.
    induction 1 as [d t Hs Hera Hmarks|p d t e _ IH Hp|p d t a d' _ IH Hmay Ha Hq].
    - rewrite Hw in Hmarks. specialize (Hmarks eq_refl). rewrite Hera in Hmarks. fold (reached_at_cut i) in Hmarks. change (∀ name, (mark d name ≤ low i)%N) in Hmarks. split; [done|by apply (cut_prefix _ _ _ _ Q)|done|..].
      + intros name. by left.
      + intros m n u Hin. left. destruct (shown_acted _ _ (serves_sound E _ _ _ _ Hs) _ _ _ Hin) as [name Hshow].
        destruct (shown_claimed E _ _ _ _ _ _ _ _ Hs Hshow) as (o & placed & Ho & Hc). rewrite Hera in Hc.
        pose proof (counter_reached _ _ _ _ _ _ Ho Hc) as Hle. fold (reached_at_cut i) in Hle.
        pose proof (div_bounds u). unfold low. lia.
      + intros m _ Hlt _. left. specialize (Hmarks (name_now (state (cut i)) m)).
        pose proof (div_bounds (uid (state (cut i)) m)). unfold low in Hmarks. lia.
    - destruct IH as [Hcut Hpre Hera Hmarks Hshown Hlate].
      assert (same_but_claims (state (p ++ [e])) (state p)) as Hsame by by eapply settled.
      assert (∀ epoch c, heard r slot readers E p epoch c → heard r slot readers E (p ++ [e]) epoch c) as Hlater by (intros; by apply heard_later).
      split; [etrans; [exact Hcut|by eexists]|done|..].
      + destruct (same_facts _ _ (0, 0, 0)%N Hsame) as (_ & _ & _ & ->). done.
      + intros name. destruct (Hmarks name) as [?|(? & u & ? & ?)]; [by left|right]. split; [done|]. exists u. split; [done|]. by apply Hlater.
      + intros m n u Hin. destruct (Hshown m n u Hin) as [?|?]; [by left|right]. by apply Hlater.
      + intros m. destruct (same_facts _ _ m Hsame) as (-> & -> & _ & Hepoch). intros Hlives Hlt Hof.
        destruct (decide (uid (state (p ++ [e])) m = uid (state p) m)) as [Hu|Hu]; [rewrite Hu in *; by apply Hlate|]. left.
        pose proof (state_snoc p e) as Hsnoc. destruct e as [o|o]; [by rewrite Hsnoc in Hu|].
        destruct (after_cut_claim i p o Hcut Hp) as (epoch & cs & Ho). rewrite Hsnoc in Hu, Hlt, Hof, Hepoch |- *.
        destruct (uid_changed _ _ _ _ _ Ho Hu) as [placed Hclaim]; [intros Hzero; rewrite Hzero in Hlt; by apply N.nlt_0_r in Hlt|].
        rewrite Hepoch, <- Hera in Hclaim. set (u := uid (apply_op (state p) o) m) in *.
        destruct (Hmarks (name_now (state p) m)) as [Hm|(Hreads & u' & Hm & Hheard)].
        * pose proof (div_bounds u). unfold low in Hm. lia.
        * destruct (Hof Hreads) as (o' & j & placed' & Hj & Hb & Hclaim').
          pose proof Hp as [q Hq]. rewrite <- app_assoc in Hq. simpl in Hq.
          pose proof (arrives E _ _ _ _ Hq) as Hd. pose proof (local_delivery _ _ _ _ E _ _ Hb) as [_ Hd']%before_elem.
          destruct (claims_unique E _ _ _ _ _ _ _ _ _ _ Hslots Hcount Hok Hd Hd' Hclaim Hclaim') as (<- & _ & _).
          pose proof (just_arrived E _ _ _ _ Hq) as Hnew.
          pose proof (heard_below i p j o (era d) u u' m placed Hheard Hj Hb Hnew Hclaim Hpre). lia.
    - destruct IH as [Hcut Hpre Hera Hmarks Hshown Hlate]. rewrite Hw in Hq. destruct Ha; simpl in Hq; try done.
      + destruct Hmay as (Hlives & Hname & Huid & _). specialize (Hq eq_refl). split; simpl; try done.
        * intros m' n u'. destruct (decide (m = m')) as [->|Hne].
          -- rewrite lookup_insert. intros [= <- <-]. by right.
          -- rewrite lookup_insert_ne by done. apply Hshown.
        * intros m' Hl Hlt Hof. destruct (decide (m = m')) as [->|Hne].
          -- right. rewrite lookup_insert. unfold name_now. by rewrite Hname, Huid.
          -- rewrite lookup_insert_ne by done. by apply Hlate.
      + split; simpl; try done.
        * intros m' n u' [_ Hin]%lookup_delete_Some. by eapply Hshown.
        * intros m' Hl Hlt Hof. destruct (Hlate m' Hl Hlt Hof) as [?|Hin]; [by left|]. right.
          destruct (decide (m = m')) as [->|Hne]; [by specialize (Hq Hl)|by rewrite lookup_delete_ne].
      + destruct Hq as [Hreads Hall]. specialize (Hall eq_refl).
        assert (∀ n, mark (Desk (era d) (<[name:=next]> (marks d)) (gone_marks d) (floor d) (shown d)) n = if decide (n = name) then next else mark d n) as Hmark.
        { intros n. unfold mark. simpl. destruct (decide (n = name)) as [->|]; [by rewrite lookup_insert|by rewrite lookup_insert_ne]. }
        split; simpl; try done.
        * intros n. rewrite Hmark. destruct (decide (n = name)) as [->|]; [|apply Hmarks].
          match goal with H : _ ∨ _ |- _ => destruct H as [Hle|(m & u & Hin & ->)] end.
          -- pose proof (low_positive i). assert (mark d name = k) as Hk by (unfold mark; by match goal with H : marks d !! _ = _ |- _ => rewrite H end).
             destruct (Hmarks name) as [Hb|(Hr & u & Hb & Hh)]; [left; lia|]. destruct (decide (1 ≤ k)%N); [right; split; [done|]; exists u; split; [lia|done]|left; lia].
          -- destruct (Hshown _ _ _ Hin) as [Hb|Hb]; [by left|right]. split; [done|]. by exists u.
        * intros m Hl Hlt Hof. rewrite Hmark. destruct (Hlate m Hl Hlt Hof) as [Hle|Hin]; [|by right].
          destruct (decide (name_now (state p) m = name)) as [Hn|]; [|by left].
          destruct (decide (next ≤ uid (state p) m)%N) as [|Hgt]; [by left|]. right.
          destruct (Hall m Hl Hn ltac:(lia)) as [Hz|[Hlow|Hsh]]; [|rewrite <- Hn in Hlow; lia|by rewrite Hn].
          rewrite Hz in Hlt. by apply N.nlt_0_r in Hlt.
  Qed.

  Lemma quiet_ends : claims_end_at_last readers E cut.
  Proof.
    intros j p1 o1 p2 o2 m placed1 epoch1 u1 placed2 epoch2 u2 [Hc1 [q1 Heq1]] Hclaim1 [Hc2 [q2 Heq2]] Hclaim2 Hdel.
    destruct (claimed_again _ _ _ _ Q _ _ _ _ _ _ _ (conj Hc1 (ex_intro _ _ Heq1)) Hclaim1) as (_ & -> & -> & _).
    destruct (claimed_again _ _ _ _ Q _ _ _ _ _ _ _ (conj Hc2 (ex_intro _ _ Heq2)) Hclaim2) as (Hlives & -> & -> & Hlate).
    rewrite Hw in Hlate at 1. destruct (Hlate eq_refl) as (d & t & Hrests & Hl). clear Hlate.
    pose proof (rests_resting _ _ _ _ Hrests) as [_ Hpre Hera _ _ Hnot].
    assert (p1 `prefix_of` history j) as Hpre1 by (rewrite Heq1; by eexists).
    destruct (same_facts _ _ m (since_cut _ _ Hc1 Hpre1)) as (_ & _ & Hplaced1 & Hepoch1).
    destruct (same_facts _ _ m (since_cut _ _ Hc2 Hpre)) as (_ & _ & Hplaced2 & Hepoch2).
    assert (u1 ≤ uid (state p2) m)%N as Hu.
    { eapply (uid_at_least j p2 o1); [done|done|done| |reflexivity]. by rewrite Hplaced2, <- Hplaced1, Hepoch2, <- Hepoch1. }
    pose proof (broadcast_ruled E _ _ _ _ Heq1) as Hrule. pose proof (above_counter _ _ _ _ Hrule _ _ _ _ Hcount Hclaim1) as Habove.
    pose proof (counter_grows (cut j) p1 (epoch_now (state p1)) Hc1) as Hgrow. rewrite Hepoch1 in Hgrow at 1. fold (reached_at_cut j) in Hgrow.
    pose proof (N.div_le_mono u1 (uid (state p2) m) 64 ltac:(done) Hu) as Hdiv.
    assert (reached_at_cut j < N.div (uid (state p2) m) 64)%N as Hlt by (rewrite Hepoch1 in Hgrow; rewrite Hepoch1 in Habove; lia).
    assert (uid (state p2) m ≠ 0%N) as Hpos by (intros Hz; rewrite Hz in Hlt; by apply N.nlt_0_r in Hlt).
    destruct (uid_claimed p2 m (uid (state p2) m) eq_refl Hpos) as (o & placed & Ho & Hclaim).
    assert (Deliver o ∈ history j) as Hoj by by eapply elem_of_prefix.
    destruct (deliveries_have_causes _ _ _ _ E _ _ Hoj) as [i Hb]. exists i, o, placed. split; [done|]. split; [done|]. intros Himp.
    destruct Hl as [_ Hbelow Hunshown]. destruct (Hnot m Hlives Hlt) as [Hle|Hin]; [|destruct Hbelow as [?|?]; [done|lia]|done].
    intros Hj. exists o, i, placed. split; [by apply Himp|]. split; [done|]. by rewrite Hera.
  Qed.
End quiet.

Theorem uids_claims_end_at_last : claims_end_at_last_statement.
Proof. intros r slot readers E cut Hs Hc Hok Q. by eapply quiet_ends. Qed.
