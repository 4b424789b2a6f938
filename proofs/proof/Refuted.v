(* Histories that break a property of the UID protocol when one rule is left out. *)
From Whimbrel.spec Require Import Uids.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker.

Definition rule_1_ok (r : rules) (slot : N → N) (s : replica) (o : op) : bool :=
  forallb (λ c : claim, bool_decide (N.modulo c.2 64 = slot (op_dot o).1)
    && (negb (counters_follow r) || bool_decide (counter (contents s) c.1.2 < N.div c.2 64)%N)) (claims o)
  && bool_decide (NoDup ((λ c : claim, (c.1.2, c.2)) <$> claims o)).

Definition uid_ok (r : rules) (slot : N → N) (s : replica) (o : op) : bool := valid_ok s o && rule_1_ok r slot s o.

Lemma uid_ok_sound r slot s o : uid_ok r slot s o = true → valid s o ∧ rule_1 r slot s o.
Proof.
  unfold uid_ok, rule_1_ok. rewrite !andb_true_iff, forallb_forall. intros (Hv & Hc & Hnd). split; [by apply valid_ok_valid|]. split.
  - intros m placed epoch u Hin%elem_of_list_In%Hc. apply andb_true_iff in Hin as [H _]. by apply bool_decide_eq_true in H.
  - intros m placed epoch u Hr Hin%elem_of_list_In%Hc. rewrite Hr in Hin. apply andb_true_iff in Hin as [_ H]. by apply bool_decide_eq_true in H.
  - by apply bool_decide_eq_true in Hnd.
Qed.

Section runs.
  Context (r : rules) (slot : N → N) (hs : list (list (event op))) (Hok : checked (uid_ok r slot) hs = true).

  (* Everybody reads. *)
  Definition all_read (i : nat) : Prop := True.

  Definition run : uid_execution r slot := checked_execution (λ s o, valid s o ∧ rule_1 r slot s o) (uid_ok r slot) (uid_ok_sound r slot) hs Hok.

  Definition beginnings (h : list (event op)) : list (list (event op)) := h :: (places [] h).*1.

  Definition heard_ok (p : list (event op)) (epoch c : N) : bool :=
    forallb (λ h, bool_decide (broadcasts h = [])
      || existsb (λ q, bool_decide (c ≤ counter (contents (state_after empty apply q)) epoch)%N
           && forallb (λ x, bool_decide (Deliver x ∈ p)) (broadcasts q)) (beginnings h)) hs.

  Lemma places_prefix {A} (p l : list A) q : q ∈ (places p l).*1 → ∃ k, q = p ++ k ∧ k `prefix_of` l.
  Proof.
    revert p. induction l as [|e l IH]; intros p; simpl; [by intros ?%elem_of_nil|]. intros [->|Hin]%elem_of_cons.
    - exists []. split; [by rewrite app_nil_r|apply prefix_nil].
    - apply IH in Hin as (k & -> & Hk). exists (e :: k). split; [by rewrite <- app_assoc|by apply prefix_cons].
  Qed.

  Lemma heard_ok_heard p epoch c : heard_ok p epoch c = true → heard r slot all_read run p epoch c.
  Proof.
    unfold heard_ok. rewrite forallb_forall. intros H j o _ Hb. destruct (in_hs _ _ _ Hb) as (h & Hh & Heq & Hin).
    specialize (H h ltac:(by eapply elem_of_list_In, elem_of_list_lookup_2)). apply orb_true_iff in H as [H%bool_decide_eq_true|H].
    - apply elem_of_broadcasts in Hin. rewrite H in Hin. by apply elem_of_nil in Hin.
    - apply existsb_exists in H as (q & Hq%elem_of_list_In & [Hc Hall]%andb_true_iff). exists q. split; [|split].
      + change (q `prefix_of` history_of hs j). rewrite Heq. apply elem_of_cons in Hq as [->|Hq]; [done|]. by apply places_prefix in Hq as (k & -> & Hk).
      + by apply bool_decide_eq_true in Hc.
      + intros x Hx%elem_of_broadcasts. rewrite forallb_forall in Hall. by apply elem_of_list_In, Hall, bool_decide_eq_true in Hx.
  Qed.

  Definition show_ok (p : list (event op)) (m : message_id) (name epoch u : N) : bool :=
    let s := contents (state_after empty apply p) in
    bool_decide (lives s m) && bool_decide (box_name s (placed_in s m) = name) && bool_decide (uid s m = u) && bool_decide (u ≠ 0%N)
    && bool_decide (epoch = nth 0 (reg s REpoch) 0%N) && (negb (claims_wait r) || heard_ok p epoch (N.div u 64)).

  Lemma shows i p d t m name k u : serves all_read run i p d t → marks d !! name = Some k → (late_is_hidden r = true → k ≤ u)%N →
    show_ok p m name (era d) u = true →
    serves all_read run i p (Desk (era d) (marks d) (gone_marks d) (floor d) (<[m := (name, u)]> (shown d))) (t ++ [Show m name (era d) u]).
  Proof.
    intros Hs Hk Hu Hshow. eapply serves_act; [done| |by eapply do_show]. unfold show_ok in Hshow. rewrite !andb_true_iff, !bool_decide_eq_true in Hshow.
    destruct Hshow as (((((H1 & H2) & H3) & H4) & H5) & H6). repeat split; try done. intros Hr. rewrite Hr in H6. by apply heard_ok_heard.
  Qed.

  Lemma lists i p d t name : serves all_read run i p d t → marks d !! name = None →
    serves all_read run i p (Desk (era d) (<[name := default (floor d) (gone_marks d !! name)]> (marks d)) (delete name (gone_marks d)) (floor d) (shown d)) (t ++ [List_ name]).
  Proof. intros Hs Hn. eapply serves_act; [exact Hs|exact I|by apply do_list]. Qed.

  Lemma goes_on i p d t k : serves all_read run i p d t → p ++ k `prefix_of` history_of hs i → serves all_read run i (p ++ k) d t.
  Proof.
    intros Hs. induction k as [|e k IH] using rev_ind; [by rewrite app_nil_r|]. intros Hp. rewrite app_assoc in Hp |- *. apply serves_event; [|done].
    apply IH. etrans; [|exact Hp]. by eexists.
  Qed.

  Lemma opens i p : p `prefix_of` history_of hs i → serves all_read run i p opening [].
  Proof. intros Hp. apply (goes_on i [] opening [] p); [constructor|done]. Qed.

  Lemma tells i p d t name k next : serves all_read run i p d t → marks d !! name = Some k → (k ≤ next)%N →
    (∀ m u, shown d !! m = Some (name, u) → (u < next)%N) → (next ≤ N.max 1 k)%N ∨ (∃ m u, shown d !! m = Some (name, u) ∧ (next = u + 1)%N) →
    serves all_read run i p (Desk (era d) (<[name := next]> (marks d)) (gone_marks d) (floor d) (shown d)) (t ++ [Tell name (era d) next]).
  Proof. intros Hs ????. eapply serves_act; [exact Hs|exact I|by eapply do_tell]. Qed.

  Lemma believes i p d t name k next : serves all_read run i p d t → marks d !! name = Some k →
    serves all_read run i p (Desk (era d) (<[name := N.max k next]> (marks d)) (gone_marks d) (floor d) (shown d)) (t ++ [Believe name next]).
  Proof. intros Hs ?. eapply serves_act; [exact Hs|exact I|by eapply do_believe_listed]. Qed.

  Lemma unlists i p d t name k : serves all_read run i p d t → marks d !! name = Some k →
    serves all_read run i p (Desk (era d) (delete name (marks d))
      (if marks_stay r then <[name := N.max (default 0%N (gone_marks d !! name)) k]> (gone_marks d) else gone_marks d)
      (floor d) (filter (λ s, s.2.1 ≠ name) (shown d))) (t ++ [Unlist name]).
  Proof. intros Hs ?. eapply serves_act; [exact Hs|exact I|by eapply do_unlist]. Qed.

  (* The name is listed, a message is shown, UIDNEXT is told. *)
  Lemma shows_and_tells i p m u : p `prefix_of` history_of hs i → (0 < u)%N → show_ok p m 0 0 u = true →
    ∃ d, serves all_read run i p d [List_ 0; Show m 0 0 u; Tell 0 0 (u + 1)] ∧ era d = 0%N ∧ mark d 0 = (u + 1)%N.
  Proof.
    intros Hp Hu Hshow. pose proof (lists i p opening [] 0 (opens i p Hp) eq_refl) as Hs.
    assert (late_is_hidden r = true → 0 ≤ u)%N as H0 by (intros _; lia).
    eapply (shows i p _ _ m 0 0 u) in Hs; [|reflexivity|exact H0|exact Hshow].
    eapply (tells i p _ _ 0 0 (u + 1)) in Hs; [|reflexivity|lia|..].
    - eexists. split; [exact Hs|]. split; [done|]. unfold mark. simpl. by rewrite lookup_insert.
    - simpl. intros m' u' [[_ [= <-]]|[_ Hin]]%lookup_insert_Some; [lia|done].
    - right. exists m, u. simpl. by rewrite lookup_insert.
  Qed.

  (* The name is listed, a client says what it was told elsewhere, and is told it. *)
  Lemma believes_and_tells i p name next : p `prefix_of` history_of hs i →
    ∃ d, serves all_read run i p d [List_ name; Believe name next; Tell name 0 next] ∧
      era d = 0%N ∧ marks d !! name = Some next ∧ gone_marks d = ∅ ∧ floor d = 0%N.
  Proof.
    intros Hp. pose proof (lists i p opening [] name (opens i p Hp) eq_refl) as Hs.
    eapply (believes i p _ _ name 0 next) in Hs; [|simpl; by rewrite lookup_insert].
    eapply (tells i p _ _ name next next) in Hs; [|simpl; by rewrite lookup_insert, N.max_0_l|done|done|left; lia].
    eexists. split; [exact Hs|]. simpl. by rewrite lookup_insert, delete_empty.
  Qed.
End runs.

Local Open Scope N_scope.

Definition same_slot (x : N) : N := 1.
Definition own_slots (x : N) : N := x.

Lemma own_slots_ok {r} (E : uid_execution r own_slots) : slots_ok E.
Proof. intros _ x y epoch H. by left. Qed.

Definition append_at (d : dot) (time : N) (deps : gmap N N) (b : box_id) (u : N) : op := Op d time deps (AAppend b 0 u [] 9).

Ltac computed := vm_compute; reflexivity.

(* Two nodes of one slot append at once. *)
Definition twin_a : op := append_at (1, 1) 1 ∅ INBOX 65.
Definition twin_b : op := append_at (2, 1) 1 ∅ INBOX 65.
Definition twins : list (list (event op)) := [[Broadcast twin_a; Deliver twin_a; Deliver twin_b]; [Broadcast twin_b; Deliver twin_b; Deliver twin_a]].
Lemma twins_ok : checked (uid_ok one_slot_for_two same_slot) twins = true. Proof. computed. Qed.

Lemma slots_are_needed : ¬ U1 one_slot_for_two.
Proof.
  intros H. specialize (H same_slot all_read (run _ _ _ twins_ok) ltac:(done)).
  assert (∀ m, show_ok one_slot_for_two twins (history_of twins 0) m 0 0 65 = true →
    ∃ d t, serves all_read (run _ _ _ twins_ok) 0 (history_of twins 0) d t ∧ Show m 0 0 65 ∈ t) as Hrun.
  { intros m Hm. do 2 eexists. split.
    - eapply (shows _ _ _ _ _ _ _ _ m 0 _ 65); [eapply (lists _ _ _ _ _ _ _ _ 0); [by apply opens|done]|reflexivity|intros _; by vm_compute|exact Hm].
    - apply elem_of_app. right. by left. }
  destruct (Hrun (1, 1, 0)) as (d & t & Hs & Hin); [computed|]. destruct (Hrun (2, 1, 0)) as (d' & t' & Hs' & Hin'); [computed|].
  by specialize (H _ _ _ _ _ _ _ _ _ _ _ _ _ _ Hs Hs' Hin Hin').
Qed.

(* A node gives one UID twice. *)
Definition again_a : op := append_at (1, 1) 1 ∅ INBOX 65.
Definition again_b : op := append_at (1, 2) 2 ∅ INBOX 65.
Definition again : list (list (event op)) := [own [again_a; again_b]].
Lemma again_ok : checked (uid_ok counters_stand own_slots) again = true. Proof. computed. Qed.

Lemma counters_are_needed : ¬ U1 counters_stand.
Proof.
  intros H. specialize (H own_slots all_read (run _ _ _ again_ok) (own_slots_ok _)).
  assert (∀ m, show_ok counters_stand again (history_of again 0) m 0 0 65 = true →
    ∃ d t, serves all_read (run _ _ _ again_ok) 0 (history_of again 0) d t ∧ Show m 0 0 65 ∈ t) as Hrun.
  { intros m Hm. do 2 eexists. split.
    - eapply (shows _ _ _ _ _ _ _ _ m 0 _ 65); [eapply (lists _ _ _ _ _ _ _ _ 0); [by apply opens|done]|reflexivity|intros _; by vm_compute|exact Hm].
    - apply elem_of_app. right. by left. }
  destruct (Hrun (1, 1, 0)) as (d & t & Hs & Hin); [computed|]. destruct (Hrun (1, 2, 0)) as (d' & t' & Hs' & Hin'); [computed|].
  by specialize (H _ _ _ _ _ _ _ _ _ _ _ _ _ _ Hs Hs' Hin Hin').
Qed.

(* A node that has seen the UID 129 gives 66. *)
Definition high : op := append_at (1, 1) 1 ∅ INBOX 129.
Definition behind : op := append_at (2, 1) 2 {[ 1 := 1 ]} INBOX 66.
Definition falling : list (list (event op)) := [[Broadcast high; Deliver high; Deliver behind]; [Deliver high; Broadcast behind; Deliver behind]].
Lemma falling_ok : checked (uid_ok counters_stand own_slots) falling = true. Proof. computed. Qed.

Lemma counters_are_needed_for_U4 : ¬ U4 counters_stand.
Proof.
  intros H.
  destruct (shows_and_tells _ _ _ falling_ok 0 [Broadcast high; Deliver high] (1, 1, 0) 129) as (d & Hs & Hera & Hmark); [by exists [Deliver behind]|done|computed|].
  destruct (H own_slots all_read (run _ _ _ falling_ok) (own_slots_ok _) 0%nat _ _ _ behind [] (2, 1, 0) (2, 2) 66 0 Hs eq_refl)
    as [(name & next & Hin)|(m' & placed' & name' & u' & o' & Hin & Ho' & _ & _ & Hn & _)].
  - rewrite Hera. by left.
  - by rewrite Hmark.
  - rewrite !elem_of_cons, elem_of_nil in Hin. naive_solver.
  - rewrite !elem_of_cons, elem_of_nil in Ho'. destruct Ho' as [[=]|[[= ->]|[]]]. by vm_compute in Hn.
Qed.

(* A name is deleted, with it its mark; a message that another node appended meanwhile brings it back. *)
Definition create : op := Op (1, 1) 1 ∅ (ACreate None 5 0).
Definition delete_it : op := Op (1, 2) 2 ∅ (ADelete [((1, 1), {[ (1, 1) ]})] []).
Definition meanwhile : op := append_at (2, 1) 2 {[ 1 := 1 ]} (1, 1) 66.
Definition back : list (list (event op)) :=
  [[Broadcast create; Deliver create; Broadcast delete_it; Deliver delete_it; Deliver meanwhile];
   [Deliver create; Broadcast meanwhile; Deliver meanwhile; Deliver delete_it]].
Lemma back_ok : checked (uid_ok marks_go own_slots) back = true. Proof. computed. Qed.

Lemma marks_are_needed : ¬ U2 marks_go.
Proof.
  intros H. destruct (believes_and_tells _ _ _ back_ok 0 [Broadcast create; Deliver create] 5 200) as (d & Hs & Hera & Hm & Hg & Hf).
  { by exists [Broadcast delete_it; Deliver delete_it; Deliver meanwhile]. }
  eapply (unlists _ _ _ _ _ _ _ _ 5 200) in Hs; [|done].
  eapply (goes_on _ _ _ _ _ _ _ _ [Broadcast delete_it; Deliver delete_it; Deliver meanwhile]) in Hs; [|done].
  eapply (lists _ _ _ _ _ _ _ _ 5) in Hs; [|simpl; by rewrite lookup_delete]. simpl in Hs. rewrite Hera, Hg, Hf in Hs.
  eapply (shows _ _ _ _ _ _ _ _ (2, 1, 0) 5 0 66) in Hs; [|simpl; by rewrite lookup_insert|done|computed]. simpl in Hs.
  pose proof (H own_slots _ _ (own_slots_ok _) _ _ _ _ (2, 1, 0) 5 0 200 66 Hs) as Hle. cut (200 ≤ 66); [lia|]. apply Hle.
  by exists [List_ 5; Believe 5 200], [Unlist 5; List_ 5], [].
Qed.

(* A client says what it was told elsewhere, and a message with a lower UID arrives. *)
Definition low : op := append_at (2, 1) 1 ∅ INBOX 66.
Definition elsewhere : list (list (event op)) := [[Deliver low]; [Broadcast low; Deliver low]].
Lemma elsewhere_ok : checked (uid_ok late_is_shown own_slots) elsewhere = true. Proof. computed. Qed.

Lemma lateness_is_needed : ¬ U2 late_is_shown.
Proof.
  intros H. destruct (believes_and_tells _ _ _ elsewhere_ok 0 (history_of elsewhere 0) 0 200) as (d & Hs & Hera & Hm & _); [done|].
  eapply (shows _ _ _ _ _ _ _ _ (2, 1, 0) 0 200 66) in Hs; [|done|done|rewrite Hera; computed]. rewrite Hera in Hs.
  pose proof (H own_slots _ _ (own_slots_ok _) _ _ _ _ (2, 1, 0) 0 0 200 66 Hs) as Hle. cut (200 ≤ 66); [lia|]. apply Hle.
  by exists [List_ 0; Believe 0 200], [], [].
Qed.

(* Two nodes append at once, one shows and tells its UID, then the lower one of the other arrives. *)
Definition apart : list (list (event op)) := [[Broadcast high; Deliver high; Deliver low]; [Broadcast low; Deliver low; Deliver high]].
Lemma apart_ok : checked (uid_ok nobody_waits own_slots) apart = true. Proof. computed. Qed.

Lemma waiting_is_needed : ¬ claims_end nobody_waits.
Proof.
  intros H. destruct (shows_and_tells _ _ _ apart_ok 0 [Broadcast high; Deliver high] (1, 1, 0) 129) as (d & Hs & Hera & Hmark); [by exists [Deliver low]|done|computed|].
  assert (mark d 0 ≤ 66) as Hle; [|rewrite Hmark in Hle; lia].
  apply (H own_slots all_read (run _ _ _ apart_ok) (own_slots_ok _) 0%nat 1%nat _ _ _ low [] (2, 1, 0) (1, 2) 66 0 Hs eq_refl); [by left|done|rewrite Hera; by left|].
  intros name' next Hin. rewrite !elem_of_cons, elem_of_nil in Hin. naive_solver.
Qed.

Theorem each_rule_is_needed : each_rule_is_needed_statement.
Proof.
  split; [exact slots_are_needed|]. split; [exact counters_are_needed|]. split; [exact counters_are_needed_for_U4|].
  split; [exact marks_are_needed|]. split; [exact lateness_is_needed|exact waiting_is_needed].
Qed.
