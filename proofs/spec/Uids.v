(* The UID protocol (docs/design.md#uids; crates/mailbox/src/{view,announced}.rs and plan/reassign.rs): claims, marks, lateness, waiting.

   A replica has, beside the account, a desk: what it shows and what it has told its clients. The desk is not replicated. The desk of the model may hide,
   list, forget names and wait whenever it likes; the rules say only what it must not show, and which claims must not be made. MODSEQ is not in it.

   Each rule can be left out: [rules] says which are kept. The properties hold with all rules, and for each there is a history that refutes one of them
   without that rule. *)
From Whimbrel.spec Require Export Mailbox.

Record rules := Rules {
  slots_differ : bool;     (* docs/design.md#rule-1: no two nodes have one slot at a time *)
  counters_follow : bool;  (* docs/design.md#rule-1: a claim is above every counter seen *)
  marks_stay : bool;       (* docs/design.md#rule-3: a mark outlives its name *)
  late_is_hidden : bool;   (* docs/design.md#rule-4: nothing is shown below the mark *)
  claims_wait : bool;      (* docs/design.md#rule-5, without its time-outs *)
}.
Definition all_rules : rules := Rules true true true true true.

(* A claim: message, stamp of the placement it is for, epoch, UID. *)
Notation claim := (message_id * stamp * N * N)%type (only parsing).
Definition claims (o : op) : list claim :=
  match op_action o with
  | AAppend b epoch uid _ _ => [(own_message (op_dot o) 0, op_stamp o, epoch, uid)]
  | ADeliver m placed _ epoch uid _ => [(m, placed, epoch, uid)]
  | ACopy _ epoch entries => imap (λ i entry, (own_message (op_dot o) (N.of_nat i), op_stamp o, epoch, entry.1.2)) entries
  | AMove _ epoch entries => (λ entry, (entry.1.1, op_stamp o, epoch, entry.1.2)) <$> entries
  | AClaim epoch claims => (λ c, (c.1.1, c.1.2, epoch, c.2)) <$> claims
  | _ => []
  end.

Definition counter (s : account) (epoch : N) : N := nth 0 (reg s (RCounter epoch)) 0%N.

(* Rule 1. [slot] gives each origin the six low bits of its UIDs. *)
Record rule_1 (r : rules) (slot : N → N) (s : replica) (o : op) : Prop := {
  own_slot m placed epoch u : (m, placed, epoch, u) ∈ claims o → N.modulo u 64 = slot (op_dot o).1;
  above_counter m placed epoch u : counters_follow r = true → (m, placed, epoch, u) ∈ claims o → (counter (contents s) epoch < N.div u 64)%N;
  claimed_once : NoDup ((λ c, (c.1.2, c.2)) <$> claims o);
}.
Definition uid_execution (r : rules) (slot : N → N) := execution op_dot empty apply (λ s o, valid s o ∧ rule_1 r slot s o).

(* A slot may be given again. Where the origin [y] claims anything in an epoch, all is applied that [x] ever claimed in it: the logs of [x] are closed, and [y]
   has applied them to their ends (docs/decisions/0024); or the epoch has risen in between (docs/design.md#rule-7), so that [x] has claimed nothing in it. *)
Definition follows {r slot} (E : uid_execution r slot) (x y epoch : N) : Prop := ∀ j p o q m placed u i o' m' placed' u',
  history _ _ _ _ E j = p ++ Broadcast o :: q → (op_dot o).1 = y → (m, placed, epoch, u) ∈ claims o →
  Broadcast o' ∈ history _ _ _ _ E i → (op_dot o').1 = x → (m', placed', epoch, u') ∈ claims o' → Deliver o' ∈ p.
Definition slots_ok {r slot} (E : uid_execution r slot) : Prop :=
  slots_differ r = true → ∀ x y epoch, slot x = slot y → x = y ∨ follows E x y epoch ∨ follows E y x epoch.

(* Claims are for an epoch that has come: the claim of a later one would hide that of the present one. *)
Definition not_ahead (s : account) (o : op) : Prop := ∀ m placed epoch u, (m, placed, epoch, u) ∈ claims o → (epoch ≤ nth 0 (reg s REpoch) 0)%N.

(* The desk: the epoch, the mark of each name that is listed, those of names that are gone, the mark of every other name, and what is shown: under which
   name, by which UID. *)
Record desk := Desk { era : N; marks : gmap N N; gone_marks : gmap N N; floor : N; shown : gmap message_id (N * N) }.
Definition opening : desk := Desk 0 ∅ ∅ 0 ∅.

Definition mark (d : desk) (name : N) : N :=
  match marks d !! name with Some k => k | None => default (floor d) (gone_marks d !! name) end.

Inductive act :=
  | Show (m : message_id) (name epoch u : N)  (* as new, under this name *)
  | Hide (m : message_id)
  | Tell (name epoch next : N)                (* UIDNEXT, in whatever answer *)
  | Believe (name next : N)                   (* a client says that it was told this UIDNEXT elsewhere: takeover, docs/design.md#rule-6 *)
  | List_ (name : N) | Unlist (name : N)      (* some mailbox bears the name now; none does *)
  | Fold (name : N)                           (* the mark of a name that is gone is merged into the floor *)
  | NewEra (epoch : N).

Inductive acts (r : rules) (d : desk) : act → desk → Prop :=
  | do_show m name k u : marks d !! name = Some k → (late_is_hidden r = true → k ≤ u)%N →
      acts r d (Show m name (era d) u) (Desk (era d) (marks d) (gone_marks d) (floor d) (<[m := (name, u)]> (shown d)))
  | do_hide m : acts r d (Hide m) (Desk (era d) (marks d) (gone_marks d) (floor d) (delete m (shown d)))
  | do_tell name k next : marks d !! name = Some k → (k ≤ next)%N → (∀ m u, shown d !! m = Some (name, u) → (u < next)%N) →
      (next ≤ N.max 1 k)%N ∨ (∃ m u, shown d !! m = Some (name, u) ∧ (next = u + 1)%N) →
      acts r d (Tell name (era d) next) (Desk (era d) (<[name := next]> (marks d)) (gone_marks d) (floor d) (shown d))
  | do_believe_listed name k next : marks d !! name = Some k →
      acts r d (Believe name next) (Desk (era d) (<[name := N.max k next]> (marks d)) (gone_marks d) (floor d) (shown d))
  | do_believe_gone name next : marks d !! name = None →
      acts r d (Believe name next)
        (Desk (era d) (marks d) (<[name := N.max (default 0%N (gone_marks d !! name)) (N.max next (floor d))]> (gone_marks d)) (floor d) (shown d))
  | do_list name : marks d !! name = None →
      acts r d (List_ name)
        (Desk (era d) (<[name := default (floor d) (gone_marks d !! name)]> (marks d)) (delete name (gone_marks d)) (floor d) (shown d))
  | do_unlist name k : marks d !! name = Some k →
      acts r d (Unlist name) (Desk (era d) (delete name (marks d))
        (if marks_stay r then <[name := N.max (default 0%N (gone_marks d !! name)) k]> (gone_marks d) else gone_marks d)
        (floor d) (filter (λ s, s.2.1 ≠ name) (shown d)))
  | do_fold name k : gone_marks d !! name = Some k →
      acts r d (Fold name) (Desk (era d) (marks d) (delete name (gone_marks d)) (N.max (floor d) k) (shown d))
  | do_new_era epoch : (era d < epoch)%N →
      acts r d (NewEra epoch) (Desk epoch ((λ _, 0%N) <$> marks d) ∅ 0 ∅).

Section protocol.
  (* [readers]: the nodes with clients that look at the account. *)
  Context (r : rules) (slot : N → N) (readers : nat → Prop) (E : uid_execution r slot).
  Local Notation history := (history _ _ _ _ E).
  Local Notation state p := (contents (state_after empty apply p)).

  (* Rule 5: from each node with readers a counter at least this high was heard: at some moment it had it, and what it broadcast before is here. (Of the
     node itself this is so when it applies what it makes at once. Who never broadcasts need not be heard.) *)
  Definition heard (p : list (event op)) (epoch c : N) : Prop :=
    ∀ j o, readers j → Broadcast o ∈ history j →
      ∃ q, q `prefix_of` history j ∧ (c ≤ counter (state q) epoch)%N ∧ ∀ x, Broadcast x ∈ q → Deliver x ∈ p.

  (* What is shown is a living message, under the present name of its place, by the greatest claim for that place in the present epoch. *)
  Definition may_do_in (s : account) (p : list (event op)) (a : act) : Prop :=
    match a with
    | Show m name epoch u =>
        lives s m ∧ box_name s (placed_in s m) = name ∧ uid s m = u ∧ u ≠ 0%N ∧
        epoch = nth 0 (reg s REpoch) 0%N ∧ (claims_wait r = true → heard p epoch (N.div u 64))
    | _ => True
    end.
  Definition may_do (p : list (event op)) : act → Prop := may_do_in (state p) p.

  (* Node [i] after [p], the desk it has, and all that its desk did. *)
  Inductive serves (i : nat) : list (event op) → desk → list act → Prop :=
    | serves_start : serves i [] opening []
    | serves_event p d t e : serves i p d t → p ++ [e] `prefix_of` history i → serves i (p ++ [e]) d t
    | serves_act p d t a d' : serves i p d t → may_do p a → acts r d a d' → serves i p d' (t ++ [a]).
End protocol.

Arguments serves {r slot} readers E i.

(* The properties, each about every execution that keeps the rules. *)
Definition property (P : ∀ r slot, (nat → Prop) → uid_execution r slot → Prop) (r : rules) : Prop :=
  ∀ slot readers (E : uid_execution r slot), slots_ok E → P r slot readers E.

(* U1: in one epoch (one UIDVALIDITY) no UID denotes two messages, whatever the names, on whatever nodes, whenever. *)
Definition one_message {r slot} (readers : nat → Prop) (E : uid_execution r slot) : Prop := ∀ i j p q d d' t t' m m' name name' epoch u,
  serves readers E i p d t → serves readers E j q d' t' → Show m name epoch u ∈ t → Show m' name' epoch u ∈ t' → m = m'.
Definition U1 : rules → Prop := property (λ r slot readers E, one_message readers E).

(* U2, at one node: what is shown as new has a UID of at least every UIDNEXT told before for that name in that epoch. *)
Definition U2 : rules → Prop := property (λ r slot readers E, ∀ i p d t m name epoch next u,
  serves readers E i p d t → before t (Tell name epoch next) (Show m name epoch u) → (next ≤ u)%N).

(* U4: when a claim arrives it is below a mark (so that the message will be claimed again, and change its UID) only if a client has named a UIDNEXT above
   it (takeover), or if a greater UID was shown whose maker had not seen this claim, nor the maker of this claim that one. What comes under a mark later does
   so by a RENAME. *)
Definition U4 : rules → Prop := property (λ r slot readers E, ∀ i p d t o q m placed u name,
  serves readers E i p d t → history _ _ _ _ E i = p ++ Deliver o :: q → (m, placed, era d, u) ∈ claims o → (u < mark d name)%N →
  (∃ name' next, Believe name' next ∈ t ∧ (u < next)%N) ∨
  ∃ m' placed' name' u' o', Show m' name' (era d) u' ∈ t ∧ Deliver o' ∈ p ∧ (m', placed', era d, u') ∈ claims o' ∧ (u < u')%N ∧
    saw o (op_dot o') = false ∧ saw o' (op_dot o) = false).

(* Claims end: if every claim waits until it is heard, and no client has named a UIDNEXT above it (takeover), what a node with readers claims is never
   late anywhere, so that it is never claimed again. What a node without readers claims may be late where there are readers; these claim it again, and
   that is then final. *)
Definition claims_end : rules → Prop := property (λ r slot readers E, ∀ i j p d t o q m placed u name,
  serves readers E i p d t → history _ _ _ _ E i = p ++ Deliver o :: q → Broadcast o ∈ history _ _ _ _ E j → readers j →
  (m, placed, era d, u) ∈ claims o → (∀ name' next, Believe name' next ∈ t → (next ≤ u)%N) → (mark d name ≤ u)%N).

(* Which rules each needs. *)
Definition U1_statement : Prop := ∀ r, slots_differ r = true → counters_follow r = true → U1 r.
Definition U2_statement : Prop := ∀ r, marks_stay r = true → late_is_hidden r = true → U2 r.
Definition U4_statement : Prop := ∀ r, slots_differ r = true → counters_follow r = true → U4 r.
Definition claims_end_statement : Prop := ∀ r, counters_follow r = true → claims_wait r = true → claims_end r.

(* All rules but one. *)
Definition one_slot_for_two : rules := Rules false true true true true.
Definition counters_stand : rules := Rules true false true true true.
Definition marks_go : rules := Rules true true false true true.
Definition late_is_shown : rules := Rules true true true false true.
Definition nobody_waits : rules := Rules true true true true false.

(* For each rule there is a history in which a property fails without it. *)
Definition each_rule_is_needed_statement : Prop :=
  ¬ U1 one_slot_for_two ∧ ¬ U1 counters_stand ∧ ¬ U4 counters_stand ∧ ¬ U2 marks_go ∧ ¬ U2 late_is_shown ∧ ¬ claims_end nobody_waits.
