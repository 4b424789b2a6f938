(* What the oracle computes (extraction/oracle.ml, compared with the code by crates/mailbox/examples/oracle).

   [apply], [join] and [drop_record] are programs as they stand, but slow ones, for they keep all cells of an account in one map whose keys are numbers of many
   bits. Here is a state of which all that is about one message lies together, in a row, and the same functions on it. What there is to see, which is said with
   "there is" and "for all", and what a desk does, which is a relation, get programs, too. That all of them compute what was said is [rows_statement],
   [view_statement] and [desk_statement]. *)
From Whimbrel.spec Require Export Join Collection Uids.

(* Lists of keys with what belongs to each, each key once. *)
Section listed.
  Context {K V : Type} (same : K → K → bool).
  Fixpoint find (k : K) (l : list (K * V)) : option V :=
    match l with [] => None | (k', v) :: l => if same k k' then Some v else find k l end.
  Fixpoint change (h : option V → V) (k : K) (l : list (K * V)) : list (K * V) :=
    match l with
    | [] => [(k, h None)]
    | (k', v) :: l => if same k k' then (k', h (Some v)) :: l else (k', v) :: change h k l
    end.
  Definition without (k : K) (l : list (K * V)) : list (K * V) := List.filter (λ kv, negb (same k kv.1)) l.
  (* [both] makes one of what the two have under a key. *)
  Definition united (both : option V → option V → V) (l1 l2 : list (K * V)) : list (K * V) :=
    map (λ kv, (kv.1, both (Some kv.2) (find kv.1 l2))) l1
    ++ map (λ kv, (kv.1, both None (Some kv.2))) (List.filter (λ kv, match find kv.1 l1 with None => true | Some _ => false end) l2).
End listed.

Definition equal_pair (a b : N * N) : bool := N.eqb a.2 b.2 && N.eqb a.1 b.1.
Definition equal_message (a b : message_id) : bool := equal_pair a.1 b.1 && N.eqb a.2 b.2.
Definition equal_key (a b : key) : bool :=
  match a, b with
  | KBox a, KBox b => equal_pair a b
  | KSubscription a, KSubscription b => N.eqb a b
  | KMessage a, KMessage b => equal_message a b
  | KFlag a f, KFlag b g => N.eqb f g && equal_message a b
  | _, _ => false
  end.
Definition equal_register (a b : register) : bool :=
  match a, b with
  | RCreated, RCreated | RFloor, RFloor | REpoch, REpoch => true
  | RCounter a, RCounter b => N.eqb a b
  | RClaimed a s, RClaimed b t => N.eqb s t && N.eqb a b
  | RName a, RName b | RUse a, RUse b => equal_pair a b
  | RPlace a, RPlace b | REverDeleted a, REverDeleted b | RKilled a, RKilled b | RDelivered a, RDelivered b | RContent a, RContent b => equal_message a b
  | RClaim a s, RClaim b t => equal_pair s t && equal_message a b
  | _, _ => false
  end.

(* What a cell or a register is about. *)
Inductive subject := OfMessage (m : message_id) | OfBox (b : box_id) | OfAccount.
Definition equal_subject (a b : subject) : bool :=
  match a, b with
  | OfMessage a, OfMessage b => equal_message a b
  | OfBox a, OfBox b => equal_pair a b
  | OfAccount, OfAccount => true
  | _, _ => false
  end.
Definition key_subject (k : key) : subject :=
  match k with KMessage m | KFlag m _ => OfMessage m | KBox b => OfBox b | KSubscription _ => OfAccount end.
Definition register_subject (r : register) : subject :=
  match r with
  | RPlace m | RClaim m _ | REverDeleted m | RKilled m | RDelivered m | RContent m => OfMessage m
  | RName b | RUse b => OfBox b
  | RCreated | RFloor | REpoch | RCounter _ | RClaimed _ _ => OfAccount
  end.

Record row := Row { row_cells : list (key * list dot); row_registers : list (register * value) }.
Definition no_row : row := Row [] [].
Definition row_cell (w : row) (k : key) : list dot := default [] (find equal_key k (row_cells w)).
Definition row_reg (w : row) (r : register) : value := default [] (find equal_register r (row_registers w)).

(* For each origin up to which number its operations are applied, and the rows. *)
Record rows := Rows { counts : vector; about_all : list (subject * row) }.
Definition row_of (x : rows) (j : subject) : row := default no_row (find equal_subject j (about_all x)).
Definition rows_cell (x : rows) (k : key) : list dot := row_cell (row_of x (key_subject k)) k.
Definition rows_reg (x : rows) (r : register) : value := row_reg (row_of x (register_subject r)) r.

Record stands_for (x : rows) (s : replica) : Prop := {
  rows_once : NoDup (about_all x).*1;
  keys_once j w : (j, w) ∈ about_all x → NoDup (row_cells w).*1 ∧ NoDup (row_registers w).*1;
  keys_there j w : (j, w) ∈ about_all x → (∀ k, k ∈ (row_cells w).*1 → key_subject k = j) ∧ (∀ r, r ∈ (row_registers w).*1 → register_subject r = j);
  same_vector : vector_of (counts x) s;
  same_cells k : list_to_set (rows_cell x k) = cell (contents s) k;
  same_registers r : rows_reg x r = reg (contents s) r;
}.

Definition no_rows : rows := Rows ∅ [(OfBox INBOX, Row [] [(RName INBOX, [0; 1; inbox_name]%N)])].

Definition change_cell (h : list dot → list dot) (k : key) (l : list (subject * row)) : list (subject * row) :=
  change equal_subject (λ w, let w := default no_row w in Row (change equal_key (λ ds, h (default [] ds)) k (row_cells w)) (row_registers w)) (key_subject k) l.
Definition change_reg (h : value → value) (r : register) (l : list (subject * row)) : list (subject * row) :=
  change equal_subject (λ w, let w := default no_row w in Row (row_cells w) (change equal_register (λ v, h (default [] v)) r (row_registers w))) (register_subject r) l.

Definition rows_effect (own : dot) (saw : dot → bool) (l : list (subject * row)) (e : effect) : list (subject * row) :=
  match e with
  | Supersede k => change_cell (λ ds, own :: List.filter (λ d, negb (saw d)) ds) k l
  | RemoveSeen k => change_cell (List.filter (λ d, negb (saw d))) k l
  | RemoveDots k ds => change_cell (List.filter (λ d, negb (bool_decide (d ∈ ds)))) k l
  | Raise r v => change_reg (λ v', greater v' v) r l
  end.

(* A replica applies the operations of an origin in their order. *)
Definition rows_apply (x : rows) (o : op) : option rows :=
  let (origin, seq) := op_dot o in
  if N.eqb seq (default 0 (counts x !! origin) + 1)%N
  then Some (Rows (<[origin := seq]> (counts x)) (foldl (rows_effect (op_dot o) (saw o)) (about_all x) (effects o))) else None.

Definition joined_dots (mine theirs : vector) (x y : list dot) : list dot :=
  List.filter (λ d, existsb (equal_pair d) y || negb (covers theirs d)) x ++ List.filter (λ d, negb (covers mine d)) y.
Definition joined_row (mine theirs : vector) (x y : row) : row :=
  Row (united equal_key (λ a b, joined_dots mine theirs (default [] a) (default [] b)) (row_cells x) (row_cells y))
    (united equal_register (λ a b, greater (default [] a) (default [] b)) (row_registers x) (row_registers y)).
Definition rows_join (x y : rows) : rows :=
  Rows (union_with (λ a b, Some (N.max a b)) (counts x) (counts y))
    (united equal_subject (λ a b, joined_row (counts x) (counts y) (default no_row a) (default no_row b)) (about_all x) (about_all y)).

Definition rows_drop (j : subject) (x : rows) : rows := Rows (counts x) (without equal_subject j (about_all x)).

(* What there is to see of the row of a message. *)
Definition lives_now (m : message_id) (w : row) : bool :=
  match row_cell w (KMessage m) with
  | _ :: _ => true
  | [] => match row_reg w (RDelivered m), row_reg w (RKilled m) with _ :: _, [] => true | _, _ => false end
  end.
Definition place_now (m : message_id) (w : row) : box_id := let v := row_reg w (RPlace m) in (nth 2 v 0%N, nth 3 v 0%N).
Definition uid_now (epoch : N) (m : message_id) (w : row) : N :=
  let v := row_reg w (RPlace m) in
  let claim := row_reg w (RClaim m (nth 0 v 0%N, nth 1 v 0%N)) in
  if N.eqb (nth 0 claim 0%N) epoch then nth 1 claim 0%N else 0%N.
Definition flags_now (m : message_id) (w : row) : list N :=
  let set := omap (λ kc, match kc with (KFlag _ f, _ :: _) => if N.eqb f DELETED then None else Some f | _ => None end) (row_cells w) in
  match row_reg w (REverDeleted m), row_cell w (KFlag m DELETED) with _ :: _, [] => DELETED :: set | _, _ => set end.

Record seen_message := Message { seen_id : message_id; seen_in : box_id; seen_uid : N; seen_flags : list N; seen_content : value }.
Definition message_now (epoch : N) (m : message_id) (w : row) : seen_message :=
  Message m (place_now m w) (uid_now epoch m w) (flags_now m w) (row_reg w (RContent m)).
Definition epoch_of (x : rows) : N := nth 0 (rows_reg x REpoch) 0%N.

(* The mailboxes [l], and one that may be among them. *)
Definition with_box (b : box_id) (l : list box_id) : list box_id := if existsb (equal_pair b) l then l else b :: l.
Definition mailboxes_now (x : rows) (messages : list seen_message) : list box_id :=
  foldr (λ jw l, match jw with (OfBox b, w) => match row_cell w (KBox b) with [] => l | _ :: _ => with_box b l end | _ => l end)
    (foldr (λ m, with_box (seen_in m)) [INBOX] messages) (about_all x).

(* All that there is to see of a state. *)
Record seen := Seen {
  seen_messages : list seen_message;
  (* With what is written as their names and uses. *)
  seen_mailboxes : list (box_id * (value * value));
  seen_subscriptions : list N;
  (* Creation, floor, epoch, and its counter; then for each slot the greatest counter claimed with it. *)
  seen_numbers : list value;
  seen_claimed : list (N * value);
}.
Definition see (x : rows) : seen :=
  let account := row_of x OfAccount in
  let epoch := nth 0 (row_reg account REpoch) 0%N in
  let messages := omap (λ jw, match jw with (OfMessage m, w) => if lives_now m w then Some (message_now epoch m w) else None | _ => None end) (about_all x) in
  Seen messages
    (map (λ b, let w := row_of x (OfBox b) in (b, (row_reg w (RName b), row_reg w (RUse b)))) (mailboxes_now x messages))
    (omap (λ kc, match kc with (KSubscription name, _ :: _) => Some name | _ => None end) (row_cells account))
    [row_reg account RCreated; row_reg account RFloor; row_reg account REpoch; row_reg account (RCounter epoch)]
    (omap (λ rv, match rv with (RClaimed e slot, v) => if N.eqb e epoch then Some (slot, v) else None | _ => None end) (row_registers account)).

(* What may be broadcast: [valid], docs/design.md#rule-1, and no claim for an epoch that has not come. *)
Definition exists_now (x : rows) (b : box_id) : bool :=
  equal_pair b INBOX || match rows_cell x (KBox b) with [] => false | _ :: _ => true end
  || existsb (λ jw, match jw with (OfMessage m, w) => lives_now m w && equal_pair (place_now m w) b | _ => false end) (about_all x).
Definition valid_now (x : rows) (o : op) : bool :=
  let (origin, seq) := op_dot o in
  N.ltb 0%N (op_time o)
  (* The batch depends on what is applied. *)
  && N.eqb seq (default 0 (counts x !! origin) + 1)%N
  && forallb (λ jn : N * N, N.eqb jn.1 origin || N.eqb jn.2 (default 0 (counts x !! jn.1))%N) (map_to_list (op_deps o))
  && forallb (λ jn : N * N, N.eqb jn.1 origin || N.eqb jn.2 (default 0 (op_deps o !! jn.1))%N) (map_to_list (counts x))
  && forallb (λ e, match e with RemoveDots k ds => bool_decide (ds = list_to_set (rows_cell x k)) | _ => true end) (effects o)
  && forallb (λ m, lives_now m (row_of x (OfMessage m))) (named o)
  && forallb (exists_now x) (named_boxes o).
Definition uids_now (r : rules) (slot : N → N) (x : rows) (o : op) : bool :=
  forallb (λ c : claim, N.eqb (N.modulo c.2 64) (slot (op_dot o).1)
    && (negb (counters_follow r) || N.ltb (nth 0 (rows_reg x (RCounter c.1.2)) 0%N) (N.div c.2 64))) (claims o)
  && bool_decide (NoDup ((λ c : claim, (c.1.2, c.2)) <$> claims o)).
Definition none_ahead_now (x : rows) (o : op) : bool := forallb (λ c : claim, N.leb c.1.2 (epoch_of x)) (claims o).
Definition may_be_made (r : rules) (slot : N → N) (x : rows) (o : op) : bool := valid_now x o && uids_now r slot x o && none_ahead_now x o.

(* The rows stand for what the model has, whatever is done. *)
Definition rows_statement : Prop :=
  stands_for no_rows empty ∧
  ∀ x s, stands_for x s →
    (∀ o x', rows_apply x o = Some x' → stands_for x' (apply s o)) ∧
    (∀ y t, stands_for y t → stands_for (rows_join x y) (Join.join (counts x) s (counts y) t)) ∧
    (∀ m, stands_for (rows_drop (OfMessage m) x) (drop_record m s)) ∧
    (∀ b, stands_for (rows_drop (OfBox b) x) (drop_box b s)) ∧
    (∀ r slot o, may_be_made r slot x o = true → valid s o ∧ rule_1 r slot s o ∧ not_ahead (contents s) o).

Definition view_statement : Prop := ∀ x s, stands_for x s →
  let a := contents s in
  (∀ m, m ∈ seen_id <$> seen_messages (see x) ↔ lives a m) ∧
  (∀ v, v ∈ seen_messages (see x) → let m := seen_id v in
    seen_in v = placed_in a m ∧ seen_uid v = uid a m ∧ (∀ f, f ∈ seen_flags v ↔ has_flag a m f) ∧ seen_content v = reg a (RContent m)) ∧
  (∀ b, b ∈ (seen_mailboxes (see x)).*1 ↔ box_exists a b) ∧
  (∀ b v, (b, v) ∈ seen_mailboxes (see x) → v = (reg a (RName b), reg a (RUse b))) ∧
  (∀ name, name ∈ seen_subscriptions (see x) ↔ subscribed a name) ∧
  (let epoch := nth 0 (reg a REpoch) 0%N in
    seen_numbers (see x) = [reg a RCreated; reg a RFloor; reg a REpoch; reg a (RCounter epoch)] ∧
    ∀ slot v, v ≠ [] → (slot, v) ∈ seen_claimed (see x) ↔ reg a (RClaimed epoch slot) = v).

(* The UIDs that a desk shows under a name. *)
Definition uids_among (l : list (message_id * (N * N))) (name : N) : list N :=
  omap (λ x : message_id * (N * N), if N.eqb x.2.1 name then Some x.2.2 else None) l.
Definition uids_under (d : desk) : N → list N := uids_among (map_to_list (shown d)).

(* UIDNEXT: what was told, or one more than the greatest UID shown. *)
Definition next_after (mark : N) (uids : list N) : N := foldr (λ u n, N.max n (u + 1)) (N.max 1 mark) uids.
Definition uidnext (d : desk) (name : N) : N := next_after (mark d name) (uids_under d name).
(* Each name that is listed, with its mark and its UIDNEXT. *)
Definition see_desk (d : desk) : list (N * (N * N)) :=
  let l := map_to_list (shown d) in (λ nk : N * N, (nk.1, (nk.2, next_after nk.2 (uids_among l nk.1)))) <$> map_to_list (marks d).

(* The desk after an act, if the rules allow it. *)
Definition do_act (r : rules) (d : desk) (a : act) : option desk :=
  match a with
  | Show m name epoch u =>
      match marks d !! name with
      | Some k =>
          if bool_decide (epoch = era d) && (negb (late_is_hidden r) || bool_decide (k ≤ u)%N)
          then Some (Desk (era d) (marks d) (gone_marks d) (floor d) (<[m := (name, u)]> (shown d))) else None
      | None => None
      end
  | Hide m => Some (Desk (era d) (marks d) (gone_marks d) (floor d) (delete m (shown d)))
  | Tell name epoch next =>
      match marks d !! name with
      | Some k =>
          if bool_decide (epoch = era d) && bool_decide (k ≤ next)%N && forallb (λ u, bool_decide (u < next)%N) (uids_under d name)
             && (bool_decide (next ≤ N.max 1 k)%N || existsb (λ u, bool_decide (next = u + 1)%N) (uids_under d name))
          then Some (Desk (era d) (<[name := next]> (marks d)) (gone_marks d) (floor d) (shown d)) else None
      | None => None
      end
  | Believe name next =>
      match marks d !! name with
      | Some k => Some (Desk (era d) (<[name := N.max k next]> (marks d)) (gone_marks d) (floor d) (shown d))
      | None => Some (Desk (era d) (marks d) (<[name := N.max (default 0%N (gone_marks d !! name)) (N.max next (floor d))]> (gone_marks d)) (floor d) (shown d))
      end
  | List_ name =>
      match marks d !! name with
      | Some _ => None
      | None => Some (Desk (era d) (<[name := default (floor d) (gone_marks d !! name)]> (marks d)) (delete name (gone_marks d)) (floor d) (shown d))
      end
  | Unlist name =>
      match marks d !! name with
      | Some k =>
          Some (Desk (era d) (delete name (marks d))
            (if marks_stay r then <[name := N.max (default 0%N (gone_marks d !! name)) k]> (gone_marks d) else gone_marks d)
            (floor d) (filter (λ s, s.2.1 ≠ name) (shown d)))
      | None => None
      end
  | Fold name =>
      match gone_marks d !! name with
      | Some k => Some (Desk (era d) (marks d) (delete name (gone_marks d)) (N.max (floor d) k) (shown d))
      | None => None
      end
  | NewEra epoch => if bool_decide (era d < epoch)%N then Some (Desk epoch ((λ _, 0%N) <$> marks d) ∅ 0 ∅) else None
  end.

(* What a message must be to be shown; nobody is waited for. *)
Definition may_show (x : rows) (a : act) : bool :=
  match a with
  | Show m name epoch u =>
      let w := row_of x (OfMessage m) in
      let e := epoch_of x in
      lives_now m w && N.eqb (nth 2 (rows_reg x (RName (place_now m w))) 0%N) name && N.eqb (uid_now e m w) u && negb (N.eqb u 0%N) && N.eqb epoch e
  | _ => true
  end.

Definition desk_statement : Prop :=
  (∀ r d a d', do_act r d a = Some d' ↔ acts r d a d') ∧
  (∀ r slot readers (E : uid_execution r slot) p x a, claims_wait r = false → stands_for x (state_after empty apply p) →
    may_show x a = true ↔ may_do r slot readers E p a) ∧
  (∀ d name k u, (name, (k, u)) ∈ see_desk d ↔ marks d !! name = Some k ∧ u = uidnext d name) ∧
  (∀ r d name k, marks d !! name = Some k → ∃ d', acts r d (Tell name (era d) (uidnext d name)) d').
