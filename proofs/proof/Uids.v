(* Claims of one slot ascend, so no two are equal; a mark is never above what was shown or believed, and never falls. *)
From Whimbrel.spec Require Import Uids.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Conflicts Join Collection.

(* An execution that keeps docs/design.md#rule-1 is one of the mailbox. *)
Program Definition base {r slot} (E : uid_execution r slot) : mailbox_execution := {| history := history _ _ _ _ E |}.
Next Obligation. intros r slot E. apply (histories_distinct _ _ _ _ E). Qed.
Next Obligation. intros r slot E. apply (deliveries_have_causes _ _ _ _ E). Qed.
Next Obligation. intros r slot E. apply (local_delivery _ _ _ _ E). Qed.
Next Obligation. intros r slot E. apply (unique_ids _ _ _ _ E). Qed.
Next Obligation. intros r slot E. apply (causal_delivery _ _ _ _ E). Qed.
Next Obligation. intros r slot E i p m q Heq. by apply (valid_broadcasts _ _ _ _ E _ _ _ _ Heq). Qed.

(* A claim writes its register and the counter, and nothing else writes a claim. *)
Lemma claim_raises o m placed epoch u : (m, placed, epoch, u) ∈ claims o →
  Raise (RClaim m placed) [epoch; u] ∈ effects o ∧ Raise (RCounter epoch) [N.div u 64] ∈ effects o.
Proof.
  assert (∀ es : list effect, (∀ e : effect, e ∈ claim_effects m placed epoch u → e ∈ es) → Raise (RClaim m placed) [epoch; u] ∈ es ∧ Raise (RCounter epoch) [N.div u 64] ∈ es) as H.
  { intros es Hes. split; apply Hes; [by left|right; by left]. }
  unfold claims, effects. intros Hc. apply H. clear H. intros e He.
  destruct (op_action o) as [created floor|derived name use|boxes messages|boxes to|name|name dots|b ep u' flags content|m' pl b ep u' content
    |b ep entries|b ep entries|messages set clear rescue|messages|ep cs|cnt ep|uidvalidity]; try by apply elem_of_nil in Hc.
  - apply elem_of_list_singleton in Hc as [= -> -> -> ->]. do 4 right. apply elem_of_app. by left.
  - apply elem_of_list_singleton in Hc as [= -> -> -> ->]. by do 4 right.
  - apply elem_of_list_lookup in Hc as [n Hn]. rewrite list_lookup_imap in Hn. destruct (entries !! n) as [entry|] eqn:Hentry; [|done].
    simpl in Hn. injection Hn as <- <- <- <-. right. apply elem_of_list_join. exists (copy_effects o b ep n entry). split.
    + unfold copy_effects. do 2 right. apply elem_of_app. by left.
    + apply elem_of_list_lookup. exists n. by rewrite list_lookup_imap, Hentry.
  - apply elem_of_list_fmap in Hc as (entry & [= -> -> -> ->] & Hin). right. apply elem_of_list_join. exists (move_effects o b ep entry). split.
    + unfold move_effects. do 2 right. apply elem_of_app. by left.
    + by apply elem_of_list_fmap_1.
  - apply elem_of_list_fmap in Hc as (c & [= -> -> -> ->] & Hin). apply elem_of_list_join. eexists. split; [exact He|].
    by apply (elem_of_list_fmap_1 (λ c, claim_effects c.1.1 c.1.2 ep c.2)).
Qed.

Lemma raise_in_claim m placed v m' placed' epoch u : Raise (RClaim m placed) v ∈ claim_effects m' placed' epoch u → m = m' ∧ placed = placed' ∧ v = [epoch; u].
Proof. unfold claim_effects. rewrite !elem_of_cons, elem_of_nil. by intros [[= -> -> ->]|[[=]|[[=]|[]]]]. Qed.

Lemma raise_not_in_flags m placed v m' fs : Raise (RClaim m placed) v ∉ mjoin (set_flag m' <$> fs) ∧ Raise (RClaim m placed) v ∉ mjoin (clear_flag m' <$> fs).
Proof.
  split; intros (l & He & (f & -> & _)%elem_of_list_fmap)%elem_of_list_join; unfold set_flag, clear_flag in He; case_bool_decide;
    rewrite !elem_of_cons, elem_of_nil in He; naive_solver.
Qed.

Lemma raise_is_claim o m placed v : Raise (RClaim m placed) v ∈ effects o → ∃ epoch u, v = [epoch; u] ∧ (m, placed, epoch, u) ∈ claims o.
Proof.
  unfold effects, claims. intros He.
  assert (∀ ms : list (message_id * gset dot), Raise (RClaim m placed) v ∉ mjoin (removal_effects <$> ms)) as Hrem.
  { intros ms (l & Hl & (x & -> & _)%elem_of_list_fmap)%elem_of_list_join. unfold removal_effects in Hl. rewrite !elem_of_cons, elem_of_nil in Hl. naive_solver. }
  assert (∀ m' f, Raise (RClaim m placed) v ∉ clear_flag m' f) as Hclear.
  { intros m' f. unfold clear_flag. case_bool_decide; rewrite elem_of_cons, elem_of_nil; naive_solver. }
  destruct (op_action o) as [created floor|derived name use|boxes messages|boxes to|name|name dots|b ep u' flags content|m' pl b ep u' content
    |b ep entries|b ep entries|messages set clear rescue|messages|ep cs|cnt ep|uidvalidity].
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - apply elem_of_app in He as [(b & [=] & _)%elem_of_list_fmap|He]. by apply Hrem in He.
  - apply elem_of_list_join in He as (l & He & (b & -> & _)%elem_of_list_fmap). rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite !elem_of_cons, elem_of_app in He. destruct He as [[=]|[[=]|[[=]|[[=]|[He|He]]]]].
    + apply raise_in_claim in He as (-> & -> & ->). do 2 eexists. split; [done|by left].
    + by apply raise_not_in_flags in He.
  - rewrite !elem_of_cons in He. destruct He as [[=]|[[=]|[[=]|[[=]|He]]]].
    apply raise_in_claim in He as (-> & -> & ->). do 2 eexists. split; [done|by left].
  - rewrite elem_of_cons in He. destruct He as [[=]|He]. apply elem_of_list_join in He as (l & He & (n & Hn)%elem_of_list_lookup).
    rewrite list_lookup_imap in Hn. destruct (entries !! n) as [entry|] eqn:Hentry; [|done]. simpl in Hn. injection Hn as <-. unfold copy_effects in He.
    rewrite !elem_of_cons, elem_of_app in He. destruct He as [[=]|[[=]|[He|He]]]; [|by apply raise_not_in_flags in He].
    apply raise_in_claim in He as (-> & -> & ->). do 2 eexists. split; [done|]. apply elem_of_list_lookup. exists n. by rewrite list_lookup_imap, Hentry.
  - rewrite elem_of_cons in He. destruct He as [[=]|He]. apply elem_of_list_join in He as (l & He & (entry & -> & Hin)%elem_of_list_fmap).
    unfold move_effects in He. rewrite !elem_of_cons, elem_of_app in He. destruct He as [[=]|[[=]|[He|He]]].
    + apply raise_in_claim in He as (-> & -> & ->). do 2 eexists. split; [done|]. by apply (elem_of_list_fmap_1 (λ entry, (entry.1.1, op_stamp o, ep, entry.1.2))).
    + destruct entry.2; [by apply Hclear in He|by apply elem_of_nil in He].
  - apply elem_of_list_join in He as (l & He & (m' & -> & Hin)%elem_of_list_fmap). unfold store_effects in He. rewrite !elem_of_app in He.
    destruct He as [He|[He|He]]; [by apply raise_not_in_flags in He..|]. destruct rescue; [|by apply elem_of_nil in He].
    by apply elem_of_list_singleton in He.
  - by apply Hrem in He.
  - apply elem_of_list_join in He as (l & He & (c & -> & Hin)%elem_of_list_fmap). apply raise_in_claim in He as (-> & -> & ->).
    do 2 eexists. split; [done|]. by apply (elem_of_list_fmap_1 (λ c, (c.1.1, c.1.2, ep, c.2))).
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
Qed.

Lemma at_most_head v w : at_most v w = true → (nth 0 v 0 ≤ nth 0 w 0)%N.
Proof. destruct v as [|x v], w as [|y w]; simpl; try done; try lia. intros [H|[H _]%andb_true_iff]%orb_true_iff; apply bool_decide_eq_true in H; lia. Qed.

Lemma at_most_second v w : at_most v w = true → nth 0 v 0%N = nth 0 w 0%N → (nth 1 v 0 ≤ nth 1 w 0)%N.
Proof.
  destruct v as [|x v]; [destruct w as [|y [|? ?]]; simpl; lia|]. destruct w as [|y w]; [done|]. rewrite at_most_cons. simpl.
  intros [?|[_ H%at_most_head]] ?; [lia|]. by destruct v, w.
Qed.

(* Who has applied more has greater values. *)
Lemma register_grows p q k : (∀ o, o ∈ deliveries p → o ∈ deliveries q) →
  at_most (reg (contents (state_after empty apply p)) k) (reg (contents (state_after empty apply q)) k) = true.
Proof.
  intros Hsub. rewrite !contents_after.
  pose proof (reg_replay (deliveries q) (contents empty) k (reg (replay apply_op (contents empty) (deliveries q)) k)) as [H _].
  destruct H as [H0 H]; [apply at_most_refl|]. apply reg_replay. split; [done|]. intros o v Ho. by apply H, Hsub.
Qed.

Lemma prefix_deliveries (p q : list (event op)) : p `prefix_of` q → ∀ o, o ∈ deliveries p → o ∈ deliveries q.
Proof. intros [k ->] o Ho. rewrite deliveries_app. apply elem_of_app. by left. Qed.

Lemma before_snoc {A} (l : list A) a x y : before (l ++ [a]) x y → before l x y ∨ (x ∈ l ∧ y = a).
Proof.
  intros (p & q & r & Heq). destruct r as [|b r _] using rev_ind.
  - replace (p ++ x :: q ++ [y]) with ((p ++ x :: q) ++ [y]) in Heq by by rewrite <- app_assoc.
    apply app_inj_tail in Heq as [-> ->]. right. split; [|done]. apply elem_of_app. right. by left.
  - replace (p ++ x :: q ++ y :: r ++ [b]) with ((p ++ x :: q ++ y :: r) ++ [b]) in Heq by by rewrite <- app_assoc; simpl; rewrite <- app_assoc.
    apply app_inj_tail in Heq as [-> ->]. left. by exists p, q, r.
Qed.

Lemma NoDup_image {A B} (f : A → B) l x y : NoDup (f <$> l) → x ∈ l → y ∈ l → f x = f y → x = y.
Proof.
  intros Hnd [i Hi]%elem_of_list_lookup [j Hj]%elem_of_list_lookup Heq.
  assert (i = j) as ->; [|congruence]. eapply (NoDup_lookup _ _ _ (f x) Hnd); rewrite list_lookup_fmap; [by rewrite Hi|by rewrite Hj; simpl; rewrite Heq].
Qed.

Section execution.
  Context {r : rules} {slot : N → N} {readers : nat → Prop} (E : uid_execution r slot).
  Local Notation history := (history _ _ _ _ E).
  Local Notation state p := (contents (state_after empty apply p)).

  Lemma broadcast_ruled j p o q : history j = p ++ Broadcast o :: q → rule_1 r slot (state_after empty apply p) o.
  Proof. intros Heq. by apply (valid_broadcasts _ _ _ _ E _ _ _ _ Heq). Qed.

  Lemma delivered_made i o : Deliver o ∈ history i → ∃ j p q, history j = p ++ Broadcast o :: q ∧ rule_1 r slot (state_after empty apply p) o.
  Proof.
    intros [j (p & q & Heq)%elem_of_list_split]%(deliveries_have_causes _ _ _ _ E). exists j, p, q. split; [done|]. by eapply broadcast_ruled.
  Qed.

  Lemma made j p o q : history j = p ++ Broadcast o :: q → Broadcast o ∈ history j.
  Proof. intros ->. apply elem_of_app. right. by left. Qed.

  Lemma counter_reached p o m placed epoch u : Deliver o ∈ p → (m, placed, epoch, u) ∈ claims o → (N.div u 64 ≤ counter (state p) epoch)%N.
  Proof.
    intros Ho%elem_of_deliveries [_ Hc]%claim_raises. unfold counter. rewrite contents_after.
    assert (at_most [N.div u 64] (reg (replay apply_op (contents empty) (deliveries p)) (RCounter epoch)) = true) as H%at_most_head; [|done].
    pose proof (reg_replay (deliveries p) (contents empty) (RCounter epoch) (reg (replay apply_op (contents empty) (deliveries p)) (RCounter epoch))) as [H _].
    destruct H as [_ H]; [apply at_most_refl|]. by eapply H.
  Qed.

  Lemma counter_grows p q epoch : p `prefix_of` q → (counter (state p) epoch ≤ counter (state q) epoch)%N.
  Proof. intros Hpq. apply at_most_head, register_grows. by apply prefix_deliveries. Qed.

  (* Who has seen a claim makes greater ones. *)
  Lemma seen_below i j o1 o2 m1 m2 s1 s2 epoch u1 u2 : counters_follow r = true → Deliver o1 ∈ history i → Deliver o2 ∈ history j →
    saw o2 (op_dot o1) = true → (m1, s1, epoch, u1) ∈ claims o1 → (m2, s2, epoch, u2) ∈ claims o2 → (N.div u1 64 < N.div u2 64)%N.
  Proof.
    intros Hr H1 (j' & p & q & Heq & Hrule)%delivered_made Hs Hc1 Hc2.
    pose proof (saw_delivered (base E) _ _ _ _ _ _ Heq H1 Hs) as Hin. pose proof (counter_reached _ _ _ _ _ _ Hin Hc1).
    pose proof (above_counter _ _ _ _ Hrule _ _ _ _ Hr Hc2). lia.
  Qed.

  Lemma claim_positive i o m placed epoch u : counters_follow r = true → Deliver o ∈ history i → (m, placed, epoch, u) ∈ claims o → (64 ≤ u)%N.
  Proof.
    intros Hr (j & p & q & _ & Hrule)%delivered_made Hc. pose proof (above_counter _ _ _ _ Hrule _ _ _ _ Hr Hc).
    destruct (decide (64 ≤ u)%N) as [|Hlt]; [done|]. rewrite (N.div_small u 64) in H by lia. lia.
  Qed.

  Lemma claims_unique i j o1 o2 m1 m2 s1 s2 epoch u : slots_differ r = true → counters_follow r = true → slots_ok E →
    Deliver o1 ∈ history i → Deliver o2 ∈ history j → (m1, s1, epoch, u) ∈ claims o1 → (m2, s2, epoch, u) ∈ claims o2 → o1 = o2 ∧ m1 = m2 ∧ s1 = s2.
  Proof.
    intros Hd Hf Hslots H1 H2 Hc1 Hc2.
    pose proof (delivered_made _ _ H1) as (j1 & p1 & q1 & Heq1 & Hr1). pose proof (delivered_made _ _ H2) as (j2 & p2 & q2 & Heq2 & Hr2).
    assert ((op_dot o1).1 = (op_dot o2).1) as Horigin.
    { destruct (Hslots Hd (op_dot o1).1 (op_dot o2).1 epoch) as [?|[H|H]]; [|done|exfalso..].
      - rewrite <- (own_slot _ _ _ _ Hr1 _ _ _ _ Hc1). by apply (own_slot _ _ _ _ Hr2 _ _ _ _ Hc2).
      - pose proof (H _ _ _ _ _ _ _ _ _ _ _ _ Heq2 eq_refl Hc2 (made _ _ _ _ Heq1) eq_refl Hc1) as Hin.
        pose proof (counter_reached _ _ _ _ _ _ Hin Hc1). pose proof (above_counter _ _ _ _ Hr2 _ _ _ _ Hf Hc2). lia.
      - pose proof (H _ _ _ _ _ _ _ _ _ _ _ _ Heq1 eq_refl Hc1 (made _ _ _ _ Heq2) eq_refl Hc2) as Hin.
        pose proof (counter_reached _ _ _ _ _ _ Hin Hc2). pose proof (above_counter _ _ _ _ Hr1 _ _ _ _ Hf Hc1). lia. }
    assert (saw o2 (op_dot o1) = false) as Hn1.
    { apply not_true_iff_false. intros Hs. pose proof (seen_below _ _ _ _ _ _ _ _ _ _ _ Hf H1 H2 Hs Hc1 Hc2). lia. }
    assert (saw o1 (op_dot o2) = false) as Hn2.
    { apply not_true_iff_false. intros Hs. pose proof (seen_below _ _ _ _ _ _ _ _ _ _ _ Hf H2 H1 Hs Hc2 Hc1). lia. }
    unfold saw in Hn1, Hn2. rewrite bool_decide_true in Hn1 by done. rewrite bool_decide_true in Hn2 by done. apply bool_decide_eq_false in Hn1, Hn2.
    assert (o1 = o2) as ->.
    { eapply (delivered_same E); [done|done|]. rewrite (surjective_pairing (op_dot o1)), (surjective_pairing (op_dot o2)), Horigin. f_equal. lia. }
    assert ((m1, s1, epoch, u) = (m2, s2, epoch, u)) as [= -> ->]; [|done].
    by apply (NoDup_image (λ c : claim, (c.1.2, c.2)) (claims o2)); [apply (claimed_once _ _ _ _ Hr2)|..].
  Qed.

  (* What is shown was claimed. *)
  Lemma uid_claimed p m u : uid (state p) m = u → u ≠ 0%N → ∃ o placed, Deliver o ∈ p ∧ (m, placed, nth 0 (reg (state p) REpoch) 0%N, u) ∈ claims o.
  Proof.
    unfold uid. case_bool_decide as He; [|by intros <-]. intros Hu Hne. rewrite contents_after in Hu, He |- *.
    destruct (reg_replay_either (deliveries p) (contents empty) (RClaim m (placed_at (replay apply_op (contents empty) (deliveries p)) m))) as [H|(o & Ho & H)].
    - rewrite H in Hu. by subst u.
    - apply raise_is_claim in H as (epoch & u' & Hv & Hc). rewrite Hv in Hu, He. simpl in Hu, He. subst u' epoch.
      exists o. eexists. split; [by apply elem_of_deliveries|exact Hc].
  Qed.

  Lemma serves_prefix i p d t : serves readers E i p d t → p `prefix_of` history i.
  Proof. induction 1; [apply prefix_nil|done|done]. Qed.

  Lemma serves_delivered i p d t o : serves readers E i p d t → Deliver o ∈ p → Deliver o ∈ history i.
  Proof. intros [k ->]%serves_prefix Ho. apply elem_of_app. by left. Qed.

  Lemma shown_claimed i p d t m name epoch u : serves readers E i p d t → Show m name epoch u ∈ t →
    ∃ o placed, Deliver o ∈ p ∧ (m, placed, epoch, u) ∈ claims o.
  Proof.
    intros Hs. revert m name epoch u. induction Hs as [|p d t e _ IH _|p d t a d' _ IH Hmay _]; intros m name epoch u Hin.
    - by apply elem_of_nil in Hin.
    - destruct (IH _ _ _ _ Hin) as (o & placed & Ho & Hc). exists o, placed. split; [|done]. apply elem_of_app. by left.
    - apply elem_of_app in Hin as [Hin|Hin]; [by eapply IH|]. apply elem_of_list_singleton in Hin as <-.
      destruct Hmay as (_ & _ & Hu & Hne & -> & _). by apply uid_claimed.
  Qed.

  (* A mark is no greater than what was shown or believed. *)
  Definition backed (t : list act) (epoch k : N) : Prop :=
    (k ≤ 1)%N ∨ (∃ m name u, Show m name epoch u ∈ t ∧ (k ≤ u + 1)%N) ∨ (∃ name next, Believe name next ∈ t ∧ (k ≤ next)%N).

  Lemma backed_le t epoch k k' : backed t epoch k → (k' ≤ k)%N → backed t epoch k'.
  Proof.
    intros [H|[(m & n & u & Hin & H)|(n & next & Hin & H)]] Hle; [left; lia|right; left|right; right].
    - exists m, n, u. split; [done|lia].
    - exists n, next. split; [done|lia].
  Qed.

  Lemma backed_max t epoch k k' : backed t epoch k → backed t epoch k' → backed t epoch (N.max k k').
  Proof. intros. by destruct (N.max_dec k k') as [-> | ->]. Qed.

  Lemma backed_more t epoch k a : backed t epoch k → backed (t ++ [a]) epoch k.
  Proof.
    intros [H|[(m & n & u & Hin & H)|(n & next & Hin & H)]]; [by left|right; left|right; right].
    - exists m, n, u. split; [apply elem_of_app; by left|done].
    - exists n, next. split; [apply elem_of_app; by left|done].
  Qed.

  Record sound (d : desk) (t : list act) : Prop := {
    marks_backed n k : marks d !! n = Some k → backed t (era d) k;
    gone_backed n k : gone_marks d !! n = Some k → backed t (era d) k;
    floor_backed : backed t (era d) (floor d);
    shown_acted m n u : shown d !! m = Some (n, u) → ∃ name, Show m name (era d) u ∈ t;
  }.

  Lemma gone_default_backed d t n x : sound d t → backed t (era d) x → backed t (era d) (default x (gone_marks d !! n)).
  Proof. intros Hs Hx. destruct (gone_marks d !! n) as [k|] eqn:Hk; [|done]. by apply (gone_backed _ _ Hs n). Qed.

  Lemma acts_sound d a d' t : acts r d a d' → sound d t → sound d' (t ++ [a]).
  Proof.
    intros Ha Hs.
    assert (∀ n k, marks d !! n = Some k → backed (t ++ [a]) (era d) k) as Hm by (intros; eapply backed_more, marks_backed; eauto).
    assert (∀ n k, gone_marks d !! n = Some k → backed (t ++ [a]) (era d) k) as Hg by (intros; eapply backed_more, gone_backed; eauto).
    assert (backed (t ++ [a]) (era d) (floor d)) as Hf by by apply backed_more, floor_backed.
    assert (∀ m n u, shown d !! m = Some (n, u) → ∃ name, Show m name (era d) u ∈ t ++ [a]) as Hsh.
    { intros m n u Hin. destruct (shown_acted _ _ Hs _ _ _ Hin) as [name ?]. exists name. apply elem_of_app. by left. }
    assert (backed (t ++ [a]) (era d) 0) as Hzero by (left; lia).
    assert (∀ n x, backed (t ++ [a]) (era d) x → backed (t ++ [a]) (era d) (default x (gone_marks d !! n))) as Hgd.
    { intros n x Hx. destruct (gone_marks d !! n) as [k|] eqn:Hk; [|done]. by apply (Hg n). }
    destruct Ha; split; simpl in *; try done.
    - intros m' n' u'. destruct (decide (m = m')) as [->|Hne].
      + rewrite lookup_insert. intros [= <- <-]. exists name. apply elem_of_app. right. by left.
      + rewrite lookup_insert_ne by done. apply Hsh.
    - intros m' n' u' [_ Hin]%lookup_delete_Some. by eapply Hsh.
    - intros n' k'. destruct (decide (name = n')) as [->|Hne].
      + rewrite lookup_insert. intros [= <-]. destruct H2 as [H2|(m & u & Hin & ->)].
        * eapply (backed_le _ _ (N.max 1 k)); [|done]. apply backed_max; [left; lia|by eapply Hm].
        * right. left. destruct (Hsh _ _ _ Hin) as [name ?]. exists m, name, u. split; [done|lia].
      + rewrite lookup_insert_ne by done. apply Hm.
    - intros n' k'. destruct (decide (name = n')) as [->|Hne].
      + rewrite lookup_insert. intros [= <-]. apply backed_max; [by eapply Hm|]. right. right. exists n', next. split; [apply elem_of_app; right; by left|lia].
      + rewrite lookup_insert_ne by done. apply Hm.
    - intros n' k'. destruct (decide (name = n')) as [->|Hne].
      + rewrite lookup_insert. intros [= <-]. apply backed_max; [by apply Hgd|]. apply backed_max; [|done].
        right. right. exists n', next. split; [apply elem_of_app; right; by left|lia].
      + rewrite lookup_insert_ne by done. apply Hg.
    - intros n' k'. destruct (decide (name = n')) as [->|Hne].
      + rewrite lookup_insert. intros [= <-]. by apply Hgd.
      + rewrite lookup_insert_ne by done. apply Hm.
    - intros n' k' [_ Hin]%lookup_delete_Some. by eapply Hg.
    - intros n' k' [_ Hin]%lookup_delete_Some. by eapply Hm.
    - intros n' k'. destruct (marks_stay r); [|apply Hg]. destruct (decide (name = n')) as [->|Hne].
      + rewrite lookup_insert. intros [= <-]. apply backed_max; [by apply Hgd|by eapply Hm].
      + rewrite lookup_insert_ne by done. apply Hg.
    - intros m' n' u' [Hin _]%map_filter_lookup_Some. by eapply Hsh.
    - intros n' k' [_ Hin]%lookup_delete_Some. by eapply Hg.
    - apply backed_max; [done|by eapply Hg].
    - intros n' k' (x & <- & _)%lookup_fmap_Some. left. lia.
    - left. lia.
  Qed.

  Lemma serves_sound i p d t : serves readers E i p d t → sound d t.
  Proof.
    induction 1 as [|p d t e _ IH _|p d t a d' _ IH _ Ha]; [|done|by eapply acts_sound].
    split; simpl; try done. left. lia.
  Qed.

  Lemma mark_backed i p d t n : serves readers E i p d t → backed t (era d) (mark d n).
  Proof.
    intros Hs%serves_sound. unfold mark. destruct (marks d !! n) as [k|] eqn:Hk; [by eapply (marks_backed _ _ Hs)|].
    apply gone_default_backed; [done|]. by apply floor_backed.
  Qed.

  Lemma just_arrived i p o q : history i = p ++ Deliver o :: q → Deliver o ∉ p.
  Proof.
    intros Heq Hin. pose proof (histories_distinct _ _ _ _ E i) as Hnd. rewrite Heq in Hnd. apply NoDup_app in Hnd as (_ & Hd & _). apply (Hd _ Hin). by left.
  Qed.

  Lemma arrives i p o q : history i = p ++ Deliver o :: q → Deliver o ∈ history i.
  Proof. intros ->. apply elem_of_app. right. by left. Qed.

  Lemma with_broadcast j p o q : history j = p ++ Broadcast o :: q → p ++ [Broadcast o] `prefix_of` history j.
  Proof. intros ->. exists q. by rewrite <- app_assoc. Qed.

  (* Marks do not fall within an epoch. *)
  Lemma mark_grows d a d' n : marks_stay r = true → acts r d a d' → era d' = era d → (mark d n ≤ mark d' n)%N.
  Proof.
    intros Hr Ha He. unfold mark. destruct Ha; simpl in *; try done.
    - destruct (decide (name = n)) as [->|]; [rewrite lookup_insert, H; done|by rewrite lookup_insert_ne].
    - destruct (decide (name = n)) as [->|]; [rewrite lookup_insert, H; lia|by rewrite lookup_insert_ne].
    - destruct (decide (name = n)) as [->|]; [|by rewrite lookup_insert_ne]. rewrite H, lookup_insert. simpl.
      destruct (gone_marks d !! n); simpl; lia.
    - destruct (decide (name = n)) as [->|]; [by rewrite H, lookup_insert|by rewrite lookup_insert_ne, lookup_delete_ne].
    - rewrite Hr. destruct (decide (name = n)) as [->|]; [rewrite H, lookup_delete, lookup_insert; simpl; lia|by rewrite lookup_delete_ne, lookup_insert_ne].
    - destruct (marks d !! n) as [x|]; [done|]. destruct (decide (name = n)) as [->|].
      + rewrite H, lookup_delete. simpl. lia.
      + rewrite lookup_delete_ne by done. destruct (gone_marks d !! n); simpl; lia.
    - lia.
  Qed.

  Lemma era_grows d a d' : acts r d a d' → (era d ≤ era d')%N.
  Proof. intros []; simpl; lia. Qed.

  Record honest (d : desk) (t : list act) : Prop := {
    told_marked n next : Tell n (era d) next ∈ t → (next ≤ mark d n)%N;
    told_era n epoch next : Tell n epoch next ∈ t → (epoch ≤ era d)%N;
    told_kept m n epoch next u : before t (Tell n epoch next) (Show m n epoch u) → (next ≤ u)%N;
  }.

  Lemma serves_honest i p d t : marks_stay r = true → late_is_hidden r = true → serves readers E i p d t → honest d t.
  Proof.
    intros Hmarks Hlate. induction 1 as [|p d t e _ IH _|p d t a d' _ IH _ Ha]; [|done|].
    - split; simpl; [intros ?? H|intros ??? H|intros ????? H%before_elem; destruct H as [H _]]; by apply elem_of_nil in H.
    - destruct IH as [H1 H2 H3]. pose proof (era_grows _ _ _ Ha) as Hera. split.
      + intros n next [Hin|Hin]%elem_of_app.
        * destruct (decide (era d' = era d)) as [He|He].
          -- rewrite He in Hin. pose proof (H1 _ _ Hin). pose proof (mark_grows _ _ _ n Hmarks Ha He). lia.
          -- pose proof (H2 _ _ _ Hin). lia.
        * apply elem_of_list_singleton in Hin. subst a. inversion Ha; subst. unfold mark. simpl. by rewrite lookup_insert.
      + intros n epoch next [Hin|Hin]%elem_of_app; [pose proof (H2 _ _ _ Hin); lia|].
        apply elem_of_list_singleton in Hin. subst a. inversion Ha; subst. simpl. lia.
      + intros m n epoch next u [Hb|[Hin Heq]]%before_snoc; [by eapply H3|]. subst a. inversion Ha; subst.
        pose proof (H1 _ _ Hin) as Hle. unfold mark in Hle. match goal with H : marks d !! n = Some _ |- _ => rewrite H in Hle end.
        match goal with H : late_is_hidden r = true → _ |- _ => specialize (H Hlate) end. lia.
  Qed.

  Lemma heard_later p e epoch c : heard r slot readers E p epoch c → heard r slot readers E (p ++ e) epoch c.
  Proof. intros H j o Hj Hb. destruct (H j o Hj Hb) as (q & Hq & Hc & Hall). exists q. split; [done|]. split; [done|]. intros x Hx. apply elem_of_app. left. by apply Hall. Qed.

  Lemma shown_heard i p d t m name epoch u : claims_wait r = true → serves readers E i p d t → Show m name epoch u ∈ t → heard r slot readers E p epoch (N.div u 64).
  Proof.
    intros Hr Hs. revert m name epoch u. induction Hs as [|p d t e _ IH _|p d t a d' _ IH Hmay _]; intros m name epoch u Hin.
    - by apply elem_of_nil in Hin.
    - apply heard_later. by eapply IH.
    - apply elem_of_app in Hin as [Hin|Hin]; [by eapply IH|]. apply elem_of_list_singleton in Hin as <-.
      destruct Hmay as (_ & _ & _ & _ & _ & H). by apply H.
  Qed.
End execution.

Theorem uids_U1 : U1_statement.
Proof.
  intros r Hd Hf slot readers E Hslots i j p q d d' t t' m m' name name' epoch u Hs Hs' Hm Hm'.
  destruct (shown_claimed E _ _ _ _ _ _ _ _ Hs Hm) as (o & st & Ho & Hc). destruct (shown_claimed E _ _ _ _ _ _ _ _ Hs' Hm') as (o' & st' & Ho' & Hc').
  pose proof (serves_delivered E _ _ _ _ _ Hs Ho) as H. pose proof (serves_delivered E _ _ _ _ _ Hs' Ho') as H'.
  by destruct (claims_unique E _ _ _ _ _ _ _ _ _ _ Hd Hf Hslots H H' Hc Hc') as (_ & ? & _).
Qed.

Theorem uids_U2 : U2_statement.
Proof. intros r Hm Hl slot readers E _ i p d t m name epoch next u Hs Hb. pose proof (serves_honest E _ _ _ _ Hm Hl Hs) as H. by apply (told_kept _ _ H) in Hb. Qed.

Theorem uids_U4 : U4_statement.
Proof.
  intros r Hd Hf slot readers E Hslots i p d t o q m placed u name Hs Heq Hc Hlt.
  pose proof (arrives E _ _ _ _ Heq) as Ho.
  pose proof (claim_positive E _ _ _ _ _ _ Hf Ho Hc) as Hpos. pose proof (just_arrived E _ _ _ _ Heq) as Hnew.
  destruct (mark_backed E _ _ _ _ name Hs) as [H|[(m' & name' & u' & Hin & H)|(name' & next & Hin & H)]]; [lia| |left; exists name', next; split; [done|lia]].
  right. destruct (shown_claimed E _ _ _ _ _ _ _ _ Hs Hin) as (o' & placed' & Ho' & Hc').
  pose proof (serves_delivered E _ _ _ _ _ Hs Ho') as Ho''.
  assert (u ≠ u') as Hne.
  { intros <-. destruct (claims_unique E _ _ _ _ _ _ _ _ _ _ Hd Hf Hslots Ho Ho'' Hc Hc') as [<- _]. done. }
  exists m', placed', name', u', o'. split; [done|]. split; [done|]. split; [done|]. split; [lia|]. split; apply not_true_iff_false; intros Hsaw.
  - pose proof (seen_below E _ _ _ _ _ _ _ _ _ _ _ Hf Ho'' Ho Hsaw Hc' Hc). pose proof (N.div_le_mono u u' 64). lia.
  - apply Hnew. apply elem_of_deliveries. eapply (past_delivered (base E) i p o'); [by eapply serves_prefix|by apply elem_of_deliveries|].
    destruct (deliveries_have_causes _ _ _ _ E _ _ Ho'') as [j Hj]. by apply (saw_is_past (base E) j o' i o).
Qed.

Theorem uids_claims_end : claims_end_statement.
Proof.
  intros r Hf Hw slot readers E Hslots i j0 p d t o q m placed u name Hs Heq Hb0 Hreads Hc Hno.
  pose proof (arrives E _ _ _ _ Heq) as Ho.
  pose proof (claim_positive E _ _ _ _ _ _ Hf Ho Hc) as Hpos. pose proof (just_arrived E _ _ _ _ Heq) as Hnew.
  destruct (mark_backed E _ _ _ _ name Hs) as [H|[(m' & name' & u' & Hin & H)|(name' & next & Hin & H)]]; [lia| |apply Hno in Hin; lia].
  pose proof (shown_heard E _ _ _ _ _ _ _ _ Hw Hs Hin) as Hheard.
  destruct (delivered_made E _ _ Ho) as (j & p' & q' & Heq' & Hrule).
  pose proof (made E _ _ _ _ Heq') as Hb.
  destruct (unique_ids _ _ _ _ E _ _ _ _ Hb0 Hb eq_refl) as [-> _].
  destruct (Hheard j o Hreads Hb) as (k & Hk & Hcount & Hall).
  assert (k `prefix_of` p') as Hkp.
  { pose proof (with_broadcast E _ _ _ _ Heq') as Hp'.
    destruct (prefix_weak_total _ _ _ Hp' Hk) as [[x ->]|Hpre].
    - destruct Hnew. apply Hall, elem_of_app. left. apply elem_of_app. right. by left.
    - apply prefix_snoc in Hpre as [?| ->]; [done|]. destruct Hnew. apply Hall, elem_of_app. right. by left. }
  pose proof (counter_grows k p' (era d) Hkp). pose proof (above_counter _ _ _ _ Hrule _ _ _ _ Hf Hc).
  assert (N.div u' 64 < N.div u 64)%N as Hlt by lia.
  destruct (decide (u' < u)%N); [lia|]. pose proof (N.div_le_mono u u' 64). lia.
Qed.
