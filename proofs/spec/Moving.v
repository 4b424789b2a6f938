(* U2 for a client that moves between nodes (docs/design.md#rule-6; docs/decisions/0020).

   A client was told a UIDNEXT by one node, comes to another and asks for what is new from there on. What the other shows below that number the client must have
   been shown before, or it overlooks it. So the other node takes over, before it answers: it raises the mark to what the client names, and claims again
   whatever it shows below, but for what the first node has announced: that is, what is covered by a report which the first node made when nothing was hidden
   there.

   What is not covered by the theorem is in [as_there]: operations that the first node had, and the other has not, may have moved, renamed or removed a message;
   then the client was shown something else there. *)
From Whimbrel.spec Require Export Quiet.

Record moving_rules := MovingRules {
  mark_raised : bool;       (* what a client names counts as announced *)
  uncovered_again : bool;   (* what is shown below and is not in the report is claimed again *)
  report_complete : bool;   (* a report is made when nothing is hidden *)
}.
Definition all_moving_rules : moving_rules := MovingRules true true true.

Section moving.
  Context (w : moving_rules) {r : rules} {slot : N → N} (readers : nat → Prop) (E : uid_execution r slot).
  Local Notation history := (history _ _ _ _ E).
  Local Notation state p := (contents (state_after empty apply p)).

  (* A node says of this moment: what is applied here is shown. *)
  Definition reports (q : list (event op)) (d : desk) : Prop :=
    era d = epoch_now (state q) ∧
    (report_complete w = true → ∀ m, lives (state q) m → shown d !! m = Some (name_now (state q) m, uid (state q) m)).

  (* A node is about to answer a client that names [next]; [q] is what the node that it comes from has reported. *)
  Record takes_over (q p : list (event op)) (d : desk) (name next : N) : Prop := {
    raised : mark_raised w = true → (next ≤ mark d name)%N;
    present_era : era d = epoch_now (state p);
    present_uids m u : shown d !! m = Some (name, u) → (u < next)%N → lives (state p) m ∧ name_now (state p) m = name ∧ uid (state p) m = u ∧ u ≠ 0%N;
    claimed_or_covered m u : uncovered_again w = true → shown d !! m = Some (name, u) → (u < next)%N →
      ∃ o, Deliver o ∈ q ∧ (m, placed_at (state p) m, era d, u) ∈ claims o;
  }.

  (* If the first node had heard of a claim of the message, it had it as the second has it: there, in that mailbox, of that name, by no claim that the second
     has not heard of. *)
  Definition as_there (q p : list (event op)) (m : message_id) : Prop :=
    (∃ o placed epoch u, Deliver o ∈ q ∧ (m, placed, epoch, u) ∈ claims o) →
    lives (state q) m ∧ placed_at (state q) m = placed_at (state p) m ∧ name_now (state q) m = name_now (state p) m ∧
    ∀ o epoch u, Deliver o ∈ q → (m, placed_at (state p) m, epoch, u) ∈ claims o → Deliver o ∈ p.

  (* A node goes on from a moment. *)
  Inductive goes_on (i : nat) (p : list (event op)) (d : desk) : list (event op) → desk → list act → Prop :=
    | goes_here : goes_on i p d p d []
    | goes_event p' d' t e : goes_on i p d p' d' t → p' ++ [e] `prefix_of` history i → goes_on i p d (p' ++ [e]) d' t
    | goes_act p' d' t a d2 : goes_on i p d p' d' t → may_do r slot readers E p' a → acts r d' a d2 → goes_on i p d p' d2 (t ++ [a]).

  (* Node [i] reports at [q], and tells a client [next] before or after that; node [j] takes the client over at [p]. *)
  Definition overlooks_nothing : Prop := ∀ i j q dq tq pi di ti p d t name next,
    serves readers E i q dq tq → reports q dq → goes_on i q dq pi di ti → Tell name (era d) next ∈ tq ++ ti → era d = era dq →
    serves readers E j p d t → takes_over q p d name next →
    (* What it shows below, the first node had shown under that UID before it told [next]; *)
    (∀ m u, shown d !! m = Some (name, u) → as_there q p m → (next ≤ u)%N ∨ before (tq ++ ti) (Show m name (era d) u) (Tell name (era d) next)) ∧
    (* what it shows later is not below. *)
    ∀ p' d' t' m u, goes_on j p d p' d' t' → Show m name (era d) u ∈ t' → (next ≤ u)%N.
End moving.

Definition U2_moving (w : moving_rules) : Prop := ∀ r slot readers (E : uid_execution r slot),
  marks_stay r = true → late_is_hidden r = true → overlooks_nothing w readers E.

Definition U2_moving_statement : Prop := U2_moving all_moving_rules.

(* All rules but one. *)
Definition mark_stands : moving_rules := MovingRules false true true.
Definition nothing_claimed : moving_rules := MovingRules true false true.
Definition reports_at_will : moving_rules := MovingRules true true false.

Definition moving_rules_needed_statement : Prop := ¬ U2_moving mark_stands ∧ ¬ U2_moving nothing_claimed ∧ ¬ U2_moving reports_at_will.
