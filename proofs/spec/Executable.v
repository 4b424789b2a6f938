(* What the oracle computes (extraction/oracle.ml, compared with the code by crates/mailbox/examples/oracle).

   [apply], [join] and [drop_record] are programs as they stand, and so is [uid]. What is not is what there is to see, which is said with "there is" and
   "for all", and what a desk does, which is a relation. Here are programs for these; that they compute what was said is [view_statement] and
   [desk_statement]. *)
From Whimbrel.spec Require Export Join Collection Uids.

Definition is_empty (X : gset dot) : bool := bool_decide (X = ∅).

Definition lives_now (s : account) (m : message_id) : bool :=
  negb (is_empty (cell s (KMessage m))) || (negb (bool_decide (reg s (RDelivered m) = [])) && bool_decide (reg s (RKilled m) = [])).

Definition has_flag_now (s : account) (m : message_id) (f : N) : bool :=
  if bool_decide (f = DELETED) then negb (bool_decide (reg s (REverDeleted m) = [])) && is_empty (cell s (KFlag m f))
  else negb (is_empty (cell s (KFlag m f))).

(* What follows is computed from the cells [cs] and the registers [rs] of the state, listed once. *)
Notation listed_cells := (list (key * gset dot)) (only parsing).
Notation listed_registers := (list (register * value)) (only parsing).

(* All messages that are there: they have dots, or were delivered. *)
Definition living_among (cs : listed_cells) (rs : listed_registers) (s : account) : list message_id :=
  elements (list_to_set (C := gset message_id) (filter (λ m, lives_now s m = true)
    (omap (λ kc, match kc.1 with KMessage m => Some m | _ => None end) cs
     ++ omap (λ rv, match rv.1 with RDelivered m => Some m | _ => None end) rs))).
Definition living (s : account) : list message_id := living_among (map_to_list (cells s)) (map_to_list (registers s)) s.

Definition flags_among (cs : listed_cells) (s : account) (m : message_id) : list N :=
  filter (λ f, has_flag_now s m f = true)
    (DELETED :: omap (λ kc, match kc.1 with KFlag m' f => if bool_decide (m' = m ∧ f ≠ DELETED) then Some f else None | _ => None end) cs).
Definition flags (s : account) : message_id → list N := flags_among (map_to_list (cells s)) s.

(* [l] are the living messages. *)
Definition mailboxes_among (cs : listed_cells) (l : list message_id) (s : account) : list box_id :=
  elements (list_to_set (C := gset box_id) (INBOX ::
    omap (λ kc, match kc.1 with KBox b => if is_empty kc.2 then None else Some b | _ => None end) cs ++ (placed_in s <$> l))).
Definition mailboxes (s : account) : list box_id := mailboxes_among (map_to_list (cells s)) (living s) s.

Definition subscriptions_among (cs : listed_cells) : list N :=
  omap (λ kc, match kc.1 with KSubscription name => if is_empty kc.2 then None else Some name | _ => None end) cs.
Definition subscriptions (s : account) : list N := subscriptions_among (map_to_list (cells s)).

Definition view_statement : Prop := ∀ s,
  (∀ m, m ∈ living s ↔ lives s m) ∧
  (∀ m f, f ∈ flags s m ↔ has_flag s m f) ∧
  (∀ b, b ∈ mailboxes s ↔ box_exists s b) ∧
  (∀ name, name ∈ subscriptions s ↔ subscribed s name).

(* The UIDs that a desk shows under a name. *)
Definition uids_under (d : desk) (name : N) : list N :=
  omap (λ x : message_id * (N * N), if bool_decide (x.2.1 = name) then Some x.2.2 else None) (map_to_list (shown d)).

(* UIDNEXT: what was told, or one more than the greatest UID shown. *)
Definition uidnext (d : desk) (name : N) : N := foldr (λ u n, N.max n (u + 1)) (N.max 1 (mark d name)) (uids_under d name).

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
Definition may_show (s : account) (a : act) : bool :=
  match a with
  | Show m name epoch u =>
      lives_now s m && bool_decide (box_name s (placed_in s m) = name) && bool_decide (uid s m = u) && negb (bool_decide (u = 0%N))
      && bool_decide (epoch = nth 0 (reg s REpoch) 0%N)
  | _ => true
  end.

Definition desk_statement : Prop :=
  (∀ r d a d', do_act r d a = Some d' ↔ acts r d a d') ∧
  (∀ r slot readers (E : uid_execution r slot) p a, claims_wait r = false → may_show (contents (state_after empty apply p)) a = true ↔ may_do r slot readers E p a) ∧
  (∀ r d name k, marks d !! name = Some k → ∃ d', acts r d (Tell name (era d) (uidnext d name)) d').
