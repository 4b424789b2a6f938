(* Joining another's state after a record was dropped here: the state brings the record back, if the other has it. It must bring it back hidden. *)
From Whimbrel.spec Require Export Join Collection.

Section forgotten.
  Context (E : mailbox_execution) (i j : nat) (since p q : list (event op)) (m : message_id) (mine theirs : vector).
  Local Notation s := (state_after empty apply p).
  Local Notation t := (state_after empty apply q).

  (* Node [i] may drop the record of [m] and gets the state of node [j] at some moment. *)
  Record dropped_and_joined : Prop := {
    here : p `prefix_of` history _ _ _ _ E i;
    there : q `prefix_of` history _ _ _ _ E j;
    allowed : may_drop E since p m;
    mine_exact : vector_of mine s;
    theirs_exact : vector_of theirs t;
  }.

  (* The state is not older than what the other has reported for the collection. *)
  Definition no_older : Prop := ∀ o, Deliver o ∈ since → Deliver o ∈ q.

  Definition joined_after_drop : account := contents (Join.join mine (drop_record m s) theirs t).
  Definition joined : account := contents (Join.join mine s theirs t).
End forgotten.

Definition join_after_drop_statement : Prop :=
  ∀ E i j since p q m mine theirs, dropped_and_joined E i j since p q m mine theirs → no_older since q →
    looks_same (joined_after_drop p q m mine theirs) (joined p q mine theirs).

(* Without the condition a message that was removed, and of which everybody knows that it was, is there again. *)
Definition old_state_revives_statement : Prop :=
  ∃ E i j since p q m mine theirs, dropped_and_joined E i j since p q m mine theirs ∧
    ¬ lives (joined p q mine theirs) m ∧ lives (joined_after_drop p q m mine theirs) m.
