(* The oracle: reads histories from its standard input, one event a line, runs the extracted model on them, and prints what there is to see where it is
   asked. Not proved: it only reads and prints; everything that decides something is in model.ml.

   All fields are decimal numbers; (X) is a list: how many, then each. A dot, a mailbox and a stamp are two numbers, a message three, a time one.
     history (SLOT)               a new history; the slot of replica 0 is the first, its operations have the origin 1, and so on
     op DOT TIME (DEPS) ACTION    the next operation; ACTION is the number of its kind and its fields, in the order of spec/Mailbox.v
     make R I / take R I          replica R makes operation I, or applies a foreign one
     join R S                     R joins the state of S
     drop R MESSAGE               R forgets a record
     dropbox R MAILBOX            R forgets the record of a mailbox
     show R MESSAGE NAME EPOCH UID, hide R MESSAGE, tell R NAME EPOCH NEXT, believe R NAME NEXT, list R NAME, unlist R NAME, era R EPOCH
     view R                       print it, to a line "."
     end                          print "end"
   What the model refuses is told by a line "refused" with the event. *)
open Model

let rec positive i = if i = 1 then XH else if i land 1 = 1 then XI (positive (i lsr 1)) else XO (positive (i lsr 1))
let number i = if i = 0 then N0 else if i > 0 then Npos (positive i) else failwith "a negative number"
let rec int_of bit sum = function XH -> sum + bit | XO p -> int_of (2 * bit) sum p | XI p -> int_of (2 * bit) (sum + bit) p
let int = function N0 -> 0 | Npos p -> int_of 1 0 p

(* Reading. *)
let words = ref []
let word () = match !words with [] -> failwith "a line ends too early" | w :: rest -> words := rest; w
let plain () = int_of_string (word ())
let n () = number (plain ())
let pair a b () = let x = a () in let y = b () in (x, y)
let dot = pair n n
let message = pair dot n
let list one () = List.init (plain ()) (fun _ -> one ())
let dots () = dots_of (list dot ())
let yes () = plain () <> 0

let action () = match plain () with
  | 0 -> let a = n () in AOpen (a, n ())
  | 1 -> let derived = (match list dot () with [] -> None | b :: _ -> Some b) in let name = n () in ACreate (derived, name, n ())
  | 2 -> let boxes = list (pair dot dots) () in ADelete (boxes, list (pair message dots) ())
  | 3 -> let boxes = list dot () in ARename (boxes, n ())
  | 4 -> ASubscribe (n ())
  | 5 -> let name = n () in AUnsubscribe (name, dots ())
  | 6 -> let b = dot () in let e = n () in let u = n () in let flags = list n () in AAppend (b, e, u, flags, n ())
  | 7 -> let m = message () in let placed = dot () in let b = dot () in let e = n () in let u = n () in ADeliver (m, placed, b, e, u, n ())
  | 8 -> let b = dot () in let e = n () in ACopy (b, e, list (pair (pair message n) (list n)) ())
  | 9 -> let b = dot () in let e = n () in AMove (b, e, list (pair (pair message n) yes) ())
  | 10 -> let messages = list message () in let set = list n () in let clear = list n () in AStore (messages, set, clear, yes ())
  | 11 -> AExpunge (list (pair message dots) ())
  | 12 -> let e = n () in AClaim (e, list (pair (pair message dot) n) ())
  | 13 -> let counter = n () in ABump (counter, n ())
  | 14 -> AEpoch (n ())
  | kind -> failwith (Printf.sprintf "no action %d" kind)

(* A replica and its desk. *)
type node = { mutable state : rows; mutable desk : desk }

let out = Buffer.create 65536
let rec digits i = if i >= 10 then digits (i / 10); Buffer.add_char out (Char.chr (48 + i mod 10))
let put i = Buffer.add_char out ' '; digits i
let put_n x = put (int x)
let put_pair (a, b) = put_n a; put_n b
let put_list one l = put (List.length l); List.iter one l
let line kind fields = Buffer.add_string out kind; fields (); Buffer.add_char out '\n'

let nodes = ref [||]
let slots = ref [||]
let ops = ref [||]
let ops_used = ref 0

let add_op o =
  if !ops_used = Array.length !ops then ops := Array.append !ops (Array.make (max 64 !ops_used) o);
  !ops.(!ops_used) <- o;
  incr ops_used

let slot x = let i = int x in if 1 <= i && i <= Array.length !slots then number !slots.(i - 1) else N0

let view node =
  let s = see node.state in
  List.iter (fun m ->
    line "m" (fun () ->
      put_pair (fst m.seen_id); put_n (snd m.seen_id); put_pair m.seen_in; put_n m.seen_uid;
      put_list put_n m.seen_flags; put_list put_n m.seen_content)) s.seen_messages;
  List.iter (fun (b, (name, use)) -> line "b" (fun () -> put_pair b; put_list put_n name; put_list put_n use)) s.seen_mailboxes;
  line "s" (fun () -> put_list put_n s.seen_subscriptions);
  line "n" (fun () -> List.iter (put_list put_n) s.seen_numbers);
  line "c" (fun () -> put_list (fun (slot, v) -> put_n slot; put_list put_n v) s.seen_claimed);
  List.iter (fun (name, (mark, next)) -> line "d" (fun () -> put_n name; put_n mark; put_n next)) (see_desk node.desk);
  Buffer.add_string out ".\n"

let event text =
  words := String.split_on_char ' ' text;
  let kind = word () in
  let refuse () = Buffer.add_string out ("refused " ^ text ^ "\n") in
  let node () = !nodes.(plain ()) in
  let apply node o = match rows_apply node.state o with Some state -> node.state <- state | None -> refuse () in
  let act node a = match act_after node.state node.desk a with Some d -> node.desk <- d | None -> refuse () in
  (match kind with
  | "history" ->
      slots := Array.of_list (list plain ());
      nodes := Array.map (fun _ -> { state = no_rows; desk = opening }) !slots;
      ops_used := 0
  | "op" ->
      let d = dot () in let time = n () in let deps = list dot () in
      add_op { op_dot = d; op_time = time; op_deps = vector_from deps; op_action = action () }
  | "make" -> let node = node () in let o = !ops.(plain ()) in if not (may_make slot node.state o) then refuse (); apply node o
  | "take" -> let node = node () in apply node !ops.(plain ())
  | "join" ->
      let node = node () in let other = !nodes.(plain ()) in
      node.state <- rows_join node.state other.state
  | "drop" -> let node = node () in node.state <- rows_drop (OfMessage (message ())) node.state
  | "dropbox" -> let node = node () in node.state <- rows_drop (OfBox (dot ())) node.state
  | "show" -> let node = node () in let m = message () in let name = n () in let e = n () in act node (Show (m, name, e, n ()))
  | "hide" -> let node = node () in act node (Hide (message ()))
  | "tell" -> let node = node () in let name = n () in let e = n () in act node (Tell (name, e, n ()))
  | "believe" -> let node = node () in let name = n () in act node (Believe (name, n ()))
  | "list" -> let node = node () in act node (List_ (n ()))
  | "unlist" -> let node = node () in act node (Unlist (n ()))
  | "era" -> let node = node () in act node (NewEra (n ()))
  | "view" -> view (node ())
  | "end" -> Buffer.add_string out "end\n"; print_string (Buffer.contents out); flush stdout; Buffer.clear out
  | other -> failwith ("no event " ^ other));
  if !words <> [] then failwith "a line goes on"

let () =
  (* Nearly all that is made is garbage soon. *)
  Gc.set { (Gc.get ()) with Gc.minor_heap_size = 1 lsl 18 };
  try
    while true do
      let text = input_line stdin in
      try event text with Failure why | Invalid_argument why -> prerr_endline ("oracle: " ^ why ^ ": " ^ text); exit 1
    done
  with End_of_file -> ()
