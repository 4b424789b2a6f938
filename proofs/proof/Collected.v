(* A state from which records were dropped beside the one from which none was: nothing of what was dropped is named any more, and nobody sees it. *)
From Whimbrel.spec Require Import Collection.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker Join Collection Mailboxes.

Lemma deliveries_map (l : list op) : deliveries (Deliver <$> l) = l.
Proof. induction l as [|o l IH]; [done|]. simpl. by f_equal. Qed.

Lemma hidden_is s m : ¬ lives s m ↔ cell s (KMessage m) = ∅ ∧ (reg s (RDelivered m) = [] ∨ reg s (RKilled m) ≠ []).
Proof.
  unfold lives. split.
  - intros Hn. split.
    + destruct (decide (cell s (KMessage m) = ∅)); [done|]. destruct Hn. by left.
    + destruct (decide (reg s (RDelivered m) = [])); [by left|]. right. intros Hk. destruct Hn. by right.
  - intros [Hc Hr] [H|[H1 H2]]; [by apply H|]. by destruct Hr.
Qed.

Lemma greater_nil_inv a b : greater a b = [] → a = [] ∧ b = [].
Proof.
  intros H. pose proof (greater_l a b) as Ha. pose proof (greater_r a b) as Hb. rewrite H in *. by destruct a, b.
Qed.

Lemma join_dots_empty mine theirs : join_dots mine ∅ theirs ∅ = ∅.
Proof. apply set_eq. intros d. unfold join_dots. rewrite elem_of_union, !elem_of_filter. set_solver. Qed.

(* What is hidden at both sides is hidden when they are joined. *)
Lemma hidden_joined mine s theirs t m : ¬ lives (contents s) m → ¬ lives (contents t) m → ¬ lives (contents (join mine s theirs t)) m.
Proof.
  rewrite !hidden_is, cell_join, !reg_join. intros [-> Hs] [-> Ht]. split; [apply join_dots_empty|].
  destruct Hs as [Hs|Hs]; [|right; by intros [? _]%greater_nil_inv]. destruct Ht as [Ht|Ht]; [|right; by intros [_ ?]%greater_nil_inv].
  left. by rewrite Hs, Ht.
Qed.

Section execution.
  Context (E : mailbox_execution).
  Local Notation history := (history _ _ _ _ E).
  Local Notation hb := (happened_before history).
  Local Notation state p := (contents (state_after empty apply p)).

  (* The relation between a state with collections, after [p], and the one without: some messages and mailboxes are gone. The records of these may be there in
     part, after a join: they are hidden in both states, and nobody touches them any more. *)
  Record related (p : list (event op)) (s : replica) (floor : list op) (gone : gset message_id) (gone_boxes : gset box_id) : Prop := {
    rel_applied : applied s = applied (state_after empty apply p);
    rel_floor o : o ∈ floor → o ∈ deliveries p;
    rel_cells k : (∀ m, key_message k = Some m → m ∉ gone) → (∀ b, k = KBox b → b ∉ gone_boxes) → cell (contents s) k = cell (state p) k;
    rel_registers r : (∀ m, register_message r = Some m → m ∉ gone) → (∀ b, register_box r = Some b → b ∉ gone_boxes) → reg (contents s) r = reg (state p) r;
    rel_hidden_here m : m ∈ gone → ¬ lives (contents s) m;
    rel_hidden m : m ∈ gone → ¬ lives (state p) m;
    rel_untouched m : m ∈ gone → ∀ j o, Deliver o ∈ history j → touches o m → o ∈ deliveries p;
    rel_relied m : m ∈ gone → ∀ o, o ∈ deliveries p → touches o m → o ∈ floor;
    (* Who still broadcasts something does not see it. *)
    rel_dead m : m ∈ gone → ∀ j p' o q', history j = p' ++ Broadcast o :: q' → o ∉ deliveries p → ¬ lives (state p') m;
    rel_box_here b : b ∈ gone_boxes → cell (contents s) (KBox b) = ∅;
    rel_box_hidden b : b ∈ gone_boxes → b ≠ INBOX ∧ cell (state p) (KBox b) = ∅;
    rel_box_empty b m : b ∈ gone_boxes → placed_in (state p) m = b → m ∈ gone;
    rel_box_untouched b : b ∈ gone_boxes → ∀ j o, Deliver o ∈ history j → touches_box o b → o ∈ deliveries p;
    rel_box_relied b : b ∈ gone_boxes → ∀ o, o ∈ deliveries p → touches_box o b → o ∈ floor;
  }.

  Lemma related_start : related [] empty [] ∅ ∅.
  Proof. split; try done; intros; set_solver. Qed.

  Lemma related_broadcast p o s floor gone boxes : related p s floor gone boxes → related (p ++ [Broadcast o]) s floor gone boxes.
  Proof.
    assert (deliveries (p ++ [Broadcast o]) = deliveries p) as Hd by (rewrite deliveries_app; simpl; by rewrite app_nil_r).
    assert (state_after empty apply (p ++ [Broadcast o]) = state_after empty apply p) as Heq by (unfold state_after; by rewrite Hd).
    intros [H1 H2 H3 H4 H5 H6 H7 H8 H9 H10 H11 H12 H13 H14]. by split; rewrite ?Heq, ?Hd.
  Qed.

  Lemma state_deliver p o : state_after empty apply (p ++ [Deliver o]) = apply (state_after empty apply p) o.
  Proof. unfold state_after. rewrite deliveries_app. simpl. unfold replay. by rewrite foldl_app. Qed.

  Lemma related_deliver i p o s floor gone boxes : p ++ [Deliver o] `prefix_of` history i →
    related p s floor gone boxes → related (p ++ [Deliver o]) (apply s o) floor gone boxes.
  Proof.
    intros Hpre [H1 H2 H3 H4 H5 H6 H7 H8 H9 H10 H11 H12 H13 H14].
    assert (Deliver o ∈ history i) as Hdel by (destruct Hpre as [r ->]; apply elem_of_app; left; apply elem_of_app; right; by left).
    assert (o ∉ deliveries p) as Hnew.
    { intros Hin%elem_of_deliveries. destruct Hpre as [r Hr]. pose proof (histories_distinct _ _ _ _ E i) as Hnd. rewrite Hr in Hnd.
      apply NoDup_app in Hnd as [(_ & Hd & _)%NoDup_app _]. apply (Hd _ Hin). by left. }
    assert (∀ m, m ∈ gone → ¬ touches o m) as Hnot by (intros m Hm Ht; by apply Hnew, (H7 m Hm i)).
    assert (∀ b, b ∈ boxes → ¬ touches_box o b) as Hnotb by (intros b Hb Ht; by apply Hnew, (H13 b Hb i)).
    assert (∀ x, x ∈ deliveries (p ++ [Deliver o]) ↔ x ∈ deliveries p ∨ x = o) as Hd.
    { intros x. rewrite deliveries_app, elem_of_app. simpl. by rewrite elem_of_list_singleton. }
    split; rewrite ?state_deliver; simpl.
    - by rewrite H1.
    - intros x Hx. apply Hd. left. by apply H2.
    - intros k Hk Hb. apply cell_same; [|by apply H3]. intros e He Ht. eapply (not_own E i o k); [done|]. by exists e.
    - intros r Hr Hb. apply reg_same. by apply H4.
    - intros m Hm Hl. apply (H5 m Hm). revert Hl. apply lives_same; symmetry; [eapply cell_untouched|eapply reg_untouched..]; try done; by apply Hnot.
    - intros m Hm Hl. apply (H6 m Hm). revert Hl. apply lives_same; symmetry; [eapply cell_untouched|eapply reg_untouched..]; try done; by apply Hnot.
    - intros m Hm j x Hx Ht. apply Hd. left. by apply (H7 m Hm j).
    - intros m Hm x [Hx| ->]%Hd Ht; [by apply (H8 m)|]. by destruct (Hnot m Hm).
    - intros m Hm j p' x q' Heq Hx. apply (H9 m Hm j p' x q' Heq). intros Hin. apply Hx, Hd. by left.
    - intros b Hb. rewrite box_cell_untouched by by apply Hnotb. by apply H10.
    - intros b Hb. rewrite box_cell_untouched by by apply Hnotb. by apply H11.
    - intros b m Hb Hm. apply (H12 b m Hb). eapply placed_untouched; [|done]. by apply Hnotb.
    - intros b Hb j x Hx Ht. apply Hd. left. by apply (H13 b Hb j).
    - intros b Hb x [Hx| ->]%Hd Ht; [by apply (H14 b)|]. by destruct (Hnotb b Hb).
  Qed.

  Lemma related_drop i since p m s floor gone boxes : p `prefix_of` history i → may_drop E since p m →
    related p s floor gone boxes → related p (drop_record m s) (deliveries since ++ floor) ({[ m ]} ∪ gone) boxes.
  Proof.
    intros Hp Hdrop [H1 H2 H3 H4 H5 H6 H7 H8 H9 H10 H11 H12 H13 H14].
    pose proof (cell_drop m s) as Hc. pose proof (reg_drop m s) as Hr.
    assert (∀ x, x ∈ deliveries p → touches x m → x ∈ deliveries since) as Hback by (intros x Hx Ht; by destruct (not_named _ _ _ _ Hdrop x Hx)).
    split.
    - done.
    - intros o [Ho|Ho]%elem_of_app; [|by apply H2]. destruct (earlier _ _ _ _ Hdrop) as [r ->]. rewrite deliveries_app. apply elem_of_app. by left.
    - intros k Hk Hb. rewrite Hc, decide_False by (intros Hn; apply (Hk m Hn); set_solver). apply H3; [|done]. intros m' Hm'. specialize (Hk m' Hm'). set_solver.
    - intros r Hk Hb. rewrite Hr, decide_False by (intros Hn; apply (Hk m Hn); set_solver). apply H4; [|done]. intros m' Hm'. specialize (Hk m' Hm'). set_solver.
    - intros m' Hm'. rewrite hidden_is, Hc, !Hr. simpl. destruct (decide (Some m' = Some m)) as [_|Hne]; [by split; [|left]|].
      apply hidden_is, H5. set_solver.
    - intros m' [->%elem_of_singleton|Hm']%elem_of_union; [by eapply still_hidden|by apply H6].
    - intros m' [->%elem_of_singleton|Hm']%elem_of_union j o Ho Ht; [|by apply (H7 m' Hm' j)].
      apply elem_of_deliveries. eapply (nobody_touches E i since p m Hp Hdrop j (history j)); [done|by apply elem_of_deliveries|done].
    - intros m' [->%elem_of_singleton|Hm']%elem_of_union o Ho Ht; apply elem_of_app; [left; by apply Hback|right; by apply (H8 m')].
    - intros m' [->%elem_of_singleton|Hm']%elem_of_union; [|by apply H9]. intros j p' o q' Heq Hn. eapply maker_sees_none; [done|done|exact Heq|].
      by rewrite <- elem_of_deliveries.
    - intros b Hb. rewrite Hc. simpl. by apply H10.
    - done.
    - intros b m' Hb Hm'. apply elem_of_union. right. by apply (H12 b).
    - done.
    - intros b Hb o Ho Ht. apply elem_of_app. right. by apply (H14 b).
  Qed.

  Lemma related_drop_box i since p b s floor gone boxes : p `prefix_of` history i → may_drop_box E since p b → emptied since s b →
    related p s floor gone boxes → related p (drop_box b s) (deliveries since ++ floor) gone ({[ b ]} ∪ boxes).
  Proof.
    intros Hp Hdrop Hempty [H1 H2 H3 H4 H5 H6 H7 H8 H9 H10 H11 H12 H13 H14].
    pose proof (cell_drop_box b s) as Hc. pose proof (reg_drop_box b s) as Hr.
    assert (∀ m, reg (contents s) (RPlace m) = [] → reg (state p) (RPlace m) ≠ [] → m ∈ gone) as Hgone.
    { intros m Hs Hne. destruct (decide (m ∈ gone)) as [|Hm]; [done|]. destruct Hne. rewrite <- H4; [done|by intros ? [= <-]|done]. }
    assert (∀ m, placed_in (state since) m = b → m ∈ gone) as Hall.
    { intros m Hm. apply Hgone; [by apply Hempty|]. intros Hnil.
      pose proof (place_above since p m) as Ha. rewrite Hnil in Ha. unfold placed_in in Hm.
      destruct (reg (state since) (RPlace m)) as [|x l]; [destruct (not_inbox E since p b Hdrop); exact (eq_sym Hm)|].
      discriminate Ha. intros y Hy. destruct (box_earlier _ _ _ _ Hdrop) as [r ->]. rewrite deliveries_app. apply elem_of_app. by left. }
    assert (∀ m, placed_in (state since) m = b → ∀ j p' o q', history j = p' ++ Broadcast o :: q' → Deliver o ∉ p → ¬ lives (state p') m) as Hdead.
    { intros m Hm j p' o q' Heq Hn. apply (H9 m (Hall m Hm) j p' o q' Heq). by rewrite elem_of_deliveries. }
    split.
    - done.
    - intros o [Ho|Ho]%elem_of_app; [|by apply H2]. destruct (box_earlier _ _ _ _ Hdrop) as [r ->]. rewrite deliveries_app. apply elem_of_app. by left.
    - intros k Hk Hb. rewrite Hc, decide_False by (intros Hn; apply (Hb b Hn); set_solver). apply H3; [done|]. intros b' Hb'. specialize (Hb b' Hb'). set_solver.
    - intros r Hk Hb. rewrite Hr, decide_False by (intros Hn; apply (Hb b Hn); set_solver). apply H4; [done|]. intros b' Hb'. specialize (Hb b' Hb'). set_solver.
    - intros m Hm. rewrite hidden_is, Hc, !Hr. simpl. by apply hidden_is, H5.
    - done.
    - done.
    - intros m Hm o Ho Ht. apply elem_of_app. right. by apply (H8 m).
    - done.
    - intros b' Hb'. rewrite Hc. destruct (decide (KBox b' = KBox b)) as [|Hne]; [done|]. apply H10. set_solver.
    - intros b' [->%elem_of_singleton|Hb']%elem_of_union; [|by apply H11]. split; [by eapply not_inbox|by eapply still_no_dots].
    - intros b' m [->%elem_of_singleton|Hb']%elem_of_union Hm; [|by apply (H12 b')].
      eapply lay_in_it in Hm as [Hs _]; [by apply Hall|done..].
    - intros b' [->%elem_of_singleton|Hb']%elem_of_union j o Ho Ht; [|by apply (H13 b' Hb' j)].
      apply elem_of_deliveries. eapply (nobody_touches_box E i since p b Hp Hdrop Hdead j (history j)); [done|by apply elem_of_deliveries|done].
    - intros b' [->%elem_of_singleton|Hb']%elem_of_union o Ho Ht; apply elem_of_app; [left; by eapply back_to_since|right; by apply (H14 b')].
  Qed.

  Section joined.
    Context (i j : nat) (p q : list (event op)) (s t : replica) (floor floor' : list op) (gone gone' : gset message_id) (boxes boxes' : gset box_id).
    Context (mine theirs : gmap N N) (Hp : p `prefix_of` history i) (Hq : q `prefix_of` history j).
    Context (Hs : related p s floor gone boxes) (Ht : related q t floor' gone' boxes').
    Context (Hmine : vector_of mine s) (Htheirs : vector_of theirs t).
    Context (Hold : ∀ o, o ∈ floor → o ∈ deliveries q) (Hnew : deliveries p = [] ∨ ∀ o, o ∈ floor' → o ∈ deliveries p).
    Local Notation more := (missing s (deliveries q)).
    Local Notation after := (p ++ (Deliver <$> more)).

    Lemma more_full : more = missing (state_after empty apply p) (deliveries q).
    Proof. unfold missing. by rewrite (rel_applied _ _ _ _ _ Hs). Qed.

    Lemma after_is_join : state_after empty apply after = join mine (state_after empty apply p) theirs (state_after empty apply q).
    Proof.
      rewrite (join_is_replay E i j p q Hp Hq mine theirs), <- more_full.
      - unfold state_after. rewrite deliveries_app, deliveries_map. unfold replay. by rewrite foldl_app.
      - intros d Hd. rewrite <- (rel_applied _ _ _ _ _ Hs). by apply Hmine.
      - intros d Hd. rewrite <- (rel_applied _ _ _ _ _ Ht). by apply Htheirs.
    Qed.

    Lemma in_after o : o ∈ deliveries after ↔ o ∈ deliveries p ∨ o ∈ deliveries q.
    Proof. rewrite deliveries_app, deliveries_map, more_full. by apply (elem_of_both E i j p q Hp Hq). Qed.

    Lemma of_history o : o ∈ deliveries p ∨ o ∈ deliveries q → ∃ k, Deliver o ∈ history k.
    Proof. intros [H|H]; [exists i; by eapply prefix_delivered|exists j; by eapply prefix_delivered]. Qed.

    (* What is gone at one side is hidden at the other. *)
    Lemma gone_there m : m ∈ gone → ¬ lives (state q) m.
    Proof.
      intros Hm Hl. apply (rel_hidden _ _ _ _ _ Hs m Hm). revert Hl. apply (same_record E j i q p m Hq Hp). intros o Ho. split; intros Hin.
      - apply (rel_untouched _ _ _ _ _ Hs m Hm j); [by eapply prefix_delivered|done].
      - by apply Hold, (rel_relied _ _ _ _ _ Hs m Hm).
    Qed.

    Lemma gone_here m : m ∈ gone' → ¬ lives (state p) m.
    Proof.
      intros Hm Hl. destruct Hnew as [Hnil|Hnew'].
      - unfold state_after in Hl. rewrite Hnil in Hl. by destruct Hl as [H|[H _]].
      - apply (rel_hidden _ _ _ _ _ Ht m Hm). revert Hl. apply (same_record E i j p q m Hp Hq). intros o Ho. split; intros Hin.
        + apply (rel_untouched _ _ _ _ _ Ht m Hm i); [by eapply prefix_delivered|done].
        + by apply Hnew', (rel_relied _ _ _ _ _ Ht m Hm).
    Qed.

    Lemma lives_agree p' s' f g bs m : related p' s' f g bs → m ∉ g → lives (contents s') m ↔ lives (state p') m.
    Proof.
      intros Hr Hm. apply lives_same; [apply (rel_cells _ _ _ _ _ Hr)|apply (rel_registers _ _ _ _ _ Hr)..]; try done; by intros ? [= <-].
    Qed.

    Lemma hidden_both m : m ∈ gone ∪ gone' → ¬ lives (contents s) m ∧ ¬ lives (contents t) m ∧ ¬ lives (state p) m ∧ ¬ lives (state q) m.
    Proof.
      intros Hm. assert (¬ lives (state p) m ∧ ¬ lives (state q) m) as [H1 H2].
      { apply elem_of_union in Hm as [Hm|Hm]; (split; [|]).
        - by apply (rel_hidden _ _ _ _ _ Hs).
        - by apply gone_there.
        - by apply gone_here.
        - by apply (rel_hidden _ _ _ _ _ Ht). }
      split_and!; [..|done|done].
      - destruct (decide (m ∈ gone)) as [Hg|Hg]; [by apply (rel_hidden_here _ _ _ _ _ Hs)|]. by rewrite (lives_agree _ _ _ _ _ _ Hs Hg).
      - destruct (decide (m ∈ gone')) as [Hg|Hg]; [by apply (rel_hidden_here _ _ _ _ _ Ht)|]. by rewrite (lives_agree _ _ _ _ _ _ Ht Hg).
    Qed.

    (* The same of mailboxes. *)
    Lemma no_dots_there b : b ∈ boxes → cell (state q) (KBox b) = ∅.
    Proof.
      intros Hb. rewrite (same_box E j i q p b Hq Hp); [by apply (rel_box_hidden _ _ _ _ _ Hs)|]. intros o Ho. split; intros Hin.
      - apply (rel_box_untouched _ _ _ _ _ Hs b Hb j); [by eapply prefix_delivered|done].
      - by apply Hold, (rel_box_relied _ _ _ _ _ Hs b Hb).
    Qed.

    Lemma no_dots_here b : b ∈ boxes' → cell (state p) (KBox b) = ∅.
    Proof.
      intros Hb. destruct Hnew as [Hnil|Hnew'].
      - unfold state_after. by rewrite Hnil.
      - rewrite (same_box E i j p q b Hp Hq); [by apply (rel_box_hidden _ _ _ _ _ Ht)|]. intros o Ho. split; intros Hin.
        + apply (rel_box_untouched _ _ _ _ _ Ht b Hb i); [by eapply prefix_delivered|done].
        + by apply Hnew', (rel_box_relied _ _ _ _ _ Ht b Hb).
    Qed.

    Lemma no_dots_both b : b ∈ boxes ∪ boxes' →
      cell (contents s) (KBox b) = ∅ ∧ cell (contents t) (KBox b) = ∅ ∧ cell (state p) (KBox b) = ∅ ∧ cell (state q) (KBox b) = ∅.
    Proof.
      intros Hb. assert (cell (state p) (KBox b) = ∅ ∧ cell (state q) (KBox b) = ∅) as [H1 H2].
      { apply elem_of_union in Hb as [Hb|Hb]; (split; [|]).
        - by apply (rel_box_hidden _ _ _ _ _ Hs).
        - by apply no_dots_there.
        - by apply no_dots_here.
        - by apply (rel_box_hidden _ _ _ _ _ Ht). }
      split_and!; [..|done|done].
      - destruct (decide (b ∈ boxes)) as [Hg|Hg]; [by apply (rel_box_here _ _ _ _ _ Hs)|]. by rewrite (rel_cells _ _ _ _ _ Hs) by (try done; by intros ? [= <-]).
      - destruct (decide (b ∈ boxes')) as [Hg|Hg]; [by apply (rel_box_here _ _ _ _ _ Ht)|]. by rewrite (rel_cells _ _ _ _ _ Ht) by (try done; by intros ? [= <-]).
    Qed.

    (* What lies in a mailbox that is gone at one side lay in it there. *)
    Lemma lies_in p' b m : b ≠ INBOX → (∀ x, x ∈ deliveries p' → x ∈ deliveries after) → (∀ x, x ∈ deliveries after → touches_box x b → x ∈ deliveries p') →
      placed_in (state after) m = b → placed_in (state p') m = b.
    Proof.
      intros Hb Hsub Hback Hm. destruct (placed_same after p' m b Hsub Hback Hb Hm) as [Heq _]. unfold placed_in in *. by rewrite Heq.
    Qed.

    Lemma related_join : related after (join mine s theirs t) (floor ++ floor') (gone ∪ gone') (boxes ∪ boxes').
    Proof.
      split.
      - rewrite after_is_join. simpl. by rewrite (rel_applied _ _ _ _ _ Hs), (rel_applied _ _ _ _ _ Ht).
      - intros o [Ho|Ho]%elem_of_app; apply in_after; [left; by apply (rel_floor _ _ _ _ _ Hs)|right; by apply (rel_floor _ _ _ _ _ Ht)].
      - intros k Hk Hb. rewrite after_is_join, !cell_join. f_equal; [apply (rel_cells _ _ _ _ _ Hs)|apply (rel_cells _ _ _ _ _ Ht)]; intros x Hx;
          first [specialize (Hk x Hx)|specialize (Hb x Hx)]; set_solver.
      - intros r Hk Hb. rewrite after_is_join, !reg_join. f_equal; [apply (rel_registers _ _ _ _ _ Hs)|apply (rel_registers _ _ _ _ _ Ht)]; intros x Hx;
          first [specialize (Hk x Hx)|specialize (Hb x Hx)]; set_solver.
      - intros m Hm. destruct (hidden_both m Hm) as (? & ? & _). by apply hidden_joined.
      - intros m Hm. rewrite after_is_join. destruct (hidden_both m Hm) as (_ & _ & ? & ?). by apply hidden_joined.
      - intros m [Hm|Hm]%elem_of_union k o Ho Hto; apply in_after; [left; by apply (rel_untouched _ _ _ _ _ Hs m Hm k)|right; by apply (rel_untouched _ _ _ _ _ Ht m Hm k)].
      - intros m [Hm|Hm]%elem_of_union o [k Ho]%in_after%of_history Hto; apply elem_of_app; [left|right].
        + apply (rel_relied _ _ _ _ _ Hs m Hm); [|done]. by apply (rel_untouched _ _ _ _ _ Hs m Hm k).
        + apply (rel_relied _ _ _ _ _ Ht m Hm); [|done]. by apply (rel_untouched _ _ _ _ _ Ht m Hm k).
      - intros m [Hm|Hm]%elem_of_union k p' o q' Heq Hn.
        + apply (rel_dead _ _ _ _ _ Hs m Hm k p' o q' Heq). intros Hin. apply Hn, in_after. by left.
        + apply (rel_dead _ _ _ _ _ Ht m Hm k p' o q' Heq). intros Hin. apply Hn, in_after. by right.
      - intros b Hb. rewrite cell_join. destruct (no_dots_both b Hb) as (-> & -> & _). apply join_dots_empty.
      - intros b Hb. rewrite after_is_join, cell_join. destruct (no_dots_both b Hb) as (_ & _ & -> & ->). split; [|apply join_dots_empty].
        apply elem_of_union in Hb as [Hb|Hb]; [by apply (rel_box_hidden _ _ _ _ _ Hs)|by apply (rel_box_hidden _ _ _ _ _ Ht)].
      - intros b m [Hb|Hb]%elem_of_union Hm; apply elem_of_union; [left|right].
        + apply (rel_box_empty _ _ _ _ _ Hs b m Hb). apply lies_in; [by apply (rel_box_hidden _ _ _ _ _ Hs)|..|done].
          * intros x Hx. apply in_after. by left.
          * intros x [k Hx]%in_after%of_history Hto. by apply (rel_box_untouched _ _ _ _ _ Hs b Hb k).
        + apply (rel_box_empty _ _ _ _ _ Ht b m Hb). apply lies_in; [by apply (rel_box_hidden _ _ _ _ _ Ht)|..|done].
          * intros x Hx. apply in_after. by right.
          * intros x [k Hx]%in_after%of_history Hto. by apply (rel_box_untouched _ _ _ _ _ Ht b Hb k).
      - intros b [Hb|Hb]%elem_of_union k o Ho Hto; apply in_after; [left; by apply (rel_box_untouched _ _ _ _ _ Hs b Hb k)|right; by apply (rel_box_untouched _ _ _ _ _ Ht b Hb k)].
      - intros b [Hb|Hb]%elem_of_union o [k Ho]%in_after%of_history Hto; apply elem_of_app; [left|right].
        + apply (rel_box_relied _ _ _ _ _ Hs b Hb); [|done]. by apply (rel_box_untouched _ _ _ _ _ Hs b Hb k).
        + apply (rel_box_relied _ _ _ _ _ Ht b Hb); [|done]. by apply (rel_box_untouched _ _ _ _ _ Ht b Hb k).
    Qed.
  End joined.

  Lemma relation i p s floor : collects E i p s floor → p `prefix_of` history i ∧ ∃ gone boxes, related p s floor gone boxes.
  Proof.
    induction 1 as [i|i p o s floor _ [Hp (gone & boxes & IH)] Hpre|i p o s floor _ [Hp (gone & boxes & IH)] Hpre|i since p m s floor _ [Hp (gone & boxes & IH)] Hdrop
      |i since p b s floor _ [Hp (gone & boxes & IH)] Hdrop Hempty
      |i j p q s t floor floor' mine theirs _ [Hp (gone & boxes & IH)] _ [Hq (gone' & boxes' & IH')] Hpre Hmine Htheirs Hold Hnew].
    - split; [apply prefix_nil|]. exists ∅, ∅. apply related_start.
    - split; [done|]. exists gone, boxes. by apply related_broadcast.
    - split; [done|]. exists gone, boxes. by eapply related_deliver.
    - split; [done|]. exists ({[ m ]} ∪ gone), boxes. by eapply related_drop.
    - split; [done|]. exists gone, ({[ b ]} ∪ boxes). by eapply related_drop_box.
    - split; [done|]. exists (gone ∪ gone'), (boxes ∪ boxes'). by eapply related_join.
  Qed.

  Section same.
    Context (p : list (event op)) (s : replica) (relied : list op) (gone : gset message_id) (boxes : gset box_id) (Hrel : related p s relied gone boxes).

    Lemma same_cell k : (∀ m, key_message k = Some m → m ∉ gone) → (∀ b, k = KBox b → b ∉ boxes) → cell (contents s) k = cell (state p) k.
    Proof. apply (rel_cells _ _ _ _ _ Hrel). Qed.
    Lemma same_reg r : (∀ m, register_message r = Some m → m ∉ gone) → (∀ b, register_box r = Some b → b ∉ boxes) → reg (contents s) r = reg (state p) r.
    Proof. apply (rel_registers _ _ _ _ _ Hrel). Qed.

    Lemma lives_related m : lives (contents s) m ↔ lives (state p) m.
    Proof.
      destruct (decide (m ∈ gone)) as [Hm|Hm].
      - split; intros H; exfalso; [by apply (rel_hidden_here _ _ _ _ _ Hrel m Hm)|by apply (rel_hidden _ _ _ _ _ Hrel m Hm)].
      - by apply (lives_agree _ _ _ _ _ _ Hrel).
    Qed.

    Lemma living_is_there m : lives (contents s) m → m ∉ gone.
    Proof. intros H Hm. by apply (rel_hidden_here _ _ _ _ _ Hrel m Hm). Qed.

    Lemma same_boxes b : box_exists (contents s) b ↔ box_exists (state p) b.
    Proof.
      assert (∀ m, lives (contents s) m → placed_in (contents s) m = placed_in (state p) m) as Hplace.
      { intros m Hm. unfold placed_in. rewrite (same_reg (RPlace m)); [done| |done]. intros ? [= <-]. by apply living_is_there. }
      destruct (decide (b ∈ boxes)) as [Hb|Hb].
      - destruct (rel_box_hidden _ _ _ _ _ Hrel b Hb) as [Hi Hc].
        split; intros [?|[H|(m & Hm & Hl)]]; exfalso; [done|by apply H, (rel_box_here _ _ _ _ _ Hrel)| |done|by apply H|].
        + apply (living_is_there m Hm). apply (rel_box_empty _ _ _ _ _ Hrel b m Hb). by rewrite <- Hplace.
        + apply lives_related in Hm. apply (living_is_there m Hm). by apply (rel_box_empty _ _ _ _ _ Hrel b m Hb).
      - unfold box_exists. rewrite (same_cell (KBox b)) by (try done; by intros ? [= <-]).
        split; intros [?|[?|(m & Hm & Hl)]]; [by left|by right; left| |by left|by right; left|]; right; right; exists m.
        + rewrite <- Hplace by done. split; [by apply lives_related|done].
        + apply lives_related in Hm. by rewrite Hplace.
    Qed.

    Lemma existing_is_there b : box_exists (contents s) b → b ∉ boxes.
    Proof.
      intros [->|[H|(m & Hm & Hl)]] Hb.
      - by destruct (rel_box_hidden _ _ _ _ _ Hrel _ Hb).
      - by apply H, (rel_box_here _ _ _ _ _ Hrel).
      - apply (living_is_there m Hm). apply (rel_box_empty _ _ _ _ _ Hrel b m Hb). rewrite <- Hl. unfold placed_in. rewrite (same_reg (RPlace m)); [done| |done].
        intros ? [= <-]. by apply living_is_there.
    Qed.

    Lemma seen_same : looks_same (contents s) (state p).
    Proof.
      assert (∀ r m, lives (contents s) m → register_message r = Some m → reg (contents s) r = reg (state p) r) as Hreg.
      { intros r m Hm Hr. apply same_reg; [|by destruct r]. intros m'. rewrite Hr. intros [= <-]. by apply living_is_there. }
      assert (∀ m f, lives (contents s) m → cell (contents s) (KFlag m f) = cell (state p) (KFlag m f)) as Hcell.
      { intros m f Hm. apply same_cell; [|done]. intros ? [= <-]. by apply living_is_there. }
      assert (∀ m, lives (contents s) m → placed_in (contents s) m = placed_in (state p) m ∧ placed_at (contents s) m = placed_at (state p) m) as Hplace.
      { intros m Hm. unfold placed_in, placed_at. by rewrite !(Hreg (RPlace m) m). }
      assert (reg (contents s) REpoch = reg (state p) REpoch) as Hepoch by by apply same_reg.
      split.
      - apply lives_related.
      - done.
      - intros m Hm. unfold uid. destruct (Hplace m Hm) as [_ ->]. by rewrite (Hreg (RClaim m _) m), Hepoch.
      - intros m f Hm. unfold has_flag. case_bool_decide; by rewrite (Hcell m f), ?(Hreg (REverDeleted m) m).
      - intros m Hm. by apply (Hreg _ m).
      - apply same_boxes.
      - intros b Hb%existing_is_there. unfold box_name. by rewrite !same_reg by (try done; by intros ? [= <-]).
      - intros name. unfold subscribed. by rewrite same_cell.
      - intros r Hr. rewrite !elem_of_cons, elem_of_nil in Hr.
        destruct Hr as [[->|[->|[->|[]]]]|[[e ->]|(e & slot & ->)]]; by apply same_reg.
    Qed.

    Lemma seen_dots o k ds : RemoveDots k ds ∈ effects o → cell (contents s) k = cell (state p) k.
    Proof.
      intros [(b & ->)|[(n & ->)|(m & ->)]]%removed_dots.
      - destruct (decide (b ∈ boxes)) as [Hb|Hb]; [|apply same_cell; [done|by intros ? [= <-]]].
        rewrite (rel_box_here _ _ _ _ _ Hrel b Hb). by destruct (rel_box_hidden _ _ _ _ _ Hrel b Hb) as [_ ->].
      - by apply same_cell.
      - destruct (decide (m ∈ gone)) as [Hm|Hm]; [|apply same_cell; [by intros ? [= <-]|done]].
        pose proof (rel_hidden_here _ _ _ _ _ Hrel m Hm) as [-> _]%hidden_is. by pose proof (rel_hidden _ _ _ _ _ Hrel m Hm) as [-> _]%hidden_is.
    Qed.

    Lemma valid_same o : valid s o ↔ valid (state_after empty apply p) o.
    Proof.
      split; intros [H1 H2 H3 H4 H5 H6]; (split; [done|done|..]).
      - intros d. rewrite <- (rel_applied _ _ _ _ _ Hrel). apply H3.
      - intros k ds Hk. rewrite <- (seen_dots _ _ _ Hk). by apply H4.
      - intros m Hm. by apply lives_related, H5.
      - intros b Hb. by apply same_boxes, H6.
      - intros d. rewrite (rel_applied _ _ _ _ _ Hrel). apply H3.
      - intros k ds Hk. rewrite (seen_dots _ _ _ Hk). by apply H4.
      - intros m Hm. by apply lives_related, H5.
      - intros b Hb. by apply same_boxes, H6.
    Qed.
  End same.
End execution.

Theorem collection_is_invisible : collection_statement.
Proof.
  intros E i p s floor (_ & gone & boxes & Hrel)%relation. split; [by eapply seen_same|]. intros o. by eapply valid_same.
Qed.
