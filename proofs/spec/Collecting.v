(* Nodes that forget, and join states of others, show what nodes do that forget nothing: what spec/Uids.v says of the latter is so of all. *)
From Whimbrel.spec Require Export Uids Collection.

Section collecting.
  Context {r : rules} {slot : N → N} (readers : nat → Prop) (E : uid_execution r slot) (M : mailbox_execution).

  (* Node [i] after [p], its desk, and what that did: each time it looked at whatever the node may have been in then ([collects], spec/Collection.v). *)
  Inductive serves_from (i : nat) : list (event op) → desk → list act → Prop :=
    | from_start : serves_from i [] opening []
    | from_events p k d t : serves_from i p d t → p ++ k `prefix_of` history _ _ _ _ E i → serves_from i (p ++ k) d t
    | from_act p s floor d t a d' : serves_from i p d t → collects M i p s floor →
        may_do_in r slot readers E (contents s) p a → acts r d a d' → serves_from i p d' (t ++ [a]).
End collecting.

(* [M] is [E], without what docs/design.md#rule-1 asks of it. *)
Definition collecting_statement : Prop := ∀ r slot readers (E : uid_execution r slot) (M : mailbox_execution),
  (∀ i, history _ _ _ _ M i = history _ _ _ _ E i) →
  (* What a desk shows and tells, U1, U2, U4 and the ends of claims speak of. *)
  (∀ i p d t, serves_from readers E M i p d t ↔ serves readers E i p d t) ∧
  (* And what docs/design.md#rule-1 says of a claim is said of the state that the node is in. *)
  ∀ i p s floor o, collects M i p s floor →
    (rule_1 r slot s o ↔ rule_1 r slot (state_after empty apply p) o) ∧ (not_ahead (contents s) o ↔ not_ahead (contents (state_after empty apply p)) o).
