(* The oracle's functions, written as OCaml. Numbers stay what they are in Coq, lists of bits, so that none can overflow; only what has the same values
   in OCaml (booleans, options, pairs, lists) becomes OCaml's. *)
From Coq Require Extraction ExtrOcamlBasic.
From Whimbrel.spec Require Import Executable.

(* What oracle.ml makes of the numbers that it reads. *)
Definition dots_of (l : list dot) : gset dot := list_to_set l.
Definition vector_from (l : list (N * N)) : gmap N N := list_to_map l.

(* The rules that the code keeps when nobody is waited for. *)
Definition kept : rules := nobody_waits.
Definition may_make (slot : N → N) (x : rows) (o : op) : bool := may_be_made kept slot x o.
Definition act_after (x : rows) (d : desk) (a : act) : option desk := if may_show x a then do_act kept d a else None.

Extraction Language OCaml.
Extraction "model.ml"
  no_rows rows_apply rows_join rows_drop may_make act_after opening
  see see_desk dots_of vector_from.
