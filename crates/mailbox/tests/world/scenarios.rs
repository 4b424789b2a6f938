//! Each row of the conflict table, and each rule of the UIDs, as a short history of two nodes.
//!
//! size: one list of short histories, each a few lines on the same helpers.

use super::*;

pub type Scenario = (&'static str, fn() -> Outcome);

pub const SCENARIOS: &[Scenario] = &[
    ("append_and_delete", append_and_delete),
    ("copy_and_delete", copy_and_delete),
    ("move_and_delete", move_and_delete),
    ("delivery_and_delete", delivery_and_delete),
    ("rename_and_delete", rename_and_delete),
    ("rename_and_create", rename_and_create),
    ("create_and_delete", create_and_delete),
    ("default_folder_and_delete", default_folder_and_delete),
    ("flag_set_and_unset", flag_set_and_unset),
    ("deleted_set_and_unset", deleted_set_and_unset),
    ("rescue_and_expunge", rescue_and_expunge),
    ("move_and_expunge", move_and_expunge),
    ("store_and_expunge", store_and_expunge),
    ("move_and_move", move_and_move),
    ("copy_and_expunge", copy_and_expunge),
    ("rename_and_rename", rename_and_rename),
    ("subscribe_and_unsubscribe", subscribe_and_unsubscribe),
    ("delivered_by_two_nodes", delivered_by_two_nodes),
    ("delivery_after_expunge", delivery_after_expunge),
    ("delivered_into_two_mailboxes", delivered_into_two_mailboxes),
    ("saved_when_placed", saved_when_placed),
    ("rename_inbox", rename_inbox),
    ("rename_carries_children", rename_carries_children),
    ("rename_below_a_deleted_name", rename_below_a_deleted_name),
    ("late_is_claimed_again", late_is_claimed_again),
    ("superseded_uid_is_resolved", superseded_uid_is_resolved),
    ("visible_when_peers_are_heard", visible_when_peers_are_heard),
    ("rename_onto_announced_name", rename_onto_announced_name),
    (
        "rename_writes_no_rows_of_messages",
        rename_writes_no_rows_of_messages,
    ),
    (
        "renamed_again_before_it_is_claimed",
        renamed_again_before_it_is_claimed,
    ),
    (
        "renamed_while_a_claim_is_late",
        renamed_while_a_claim_is_late,
    ),
    (
        "copy_writes_no_row_of_its_source",
        copy_writes_no_row_of_its_source,
    ),
    ("mark_outlives_its_name", mark_outlives_its_name),
    (
        "takeover_claims_what_was_unknown",
        takeover_claims_what_was_unknown,
    ),
    (
        "implausible_uid_is_not_believed",
        implausible_uid_is_not_believed,
    ),
    ("epoch_voids_claims", epoch_voids_claims),
    (
        "replacing_store_spares_what_was_not_seen",
        replacing_store_spares_what_was_not_seen,
    ),
    ("missing_record_is_named", missing_record_is_named),
    (
        "content_goes_with_the_last_copy",
        content_goes_with_the_last_copy,
    ),
    (
        "blocks_by_rank_do_not_interleave",
        blocks_by_rank_do_not_interleave,
    ),
    ("vanished_history_is_bounded", vanished_history_is_bounded),
    ("parents_are_created", parents_are_created),
    ("refusals", refusals),
    ("join_restarts_hidden_time", join_restarts_hidden_time),
    (
        "leaving_restarts_hidden_time_of_mailbox",
        leaving_restarts_hidden_time_of_mailbox,
    ),
];

macro_rules! ensure {
    ($condition:expr) => {
        if !$condition {
            return Err(format!("{} does not hold", stringify!($condition)));
        }
    };
}

macro_rules! ensure_eq {
    ($left:expr, $right:expr) => {
        let (left, right) = (&$left, &$right);
        if left != right {
            return Err(format!("{} is {left:?}, not {right:?}", stringify!($left)));
        }
    };
}

fn n(text: &str) -> MailboxName {
    MailboxName::new(text).expect("valid")
}

fn pair() -> World {
    World::new(Setting {
        nodes: 2,
        readers: 3,
        skew: vec![0, 0],
        step_micros: 1_000,
        waiting: false,
        serial: false,
        epochs: false,
    })
}

impl World {
    fn plan(
        &mut self,
        i: usize,
        plan: impl FnOnce(&Replica, &At) -> Result<Vec<Op>, PlanError>,
    ) -> Outcome {
        self.now += self.setting.step_micros;
        let at = self.at(i);
        let ops = plan(&self.nodes[i].replica, &at).map_err(|e| e.to_string())?;
        self.local(i, ops).map(|_| ())
    }

    fn append(&mut self, i: usize, name: &str) -> Result<u32, String> {
        let mut uid = 0;
        self.plan(i, |r, at| {
            let plan = r.plan_append(
                at,
                &n(name),
                vec![new_message(at.now_micros, Flags::none())],
            )?;
            uid = plan.outcome[0];
            Ok(plan.ops)
        })?;
        Ok(uid)
    }

    fn copy(&mut self, i: usize, from: &str, uid: u32, to: &str) -> Outcome {
        self.plan(i, |r, at| {
            Ok(r.plan_copy(at, &n(from), &[uid], &n(to))?.ops)
        })
    }

    fn move_to(&mut self, i: usize, from: &str, uid: u32, to: &str) -> Outcome {
        self.plan(i, |r, at| {
            Ok(r.plan_move(at, &n(from), &[uid], &n(to))?.ops)
        })
    }

    fn store(&mut self, i: usize, name: &str, uid: u32, mode: StoreMode, bits: u16) -> Outcome {
        self.plan(i, |r, _| {
            Ok(
                r.plan_store(&n(name), &[uid], mode, &flags(bits), &|_| None)?
                    .ops,
            )
        })
    }

    fn expunge(&mut self, i: usize, name: &str, uid: u32) -> Outcome {
        self.plan(i, |r, _| Ok(r.plan_expunge(&n(name), &[uid])?.ops))
    }

    fn create(&mut self, i: usize, name: &str) -> Outcome {
        self.plan(i, |r, at| Ok(r.plan_create(at, &n(name), None)?.ops))
    }

    fn delete(&mut self, i: usize, name: &str) -> Outcome {
        self.plan(i, |r, _| Ok(r.plan_delete(&n(name))?.ops))
    }

    fn rename(&mut self, i: usize, from: &str, to: &str) -> Outcome {
        self.plan(i, |r, at| Ok(r.plan_rename(at, &n(from), &n(to))?.ops))
    }

    /// Node `to` applies the newest batch of `from`, and claims nothing again yet.
    fn take_last(&mut self, to: usize, from: usize) -> Outcome {
        let log = &self.logs[&self.nodes[from].origin];
        let bytes = log.last().ok_or("nothing was written")?.clone();
        self.take(to, &bytes).map(|_| ())
    }

    fn deliver(&mut self, i: usize, entry: u8, to: &str) -> Result<Option<u32>, String> {
        let mut uid = None;
        self.plan(i, |r, at| {
            let message = new_message(5, Flags::none());
            let plan = r.plan_deliver(at, EntryId([entry; 16]), &n("INBOX"), &n(to), message)?;
            uid = plan.outcome.uid;
            Ok(plan.ops)
        })?;
        Ok(uid)
    }

    /// Both get all, with no claims made again; both must then show the same, and what the history says.
    fn meet(&mut self) -> Outcome {
        for _ in 0..2 {
            self.pull(0, 1, usize::MAX)?;
            self.pull(1, 0, usize::MAX)?;
        }
        self.check_oracle(0)?;
        self.check_oracle(1)?;
        ensure_eq!(
            self.nodes[0].replica.replicated_rows(true),
            self.nodes[1].replica.replicated_rows(true)
        );
        Ok(())
    }

    fn count(&self, i: usize, name: &str) -> Option<u32> {
        self.nodes[i]
            .replica
            .status(&n(name))
            .map(|status| status.messages)
    }

    fn only(&self, i: usize, name: &str) -> Result<Row, String> {
        let rows = self.nodes[i].replica.rows(&n(name), 1..=u32::MAX);
        if rows.len() == 1 {
            Ok(rows[0].clone())
        } else {
            Err(format!("{} messages in {name}", rows.len()))
        }
    }
}

fn append_and_delete() -> Outcome {
    let mut w = pair();
    w.append(0, "a")?;
    w.meet()?;
    w.delete(0, "a")?;
    w.append(1, "a")?;
    w.meet()?;
    ensure_eq!(w.count(0, "a"), Some(1));
    Ok(())
}

fn copy_and_delete() -> Outcome {
    let mut w = pair();
    w.append(0, "a")?;
    let uid = w.append(0, "INBOX")?;
    w.meet()?;
    w.delete(0, "a")?;
    w.copy(1, "INBOX", uid, "a")?;
    w.meet()?;
    ensure_eq!(w.count(1, "a"), Some(1));
    ensure_eq!(w.count(0, "INBOX"), Some(1));
    Ok(())
}

fn move_and_delete() -> Outcome {
    let mut w = pair();
    w.append(0, "a")?;
    let uid = w.append(0, "INBOX")?;
    w.meet()?;
    w.delete(0, "a")?;
    w.move_to(1, "INBOX", uid, "a")?;
    w.meet()?;
    ensure_eq!(w.count(0, "a"), Some(1));
    ensure_eq!(w.count(0, "INBOX"), Some(0));
    Ok(())
}

fn delivery_and_delete() -> Outcome {
    let mut w = pair();
    w.append(0, "a")?;
    w.meet()?;
    w.delete(0, "a")?;
    w.deliver(1, 1, "a")?;
    w.meet()?;
    ensure_eq!(w.count(0, "a"), Some(1));
    Ok(())
}

fn rename_and_delete() -> Outcome {
    let mut w = pair();
    w.append(0, "a")?;
    w.meet()?;
    w.delete(0, "a")?;
    w.append(1, "a")?;
    w.rename(1, "a", "e")?;
    w.meet()?;
    ensure_eq!(w.count(0, "a"), None);
    // The deleter saw the first message, not the second.
    ensure_eq!(w.count(0, "e"), Some(1));
    Ok(())
}

fn rename_and_create() -> Outcome {
    let mut w = pair();
    w.append(0, "a")?;
    w.meet()?;
    w.rename(0, "a", "e")?;
    w.create(1, "e")?;
    w.append(1, "e")?;
    w.meet()?;
    ensure_eq!(w.count(0, "e"), Some(2));
    ensure_eq!(
        w.nodes[0]
            .replica
            .names()
            .iter()
            .filter(|info| info.name == n("e"))
            .count(),
        1
    );
    // A member that is deleted with the union is gone with it.
    w.delete(0, "e")?;
    w.meet()?;
    ensure_eq!(w.count(1, "e"), None);
    Ok(())
}

fn create_and_delete() -> Outcome {
    let mut w = pair();
    w.append(0, "a")?;
    w.meet()?;
    w.delete(0, "a")?;
    w.delete(1, "a")?;
    w.create(1, "a")?;
    w.meet()?;
    ensure_eq!(w.count(0, "a"), Some(0));
    Ok(())
}

/// Two nodes make one default folder; a DELETE that saw only one of the creations leaves it.
fn default_folder_and_delete() -> Outcome {
    let mut w = pair();
    let create = || {
        let id = NewId::Derived(MailboxId::default_folder("Sent"));
        vec![Op::CreateMailbox(CreateMailbox {
            id,
            name: n("e"),
            special_use: Some(SpecialUse::Sent),
        })]
    };
    w.local(0, create())?;
    w.delete(0, "e")?;
    w.local(1, create())?;
    w.meet()?;
    ensure_eq!(w.count(0, "e"), Some(0));
    ensure_eq!(w.nodes[0].replica.names().len(), 3);
    Ok(())
}

fn flag_set_and_unset() -> Outcome {
    for bits in [1, 8] {
        let mut w = pair();
        let uid = w.append(0, "INBOX")?;
        w.store(0, "INBOX", uid, StoreMode::Add, bits)?;
        w.meet()?;
        w.store(0, "INBOX", uid, StoreMode::Remove, bits)?;
        w.store(1, "INBOX", uid, StoreMode::Add, bits)?;
        w.meet()?;
        ensure_eq!(super::bits(&w.only(0, "INBOX")?.flags), bits as u8);
        w.store(0, "INBOX", uid, StoreMode::Remove, bits)?;
        w.meet()?;
        ensure!(w.only(1, "INBOX")?.flags.is_empty());
    }
    Ok(())
}

fn deleted_set_and_unset() -> Outcome {
    let mut w = pair();
    let uid = w.append(0, "INBOX")?;
    w.store(0, "INBOX", uid, StoreMode::Add, 4)?;
    w.meet()?;
    w.store(0, "INBOX", uid, StoreMode::Remove, 4)?;
    w.store(1, "INBOX", uid, StoreMode::Add, 4)?;
    w.meet()?;
    ensure!(w.only(0, "INBOX")?.flags.is_empty());
    w.store(0, "INBOX", uid, StoreMode::Add, 4)?;
    w.meet()?;
    ensure!(w.only(1, "INBOX")?.flags.contains(&Flag::Deleted));
    Ok(())
}

fn rescue_and_expunge() -> Outcome {
    for delivered in [false, true] {
        let mut w = pair();
        let uid = if delivered {
            w.deliver(0, 1, "INBOX")?.unwrap_or(0)
        } else {
            w.append(0, "INBOX")?
        };
        w.store(0, "INBOX", uid, StoreMode::Add, 4)?;
        w.meet()?;
        w.expunge(0, "INBOX", uid)?;
        w.store(1, "INBOX", uid, StoreMode::Remove, 4)?;
        w.meet()?;
        ensure!(w.only(0, "INBOX")?.flags.is_empty());
    }
    Ok(())
}

fn move_and_expunge() -> Outcome {
    let mut w = pair();
    let uid = w.append(0, "INBOX")?;
    w.meet()?;
    w.store(0, "INBOX", uid, StoreMode::Add, 4)?;
    w.expunge(0, "INBOX", uid)?;
    w.move_to(1, "INBOX", uid, "a")?;
    w.meet()?;
    ensure!(w.only(0, "a")?.flags.is_empty());
    ensure_eq!(w.count(0, "INBOX"), Some(0));
    Ok(())
}

fn store_and_expunge() -> Outcome {
    for bits in [1, 4, 8] {
        let mut w = pair();
        let uid = w.append(0, "INBOX")?;
        w.meet()?;
        w.expunge(0, "INBOX", uid)?;
        w.store(1, "INBOX", uid, StoreMode::Add, bits)?;
        w.meet()?;
        ensure_eq!(w.count(1, "INBOX"), Some(0));
    }
    Ok(())
}

fn move_and_move() -> Outcome {
    let mut w = pair();
    w.create(0, "e")?;
    let uid = w.append(0, "INBOX")?;
    w.meet()?;
    w.move_to(0, "INBOX", uid, "a")?;
    w.move_to(1, "INBOX", uid, "e")?;
    w.meet()?;
    let counts = ["INBOX", "a", "e"].map(|name| w.count(0, name));
    ensure_eq!(counts, [Some(0), Some(0), Some(1)]);
    Ok(())
}

fn copy_and_expunge() -> Outcome {
    let mut w = pair();
    let uid = w.append(0, "INBOX")?;
    w.meet()?;
    w.expunge(0, "INBOX", uid)?;
    w.copy(1, "INBOX", uid, "a")?;
    w.meet()?;
    ensure_eq!(w.count(0, "a"), Some(1));
    ensure_eq!(w.count(0, "INBOX"), Some(0));
    Ok(())
}

fn rename_and_rename() -> Outcome {
    let mut w = pair();
    w.append(0, "a")?;
    w.meet()?;
    w.rename(1, "a", "b")?;
    w.rename(0, "a", "e")?;
    w.meet()?;
    ensure_eq!(
        (w.count(0, "a"), w.count(0, "b"), w.count(0, "e")),
        (None, None, Some(1))
    );
    Ok(())
}

fn subscribe_and_unsubscribe() -> Outcome {
    let mut w = pair();
    w.plan(0, |r, _| Ok(r.plan_subscribe(&n("x"))?.ops))?;
    w.meet()?;
    w.plan(0, |r, _| Ok(r.plan_unsubscribe(&n("x")).ops))?;
    // It is subscribed there, as far as is known.
    w.plan(1, |r, _| Ok(r.plan_subscribe(&n("x"))?.ops))?;
    w.meet()?;
    let info = w.nodes[0]
        .replica
        .names()
        .into_iter()
        .find(|info| info.name == n("x"));
    ensure!(info.is_some_and(|info| info.subscribed && info.id.is_none()));
    w.plan(1, |r, _| Ok(r.plan_unsubscribe(&n("x")).ops))?;
    w.meet()?;
    ensure!(
        !w.nodes[0]
            .replica
            .names()
            .iter()
            .any(|info| info.name == n("x"))
    );
    Ok(())
}

fn delivered_by_two_nodes() -> Outcome {
    let mut w = pair();
    w.deliver(0, 1, "INBOX")?;
    w.deliver(1, 1, "INBOX")?;
    w.meet()?;
    let row = w.only(0, "INBOX")?;
    // A MOVE by one who saw one delivery is not undone by the other.
    w.deliver(0, 2, "INBOX")?;
    let uid = w.nodes[0]
        .replica
        .uids(&n("INBOX"))
        .into_iter()
        .find(|uid| *uid != row.uid);
    w.move_to(0, "INBOX", uid.unwrap_or(0), "a")?;
    w.deliver(1, 2, "INBOX")?;
    w.meet()?;
    ensure_eq!((w.count(0, "INBOX"), w.count(0, "a")), (Some(1), Some(1)));
    Ok(())
}

fn delivery_after_expunge() -> Outcome {
    let mut w = pair();
    let uid = w.deliver(0, 1, "INBOX")?.ok_or("delivered")?;
    w.expunge(0, "INBOX", uid)?;
    w.deliver(1, 1, "INBOX")?;
    w.meet()?;
    ensure_eq!(w.count(0, "INBOX"), Some(0));
    ensure_eq!(w.deliver(0, 1, "INBOX")?, None);
    // Stable, but not finished: remembered.
    let stable = w.nodes[0].applied.clone();
    let mut collect = |done: bool| {
        w.nodes[0]
            .replica
            .collect(&stable, &|_, _| done, Tombstones::Left, usize::MAX)
    };
    ensure_eq!(collect(false).messages.len(), 0);
    ensure_eq!(collect(true).messages.len(), 1);
    Ok(())
}

fn delivered_into_two_mailboxes() -> Outcome {
    let mut w = pair();
    w.append(0, "a")?;
    w.deliver(0, 1, "a")?;
    w.deliver(1, 1, "INBOX")?;
    w.meet()?;
    ensure_eq!(
        w.count(0, "a").unwrap_or(0) + w.count(0, "INBOX").unwrap_or(0),
        2
    );
    Ok(())
}

fn rename_inbox() -> Outcome {
    let mut w = pair();
    w.append(0, "INBOX")?;
    w.append(0, "INBOX")?;
    w.rename(0, "INBOX", "old/mail")?;
    w.meet()?;
    ensure_eq!(
        (
            w.count(1, "INBOX"),
            w.count(1, "old/mail"),
            w.count(1, "old")
        ),
        (Some(0), Some(2), Some(0))
    );
    Ok(())
}

fn rename_carries_children() -> Outcome {
    let mut w = pair();
    w.create(0, "a/c/d")?;
    w.create(0, "a-b")?;
    w.append(0, "a/c/d")?;
    w.rename(0, "a", "e/f")?;
    w.meet()?;
    let names: Vec<String> = w.nodes[1]
        .replica
        .names()
        .iter()
        .map(|info| info.name.to_string())
        .collect();
    ensure_eq!(names, ["INBOX", "a-b", "e", "e/f", "e/f/c", "e/f/c/d"]);
    ensure_eq!(w.count(1, "e/f/c/d"), Some(1));
    Ok(())
}

fn rename_below_a_deleted_name() -> Outcome {
    let mut w = pair();
    w.create(0, "a/c/d")?;
    w.append(0, "a/c")?;
    w.meet()?;
    w.delete(0, "a")?;
    // Another child is made elsewhere meanwhile: it stays.
    w.create(1, "a/x")?;
    w.rename(0, "a", "e/f")?;
    w.meet()?;
    let names: Vec<String> = w.nodes[1]
        .replica
        .names()
        .iter()
        .map(|info| info.name.to_string())
        .collect();
    ensure_eq!(names, ["INBOX", "a/x", "e", "e/f/c", "e/f/c/d"]);
    ensure_eq!(w.count(1, "e/f/c"), Some(1));
    ensure!(w.rename(0, "nowhere", "g").is_err());
    Ok(())
}

fn late_is_claimed_again() -> Outcome {
    let mut w = pair();
    w.setting.skew = vec![0, 1_000_000_000];
    let low = w.append(0, "INBOX")?;
    let high = w.append(1, "INBOX")?;
    ensure!(low < high);
    w.look(1, false)?;
    w.meet()?;
    w.look(1, false)?;
    let uids = w.nodes[1].replica.uids(&n("INBOX"));
    ensure!(uids.len() == 2 && uids[0] == high && uids[1] > high);
    ensure_eq!(w.nodes[0].replica.resolve(&n("INBOX"), low), Some(uids[1]));
    Ok(())
}

fn superseded_uid_is_resolved() -> Outcome {
    let mut w = pair();
    w.setting.skew = vec![0, 1_000_000_000];
    let low = w.append(0, "INBOX")?;
    w.look(0, false)?;
    w.append(1, "INBOX")?;
    w.look(1, false)?;
    w.meet()?;
    // A client that still knows the old UID acts on the message and gets the present one.
    let plan =
        w.nodes[0]
            .replica
            .plan_store(&n("INBOX"), &[low], StoreMode::Add, &flags(1), &|_| None);
    let stored = plan.map_err(|e| e.to_string())?.outcome;
    ensure_eq!((stored.missing.len(), stored.uids.len()), (0, 1));
    ensure!(stored.uids[0] > low);
    // COPYUID names it by the UID that the client gave: it knows no other (RFC 4315, 3).
    let at = w.at(0);
    let plan = w.nodes[0]
        .replica
        .plan_copy(&at, &n("INBOX"), &[low, low], &n("INBOX"));
    let copied = plan.map_err(|e| e.to_string())?.outcome;
    ensure_eq!((copied.uids.len(), copied.uids[0].0), (1, low));
    // The old one has vanished when the new one came.
    let vanished = w.nodes[0]
        .replica
        .vanished_since(&n("INBOX"), w.nodes[0].client.names["INBOX"].modseq);
    ensure_eq!(vanished, Some(vec![low]));
    Ok(())
}

fn visible_when_peers_are_heard() -> Outcome {
    let mut w = pair();
    w.setting.waiting = true;
    let uid = w.append(0, "INBOX")?;
    ensure_eq!(w.count(0, "INBOX"), Some(0));
    ensure!(!w.nodes[0].replica.is_clean());
    // What the peer says of itself has reached the counter: nothing lower can come.
    let peers = |mono_micros, heard| {
        let peer = Peer {
            slot: 4,
            heard,
            timeout_micros: 1_000_000,
        };
        Peers::new(mono_micros, vec![peer])
    };
    let now = w.now;
    w.nodes[0].replica.release(now, &peers(now, uid / 64 - 1));
    ensure_eq!(w.count(0, "INBOX"), Some(0));
    w.nodes[0].replica.release(now, &peers(now, uid / 64));
    ensure_eq!(w.count(0, "INBOX"), Some(1));
    w.append(0, "INBOX")?;
    // Or the time is over, whatever the hybrid clock says.
    w.nodes[0].replica.release(now + 4_000_000, &peers(now, 0));
    ensure_eq!(w.count(0, "INBOX"), Some(1));
    w.nodes[0].replica.release(now, &peers(now + 4_000_000, 0));
    ensure_eq!(w.count(0, "INBOX"), Some(2));
    Ok(())
}

fn rename_onto_announced_name() -> Outcome {
    let mut w = pair();
    w.create(0, "b")?;
    let low = w.append(0, "b")?;
    let high = w.append(0, "a")?;
    w.look(0, false)?;
    w.delete(0, "a")?;
    w.rename(0, "b", "a")?;
    let uids = w.nodes[0].replica.uids(&n("a"));
    // To the client that knew `a` a UIDNEXT above the old UID was announced.
    ensure!(uids.len() == 1 && uids[0] > high && low < high);
    w.look(0, false)?;
    // Onto a name that was never announced nothing changes.
    w.rename(0, "a", "e")?;
    ensure_eq!(w.nodes[0].replica.uids(&n("e")), uids);
    w.look(0, false)?;
    w.meet()
}

/// Node 1 has announced a UIDNEXT of `e` that is above three messages of `b`, which node 0 renames to `e`.
fn renamed_below_a_mark() -> Result<World, String> {
    let mut w = pair();
    w.create(0, "b")?;
    for _ in 0..3 {
        w.append(0, "b")?;
    }
    w.sync(0, None)?;
    for name in ["e", "f"] {
        w.create(1, name)?;
        w.append(1, name)?;
    }
    w.look(1, false)?;
    w.rename(0, "b", "e")?;
    Ok(w)
}

/// However many messages a RENAME hides, it is a small write where it was not made; what it hid is hidden after a start.
fn rename_writes_no_rows_of_messages() -> Outcome {
    let mut w = renamed_below_a_mark()?;
    let rows = |w: &World| {
        let mut rows = w.nodes[1].rows.clone();
        rows.retain(|key, _| matches!(key, RowKey::Message(_)));
        rows
    };
    let before = rows(&w);
    w.take_last(1, 0)?;
    ensure!(rows(&w) == before);
    ensure_eq!(w.count(1, "e"), Some(1));
    let mark = w.nodes[1].replica.status(&n("e")).map(|s| s.uidnext);
    w.crash(1, 0)?;
    let uids = w.nodes[1].replica.uids(&n("e"));
    ensure!(uids.len() == 4 && uids[1..].iter().all(|uid| Some(*uid) >= mark));
    w.heal()
}

/// What rows do not say must not be forgotten by a second RENAME.
fn renamed_again_before_it_is_claimed() -> Outcome {
    let mut w = renamed_below_a_mark()?;
    w.take_last(1, 0)?;
    // Below another mark: hidden as before.
    w.rename(0, "e", "f")?;
    w.take_last(1, 0)?;
    ensure_eq!((w.count(1, "f"), w.count(1, "e")), (Some(1), Some(1)));
    let node = &w.nodes[1];
    let rows = node.rows.clone().into_iter();
    let rows = rows.filter(|(key, _)| !matches!(key, RowKey::Content(_)));
    let loaded = Replica::load(AccountId([9; 16]), node.slot, rows, &node.applied);
    let visible = loaded.map_err(|e| e.to_string())?.uids(&n("f"));
    ensure_eq!(visible.len(), 1);
    // Onto a name that was not announced: visible as before.
    w.rename(0, "f", "a/c")?;
    w.take_last(1, 0)?;
    ensure_eq!((w.count(1, "a/c"), w.count(1, "e")), (Some(3), Some(1)));
    w.crash(1, 0)?;
    ensure_eq!((w.count(1, "a/c"), w.count(1, "e")), (Some(3), Some(1)));
    // And back again, below the mark.
    w.rename(0, "a/c", "e")?;
    w.take_last(1, 0)?;
    ensure_eq!((w.count(1, "a/c"), w.count(1, "e")), (None, Some(1)));
    w.crash(1, 0)?;
    ensure_eq!(w.count(1, "e"), Some(4));
    w.heal()
}

/// Under the new name the former UID of a message whose claim is late was not announced: it is not visible under it.
fn renamed_while_a_claim_is_late() -> Outcome {
    let mut w = World::new(Setting {
        nodes: 3,
        readers: 7,
        skew: vec![0, 0, 1_000_000],
        ..pair().setting
    });
    w.create(0, "x")?;
    let uid = w.append(0, "x")?;
    w.sync(0, None)?;
    // Both put it back where it is: node 1 under the greater UID, node 2 later.
    w.move_to(2, "x", uid, "x")?;
    w.create(1, "e")?;
    w.append(1, "e")?;
    let announced = w.append(1, "e")?;
    w.move_to(1, "x", uid, "x")?;
    w.look(1, false)?;
    let former = w.nodes[1].replica.uids(&n("x"));
    ensure!(former[0] > announced);
    w.take_last(1, 2)?;
    ensure_eq!(w.nodes[1].replica.uids(&n("x")), former);
    w.rename(0, "x", "e")?;
    w.take_last(1, 0)?;
    ensure_eq!(w.count(1, "e"), Some(2));
    w.crash(1, 0)?;
    ensure_eq!(w.count(1, "e"), Some(3));
    w.heal()
}

/// Where it was not made a COPY does not grow with the keywords that its sources have there.
fn copy_writes_no_row_of_its_source() -> Outcome {
    let mut w = pair();
    let uid = w.append(0, "INBOX")?;
    w.sync(0, None)?;
    let source = w.only(1, "INBOX")?.message;
    let row = |w: &World| w.nodes[1].rows[&RowKey::Message(source)].clone();
    w.store(1, "INBOX", uid, StoreMode::Add, 8)?;
    w.copy(0, "INBOX", uid, "a")?;
    let node = &mut w.nodes[1];
    node.rows.insert(RowKey::Message(source), vec![]);
    w.pull(1, 0, usize::MAX)?;
    ensure_eq!(row(&w), Vec::<u8>::new());
    ensure_eq!(w.count(1, "a"), Some(1));
    Ok(())
}

fn mark_outlives_its_name() -> Outcome {
    let mut w = pair();
    let uid = w.append(0, "a")?;
    w.look(0, false)?;
    w.delete(0, "a")?;
    w.create(0, "a")?;
    let status = w.nodes[0].replica.status(&n("a")).ok_or("gone")?;
    ensure_eq!((status.uidnext, status.messages), (uid + 1, 0));
    w.look(0, false)?;
    w.crash(0, 0)?;
    ensure_eq!(
        w.nodes[0].replica.status(&n("a")).map(|s| s.uidnext),
        Some(uid + 1)
    );
    Ok(())
}

fn takeover_claims_what_was_unknown() -> Outcome {
    let mut w = pair();
    w.setting.skew = vec![0, 1_000_000_000];
    w.append(1, "INBOX")?;
    w.home = 1;
    w.look_wandering()?;
    let next = w.wanderer.names["INBOX"].uidnext;
    let low = w.append(0, "INBOX")?;
    ensure!(low < next);
    w.takeover(0)?;
    w.home = 0;
    ensure!(w.nodes[0].replica.uids(&n("INBOX"))[0] >= next);
    ensure!(
        w.nodes[0]
            .replica
            .status(&n("INBOX"))
            .is_some_and(|s| s.uidnext > next)
    );
    w.look_wandering()?;
    ensure_eq!(w.wanderer.overlooked.len(), 0);
    // What comes later lies above what the client named, too.
    ensure!(w.append(0, "INBOX")? > next);
    w.meet()
}

fn implausible_uid_is_not_believed() -> Outcome {
    let mut w = pair();
    w.append(0, "INBOX")?;
    let before = w.nodes[0].replica.counter();
    let takeover = Takeover {
        named: vec![(n("INBOX"), u32::MAX)],
        announced: vec![],
    };
    let at = w.at(0);
    ensure!(
        w.nodes[0]
            .replica
            .plan_takeover(&at, &takeover)
            .ops
            .is_empty()
    );
    w.nodes[0].replica.raise_marks(&at, &takeover);
    ensure_eq!(w.nodes[0].replica.counter(), before);
    ensure!(
        w.nodes[0]
            .replica
            .status(&n("INBOX"))
            .is_some_and(|s| s.uidnext < 1 << 31)
    );
    Ok(())
}

fn epoch_voids_claims() -> Outcome {
    let mut w = pair();
    w.append(0, "INBOX")?;
    w.append(0, "INBOX")?;
    w.look(0, false)?;
    w.meet()?;
    let before = w.nodes[0].replica.uidvalidity();
    // Meanwhile elsewhere, under the old one.
    w.append(1, "INBOX")?;
    w.plan(0, |r, at| Ok(r.plan_epoch(at, 0).ops))?;
    w.epochs = true;
    ensure_eq!(w.count(0, "INBOX"), Some(0));
    w.claim_late(0)?;
    ensure_eq!(w.count(0, "INBOX"), Some(2));
    w.look(0, false)?;
    w.heal()?;
    for i in 0..2 {
        ensure_eq!(w.count(i, "INBOX"), Some(3));
        ensure!(w.nodes[i].replica.uidvalidity() > before);
    }
    Ok(())
}

fn replacing_store_spares_what_was_not_seen() -> Outcome {
    let mut w = pair();
    let uid = w.append(0, "INBOX")?;
    w.store(0, "INBOX", uid, StoreMode::Add, 2)?;
    // The session saw no flags: it sets \Seen, and does not unset what it has not seen.
    w.plan(0, |r, _| {
        let seen = |_| Some(Flags::none());
        Ok(
            r.plan_store(&n("INBOX"), &[uid], StoreMode::Replace, &flags(1), &seen)?
                .ops,
        )
    })?;
    ensure_eq!(bits(&w.only(0, "INBOX")?.flags), 3);
    w.store(0, "INBOX", uid, StoreMode::Replace, 1)?;
    ensure_eq!(bits(&w.only(0, "INBOX")?.flags), 1);
    Ok(())
}

fn missing_record_is_named() -> Outcome {
    let mut w = pair();
    let message = MessageId([3; 16]);
    let error = w
        .local(
            0,
            vec![Op::Expunge {
                messages: vec![Removal {
                    message,
                    dots: vec![],
                }],
            }],
        )
        .err();
    ensure!(error.is_some_and(|e| e.contains(&message.to_string())));
    let mut w = pair();
    let mailbox = MailboxId([4; 16]);
    let ops = vec![Op::RenameMailbox {
        mailboxes: vec![mailbox],
        to: n("x"),
    }];
    ensure!(
        w.local(0, ops)
            .err()
            .is_some_and(|e| e.contains(&mailbox.to_string()))
    );
    Ok(())
}

fn content_goes_with_the_last_copy() -> Outcome {
    let mut w = pair();
    let uid = w.append(0, "INBOX")?;
    w.copy(0, "INBOX", uid, "a")?;
    let origin = w.only(0, "a")?.origin;
    ensure_eq!(origin, w.only(0, "INBOX")?.message);
    w.expunge(0, "INBOX", uid)?;
    let stable = w.nodes[0].applied.clone();
    let first = w.nodes[0]
        .replica
        .collect(&stable, &|_, _| true, Tombstones::Left, usize::MAX);
    ensure_eq!((first.messages.len(), first.messages[0].content), (1, None));
    w.write(0);
    ensure!(w.nodes[0].rows.contains_key(&RowKey::Content(origin)));
    let copy = w.only(0, "a")?.uid;
    w.expunge(0, "a", copy)?;
    let stable = w.nodes[0].applied.clone();
    let second = w.nodes[0]
        .replica
        .collect(&stable, &|_, _| true, Tombstones::Left, usize::MAX);
    let released = second.messages[0].content.map(|(origin, _)| origin);
    ensure_eq!((second.messages.len(), released), (1, Some(origin)));
    w.write(0);
    ensure!(!w.nodes[0].rows.contains_key(&RowKey::Content(origin)));
    Ok(())
}

/// Two replicas that claim the same late messages again: all UIDs of one lie above all of the other.
fn blocks_by_rank_do_not_interleave() -> Outcome {
    let mut w = pair();
    w.setting.skew = vec![0, 0];
    for _ in 0..5 {
        w.append(0, "INBOX")?;
    }
    w.fsync(0);
    let at = w.at(0);
    let takeover = Takeover {
        named: vec![(n("INBOX"), 64 * 20_000)],
        announced: vec![],
    };
    // Both have announced more than they have.
    let mut blocks = Vec::new();
    for slot in [3u8, 4] {
        let mut replica = Replica::new(AccountId([9; 16]), slot);
        replica.raise_marks(&at, &takeover);
        let mut vector = VersionVector::new();
        for bytes in w.logs.values().flatten() {
            let batch = Batch::decode(bytes).map_err(|e| e.to_string())?;
            vector.advance(batch.origin, batch.last());
            let ops = Op::decode_all(&batch.sections[0].ops).map_err(|e| e.to_string())?;
            replica
                .apply(&Step::of(&batch, 0, &vector, 1, &NOBODY), ops)
                .map_err(|e| e.to_string())?;
        }
        let peer = Peer {
            slot: 7 - slot,
            heard: 0,
            timeout_micros: 0,
        };
        let peers = Peers::new(0, vec![peer]);
        let mut uids = Vec::new();
        for op in replica.plan_late(&at, &peers).ops {
            if let Op::Claim { claims, .. } = op {
                uids.extend(claims.iter().map(|claim| claim.uid));
            }
        }
        ensure_eq!(uids.len(), 5);
        ensure!(uids.is_sorted());
        blocks.push(uids);
    }
    ensure!(blocks[0][4] < blocks[1][0]);
    Ok(())
}

fn vanished_history_is_bounded() -> Outcome {
    let mut w = pair();
    let name = n("INBOX");
    let mut before = 0;
    for round in 0..6 {
        let messages = (0..4_000).map(|k| new_message(k, Flags::none())).collect();
        w.plan(0, |r, at| Ok(r.plan_append(at, &name, messages)?.ops))?;
        before = w.nodes[0]
            .replica
            .status(&name)
            .map_or(0, |s| s.highestmodseq);
        let uids = w.nodes[0].replica.uids(&name);
        ensure_eq!(uids.len(), 4_000);
        w.plan(0, |r, _| Ok(r.plan_expunge(&name, &uids)?.ops))?;
        let vanished = |since| w.nodes[0].replica.vanished_since(&name, since);
        ensure_eq!(vanished(before), Some(uids));
        ensure!(round < 4 || vanished(1).is_none());
        let rows = w.nodes[0].replica.all_rows();
        let kept = rows
            .iter()
            .filter(|(key, _)| matches!(key, RowKey::Vanished(_)));
        ensure!(kept.count() <= 16_384 / 4_000);
    }
    w.crash(0, 0)?;
    let vanished = w.nodes[0].replica.vanished_since(&name, before);
    ensure_eq!(vanished.map(|uids| uids.len()), Some(4_000));
    Ok(())
}

/// RFC 8514: what is copied or moved is saved anew, what is renamed or claimed again is not; and all replicas say the same.
fn saved_when_placed() -> Outcome {
    const HOUR: u64 = 3_600_000_000;
    let mut w = pair();
    w.create(0, "x")?;
    w.create(0, "y")?;
    let uid = w.append(0, "x")?;
    let appended = (w.now / 1_000_000) as i64;
    ensure_eq!(w.only(0, "x")?.saved, appended);
    w.now += HOUR;
    w.copy(0, "x", uid, "y")?;
    ensure_eq!(
        (w.only(0, "x")?.saved, w.only(0, "y")?.saved),
        (appended, appended + 3600)
    );
    w.now += HOUR;
    let copy = w.only(0, "y")?;
    ensure!(copy.date.seconds != copy.saved);
    w.move_to(0, "y", copy.uid, "INBOX")?;
    ensure_eq!(w.only(0, "INBOX")?.saved, appended + 7200);
    w.now += HOUR;
    w.rename(0, "x", "z")?;
    w.store(0, "z", uid, StoreMode::Add, 1)?;
    w.meet()?;
    ensure_eq!(w.only(1, "z")?.saved, appended);
    // A delivery was accepted when its date says, whoever makes it and however late.
    w.deliver(0, 1, "y")?;
    w.now += HOUR;
    w.deliver(1, 1, "y")?;
    w.meet()?;
    ensure_eq!((w.only(0, "y")?.saved, w.only(1, "y")?.saved), (5, 5));
    let delivered = w.only(1, "y")?.uid;
    w.move_to(1, "y", delivered, "INBOX")?;
    w.meet()?;
    let saved: Vec<i64> = w.nodes[0]
        .replica
        .rows(&n("INBOX"), 1..=u32::MAX)
        .iter()
        .map(|row| row.saved)
        .collect();
    ensure_eq!(saved, vec![appended + 7200, (w.now / 1_000_000) as i64]);
    Ok(())
}

fn parents_are_created() -> Outcome {
    let mut w = pair();
    let mut id = None;
    w.plan(0, |r, at| {
        let plan = r.plan_create(at, &n("x/y/z"), Some(SpecialUse::Junk))?;
        id = Some(plan.outcome.id);
        Ok(plan.ops)
    })?;
    let names = w.nodes[0].replica.names();
    let info = names
        .iter()
        .find(|info| info.name == n("x/y/z"))
        .ok_or("not created")?;
    ensure_eq!((info.id, info.special_use), (id, Some(SpecialUse::Junk)));
    ensure!(w.count(0, "x") == Some(0) && w.count(0, "x/y") == Some(0));
    w.meet()
}

fn refusals() -> Outcome {
    let w = pair();
    let r = &w.nodes[0].replica;
    let at = At {
        now_micros: w.now,
        next: Dot::new(w.nodes[0].origin, 99),
    };
    ensure_eq!(r.plan_delete(&n("inbox")).err(), Some(PlanError::Inbox));
    ensure_eq!(r.plan_delete(&n("nope")).err(), Some(PlanError::NoMailbox));
    ensure_eq!(
        r.plan_create(&at, &n("a"), None).err(),
        Some(PlanError::Exists)
    );
    ensure_eq!(
        r.plan_rename(&at, &n("a"), &n("a/b")).err(),
        Some(PlanError::IntoItself)
    );
    ensure_eq!(
        r.plan_rename(&at, &n("a"), &n("InBox")).err(),
        Some(PlanError::Exists)
    );
    ensure_eq!(
        r.plan_append(&at, &n("nope"), vec![]).err(),
        Some(PlanError::NoMailbox)
    );
    ensure_eq!(
        r.plan_copy(&at, &n("INBOX"), &[], &n("nope")).err(),
        Some(PlanError::NoMailbox)
    );
    let many = (0..=KEYWORDS_MAX)
        .filter_map(|k| Some(Flag::Keyword(Keyword::new(&format!("k{k}"))?)))
        .collect();
    let refused = r
        .plan_append(&at, &n("a"), vec![new_message(1, many)])
        .err();
    ensure_eq!(refused, Some(PlanError::TooManyKeywords));
    let closed = Replica::new(AccountId([1; 16]), 0);
    ensure_eq!(
        closed.plan_append(&at, &n("INBOX"), vec![]).err(),
        Some(PlanError::NotOpen)
    );
    Ok(())
}

/// A message that was hidden, kept and removed again elsewhere comes hidden by a join: its time begins anew, for a third
/// node may have seen it alive in between and move it.
fn join_restarts_hidden_time() -> Outcome {
    let mut w = World::new(Setting {
        nodes: 3,
        skew: vec![0; 3],
        ..pair().setting
    });
    let uid = w.append(0, "INBOX")?;
    w.sync(0, None)?;
    w.expunge(0, "INBOX", uid)?;
    w.store(1, "INBOX", uid, StoreMode::Remove, 4)?;
    w.pull(2, 1, usize::MAX)?;
    w.pull(2, 0, usize::MAX)?;
    w.pull(1, 0, usize::MAX)?;
    // The third node says that it knows of the removal; that it also knows of the rescue helps nobody here.
    w.pull(0, 2, 0)?;
    w.expunge(1, "INBOX", uid)?;
    w.join(0, 1, true)?;
    w.pull(0, 1, 0)?;
    ensure_eq!(w.count(0, "INBOX"), Some(0));
    w.collect(0);
    w.move_to(2, "INBOX", uid, "a")?;
    for _ in 0..2 {
        for i in 0..3 {
            w.sync(i, None)?;
        }
    }
    ensure_eq!(
        (w.count(0, "a"), w.count(1, "a"), w.count(2, "a")),
        (Some(1), Some(1), Some(1))
    );
    w.heal()
}

/// A hidden message leaves a hidden mailbox: the mailbox's time begins anew. Else it would be dropped while a node that knows of the
/// removal, and of a rescue, but not of the move, sees it alive by that message and puts another one into it.
fn leaving_restarts_hidden_time_of_mailbox() -> Outcome {
    let mut w = World::new(Setting {
        nodes: 4,
        skew: vec![0; 4],
        ..pair().setting
    });
    w.create(0, "b")?;
    let uid = w.append(0, "b")?;
    w.sync(0, None)?;
    w.delete(3, "b")?;
    w.store(1, "b", uid, StoreMode::Remove, 4)?;
    w.move_to(2, "b", uid, "a")?;
    // Here: the removal, then the move, then the rescue.
    w.pull(0, 3, usize::MAX)?;
    w.pull(0, 2, usize::MAX)?;
    w.pull(0, 1, usize::MAX)?;
    ensure_eq!((w.count(0, "a"), w.count(0, "b")), (Some(1), None));
    // All say that they know of the removal.
    w.pull(1, 3, usize::MAX)?;
    w.pull(2, 3, usize::MAX)?;
    for from in 1..4 {
        w.pull(0, from, 0)?;
    }
    w.pull(3, 1, usize::MAX)?;
    ensure_eq!(w.count(3, "b"), Some(1));
    w.append(3, "b")?;
    w.collect(0);
    w.pull(0, 3, usize::MAX)?;
    ensure_eq!((w.count(0, "a"), w.count(0, "b")), (Some(1), Some(1)));
    w.heal()
}
