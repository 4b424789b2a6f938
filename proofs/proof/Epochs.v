(* UIDVALIDITY says which epoch it is, and 32 bits which claim. *)
From Whimbrel.spec Require Import Epochs Executable.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Conflicts Join Collection Uids Checker Refuted Executable Restless Moved.

(* Who writes the registers of birth and epoch. *)
Definition birth_register (r : register) : bool := match r with RCreated | RFloor | REpoch => true | _ => false end.

Lemma birth_not_in_claim r v m placed epoch u : birth_register r = true → Raise r v ∉ claim_effects m placed epoch u.
Proof. intros Hr. unfold claim_effects. rewrite !elem_of_cons, elem_of_nil. by intros [[= -> _]|[[= -> _]|[[= -> _]|[]]]]. Qed.

Lemma birth_not_in_flags r v m fs : birth_register r = true → Raise r v ∉ mjoin (set_flag m <$> fs) ∧ Raise r v ∉ mjoin (clear_flag m <$> fs).
Proof.
  intros Hr. split; intros (l & He & (f & -> & _)%elem_of_list_fmap)%elem_of_list_join; unfold set_flag, clear_flag in He; case_bool_decide;
    rewrite !elem_of_cons, elem_of_nil in He; naive_solver.
Qed.

Lemma birth_raised o r v : birth_register r = true → Raise r v ∈ effects o →
  match op_action o with
  | AOpen created floor => (r = RCreated ∧ v = [created]) ∨ (r = RFloor ∧ v = [floor])
  | AEpoch n => r = REpoch ∧ v = [n]
  | _ => False
  end.
Proof.
  intros Hr He. unfold effects in He.
  assert (∀ ms : list (message_id * gset dot), Raise r v ∉ mjoin (removal_effects <$> ms)) as Hrem.
  { intros ms (l & Hl & (x & -> & _)%elem_of_list_fmap)%elem_of_list_join. unfold removal_effects in Hl. rewrite !elem_of_cons, elem_of_nil in Hl. naive_solver. }
  assert (∀ m' f, Raise r v ∉ clear_flag m' f) as Hclear.
  { intros m' f. unfold clear_flag. case_bool_decide; rewrite elem_of_cons, elem_of_nil; naive_solver. }
  destruct (op_action o) as [created floor|derived name use|boxes messages|boxes to|name|name dots|b ep u' flags content|m' pl b ep u' content
    |b ep entries|b ep entries|messages set clear rescue|messages|ep cs|cnt ep|uidvalidity].
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - apply elem_of_app in He as [(b & [=] & _)%elem_of_list_fmap|He]. by apply Hrem in He.
  - apply elem_of_list_join in He as (l & He & (b & -> & _)%elem_of_list_fmap). rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite !elem_of_cons, elem_of_nil in He. naive_solver.
  - rewrite !elem_of_cons, elem_of_app in He. destruct He as [[=]|[[= -> _]|[[=]|[[= -> _]|[He|He]]]]]; [done|done|by apply birth_not_in_claim in He|by apply birth_not_in_flags in He].
  - rewrite !elem_of_cons in He. destruct He as [[=]|[[= -> _]|[[= -> _]|[[= -> _]|He]]]]; [done|done|done|by apply birth_not_in_claim in He].
  - rewrite elem_of_cons in He. destruct He as [[=]|He]. apply elem_of_list_join in He as (l & He & (n & Hn)%elem_of_list_lookup).
    rewrite list_lookup_imap in Hn. destruct (entries !! n) as [entry|] eqn:Hentry; [|done]. simpl in Hn. injection Hn as <-. unfold copy_effects in He.
    rewrite !elem_of_cons, elem_of_app in He. destruct He as [[= -> _]|[[=]|[He|He]]]; [done|by apply birth_not_in_claim in He|by apply birth_not_in_flags in He].
  - rewrite elem_of_cons in He. destruct He as [[=]|He]. apply elem_of_list_join in He as (l & He & (entry & -> & Hin)%elem_of_list_fmap).
    unfold move_effects in He. rewrite !elem_of_cons, elem_of_app in He. destruct He as [[= -> _]|[[=]|[He|He]]]; [done|by apply birth_not_in_claim in He|].
    destruct entry.2; [by apply Hclear in He|by apply elem_of_nil in He].
  - apply elem_of_list_join in He as (l & He & (m' & -> & Hin)%elem_of_list_fmap). unfold store_effects in He. rewrite !elem_of_app in He.
    destruct He as [He|[He|He]]; [by apply birth_not_in_flags in He..|]. destruct rescue; [|by apply elem_of_nil in He].
    by apply elem_of_list_singleton in He.
  - by apply Hrem in He.
  - apply elem_of_list_join in He as (l & He & (c & -> & Hin)%elem_of_list_fmap). by apply birth_not_in_claim in He.
  - rewrite elem_of_list_singleton in He. injection He as -> _. done.
  - apply elem_of_list_singleton in He as [= -> ->]. done.
Qed.

Section epochs.
  Context {r : rules} {slot : N → N} {readers : nat → Prop} (E : uid_execution r slot) (R : rule_7 all_epoch_rules E).
  Local Notation history := (history _ _ _ _ E).
  Local Notation state p := (contents (state_after empty apply p)).

  Definition born (created floor : N) : Prop := ∃ j o, Broadcast o ∈ history j ∧ op_action o = AOpen created floor.

  (* What is in one of these registers was written by somebody, or nothing is in it. *)
  Lemma written i p x : p `prefix_of` history i → birth_register x = true →
    reg (state p) x = [] ∨ ∃ o, Deliver o ∈ p ∧ Raise x (reg (state p) x) ∈ effects o.
  Proof.
    intros Hp Hx. rewrite contents_after. destruct (reg_replay_either (deliveries p) (contents empty) x) as [H|(o & Ho & H)].
    - left. rewrite H. by destruct x.
    - right. exists o. split; [by apply elem_of_deliveries|done].
  Qed.

  Lemma maker i p o : p `prefix_of` history i → Deliver o ∈ p → ∃ j q q', history j = q ++ Broadcast o :: q'.
  Proof.
    intros Hp Ho. destruct (deliveries_have_causes _ _ _ _ E i o) as [j (q & q' & Hq)%elem_of_list_split]; [by eapply elem_of_prefix|]. by exists j, q, q'.
  Qed.

  (* No state is born later. *)
  Lemma birth_bound i p created floor : born created floor → p `prefix_of` history i →
    (nth 0 (reg (state p) RCreated) 0 ≤ created)%N ∧ (nth 0 (reg (state p) RFloor) 0 ≤ floor)%N.
  Proof.
    intros (j & ob & Hb & Hopen) Hp.
    assert (∀ x, birth_register x = true → x ≠ REpoch → reg (state p) x = [] ∨ (x = RCreated ∧ reg (state p) x = [created]) ∨ (x = RFloor ∧ reg (state p) x = [floor])) as H.
    { intros x Hx Hne. destruct (written i p x Hp Hx) as [?|(o & Ho & He)]; [by left|right]. pose proof (birth_raised _ _ _ Hx He) as Hr.
      destruct (maker i p o Hp Ho) as (j' & q & q' & Hq). pose proof (made E _ _ _ _ Hq) as Ho'.
      destruct (op_action o) eqn:Ha; try done; [|by destruct Hr].
      destruct (one_birth _ _ R _ _ _ _ _ _ _ _ eq_refl Hb Ho' Hopen Ha) as [-> ->]. done. }
    split.
    - destruct (H RCreated eq_refl ltac:(done)) as [->|[[_ ->]|[[=] _]]]; simpl; lia.
    - destruct (H RFloor eq_refl ltac:(done)) as [->|[[[=] _]|[_ ->]]]; simpl; lia.
  Qed.

  (* An epoch is above the account's birth. *)
  Lemma epoch_above i p : p `prefix_of` history i → nth 0 (reg (state p) REpoch) 0%N ≠ 0%N →
    ∃ created floor, born created floor ∧ (N.max 1 (N.max created floor) < nth 0 (reg (state p) REpoch) 0)%N.
  Proof.
    intros Hp Hne. destruct (written i p REpoch Hp eq_refl) as [H|(o & Ho & He)]; [by rewrite H in Hne|].
    destruct (maker i p o Hp Ho) as (j & q & q' & Hq). pose proof (birth_raised _ REpoch _ eq_refl He) as Hr.
    destruct (op_action o) as [| | | | | | | | | | | | | |n] eqn:Ha; try done; [by destruct Hr as [[[=] _]|[[=] _]]|].
    destruct Hr as [_ Hv]. rewrite Hv. simpl. destruct (rises _ _ R _ _ _ _ _ eq_refl Hq Ha) as [Hopened Hlt].
    assert (q `prefix_of` history j) as Hqp by (rewrite Hq; by eexists).
    destruct (written j q RCreated Hqp eq_refl) as [?|(oo & Hoo & Heo)]; [done|]. pose proof (birth_raised _ RCreated _ eq_refl Heo) as Hro.
    destruct (op_action oo) as [created floor| | | | | | | | | | | | | |] eqn:Hao; try done; [|by destruct Hro].
    destruct (maker j q oo Hqp Hoo) as (k & x & x' & Hx). exists created, floor. split; [exists k, oo; split; [by eapply (made E)|done]|].
    assert (∀ y v, Raise y v ∈ effects oo → at_most v (reg (state q) y) = true) as Hraised.
    { intros y v Hy. rewrite contents_after.
      pose proof (reg_replay (deliveries q) (contents empty) y (reg (replay apply_op (contents empty) (deliveries q)) y)) as [H _].
      destruct H as [_ H]; [apply at_most_refl|]. eapply H; [by apply elem_of_deliveries|exact Hy]. }
    assert (effects oo = [Raise RCreated [created]; Raise RFloor [floor]]) as Heff by (unfold effects; by rewrite Hao).
    pose proof (Hraised RCreated [created] ltac:(rewrite Heff; by left)) as Hc%at_most_head.
    pose proof (Hraised RFloor [floor] ltac:(rewrite Heff; right; by left)) as Hf%at_most_head.
    simpl in Hc, Hf. unfold uidvalidity in Hlt. lia.
  Qed.

  Lemma validity_is_epoch i j p q : p `prefix_of` history i → q `prefix_of` history j → uidvalidity (state p) = uidvalidity (state q) →
    nth 0 (reg (state p) REpoch) 0%N = nth 0 (reg (state q) REpoch) 0%N.
  Proof.
    intros Hp Hq Heq. unfold uidvalidity in Heq.
    destruct (decide (nth 0 (reg (state p) REpoch) 0%N = 0%N)) as [Hzp|Hnp].
    - destruct (decide (nth 0 (reg (state q) REpoch) 0%N = 0%N)) as [Hzq|Hnq]; [congruence|].
      destruct (epoch_above j q Hq Hnq) as (c & f & Hborn & Hlt). destruct (birth_bound i p c f Hborn Hp). lia.
    - destruct (epoch_above i p Hp Hnp) as (c & f & Hborn & Hlt). destruct (birth_bound i p c f Hborn Hp). destruct (birth_bound j q c f Hborn Hq).
      destruct (decide (nth 0 (reg (state q) REpoch) 0%N = 0%N)) as [Hzq|Hnq]; [lia|].
      destruct (epoch_above j q Hq Hnq) as (c' & f' & Hborn' & Hlt'). destruct (birth_bound j q c' f' Hborn' Hq). destruct (birth_bound i p c' f' Hborn' Hp).
      lia.
  Qed.
End epochs.

Theorem uids_U1_told : U1_told_statement.
Proof.
  intros r slot readers E Hd Hf Hslots R i j m m' validity told (p & d & t & name & u & d1 & Hs & Hmay & _ & Hv & Ht) (p' & d' & t' & name' & u' & d1' & Hs' & Hmay' & _ & Hv' & Ht').
  destruct Hmay as (_ & _ & Hu & Hne & _). destruct Hmay' as (_ & _ & Hu' & Hne' & _).
  pose proof (serves_prefix E _ _ _ _ Hs) as Hp. pose proof (serves_prefix E _ _ _ _ Hs') as Hp'.
  destruct (uid_claimed p m u Hu Hne) as (o & st & Ho & Hc). destruct (uid_claimed p' m' u' Hu' Hne') as (o' & st' & Ho' & Hc').
  assert (nth 0 (reg (contents (state_after empty apply p)) REpoch) 0%N = nth 0 (reg (contents (state_after empty apply p')) REpoch) 0%N) as He.
  { apply (validity_is_epoch E R i j); [done|done|congruence]. }
  rewrite He in Hc.
  destruct (maker E i p o Hp Ho) as (k & q & q2 & Hq). destruct (maker E j p' o' Hp' Ho') as (k' & q' & q2' & Hq').
  pose proof (fits _ _ R _ _ _ _ _ _ eq_refl (made E _ _ _ _ Hq) Hc) as Hfit. pose proof (fits _ _ R _ _ _ _ _ _ eq_refl (made E _ _ _ _ Hq') Hc') as Hfit'.
  assert (u = u') as ->. { rewrite <- (N.mod_small u (2 ^ 32)), <- (N.mod_small u' (2 ^ 32)) by done. congruence. }
  by destruct (claims_unique E _ _ _ _ _ _ _ _ _ _ Hd Hf Hslots (elem_of_prefix _ _ _ Ho Hp) (elem_of_prefix _ _ _ Ho' Hp') Hc Hc') as (_ & ? & _).
Qed.

Local Open Scope N_scope.

Section scripts.
  Context (hs : list (list (event op))) (Hok : checked (uid_ok nobody_waits own_slots) hs = true).
  Local Notation E := (run nobody_waits own_slots hs Hok).

  (* What a script ends with. *)
  Definition tells_ok (i : nat) (l : list step) (m : message_id) (u : N) : bool :=
    bool_decide (events_of l `prefix_of` history_of hs i)
    && match opened nobody_waits hs [] opening l with
       | Some d => may_ok nobody_waits hs (events_of l) (Show m 0 (era d) u) && match do_act nobody_waits d (Show m 0 (era d) u) with Some _ => true | None => false end
       | None => false
       end.
  Definition validity_of (l : list step) : N := uidvalidity (contents (state_after empty apply (events_of l))).

  Lemma tells_ok_told i l m u : tells_ok i l m u = true → told_of all_read E i m (validity_of l) (u mod 2 ^ 32).
  Proof.
    unfold tells_ok. rewrite andb_true_iff, bool_decide_eq_true. intros [Hp H]. destruct (opened nobody_waits hs [] opening l) as [d|] eqn:Hopen; [|done].
    apply andb_true_iff in H as [Hmay H]. destruct (do_act nobody_waits d (Show m 0 (era d) u)) as [d'|] eqn:Hact; [|done].
    exists (events_of l), d, (acts_of l), 0, u, d'. split; [by apply script_serves|]. split; [by apply may_ok_may|]. split; [by apply do_act_acts|done].
  Qed.

  (* What docs/design.md#rule-7 asks of what is broadcast, decided. *)
  Definition broadcast_ok (w : epoch_rules) (pe : list (event op) * event op) : bool :=
    match pe.2 with
    | Broadcast o =>
        (negb (claims_fit w) || forallb (λ c : claim, bool_decide (c.2 < 2 ^ 32)) (claims o))
        && match op_action o with
           | AEpoch v => negb (epochs_rise w) || (let s := contents (state_after empty apply pe.1) in bool_decide (reg s RCreated ≠ []) && bool_decide (uidvalidity s < v))
           | AOpen created floor => negb (born_once w) || forallb (λ o', match op_action o' with
               | AOpen created' floor' => bool_decide (created = created' ∧ floor = floor') | _ => true end) (mjoin (broadcasts <$> hs))
           | _ => true
           end
    | Deliver _ => true
    end.
  Definition rule_7_ok (w : epoch_rules) : bool := forallb (λ h, forallb (broadcast_ok w) (places [] h)) hs.

  Lemma rule_7_ok_rule_7 w : rule_7_ok w = true → rule_7 w E.
  Proof.
    unfold rule_7_ok. rewrite forallb_forall. intros H.
    assert (∀ j p o q, history_of hs j = p ++ Broadcast o :: q → broadcast_ok w (p, Broadcast o) = true) as Hat.
    { intros j p o q Heq. assert (history_of hs j ∈ hs) as Hj.
      { unfold history_of in *. destruct (hs !! j) as [h|] eqn:Hh; [by eapply elem_of_list_lookup_2|]. simpl in Heq. by destruct p. }
      specialize (H _ ltac:(by apply elem_of_list_In)). rewrite forallb_forall in H. apply H, elem_of_list_In.
      pose proof (places_all [] (history_of hs j) p (Broadcast o) q Heq) as Hp. by simpl in Hp. }
    assert (∀ j o, Broadcast o ∈ history_of hs j → o ∈ mjoin (broadcasts <$> hs)) as Hall.
    { intros j o (h & Hh & _ & Hin)%in_hs. apply elem_of_list_join. exists (broadcasts h). split; [by apply elem_of_broadcasts|].
      apply elem_of_list_fmap_1. by eapply elem_of_list_lookup_2. }
    split.
    - intros j o m placed epoch u Hw Hb Hc. pose proof Hb as (p & q & Heq)%elem_of_list_split. apply Hat in Heq. unfold broadcast_ok in Heq. simpl in Heq.
      rewrite Hw in Heq. apply andb_true_iff in Heq as [Heq _]. simpl in Heq. rewrite forallb_forall in Heq.
      specialize (Heq _ ltac:(by apply elem_of_list_In)). by apply bool_decide_eq_true in Heq.
    - intros j p o q v Hw Heq Ha. apply Hat in Heq. unfold broadcast_ok in Heq. simpl in Heq. rewrite Ha, Hw in Heq. apply andb_true_iff in Heq as [_ Heq].
      simpl in Heq. apply andb_true_iff in Heq as [H1%bool_decide_eq_true H2%bool_decide_eq_true]. done.
    - intros i j o o' created floor created' floor' Hw Hb Hb' Ha Ha'. pose proof Hb as (p & q & Heq)%elem_of_list_split. apply Hat in Heq.
      unfold broadcast_ok in Heq. simpl in Heq. rewrite Ha, Hw in Heq. apply andb_true_iff in Heq as [_ Heq]. simpl in Heq. rewrite forallb_forall in Heq.
      specialize (Heq o' (proj1 (elem_of_list_In _ _) (Hall _ _ Hb'))). rewrite Ha' in Heq. by apply bool_decide_eq_true in Heq.
  Qed.

  Lemma told_twice w i l l' m m' u u' : rule_7_ok w = true → tells_ok i l m u = true → tells_ok i l' m' u' = true →
    validity_of l = validity_of l' → u mod 2 ^ 32 = u' mod 2 ^ 32 → m ≠ m' → ¬ U1_told w.
  Proof.
    intros Hw H1 H2 Hv Hu Hne H. apply Hne. apply tells_ok_told in H1, H2. rewrite Hv, Hu in H1.
    by eapply (H nobody_waits own_slots all_read E eq_refl eq_refl (own_slots_ok _) (rule_7_ok_rule_7 w Hw) i i).
  Qed.
End scripts.

Definition in_epoch (d : dot) (time : N) (deps : gmap N N) (epoch u : N) : op := Op d time deps (AAppend INBOX epoch u [] 9).
Definition open_at (d : dot) (created : N) : op := Op d 1 ∅ (AOpen created 0).

(* A counter goes on behind 2^26: of its UID 32 bits are told. *)
Definition fills : list op := [open_at (1, 1) 1000; in_epoch (1, 2) 2 ∅ 0 65; in_epoch (1, 3) 3 ∅ 0 (2 ^ 32 + 65)].
Definition shown_after (l : list op) (epoch : N) : list step := [A_ (List_ 0)] ++ (if bool_decide (epoch = 0) then [] else [A_ (NewEra epoch)]) ++ mjoin (makes_ <$> l).
Lemma fills_ok : checked (uid_ok nobody_waits own_slots) [own fills] = true. Proof. computed. Qed.

Ltac told_twice_by Hok i l1 l2 m1 m2 u1 u2 := apply (told_twice _ Hok _ i l1 l2 m1 m2 u1 u2); [computed|computed|computed|computed|computed|done].

Lemma fitting_is_needed : ¬ U1_told counters_run_over.
Proof. told_twice_by fills_ok 0%nat (shown_after (take 2 fills) 0) (shown_after fills 0) (1, 2, 0) (1, 3, 0) 65 (2 ^ 32 + 65). Qed.

(* An epoch that is not above the account's birth: UIDVALIDITY stays, and counters begin anew. *)
Definition sinks : list op := [open_at (1, 1) 1000; in_epoch (1, 2) 2 ∅ 0 65; Op (1, 3) 3 ∅ (AEpoch 5); in_epoch (1, 4) 4 ∅ 5 65].
Lemma sinks_ok : checked (uid_ok nobody_waits own_slots) [own sinks] = true. Proof. computed. Qed.

Lemma rising_is_needed : ¬ U1_told epochs_anyhow.
Proof. told_twice_by sinks_ok 0%nat (shown_after (take 2 sinks) 0) (shown_after sinks 5) (1, 2, 0) (1, 4, 0) 65 65. Qed.

(* One node opens the account, and begins an epoch one second later; another, which has not heard of it, says that the account was born in that second. *)
Definition opened_before : list op := [open_at (1, 1) 1000; Op (1, 2) 2 ∅ (AEpoch 1001)].
Definition opened_later : list op := [open_at (2, 1) 1001; in_epoch (2, 2) 2 ∅ 0 66].
Definition under_both : op := in_epoch (2, 3) 3 {[ 1 := 2 ]} 1001 66.
Definition births : list (list (event op)) := [own opened_before; own opened_later ++ (Deliver <$> opened_before) ++ own [under_both]].
Lemma births_ok : checked (uid_ok nobody_waits own_slots) births = true. Proof. computed. Qed.

Lemma one_birth_is_needed : ¬ U1_told born_twice.
Proof.
  told_twice_by births_ok 1%nat (shown_after opened_later 0)
    (shown_after opened_later 1001 ++ mjoin (gets <$> opened_before) ++ makes_ under_both) (2, 2, 0) (2, 3, 0) 66 66.
Qed.

Theorem epoch_rules_needed : epoch_rules_needed_statement.
Proof. split; [exact fitting_is_needed|]. split; [exact rising_is_needed|exact one_birth_is_needed]. Qed.
