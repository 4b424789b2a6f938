(* What the proofs assume of the network and of the nodes: the fields of [execution], and nothing else.

   A history is what one node did, in its order: it broadcast an operation, or it delivered one, its own or a foreign one. The state of a node is what
   the operations that it delivered make of the initial state. *)
From Whimbrel.spec Require Export Convergence.

Section network.
  Context {I M S : Type} (ident : M → I) (init : S) (apply : S → M → S) (valid : S → M → Prop).

  Inductive event := Broadcast (m : M) | Deliver (m : M).

  (* The operations that a piece of history delivered, in order. *)
  Fixpoint deliveries (h : list event) : list M :=
    match h with
    | [] => []
    | Deliver m :: h => m :: deliveries h
    | Broadcast _ :: h => deliveries h
    end.

  (* The state of a node after this much of its history. *)
  Definition state_after (h : list event) : S := replay apply init (deliveries h).

  Definition before {A} (l : list A) (x y : A) : Prop := ∃ p q r, l = p ++ x :: q ++ y :: r.

  Section happened_before.
    Context (history : nat → list event).

    (* What a node had broadcast or delivered when it broadcast [m] happened before [m]. *)
    Inductive happened_before : M → M → Prop :=
      | hb_broadcast i m1 m2 : before (history i) (Broadcast m1) (Broadcast m2) → happened_before m1 m2
      | hb_deliver i m1 m2 : before (history i) (Deliver m1) (Broadcast m2) → happened_before m1 m2
      | hb_trans m1 m2 m3 : happened_before m1 m2 → happened_before m2 m3 → happened_before m1 m3.
  End happened_before.

  Record execution := {
    history : nat → list event;
    (* Nothing is broadcast or delivered twice by one node. *)
    histories_distinct i : NoDup (history i);
    (* What is delivered was broadcast by someone. *)
    deliveries_have_causes i m : Deliver m ∈ history i → ∃ j, Broadcast m ∈ history j;
    (* A node delivers its own operations to itself, after it broadcast them. *)
    local_delivery i m : Broadcast m ∈ history i → before (history i) (Broadcast m) (Deliver m);
    (* No two operations have one identity. *)
    unique_ids i j m1 m2 :
      Broadcast m1 ∈ history i → Broadcast m2 ∈ history j → ident m1 = ident m2 → i = j ∧ m1 = m2;
    (* Nothing is delivered before what happened before it. *)
    causal_delivery i m1 m2 :
      Deliver m2 ∈ history i → happened_before history m1 m2 → before (history i) (Deliver m1) (Deliver m2);
    (* A node broadcasts only what the rules allow in the state it has. *)
    valid_broadcasts i p m q : history i = p ++ Broadcast m :: q → valid (state_after p) m;
  }.

  (* Two nodes that delivered the same operations, in whatever order, are in the same state. Any moments of any two nodes. That
     nothing fails is not said: [apply] is a total function here. *)
  Definition strong_eventual_consistency (E : execution) : Prop :=
    ∀ i j p q, p `prefix_of` history E i → q `prefix_of` history E j →
      (∀ m, Deliver m ∈ p ↔ Deliver m ∈ q) → state_after p = state_after q.

  (* The general law that all types here are instances of. *)
  Definition commuting_suffices_statement : Prop :=
    ∀ E : execution,
      (∀ i j m1 m2, Broadcast m1 ∈ history E i → Broadcast m2 ∈ history E j →
         concurrent (happened_before (history E)) m1 m2 → commute apply m1 m2) →
      strong_eventual_consistency E.
End network.

Arguments event : clear implicits.
Arguments execution {I M S} ident init apply valid.
