(* Two laws give the whole table: what was put in and not undone survives, and what its remover had seen is gone. *)
From Whimbrel.spec Require Import Conflicts.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox.

Global Instance takes_dec saw e k d : Decision (takes saw e k d).
Proof. destruct e; simpl; apply _. Defined.

Lemma op_takes_dec o k d : op_takes o k d ∨ ¬ op_takes o k d.
Proof.
  destruct (decide (Exists (λ e, takes (saw o) e k d) (effects o))) as [H|H]; rewrite Exists_exists in H; [by left|by right].
Qed.

Lemma takes_how o k d : op_takes o k d → (puts o k ∧ saw o d = true) ∨ removes o k.
Proof.
  intros ([k'|k'|k' ds|r v] & He & Ht); simpl in Ht; [| | |done]; destruct Ht as [-> Ht].
  - by left.
  - right. by right.
  - right. left. by exists ds.
Qed.

(* The last who put a dot in after [a], knowing of it, is there. *)
Lemma survivor l a k :
  (∀ o, o ∈ l → ¬ op_takes o k (op_dot o)) →
  (∀ o r, o ∈ l → r ∈ l → op_takes r k (op_dot o) → saw r (op_dot o) = true) →
  (∀ o1 o2 o3, o1 ∈ l → o2 ∈ l → o3 ∈ l → saw o2 (op_dot o1) = true → saw o3 (op_dot o2) = true → saw o3 (op_dot o1) = true) →
  a ∈ l → puts a k → not_undone l a k →
  ∃ o, o ∈ l ∧ (o = a ∨ saw o (op_dot a) = true) ∧ op_dot o ∈ cell (replay apply_op (contents empty) l) k.
Proof.
  intros Hown Hsaw Htrans Ha Hputs Hundone. induction l as [|o l IH] using rev_ind; [by apply elem_of_nil in Ha|].
  assert (∀ x, x ∈ l → x ∈ l ++ [o]) as Hin by (intros; apply elem_of_app; by left).
  assert (o ∈ l ++ [o]) as Ho by (apply elem_of_app; right; by left).
  assert (puts o k → op_dot o ∈ cell (replay apply_op (contents empty) (l ++ [o])) k) as Hmine.
  { intros Hp. rewrite replay_snoc, cell_effects; [right; by split|]. intros e He Ht. apply (Hown o Ho). by exists e. }
  apply elem_of_app in Ha as [Ha| ->%elem_of_list_singleton].
  - destruct IH as (o' & Ho' & Hor & Hd).
    { intros x Hx. by apply Hown, Hin. }
    { intros x r Hx Hr. apply Hsaw; by apply Hin. }
    { intros o1 o2 o3 H1 H2 H3. apply Htrans; by apply Hin. }
    { done. }
    { intros r Hr. by apply Hundone, Hin. }
    assert (op_takes o k (op_dot o') → saw o (op_dot a) = true) as Hsa.
    { intros Ht. apply Hsaw in Ht; [|by apply Hin|done]. destruct Hor as [->|Hor]; [done|]. by apply (Htrans a o' o); [apply Hin|apply Hin|..]. }
    destruct (op_takes_dec o k (op_dot o')) as [Ht|Hn].
    + specialize (Hsa Ht). destruct (takes_how _ _ _ Ht) as [[Hp _]|Hr].
      * exists o. split; [done|]. split; [by right|]. by apply Hmine.
      * specialize (Hundone o Ho Hr). congruence.
    + exists o'. split; [by apply Hin|]. split; [done|]. rewrite replay_snoc, cell_effects.
      * left. split; [done|]. intros e He Ht. apply Hn. by exists e.
      * intros e He Ht. apply (Hown o Ho). by exists e.
  - exists o. split; [done|]. split; [by left|]. by apply Hmine.
Qed.

Section rows.
  Context (E : mailbox_execution).
  Local Notation history := (history _ _ _ _ E).
  Local Notation hb := (happened_before history).

  Lemma saw_delivered j o p q i o' : history j = p ++ Broadcast o :: q → Deliver o' ∈ history i → saw o (op_dot o') = true → Deliver o' ∈ p.
  Proof.
    intros Heq Ho' Hs. pose proof (valid_broadcasts _ _ _ _ E _ _ _ _ Heq) as Hv.
    apply (deps_exact _ _ Hv) in Hs; [|by eapply delivered_numbered]. apply applied_delivered in Hs as (o2 & H2 & Hid).
    by assert (o2 = o') as -> by (apply (delivered_same E j i); [rewrite Heq; apply elem_of_app; by left|done|done]).
  Qed.

  Lemma delivered_saw j o p q o' : history j = p ++ Broadcast o :: q → Deliver o' ∈ p → saw o (op_dot o') = true.
  Proof.
    intros Heq Ho'. pose proof (valid_broadcasts _ _ _ _ E _ _ _ _ Heq) as Hv. apply (deps_exact _ _ Hv).
    - apply (delivered_numbered E j). rewrite Heq. apply elem_of_app. by left.
    - apply applied_delivered. by exists o'.
  Qed.

  Lemma saw_trans i o1 o2 o3 : Deliver o1 ∈ history i → Deliver o2 ∈ history i → Deliver o3 ∈ history i →
    saw o2 (op_dot o1) = true → saw o3 (op_dot o2) = true → saw o3 (op_dot o1) = true.
  Proof.
    intros H1 H2 H3 H12 H23. destruct (deliveries_have_causes _ _ _ _ E _ _ H2) as [j2 Hj2].
    pose proof (saw_is_past E _ _ _ _ Hj2 H1 H12) as Hhb.
    destruct (deliveries_have_causes _ _ _ _ E _ _ H3) as [j3 (p & q & Heq)%elem_of_list_split].
    pose proof (saw_delivered _ _ _ _ _ _ Heq H2 H23) as (p1 & p2 & ->)%elem_of_list_split.
    eapply delivered_saw; [done|]. apply elem_of_app. left.
    eapply (delivered_before_piece E j3 p1 o2); [|done]. rewrite Heq, <- app_assoc. done.
  Qed.

  Lemma reached_facts l s : reached E l s →
    s = replay apply_op (contents empty) l ∧ ∃ i p, p `prefix_of` history i ∧ l = deliveries p ∧ ∀ o, o ∈ l → Deliver o ∈ p ∧ Deliver o ∈ history i ∧ ∃ j, Broadcast o ∈ history j.
  Proof.
    intros (i & p & Hp & -> & ->). split; [by unfold state_after; rewrite contents_replay|]. exists i, p. split; [done|]. split; [done|].
    intros o Ho%elem_of_deliveries. split; [done|]. split; [|by eapply delivered_was_broadcast].
    destruct Hp as [q ->]. apply elem_of_app. by left.
  Qed.

  Lemma reached_own l s o k : reached E l s → o ∈ l → ¬ op_takes o k (op_dot o).
  Proof. intros (_ & i & p & _ & _ & H)%reached_facts Ho. destruct (H o Ho) as (_ & _ & j & Hj). by eapply takes_not_own. Qed.

  Lemma survives l s a k : reached E l s → a ∈ l → puts a k → not_undone l a k → cell s k ≠ ∅.
  Proof.
    intros Hr Ha Hp Hu. pose proof Hr as (Hs & i & p & Hpre & Hl & H)%reached_facts.
    destruct (survivor l a k) as (o & _ & _ & Hd); [| | |done|done|done|].
    - intros o Ho. by eapply reached_own.
    - intros o r Ho Hr' Ht. destruct (H r Hr') as (_ & _ & j & Hj). by eapply takes_saw.
    - intros o1 o2 o3 H1 H2 H3. apply (saw_trans i); by apply H.
    - rewrite <- Hs in Hd. intros Hn. rewrite Hn in Hd. by apply not_elem_of_empty in Hd.
  Qed.

  Lemma gone l s d k : reached E l s → d ∈ l → removes d k → all_seen_by l d k → cell s k = ∅.
  Proof.
    intros Hr Hd Hrem Hseen. pose proof Hr as (Hs & i & p & Hpre & Hl & H)%reached_facts.
    assert (∀ x, x ∉ cell s k) as Hnone; [|apply set_eq; intros x; split; [intros Hx; by apply Hnone in Hx|by intros ?%not_elem_of_empty]].
    intros x Hx. rewrite Hs in Hx.
    apply cell_replay in Hx as [(o & Ho & Hid & Hp) Hnot]; [|rewrite Hl; by eapply orderly_deliveries|intros; by eapply reached_own].
    pose proof (Hseen o Ho Hp) as Hsaw. rewrite Hid in Hsaw.
    destruct Hrem as [[ds Hds]|Hrem].
    - destruct (H d Hd) as (Hdp & Hdi & j & (p' & q' & Heq)%elem_of_list_split).
      pose proof (valid_broadcasts _ _ _ _ E _ _ _ _ Heq) as Hv. apply (Hnot d Hd). exists (RemoveDots k ds). split; [done|]. simpl. split; [done|].
      rewrite (dots_visible _ _ Hv _ _ Hds). unfold state_after. rewrite contents_replay.
      assert (p' `prefix_of` history j) as Hp' by (rewrite Heq; by eexists).
      assert (∀ r, r ∈ deliveries p' → r ∈ l) as Hsub.
      { intros r Hr'%elem_of_deliveries. pose proof (hb_of_delivery E _ _ _ _ _ Heq Hr') as Hhb.
        apply elem_of_list_split in Hdp as (p1 & p2 & Hpp). rewrite Hl, Hpp, deliveries_app. apply elem_of_app. left. apply elem_of_deliveries.
        destruct Hpre as [r' Hr'']. eapply (delivered_before_piece E i p1 d); [|done]. rewrite Hr'', Hpp, <- app_assoc. done. }
      apply cell_replay.
      + by eapply orderly_deliveries.
      + intros o' Ho'. apply Hsub in Ho'. by eapply reached_own.
      + split.
        * exists o. split; [|done]. apply elem_of_deliveries. destruct (H o Ho) as (_ & Hoi & _). eapply saw_delivered; [done|done|by rewrite Hid].
        * intros r Hr'. by apply Hnot, Hsub.
    - apply (Hnot d Hd). exists (RemoveSeen k). by split.
  Qed.

  Lemma register_is l s a r v : reached E l s → a ∈ l → writes_last l a r v → at_most (reg (contents empty) r) v = true → reg s r = v.
  Proof.
    intros (Hs & _)%reached_facts Ha [Hw Hl] H0. rewrite Hs. apply at_most_antisym.
    - apply reg_replay. split; [done|]. intros. by eapply Hl.
    - pose proof (reg_replay l (contents empty) r (reg (replay apply_op (contents empty) l) r)) as [H _].
      destruct H as [_ H]; [apply at_most_refl|]. by eapply H.
  Qed.

  Lemma raised l s a r : reached E l s → a ∈ l → Raise r [1%N] ∈ effects a → reg s r ≠ [].
  Proof.
    intros (Hs & _)%reached_facts Ha Hw. rewrite Hs. intros Hn.
    pose proof (reg_replay l (contents empty) r []) as [H _]. destruct H as [_ H]; [by rewrite Hn|]. by specialize (H a _ Ha Hw).
  Qed.

  Lemma never_raised l s r : reached E l s → reg (contents empty) r = [] → (∀ o v, o ∈ l → Raise r v ∉ effects o) → reg s r = [].
  Proof.
    intros (Hs & _)%reached_facts H0 Hn. rewrite Hs. destruct (reg_replay_either l (contents empty) r) as [H|(o & Ho & H)]; [by rewrite H|].
    by apply Hn in H.
  Qed.

  Lemma reached_timed l s o : reached E l s → o ∈ l → (0 < op_time o)%N.
  Proof.
    intros (_ & i & p & _ & _ & H)%reached_facts Ho. destruct (H o Ho) as (_ & _ & j & Hj). apply broadcast_is_valid in Hj as (? & ? & _ & Hv). by destruct Hv.
  Qed.

  Lemma name_is l s a b to : reached E l s → a ∈ l → writes_last l a (RName b) [op_time a; (op_dot a).1; to] → box_name s b = to.
  Proof.
    intros Hr Ha Hw. unfold box_name. rewrite (register_is _ _ _ _ _ Hr Ha Hw); [done|].
    pose proof (reached_timed _ _ _ Hr Ha) as Ht. unfold reg, empty. simpl. destruct (decide (RName INBOX = RName b)) as [Heq|Hne].
    - injection Heq as <-. rewrite lookup_singleton. cbn [default]. apply at_most_cons. left. done.
    - by rewrite lookup_singleton_ne.
  Qed.

  Lemma place_is l s a m st b : reached E l s → a ∈ l → writes_last l a (RPlace m) (place_value st b) → placed_in s m = b.
  Proof. intros Hr Ha Hw. unfold placed_in. rewrite (register_is _ _ _ _ _ Hr Ha Hw); [by destruct b|done]. Qed.

  Lemma dead l s d m : reached E l s → d ∈ l → removes d (KMessage m) → Raise (RKilled m) [1%N] ∈ effects d → all_seen_by l d (KMessage m) → ¬ lives s m.
  Proof.
    intros Hr Hd Hrem Hk Hseen [H|[_ H]].
    - apply H. by eapply gone.
    - revert H. by eapply raised.
  Qed.

  Lemma delivered_lives l s a m placed b e u c : reached E l s → a ∈ l → op_action a = ADeliver m placed b e u c →
    (∀ r v, r ∈ l → Raise (RKilled m) v ∉ effects r) → lives s m.
  Proof.
    intros Hr Ha Hact Hn. right. split.
    - eapply raised; [done..|]. unfold effects. rewrite Hact. do 2 right. by left.
    - eapply never_raised; [done|done|]. intros. by apply Hn.
  Qed.

  Lemma rename_effects a boxes to b : op_action a = ARename boxes to → b ∈ boxes → puts a (KBox b).
  Proof. intros Hact Hb. unfold puts, effects. rewrite Hact. apply elem_of_list_join. eexists. split; [|by apply elem_of_list_fmap_1]. by left. Qed.

  Lemma expunge_effects d ds m : op_action d = AExpunge ds → m ∈ ds.*1 → removes d (KMessage m) ∧ Raise (RKilled m) [1%N] ∈ effects d.
  Proof.
    intros Hact Hm. apply elem_of_list_fmap in Hm as ([m' dd] & -> & Hm). unfold removes, effects. rewrite Hact. split.
    - left. exists dd. apply elem_of_list_join. eexists. split; [|by apply elem_of_list_fmap_1]. by left.
    - apply elem_of_list_join. eexists. split; [|by apply elem_of_list_fmap_1]. right. by left.
  Qed.

End rows.

Theorem conflict_add_and_delete : holds add_and_delete.
Proof. intros E l s a d b Hr (Ha & _) (Hp & _ & Hu). right. left. by apply (survives E l s a). Qed.

Theorem conflict_added_and_delete : holds added_and_delete.
Proof. intros E l s a d [b m] Hr (Ha & _) (_ & Hp & _ & Hu). left. by apply (survives E l s a). Qed.

Theorem conflict_delivered_and_delete : holds delivered_and_delete.
Proof. intros E l s a d [[[[[b m] placed] e] u] c] Hr (Ha & _) (Hact & _ & Hn). by apply (delivered_lives E l s a m placed b e u c). Qed.

Theorem conflict_placed_and_delete : holds placed_and_delete.
Proof. intros E l s a d [[b m] placed] Hr (Ha & _) (_ & _ & Hw). by apply (place_is E l s a m placed). Qed.

Theorem conflict_seen_and_delete : holds seen_and_delete.
Proof. intros E l s a d [b m] Hr (_ & Hd & _) (_ & _ & Hrem & Hk & Hs). by apply (dead E l s d). Qed.

Theorem conflict_rename_and_delete : holds rename_and_delete.
Proof.
  intros E l s a d [[boxes b] to] Hr (Ha & _) (Hact & Hb & _ & Hu & Hw). exists b. split; [|by apply (name_is E l s a)].
  right. left. apply (survives E l s a); [done..| |done]. by eapply rename_effects.
Qed.

Theorem conflict_rename_and_create : holds rename_and_create.
Proof.
  intros E l s a c [[[[boxes b] b'] to] use] Hr (Ha & Hc & _) (_ & _ & _ & Hw & Hw').
  assert (box_name s b = to) as Hn by by apply (name_is E l s a). assert (box_name s b' = to) as Hn' by by apply (name_is E l s c).
  split; [done|]. split; [done|]. intros m Hl [Hp|Hp]; split; try done; by rewrite Hp.
Qed.

Theorem conflict_create_and_delete : holds create_and_delete.
Proof.
  intros E l s c d [[[[derived name] use] boxes] messages] Hr (Hc & _) (Hact & _ & Hu). right. left. apply (survives E l s c); [done..| |done].
  unfold puts, effects. rewrite Hact. do 2 right. by left.
Qed.

Theorem conflict_flag_set_and_unset : holds flag_set_and_unset.
Proof.
  intros E l s a d [m f] Hr (Ha & _) (Hf & Hp & _ & Hu). simpl. unfold has_flag. rewrite bool_decide_false by done. by apply (survives E l s a).
Qed.

Theorem conflict_deleted_set_and_unset : holds deleted_set_and_unset.
Proof.
  intros E l s a d m Hr (Ha & _) (Hp & _ & Hu). simpl. unfold has_flag. rewrite bool_decide_true by done. intros [_ H]. revert H. by apply (survives E l s a).
Qed.

Theorem conflict_rescue_and_expunge : holds rescue_and_expunge.
Proof. intros E l s a d m Hr (Ha & _) (Hp & _ & Hu). left. by apply (survives E l s a). Qed.

Theorem conflict_undeleted_and_expunge : holds undeleted_and_expunge.
Proof.
  intros E l s a d m Hr (Ha & _) (_ & _ & Hp & Hu). simpl. unfold has_flag. rewrite bool_decide_true by done. intros [_ H]. revert H.
  by apply (survives E l s a).
Qed.

Theorem conflict_store_and_expunge : holds store_and_expunge.
Proof.
  intros E l s a d [[[[messages set] clear] m] ds] Hr (_ & Hd & _) (_ & _ & Hact & Hm & Hs).
  destruct (expunge_effects _ _ _ Hact Hm). by apply (dead E l s d).
Qed.

Theorem conflict_move_and_move : holds move_and_move.
Proof. intros E l s a b [[[[[[ba bb] ea] eb] es] es'] m] Hr (Ha & _) (_ & _ & _ & _ & Hw). by apply (place_is E l s a m (op_stamp a)). Qed.

Theorem conflict_copy_and_expunge : holds copy_and_expunge.
Proof.
  intros E l s a d [[[[b epoch] entries] i] ds] Hr (Ha & _) (Hact & _ & (entry & He & _) & Hu). left. apply (survives E l s a); [done..| |done].
  unfold puts, effects. rewrite Hact. right. apply elem_of_list_join.
  exists (copy_effects a b epoch i entry). split; [right; by left|]. apply elem_of_list_lookup. exists i. by rewrite list_lookup_imap, He.
Qed.

Theorem conflict_rename_and_rename : holds rename_and_rename.
Proof. intros E l s a a' [[[[boxes boxes'] b] to] to'] Hr (Ha & _) (_ & _ & _ & _ & Hw). by apply (name_is E l s a). Qed.

Theorem conflict_subscribe_and_unsubscribe : holds subscribe_and_unsubscribe.
Proof.
  intros E l s a d [name dots] Hr (Ha & _) (Hact & _ & Hu). apply (survives E l s a); [done..| |done]. unfold puts, effects. rewrite Hact. by left.
Qed.

Theorem conflict_delivered_by_two : holds delivered_by_two.
Proof.
  intros E l s a a' [[[[[[[m placed] b] e] u] e'] u'] c] Hr (Ha & _) ([Hact _] & Hn). by apply (delivered_lives E l s a m placed b e u c).
Qed.

Theorem conflict_delivered_in_one_place : holds delivered_in_one_place.
Proof. intros E l s a a' [[[[[[[m placed] b] e] u] e'] u'] c] Hr (Ha & _) (_ & Hw). by apply (place_is E l s a m placed). Qed.

Theorem conflict_delivered_and_expunged : holds delivered_and_expunged.
Proof.
  intros E l s a a' [[[[[[[[[m placed] b] e] u] e'] u'] c] d] ds] Hr _ (_ & Hd & Hact & Hm & Hs).
  destruct (expunge_effects _ _ _ Hact Hm). by apply (dead E l s d).
Qed.
