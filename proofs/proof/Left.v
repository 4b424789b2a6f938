(* A mailbox is dropped after the message that lay in it; and what would happen if a message might have left it in between. *)
From Whimbrel.spec Require Import Collection.
From Whimbrel.proof Require Import Convergence Network Cells Mailbox Checker Table.

Local Open Scope N_scope.

Lemma placed_key s m b : placed_in s m = b → b ≠ INBOX → m ∈ omap (λ rv : register * value, match rv.1 with RPlace m => Some m | _ => None end) (map_to_list (registers s)).
Proof.
  unfold placed_in, reg. intros Hm Hb. destruct (registers s !! RPlace m) as [v|] eqn:Hv; simpl in Hm; [|by destruct Hb].
  apply elem_of_list_omap. exists (RPlace m, v). by rewrite elem_of_map_to_list.
Qed.

Lemma gone_ok s b : exists_ok s b = false → ¬ box_exists s b.
Proof.
  unfold exists_ok. rewrite !orb_false_iff, bool_decide_eq_false, negb_false_iff, bool_decide_eq_true. intros ((Hb & Hc) & Hm) [?|[?|(m & Hl & Hp)]]; [done..|].
  apply not_true_iff_false in Hm. apply Hm, existsb_exists. exists m. split; [by eapply elem_of_list_In, placed_key|]. by rewrite !bool_decide_true.
Qed.

Lemma nothing_in s (P : message_id → bool) b : b ≠ INBOX →
  forallb P (filter (λ m, placed_in s m = b) (omap (λ rv : register * value, match rv.1 with RPlace m => Some m | _ => None end) (map_to_list (registers s)))) = true →
  ∀ m, placed_in s m = b → P m = true.
Proof.
  intros Hb Hall m Hm. rewrite forallb_forall in Hall. apply Hall, elem_of_list_In, elem_of_list_filter. split; [done|]. by eapply placed_key.
Qed.

Lemma touches_none o b : existsb (λ e, bool_decide (about_box e = Some b)) (effects o) = false → ¬ touches_box o b.
Proof.
  intros Hn (e & He & Ha). apply not_true_iff_false in Hn. apply Hn, existsb_exists. exists e. split; [by apply elem_of_list_In|]. by apply bool_decide_eq_true.
Qed.

(* The mailbox is removed with its message, the other node learns of it, and both go on. *)
Definition removed : list op := setup ++ [made 6 delete_spare].

Lemma removed_ok : checked valid_ok (meeting removed going_on elsewhere []) = true.
Proof. vm_compute. reflexivity. Qed.

Theorem mailbox_collection_happens : mailbox_collection_happens_statement.
Proof.
  set (E := checked_execution valid valid_ok valid_ok_valid _ removed_ok).
  set (h := history_a removed going_on elsewhere []). set (k := history_b removed going_on elsewhere []).
  assert (∀ j o, Broadcast o ∈ history _ _ _ _ E j → (j = 0%nat ∨ j = 1%nat) ∧ o ∈ all_ops (meeting removed going_on elsewhere [])) as Hwho.
  { intros j o Ho. split; [|by apply in_all_ops in Ho]. destruct j as [|[|j]]; [by left|by right|by apply elem_of_nil in Ho]. }
  assert (own removed `prefix_of` h) as Hpre by by exists ([Broadcast going_on; Deliver going_on; Deliver elsewhere] ++ own []).
  assert (∀ o, o ∈ deliveries h → o ∈ deliveries (own removed) ∨ o = going_on ∨ o = elsewhere) as Hnew.
  { intros o Ho. unfold h, history_a in Ho. rewrite !deliveries_app, !elem_of_app in Ho. destruct Ho as [Ho|[Ho|Ho]]; [by left| |by apply elem_of_nil in Ho].
    simpl in Ho. rewrite !elem_of_cons, elem_of_nil in Ho. destruct Ho as [->|[->|[]]]; right; [by left|by right]. }
  assert (∀ j o, Broadcast o ∈ history _ _ _ _ E j →
    Deliver o ∈ h ∨ ∃ q, q `prefix_of` history _ _ _ _ E j ∧ (∀ x, Deliver x ∈ own removed → Deliver x ∈ q) ∧ (∀ x, Broadcast x ∈ q → Deliver x ∈ h)) as Hstable.
  { intros j o Ho. right. destruct (Hwho j o Ho) as [[-> | ->] _].
    - exists h. split; [done|]. split; [intros x Hx; unfold h, history_a; apply elem_of_app; by left|].
      intros x Hx%elem_of_broadcasts. revert Hx. apply (all_of (λ x, Deliver x ∈ h)). vm_compute. reflexivity.
    - exists k. split; [done|]. split.
      + intros x Hx%elem_of_deliveries. revert Hx. apply (all_of (λ x, Deliver x ∈ k)). vm_compute. reflexivity.
      + intros x Hx%elem_of_broadcasts. revert Hx. apply (all_of (λ x, Deliver x ∈ h)). vm_compute. reflexivity. }
  assert (∀ j o, Broadcast o ∈ history _ _ _ _ E j → Deliver o ∈ h) as Hdone.
  { intros j o Ho. destruct (Hwho j o Ho) as [_ Hin]. revert Hin. apply (all_of (λ x, Deliver x ∈ h)). vm_compute. reflexivity. }
  exists E, 0%nat, 1%nat, (own removed), h, spare, first, elsewhere. split; [done|]. split_and!.
  - split; [done|..|done|by intros; eapply Hdone].
    + apply (bool_decide_unpack _). vm_compute. reflexivity.
    + intros o [|[-> | ->]]%Hnew; [by left|right..]; intros (e & He%elem_of_list_singleton & Ha); by subst e.
  - vm_compute. reflexivity.
  - split; [done|..|done|by intros; eapply Hdone].
    + apply gone_ok. vm_compute. reflexivity.
    + intros o [|[-> | ->]]%Hnew; [by left|right..]; intros (e & He%elem_of_list_singleton & Ha); by subst e.
  - intros m Hm. apply (bool_decide_eq_true (reg (contents (drop_record first (state_after empty apply h))) (RPlace m) = [])). revert m Hm.
    apply nothing_in; [done|]. vm_compute. reflexivity.
  - intros H. by vm_compute in H.
  - done.
  - right. right. right. right. right. right. by left.
Qed.

(* The first node makes a mailbox with a message. Then the fourth removes it, the second rescues the message, the third moves it away. The first
   learns of the removal, of the move, and of the rescue. The others learn of the removal; the fourth, which learns of the rescue alone, puts another
   message into the mailbox. *)
Definition begun : list op := [made 1 (AOpen 1000 0); made 2 (ACreate None 5 0); made 3 (AAppend spare 0 65 [] 9)].
Definition lone : message_id := (1, 3, 0).
Definition rescue : op := Op (2, 1) 11 {[ 1 := 3 ]} (AStore [lone] [] [] true).
Definition leave : op := Op (3, 1) 12 {[ 1 := 3 ]} (AMove INBOX 0 [(lone, 130, false)]).
Definition remove : op := Op (4, 1) 10 {[ 1 := 3 ]} (ADelete [(spare, {[ (1, 3) ]})] [(lone, {[ (1, 3) ]})]).
Definition add : op := Op (4, 2) 13 {[ 1 := 3; 2 := 1 ]} (AAppend spare 0 131 [] 8).

Definition then_gone : list (event op) := own begun ++ [Deliver remove].
Definition then_left : list (event op) := then_gone ++ [Deliver leave; Deliver rescue].
Definition learn (l : list (event op)) : list (event op) := (Deliver <$> begun) ++ l.
Definition four : list (list (event op)) := [
  then_left ++ [Deliver add]; learn [Broadcast rescue; Deliver rescue; Deliver remove]; learn [Broadcast leave; Deliver leave; Deliver remove];
  learn [Broadcast remove; Deliver remove; Deliver rescue; Broadcast add; Deliver add]].

Definition creates (o : op) : bool := match op_action o with ACreate _ _ _ => true | _ => false end.

Lemma four_ok : checked valid_ok four = true.
Proof. vm_compute. reflexivity. Qed.

Theorem emptied_is_needed : emptied_is_needed_statement.
Proof.
  set (E := checked_execution valid valid_ok valid_ok_valid _ four_ok).
  assert (∀ j o, Broadcast o ∈ history _ _ _ _ E j → (j < 4)%nat ∧ o ∈ all_ops four) as Hwho.
  { intros j o Ho. split; [|by apply in_all_ops in Ho]. destruct j as [|[|[|[|j]]]]; [lia..|]. by apply elem_of_nil in Ho. }
  assert (∀ q : list (event op), bool_decide (Forall (λ x, x ∈ deliveries q) (deliveries then_gone) ∧ Forall (λ x, Deliver x ∈ then_left) (broadcasts q)) = true →
    (∀ x, Deliver x ∈ then_gone → Deliver x ∈ q) ∧ (∀ x, Broadcast x ∈ q → Deliver x ∈ then_left)) as Hq.
  { intros q [H1 H2]%bool_decide_eq_true. rewrite Forall_forall in H1, H2. split.
    - intros x Hx%elem_of_deliveries%H1. by apply elem_of_deliveries.
    - intros x Hx%elem_of_broadcasts. by apply H2. }
  exists E, 0%nat, then_gone, then_left, spare, add. split; [done|]. split; [split|split].
  - by eexists.
  - apply gone_ok. vm_compute. reflexivity.
  - intros o Ho. unfold then_left in Ho. rewrite deliveries_app, elem_of_app in Ho. destruct Ho as [|Ho]; [by left|right]. apply touches_none.
    revert Ho. apply (all_of (λ o, existsb (λ e, bool_decide (about_box e = Some spare)) (effects o) = false)). vm_compute. reflexivity.
  - intros j o Ho. right. destruct (Hwho j o Ho) as [Hj _]. destruct j as [|[|[|[|j]]]]; [..|lia].
    + exists then_left. split; [by eexists|]. apply Hq. vm_compute. reflexivity.
    + exists (learn [Broadcast rescue; Deliver rescue; Deliver remove]). split; [done|]. apply Hq. vm_compute. reflexivity.
    + exists (learn [Broadcast leave; Deliver leave; Deliver remove]). split; [done|]. apply Hq. vm_compute. reflexivity.
    + exists (learn [Broadcast remove; Deliver remove]). split; [by eexists|]. apply Hq. vm_compute. reflexivity.
  - intros j o Ho (derived & name & use & Ha & Hb). destruct (Hwho j o Ho) as [_ Hin]. revert Ha Hb.
    assert (creates o = true → Deliver o ∈ then_left) as Hdone.
    { clear Ho. revert Hin. apply (all_of (λ x, creates x = true → Deliver x ∈ then_left)). vm_compute. reflexivity. }
    intros Ha _. apply Hdone. unfold creates. by rewrite Ha.
  - intros m Hm. assert (false = true); [|done]. revert m Hm. apply (nothing_in _ (λ _, false)); [done|]. vm_compute. reflexivity.
  - intros H. destruct (same_names _ _ H spare) as [Hn _].
    + right. left. intros Hc. by vm_compute in Hc.
    + by vm_compute in Hn.
Qed.
