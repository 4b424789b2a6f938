(* Forgetting hidden messages (crates/mailbox/src/merge.rs, `collect`), and why nobody can tell.

   The record of an expunged message stays, hidden, since a concurrent MOVE or rescue must find it. It is dropped when it has been hidden, and not been
   named, since a moment whose operations are stable. The record of a mailbox that is gone stays for the same reason, and is dropped in the same way, when
   the records of all messages that lay in it are dropped, too. *)
From Whimbrel.spec Require Export Join.

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

Definition register_box (r : register) : option box_id := match r with RName b | RUse b => Some b | _ => None end.

Definition drop_box (b : box_id) (s : replica) : replica :=
  Replica (applied s) (Account
    (filter (λ kc, kc.1 ≠ KBox b) (cells (contents s)))
    (filter (λ rv, register_box rv.1 ≠ Some b) (registers (contents s)))).

(* The mailbox whose record an effect changes, or into which it puts a message. *)
Definition about_box (e : effect) : option box_id :=
  match e with
  | Supersede (KBox b) | RemoveSeen (KBox b) | RemoveDots (KBox b) _ => Some b
  | Raise (RPlace _) v => Some (nth 2 v 0%N, nth 3 v 0%N)
  | Raise r _ => register_box r
  | _ => None
  end.

Definition touches_box (o : op) (b : box_id) : Prop := ∃ e, e ∈ effects o ∧ about_box e = Some b.

Definition makes_box (o : op) (b : box_id) : Prop := ∃ derived name use, op_action o = ACreate derived name use ∧ default (own_box (op_dot o)) derived = b.

Section collection.
  Context (E : mailbox_execution) (i : nat).
  Local Notation history := (history _ _ _ _ E).

  (* When a node whose history so far is [p] may drop the record of [m]: there was a moment [since], and *)
  Record may_drop (since p : list (event op)) (m : message_id) : Prop := {
    earlier : since `prefix_of` p;
    hidden : ¬ lives (contents (state_after empty apply since)) m;
    not_named o : o ∈ deliveries p → o ∈ deliveries since ∨ ¬ touches o m;
    (* Each node that broadcasts something which is not applied here has reported a moment at which it had applied all that was applied here then, and what it
       broadcast up to its report is applied here. Of who was removed, and of a life that has ended, no report comes any more: its whole log is applied here. *)
    stable j o : Broadcast o ∈ history j →
      Deliver o ∈ p ∨ ∃ q, q `prefix_of` history j ∧ (∀ x, Deliver x ∈ since → Deliver x ∈ q) ∧ (∀ x, Broadcast x ∈ q → Deliver x ∈ p);
    (* Delivered mail: its queue entry is finished at every owner, so that nobody delivers it again. Other messages are made by one operation, which is
       applied here, for here is a record. *)
    finished j o : Broadcast o ∈ history j → makes o m → Deliver o ∈ p;
  }.

  (* The same of a mailbox, *)
  Record may_drop_box (since p : list (event op)) (b : box_id) : Prop := {
    box_earlier : since `prefix_of` p;
    box_hidden : ¬ box_exists (contents (state_after empty apply since)) b;
    box_not_named o : o ∈ deliveries p → o ∈ deliveries since ∨ ¬ touches_box o b;
    box_stable j o : Broadcast o ∈ history j →
      Deliver o ∈ p ∨ ∃ q, q `prefix_of` history j ∧ (∀ x, Deliver x ∈ since → Deliver x ∈ q) ∧ (∀ x, Broadcast x ∈ q → Deliver x ∈ p);
    (* Nobody creates it any more: its id is that of an operation which is applied here, or it is a default folder and everybody has opened the account. *)
    box_finished j o : Broadcast o ∈ history j → makes_box o b → Deliver o ∈ p;
  }.

  (* and of each message that lay in it then the record is dropped. That nothing lies in it now would not do: see [emptied_is_needed_statement]. *)
  Definition emptied (since : list (event op)) (s : replica) (b : box_id) : Prop :=
    ∀ m, placed_in (contents (state_after empty apply since)) m = b → reg (contents s) (RPlace m) = [].

  (* The states that a node [i] may be in after [p] if it drops records and joins states of others whenever it likes, as long as it may. [floor] is what all
     had applied of which it was relied on for what is not in the state any more. A state is joined if what was relied on at one side is applied at the
     other; a node to which nothing was ever delivered has no record that could be too old. *)
  Inductive collects : nat → list (event op) → replica → list op → Prop :=
    | collects_start i : collects i [] empty []
    | collects_broadcast i p o s floor : collects i p s floor → p ++ [Broadcast o] `prefix_of` history i → collects i (p ++ [Broadcast o]) s floor
    | collects_deliver i p o s floor : collects i p s floor → p ++ [Deliver o] `prefix_of` history i → collects i (p ++ [Deliver o]) (apply s o) floor
    | collects_drop i since p m s floor : collects i p s floor → may_drop since p m → collects i p (drop_record m s) (deliveries since ++ floor)
    | collects_drop_box i since p b s floor : collects i p s floor → may_drop_box since p b → emptied since s b →
        collects i p (drop_box b s) (deliveries since ++ floor)
    | collects_join i j p q s t floor theirs_floor mine theirs : collects i p s floor → collects j q t theirs_floor →
        p ++ (Deliver <$> missing s (deliveries q)) `prefix_of` history i → vector_of mine s → vector_of theirs t →
        (∀ o, o ∈ floor → o ∈ deliveries q) → (deliveries p = [] ∨ ∀ o, o ∈ theirs_floor → o ∈ deliveries p) →
        collects i (p ++ (Deliver <$> missing s (deliveries q))) (join mine s theirs t) (floor ++ theirs_floor).
End collection.

(* What anyone can see of a state. *)
Record looks_same (s t : account) : Prop := {
  same_messages m : lives s m ↔ lives t m;
  same_place m : lives s m → placed_in s m = placed_in t m ∧ placed_at s m = placed_at t m;
  same_uid m : lives s m → uid s m = uid t m;
  same_flags m f : lives s m → has_flag s m f ↔ has_flag t m f;
  same_content m : lives s m → reg s (RContent m) = reg t (RContent m);
  same_mailboxes b : box_exists s b ↔ box_exists t b;
  same_names b : box_exists s b → box_name s b = box_name t b ∧ reg s (RUse b) = reg t (RUse b);
  same_subscriptions name : subscribed s name ↔ subscribed t name;
  same_numbers r : r ∈ [RCreated; RFloor; REpoch] ∨ (∃ e, r = RCounter e) ∨ (∃ e slot, r = RClaimed e slot) → reg s r = reg t r;
}.

(* After whatever collections, and whatever joins of states from which things were collected, the same is seen as if nothing were ever collected and all
   operations had been applied one after the other, and the same may be done. *)
Definition collection_statement : Prop :=
  ∀ (E : mailbox_execution) i p s floor, collects E i p s floor →
    looks_same (contents s) (contents (state_after empty apply p)) ∧
    ∀ o, valid s o ↔ valid (state_after empty apply p) o.

(* It happens: a node may drop the record of a message that it has, though another node broadcasts. *)
Definition collection_happens_statement : Prop :=
  ∃ (E : mailbox_execution) i j since p m o, p `prefix_of` history _ _ _ _ E i ∧ may_drop E since p m ∧
    reg (contents (state_after empty apply p)) (RPlace m) ≠ [] ∧ i ≠ j ∧ Broadcast o ∈ history _ _ _ _ E j.

(* The same when a node that has written was removed (docs/decisions/0024): no report of it covers what is relied on, nor ever will, and all that it
   wrote is applied. *)
Definition removed_writer_statement : Prop :=
  ∃ (E : mailbox_execution) i j since p m o, p `prefix_of` history _ _ _ _ E i ∧ may_drop E since p m ∧
    reg (contents (state_after empty apply p)) (RPlace m) ≠ [] ∧ i ≠ j ∧ Broadcast o ∈ history _ _ _ _ E j ∧ Deliver o ∉ since ∧
    ∀ q, q `prefix_of` history _ _ _ _ E j → ∃ x, Deliver x ∈ since ∧ Deliver x ∉ q.

(* The same of a mailbox, in which a message lay whose record is dropped before. *)
Definition mailbox_collection_happens_statement : Prop :=
  ∃ (E : mailbox_execution) i j since p b m o, p `prefix_of` history _ _ _ _ E i ∧
    may_drop E since p m ∧ placed_in (contents (state_after empty apply since)) m = b ∧
    may_drop_box E since p b ∧ emptied since (drop_record m (state_after empty apply p)) b ∧
    reg (contents (state_after empty apply p)) (RName b) ≠ [] ∧ i ≠ j ∧ Broadcast o ∈ history _ _ _ _ E j.

(* If it were enough that nothing lies in the mailbox now, it could be dropped too soon: a message has left it, of which the maker of an operation that still
   comes has not heard. There the message lives in the mailbox, so that it exists, and something is put into it, which here is then seen elsewhere. *)
Definition emptied_is_needed_statement : Prop :=
  ∃ (E : mailbox_execution) i since p b o, p ++ [Deliver o] `prefix_of` history _ _ _ _ E i ∧ may_drop_box E since p b ∧
    (∀ m, placed_in (contents (state_after empty apply p)) m ≠ b) ∧
    ¬ looks_same (contents (apply (drop_box b (state_after empty apply p)) o)) (contents (state_after empty apply (p ++ [Deliver o]))).
