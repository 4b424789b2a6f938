(* Joining two states (crates/mailbox/src/merge.rs, `join`): a replica that was away for long, or is new, gets a state instead of what it missed.

   A version vector says for each origin up to which number its operations are applied. So a dot that one side lacks although its vector covers it was
   removed there. *)
From Whimbrel.spec Require Export Mailbox.

Notation vector := (gmap N N) (only parsing).

(* crates/crdt/src/dot.rs, VersionVector::covers. *)
Definition covers (v : vector) (d : dot) : bool := bool_decide (d.2 ≤ default 0 (v !! d.1))%N.

(* The vector of a replica: it covers exactly what is applied. *)
Definition vector_of (v : vector) (s : replica) : Prop := ∀ d : dot, (0 < d.2)%N → covers v d = true ↔ d ∈ applied s.

(* crates/crdt/src/sets.rs, DotSet::join: what both have, and what the other cannot have seen. *)
Definition join_dots (mine : vector) (x : gset dot) (theirs : vector) (y : gset dot) : gset dot :=
  filter (λ d, d ∈ y ∨ covers theirs d = false) x ∪ filter (λ d, covers mine d = false) y.

Definition join_cell (mine theirs : vector) (x y : option (gset dot)) : option (gset dot) :=
  match x, y with None, None => None | _, _ => Some (join_dots mine (default ∅ x) theirs (default ∅ y)) end.

Definition join (mine : vector) (s : replica) (theirs : vector) (t : replica) : replica :=
  Replica (applied s ∪ applied t)
    (Account (merge (join_cell mine theirs) (cells (contents s)) (cells (contents t)))
      (union_with (λ a b, Some (greater a b)) (registers (contents s)) (registers (contents t)))).

(* The operations in [l] that are not applied in [s], in their order. *)
Definition missing (s : replica) (l : list op) : list op := filter (λ o, op_dot o ∉ applied s) l.

(* Any moments [p] and [q] of any two nodes. They have vectors; what the second has more may be applied by the first, in that order; and to join the
   states is to apply it. *)
Definition join_statement : Prop :=
  ∀ (E : mailbox_execution) i j p q, p `prefix_of` history _ _ _ _ E i → q `prefix_of` history _ _ _ _ E j →
    let s := state_after empty apply p in
    let t := state_after empty apply q in
    (∃ v, vector_of v s) ∧
    consistent (happened_before (history _ _ _ _ E)) (deliveries p ++ missing s (deliveries q)) ∧
    ∀ mine theirs, vector_of mine s → vector_of theirs t → join mine s theirs t = replay apply s (missing s (deliveries q)).
