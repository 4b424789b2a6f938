(* The conflict table: what becomes of two concurrent operations.

   Each row is about any state that any node may reach once both are applied. What else happened is unrestricted, but for what would make the row
   senseless: "as long as nobody who had seen the operation undid it". *)
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

Section rows.
  Context (E : mailbox_execution).
  Local Notation history := (history _ _ _ _ E).

  (* What a node has applied at a moment, and the state that this makes. *)
  Definition reached (l : list op) (s : account) : Prop :=
    ∃ i p, p `prefix_of` history i ∧ l = deliveries p ∧ s = contents (state_after empty apply p).

  Definition both (l : list op) (a b : op) : Prop := a ∈ l ∧ b ∈ l ∧ concurrent (happened_before history) a b.

  (* APPEND, COPY, MOVE into X or delivery, and DELETE X: X survives with just that message. *)
  Definition add_and_delete : Prop := ∀ l s a d b, reached l s → both l a d →
    puts a (KBox b) → removes d (KBox b) →
    (not_undone l a (KBox b) → box_exists s b) ∧
    (∀ m, puts a (KMessage m) → not_undone l a (KMessage m) → lives s m) ∧
    (∀ m placed epoch u c, op_action a = ADeliver m placed b epoch u c → (∀ r v, r ∈ l → Raise (RKilled m) v ∉ effects r) → lives s m) ∧
    (∀ m, removes d (KMessage m) → Raise (RKilled m) [1%N] ∈ effects d → all_seen_by l d (KMessage m) → ¬ lives s m).

  (* RENAME X to Y and DELETE X: Y survives; of what the deleter saw nothing does ([add_and_delete]). *)
  Definition rename_and_delete : Prop := ∀ l s a d boxes b to, reached l s → both l a d →
    op_action a = ARename boxes to → b ∈ boxes → removes d (KBox b) → not_undone l a (KBox b) →
    writes_last l a (RName b) [op_time a; (op_dot a).1; to] → name_exists s to.

  (* RENAME X to Y and CREATE Y: one Y, a union: what is placed in either mailbox is shown under the one name. *)
  Definition rename_and_create : Prop := ∀ l s a c boxes b b' to use, reached l s → both l a c →
    op_action a = ARename boxes to → b ∈ boxes → op_action c = ACreate (Some b') to use ∨ (op_action c = ACreate None to use ∧ b' = own_box (op_dot c)) →
    writes_last l a (RName b) [op_time a; (op_dot a).1; to] → writes_last l c (RName b') [op_time c; (op_dot c).1; to] →
    box_name s b = to ∧ box_name s b' = to ∧
    ∀ m, lives s m → placed_in s m = b ∨ placed_in s m = b' → shown_under s to m.

  (* CREATE and DELETE: survives. *)
  Definition create_and_delete : Prop := ∀ l s c d b name use, reached l s → both l c d →
    op_action c = ACreate (Some b) name use → removes d (KBox b) → not_undone l c (KBox b) → box_exists s b.

  (* A flag set and unset: set wins; for \Deleted unset wins. *)
  Definition flag_set_and_unset : Prop := ∀ l s a d m f, reached l s → both l a d → f ≠ DELETED →
    puts a (KFlag m f) → removes d (KFlag m f) → not_undone l a (KFlag m f) → has_flag s m f.
  Definition deleted_set_and_unset : Prop := ∀ l s a d m, reached l s → both l a d →
    puts a (KFlag m DELETED) → Raise (REverDeleted m) [1%N] ∈ effects d → not_undone l a (KFlag m DELETED) → ¬ has_flag s m DELETED.

  (* Clearing \Deleted, or MOVE, and EXPUNGE: the message survives, not \Deleted. *)
  Definition rescue_and_expunge : Prop := ∀ l s a d m, reached l s → both l a d →
    puts a (KMessage m) → removes d (KMessage m) → not_undone l a (KMessage m) →
    lives s m ∧ (puts a (KFlag m DELETED) → not_undone l a (KFlag m DELETED) → ¬ has_flag s m DELETED).

  (* Another STORE and EXPUNGE: the message is gone. *)
  Definition store_and_expunge : Prop := ∀ l s a d messages set clear m ds, reached l s → both l a d →
    op_action a = AStore messages set clear false → m ∈ messages →
    op_action d = AExpunge ds → m ∈ ds.*1 → all_seen_by l d (KMessage m) → ¬ lives s m.

  (* MOVE and MOVE: in exactly one place, the later stamp. *)
  Definition move_and_move : Prop := ∀ l s a b ba bb ea eb entries entries' m, reached l s → both l a b →
    op_action a = AMove ba ea entries → op_action b = AMove bb eb entries' → m ∈ entries.*1.*1 → m ∈ entries'.*1.*1 →
    writes_last l a (RPlace m) (place_value (op_stamp a) ba) → placed_in s m = ba.

  (* COPY and EXPUNGE: the copy stays. *)
  Definition copy_and_expunge : Prop := ∀ l s a d b epoch entries i, reached l s → both l a d →
    op_action a = ACopy b epoch entries → i < length entries →
    not_undone l a (KMessage (own_message (op_dot a) (N.of_nat i))) → lives s (own_message (op_dot a) (N.of_nat i)).

  (* RENAME and RENAME: the later stamp. *)
  Definition rename_and_rename : Prop := ∀ l s a a' boxes boxes' b to to', reached l s → both l a a' →
    op_action a = ARename boxes to → op_action a' = ARename boxes' to' → b ∈ boxes → b ∈ boxes' →
    writes_last l a (RName b) [op_time a; (op_dot a).1; to] → box_name s b = to.

  (* SUBSCRIBE and UNSUBSCRIBE: subscribed. *)
  Definition subscribe_and_unsubscribe : Prop := ∀ l s a d name dots, reached l s → both l a d →
    op_action a = ASubscribe name → op_action d = AUnsubscribe name dots → not_undone l a (KSubscription name) → subscribed s name.

  (* One queue entry delivered by two nodes: one message, in the mailbox of its stamp; who removes it removes both deliveries. *)
  Definition delivered_by_two : Prop := ∀ l s a a' m placed b e u e' u' c, reached l s → both l a a' →
    op_action a = ADeliver m placed b e u c → op_action a' = ADeliver m placed b e' u' c →
    ((∀ r v, r ∈ l → Raise (RKilled m) v ∉ effects r) → lives s m) ∧
    (∀ d ds, d ∈ l → op_action d = AExpunge ds → m ∈ ds.*1 → all_seen_by l d (KMessage m) → ¬ lives s m) ∧
    (writes_last l a (RPlace m) (place_value placed b) → placed_in s m = b).
End rows.

Definition conflicts_statement (row : mailbox_execution → Prop) : Prop := ∀ E, row E.
