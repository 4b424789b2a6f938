//! What else a session may ask, beside what [`super::clients`] draws: each answer is held against what the client was told before.

use std::collections::BTreeSet;

use whimbrel_service::{
    api::{
        AccountId, EntryId, Failure, FlagChange, Flags, Mailbox, MailboxCall, MailboxName, Reply,
    },
    owner::import_upload,
};

use super::{
    Plan, World,
    blobs::{REAL_FROM, first, other},
    clients::{What, flag, mailbox},
    is_keeping,
    losses::{Acked, Disks},
    names::Did,
};
use whimbrel_testkit::Rng;

use crate::client::{self, NAMES};

/// Once in so many turns of a client that looks at a mailbox.
const OFTEN: u64 = 5;

/// A question whose answer is checked here.
pub(super) enum More {
    List,
    Statuses(Vec<String>),
    /// Whether this node gave the MODSEQ out, to this client since it came.
    Since(bool, u64),
    /// What was told by then.
    Known(BTreeSet<u32>),
    Unselect,
    Flagged(u32, u32, Flags, Flags),
    Remove,
    /// Messages with these bodies.
    Import(Vec<u32>),
    /// Something was done to a name that only this client uses.
    Name(Did),
}

/// What a seed draws of it, from a generator of its own.
pub(super) struct Queries {
    rng: Rng,
    /// What was brought from elsewhere, each with the entry that stands for it there.
    imported: Vec<(AccountId, EntryId, u32)>,
    /// Those that came a second time with other bytes and another date.
    otherwise: BTreeSet<(AccountId, u32)>,
}

impl Queries {
    pub(super) fn new(plan: &Plan) -> Self {
        Queries {
            rng: Rng::new(plan.seed ^ 0x00a5_ced0_0000),
            imported: Vec::new(),
            otherwise: BTreeSet::new(),
        }
    }

    /// Whether two nodes may have brought this message with different bytes.
    pub(super) fn came_otherwise(&self, account: AccountId, body: u32) -> bool {
        self.otherwise.contains(&(account, body))
    }
}

impl World {
    /// Perhaps the client asks something of these; whether it did.
    pub(super) fn asks_more(&mut self, index: usize) -> bool {
        if !self.queries.rng.one_in(OFTEN) {
            return false;
        }
        let mut rng = self.queries.rng.fork();
        let client = &self.clients[index];
        let (account, node, session) = (client.account, client.node, client.session);
        let keeping = is_keeping(account);
        let Some(view) = &client.view else {
            return false;
        };
        let (name, modseq) = (mailbox(&view.name), view.modseq);
        let mut some = |one_in: u64| -> Vec<u32> {
            let uids = view.uids.iter().copied();
            uids.filter(|_| rng.one_in(one_in)).collect()
        };
        let (uids, few) = (some(3), some(8));
        let known = view.uids.clone();
        let up_to = known.last().copied().unwrap_or(0);
        let foreign = client.knows.as_ref().map(|knows| knows.modseq);
        let (note, call, what) = match rng.below(11) {
            0 => ("cluster: LIST", MailboxCall::list(), What::More(More::List)),
            1 => {
                let names: Vec<String> = (0..3).map(|_| (*rng.pick(&NAMES)).to_owned()).collect();
                let call = MailboxCall::Statuses {
                    names: names.iter().map(|name| mailbox(name)).collect(),
                };
                (
                    "cluster: STATUS of many",
                    call,
                    What::More(More::Statuses(names)),
                )
            }
            2 | 3 => {
                let foreign = foreign.filter(|_| rng.one_in(2));
                let asked = foreign.unwrap_or(modseq);
                let call = MailboxCall::Since {
                    name,
                    modseq: asked,
                    vanished: rng.one_in(2),
                };
                // Who leaves a partition begins anew with it.
                let is_own = foreign.is_none() && self.plan.leaves == 0;
                let what = What::More(More::Since(is_own, asked));
                ("cluster: changes since a MODSEQ", call, what)
            }
            4 => {
                let call = MailboxCall::Known { session };
                ("cluster: known UIDs", call, What::More(More::Known(known)))
            }
            5 => {
                let call = MailboxCall::Unselect { session };
                ("cluster: UNSELECT", call, What::More(More::Unselect))
            }
            6 => {
                let all = u64::from(client::FLAGS_COUNT);
                let (set, unset) = (rng.below(all), rng.below(all));
                let flag = |number: u64| client::flags(&[u8::try_from(number).unwrap_or(0)].into());
                let (set, unset) = (flag(set), flag(unset));
                let to = rng.between(1, u64::from(up_to) + 1);
                let to = u32::try_from(to).unwrap_or(up_to);
                let call = MailboxCall::Flagged {
                    name,
                    from: 1,
                    to,
                    set: set.clone(),
                    unset: unset.clone(),
                };
                let what = What::More(More::Flagged(1, to, set, unset));
                ("cluster: search by flags", call, what)
            }
            7 => {
                let numbers = 1..client::FLAGS_COUNT;
                let set: BTreeSet<u8> = numbers.filter(|_| rng.one_in(2)).collect();
                let foreign = foreign.filter(|_| rng.one_in(3));
                let call = MailboxCall::Store {
                    session,
                    name,
                    uids,
                    change: FlagChange::Add,
                    flags: client::flags(&set),
                    unchanged_since: Some(foreign.unwrap_or(modseq)),
                };
                ("cluster: STORE, UNCHANGEDSINCE", call, What::Store(set))
            }
            8 if !keeping => {
                let call = MailboxCall::Remove { name, uids: few };
                ("cluster: removed by POP3", call, What::More(More::Remove))
            }
            9 if !keeping => {
                let call = MailboxCall::Expunge {
                    session,
                    name,
                    uids: Some(uids),
                    up_to,
                };
                ("cluster: UID EXPUNGE", call, What::Expunge)
            }
            _ => match self.importing(node, account, &mut rng) {
                Some((call, bodies)) => ("cluster: import", call, What::More(More::Import(bodies))),
                None => return false,
            },
        };
        self.note(note);
        self.ask(index, call, what);
        true
    }

    /// Messages from elsewhere; often some that were brought before, wherever that was: from other uploads. One may be named twice.
    fn importing(
        &mut self,
        node: usize,
        account: AccountId,
        rng: &mut Rng,
    ) -> Option<(MailboxCall, Vec<u32>)> {
        let of_it = self.queries.imported.iter();
        let before: Vec<_> = of_it.filter(|(of, ..)| *of == account).copied().collect();
        let count = if rng.one_in(3) { rng.between(2, 4) } else { 1 };
        let (mut messages, mut bodies, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let again = !before.is_empty() && rng.one_in(2);
            self.note_if(again, "cluster: import again");
            let (id, body) = if again {
                let (_, id, body) = *rng.pick(&before);
                (id, body)
            } else {
                self.next_body += 1;
                let id = EntryId(u128::from(self.next_body).to_be_bytes());
                new.push((account, id, self.next_body));
                (id, self.next_body)
            };
            // Where no disk is lost: what only that has may be the one that all show, and nobody has it then.
            let is_complete = !self.plan.loses
                && self.plan.disks == Disks::Own
                && self.plan.membership == 0
                && self.plan.leaves == 0;
            // Some nodes bring some messages otherwise. It draws nothing, so that the other histories stay as they are.
            let is_other = (u64::from(body) + node as u64) % 2 == 1;
            let otherwise = again && is_complete && body < REAL_FROM && is_other;
            let given = match otherwise {
                true => other(body),
                false => first(body),
            };
            let upload = Some(import_upload(
                id,
                account,
                blake3::hash(&given.0).as_bytes(),
            ));
            let mut mail = self.new_mail_called(node, body, upload, given)?;
            if otherwise {
                self.queries.otherwise.insert((account, body));
                self.note("cluster: import again, with other bytes");
            }
            // Imported twice at once they are set twice, which one who clears them need not know.
            if !is_keeping(account) {
                flag(&mut mail, rng);
            }
            self.losses.uploaded(body, mail.blob);
            messages.push((id, mail));
            bodies.push(body);
        }
        for (_, _, body) in &new {
            self.kept.made(account, *body);
        }
        self.queries.imported.append(&mut new);
        self.note_if(count > 1, "cluster: import of several");
        let call = MailboxCall::Import {
            name: MailboxName::inbox(),
            messages,
        };
        Some((call, bodies))
    }

    /// Nothing was imported, and the connection ends, with which its uploads go: the next one may call its own as the messages are called.
    pub(super) fn drop_uploads(&mut self, node: usize, call: &MailboxCall, failure: Failure) {
        if let MailboxCall::Import { messages, .. } = call
            && matches!(failure, Failure::Clock | Failure::TooFewNodes)
        {
            for (_, mail) in messages {
                self.members[node].node.drop_upload(mail.blob);
            }
        }
    }

    /// An answer must fit to what was told.
    pub(super) fn more_answered(
        &mut self,
        node: usize,
        account: AccountId,
        more: &More,
        reply: &Reply,
        asked: u64,
    ) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("node {node}, account {account}: {what}: {reply:?}"));
        match (more, reply) {
            (More::Name(did), reply) => {
                self.name_answered(node, account, *did, reply);
                Ok(())
            }
            (_, Reply::Failed(_)) => Ok(()),
            (More::List, Reply::Mailboxes { names: all, .. }) => match is_a_list(all) {
                true => Ok(()),
                false => wrong("a list without INBOX, or in another order"),
            },
            (More::Statuses(names), Reply::Statuses(all)) => {
                if names.len() != all.len() {
                    return wrong("not as many as were asked for");
                }
                for (name, status) in names.iter().zip(all) {
                    let Ok(status) = status else {
                        continue;
                    };
                    self.status_told((node, account, name), status, asked)?;
                }
                Ok(())
            }
            (More::Since(is_own, modseq), Reply::Since(since)) => {
                let slot = self.slots.get(&self.members[node].id).copied();
                let is_ours = slot.is_some_and(|slot| modseq % 64 == u64::from(slot));
                if (*is_own && !since.believed) || (!is_ours && since.believed) {
                    return wrong("whose MODSEQ it was is known");
                }
                let vanished = since.vanished.iter().flatten().copied();
                if !rises(since.changed.iter().copied()) || !rises(vanished) {
                    return wrong("not ascending");
                }
                Ok(())
            }
            (More::Known(known), Reply::Known(told)) => match told {
                Some(told) if !told.iter().eq(known) => wrong(&format!("it was told {known:?}")),
                _ => Ok(()),
            },
            (More::Flagged(from, to, set, unset), Reply::Flagged { rows, up_to }) => {
                let (set, unset) = (client::numbers(set), client::numbers(unset));
                let fits = rows.iter().all(|row| {
                    let flags = client::numbers(&row.flags);
                    (*from..=*to).contains(&row.uid)
                        && flags.is_superset(&set)
                        && flags.is_disjoint(&unset)
                });
                if !fits || up_to > to || !rises(rows.iter().map(|row| row.uid)) {
                    return wrong("others than were asked for");
                }
                for row in rows {
                    self.row_seen(account, row)?;
                    self.modseq_seen(node, account, row, asked)?;
                    self.removals.shown(row);
                    self.holds(node, account, row)?;
                }
                Ok(())
            }
            (More::Import(bodies), Reply::Appended { uids, .. }) => {
                if uids.len() > bodies.len() || !rises(uids.iter().copied()) {
                    return wrong(&format!("{bodies:?} were brought"));
                }
                let counts = !self.members[node].doubtful;
                for body in bodies.iter().filter(|_| counts) {
                    self.kept.acknowledged(account, *body);
                    self.acked(node, account, Acked::Imported(*body));
                }
                Ok(())
            }
            (More::Unselect | More::Remove, Reply::Done) => Ok(()),
            _ => wrong("that was not asked"),
        }
    }
}

fn rises(mut uids: impl Iterator<Item = u32>) -> bool {
    let mut last = 0;
    uids.all(|uid| std::mem::replace(&mut last, uid) < uid)
}

fn is_a_list(all: &[Mailbox]) -> bool {
    let names: Vec<&str> = all.iter().map(|mailbox| mailbox.name.as_str()).collect();
    let once: BTreeSet<&str> = names.iter().copied().collect();
    let inbox = all.iter().any(|of| of.name.is_inbox() && of.exists);
    inbox && once.len() == names.len()
}
