(* Whimbrel's mailbox CRDT: the operations of crates/mailbox/src/op.rs, and what crates/mailbox/src/apply.rs does with them, effect by effect.

   Where the model is simpler than the code, and why nothing is lost:
   - The code keeps the claims of a message's present placement, the model those of every placement, each under its stamp: placements only grow, so
     that the others are never read again. The same for counters of past epochs. Only the greatest claim is kept here.
   - [RKilled] is raised for every message that is removed, in the code only for one that was delivered: of others it is never read.
   - Names, special uses and contents are numbers here. What a session is shown, marks, lateness and MODSEQ are local, and not in this file.
   - [apply] is total. The code objects to an operation that names a record which is not there, or claims what its slot has passed; that none arrives is
     tested, not proved.
   - A batch is its operations one after the other, each with what the batch depends on. *)
From Whimbrel.spec Require Export Cells.

(* The register of \Deleted, in which a concurrent unset wins. *)
Definition DELETED : N := 2.
(* INBOX: always there. *)
Definition INBOX : box_id := (0, 0)%N.
(* The mailbox that a CREATE makes where its id is not derived. *)
Definition own_box (d : dot) : box_id := d.
(* The [i]-th message that an operation makes. *)
Definition own_message (d : dot) (i : N) : message_id := (d, i).

Inductive action :=
  | AOpen (created floor : N)
  | ACreate (derived : option box_id) (name use : N)
  | ADelete (boxes : list (box_id * gset dot)) (messages : list (message_id * gset dot))
  | ARename (boxes : list box_id) (to : N)
  | ASubscribe (name : N)
  | AUnsubscribe (name : N) (dots : gset dot)
  | AAppend (b : box_id) (epoch uid : N) (flags : list N) (content : N)
  | ADeliver (m : message_id) (placed : stamp) (b : box_id) (epoch uid content : N)
  | ACopy (b : box_id) (epoch : N) (entries : list (message_id * N * list N))
  | AMove (b : box_id) (epoch : N) (entries : list (message_id * N * bool))
  | AStore (messages : list message_id) (set clear : list N) (rescue : bool)
  | AExpunge (messages : list (message_id * gset dot))
  | AClaim (epoch : N) (claims : list (message_id * stamp * N))
  | ABump (counter epoch : N)
  | AEpoch (uidvalidity : N).

(* An operation: its dot, the time of its stamp, what its batch depends on, and what it does. *)
Record op := Op { op_dot : dot; op_time : N; op_deps : gmap N N; op_action : action }.

Definition op_stamp (o : op) : stamp := (op_time o, (op_dot o).1).

(* crates/crdt/src/dot.rs, Context::saw. *)
Definition saw (o : op) (d : dot) : bool :=
  if bool_decide (d.1 = (op_dot o).1) then bool_decide (d.2 < (op_dot o).2)%N
  else bool_decide (d.2 ≤ default 0 (op_deps o !! d.1))%N.

Definition place_value (s : stamp) (b : box_id) : value := [s.1; s.2; b.1; b.2].

(* A UID is a counter and a slot of six bits. *)
Definition claim_effects (m : message_id) (s : stamp) (epoch uid : N) : list effect :=
  [Raise (RClaim m s) [epoch; uid]; Raise (RCounter epoch) [N.div uid 64]; Raise (RClaimed epoch (N.modulo uid 64)) [N.div uid 64]].

Definition set_flag (m : message_id) (f : N) : list effect :=
  if bool_decide (f = DELETED) then [Raise (REverDeleted m) [1%N]; RemoveSeen (KFlag m f)] else [Supersede (KFlag m f)].

Definition clear_flag (m : message_id) (f : N) : list effect :=
  if bool_decide (f = DELETED) then [Supersede (KFlag m f)] else [RemoveSeen (KFlag m f)].

Definition removal_effects (r : message_id * gset dot) : list effect := [RemoveDots (KMessage r.1) r.2; Raise (RKilled r.1) [1%N]].

Definition copy_effects (o : op) (b : box_id) (epoch : N) (i : nat) (entry : message_id * N * list N) : list effect :=
  let m := own_message (op_dot o) (N.of_nat i) in
  Raise (RPlace m) (place_value (op_stamp o) b) :: Supersede (KMessage m) :: claim_effects m (op_stamp o) epoch entry.1.2
    ++ mjoin (set_flag m <$> entry.2).

Definition move_effects (o : op) (b : box_id) (epoch : N) (entry : message_id * N * bool) : list effect :=
  let m := entry.1.1 in
  Raise (RPlace m) (place_value (op_stamp o) b) :: Supersede (KMessage m) :: claim_effects m (op_stamp o) epoch entry.1.2
    ++ (if entry.2 then clear_flag m DELETED else []).

Definition store_effects (set clear : list N) (rescue : bool) (m : message_id) : list effect :=
  mjoin (clear_flag m <$> clear) ++ mjoin (set_flag m <$> set) ++ (if rescue then [Supersede (KMessage m)] else []).

Definition effects (o : op) : list effect :=
  let s := op_stamp o in
  match op_action o with
  | AOpen created floor => [Raise RCreated [created]; Raise RFloor [floor]]
  | ACreate derived name use =>
      let b := default (own_box (op_dot o)) derived in
      [Raise (RName b) [s.1; s.2; name]; Raise (RUse b) [s.1; s.2; use]; Supersede (KBox b)]
  | ADelete boxes messages => ((λ b, RemoveDots (KBox b.1) b.2) <$> boxes) ++ mjoin (removal_effects <$> messages)
  | ARename boxes to => mjoin ((λ b, [Supersede (KBox b); Raise (RName b) [s.1; s.2; to]]) <$> boxes)
  | ASubscribe name => [Supersede (KSubscription name)]
  | AUnsubscribe name dots => [RemoveDots (KSubscription name) dots]
  | AAppend b epoch uid flags content =>
      let m := own_message (op_dot o) 0 in
      Supersede (KBox b) :: Raise (RPlace m) (place_value s b) :: Supersede (KMessage m) :: Raise (RContent m) [content]
        :: claim_effects m s epoch uid ++ mjoin (set_flag m <$> flags)
  | ADeliver m placed b epoch uid content =>
      Supersede (KBox b) :: Raise (RPlace m) (place_value placed b) :: Raise (RDelivered m) [1%N] :: Raise (RContent m) [content]
        :: claim_effects m placed epoch uid
  | ACopy b epoch entries => Supersede (KBox b) :: mjoin (imap (copy_effects o b epoch) entries)
  | AMove b epoch entries => Supersede (KBox b) :: mjoin (move_effects o b epoch <$> entries)
  | AStore messages set clear rescue => mjoin (store_effects set clear rescue <$> messages)
  | AExpunge messages => mjoin (removal_effects <$> messages)
  | AClaim epoch claims => mjoin ((λ c, claim_effects c.1.1 c.1.2 epoch c.2) <$> claims)
  | ABump counter epoch => [Raise (RCounter epoch) [counter]]
  | AEpoch uidvalidity => [Raise REpoch [uidvalidity]]
  end.

(* One account on one replica, with the dots of what was applied to it. *)
Record replica := Replica { applied : gset dot; contents : account }.

(* INBOX is called so since ever. *)
Definition inbox_name : N := 0.
Definition empty : replica := Replica ∅ (Account ∅ {[ RName INBOX := [0; 1; inbox_name]%N ]}).

Definition apply_op (s : account) (o : op) : account := foldl (run_effect (op_dot o) (saw o)) s (effects o).

Definition apply (s : replica) (o : op) : replica := Replica ({[op_dot o]} ∪ applied s) (apply_op (contents s) o).

(* What is there. *)
Definition lives (s : account) (m : message_id) : Prop :=
  cell s (KMessage m) ≠ ∅ ∨ (reg s (RDelivered m) ≠ [] ∧ reg s (RKilled m) = []).

Definition placed_at (s : account) (m : message_id) : stamp := (nth 0 (reg s (RPlace m)) 0%N, nth 1 (reg s (RPlace m)) 0%N).
Definition placed_in (s : account) (m : message_id) : box_id := (nth 2 (reg s (RPlace m)) 0%N, nth 3 (reg s (RPlace m)) 0%N).

(* The greatest claim for the present placement in the present epoch, 0 if there is none. *)
Definition uid (s : account) (m : message_id) : N :=
  let claim := reg s (RClaim m (placed_at s m)) in
  if bool_decide (nth 0 claim 0%N = nth 0 (reg s REpoch) 0%N) then nth 1 claim 0%N else 0%N.

Definition has_flag (s : account) (m : message_id) (f : N) : Prop :=
  if bool_decide (f = DELETED) then reg s (REverDeleted m) ≠ [] ∧ cell s (KFlag m f) = ∅ else cell s (KFlag m f) ≠ ∅.

(* "A mailbox exists while it has an existence dot or a living message is placed in it"; INBOX always. *)
Definition box_exists (s : account) (b : box_id) : Prop :=
  b = INBOX ∨ cell s (KBox b) ≠ ∅ ∨ ∃ m, lives s m ∧ placed_in s m = b.

Definition box_name (s : account) (b : box_id) : N := nth 2 (reg s (RName b)) 0%N.

Definition subscribed (s : account) (name : N) : Prop := cell s (KSubscription name) ≠ ∅.

(* What IMAP calls a mailbox is the union of those that bear its name now. *)
Definition name_exists (s : account) (name : N) : Prop := ∃ b, box_exists s b ∧ box_name s b = name.
Definition shown_under (s : account) (name : N) (m : message_id) : Prop :=
  lives s m ∧ box_name s (placed_in s m) = name.

(* The messages that an operation names: those that must be there when it is made. *)
Definition named (o : op) : list message_id :=
  match op_action o with
  | ADelete _ messages | AExpunge messages => messages.*1
  | ACopy _ _ entries => entries.*1.*1
  | AMove _ _ entries => entries.*1.*1
  | AStore messages _ _ _ => messages
  | AClaim _ claims => claims.*1.*1
  | _ => []
  end.

(* The mailboxes that an operation names. A CREATE makes its own, or one of a derived id, which may be there or not. *)
Definition named_boxes (o : op) : list box_id :=
  match op_action o with
  | ADelete boxes _ => boxes.*1
  | ARename boxes _ => boxes
  | AAppend b _ _ _ _ | ADeliver _ _ b _ _ _ | ACopy b _ _ | AMove b _ _ => [b]
  | _ => []
  end.

(* What the planner of a node (crates/mailbox/src/plan) and its log guarantee of what it broadcasts. *)
Record valid (s : replica) (o : op) : Prop := {
  (* Operations are numbered from 1. *)
  numbered : (0 < (op_dot o).2)%N;
  (* Time 0 is that of what is there without anyone's doing. *)
  timed : (0 < op_time o)%N;
  (* The batch depends on exactly what is applied here. *)
  deps_exact d : (0 < d.2)%N → (saw o d = true ↔ d ∈ applied s);
  (* What is removed by its dots is exactly what was visible. *)
  dots_visible k ds : RemoveDots k ds ∈ effects o → ds = cell (contents s) k;
  (* No operation names a hidden record. *)
  named_live m : m ∈ named o → lives (contents s) m;
  named_exists b : b ∈ named_boxes o → box_exists (contents s) b;
}.

Definition mailbox_execution := execution op_dot empty apply valid.

Definition mailbox_sec_statement : Prop := ∀ E : mailbox_execution, strong_eventual_consistency _ _ _ _ E.
