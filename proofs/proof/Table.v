(* Each row of the conflict table happens, and so does a collection: one node makes mailboxes and mail, another learns of it, then each does its part,
   then they meet. *)
From Whimbrel.spec Require Import Conflicts Collection.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker.

Section meeting.
  (* What the first node makes before, what the two do, what the first does after. *)
  Context (setup : list op) (a b : op) (more : list op).

  Definition history_a : list (event op) := own setup ++ [Broadcast a; Deliver a; Deliver b] ++ own more.
  Definition history_b : list (event op) := (Deliver <$> setup) ++ [Broadcast b; Deliver b; Deliver a] ++ (Deliver <$> more).
  Definition meeting : list (list (event op)) := [history_a; history_b].

  Lemma meeting_happens r x : checked valid_ok meeting = true → saw b (op_dot a) = false → saw a (op_dot b) = false →
    applies r (deliveries history_a) a b x → happens r.
  Proof.
    intros Hok Hab Hba Hrow. exists (checked_execution valid valid_ok valid_ok_valid meeting Hok), (deliveries history_a), (contents (state_after empty apply history_a)), a, b, x.
    split; [by exists 0, history_a|]. split; [|done]. unfold history_a. rewrite !deliveries_app. split; [|split].
    - apply elem_of_app. right. by left.
    - apply elem_of_app. right. right. by left.
    - by eapply checked_concurrent.
  Qed.
End meeting.

(* What a row asks, by computation. *)
Definition removes_ok (o : op) (k : key) : bool :=
  existsb (λ e, match e with RemoveDots k' _ | RemoveSeen k' => bool_decide (k' = k) | _ => false end) (effects o).

Lemma removes_ok_removes o k : removes_ok o k = true ↔ removes o k.
Proof.
  unfold removes_ok, removes. rewrite existsb_exists. setoid_rewrite <- elem_of_list_In. split.
  - intros ([k'|k'|k' ds|r v] & He & Hk); try done; apply bool_decide_eq_true in Hk as ->; [by right|left; by exists ds].
  - intros [[ds He]|He]; eexists; (split; [exact He|]); by apply bool_decide_eq_true.
Qed.

Lemma puts_ok o k : bool_decide (Supersede k ∈ effects o) = true → puts o k.
Proof. apply bool_decide_eq_true. Qed.

Lemma not_undone_ok l a k : forallb (λ r, negb (removes_ok r k) || negb (saw r (op_dot a))) l = true → not_undone l a k.
Proof.
  rewrite forallb_forall. intros H r Hr%elem_of_list_In%H Hk%removes_ok_removes. rewrite Hk in Hr. simpl in Hr. by apply negb_true_iff in Hr.
Qed.

Lemma all_seen_ok l d k : forallb (λ o, negb (bool_decide (Supersede k ∈ effects o)) || saw d (op_dot o)) l = true → all_seen_by l d k.
Proof. rewrite forallb_forall. intros H o Ho%elem_of_list_In%H Hk. unfold puts in Hk. by rewrite bool_decide_true in Ho by done. Qed.

Definition raises (r : register) (e : effect) : bool := match e with Raise r' _ => bool_decide (r' = r) | _ => false end.

Lemma writes_last_ok l o r v : bool_decide (Raise r v ∈ effects o) = true →
  forallb (λ o', forallb (λ e, match e with Raise r' v' => negb (bool_decide (r' = r)) || at_most v' v | _ => true end) (effects o')) l = true →
  writes_last l o r v.
Proof.
  rewrite forallb_forall. intros Hw%bool_decide_eq_true H. split; [done|]. intros o' v' Ho'%elem_of_list_In%H Hv.
  rewrite forallb_forall in Ho'. apply elem_of_list_In, Ho' in Hv. by rewrite bool_decide_true in Hv by done.
Qed.

Lemma never_ok l r : forallb (λ o, negb (existsb (raises r) (effects o))) l = true → ∀ o v, o ∈ l → Raise r v ∉ effects o.
Proof.
  rewrite forallb_forall. intros H o v Ho%elem_of_list_In%H Hv. apply negb_true_iff, not_true_iff_false in Ho. apply Ho, existsb_exists.
  exists (Raise r v). split; [by apply elem_of_list_In|]. simpl. by apply bool_decide_eq_true.
Qed.

Ltac row_part :=
  first
    [ reflexivity
    | discriminate
    | apply puts_ok; vm_compute; reflexivity
    | apply removes_ok_removes; vm_compute; reflexivity
    | apply not_undone_ok; vm_compute; reflexivity
    | apply all_seen_ok; vm_compute; reflexivity
    | apply writes_last_ok; vm_compute; reflexivity
    | apply never_ok; vm_compute; reflexivity
    | eexists; split; [reflexivity|row_part]
    | apply (bool_decide_unpack _); vm_compute; reflexivity ].

Local Open Scope N_scope.

Definition spare : box_id := (1, 2).
Definition trash : box_id := (0, 9).
Definition first : message_id := (1, 4, 0).
Definition parcel : message_id := (0, 0, 77).

Definition made (n : N) (action : action) : op := Op (1, n) n ∅ action.
Definition setup : list op := [
  made 1 (AOpen 1000 0); made 2 (ACreate None 5 0); made 3 (ACreate (Some trash) 7 1); made 4 (AAppend spare 0 65 [1; DELETED] 9); made 5 (ASubscribe 5)].

(* The later of the two, and the earlier. *)
Definition one (action : action) : op := Op (1, 6) 9 ∅ action.
Definition other (action : action) : op := Op (2, 1) 7 {[ 1 := 5 ]} action.
(* After both. *)
Definition after (action : action) : op := Op (1, 7) 10 {[ 2 := 1 ]} action.

Ltac happened a b more x :=
  match goal with |- happens ?r => apply (meeting_happens setup a b more r x) end; [vm_compute; reflexivity|vm_compute; reflexivity|vm_compute; reflexivity|];
  hnf; repeat match goal with |- _ ∧ _ => split | |- both_deliver _ _ _ => split end; row_part.

Definition delete_spare : action := ADelete [(spare, {[ (1, 4) ]})] [(first, {[ (1, 4) ]})].
Definition expunge_first : action := AExpunge [(first, {[ (1, 4) ]})].

Theorem table_happens : table_happens_statement.
Proof.
  unfold table_happens_statement, conflict_table. rewrite !Forall_cons, Forall_nil.
  repeat match goal with |- _ ∧ _ => split end; try done.
  - happened (one (AAppend spare 0 129 [] 8)) (other delete_spare) (@nil op) spare.
  - happened (one (AAppend spare 0 129 [] 8)) (other delete_spare) (@nil op) (spare, (1, 6, 0)).
  - happened (one (ADeliver parcel (0, 7) spare 0 129 8)) (other delete_spare) (@nil op) (spare, parcel, (0, 7), 0, 129, 8).
  - happened (one (AAppend spare 0 129 [] 8)) (other delete_spare) (@nil op) (spare, (1, 6, 0), (9, 1)).
  - happened (one (AAppend spare 0 129 [] 8)) (other delete_spare) (@nil op) (spare, first).
  - happened (one (ARename [spare] 6)) (other delete_spare) (@nil op) ([spare], spare, 6).
  - happened (one (ARename [spare] 6)) (other (ACreate None 6 0)) (@nil op) ([spare], spare, (2, 1), 6, 0).
  - happened (one (ACreate (Some trash) 7 1)) (other (ADelete [(trash, {[ (1, 3) ]})] [])) (@nil op)
      (Some trash, 7, 1, [(trash, {[ (1, 3) ]} : gset dot)], @nil (message_id * gset dot)).
  - happened (one (AStore [first] [1] [] false)) (other (AStore [first] [] [1] false)) (@nil op) (first, 1).
  - happened (one (AStore [first] [] [DELETED] false)) (other (AStore [first] [DELETED] [] false)) (@nil op) first.
  - happened (one (AStore [first] [] [DELETED] true)) (other expunge_first) (@nil op) first.
  - happened (one (AMove INBOX 0 [(first, 129, true)])) (other expunge_first) (@nil op) first.
  - happened (one (AStore [first] [1] [] false)) (other expunge_first) (@nil op) ([first], [1], @nil N, first, [(first, {[ (1, 4) ]} : gset dot)]).
  - happened (one (AMove INBOX 0 [(first, 129, true)])) (other (AMove trash 0 [(first, 130, true)])) (@nil op)
      (INBOX, trash, 0, 0, [(first, 129, true)], [(first, 130, true)], first).
  - happened (one (ACopy INBOX 0 [(first, 129, [1])])) (other expunge_first) (@nil op)
      (INBOX, 0, [(first, 129, [1])], 0%nat, [(first, {[ (1, 4) ]} : gset dot)]).
  - happened (one (ARename [spare] 6)) (other (ARename [spare] 8)) (@nil op) ([spare], [spare], spare, 6, 8).
  - happened (one (ASubscribe 5)) (other (AUnsubscribe 5 {[ (1, 5) ]})) (@nil op) (5, {[ (1, 5) ]} : gset dot).
  - happened (one (ADeliver parcel (0, 7) spare 0 129 8)) (other (ADeliver parcel (0, 7) spare 0 130 8)) (@nil op)
      (parcel, (0, 7), spare, 0, 129, 0, 130, 8).
  - happened (one (ADeliver parcel (0, 7) spare 0 129 8)) (other (ADeliver parcel (0, 7) spare 0 130 8)) (@nil op)
      (parcel, (0, 7), spare, 0, 129, 0, 130, 8).
  - happened (one (ADeliver parcel (0, 7) spare 0 129 8)) (other (ADeliver parcel (0, 7) spare 0 130 8)) [after (AExpunge [(parcel, ∅)])]
      (parcel, (0, 7), spare, 0, 129, 0, 130, 8, after (AExpunge [(parcel, ∅)]), [(parcel, ∅ : gset dot)]).
Qed.

(* The message is expunged, the other node learns of it, and both go on. *)
Definition expunged : list op := setup ++ [made 6 expunge_first].
Definition going_on : op := Op (1, 7) 9 ∅ (ASubscribe 8).
Definition elsewhere : op := Op (2, 1) 9 {[ 1 := 6 ]} (ASubscribe 9).

Lemma going_on_ok : checked valid_ok (meeting expunged going_on elsewhere []) = true.
Proof. vm_compute. reflexivity. Qed.

Lemma all_of {A} (P : A → Prop) `{!∀ x, Decision (P x)} l x : bool_decide (Forall P l) = true → x ∈ l → P x.
Proof. rewrite bool_decide_eq_true, Forall_forall. auto. Qed.

Theorem collection_happens : collection_happens_statement.
Proof.
  set (E := checked_execution valid valid_ok valid_ok_valid _ going_on_ok).
  set (h := history_a expunged going_on elsewhere []). set (k := history_b expunged going_on elsewhere []).
  assert (∀ j o, Broadcast o ∈ history _ _ _ _ E j → (j = 0%nat ∨ j = 1%nat) ∧ o ∈ all_ops (meeting expunged going_on elsewhere [])) as Hwho.
  { intros j o Ho. split; [|by apply in_all_ops in Ho]. destruct j as [|[|j]]; [by left|by right|by apply elem_of_nil in Ho]. }
  exists E, 0%nat, 1%nat, (own expunged), h, first, elsewhere. split; [done|]. split; [split|split; [|split]].
  - by exists ([Broadcast going_on; Deliver going_on; Deliver elsewhere] ++ own []).
  - apply (bool_decide_unpack _). vm_compute. reflexivity.
  - intros o Ho. destruct (decide (o ∈ deliveries (own expunged))) as [|Hn]; [by left|]. right. intros (e & He & Ha).
    assert (o = going_on ∨ o = elsewhere) as [->| ->].
    { unfold h, history_a in Ho. rewrite !deliveries_app, !elem_of_app in Ho. destruct Ho as [Ho|[Ho|Ho]]; [done| |by apply elem_of_nil in Ho].
      simpl in Ho. rewrite !elem_of_cons, elem_of_nil in Ho. destruct Ho as [->|[->|[]]]; [by left|by right]. }
    + apply elem_of_list_singleton in He as ->. done.
    + apply elem_of_list_singleton in He as ->. done.
  - intros j o Ho. right. destruct (Hwho j o Ho) as [[-> | ->] _].
    + exists h. split; [done|]. split; [intros x Hx; unfold h, history_a; apply elem_of_app; by left|].
      intros x Hx%elem_of_broadcasts. revert Hx. apply (all_of (λ x, Deliver x ∈ h)). vm_compute. reflexivity.
    + exists k. split; [done|]. split.
      * intros x Hx%elem_of_deliveries. revert Hx. apply (all_of (λ x, Deliver x ∈ k)). vm_compute. reflexivity.
      * intros x Hx%elem_of_broadcasts. revert Hx. apply (all_of (λ x, Deliver x ∈ h)). vm_compute. reflexivity.
  - intros j o Ho Hm. destruct (Hwho j o Ho) as [_ Hin]. revert Hin. apply (all_of (λ x, Deliver x ∈ h)). vm_compute. reflexivity.
  - intros H. by vm_compute in H.
  - done.
  - right. right. right. right. right. right. by left.
Qed.
