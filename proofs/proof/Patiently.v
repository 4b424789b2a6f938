(* The history that goes on for ever when waits never grow, as long as they have not grown enough: the assumptions of spec/Patience.v can hold, and
   claims made twice. *)
From Whimbrel.spec Require Import Patience Executable.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker Refuted Executable Restless.

Section script.
  Context (k : nat) (r : rules) (hs : list (list (event op))) (Hok : checked (uid_ok r own_slots) hs = true).
  Context (scripts : list (list step * list step)).
  Local Notation state p := (contents (state_after empty apply p)).
  Local Notation E := (run r own_slots hs Hok).
  Local Notation cut_of := (cut_of scripts).

  Definition soon_ok (p : list (event op)) (a : act) : bool :=
    match a with Show m _ epoch u => bool_decide (superseded p m < k) | _ => true end.

  Fixpoint waited (p : list (event op)) (d : desk) (l : list step) : bool :=
    match l with
    | [] => true
    | E_ e :: l => match e with Broadcast o => claim_again_ok always_times_out p d o | Deliver _ => true end && waited (p ++ [e]) d l
    | A_ a :: l => may_ok r hs p a && quiet_ok always_times_out hs p d a && soon_ok p a && match do_act r d a with Some d' => waited p d' l | None => false end
    end.

  Lemma waited_claims i l p d t p' o q : waited p d l = true → waits k all_read E cut_of i p d t → p ++ events_of l `prefix_of` history_of hs i →
    p ++ events_of l = p' ++ Broadcast o :: q → p `prefix_of` p' → ∃ d' t', waits k all_read E cut_of i p' d' t' ∧ claim_again_ok always_times_out p' d' o = true.
  Proof.
    revert p d t. induction l as [|[e|a] l IH]; intros p d t Hrest Hs Hp Heq Hpre; simpl in Hrest.
    - destruct Hpre as [x ->]. apply (f_equal length) in Heq. rewrite app_nil_r, !app_length in Heq. simpl in Heq. lia.
    - apply andb_true_iff in Hrest as [Hbroad Hrest]. rewrite events_of_cons in Hp, Heq. destruct Hpre as [x ->]. destruct x as [|e' x].
      + rewrite app_nil_r in Heq. apply app_inv_head in Heq as [= -> _]. exists d, t. rewrite app_nil_r. by split.
      + rewrite <- app_assoc in Heq. apply app_inv_head in Heq as [= <- Heqx]. eapply (IH (p ++ [e])); [done| | | |].
        * apply waits_event; [done|]. etrans; [|exact Hp]. exists (events_of l). by rewrite <- app_assoc.
        * by rewrite <- app_assoc.
        * rewrite <- app_assoc. simpl. rewrite Heqx. by rewrite <- app_assoc.
        * exists x. by rewrite <- app_assoc.
    - rewrite !andb_true_iff in Hrest. destruct Hrest as [[[Hmay Hquiet] Hsoon] Hrest]. destruct (do_act r d a) as [d1|] eqn:Hdo; [|done].
      rewrite events_of_cons in Hp, Heq. eapply IH; [done| |done|done|done].
      eapply waits_act; [done|by eapply may_ok_may|by apply do_act_acts|]. split; [by eapply quiet_ok_quiet|].
      destruct a; try done. left. by apply bool_decide_eq_true in Hsoon.
  Qed.

  Definition waited_ok (i : nat) : bool :=
    match opened r hs [] opening (script_of scripts i).1 with Some d => waited (cut_of i) d (script_of scripts i).2 | None => false end.

  Fixpoint at_once (l : list (event op)) : bool :=
    match l with
    | [] => true
    | Broadcast o :: l => match l with Deliver o' :: _ => bool_decide (o = o') | _ => false end && at_once l
    | Deliver _ :: l => at_once l
    end.

  Lemma at_once_next l p o q : at_once l = true → l = p ++ Broadcast o :: q → ∃ q', q = Deliver o :: q'.
  Proof.
    revert p. induction l as [|e l IH]; intros p H Heq; [by destruct p|]. destruct p as [|e' p]; injection Heq as -> ->.
    - simpl in H. apply andb_true_iff in H as [H _]. destruct q as [|[o'|o'] q]; [done|done|]. apply bool_decide_eq_true in H as ->. by exists q.
    - destruct e'; simpl in H; [apply andb_true_iff in H as [_ H]|]; by eapply IH.
  Qed.

  Definition patient_ok : bool :=
    scripts_ok always_times_out r hs scripts && forallb waited_ok (seq 0 (length hs)) && forallb (λ i, at_once (history_of hs i)) (seq 0 (length hs)).

  Lemma scripts_patient : patient_ok = true → patient k all_read E cut_of.
  Proof.
    unfold patient_ok. rewrite !andb_true_iff, !forallb_forall. intros [[Hscripts Hwaited] Honce]. split.
    - by apply scripts_quiet.
    - intros j p o m placed epoch u [Hcut [q Hq]] Hc.
      assert (j < length hs) as Hj.
      { destruct (decide (j < length hs)); [done|]. exfalso. change (history_of hs j = p ++ Broadcast o :: q) in Hq.
        unfold history_of in Hq. rewrite lookup_ge_None_2 in Hq by lia. simpl in Hq. by destruct p. }
      specialize (Hwaited j ltac:(apply elem_of_list_In, elem_of_seq; lia)).
      pose proof (all_nodes_ok _ _ _ _ j Hscripts) as H. unfold node_ok in H. rewrite !andb_true_iff, bool_decide_eq_true in H.
      destruct H as [[Heq _] H]. unfold waited_ok in Hwaited. destruct (opened r hs [] opening (script_of scripts j).1) as [d|] eqn:Hopen; [|done].
      apply andb_true_iff in H as [Hm _].
      destruct (opened_serves r hs Hok j _ _ _ [] _ Hopen) as [t Hs]; [constructor|simpl; rewrite <- Heq; by eexists|]. simpl in Hs.
      assert (waits k all_read E cut_of j (cut_of j) d t) as Hr.
      { apply waits_cut; [done| |by eapply marks_ok_counted]. unfold marks_ok in Hm. apply andb_true_iff in Hm as [Hm _]. by apply bool_decide_eq_true in Hm. }
      destruct (waited_claims j _ _ _ _ p o q Hwaited Hr) as (d' & t' & Hr' & Hok').
      + unfold Restless.cut_of. by rewrite Heq.
      + unfold Restless.cut_of. rewrite Heq. exact Hq.
      + done.
      + unfold claim_again_ok in Hok'. rewrite forallb_forall in Hok'. specialize (Hok' _ ltac:(by apply elem_of_list_In)).
        rewrite !andb_true_iff, !bool_decide_eq_true, orb_true_iff in Hok'. destruct Hok' as [_ [?|H4]]; [done|].
        exists d', t'. split; [done|]. by apply late_ok_late.
    - intros j p o q Hq _. change (history_of hs j = p ++ Broadcast o :: q) in Hq. eapply at_once_next; [|exact Hq].
      destruct (decide (j < length hs)); [apply Honce, elem_of_list_In, elem_of_seq; lia|]. unfold history_of. by rewrite lookup_ge_None_2 by lia.
    - done.
  Qed.
End script.

Theorem patience_happens : patience_happens_statement.
Proof.
  exists 5, nobody_waits, own_slots, all_read, (run _ _ _ bouncing_ok), (cut_of bouncing), 0%nat, (1, 1, 0)%N.
  split; [done|]. split; [done|]. split; [apply own_slots_ok|]. split; [|by vm_compute; lia].
  apply scripts_patient. computed.
Qed.
