(* Forgetting hidden messages (crates/mailbox/src/merge.rs, `collect`), and why nobody can tell.

   The record of an expunged message stays, hidden, since a concurrent MOVE or rescue must find it. It is dropped when it has been hidden, and not been
   named, since a moment whose operations are stable. Records of mailboxes are kept for ever here; the code collects them, too. *)
From Whimbrel.spec Require Export Mailbox.

Definition key_message (k : key) : option message_id :=
  match k with KMessage m | KFlag m _ => Some m | KBox _ | KSubscription _ => None end.

Definition register_message (r : register) : option message_id :=
  match r with
  | RPlace m | RClaim m _ | REverDeleted m | RKilled m | RDelivered m | RContent m => Some m
  | RCreated | RFloor | REpoch | RCounter _ | RClaimed _ _ | RName _ | RUse _ => None
  end.

Definition drop_record (m : message_id) (s : replica) : replica :=
  Replica (applied s) (Account
    (filter (λ kc, key_message kc.1 ≠ Some m) (cells (contents s)))
    (filter (λ rv, register_message rv.1 ≠ Some m) (registers (contents s)))).

(* The message whose record an effect changes. *)
Definition about (e : effect) : option message_id :=
  match e with Supersede k | RemoveSeen k | RemoveDots k _ => key_message k | Raise r _ => register_message r end.

Definition touches (o : op) (m : message_id) : Prop := ∃ e, e ∈ effects o ∧ about e = Some m.

(* The operation makes the message: a delivery of it, or the one that it is called after. *)
Definition makes (o : op) (m : message_id) : Prop :=
  (∃ placed b epoch u c, op_action o = ADeliver m placed b epoch u c) ∨ m.1 = op_dot o.

Section collection.
  Context (E : mailbox_execution) (i : nat).
  Local Notation history := (history _ _ _ _ E).

  (* When a node whose history so far is [p] may drop the record of [m]: there was a moment [since], and *)
  Record may_drop (since p : list (event op)) (m : message_id) : Prop := {
    earlier : since `prefix_of` p;
    hidden : ¬ lives (contents (state_after empty apply since)) m;
    not_named o : o ∈ deliveries p → o ∈ deliveries since ∨ ¬ touches o m;
    (* Each node that ever broadcasts something has reported a moment at which it had applied all that was applied here then, and what it broadcast up to
       its report is applied here. *)
    stable j o : Broadcast o ∈ history j → ∃ q, q `prefix_of` history j ∧ (∀ x, Deliver x ∈ since → Deliver x ∈ q) ∧ (∀ x, Broadcast x ∈ q → Deliver x ∈ p);
    (* Delivered mail: its queue entry is finished at every owner, so that nobody delivers it again. Other messages are made by one operation, which is
       applied here, for here is a record. *)
    finished j o : Broadcast o ∈ history j → makes o m → Deliver o ∈ p;
  }.

  (* The states that a node may be in after [p] if it drops records whenever it likes, as long as it may. *)
  Inductive collects : list (event op) → replica → Prop :=
    | collects_start : collects [] empty
    | collects_broadcast p o s : collects p s → p ++ [Broadcast o] `prefix_of` history i → collects (p ++ [Broadcast o]) s
    | collects_deliver p o s : collects p s → p ++ [Deliver o] `prefix_of` history i → collects (p ++ [Deliver o]) (apply s o)
    | collects_drop since p m s : collects p s → may_drop since p m → collects p (drop_record m s).
End collection.

(* What anyone can see of a state. *)
Record looks_same (s t : account) : Prop := {
  same_messages m : lives s m ↔ lives t m;
  same_place m : lives s m → placed_in s m = placed_in t m ∧ placed_at s m = placed_at t m;
  same_uid m : lives s m → uid s m = uid t m;
  same_flags m f : lives s m → has_flag s m f ↔ has_flag t m f;
  same_content m : lives s m → reg s (RContent m) = reg t (RContent m);
  same_mailboxes b : box_exists s b ↔ box_exists t b;
  same_names b : box_name s b = box_name t b ∧ reg s (RUse b) = reg t (RUse b);
  same_subscriptions name : subscribed s name ↔ subscribed t name;
  same_numbers r : r ∈ [RCreated; RFloor; REpoch] ∨ (∃ e, r = RCounter e) ∨ (∃ e slot, r = RClaimed e slot) → reg s r = reg t r;
}.

(* After whatever collections, the same is seen as if nothing were ever collected, and the same may be done. *)
Definition collection_statement : Prop :=
  ∀ (E : mailbox_execution) i p s, collects E i p s →
    looks_same (contents s) (contents (state_after empty apply p)) ∧
    ∀ o, valid s o ↔ valid (state_after empty apply p) o.

(* It happens: a node may drop the record of a message that it has, though another node broadcasts. *)
Definition collection_happens_statement : Prop :=
  ∃ (E : mailbox_execution) i j since p m o, p `prefix_of` history _ _ _ _ E i ∧ may_drop E since p m ∧
    reg (contents (state_after empty apply p)) (RPlace m) ≠ [] ∧ i ≠ j ∧ Broadcast o ∈ history _ _ _ _ E j.
