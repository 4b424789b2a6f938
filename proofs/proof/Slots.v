(* Histories in which a slot is given again: when nothing is wrong, and when it was too soon. *)
From Whimbrel.spec Require Import Slots.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker Refuted.

Local Open Scope N_scope.

(* The origin 2 gets the slot of the origin 1. *)
Definition heir (x : N) : N := if bool_decide (x = 2) then 1 else x.

Lemma heirs x y : heir x = heir y → x = y ∨ (x = 1 ∧ y = 2) ∨ (x = 2 ∧ y = 1).
Proof. unfold heir. repeat case_bool_decide; subst; intros; subst; auto. Qed.

Section follows.
  Context (r : rules) (slot : N → N) (hs : list (list (event op))) (Hok : checked (uid_ok r slot) hs = true).

  Definition in_one_epoch (o o' : op) : bool := existsb (λ c : claim, existsb (λ c' : claim, bool_decide (c.1.2 = c'.1.2)) (claims o')) (claims o).

  Lemma in_one_epoch_true o o' m placed epoch u m' placed' u' : (m, placed, epoch, u) ∈ claims o → (m', placed', epoch, u') ∈ claims o' → in_one_epoch o o' = true.
  Proof.
    intros Hc Hc'. apply existsb_exists. eexists. split; [by apply elem_of_list_In|]. apply existsb_exists. eexists. split; [by apply elem_of_list_In|].
    by apply bool_decide_eq_true.
  Qed.

  Definition follows_ok (x y : N) : bool :=
    forallb (λ h, forallb (λ pe : list (event op) * event op,
      match pe.2 with
      | Broadcast o => negb (bool_decide ((op_dot o).1 = y)) ||
          forallb (λ o', negb (bool_decide ((op_dot o').1 = x)) || negb (in_one_epoch o o') || bool_decide (Deliver o' ∈ pe.1)) (mjoin (broadcasts <$> hs))
      | Deliver _ => true
      end) (places [] h)) hs.

  Lemma follows_ok_follows x y epoch : follows_ok x y = true → follows (run r slot hs Hok) x y epoch.
  Proof.
    unfold follows_ok. rewrite forallb_forall. intros H j p o q m placed u i o' m' placed' u' Heq Hy Hc Hb Hx Hc'.
    change (history_of hs j = p ++ Broadcast o :: q) in Heq. change (Broadcast o' ∈ history_of hs i) in Hb.
    assert (history_of hs j ∈ hs) as Hj.
    { unfold history_of in *. destruct (hs !! j) as [h|] eqn:Hh; [by eapply elem_of_list_lookup_2|]. simpl in Heq. by destruct p. }
    specialize (H _ ltac:(by apply elem_of_list_In)). rewrite forallb_forall in H.
    specialize (H (p, Broadcast o)). simpl in H. rewrite bool_decide_true in H by done. simpl in H. rewrite forallb_forall in H.
    assert (o' ∈ mjoin (broadcasts <$> hs)) as Ho'.
    { destruct (in_hs _ _ _ Hb) as (h & Hh & _ & Hin). apply elem_of_list_join. exists (broadcasts h). split; [by apply elem_of_broadcasts|].
      apply elem_of_list_fmap_1. by eapply elem_of_list_lookup_2. }
    assert (In (p, Broadcast o) (places [] (history_of hs j))) as Hin.
    { apply elem_of_list_In. pose proof (places_all [] (history_of hs j) p (Broadcast o) q Heq) as Hp. by simpl in Hp. }
    specialize (H Hin o' ltac:(by apply elem_of_list_In)). rewrite bool_decide_true in H by done.
    rewrite (in_one_epoch_true _ _ _ _ _ _ _ _ _ Hc Hc') in H. simpl in H. by apply bool_decide_eq_true in H.
  Qed.
End follows.

Lemma heirs_ok hs (Hok : checked (uid_ok all_rules heir) hs = true) : follows_ok hs 1 2 = true → slots_ok (run all_rules heir hs Hok).
Proof.
  intros H _ x y epoch [->|[[-> ->]|[-> ->]]]%heirs; [by left|right; left|right; right]; by apply follows_ok_follows.
Qed.

Definition first_of_1 : op := append_at (1, 1) 1 ∅ INBOX 65.
Definition second_of_1 : op := append_at (1, 2) 2 ∅ INBOX 129.

(* All of the first is applied. *)
Definition in_full : op := append_at (2, 1) 3 {[ 1 := 2 ]} INBOX 193.
Definition to_the_end : list (list (event op)) := [own [first_of_1; second_of_1]; [Deliver first_of_1; Deliver second_of_1] ++ own [in_full]].
Lemma to_the_end_ok : checked (uid_ok all_rules heir) to_the_end = true. Proof. computed. Qed.

(* Nothing of it, but the epoch has risen. *)
Definition rise : op := Op (2, 1) 3 ∅ (AEpoch 5).
Definition risen_append : op := Op (2, 2) 4 ∅ (AAppend INBOX 5 65 [] 9).
Definition risen : list (list (event op)) := [own [first_of_1; second_of_1]; own [rise; risen_append]].
Lemma risen_ok : checked (uid_ok all_rules heir) risen = true. Proof. computed. Qed.

Theorem given_again_happens : given_again_happens_statement.
Proof.
  split.
  - exists heir, (run _ _ _ to_the_end_ok), 1, 2, 0. split; [done|]. split; [done|]. split; [apply heirs_ok; computed|].
    exists 0%nat, 1%nat, first_of_1, in_full. do 6 eexists. split; [by left|]. split; [done|]. split; [by left|].
    split; [right; right; by left|]. split; [done|by left].
  - exists heir, (run _ _ _ risen_ok), 1, 2. split; [done|]. split; [done|]. split; [apply heirs_ok; computed|].
    split; [|split; [|split]].
    + exists 0%nat, 0%nat, first_of_1, first_of_1. do 6 eexists. split; [by left|]. split; [done|]. split; [by left|]. split; [by left|]. split; [done|by left].
    + exists 1%nat, 1%nat, risen_append, risen_append. do 6 eexists. split; [do 2 right; by left|]. split; [done|]. split; [by left|].
      split; [do 2 right; by left|]. split; [done|by left].
    + intros j o _ Hx Hin. change (Deliver o ∈ history_of risen 1) in Hin. unfold history_of, risen, own in Hin. simpl in Hin.
      rewrite !elem_of_cons, elem_of_nil in Hin. destruct Hin as [?|[[= ->]|[?|[[= ->]|[]]]]]; done.
    + intros j o Hb Hy. destruct (in_hs _ _ _ Hb) as (h & Hh & _ & Hin). destruct j as [|[|j]]; simpl in Hh; [| |done].
      * injection Hh as <-. unfold own in Hin. simpl in Hin. rewrite !elem_of_cons, elem_of_nil in Hin. destruct Hin as [[= ->]|[?|[[= ->]|[?|[]]]]]; done.
      * injection Hh as <-. exact Hin.
Qed.

(* The second message of the first has not come to its heir. A third node gets all. *)
Definition in_part : op := append_at (2, 1) 3 {[ 1 := 1 ]} INBOX 129.
Definition halfway : list (list (event op)) :=
  [own [first_of_1; second_of_1]; [Deliver first_of_1] ++ own [in_part]; [Deliver first_of_1; Deliver second_of_1; Deliver in_part]].
Lemma halfway_ok : checked (uid_ok all_rules heir) halfway = true. Proof. computed. Qed.

Lemma halfway_made i o : Broadcast o ∈ history_of halfway i → o = first_of_1 ∨ o = second_of_1 ∨ o = in_part.
Proof.
  intros (h & Hh & _ & Hin)%in_hs. destruct i as [|[|[|i]]]; simpl in Hh; [injection Hh as <-..|done]; unfold own in Hin; simpl in Hin;
    rewrite !elem_of_cons, elem_of_nil in Hin; naive_solver.
Qed.

Lemma halfway_began epoch : began_after (run _ _ _ halfway_ok) 1 2 epoch.
Proof.
  intros j p o q m placed u Heq Hy Hc. change (history_of halfway j = p ++ Broadcast o :: q) in Heq.
  assert (Broadcast o ∈ history_of halfway j) as Hb by (rewrite Heq; apply elem_of_app; right; by left).
  destruct (halfway_made _ _ Hb) as [->|[->| ->]]; [done|done|]. apply elem_of_list_singleton in Hc as [= -> -> -> ->]. split.
  - exists first_of_1, (1, 1, 0), (1, 1), 65. split; [|split; [done|by left]].
    destruct j as [|[|[|j]]].
    + exfalso. revert Hb. apply (bool_decide_unpack (Broadcast in_part ∉ history_of halfway 0)). computed.
    + destruct p as [|e p]; [done|]. injection Heq as <- _. by left.
    + exfalso. revert Hb. apply (bool_decide_unpack (Broadcast in_part ∉ history_of halfway 2)). computed.
    + by destruct p.
  - intros i o' Ho' Hx. change (Broadcast o' ∈ history_of halfway i) in Ho'. by destruct (halfway_made _ _ Ho') as [->|[->| ->]].
Qed.

Theorem given_too_soon : given_too_soon_statement.
Proof.
  intros H. specialize (H heir all_read (run _ _ _ halfway_ok)).
  assert (∀ m, show_ok all_rules halfway (history_of halfway 2) m 0 0 129 = true →
    ∃ d t, serves all_read (run _ _ _ halfway_ok) 2 (history_of halfway 2) d t ∧ Show m 0 0 129 ∈ t) as Hrun.
  { intros m Hm. do 2 eexists. split.
    - eapply (shows _ _ _ _ _ _ _ _ m 0 _ 129); [eapply (lists _ _ _ _ _ _ _ _ 0); [by apply opens|done]|reflexivity|intros _; by vm_compute|exact Hm].
    - apply elem_of_app. right. by left. }
  destruct (Hrun (1, 2, 0)) as (d & t & Hs & Hin); [computed|]. destruct (Hrun (2, 1, 0)) as (d' & t' & Hs' & Hin'); [computed|].
  assert (slots_begun (run _ _ _ halfway_ok)) as Hbegun.
  { intros x y epoch [->|[[-> ->]|[-> ->]]]%heirs; [by left|right; left|right; right]; apply halfway_began. }
  by specialize (H Hbegun _ _ _ _ _ _ _ _ _ _ _ _ _ _ Hs Hs' Hin Hin').
Qed.
