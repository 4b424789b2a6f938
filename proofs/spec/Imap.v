(* The IMAP-CRDT of Jungnickel, Oldenburg and Loibl (OPODIS 2017, Specifications 1 and 2), as it was published.

   A folder is a pair of sets: tags that say that the folder is there, and messages. As in the authors' own proof there is one kind of tag for both, and
   the fresh tags of CREATE and EXPUNGE are part of the operation. A folder is there while one of its sets is not empty. *)
From stdpp Require Export gmap.
From Whimbrel.spec Require Export Network.

Notation tag := N (only parsing).
Notation folder := N (only parsing).
Notation folders := (gmap N (gset N * gset N)) (only parsing).

Inductive imap_op :=
  | Create (t : tag) (f : folder)
  | Delete (seen : gset tag) (f : folder)
  | Append (m : tag) (f : folder)
  | Expunge (f : folder) (m t : tag)
  | Store (f : folder) (old new : tag).

Definition tags (s : folders) (f : folder) : gset tag := (default (∅, ∅) (s !! f)).1.
Definition files (s : folders) (f : folder) : gset tag := (default (∅, ∅) (s !! f)).2.

(* The part of an operation that every replica executes. *)
Definition imap_apply (s : folders) (msg : tag * imap_op) : folders :=
  match msg.2 with
  | Create t f => <[f := (tags s f ∪ {[t]}, files s f)]> s
  | Delete seen f => <[f := (tags s f ∖ seen, files s f ∖ seen)]> s
  | Append m f => <[f := (tags s f, files s f ∪ {[m]})]> s
  | Expunge f m t => <[f := (tags s f ∪ {[t]}, files s f ∖ {[m]})]> s
  | Store f old new => <[f := (tags s f, files s f ∖ {[old]} ∪ {[new]})]> s
  end.

(* The part at the source: tags are fresh (they are the identity of the message), DELETE takes what is there, EXPUNGE and STORE name what is there. *)
Definition imap_valid (s : folders) (msg : tag * imap_op) : Prop :=
  match msg.2 with
  | Create t _ => t = msg.1
  | Delete seen f => seen = tags s f ∪ files s f
  | Append m _ => m = msg.1
  | Expunge f m t => t = msg.1 ∧ m ∈ files s f
  | Store f old new => new = msg.1 ∧ old ∈ files s f
  end.

Definition imap_execution := execution fst (∅ : folders) imap_apply imap_valid.

Definition imap_sec_statement : Prop :=
  ∀ E : imap_execution, strong_eventual_consistency _ _ _ _ E.
