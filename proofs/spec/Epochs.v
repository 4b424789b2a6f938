(* U1 as clients are told it: under one UIDVALIDITY no UID of 32 bits denotes two messages (docs/design.md#rule-7).

   The other theorems speak of epochs and of UIDs without end. What a client is told is UIDVALIDITY, made of the account's birth and the epoch, and 32
   bits of the UID. Rule 7 sees to it that this is as good: before counters end the epoch rises, and it rises above the UIDVALIDITY that was told.
   When it rises for a slot that is given again is in spec/Slots.v. *)
From Whimbrel.spec Require Export Uids.

(* Each can be left out. *)
Record epoch_rules := EpochRules {
  claims_fit : bool;   (* no claim needs more than 32 bits: an epoch begins before *)
  epochs_rise : bool;  (* a new epoch is above the UIDVALIDITY of who begins it, who has opened the account *)
  born_once : bool;    (* whoever opens the account says the same of its birth: what the directory says *)
}.
Definition all_epoch_rules : epoch_rules := EpochRules true true true.

(* crates/mailbox/src/read.rs, [uidvalidity]. *)
Definition uidvalidity (s : account) : N :=
  N.max 1 (N.max (nth 0 (reg s RCreated) 0) (N.max (nth 0 (reg s RFloor) 0) (nth 0 (reg s REpoch) 0)))%N.

Section epochs.
  Context (w : epoch_rules) {r : rules} {slot : N → N} (readers : nat → Prop) (E : uid_execution r slot).
  Local Notation history := (history _ _ _ _ E).
  Local Notation state p := (contents (state_after empty apply p)).

  Record rule_7 : Prop := {
    fits j o m placed epoch u : claims_fit w = true → Broadcast o ∈ history j → (m, placed, epoch, u) ∈ claims o → (u < 2 ^ 32)%N;
    rises j p o q v : epochs_rise w = true → history j = p ++ Broadcast o :: q → op_action o = AEpoch v →
      reg (state p) RCreated ≠ [] ∧ (uidvalidity (state p) < v)%N;
    one_birth i j o o' created floor created' floor' : born_once w = true → Broadcast o ∈ history i → Broadcast o' ∈ history j →
      op_action o = AOpen created floor → op_action o' = AOpen created' floor' → created = created' ∧ floor = floor';
  }.

  (* Node [i] may show the message as new, and then tells of it with these two numbers. *)
  Definition told_of (i : nat) (m : message_id) (validity told : N) : Prop := ∃ p d t name u d',
    serves readers E i p d t ∧ may_do r slot readers E p (Show m name (era d) u) ∧ acts r d (Show m name (era d) u) d' ∧
    validity = uidvalidity (state p) ∧ told = (u mod 2 ^ 32)%N.
End epochs.

Definition U1_told (w : epoch_rules) : Prop := ∀ r slot readers (E : uid_execution r slot),
  slots_differ r = true → counters_follow r = true → slots_ok E → rule_7 w E →
  ∀ i j m m' validity told, told_of readers E i m validity told → told_of readers E j m' validity told → m = m'.

Definition U1_told_statement : Prop := U1_told all_epoch_rules.

(* All rules but one. *)
Definition counters_run_over : epoch_rules := EpochRules false true true.
Definition epochs_anyhow : epoch_rules := EpochRules true false true.
Definition born_twice : epoch_rules := EpochRules true true false.

Definition epoch_rules_needed_statement : Prop := ¬ U1_told counters_run_over ∧ ¬ U1_told epochs_anyhow ∧ ¬ U1_told born_twice.
