(* The oracle's functions, written as OCaml. Numbers stay what they are in Coq, lists of bits, so that none can overflow; only what has the same values
   in OCaml (booleans, options, pairs, lists) becomes OCaml's. *)
From Coq Require Extraction ExtrOcamlBasic.
From Whimbrel.spec Require Import Executable.
From Whimbrel.proof Require Import Refuted.

Definition new_replica : replica := empty.

(* What oracle.ml makes of the numbers that it reads. *)
Definition dots_of (l : list dot) : gset dot := list_to_set l.
Definition vector_from (l : list (N * N)) : gmap N N := list_to_map l.

(* All that there is to see of a state. *)
Record seen_message := Message { seen_id : message_id; seen_in : box_id; seen_uid : N; seen_flags : list N; seen_content : value }.
Record seen := Seen {
  seen_messages : list seen_message;
  (* With what is written as their names and uses. *)
  seen_mailboxes : list (box_id * (value * value));
  seen_subscriptions : list N;
  (* Creation, floor, epoch, and its counter; then for each slot the greatest counter claimed with it. *)
  seen_numbers : list value;
  seen_claimed : list (N * value);
}.
Definition see (s : account) : seen :=
  let cs := map_to_list (cells s) in
  let rs := map_to_list (registers s) in
  let l := living_among cs rs s in
  let epoch := nth 0 (reg s REpoch) 0%N in
  Seen ((λ m, Message m (placed_in s m) (uid s m) (flags_among cs s m) (reg s (RContent m))) <$> l)
    ((λ b, (b, (reg s (RName b), reg s (RUse b)))) <$> mailboxes_among cs l s)
    (subscriptions_among cs)
    [reg s RCreated; reg s RFloor; reg s REpoch; reg s (RCounter epoch)]
    (omap (λ rv, match rv.1 with RClaimed e slot => if bool_decide (e = epoch) then Some (slot, rv.2) else None | _ => None end) rs).
(* Each name that is listed, with its mark and its UIDNEXT. *)
Definition see_desk (d : desk) : list (N * (N * N)) := (λ nk, (nk.1, (nk.2, uidnext d nk.1))) <$> map_to_list (marks d).

(* The rules that the code keeps when nobody is waited for. *)
Definition kept : rules := nobody_waits.
Definition may_be_made (slot : N → N) (s : replica) (o : op) : bool := uid_ok kept slot s o.
Definition act_after (s : account) (d : desk) (a : act) : option desk := if may_show s a then do_act kept d a else None.

Extraction Language OCaml.
Extraction "model.ml"
  new_replica apply Join.join drop_record drop_box may_be_made act_after opening
  see see_desk dots_of vector_from.
