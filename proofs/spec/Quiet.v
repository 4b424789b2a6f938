(* Claims end when the clients stop writing, time-outs included (docs/design.md#rule-4, docs/design.md#rule-5).

   Before some moment of each node anything may have happened: clients wrote, and whoever waited for others waited in vain and showed its claims
   unheard. From that moment on, the node's *cut*, nothing arrives but claims, nobody claims but what is late at its desk, and those who wait for each
   other hear of each other in time. Then no node claims a message twice because of those that have readers; a claim that was made without readers,
   for which nobody waits, may cost one more.

   So of the cut on there are, if all that claim have readers, no more claims than nodes times messages, however many claims and marks were on their way. *)
From Whimbrel.spec Require Export Uids.

(* Each can be left out; for each there is a history in which claims do not end without it. *)
Record quiet_rules := QuietRules {
  in_time : bool;         (* docs/design.md#rule-5: what is shown was heard, no time-out runs out *)
  lower_first : bool;     (* nothing is told over a lower claim that could be shown (docs/decisions/0019 for bodies) *)
  marks_counted : bool;   (* docs/design.md#rule-6: what a client names raises the counter, too *)
  only_late : bool;       (* docs/design.md#rule-4: only what is late is claimed again *)
}.
Definition all_quiet_rules : quiet_rules := QuietRules true true true true.

Definition epoch_now (s : account) : N := nth 0 (reg s REpoch) 0%N.
Definition name_now (s : account) (m : message_id) : N := box_name s (placed_in s m).

(* Below what was told, or of a past epoch, and not shown: it is due to be claimed again. *)
Record late (s : account) (d : desk) (m : message_id) : Prop := {
  late_lives : lives s m;
  late_below : uid s m = 0%N ∨ (uid s m < mark d (name_now s m))%N;
  late_unshown : shown d !! m ≠ Some (name_now s m, uid s m);
}.

Section quiet.
  Context (w : quiet_rules) {r : rules} {slot : N → N} (readers : nat → Prop) (E : uid_execution r slot) (cut : nat → list (event op)).
  Local Notation history := (history _ _ _ _ E).
  Local Notation state p := (contents (state_after empty apply p)).

  (* What a desk does after the cut. Who has no readers tells nothing. *)
  Definition quiet_act (i : nat) (p : list (event op)) (d : desk) (a : act) : Prop :=
    match a with
    | Show _ _ epoch u => in_time w = true → heard r slot readers E p epoch (N.div u 64)
    | Hide m => lives (state p) m → shown d !! m ≠ Some (name_now (state p) m, uid (state p) m)
    | Tell name _ next => readers i ∧
        (lower_first w = true → ∀ m, lives (state p) m → name_now (state p) m = name → (uid (state p) m < next)%N →
          uid (state p) m = 0%N ∨ (uid (state p) m < mark d name)%N ∨ shown d !! m = Some (name, uid (state p) m))
    | _ => False
    end.

  (* Node [i] at its cut, with whatever desk it has come to, and after it. No mark is above the counter: what is shown was claimed, and what a client named
     raised both. *)
  Inductive rests (i : nat) : list (event op) → desk → list act → Prop :=
    | rests_cut d t : serves readers E i (cut i) d t → era d = epoch_now (state (cut i)) →
        (marks_counted w = true → ∀ name, (mark d name ≤ 64 * (counter (state (cut i)) (era d) + 1))%N) → rests i (cut i) d t
    | rests_event p d t e : rests i p d t → p ++ [e] `prefix_of` history i → rests i (p ++ [e]) d t
    | rests_act p d t a d' : rests i p d t → may_do r slot readers E p a → acts r d a d' → quiet_act i p d a → rests i p d' (t ++ [a]).

  Definition after_cut (j : nat) (p : list (event op)) (o : op) : Prop := cut j `prefix_of` p ∧ ∃ q, history j = p ++ Broadcast o :: q.

  Record quiet : Prop := {
    cut_prefix i : cut i `prefix_of` history i;
    (* All that clients wrote has arrived; claims may still be on their way. *)
    only_claims i o : Deliver o ∈ history i → Deliver o ∈ cut i ∨ ∃ epoch cs, op_action o = AClaim epoch cs;
    (* A claim is for an epoch that has come. *)
    epochs_have_come i o m placed epoch u : Deliver o ∈ history i → (m, placed, epoch, u) ∈ claims o → (epoch ≤ epoch_now (state (cut i)))%N;
    (* Rule 4: claimed is the present placement, in the present epoch, of what is late at some desk that the node may have come to. *)
    claimed_again j p o m placed epoch u : after_cut j p o → (m, placed, epoch, u) ∈ claims o →
      lives (state p) m ∧ placed = placed_at (state p) m ∧ epoch = epoch_now (state p) ∧ (only_late w = true → ∃ d t, rests j p d t ∧ late (state p) d m);
  }.

  (* A node that has claimed a message after the cut does so again only if it has readers, and what is late was claimed by a node that has none. *)
  Definition claims_end_at_last : Prop := ∀ j p1 o1 p2 o2 m placed1 epoch1 u1 placed2 epoch2 u2,
    after_cut j p1 o1 → (m, placed1, epoch1, u1) ∈ claims o1 → after_cut j p2 o2 → (m, placed2, epoch2, u2) ∈ claims o2 → Deliver o1 ∈ p2 →
    ∃ i o placed, Broadcast o ∈ history i ∧ (m, placed, epoch2, uid (state p2) m) ∈ claims o ∧ ¬ (readers j → readers i).
End quiet.

Definition ends_under (w : quiet_rules) : Prop := ∀ r slot readers (E : uid_execution r slot) cut,
  slots_differ r = true → counters_follow r = true → slots_ok E →
  quiet w readers E cut → claims_end_at_last readers E cut.

Definition claims_end_at_last_statement : Prop := ends_under all_quiet_rules.

(* All rules but one. *)
Definition always_times_out : quiet_rules := QuietRules false true true true.
Definition higher_first : quiet_rules := QuietRules true false true true.
Definition marks_run_ahead : quiet_rules := QuietRules true true false true.
Definition claims_at_will : quiet_rules := QuietRules true true true false.

Definition quiet_rules_needed_statement : Prop :=
  ¬ ends_under always_times_out ∧ ¬ ends_under higher_first ∧ ¬ ends_under marks_run_ahead ∧ ¬ ends_under claims_at_will.

(* It happens: two nodes whose waiting was in vain each claim a message after their cuts. *)
Definition quiet_happens_statement : Prop :=
  ∃ r slot readers (E : uid_execution r slot) cut i j p q o o', slots_differ r = true ∧ counters_follow r = true ∧ slots_ok E ∧
    quiet all_quiet_rules readers E cut ∧ i ≠ j ∧ after_cut E cut i p o ∧ claims o ≠ [] ∧ after_cut E cut j q o' ∧ claims o' ≠ [].
