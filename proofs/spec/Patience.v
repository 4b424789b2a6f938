(* Claims end though nobody is heard as soon as it is waited for at first (docs/design.md#rule-5; crates/mailbox/src/replica.rs, [Peers::until]).

   Each superseded claim of a message doubles how long its next one waits. How long it takes to hear of the others is not known, but after some number [k] of
   claims it takes no longer than that: of a message that was claimed so often nothing is shown unheard. Before that it may be shown unheard at any time.

   As in spec/Quiet.v each node has a cut, before which anything may have happened. After it nothing arrives but claims, and each node claims a
   message [k] times for each message at most, and once. *)
From Whimbrel.spec Require Export Quiet.

(* The claims of a message that have come, for its present place and epoch. All but the greatest are superseded. *)
Definition claims_come (p : list (event op)) (m : message_id) : gset N :=
  let s := contents (state_after empty apply p) in
  list_to_set (omap (λ c : claim, if bool_decide (c.1 = (m, placed_at s m, epoch_now s)) then Some c.2 else None) (deliveries p ≫= claims)).
Definition superseded (p : list (event op)) (m : message_id) : nat := size (claims_come p m) - 1.

Section patience.
  Context (k : nat) {r : rules} {slot : N → N} (readers : nat → Prop) (E : uid_execution r slot) (cut : nat → list (event op)).
  Local Notation history := (history _ _ _ _ E).
  Local Notation state p := (contents (state_after empty apply p)).

  (* Rule 5: who shows a claim has heard of it from all that have readers, or has waited in vain, which is so of no claim that has [k] superseded ones. *)
  Definition patient_act (i : nat) (p : list (event op)) (d : desk) (a : act) : Prop :=
    quiet_act always_times_out readers E i p d a ∧
    match a with
    | Show m _ epoch u => superseded p m < k ∨ heard r slot readers E p epoch (N.div u 64)
    | _ => True
    end.

  (* Node [i] at its cut, with whatever desk it has come to, and after it. *)
  Inductive waits (i : nat) : list (event op) → desk → list act → Prop :=
    | waits_cut d t : serves readers E i (cut i) d t → era d = epoch_now (state (cut i)) →
        (∀ name, (mark d name ≤ 64 * (counter (state (cut i)) (era d) + 1))%N) → waits i (cut i) d t
    | waits_event p d t e : waits i p d t → p ++ [e] `prefix_of` history i → waits i (p ++ [e]) d t
    | waits_act p d t a d' : waits i p d t → may_do r slot readers E p a → acts r d a d' → patient_act i p d a → waits i p d' (t ++ [a]).

  Definition claims_after (j : nat) : Prop := ∃ p o, after_cut E cut j p o ∧ claims o ≠ [].

  Record patient : Prop := {
    (* All other conditions of spec/Quiet.v: only claims arrive, for epochs that have come, and only what is late is claimed again. *)
    otherwise_quiet : quiet always_times_out readers E cut;
    late_at_its_desk j p o m placed epoch u : after_cut E cut j p o → (m, placed, epoch, u) ∈ claims o → ∃ d t, waits j p d t ∧ late (state p) d m;
    (* A node applies what it makes at once. *)
    applied_at_once j p o q : history j = p ++ Broadcast o :: q → cut j `prefix_of` p → ∃ q', q = Deliver o :: q';
    (* Whose claims come, after its cut, to a node that claims after it, has readers: others wait for it. *)
    claimers_read i j o : claims_after j → Broadcast o ∈ history i → claims o ≠ [] → Deliver o ∈ history j → Deliver o ∉ cut j → readers i;
  }.

  Definition claims_message (m : message_id) (e : event op) : bool :=
    match e with Broadcast o => existsb (λ c : claim, bool_decide (c.1.1.1 = m)) (claims o) | Deliver _ => false end.
  (* How often a node claims a message after its cut. *)
  Definition times_claimed (j : nat) (m : message_id) : nat := length (List.filter (claims_message m) (drop (length (cut j)) (history j))).
End patience.

Definition claims_end_with_patience_statement : Prop := ∀ k r slot readers (E : uid_execution r slot) cut (ms : list message_id),
  slots_differ r = true → counters_follow r = true → slots_ok E → patient k readers E cut →
  (∀ j m, lives (contents (state_after empty apply (cut j))) m → m ∈ ms) →
  ∀ j m, times_claimed E cut j m ≤ k * length ms + 1.

(* It happens: a node claims a message more than once after its cut, because its first claims were shown too soon. *)
Definition patience_happens_statement : Prop :=
  ∃ k r slot readers (E : uid_execution r slot) cut j m, slots_differ r = true ∧ counters_follow r = true ∧ slots_ok E ∧
    patient k readers E cut ∧ 2 ≤ times_claimed E cut j m.
