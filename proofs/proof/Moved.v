(* Histories in which a client that moves overlooks a message, when one of the rules for moving is left out. *)
From Whimbrel.spec Require Import Moving Executable.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker Refuted Executable Restless.

Local Open Scope N_scope.

(* Node 0 shows the message of [high], UID 129, and tells 130. [low], UID 66, is of node 1. *)
Definition strangers : list (list (event op)) := [own [high]; own [low]].
Lemma strangers_ok : checked (uid_ok nobody_waits own_slots) strangers = true. Proof. computed. Qed.

(* The same; then [low] arrives at node 0, and is late there. *)
Definition heard_late : list (list (event op)) := [own [high] ++ [Deliver low]; own [low]].
Lemma heard_late_ok : checked (uid_ok nobody_waits own_slots) heard_late = true. Proof. computed. Qed.

Definition told_high : list step := [A_ (List_ 0)] ++ makes_ high ++ tell_shown (1, 1, 0) 129.
Definition has_low : list step := makes_ low ++ [A_ (List_ 0); A_ (Show (2, 1, 0) 0 0 66); A_ (Believe 0 130)].

Definition acts_of (l : list step) : list act := omap (λ x, match x with A_ a => Some a | E_ _ => None end) l.

(* A script from the beginning, with what its desk did. *)
Lemma script_serves r hs (Hok : checked (uid_ok r own_slots) hs = true) i l d :
  opened r hs [] opening l = Some d → events_of l `prefix_of` history_of hs i → serves all_read (run r own_slots hs Hok) i (events_of l) d (acts_of l).
Proof.
  assert (∀ p d0 t, opened r hs p d0 l = Some d → serves all_read (run r own_slots hs Hok) i p d0 t → p ++ events_of l `prefix_of` history_of hs i →
    serves all_read (run r own_slots hs Hok) i (p ++ events_of l) d (t ++ acts_of l)) as H.
  { induction l as [|[e|a] l IH]; intros p d0 t Hopen Hs Hp; simpl in Hopen.
    - injection Hopen as <-. by rewrite !app_nil_r.
    - rewrite events_of_cons in Hp |- *. change (acts_of (E_ e :: l)) with (acts_of l). rewrite (cons_middle e), app_assoc in Hp |- *. eapply IH; [done| |done].
      apply serves_event; [done|]. etrans; [|exact Hp]. by eexists.
    - destruct (may_ok r hs p a) eqn:Hmay; [|done]. destruct (do_act r d0 a) as [d1|] eqn:Hdo; [|done]. rewrite events_of_cons in Hp |- *.
      change (acts_of (A_ a :: l)) with ([a] ++ acts_of l). rewrite app_assoc. eapply IH; [done| |done].
      eapply serves_act; [done|by apply (may_ok_may r hs Hok)|by apply do_act_acts]. }
  intros Hopen Hp. apply (H [] opening []); [done|constructor|done].
Qed.


(* The other node only answers: what it appends then has a low UID. *)
Section cases.
  Context (w : moving_rules) (hs : list (list (event op))) (Hok : checked (uid_ok nobody_waits own_slots) hs = true).
  Local Notation E := (run nobody_waits own_slots hs Hok).
  Local Notation state p := (contents (state_after empty apply p)).

  Context (before_report there : list step) (q p : list (event op)) (dq d : desk).
  Context (Hq : opened nobody_waits hs [] opening before_report = Some dq) (Hqe : events_of before_report = q) (Hqp : q `prefix_of` history_of hs 0).
  Context (Hp : opened nobody_waits hs [] opening there = Some d) (Hpe : events_of there = p) (Hpp : p `prefix_of` history_of hs 1).

  Lemma both_serve : serves all_read E 0 q dq (acts_of before_report) ∧ serves all_read E 1 p d (acts_of there).
  Proof. rewrite <- Hqe, <- Hpe. split; apply script_serves; [done|by rewrite Hqe|done|by rewrite Hpe]. Qed.

  Lemma both_conclude (Hrep : reports w q dq) (Hera : era d = era dq) (Htell : Tell 0 (era d) 130 ∈ acts_of before_report) (Htake : takes_over w q p d 0 130) : U2_moving w →
    (∀ m u, shown d !! m = Some (0, u) → as_there q p m → (130 ≤ u)%N ∨ before (acts_of before_report) (Show m 0 (era d) u) (Tell 0 (era d) 130)) ∧
    ∀ p' d' t' m u, Moving.goes_on all_read E 1 p d p' d' t' → Show m 0 (era d) u ∈ t' → (130 ≤ u)%N.
  Proof.
    intros H. destruct both_serve as [H0 H1].
    pose proof (H nobody_waits own_slots all_read E eq_refl eq_refl 0%nat 1%nat q dq (acts_of before_report) q dq [] p d (acts_of there) 0 130 H0 Hrep) as Hall.
    rewrite app_nil_r in Hall. apply Hall; [constructor|done|done|done|done].
  Qed.
End cases.

Global Instance desk_eq_dec : EqDecision desk.
Proof. solve_decision. Defined.
Ltac decided := apply (bool_decide_unpack _); vm_compute; exact I.

(* What is shown by a desk with one entry. *)
Lemma one_shown (d : desk) m0 n0 u0 m name u : shown d = {[ m0 := (n0, u0) ]} → shown d !! m = Some (name, u) → m = m0 ∧ name = n0 ∧ u = u0.
Proof. intros -> [-> [= -> ->]]%lookup_singleton_Some. done. Qed.

Definition desk_high : desk := Desk 0 {[ 0 := 130 ]} ∅ 0 {[ (1, 1, 0) := (0, 129) ]}.
Definition desk_low : desk := Desk 0 {[ 0 := 130 ]} ∅ 0 {[ (2, 1, 0) := (0, 66) ]}.

Lemma high_reports w q : epoch_now (contents (state_after empty apply q)) = 0 → living (contents (state_after empty apply q)) = [(1, 1, 0)] →
  name_now (contents (state_after empty apply q)) (1, 1, 0) = 0 → uid (contents (state_after empty apply q)) (1, 1, 0) = 129 → reports w q desk_high.
Proof.
  intros He Hl Hn Hu. split; [done|]. intros _ m Hm. apply elem_of_living in Hm. rewrite Hl in Hm. apply elem_of_list_singleton in Hm as ->. by rewrite Hn, Hu.
Qed.

Definition nothing_shown : desk := Desk 0 {[ 0 := 0 ]} ∅ 0 ∅.

(* The mark stays where it is: what the other node appends then has a low UID. *)
Lemma raising_is_needed : ¬ U2_moving mark_stands.
Proof.
  intros H. pose proof (both_conclude mark_stands strangers strangers_ok told_high [A_ (List_ 0)] (own [high]) [] desk_high nothing_shown) as Hc.
  edestruct Hc as [_ Hlater]; [decided|computed|by exists []|decided|computed|apply prefix_nil|by apply high_reports; computed|done|..|done|].
  - cbn. right. right. by left.
  - split; [done|computed|done|]. intros m u _ Hs. simpl in Hs. by apply lookup_empty_Some in Hs.
  - assert (130 ≤ 66) as Hle; [|lia].
    assert (Moving.goes_on all_read (run _ _ _ strangers_ok) 1 [] nothing_shown (own [low]) nothing_shown []) as Hgo.
    { apply (goes_event _ _ _ _ _ [Broadcast low] _ [] (Deliver low)); [|by exists []].
      apply (goes_event _ _ _ _ _ [] _ [] (Broadcast low)); [constructor|by exists [Deliver low]]. }
    pose proof (do_show nobody_waits nothing_shown (2, 1, 0) 0 0 66 eq_refl ltac:(intros _; lia)) as Hshow.
    eapply goes_act in Hshow; [|exact Hgo|apply (may_ok_may nobody_waits strangers strangers_ok); computed].
    apply (Hlater _ _ _ (2, 1, 0) 66 Hshow). by left.
Qed.

(* The mark is raised, and what is shown below is not claimed again. *)
Lemma claiming_is_needed : ¬ U2_moving nothing_claimed.
Proof.
  intros H. pose proof (both_conclude nothing_claimed strangers strangers_ok told_high has_low (own [high]) (own [low]) desk_high desk_low) as Hc.
  edestruct Hc as [Hnow _]; [decided|computed|by exists []|decided|computed|by exists []|by apply high_reports; computed|done|..|done|].
  - cbn. right. right. by left.
  - split; [done|computed| |done]. intros m u Hs Hlt. apply (one_shown _ (2, 1, 0) 0 66) in Hs as (-> & _ & ->); [|done].
    split; [|split; [computed|split; [computed|done]]]. decided.
  - destruct (Hnow (2, 1, 0) 66) as [Hle|Hb]; [computed| |lia|].
    + intros (o & placed & epoch & u & Ho & Hc'). cbn in Ho. rewrite !elem_of_cons, elem_of_nil in Ho. destruct Ho as [[=]|[[= ->]|[]]].
      cbn in Hc'. by apply elem_of_list_singleton in Hc'.
    + apply before_elem in Hb as [Hb _]. cbn in Hb. rewrite !elem_of_cons, elem_of_nil in Hb. by destruct Hb as [[=]|[[=]|[[=]|[]]]].
Qed.

(* The first node reports though what came late is hidden there. *)
Lemma completeness_is_needed : ¬ U2_moving reports_at_will.
Proof.
  intros H. pose proof (both_conclude reports_at_will heard_late heard_late_ok (told_high ++ gets low) has_low (own [high] ++ [Deliver low]) (own [low]) desk_high desk_low) as Hc.
  edestruct Hc as [Hnow _]; [decided|computed|by exists []|decided|computed|by exists []| |done|..|done|].
  - split; [computed|done].
  - cbn. right. right. by left.
  - split; [done|computed| |].
    + intros m u Hs Hlt. apply (one_shown _ (2, 1, 0) 0 66) in Hs as (-> & _ & ->); [|done].
      split; [|split; [computed|split; [computed|done]]]. decided.
    + intros m u _ Hs Hlt. apply (one_shown _ (2, 1, 0) 0 66) in Hs as (-> & _ & ->); [|done]. exists low. split; [cbn; do 2 right; by left|by left].
  - destruct (Hnow (2, 1, 0) 66) as [Hle|Hb]; [computed| |lia|].
    + intros _. split; [decided|]. split; [computed|]. split; [computed|].
      intros o epoch u Ho Hc'. cbn in Ho. rewrite !elem_of_cons, elem_of_nil in Ho. destruct Ho as [[=]|[[= ->]|[[= ->]|[]]]].
      * cbn in Hc'. by apply elem_of_list_singleton in Hc'.
      * right. by left.
    + apply before_elem in Hb as [Hb _]. cbn in Hb. rewrite !elem_of_cons, elem_of_nil in Hb. by destruct Hb as [[=]|[[=]|[[=]|[]]]].
Qed.

Theorem moving_rules_are_needed : moving_rules_needed_statement.
Proof. split; [exact raising_is_needed|]. split; [exact claiming_is_needed|exact completeness_is_needed]. Qed.
