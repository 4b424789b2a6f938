(* Histories in which claims do not end when one of the rules for quiet is left out: scripts of what nodes and their desks do, checked by computation. *)
From Whimbrel.spec Require Import Quiet Executable.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker Refuted Executable.

Inductive step := E_ (e : event op) | A_ (a : act).
Definition events_of (l : list step) : list (event op) := omap (λ x, match x with E_ e => Some e | A_ _ => None end) l.

Lemma events_of_cons x l : events_of (x :: l) = match x with E_ e => e :: events_of l | A_ _ => events_of l end.
Proof. by destruct x. Qed.

Lemma do_act_acts r d a d' : do_act r d a = Some d' → acts r d a d'.
Proof. pose proof desk_is_exact as (H & _). apply H. Qed.

Definition late_ok (s : account) (d : desk) (m : message_id) : bool :=
  bool_decide (lives s m) && (bool_decide (uid s m = 0%N) || bool_decide (uid s m < mark d (name_now s m))%N)
  && bool_decide (shown d !! m ≠ Some (name_now s m, uid s m)).

Lemma late_ok_late s d m : late_ok s d m = true → late s d m.
Proof.
  unfold late_ok. rewrite !andb_true_iff, orb_true_iff, !bool_decide_eq_true. intros [[H1 H2] H3]. by split.
Qed.

Section script.
  Context (w : quiet_rules) (r : rules) (hs : list (list (event op))) (Hok : checked (uid_ok r own_slots) hs = true).
  (* What each node does before its cut, and after it. *)
  Context (scripts : list (list step * list step)).
  Local Notation state p := (contents (state_after empty apply p)).
  Local Notation E := (run r own_slots hs Hok).

  Definition script_of (i : nat) : list step * list step := default ([], []) (scripts !! i).
  Definition cut_of (i : nat) : list (event op) := events_of (script_of i).1.

  Definition may_ok (p : list (event op)) (a : act) : bool :=
    match a with Show m name epoch u => show_ok r hs p m name epoch u | _ => true end.

  Lemma may_ok_may p a : may_ok p a = true → may_do r own_slots all_read E p a.
  Proof.
    destruct a as [m name epoch u| | | | | | |]; try done. unfold may_ok, show_ok. rewrite !andb_true_iff, !bool_decide_eq_true.
    intros (((((H1 & H2) & H3) & H4) & H5) & H6). repeat split; try done. intros Hr. rewrite Hr in H6. by apply heard_ok_heard.
  Qed.

  Definition quiet_ok (p : list (event op)) (d : desk) (a : act) : bool :=
    match a with
    | Show _ _ epoch u => negb (in_time w) || heard_ok hs p epoch (N.div u 64)
    | Hide m => bool_decide (shown d !! m ≠ Some (name_now (state p) m, uid (state p) m))
    | Tell name _ next => negb (lower_first w) || forallb (λ m, bool_decide (name_now (state p) m ≠ name) || bool_decide (next ≤ uid (state p) m)%N
        || bool_decide (uid (state p) m = 0%N) || bool_decide (uid (state p) m < mark d name)%N
        || bool_decide (shown d !! m = Some (name, uid (state p) m))) (living (state p))
    | _ => false
    end.

  Lemma quiet_ok_quiet i p d a : quiet_ok p d a = true → quiet_act w all_read E i p d a.
  Proof.
    destruct a as [m name epoch u|m|name epoch next|name next|name|name|name|epoch]; try done; simpl.
    - intros [H|H]%orb_true_iff Hw; [by rewrite Hw in H|by apply heard_ok_heard].
    - intros H%bool_decide_eq_true. done.
    - intros H. split; [exact I|]. intros Hw m Hl Hn Hlt. rewrite Hw in H. simpl in H. rewrite forallb_forall in H.
      specialize (H m). rewrite !orb_true_iff, !bool_decide_eq_true in H. destruct H as [[[[H|H]|H]|H]|H]; try tauto; [|lia].
      apply elem_of_list_In. by apply elem_of_living.
  Qed.

  (* Before the cut. *)
  Fixpoint opened (p : list (event op)) (d : desk) (l : list step) : option desk :=
    match l with
    | [] => Some d
    | E_ e :: l => opened (p ++ [e]) d l
    | A_ a :: l => if may_ok p a then match do_act r d a with Some d' => opened p d' l | None => None end else None
    end.

  Lemma opened_serves i l p d t d' : opened p d l = Some d' → serves all_read E i p d t → p ++ events_of l `prefix_of` history_of hs i →
    ∃ t', serves all_read E i (p ++ events_of l) d' t'.
  Proof.
    revert p d t. induction l as [|[e|a] l IH]; intros p d t Hopen Hs Hp; simpl in Hopen.
    - injection Hopen as <-. exists t. by rewrite app_nil_r.
    - rewrite events_of_cons in Hp |- *. rewrite (cons_middle e), app_assoc in Hp |- *. eapply IH; [done| |done].
      apply serves_event; [done|]. etrans; [|exact Hp]. by eexists.
    - destruct (may_ok p a) eqn:Hmay; [|done]. destruct (do_act r d a) as [d1|] eqn:Hdo; [|done]. rewrite events_of_cons in Hp |- *. eapply IH; [done| |done].
      eapply serves_act; [done|by apply may_ok_may|]. by apply do_act_acts.
  Qed.

  Definition marks_ok (i : nat) (d : desk) : bool :=
    bool_decide (era d = epoch_now (state (cut_of i)))
    && (negb (marks_counted w) || forallb (λ k, bool_decide (k ≤ 64 * (counter (state (cut_of i)) (era d) + 1))%N)
          (floor d :: (map_to_list (marks d)).*2 ++ (map_to_list (gone_marks d)).*2)).

  Lemma marks_ok_counted i d : marks_ok i d = true → marks_counted w = true → ∀ name, (mark d name ≤ 64 * (counter (state (cut_of i)) (era d) + 1))%N.
  Proof.
    unfold marks_ok. rewrite andb_true_iff. intros [_ H] Hw name. rewrite Hw in H. cbn [negb orb] in H. rewrite forallb_forall in H.
    assert (∀ k, k ∈ floor d :: (map_to_list (marks d)).*2 ++ (map_to_list (gone_marks d)).*2 → (k ≤ 64 * (counter (state (cut_of i)) (era d) + 1))%N) as Hall.
    { intros k Hk%elem_of_list_In%H. by apply bool_decide_eq_true in Hk. }
    apply Hall. unfold mark. destruct (marks d !! name) as [k|] eqn:Hk.
    { right. apply elem_of_app. left. apply (elem_of_list_fmap_1_alt snd _ (name, k)); [by apply elem_of_map_to_list|done]. }
    destruct (gone_marks d !! name) as [k|] eqn:Hg; simpl; [|by left].
    right. apply elem_of_app. right. apply (elem_of_list_fmap_1_alt snd _ (name, k)); [by apply elem_of_map_to_list|done].
  Qed.

  (* After the cut. *)
  Definition claim_again_ok (p : list (event op)) (d : desk) (o : op) : bool :=
    forallb (λ c : claim, bool_decide (lives (state p) c.1.1.1) && bool_decide (c.1.1.2 = placed_at (state p) c.1.1.1) && bool_decide (c.1.2 = epoch_now (state p))
      && (negb (only_late w) || late_ok (state p) d c.1.1.1)) (claims o).

  Fixpoint rested (p : list (event op)) (d : desk) (l : list step) : bool :=
    match l with
    | [] => true
    | E_ e :: l => match e with Broadcast o => claim_again_ok p d o | Deliver _ => true end && rested (p ++ [e]) d l
    | A_ a :: l => may_ok p a && quiet_ok p d a && match do_act r d a with Some d' => rested p d' l | None => false end
    end.

  Lemma rested_claims i l p d t p' o q : rested p d l = true → rests w all_read E cut_of i p d t → p ++ events_of l `prefix_of` history_of hs i →
    p ++ events_of l = p' ++ Broadcast o :: q → p `prefix_of` p' → ∃ d' t', rests w all_read E cut_of i p' d' t' ∧ claim_again_ok p' d' o = true.
  Proof.
    revert p d t. induction l as [|[e|a] l IH]; intros p d t Hrest Hs Hp Heq Hpre; simpl in Hrest.
    - destruct Hpre as [k ->]. apply (f_equal length) in Heq. rewrite app_nil_r, !app_length in Heq. simpl in Heq. lia.
    - apply andb_true_iff in Hrest as [Hbroad Hrest]. rewrite events_of_cons in Hp, Heq. destruct Hpre as [k ->]. destruct k as [|e' k].
      + rewrite app_nil_r in Heq. apply app_inv_head in Heq as [= -> _]. exists d, t. rewrite app_nil_r. by split.
      + rewrite <- app_assoc in Heq. apply app_inv_head in Heq as [= <- Heqk]. eapply (IH (p ++ [e])); [done| | | |].
        * apply rests_event; [done|]. etrans; [|exact Hp]. exists (events_of l). by rewrite <- app_assoc.
        * by rewrite <- app_assoc.
        * rewrite <- app_assoc. simpl. rewrite Heqk. by rewrite <- app_assoc.
        * exists k. by rewrite <- app_assoc.
    - rewrite !andb_true_iff in Hrest. destruct Hrest as [[Hmay Hquiet] Hrest]. destruct (do_act r d a) as [d1|] eqn:Hdo; [|done].
      rewrite events_of_cons in Hp, Heq. eapply IH; [done| |done|done|done].
      eapply rests_act; [done|by apply may_ok_may|by apply do_act_acts|by apply quiet_ok_quiet].
  Qed.

  Definition arrivals_ok (i : nat) : bool :=
    forallb (λ o, (bool_decide (Deliver o ∈ cut_of i) || match op_action o with AClaim _ _ => true | _ => false end)
      && forallb (λ c : claim, bool_decide (c.1.2 ≤ epoch_now (state (cut_of i)))%N) (claims o)) (deliveries (history_of hs i)).

  Definition node_ok (i : nat) : bool :=
    bool_decide (events_of (script_of i).1 ++ events_of (script_of i).2 = history_of hs i) && arrivals_ok i
    && match opened [] opening (script_of i).1 with Some d => marks_ok i d && rested (cut_of i) d (script_of i).2 | None => false end.

  Definition scripts_ok : bool := bool_decide (length scripts = length hs) && forallb node_ok (seq 0 (length hs)).

  Lemma all_nodes_ok i : scripts_ok = true → node_ok i = true.
  Proof.
    unfold scripts_ok. rewrite andb_true_iff, bool_decide_eq_true, forallb_forall. intros [Hl H].
    destruct (decide (i < length hs)); [apply H, elem_of_list_In, elem_of_seq; lia|].
    assert (script_of i = ([], [])) as Hs by (unfold script_of; rewrite lookup_ge_None_2; [done|lia]).
    assert (history_of hs i = []) as Hh by (unfold history_of; rewrite lookup_ge_None_2; [done|lia]).
    unfold node_ok, arrivals_ok, cut_of. rewrite Hs, Hh. simpl. unfold marks_ok, cut_of. rewrite Hs. simpl.
    rewrite orb_true_intro; [done|]. by right.
  Qed.

  Lemma scripts_quiet : scripts_ok = true → quiet w all_read E cut_of.
  Proof.
    intros Hscripts. split.
    - intros i. pose proof (all_nodes_ok i Hscripts) as H. unfold node_ok in H. rewrite !andb_true_iff, bool_decide_eq_true in H. destruct H as [[Heq _] _].
      change (cut_of i `prefix_of` history_of hs i). rewrite <- Heq. by eexists.
    - intros i o Hin%elem_of_deliveries. pose proof (all_nodes_ok i Hscripts) as H. unfold node_ok in H. rewrite !andb_true_iff in H. destruct H as [[_ H] _].
      unfold arrivals_ok in H. rewrite forallb_forall in H. specialize (H o ltac:(by apply elem_of_list_In)).
      apply andb_true_iff in H as [[H%bool_decide_eq_true|H]%orb_true_iff _]; [by left|right]. destruct (op_action o); try done. by do 2 eexists.
    - intros i o m placed epoch u Hin%elem_of_deliveries Hc. pose proof (all_nodes_ok i Hscripts) as H. unfold node_ok in H. rewrite !andb_true_iff in H. destruct H as [[_ H] _].
      unfold arrivals_ok in H. rewrite forallb_forall in H. specialize (H o ltac:(by apply elem_of_list_In)).
      apply andb_true_iff in H as [_ H]. rewrite forallb_forall in H. specialize (H _ ltac:(by apply elem_of_list_In)). by apply bool_decide_eq_true in H.
    - intros j p o m placed epoch u [Hcut [q Hq]] Hc. pose proof (all_nodes_ok j Hscripts) as H. unfold node_ok in H. rewrite !andb_true_iff, bool_decide_eq_true in H.
      destruct H as [[Heq _] H]. destruct (opened [] opening (script_of j).1) as [d|] eqn:Hopen; [|done]. apply andb_true_iff in H as [Hm Hrest].
      destruct (opened_serves j _ _ _ [] _ Hopen) as [t Hs]; [constructor|simpl; rewrite <- Heq; by eexists|]. simpl in Hs.
      assert (rests w all_read E cut_of j (cut_of j) d t) as Hr.
      { apply rests_cut; [done| |by apply marks_ok_counted]. unfold marks_ok in Hm. apply andb_true_iff in Hm as [Hm _]. by apply bool_decide_eq_true in Hm. }
      destruct (rested_claims j _ _ _ _ p o q Hrest Hr) as (d' & t' & Hr' & Hok').
      + unfold cut_of. by rewrite Heq.
      + unfold cut_of. rewrite Heq. exact Hq.
      + done.
      + unfold claim_again_ok in Hok'. rewrite forallb_forall in Hok'. specialize (Hok' _ ltac:(by apply elem_of_list_In)).
        rewrite !andb_true_iff, !bool_decide_eq_true, orb_true_iff in Hok'. destruct Hok' as [[[H1 H2] H3] H4].
        split; [done|]. split; [done|]. split; [done|]. intros Hw. rewrite Hw in H4. destruct H4 as [?|H4]; [done|].
        exists d', t'. split; [done|]. by apply late_ok_late.
  Qed.

  (* Two operations of one node, after its cut, that claim one message. *)
  Lemma claimed_twice j n1 o1 n2 o2 m placed1 epoch1 u1 placed2 epoch2 u2 : scripts_ok = true →
    after_cut E cut_of j (take n1 (history_of hs j)) o1 → after_cut E cut_of j (take n2 (history_of hs j)) o2 →
    (m, placed1, epoch1, u1) ∈ claims o1 → (m, placed2, epoch2, u2) ∈ claims o2 → Deliver o1 ∈ take n2 (history_of hs j) →
    slots_differ r = true → counters_follow r = true → ¬ ends_under w.
  Proof.
    intros Hscripts H1 H2 Hc1 Hc2 Hd Hslots Hcount Hends.
    destruct (Hends r own_slots all_read E cut_of Hslots Hcount (own_slots_ok _) (scripts_quiet Hscripts) j _ o1 _ o2 m _ _ _ _ _ _ H1 Hc1 H2 Hc2 Hd)
      as (i & o & placed & _ & _ & Hn). by apply Hn.
  Qed.

  Definition after_cut_ok (j n : nat) (o : op) : bool :=
    bool_decide (length (cut_of j) ≤ n) && bool_decide (take (length (cut_of j)) (history_of hs j) = cut_of j) && bool_decide (history_of hs j !! n = Some (Broadcast o)).

  Lemma after_cut_ok_after j n o : after_cut_ok j n o = true → after_cut E cut_of j (take n (history_of hs j)) o.
  Proof.
    unfold after_cut_ok. rewrite !andb_true_iff, !bool_decide_eq_true. intros [[Hle Ht] Hn]. split.
    - rewrite <- Ht. exists (take (n - length (cut_of j)) (drop (length (cut_of j)) (history_of hs j))). rewrite take_take_drop. f_equal. lia.
    - exists (drop (S n) (history_of hs j)). change (history_of hs j = take n (history_of hs j) ++ Broadcast o :: drop (S n) (history_of hs j)). symmetry. by apply take_drop_middle.
  Qed.
End script.

Local Open Scope N_scope.

(* Broadcast and applied at once. *)
Definition makes_ (o : op) : list step := [E_ (Broadcast o); E_ (Deliver o)].
Definition gets (o : op) : list step := [E_ (Deliver o)].
Definition tell_shown (m : message_id) (u : N) : list step := [A_ (Show m 0 0 u); A_ (Tell 0 0 (u + 1))].

Definition appends (n : N) : op := append_at (1, n) n ∅ INBOX (64 * n + 1).
(* Message [n] is claimed again: operation [k] of [origin], that of the other of which so much is seen. *)
Definition claims_again (origin k : N) (seen : gmap N N) (n u : N) : op := Op (origin, k) (10 + k) seen (AClaim 0 [((1, n, 0), (n, 1), u)]).

(* Every claim is shown before the other node has heard of it. Three messages, two of their claims always on the way: each arrives below what the
   other has told, goes back as a greater one, and again arrives below. After four claims each all is as before, with greater numbers. *)
Definition y1 := claims_again 1 4 ∅ 2 257.
Definition z1 := claims_again 1 5 ∅ 3 321.
Definition x1 := claims_again 2 1 {[ 1 := 3 ]} 1 258.
Definition y2 := claims_again 2 2 {[ 1 := 4 ]} 2 322.
Definition x2 := claims_again 1 6 {[ 2 := 1 ]} 1 385.
Definition z2 := claims_again 2 3 {[ 1 := 5 ]} 3 386.
Definition y3 := claims_again 1 7 {[ 2 := 2 ]} 2 449.
Definition x3 := claims_again 2 4 {[ 1 := 6 ]} 1 450.
Definition z3 := claims_again 1 8 {[ 2 := 3 ]} 3 513.
Definition x4 := claims_again 1 9 {[ 2 := 4 ]} 1 577.

Definition shown_as (o : op) : list step :=
  match claims o with [(m, _, _, u)] => tell_shown m u | _ => [] end.
Definition answers (late_one again_ : op) : list step := gets late_one ++ makes_ again_ ++ shown_as again_.

Definition bouncing : list (list step * list step) :=
  [(makes_ (appends 1) ++ makes_ (appends 2) ++ makes_ (appends 3) ++ [A_ (List_ 0)] ++ makes_ y1 ++ shown_as y1 ++ makes_ z1 ++ shown_as z1,
    answers x1 x2 ++ answers y2 y3 ++ answers z2 z3 ++ answers x3 x4);
   (gets (appends 1) ++ gets (appends 2) ++ gets (appends 3) ++ [A_ (List_ 0)] ++ makes_ x1 ++ shown_as x1,
    answers y1 y2 ++ answers z1 z2 ++ answers x2 x3)].

Definition histories (scripts : list (list step * list step)) : list (list (event op)) := (λ s, events_of (s.1 ++ s.2)) <$> scripts.

Lemma bouncing_ok : checked (uid_ok nobody_waits own_slots) (histories bouncing) = true. Proof. computed. Qed.

Lemma waiting_in_time_is_needed : ¬ ends_under always_times_out.
Proof.
  eapply (claimed_twice _ nobody_waits (histories bouncing) bouncing_ok bouncing 0 11 x2 20 x4 (1, 1, 0)).
  - computed.
  - apply after_cut_ok_after. computed.
  - apply after_cut_ok_after. computed.
  - by left.
  - by left.
  - by apply (bool_decide_unpack _); vm_compute.
  - done.
  - done.
Qed.

(* A node tells a greater UID though a lower one could be shown, and the lower one is late, though nobody else claims anything. *)
Definition alone (k : N) (n u : N) : op := claims_again 1 k ∅ n u.
Definition overtaking : list (list step * list step) :=
  [(makes_ (appends 1) ++ makes_ (appends 2) ++ makes_ (appends 3) ++ [A_ (List_ 0)],
    tell_shown (1, 3, 0) 193 ++ makes_ (alone 4 1 257) ++ makes_ (alone 5 2 321) ++ tell_shown (1, 2, 0) 321 ++ makes_ (alone 6 1 385))].
Lemma overtaking_ok : checked (uid_ok nobody_waits own_slots) (histories overtaking) = true. Proof. computed. Qed.

Lemma order_is_needed : ¬ ends_under higher_first.
Proof.
  eapply (claimed_twice _ nobody_waits (histories overtaking) overtaking_ok overtaking 0 6 (alone 4 1 257) 10 (alone 6 1 385) (1, 1, 0)).
  - computed.
  - apply after_cut_ok_after. computed.
  - apply after_cut_ok_after. computed.
  - by left.
  - by left.
  - by apply (bool_decide_unpack _); vm_compute.
  - done.
  - done.
Qed.

(* A client named a UID far above the counter, which does not rise: each new claim is below what was told, too. *)
Definition chasing : list (list step * list step) :=
  [(makes_ (appends 1) ++ [A_ (List_ 0); A_ (Believe 0 1000000)], makes_ (alone 2 1 129) ++ makes_ (alone 3 1 193))].
Lemma chasing_ok : checked (uid_ok nobody_waits own_slots) (histories chasing) = true. Proof. computed. Qed.

Lemma counting_is_needed : ¬ ends_under marks_run_ahead.
Proof.
  eapply (claimed_twice _ nobody_waits (histories chasing) chasing_ok chasing 0 2 (alone 2 1 129) 4 (alone 3 1 193) (1, 1, 0)).
  - computed.
  - apply after_cut_ok_after. computed.
  - apply after_cut_ok_after. computed.
  - by left.
  - by left.
  - by apply (bool_decide_unpack _); vm_compute.
  - done.
  - done.
Qed.

(* Nothing is late, and the node claims all the same. *)
Definition idle : list (list step * list step) := [(makes_ (appends 1), makes_ (alone 2 1 129) ++ makes_ (alone 3 1 193))].
Lemma idle_ok : checked (uid_ok nobody_waits own_slots) (histories idle) = true. Proof. computed. Qed.

Lemma lateness_is_needed_to_claim : ¬ ends_under claims_at_will.
Proof.
  eapply (claimed_twice _ nobody_waits (histories idle) idle_ok idle 0 2 (alone 2 1 129) 4 (alone 3 1 193) (1, 1, 0)).
  - computed.
  - apply after_cut_ok_after. computed.
  - apply after_cut_ok_after. computed.
  - by left.
  - by left.
  - by apply (bool_decide_unpack _); vm_compute.
  - done.
  - done.
Qed.

Theorem quiet_rules_are_needed : quiet_rules_needed_statement.
Proof. split; [exact waiting_in_time_is_needed|]. split; [exact order_is_needed|]. split; [exact counting_is_needed|exact lateness_is_needed_to_claim]. Qed.

(* With all rules: what was shown unheard before the cuts costs each node one claim. *)
Definition calming : list (list step * list step) :=
  [((bouncing !!! 0%nat).1, gets x1 ++ makes_ x2 ++ gets y2 ++ [A_ (Show (1, 2, 0) 0 0 322)] ++ shown_as x2);
   ((bouncing !!! 1%nat).1, gets y1 ++ makes_ y2 ++ gets z1 ++ [A_ (Show (1, 3, 0) 0 0 321)] ++ shown_as y2 ++ gets x2 ++ shown_as x2)].
Lemma calming_ok : checked (uid_ok nobody_waits own_slots) (histories calming) = true. Proof. computed. Qed.

Theorem quiet_happens : quiet_happens_statement.
Proof.
  exists nobody_waits, own_slots, all_read, (run _ _ _ calming_ok), (cut_of calming), 0%nat, 1%nat, (take 11 (history_of (histories calming) 0)),
    (take 6 (history_of (histories calming) 1)), x2, y2.
  split; [done|]. split; [done|]. split; [apply own_slots_ok|]. split; [apply scripts_quiet; computed|]. split; [done|].
  split; [apply after_cut_ok_after; computed|]. split; [done|]. split; [apply after_cut_ok_after; computed|done].
Qed.
