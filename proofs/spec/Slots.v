(* Slots that are given again (docs/decisions/0024; docs/design.md#rule-7): [slots_ok] lets two origins have one slot, if one follows the other. What
   else could be thought to be enough is not. *)
From Whimbrel.spec Require Export Uids.

Section slots.
  Context {r : rules} {slot : N → N} (E : uid_execution r slot).
  Local Notation history := (history _ _ _ _ E).

  (* Both have claimed in one epoch. *)
  Definition both_claim (x y epoch : N) : Prop := ∃ i j o o' m placed u m' placed' u',
    Broadcast o ∈ history i ∧ (op_dot o).1 = x ∧ (m, placed, epoch, u) ∈ claims o ∧
    Broadcast o' ∈ history j ∧ (op_dot o').1 = y ∧ (m', placed', epoch, u') ∈ claims o'.

  (* Too little: when [y] claims, some claim of [x] is applied, but perhaps not all; and [x] has never heard of [y]. *)
  Definition began_after (x y epoch : N) : Prop := ∀ j p o q m placed u,
    history j = p ++ Broadcast o :: q → (op_dot o).1 = y → (m, placed, epoch, u) ∈ claims o →
    (∃ o' m' placed' u', Deliver o' ∈ p ∧ (op_dot o').1 = x ∧ (m', placed', epoch, u') ∈ claims o') ∧
    ∀ i o', Broadcast o' ∈ history i → (op_dot o').1 = x → saw o' (op_dot o) = false.
  Definition slots_begun : Prop := ∀ x y epoch, slot x = slot y → x = y ∨ began_after x y epoch ∨ began_after y x epoch.
End slots.

(* It happens: two origins of one slot claim in one epoch, the second one when the logs of the first are applied to their ends; and two that claim in one epoch
   each, without having heard of each other. *)
Definition given_again_happens_statement : Prop :=
  (∃ slot (E : uid_execution all_rules slot) x y epoch, x ≠ y ∧ slot x = slot y ∧ slots_ok E ∧ both_claim E x y epoch) ∧
  (∃ slot (E : uid_execution all_rules slot) x y, x ≠ y ∧ slot x = slot y ∧ slots_ok E ∧ both_claim E x x 0 ∧ both_claim E y y 5 ∧
    (∀ j o, Broadcast o ∈ history _ _ _ _ E j → (op_dot o).1 = x → Deliver o ∉ history _ _ _ _ E 1) ∧
    ∀ j o, Broadcast o ∈ history _ _ _ _ E j → (op_dot o).1 = y → Broadcast o ∈ history _ _ _ _ E 1).

(* If the logs are applied, but not to their ends, and the epoch does not rise, one UID denotes two messages. *)
Definition given_too_soon_statement : Prop :=
  ¬ ∀ slot readers (E : uid_execution all_rules slot), slots_begun E → one_message readers E.
