(* What a desk looks at looks the same. *)
From Whimbrel.spec Require Import Collecting.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Conflicts Join Collection Collected Uids.

Lemma looks_may_do r slot readers (E : uid_execution r slot) s t p a : looks_same s t → may_do_in r slot readers E s p a ↔ may_do_in r slot readers E t p a.
Proof.
  intros H. destruct a as [m name epoch u| | | | | | |]; try done. simpl.
  assert (lives s m → box_name s (placed_in s m) = box_name t (placed_in t m) ∧ uid s m = uid t m) as Hm.
  { intros Hl. destruct (same_place _ _ H m Hl) as [Hin _]. rewrite <- Hin. split; [|by apply (same_uid _ _ H)].
    apply (same_names _ _ H). right. right. by exists m. }
  assert (reg s REpoch = reg t REpoch) as -> by (apply (same_numbers _ _ H); left; do 2 right; by left).
  pose proof (same_messages _ _ H m) as Hl. split; intros (Hlives & Hn & Hu & Hrest).
  - destruct (Hm Hlives) as [<- <-]. split; [by apply Hl|done].
  - destruct (Hm (proj2 Hl Hlives)) as [-> ->]. split; [by apply Hl|done].
Qed.

(* A node need not forget anything. *)
Lemma nothing_collected (M : mailbox_execution) i p : p `prefix_of` history _ _ _ _ M i → collects M i p (state_after empty apply p) [].
Proof.
  induction p as [|e p IH] using rev_ind; intros Hp; [constructor|].
  specialize (IH ltac:(etrans; [by eexists|exact Hp])). destruct e as [o|o].
  - replace (state_after empty apply (p ++ [Broadcast o])) with (state_after empty apply p); [by apply collects_broadcast|].
    unfold state_after. by rewrite deliveries_app, app_nil_r.
  - rewrite state_deliver. by apply collects_deliver.
Qed.

Theorem uids_where_collected : collecting_statement.
Proof.
  intros r slot readers E M Hsame. split.
  - intros i p d t. split.
    + induction 1 as [|p k d t _ IH Hp|p s floor d t a d' _ IH Hc Hmay Ha].
      * constructor.
      * clear -IH Hp. revert Hp. induction k as [|e k IHk] using rev_ind; [by rewrite app_nil_r|]. intros Hp. rewrite app_assoc in Hp |- *.
        apply serves_event; [|done]. apply IHk. etrans; [|exact Hp]. by eexists.
      * eapply serves_act; [exact IH| |exact Ha]. destruct (collection_is_invisible M i p s floor Hc) as [Hlooks _]. by apply (looks_may_do _ _ _ _ _ _ _ _ Hlooks).
    + induction 1 as [|p d t e _ IH Hp|p d t a d' Hs IH Hmay Ha].
      * constructor.
      * by apply from_events.
      * eapply (from_act _ _ _ _ _ _ []); [exact IH| |exact Hmay|exact Ha]. apply nothing_collected. rewrite Hsame. by eapply (serves_prefix E).
  - intros i p s floor o Hc. destruct (collection_is_invisible M i p s floor Hc) as [Hlooks _].
    assert (∀ epoch, counter (contents s) epoch = counter (contents (state_after empty apply p)) epoch) as Hcount.
    { intros epoch. unfold counter. rewrite (same_numbers _ _ Hlooks (RCounter epoch)); [done|]. right. left. by exists epoch. }
    assert (reg (contents s) REpoch = reg (contents (state_after empty apply p)) REpoch) as He.
    { apply (same_numbers _ _ Hlooks). left. do 2 right. by left. }
    split; [|unfold not_ahead; by rewrite He].
    split; intros [H1 H2 H3]; split; try done; intros m placed epoch u Hr Hin; [rewrite <- Hcount|rewrite Hcount]; by eapply H2.
Qed.
