//! What clients are answered: held against what was told before, and noted for the end.

use std::collections::BTreeSet;

use whimbrel_service::{
    api::{AccountId, Changes, Failure, FlagChange, MailboxCall, Reply, Resolution, Row, Selected},
    machine::RequestId,
};

use super::{
    Plan, Uids, World,
    clients::{Asked, View, What},
    coverage::OVERLOOKED,
    losses::Acked,
    queries::More,
    seeds::ANSWERED,
};
use crate::client;
use whimbrel_testkit::Rng;

impl Plan {
    /// In every third seed what names several messages is done in parts; in others, what another node did.
    pub(super) fn with_parts(mut self) -> Self {
        let mut rng = Rng::new(self.seed ^ 0x009a_2750_0000);
        if rng.one_in(3) {
            self.messages_per_call_max = usize::try_from(rng.between(1, 3)).unwrap_or(1);
        }
        if rng.one_in(4) {
            self.foreign_bytes_max = usize::try_from(rng.between(512, 3_000)).unwrap_or(512);
        }
        self
    }
}

/// What a client asks for when as much is done of a call as one may do: the rest.
fn rest(call: &MailboxCall, reply: &Reply) -> Option<(&'static str, MailboxCall)> {
    let mut call = call.clone();
    match (&mut call, reply) {
        (
            MailboxCall::Copy {
                uids, remove: true, ..
            },
            Reply::Copied { done, .. },
        ) if *done < uids.len() => {
            uids.drain(..*done);
            Some(("cluster: MOVE goes on", call))
        }
        (MailboxCall::Expunge { .. }, Reply::Expunged { more: true, .. }) => {
            Some(("cluster: EXPUNGE goes on", call))
        }
        (MailboxCall::Delete { .. }, Reply::Partly { rest: None }) => {
            Some(("cluster: DELETE goes on", call))
        }
        (MailboxCall::Rename { rest, .. }, Reply::Partly { rest: goes_on }) => {
            *rest = *goes_on;
            Some(("cluster: RENAME goes on", call))
        }
        _ => None,
    }
}

/// Whether a message is as a STORE that was carried out leaves it.
fn shows(row: &Row, change: FlagChange, named: &BTreeSet<u8>) -> bool {
    let flags = client::numbers(&row.flags);
    match change {
        FlagChange::Add => flags.is_superset(named),
        FlagChange::Remove => flags.is_disjoint(named),
        FlagChange::Replace => flags == *named,
    }
}

impl World {
    pub(super) fn replied(
        &mut self,
        node: usize,
        request: RequestId,
        reply: Reply,
    ) -> Result<(), String> {
        if self.protocol_clients.asked(request) {
            return self.protocol_client_answered(request, reply);
        }
        let Some(asked) = self.asked.remove(&request) else {
            self.answers.insert(request, reply);
            return Ok(());
        };
        let account = asked.account;
        let counts = !self.members[node].doubtful;
        self.flagging.answered(request, &reply, counts);
        self.removals.refused(request, &reply);
        match &reply {
            Reply::Failed(Failure::Clock) => self.note("cluster: refused for a clock"),
            Reply::Failed(Failure::TooFewNodes) => self.note("cluster: too few nodes"),
            Reply::Failed(Failure::DoneHere) => self.note("cluster: done on one node"),
            _ => {}
        }
        self.writes_checked(node, &asked, &reply)?;
        if let Some(call) = &asked.call {
            self.written(node, account, call, &reply)?;
        }
        let client = asked.client.and(asked.call.as_ref());
        let rest = client.and_then(|call| rest(call, &reply));
        if let Reply::Appended { uid_validity, .. } = &reply {
            self.validity_told(account, *uid_validity)?;
        }
        if let Reply::Selected(selected) = &reply {
            self.validity_told(account, selected.status.uid_validity)?;
        }
        match (&asked.what, &reply) {
            (What::Append(_) | What::Deliver(..), _) if !counts => {}
            (What::More(More::Name(_)), _) if rest.is_some() => {}
            (What::Append(_) | What::Deliver(..), reply) => self.mail_answered(node, &asked, reply),
            (What::Resolve(before, more), Reply::Resolved(resolution)) => {
                self.resolved(node, before, *more, resolution);
            }
            (What::Store(set), Reply::Stored { rows, modified }) => {
                self.flags_stored(node, &asked, set, rows, modified)?;
            }
            (What::Expunge, reply) if counts => {
                let gone = self.removals.answered(node, account, reply, &self.looks);
                for id in gone {
                    self.acked(node, account, Acked::Expunged(id));
                }
            }
            (What::More(more), reply) => {
                self.more_answered(node, account, more, reply, asked.at)?
            }
            (What::Status(name), Reply::Status(status)) => {
                self.status_told((node, account, name), status, asked.at)?;
            }
            (What::Rows, Reply::Rows(rows)) => {
                for row in rows {
                    self.row_seen(account, row)?;
                    self.modseq_seen(node, account, row, asked.at)?;
                    self.removals.shown(row);
                    self.holds(node, account, row)?;
                }
            }
            _ => {}
        }
        let Some(index) = asked.client else {
            return Ok(());
        };
        self.note(ANSWERED);
        if let Some((note, call)) = rest {
            self.note(note);
            self.ask(index, call, asked.what);
            return Ok(());
        }
        self.clients[index].due = Some(self.now + 1 + self.rng.below(self.plan.pause_micros));
        match (asked.what, reply) {
            (What::Select(name), Reply::Selected(selected)) => {
                self.selected(index, node, name, &selected, asked.at)
            }
            (What::Changes(name), Reply::Changes(changes)) => {
                self.changes_seen(index, node, &name, &changes, asked.at)
            }
            (What::Named, Reply::Named { .. }) => {
                let client = &mut self.clients[index];
                match &mut client.view {
                    Some(view) => {
                        view.names = None;
                        view.looks_again = true;
                    }
                    None => client.has_said = true,
                }
                Ok(())
            }
            (What::Rows, Reply::Rows(rows)) => self.read(index, &rows),
            (What::Select(_) | What::Changes(_) | What::Rows, Reply::Failed(_))
            | (What::More(More::Unselect), _) => {
                self.clients[index].view = None;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A node whose clock is far off writes nothing, and no node waits for others where the plan asks for none.
    fn writes_checked(&mut self, node: usize, asked: &Asked, reply: &Reply) -> Result<(), String> {
        if let (Some(call), Reply::Failed(failure)) = (&asked.call, reply) {
            self.say(|| format!("node {node} refuses: {failure:?}"));
            self.drop_uploads(node, call, *failure);
        }
        // Nobody waits for others there.
        if self.plan.other_nodes == 0
            && asked.call.is_some()
            && let Reply::Failed(Failure::TooFewNodes | Failure::NotConfirmed | Failure::DoneHere) =
                reply
        {
            return Err(format!("node {node} waits for others: {reply:?}"));
        }
        let writes = match (&asked.call, &asked.what) {
            (Some(call), _) => call.writes(),
            (None, what) => matches!(what, What::Append(_) | What::Deliver(..) | What::Store(_)),
        };
        let writes = writes && !matches!(reply, Reply::Failed(_));
        if writes {
            self.say(|| format!("node {node} answers: {reply:?}"));
        }
        if writes && self.must_refuse(node, asked.at) {
            return Err(format!(
                "node {node} writes though its clock is far from all others"
            ));
        }
        Ok(())
    }

    /// An APPEND or a delivery was acknowledged, which must hold from now on, or refused.
    fn mail_answered(&mut self, node: usize, asked: &Asked, reply: &Reply) {
        let account = asked.account;
        match (&asked.what, reply) {
            (What::Append(bodies), Reply::Appended { .. }) => {
                for body in bodies {
                    self.kept.acknowledged(account, *body);
                    self.acked(node, account, Acked::Body(*body));
                }
                let call = asked.call.as_ref();
                let gone =
                    call.and_then(|call| self.removals.replaced(node, account, call, &self.looks));
                if let Some(id) = gone {
                    self.acked(node, account, Acked::Expunged(id));
                }
            }
            (What::Deliver(body, targets), Reply::Done) => {
                for account in targets {
                    self.kept.acknowledged(*account, *body);
                    self.acked(node, *account, Acked::Accepted(*body));
                }
            }
            (what, Reply::Failed(failure)) => {
                self.say(|| format!("mail is refused at {node}: {failure:?}"));
                let bodies = match what {
                    What::Append(bodies) => &bodies[..],
                    What::Deliver(body, _) => std::slice::from_ref(body),
                    _ => &[],
                };
                match failure {
                    Failure::NotConfirmed => {
                        self.note("cluster: not confirmed");
                        bodies.iter().for_each(|body| self.kept.refused(*body));
                    }
                    Failure::TooFewNodes | Failure::Clock | Failure::NoSuchMessage => {
                        bodies.iter().for_each(|body| self.kept.unwritten(*body));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// A recipient of a delivery was resolved: the next one is, or the mail is accepted.
    fn resolved(&mut self, node: usize, before: &[AccountId], more: u64, resolution: &Resolution) {
        let mut targets = before.to_vec();
        if let Resolution::Local(found) = resolution {
            // Who receives for several addresses gets it once.
            let found = found.iter().map(|target| target.account);
            targets.extend(found.filter(|account| !before.contains(account)));
        }
        match (more.checked_sub(1), targets.len()) {
            (Some(more), _) => self.resolve(node, targets, more),
            (None, 0) => {}
            (None, count) => {
                let several = count > 1 && !before.is_empty();
                self.note_if(several, "cluster: delivery to several addresses");
                self.accept(node, targets);
            }
        }
    }

    /// A STORE was carried out: its answer shows the flags that it left.
    fn flags_stored(
        &mut self,
        node: usize,
        asked: &Asked,
        set: &BTreeSet<u8>,
        rows: &[Row],
        modified: &[u32],
    ) -> Result<(), String> {
        let (account, counts) = (asked.account, !self.members[node].doubtful);
        if let Some(row) = rows.iter().find(|row| modified.contains(&row.uid)) {
            return Err(format!(
                "UID {} at {node} was changed, and left alone",
                row.uid
            ));
        }
        let (change, since) = match asked.call {
            Some(MailboxCall::Store {
                change,
                unchanged_since,
                ..
            }) => (change, unchanged_since),
            _ => (FlagChange::Add, None),
        };
        if let Some(since) = since {
            self.left_what_changed(node, account, since, rows, asked.at)?;
        }
        for row in rows {
            self.row_seen(account, row)?;
            self.modseq_seen(node, account, row, asked.at)?;
            self.removals.shown(row);
            if !shows(row, change, set) {
                return Err(format!("node {node}: {change:?} {set:?} left {row:?}"));
            }
            if counts {
                if change != FlagChange::Remove {
                    self.kept.flagged(account, row.id, set);
                }
                self.acked(node, account, Acked::Flags(row.id));
            }
        }
        Ok(())
    }

    /// A client has selected a mailbox.
    fn selected(
        &mut self,
        index: usize,
        node: usize,
        name: String,
        selected: &Selected,
        at: u64,
    ) -> Result<(), String> {
        let account = self.clients[index].account;
        let uids: Uids = selected.uids.iter().collect();
        self.looks.validity(account, selected.status.uid_validity)?;
        self.looks
            .looked(node, account, &name, &uids, selected.status.uid_next)?;
        let next = selected.status.uid_next;
        self.next_told((node, account, &name), next, at)?;
        let highest = selected.status.highest_modseq;
        self.modseq_looked(node, account, &name, &uids, highest, at)?;
        let client = &mut self.clients[index];
        let (told, uid_next) = (selected.told, selected.status.uid_next);
        let knows = client.knows.as_ref();
        let knows = knows.filter(|_| name == "INBOX" && !client.with_qresync);
        client.view = Some(View {
            name,
            unread: selected.uids.to_vec(),
            reading: Vec::new(),
            uids,
            as_of: selected.as_of,
            names: knows.and_then(|knows| knows.after_select(told, uid_next)),
            looks_again: false,
            uid_validity: selected.status.uid_validity,
            uid_next,
            modseq: selected.status.highest_modseq,
        });
        Ok(())
    }

    /// A client hears what has changed in its mailbox.
    fn changes_seen(
        &mut self,
        index: usize,
        node: usize,
        name: &str,
        changes: &Changes,
        at: u64,
    ) -> Result<(), String> {
        let client = &mut self.clients[index];
        let account = client.account;
        let Some(view) = client.view.as_mut().filter(|view| view.name == name) else {
            return Ok(());
        };
        if changes.id.is_none() {
            client.view = None;
            return Ok(());
        }
        view.uids.retain(|uid| !changes.vanished.contains(uid));
        if let Some(present) = &changes.present {
            view.uids.retain(|uid| present.contains(uid));
        }
        let newest = view.uids.last().copied().unwrap_or(0);
        if changes.arrived.first().is_some_and(|uid| *uid <= newest) {
            return Err(format!(
                "{name} at {node}: {:?} arrived below {newest}",
                changes.arrived
            ));
        }
        view.uids.extend(&changes.arrived);
        view.unread.extend(&changes.arrived);
        view.as_of = changes.as_of;
        view.uid_next = changes.uid_next;
        view.modseq = changes.highest_modseq;
        let uids = view.uids.clone();
        self.looks
            .looked(node, account, name, &uids, changes.uid_next)?;
        self.next_told((node, account, name), changes.uid_next, at)?;
        for row in &changes.changed {
            self.modseq_seen(node, account, row, at)?;
        }
        if !changes.more {
            let highest = changes.highest_modseq;
            self.modseq_looked(node, account, name, &uids, highest, at)?;
        }
        Ok(())
    }

    /// A client has read what it was told of.
    fn read(&mut self, index: usize, rows: &[Row]) -> Result<(), String> {
        let client = &mut self.clients[index];
        let Some(view) = client.view.as_ref().filter(|view| view.name == "INBOX") else {
            return Ok(());
        };
        let knows = client.knows.get_or_insert_default();
        // What was refused goes wherever it is, and it had left before anybody could look.
        let lasting = rows.iter().filter(|row| !self.kept.was_refused(row.size));
        // What was moved or removed elsewhere may have come and left where the client was before it looked. If that is not so it is there in the end.
        let account = client.account;
        let lasting = lasting.filter(|row| !self.removals.may_have_left(account, row.id));
        let missed = knows.overlooked(lasting);
        let cause = missed.first().map(|(uid, id)| {
            format!(
                "client {index} overlooks {id}, UID {uid}, at {}: it asks from {}",
                client.node, knows.uid_next
            )
        });
        // Who comes from another node is told of all that is there: what had left INBOX there, or was refused there before it looked, and is here still.
        if client.with_qresync && knows.modseq % 64 != view.modseq % 64 {
            let again = rows
                .iter()
                .filter(|row| knows.left.contains(&row.uid) || self.kept.was_refused(row.size));
            knows.seen.extend(again.map(|row| row.id));
        }
        knows.read(view.uid_validity, view.uid_next, view.modseq, rows);
        knows.told_by.insert(self.members[client.node].id);
        // What it asked for, and was not told: it had left since the client heard of it.
        let told: BTreeSet<u32> = rows.iter().map(|row| row.uid).collect();
        let gone = view.reading.iter().filter(|uid| !told.contains(uid));
        knows.left.extend(gone.copied());
        let left = self
            .looks
            .left(client.node, client.account, &view.uids, view.uid_next);
        knows.left.extend(left);
        let with_qresync = client.with_qresync;
        if let Some(cause) = cause.filter(|_| with_qresync) {
            return Err(cause);
        }
        let missed = u64::try_from(missed.len()).unwrap_or(u64::MAX);
        *self.report.coverage.entry(OVERLOOKED).or_default() += missed;
        Ok(())
    }
}
