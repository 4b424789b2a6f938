(* That the assumptions can hold: a history of two nodes, cut off from each other, that use every operation. *)
From Whimbrel.spec Require Export Mailbox.

(* An action of each kind. *)
Definition kind (a : action) : nat :=
  match a with
  | AOpen _ _ => 0 | ACreate _ _ _ => 1 | ADelete _ _ => 2 | ARename _ _ => 3 | ASubscribe _ => 4 | AUnsubscribe _ _ => 5
  | AAppend _ _ _ _ _ => 6 | ADeliver _ _ _ _ _ _ => 7 | ACopy _ _ _ => 8 | AMove _ _ _ => 9 | AStore _ _ _ _ => 10
  | AExpunge _ => 11 | AClaim _ _ => 12 | ABump _ _ => 13 | AEpoch _ => 14
  end.

(* There is an execution in which two nodes deliver operations of all fifteen kinds, and for each kind there is one that is concurrent with an operation
   of the other node. *)
Definition witness_statement : Prop :=
  ∃ E : mailbox_execution, ∀ k, k < 15 →
    ∃ a b, kind (op_action a) = k ∧
      Deliver a ∈ history _ _ _ _ E 0 ∧ Deliver b ∈ history _ _ _ _ E 0 ∧ Deliver a ∈ history _ _ _ _ E 1 ∧ Deliver b ∈ history _ _ _ _ E 1 ∧
      concurrent (happened_before (history _ _ _ _ E)) a b.
