(* What Whimbrel's account is made of: cells. There are two kinds, and an operation does nothing but send effects to cells.

   A *dot cell* is a set of dots (crates/crdt, DotSet): the names of the operations that put it there and that nobody has taken out since. A *register*
   holds the greatest value ever written (crates/crdt, Lww; maxima; booleans that only become true). Values are lists of numbers, compared as words are
   in a dictionary. *)
From stdpp Require Export gmap list numbers.
From Whimbrel.spec Require Export Network.

(* Origin and number; messages and mailboxes made by an operation are called after it, with origin 0 for derived ids. *)
Notation dot := (N * N)%type (only parsing).
(* Dot and index in the operation. *)
Notation message_id := (N * N * N)%type (only parsing).
Notation box_id := (N * N)%type (only parsing).
Notation value := (list N) (only parsing).
(* Time and origin. *)
Notation stamp := (N * N)%type (only parsing).

Inductive key :=
  | KBox (b : box_id)
  | KSubscription (name : N)
  | KMessage (m : message_id)
  | KFlag (m : message_id) (flag : N).

Inductive register :=
  | RCreated | RFloor | REpoch
  | RCounter (epoch : N)
  | RClaimed (epoch slot : N)
  | RName (b : box_id)
  | RUse (b : box_id)
  | RPlace (m : message_id)
  | RClaim (m : message_id) (placed : stamp)
  | REverDeleted (m : message_id)
  | RKilled (m : message_id)
  | RDelivered (m : message_id)
  | RContent (m : message_id).

Global Instance key_eq_dec : EqDecision key.
Proof. solve_decision. Defined.
Global Instance key_countable : Countable key.
Proof.
  refine (inj_countable'
    (λ k, match k with KBox b => inl (inl b) | KSubscription n => inl (inr n) | KMessage m => inr (inl m) | KFlag m f => inr (inr (m, f)) end)
    (λ k, match k with inl (inl b) => KBox b | inl (inr n) => KSubscription n | inr (inl m) => KMessage m | inr (inr (m, f)) => KFlag m f end) _).
  by intros [].
Defined.
Global Instance register_eq_dec : EqDecision register.
Proof. solve_decision. Defined.
Global Instance register_countable : Countable register.
Proof.
  refine (inj_countable'
    (λ r, match r with
      | RCreated => inl (inl (inl (0%N, 0%N))) | RFloor => inl (inl (inl (1%N, 0%N))) | REpoch => inl (inl (inl (2%N, 0%N)))
      | RCounter e => inl (inl (inl (3%N, e)))
      | RClaimed e s => inl (inl (inr (e, s)))
      | RName b => inl (inr (inl b)) | RUse b => inl (inr (inr b))
      | RPlace m => inr (inl (0%N, m)) | REverDeleted m => inr (inl (1%N, m)) | RKilled m => inr (inl (2%N, m))
      | RDelivered m => inr (inl (3%N, m)) | RContent m => inr (inl (4%N, m))
      | RClaim m s => inr (inr (m, s)) end)
    (λ c, match c with
      | inl (inl (inl (0%N, _))) => RCreated | inl (inl (inl (1%N, _))) => RFloor | inl (inl (inl (2%N, _))) => REpoch
      | inl (inl (inl (_, e))) => RCounter e
      | inl (inl (inr (e, s))) => RClaimed e s
      | inl (inr (inl b)) => RName b | inl (inr (inr b)) => RUse b
      | inr (inl (0%N, m)) => RPlace m | inr (inl (1%N, m)) => REverDeleted m | inr (inl (2%N, m)) => RKilled m
      | inr (inl (3%N, m)) => RDelivered m | inr (inl (_, m)) => RContent m
      | inr (inr (m, s)) => RClaim m s end) _).
  by intros [].
Defined.

Inductive effect :=
  (* Puts the operation's own dot in the place of all that its maker had seen. *)
  | Supersede (k : key)
  (* Takes out what the maker had seen. *)
  | RemoveSeen (k : key)
  (* Takes out exactly these. *)
  | RemoveDots (k : key) (ds : gset dot)
  (* Writes a register: the greater value stays. *)
  | Raise (r : register) (v : value).

Fixpoint at_most (a b : value) : bool :=
  match a, b with
  | [], _ => true
  | _ :: _, [] => false
  | x :: a, y :: b => bool_decide (x < y)%N || (bool_decide (x = y) && at_most a b)
  end.

Definition greater (a b : value) : value := if at_most a b then b else a.

Record account := Account { cells : gmap key (gset dot); registers : gmap register value }.

Definition cell (s : account) (k : key) : gset dot := default ∅ (cells s !! k).
Definition reg (s : account) (r : register) : value := default [] (registers s !! r).

Definition set_cell (s : account) (k : key) (ds : gset dot) : account := Account (<[k := ds]> (cells s)) (registers s).

(* [saw d]: the maker of the operation had seen the operation [d]. [own] is the operation's own dot. *)
Definition run_effect (own : dot) (saw : dot → bool) (s : account) (e : effect) : account :=
  match e with
  | Supersede k => set_cell s k (filter (λ d, saw d = false) (cell s k) ∪ {[own]})
  | RemoveSeen k => set_cell s k (filter (λ d, saw d = false) (cell s k))
  | RemoveDots k ds => set_cell s k (cell s k ∖ ds)
  | Raise r v => Account (cells s) (<[r := greater (reg s r) v]> (registers s))
  end.
