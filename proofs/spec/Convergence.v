(* When do two replicas that heard the same, each in an order of its own, end in the same state?

   [hb x y] is "x happened before y", [apply] what one operation does to a state. An order of delivery is consistent if it puts nothing before
   what happened before it. Two operations commute if their order makes no difference to any state. *)
From stdpp Require Export base tactics list sorting.

Section convergence.
  Context {O S : Type} (hb : O → O → Prop) (apply : S → O → S).

  Definition concurrent (x y : O) : Prop := ¬ hb x y ∧ ¬ hb y x.

  Definition consistent : list O → Prop := StronglySorted (λ x y, ¬ hb y x).

  Definition commute (x y : O) : Prop := ∀ s, apply (apply s x) y = apply (apply s y) x.

  Definition replay (s : S) (l : list O) : S := foldl apply s l.
End convergence.

Definition convergence_statement : Prop :=
  ∀ (O S : Type) (hb : O → O → Prop) (apply : S → O → S) (xs ys : list O),
    NoDup xs → NoDup ys → (∀ x, x ∈ xs ↔ x ∈ ys) →
    consistent hb xs → consistent hb ys →
    (∀ x y, x ∈ xs → y ∈ xs → concurrent hb x y → commute apply x y) →
    ∀ s, replay apply s xs = replay apply s ys.
