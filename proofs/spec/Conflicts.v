(* The conflict table: what becomes of two concurrent operations.

   A row says when it applies and what then holds, in any state that any node may reach once both are applied. What else happened is unrestricted, but for
   what would make the row senseless: "as long as nobody who had seen the operation undid it". *)
From Whimbrel.spec Require Export Mailbox.

(* Puts an existence dot or the like into a cell, or takes what is there out of it without putting in a dot of its own. *)
Definition puts (o : op) (k : key) : Prop := Supersede k ∈ effects o.
Definition removes (o : op) (k : key) : Prop := (∃ ds, RemoveDots k ds ∈ effects o) ∨ (RemoveSeen k ∈ effects o).

(* [o] writes [v] to a register and nothing in [l] writes more. *)
Definition writes_last (l : list op) (o : op) (r : register) (v : list N) : Prop :=
  Raise r v ∈ effects o ∧ ∀ o' v', o' ∈ l → Raise r v' ∈ effects o' → at_most v' v = true.

(* Nobody in [l] who had seen [o] removed the key, and nobody at all. *)
Definition not_undone (l : list op) (o : op) (k : key) : Prop :=
  ∀ r, r ∈ l → removes r k → saw r (op_dot o) = false.
Definition all_seen_by (l : list op) (d : op) (k : key) : Prop := ∀ o, o ∈ l → puts o k → saw d (op_dot o) = true.

(* [l] is all that was applied, [a] and [b] are two concurrent operations in it, [x] what else the row speaks of. *)
Record row := Row {
  particulars : Type;
  applies : list op → op → op → particulars → Prop;
  outcome : account → op → op → particulars → Prop;
}.
Arguments Row {_} _ _.

(* APPEND, COPY, MOVE into X, RENAME of it or delivery, and DELETE X: X survives ... *)
Definition add_and_delete := Row
  (λ l a d b, puts a (KBox b) ∧ removes d (KBox b) ∧ not_undone l a (KBox b))
  (λ s a d b, box_exists s b).
(* ... with just that message: appended, copied, moved, *)
Definition added_and_delete := Row
  (λ l a d '(b, m), puts a (KBox b) ∧ puts a (KMessage m) ∧ removes d (KBox b) ∧ not_undone l a (KMessage m))
  (λ s a d '(b, m), lives s m).
(* or delivered; *)
Definition delivered_and_delete := Row
  (λ l a d '(b, m, placed, epoch, u, c),
    op_action a = ADeliver m placed b epoch u c ∧ removes d (KBox b) ∧ ∀ r v, r ∈ l → Raise (RKilled m) v ∉ effects r)
  (λ s a d '(b, m, placed, epoch, u, c), lives s m).
(* it lies in X, whichever of these it was, as long as nobody put it elsewhere with a later stamp; *)
Definition placed_and_delete := Row
  (λ l a d '(b, m, placed), puts a (KBox b) ∧ removes d (KBox b) ∧ writes_last l a (RPlace m) (place_value placed b))
  (λ s a d '(b, m, placed), placed_in s m = b).
(* of what the deleter saw nothing does. *)
Definition seen_and_delete := Row
  (λ l a d '(b, m), puts a (KBox b) ∧ removes d (KBox b) ∧ removes d (KMessage m) ∧ Raise (RKilled m) [1%N] ∈ effects d ∧ all_seen_by l d (KMessage m))
  (λ s a d '(b, m), ¬ lives s m).

(* RENAME X to Y and DELETE X: Y survives; of what the deleter saw nothing does ([seen_and_delete]). *)
Definition rename_and_delete := Row
  (λ l a d '(boxes, b, to), op_action a = ARename boxes to ∧ b ∈ boxes ∧ removes d (KBox b) ∧ not_undone l a (KBox b) ∧
    writes_last l a (RName b) [op_time a; (op_dot a).1; to])
  (λ s a d '(boxes, b, to), name_exists s to).

(* RENAME X to Y and CREATE Y: one Y, a union: what is placed in either mailbox is shown under the one name. *)
Definition rename_and_create := Row
  (λ l a c '(boxes, b, b', to, use), op_action a = ARename boxes to ∧ b ∈ boxes ∧
    (op_action c = ACreate (Some b') to use ∨ (op_action c = ACreate None to use ∧ b' = own_box (op_dot c))) ∧
    writes_last l a (RName b) [op_time a; (op_dot a).1; to] ∧ writes_last l c (RName b') [op_time c; (op_dot c).1; to])
  (λ s a c '(boxes, b, b', to, use), box_name s b = to ∧ box_name s b' = to ∧
    ∀ m, lives s m → placed_in s m = b ∨ placed_in s m = b' → shown_under s to m).

(* CREATE, of a derived id or of its own, and DELETE, of that mailbox or of others: survives. *)
Definition create_and_delete := Row
  (λ l c d '(derived, name, use, boxes, messages), op_action c = ACreate derived name use ∧ op_action d = ADelete boxes messages ∧
    not_undone l c (KBox (default (own_box (op_dot c)) derived)))
  (λ s c d '(derived, name, use, boxes, messages), box_exists s (default (own_box (op_dot c)) derived)).

(* A flag set and unset: set wins; for \Deleted unset wins. *)
Definition flag_set_and_unset := Row
  (λ l a d '(m, f), f ≠ DELETED ∧ puts a (KFlag m f) ∧ removes d (KFlag m f) ∧ not_undone l a (KFlag m f))
  (λ s a d '(m, f), has_flag s m f).
Definition deleted_set_and_unset := Row
  (λ l a d m, puts a (KFlag m DELETED) ∧ Raise (REverDeleted m) [1%N] ∈ effects d ∧ not_undone l a (KFlag m DELETED))
  (λ s a d m, ¬ has_flag s m DELETED).

(* Clearing \Deleted, or MOVE, and EXPUNGE: the message survives, not \Deleted. *)
Definition rescue_and_expunge := Row
  (λ l a d m, puts a (KMessage m) ∧ removes d (KMessage m) ∧ not_undone l a (KMessage m))
  (λ s a d m, lives s m).
Definition undeleted_and_expunge := Row
  (λ l a d m, puts a (KMessage m) ∧ removes d (KMessage m) ∧ puts a (KFlag m DELETED) ∧ not_undone l a (KFlag m DELETED))
  (λ s a d m, ¬ has_flag s m DELETED).

(* Another STORE and EXPUNGE: the message is gone. *)
Definition store_and_expunge := Row
  (λ l a d '(messages, set, clear, m, ds), op_action a = AStore messages set clear false ∧ m ∈ messages ∧
    op_action d = AExpunge ds ∧ m ∈ ds.*1 ∧ all_seen_by l d (KMessage m))
  (λ s a d '(messages, set, clear, m, ds), ¬ lives s m).

(* MOVE and MOVE: in exactly one place, the later stamp. *)
Definition move_and_move := Row
  (λ l a b '(ba, bb, ea, eb, entries, entries', m), op_action a = AMove ba ea entries ∧ op_action b = AMove bb eb entries' ∧
    m ∈ entries.*1.*1 ∧ m ∈ entries'.*1.*1 ∧ writes_last l a (RPlace m) (place_value (op_stamp a) ba))
  (λ s a b '(ba, bb, ea, eb, entries, entries', m), placed_in s m = ba).

(* COPY and EXPUNGE: the copy stays. *)
Definition copy_and_expunge := Row
  (λ l a d '(b, epoch, entries, i, ds), op_action a = ACopy b epoch entries ∧ op_action d = AExpunge ds ∧
    (∃ entry, entries !! i = Some entry ∧ entry.1.1 ∈ ds.*1) ∧ not_undone l a (KMessage (own_message (op_dot a) (N.of_nat i))))
  (λ s a d '(b, epoch, entries, i, ds), lives s (own_message (op_dot a) (N.of_nat i))).

(* RENAME and RENAME: the later stamp. *)
Definition rename_and_rename := Row
  (λ l a a' '(boxes, boxes', b, to, to'), op_action a = ARename boxes to ∧ op_action a' = ARename boxes' to' ∧ b ∈ boxes ∧ b ∈ boxes' ∧
    writes_last l a (RName b) [op_time a; (op_dot a).1; to])
  (λ s a a' '(boxes, boxes', b, to, to'), box_name s b = to).

(* SUBSCRIBE and UNSUBSCRIBE: subscribed. *)
Definition subscribe_and_unsubscribe := Row
  (λ l a d '(name, dots), op_action a = ASubscribe name ∧ op_action d = AUnsubscribe name dots ∧ not_undone l a (KSubscription name))
  (λ s a d '(name, dots), subscribed s name).

(* One queue entry delivered by two nodes: one message, in the mailbox of its stamp; who removes it removes both deliveries. *)
Definition both_deliver (a a' : op) '((m, placed, b, e, u, e', u', c) : message_id * stamp * box_id * N * N * N * N * N) : Prop :=
  op_action a = ADeliver m placed b e u c ∧ op_action a' = ADeliver m placed b e' u' c.
Definition delivered_by_two := Row
  (λ l a a' '(m, placed, b, e, u, e', u', c), both_deliver a a' (m, placed, b, e, u, e', u', c) ∧ ∀ r v, r ∈ l → Raise (RKilled m) v ∉ effects r)
  (λ s a a' '(m, placed, b, e, u, e', u', c), lives s m).
Definition delivered_in_one_place := Row
  (λ l a a' '(m, placed, b, e, u, e', u', c), both_deliver a a' (m, placed, b, e, u, e', u', c) ∧ writes_last l a (RPlace m) (place_value placed b))
  (λ s a a' '(m, placed, b, e, u, e', u', c), placed_in s m = b).
Definition delivered_and_expunged := Row
  (λ l a a' '(m, placed, b, e, u, e', u', c, d, ds), both_deliver a a' (m, placed, b, e, u, e', u', c) ∧
    d ∈ l ∧ op_action d = AExpunge ds ∧ m ∈ ds.*1 ∧ all_seen_by l d (KMessage m))
  (λ s a a' '(m, placed, b, e, u, e', u', c, d, ds), ¬ lives s m).

Definition conflict_table : list row := [
  add_and_delete; added_and_delete; delivered_and_delete; placed_and_delete; seen_and_delete; rename_and_delete; rename_and_create;
  create_and_delete; flag_set_and_unset; deleted_set_and_unset; rescue_and_expunge; undeleted_and_expunge; store_and_expunge; move_and_move; copy_and_expunge;
  rename_and_rename; subscribe_and_unsubscribe; delivered_by_two; delivered_in_one_place; delivered_and_expunged].

Section rows.
  Context (E : mailbox_execution).
  Local Notation history := (history _ _ _ _ E).

  (* What a node has applied at a moment, and the state that this makes. *)
  Definition reached (l : list op) (s : account) : Prop :=
    ∃ i p, p `prefix_of` history i ∧ l = deliveries p ∧ s = contents (state_after empty apply p).

  Definition both (l : list op) (a b : op) : Prop := a ∈ l ∧ b ∈ l ∧ concurrent (happened_before history) a b.
End rows.

Definition holds (r : row) : Prop := ∀ E l s a b x, reached E l s → both E l a b → applies r l a b x → outcome r s a b x.

(* It happens: the row says something. *)
Definition happens (r : row) : Prop := ∃ E l s a b x, reached E l s ∧ both E l a b ∧ applies r l a b x.
Definition table_happens_statement : Prop := Forall happens conflict_table.
