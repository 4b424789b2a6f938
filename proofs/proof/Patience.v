(* Between two claims of one message by one node, after its cut, something was shown unheard that came meanwhile; and of each message that happens [k]
   times at most. *)
From Whimbrel.spec Require Import Patience.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Conflicts Join Collection Uids Quiet.

Section patience.
  Context (k : nat) {r : rules} {slot : N → N} {readers : nat → Prop} (E : uid_execution r slot) (cut : nat → list (event op)) (ms : list message_id).
  Context (Hslots : slots_differ r = true) (Hcount : counters_follow r = true) (Hok : slots_ok E).
  Context (P : patient k readers E cut).
  Context (Hall : ∀ j m, lives (contents (state_after empty apply (cut j))) m → m ∈ ms).
  Local Notation history := (history _ _ _ _ E).
  Local Notation state p := (contents (state_after empty apply p)).
  Let Q : quiet always_times_out readers E cut := otherwise_quiet _ _ _ _ P.

  (* The claims that have come. *)
  Lemma come_iff p m u : u ∈ claims_come p m ↔ ∃ o, Deliver o ∈ p ∧ (m, placed_at (state p) m, epoch_now (state p), u) ∈ claims o.
  Proof.
    unfold claims_come. rewrite elem_of_list_to_set, elem_of_list_omap. split.
    - intros (c & Hin & Hc). apply elem_of_list_bind in Hin as (o & Hc' & Ho). apply elem_of_deliveries in Ho.
      case_bool_decide as Heq; [|done]. injection Hc as <-. exists o. split; [done|]. rewrite <- Heq. by destruct c.
    - intros (o & Ho & Hc). eexists. split; [apply elem_of_list_bind; exists o; split; [exact Hc|by apply elem_of_deliveries]|]. simpl. by rewrite bool_decide_true.
  Qed.

  Lemma come_grows i p q m : cut i `prefix_of` p → p `prefix_of` q → q `prefix_of` history i → claims_come p m ⊆ claims_come q m.
  Proof.
    intros Hc Hp Hq u. rewrite !come_iff. intros (o & Ho & Hclaim). exists o. split; [by eapply elem_of_prefix|].
    destruct (same_facts _ _ m (since_cut E cut _ Q i p Hc ltac:(by etrans))) as (_ & _ & Hplaced & Hepoch).
    destruct (same_facts _ _ m (since_cut E cut _ Q i q ltac:(by etrans) Hq)) as (_ & _ & Hplaced' & Hepoch').
    by rewrite Hplaced', <- Hplaced, Hepoch', <- Hepoch.
  Qed.

  Lemma uid_has_come p m : uid (state p) m ≠ 0%N → uid (state p) m ∈ claims_come p m.
  Proof.
    intros Hne. apply come_iff. revert Hne. unfold uid. case_bool_decide as He; [|done]. intros Hne.
    destruct (reg_replay_either (deliveries p) (contents empty) (RClaim m (placed_at (state p) m))) as [H|(o & Ho & H)];
      rewrite <- contents_after in H; [rewrite H in Hne; done|].
    apply raise_is_claim in H as (epoch & u & Hv & Hclaim). rewrite Hv in He |- *. simpl in *. subst epoch.
    exists o. split; [by apply elem_of_deliveries|exact Hclaim].
  Qed.

  Definition sum (f : message_id → nat) (l : list message_id) : nat := foldr (λ m n, f m + n) 0 l.

  (* How many claims have come, of each message [k] at most. *)
  Definition came (p : list (event op)) : nat := sum (λ m, Nat.min k (size (claims_come p m))) ms.

  Lemma sum_le (f g : message_id → nat) l : (∀ m, f m ≤ g m) → sum f l ≤ sum g l.
  Proof. intros H. induction l as [|m l IH]; simpl; [done|]. specialize (H m). lia. Qed.

  Lemma sum_lt (f g : message_id → nat) l m : (∀ m, f m ≤ g m) → m ∈ l → f m < g m → sum f l < sum g l.
  Proof.
    intros H Hin Hlt. induction l as [|m' l IH]; [by apply elem_of_nil in Hin|]. simpl. apply elem_of_cons in Hin as [<-|Hin].
    - pose proof (sum_le f g l H). lia.
    - specialize (IH Hin). specialize (H m'). lia.
  Qed.

  Lemma sum_min (f : message_id → nat) l : sum (λ m, Nat.min k (f m)) l ≤ k * length l.
  Proof. induction l as [|m l IH]; simpl; [lia|]. lia. Qed.

  Lemma came_bounded p : came p ≤ k * length ms.
  Proof. apply sum_min. Qed.

  Lemma min_grows i p q m : cut i `prefix_of` p → p `prefix_of` q → q `prefix_of` history i →
    Nat.min k (size (claims_come p m)) ≤ Nat.min k (size (claims_come q m)).
  Proof. intros Hc Hp Hq. pose proof (subseteq_size _ _ (come_grows i p q m Hc Hp Hq)). lia. Qed.

  (* Shown with a time-out, perhaps: a claim of a message with fewer than [k] superseded ones. *)
  Definition unheard (i : nat) (p : list (event op)) (u : N) : Prop :=
    ∃ q m, cut i `prefix_of` q ∧ q `prefix_of` p ∧ lives (state q) m ∧ uid (state q) m = u ∧ u ≠ 0%N ∧ superseded q m < k.

  Lemma unheard_later i p e u : unheard i p u → unheard i (p ++ e) u.
  Proof. intros (q & m & Hc & Hp & H). exists q, m. split; [done|]. split; [|done]. etrans; [exact Hp|by eexists]. Qed.

  Local Notation low := (low cut).
  Local Notation reached_at_cut := (reached_at_cut cut).

  Record waiting (i : nat) (p : list (event op)) (d : desk) : Prop := {
    wait_cut : cut i `prefix_of` p;
    wait_prefix : p `prefix_of` history i;
    wait_era : era d = epoch_now (state p);
    wait_marks name : (mark d name ≤ low i)%N ∨ ∃ u, (mark d name ≤ u + 1)%N ∧ (heard r slot readers E p (era d) (N.div u 64) ∨ unheard i p u);
    wait_shown m n u : shown d !! m = Some (n, u) → (u + 1 ≤ low i)%N ∨ heard r slot readers E p (era d) (N.div u 64) ∨ unheard i p u;
    wait_not_late m : lives (state p) m → (reached_at_cut i < N.div (uid (state p) m) 64)%N →
      (mark d (name_now (state p) m) ≤ uid (state p) m)%N ∨ shown d !! m = Some (name_now (state p) m, uid (state p) m) ∨
      ∃ u, (uid (state p) m ≤ u)%N ∧ unheard i p u;
  }.

  Lemma waits_waiting i p d t : claims_after E cut i → waits k readers E cut i p d t → waiting i p d.
  Proof.
    intros Hclaims. induction 1 as [d t Hs Hera Hmarks|p d t e _ IH Hp|p d t a d' _ IH Hmay Ha [Hq Hk]].
    - rewrite Hera in Hmarks. fold (reached_at_cut i) in Hmarks. change (∀ name, (mark d name ≤ low i)%N) in Hmarks. split; [done|by apply (cut_prefix _ _ _ _ Q)|done|..].
      + intros name. by left.
      + intros m n u Hin. left. destruct (shown_acted _ _ (serves_sound E _ _ _ _ Hs) _ _ _ Hin) as [name Hshow].
        destruct (shown_claimed E _ _ _ _ _ _ _ _ Hs Hshow) as (o & placed & Ho & Hc). rewrite Hera in Hc.
        pose proof (counter_reached _ _ _ _ _ _ Ho Hc) as Hle. fold (reached_at_cut i) in Hle.
        pose proof (div_bounds u). unfold Quiet.low. lia.
      + intros m _ Hlt. left. specialize (Hmarks (name_now (state (cut i)) m)).
        pose proof (div_bounds (uid (state (cut i)) m)). unfold Quiet.low in Hmarks. lia.
    - destruct IH as [Hcut Hpre Hera Hmarks Hshown Hlate].
      assert (same_but_claims (state (p ++ [e])) (state p)) as Hsame by by eapply (settled E cut _ Q).
      assert (∀ epoch c, heard r slot readers E p epoch c → heard r slot readers E (p ++ [e]) epoch c) as Hlater by (intros; by apply heard_later).
      split; [etrans; [exact Hcut|by eexists]|done|..].
      + destruct (same_facts _ _ (0, 0, 0)%N Hsame) as (_ & _ & _ & ->). done.
      + intros name. destruct (Hmarks name) as [?|(u & ? & [?|?])]; [by left|right; exists u..]; (split; [done|]); [left; by apply Hlater|right; by apply unheard_later].
      + intros m n u Hin. destruct (Hshown m n u Hin) as [?|[?|?]]; [by left|right; left; by apply Hlater|right; right; by apply unheard_later].
      + intros m. destruct (same_facts _ _ m Hsame) as (-> & -> & _ & Hepoch). intros Hlives Hlt.
        destruct (decide (uid (state (p ++ [e])) m = uid (state p) m)) as [Hu|Hu].
        { rewrite Hu in *. destruct (Hlate m Hlives Hlt) as [?|[?|(u & ? & ?)]]; [by left|by right; left|right; right]. exists u. split; [done|]. by apply unheard_later. }
        pose proof (state_snoc p e) as Hsnoc. destruct e as [o|o]; [by rewrite Hsnoc in Hu|].
        destruct (after_cut_claim E cut _ Q i p o Hcut Hp) as (epoch & cs & Ho). rewrite Hsnoc in Hu, Hlt, Hepoch |- *.
        destruct (uid_changed _ _ _ _ _ Ho Hu) as [placed Hclaim]; [intros Hzero; rewrite Hzero in Hlt; by apply N.nlt_0_r in Hlt|].
        rewrite Hepoch, <- Hera in Hclaim. set (u := uid (apply_op (state p) o) m) in *.
        destruct (Hmarks (name_now (state p) m)) as [Hm|(u' & Hm & [Hheard|Hun])].
        * left. pose proof (div_bounds u). unfold Quiet.low in Hm. lia.
        * left. pose proof Hp as [q Hpq]. rewrite <- app_assoc in Hpq. simpl in Hpq.
          pose proof (just_arrived E _ _ _ _ Hpq) as Hnew. destruct (deliveries_have_causes _ _ _ _ E _ _ (arrives E _ _ _ _ Hpq)) as [j Hb].
          assert (readers j) as Hj.
          { eapply (claimers_read _ _ _ _ P j i o); [done|done| |by eapply arrives|].
            - intros Hnone. rewrite Hnone in Hclaim. by apply elem_of_nil in Hclaim.
            - intros Hin. apply Hnew. by eapply elem_of_prefix. }
          pose proof (heard_below E Hcount i p j o (era d) u u' m placed Hheard Hj Hb Hnew Hclaim Hpre). lia.
        * destruct (decide (mark d (name_now (state p) m) ≤ u)%N); [by left|]. right. right. exists u'. split; [lia|]. by apply unheard_later.
    - destruct IH as [Hcut Hpre Hera Hmarks Hshown Hlate]. destruct Ha; simpl in Hq, Hk; try done.
      + destruct Hmay as (Hlives & Hname & Huid & Hpos & _). split; simpl; try done.
        * intros m' n u'. destruct (decide (m = m')) as [->|Hne].
          -- rewrite lookup_insert. intros [= <- <-]. right. destruct Hk as [Hk|Hk]; [right|by left]. by exists p, m'.
          -- rewrite lookup_insert_ne by done. apply Hshown.
        * intros m' Hl Hlt. destruct (decide (m = m')) as [->|Hne].
          -- right. left. rewrite lookup_insert. unfold name_now. by rewrite Hname, Huid.
          -- rewrite lookup_insert_ne by done. by apply Hlate.
      + split; simpl; try done.
        * intros m' n u' [_ Hin]%lookup_delete_Some. by eapply Hshown.
        * intros m' Hl Hlt. destruct (Hlate m' Hl Hlt) as [?|[Hin|?]]; [by left|right; left|by right; right].
          destruct (decide (m = m')) as [->|Hne]; [by specialize (Hq Hl)|by rewrite lookup_delete_ne].
      + destruct Hq as [_ Hlower]. specialize (Hlower eq_refl).
        assert (∀ n, mark (Desk (era d) (<[name:=next]> (marks d)) (gone_marks d) (floor d) (shown d)) n = if decide (n = name) then next else mark d n) as Hmark.
        { intros n. unfold mark. simpl. destruct (decide (n = name)) as [->|]; [by rewrite lookup_insert|by rewrite lookup_insert_ne]. }
        split; simpl; try done.
        * intros n. rewrite Hmark. destruct (decide (n = name)) as [->|]; [|apply Hmarks].
          match goal with H : _ ∨ _ |- _ => destruct H as [Hle|(m & u & Hin & ->)] end.
          -- pose proof (low_positive cut i). match goal with H : marks d !! name = Some ?x |- _ => assert (mark d name = x) as Hx by (unfold mark; by rewrite H) end.
             rewrite <- Hx in *. destruct (Hmarks name) as [Hb|(u & Hb & Hh)]; [left; lia|]. destruct (decide (1 ≤ mark d name)%N); [right; exists u; split; [lia|done]|left; lia].
          -- destruct (Hshown _ _ _ Hin) as [Hb|Hb]; [by left|right]. by exists u.
        * intros m Hl Hlt. rewrite Hmark. destruct (Hlate m Hl Hlt) as [Hle|Hin]; [|by right].
          destruct (decide (name_now (state p) m = name)) as [Hn|]; [|by left].
          destruct (decide (next ≤ uid (state p) m)%N) as [|Hgt]; [by left|]. right. left.
          destruct (Hlower m Hl Hn ltac:(lia)) as [Hz|[Hlow|Hsh]]; [|rewrite <- Hn in Hlow; lia|by rewrite Hn].
          rewrite Hz in Hlt. by apply N.nlt_0_r in Hlt.
  Qed.

  (* Between two claims something was shown unheard that had not come at the first. *)
  Lemma came_more j p1 o1 p2 o2 m placed1 epoch1 u1 placed2 epoch2 u2 :
    after_cut E cut j p1 o1 → (m, placed1, epoch1, u1) ∈ claims o1 → after_cut E cut j p2 o2 → (m, placed2, epoch2, u2) ∈ claims o2 → Deliver o1 ∈ p2 →
    came p1 < came p2.
  Proof.
    intros A1 Hclaim1 A2 Hclaim2 Hdel. pose proof A1 as [Hc1 [q1 Heq1]]. pose proof A2 as [Hc2 [q2 Heq2]].
    destruct (claimed_again _ _ _ _ Q _ _ _ _ _ _ _ A1 Hclaim1) as (_ & -> & -> & _).
    destruct (late_at_its_desk _ _ _ _ P _ _ _ _ _ _ _ A2 Hclaim2) as (d & t & Hwaits & [Hlives Hbelow Hunshown]).
    assert (claims_after E cut j) as Hclaims.
    { exists p2, o2. split; [done|]. intros Hnone. rewrite Hnone in Hclaim2. by apply elem_of_nil in Hclaim2. }
    pose proof (waits_waiting _ _ _ _ Hclaims Hwaits) as [_ Hpre Hera _ _ Hnot].
    assert (p1 `prefix_of` history j) as Hpre1 by (rewrite Heq1; by eexists).
    destruct (same_facts _ _ m (since_cut E cut _ Q _ _ Hc1 Hpre1)) as (_ & _ & Hplaced1 & Hepoch1).
    destruct (same_facts _ _ m (since_cut E cut _ Q _ _ Hc2 Hpre)) as (_ & _ & Hplaced2 & Hepoch2).
    assert (u1 ≤ uid (state p2) m)%N as Hu.
    { eapply (uid_at_least E cut _ Q j p2 o1); [done|done|done| |reflexivity]. by rewrite Hplaced2, <- Hplaced1, Hepoch2, <- Hepoch1. }
    pose proof (broadcast_ruled E _ _ _ _ Heq1) as Hrule. pose proof (above_counter _ _ _ _ Hrule _ _ _ _ Hcount Hclaim1) as Habove.
    pose proof (counter_grows (cut j) p1 (epoch_now (state p1)) Hc1) as Hgrow. rewrite Hepoch1 in Hgrow at 1. fold (reached_at_cut j) in Hgrow.
    pose proof (N.div_le_mono u1 (uid (state p2) m) 64 ltac:(done) Hu) as Hdiv.
    assert (reached_at_cut j < N.div (uid (state p2) m) 64)%N as Hlt by (rewrite Hepoch1 in Hgrow; rewrite Hepoch1 in Habove; lia).
    assert (uid (state p2) m ≠ 0%N) as Hpos by (intros Hz; rewrite Hz in Hlt; by apply N.nlt_0_r in Hlt).
    destruct (Hnot m Hlives Hlt) as [Hle|[Hin|(u & Hle & q & m' & Hcq & Hqp & Hl' & Huid & Hne & Hsup)]]; [destruct Hbelow as [?|?]; [done|lia]|done|].
    pose proof (N.div_le_mono (uid (state p2) m) u 64 ltac:(done) Hle) as Hdiv'.
    assert (q `prefix_of` history j) as Hqh by (by etrans).
    destruct (same_facts _ _ m' (since_cut E cut _ Q _ _ Hc1 Hpre1)) as (_ & _ & Hplaced1' & _).
    destruct (same_facts _ _ m' (since_cut E cut _ Q _ _ Hcq Hqh)) as (Hlq & _ & Hplacedq & Hepochq).
    assert (u ∈ claims_come q m') as Hu_in by (rewrite <- Huid; apply uid_has_come; by rewrite Huid).
    assert (u ∉ claims_come p1 m') as Hu_out.
    { intros (o & Ho & Hclaim)%come_iff. pose proof (counter_reached _ _ _ _ _ _ Ho Hclaim). lia. }
    assert (p1 `prefix_of` q) as Hp1q.
    { destruct (prefix_weak_total _ _ _ Hpre1 Hqh) as [?|Hq1]; [done|]. destruct Hu_out. by apply (come_grows j q p1 m' Hcq Hq1 Hpre1). }
    assert (size (claims_come p1 m') < size (claims_come q m')) as Hsize.
    { apply subset_size. split; [by apply (come_grows j)|]. intros Hsub. by apply Hu_out, Hsub. }
    unfold superseded in Hsup.
    apply Nat.lt_le_trans with (came q).
    - unfold came. apply (sum_lt _ _ ms m'); [intros x; by apply (min_grows j)|by apply (Hall j), Hlq|]. lia.
    - unfold came. apply sum_le. intros x. by apply (min_grows j).
  Qed.

  Lemma claims_message_claims m o : claims_message m (Broadcast o) = true → ∃ placed epoch u, (m, placed, epoch, u) ∈ claims o.
  Proof. simpl. rewrite existsb_exists. intros ([[[m' placed] epoch] u] & Hin%elem_of_list_In & H%bool_decide_eq_true). simpl in H. subst m'. by exists placed, epoch, u. Qed.

  Lemma counted j m l : cut j ++ l `prefix_of` history j → length (List.filter (claims_message m) l) = 0 ∨
    ∃ p o placed epoch u, after_cut E cut j p o ∧ (m, placed, epoch, u) ∈ claims o ∧ p ++ [Broadcast o] `prefix_of` cut j ++ l ∧
      length (List.filter (claims_message m) l) ≤ S (came p).
  Proof.
    induction l as [|e l IH] using rev_ind; [by left|]. intros Hp. rewrite app_assoc in Hp.
    assert (cut j ++ l `prefix_of` history j) as Hp' by (etrans; [by eexists|exact Hp]). specialize (IH Hp').
    rewrite List.filter_app, app_length. simpl. destruct (claims_message m e) eqn:He.
    - right. destruct e as [o|o]; [|done]. destruct (claims_message_claims _ _ He) as (placed & epoch & u & Hclaim).
      pose proof Hp as [q Hq]. rewrite <- app_assoc in Hq. simpl in Hq.
      assert (after_cut E cut j (cut j ++ l) o) as Hafter by (split; [by eexists|by exists q]).
      exists (cut j ++ l), o, placed, epoch, u. split; [done|]. split; [done|]. split; [by rewrite <- app_assoc|]. simpl.
      destruct IH as [H0|(p1 & o1 & placed1 & epoch1 & u1 & A1 & Hclaim1 & Hp1 & Hlen)]; [lia|].
      assert (came p1 < came (cut j ++ l)); [|lia].
      eapply (came_more j p1 o1 _ o m); [done|done|done|done|].
      (* The next event after its broadcast is its delivery, and it is here. *)
      pose proof A1 as [Hc1 [q1 Heq1]]. destruct (applied_at_once _ _ _ _ P j p1 o1 q1 Heq1 Hc1) as [q1' ->].
      destruct Hp1 as [x Hx]. rewrite Hx in Hq. rewrite Hq, <- !app_assoc in Heq1. apply app_inv_head in Heq1. simpl in Heq1. injection Heq1 as Heq1.
      destruct x as [|y x]; [by simpl in Heq1|]. simpl in Heq1. injection Heq1 as -> _. rewrite Hx. apply elem_of_app. right. by left.
    - simpl. rewrite Nat.add_0_r. destruct IH as [H0|(p1 & o1 & placed1 & epoch1 & u1 & A1 & Hclaim1 & Hp1 & Hlen)]; [by left|right].
      exists p1, o1, placed1, epoch1, u1. split; [done|]. split; [done|]. split; [|done]. etrans; [exact Hp1|]. rewrite app_assoc. by eexists.
  Qed.

  Lemma patience_ends j m : times_claimed E cut j m ≤ k * length ms + 1.
  Proof.
    destruct (cut_prefix _ _ _ _ Q j) as [l Hl]. unfold times_claimed. rewrite Hl, drop_app.
    destruct (counted j m l) as [H0|(p & o & placed & epoch & u & _ & _ & _ & Hlen)]; [by rewrite Hl|lia|]. pose proof (came_bounded p). lia.
  Qed.
End patience.

Theorem uids_claims_end_with_patience : claims_end_with_patience_statement.
Proof. intros k r slot readers E cut ms Hs Hc Hok P Hall j m. by eapply patience_ends. Qed.
