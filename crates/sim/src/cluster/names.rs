//! D1 of mailboxes and subscriptions: what a client has made, renamed, removed, copied and subscribed to under names that nobody else uses is so in the end.
//!
//! Clients go from node to node, and what they ask of one of them it may not have heard of what they did at another. So a name is used for one
//! mailbox only: whoever could rename or remove that has seen it made. What is removed where copies into it were not known lives on with them, and a
//! subscription that was not known is not removed: that is not judged, nor is what was refused, or never answered.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_service::api::{AccountId, MailboxCall, Reply};

use super::{
    Plan, World,
    clients::{What, mailbox},
    is_keeping,
    losses::Acked,
    queries::More,
};
use whimbrel_testkit::Rng;

/// Once in so many turns of a client that looks at a mailbox.
const OFTEN: u64 = 8;

/// Before the number of such a name.
const PREFIX: &str = "own ";

/// What a client asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Did {
    Make(u64),
    Rename(u64, u64),
    Remove(u64),
    Copy(u64),
    Subscribe(u64, bool),
}

/// A name, and what is to be so of it; `None`: that is not known.
struct Own {
    client: usize,
    account: AccountId,
    /// Messages in the mailbox that bears it; `Some(None)`: there is none.
    holds: Option<Option<usize>>,
    /// Where they were copied.
    copied_at: BTreeSet<usize>,
    subscribed: Option<bool>,
    /// Where that was said.
    subscribed_at: BTreeSet<usize>,
    /// It waits for an answer.
    waits: bool,
}

/// What a seed draws of it, from a generator of its own.
pub(super) struct Names {
    rng: Rng,
    all: BTreeMap<u64, Own>,
}

impl Names {
    pub(super) fn new(plan: &Plan) -> Self {
        Names {
            rng: Rng::new(plan.seed ^ 0x0000_0a3e_0f00),
            all: BTreeMap::new(),
        }
    }

    /// What a lost disk alone had is gone.
    pub(super) fn forget(&mut self, name: u64) {
        if let Some(own) = self.all.get_mut(&name) {
            own.forget();
        }
    }

    /// The body of a message of the account is gone: what was copied may be, too.
    pub(super) fn forget_copies(&mut self, account: AccountId) {
        let all = self.all.values_mut();
        let copied = all.filter(|own| own.account == account && !own.copied_at.is_empty());
        copied.for_each(|own| own.holds = None);
    }

    fn answered(&mut self, node: usize, did: Did, reply: &Reply) {
        let names = did.names();
        let own = names.iter().filter_map(|name| self.all.remove_entry(name));
        let mut own: Vec<(u64, Own)> = own.collect();
        let mut of: Vec<&mut Own> = own.iter_mut().map(|(_, own)| own).collect();
        of.iter_mut().for_each(|own| own.waits = false);
        match (did, reply, &mut of[..]) {
            (Did::Make(_), Reply::Created(_), [own]) => own.holds = Some(Some(0)),
            (Did::Rename(..), Reply::Done, [before, after]) => {
                after.copied_at = std::mem::take(&mut before.copied_at);
                after.holds = before.holds.replace(None);
            }
            (Did::Remove(_), Reply::Done, [own]) => {
                let knew_all = own.copied_at.iter().all(|at| *at == node);
                own.holds = knew_all.then_some(None);
            }
            (Did::Copy(_), Reply::Copied { uids, .. }, [own]) => {
                own.copied_at.insert(node);
                own.holds = own.holds.map(|holds| holds.map(|count| count + uids.len()));
            }
            (Did::Subscribe(_, subscribed), Reply::Done, [own]) => {
                own.subscribed_at.insert(node);
                let knew_all = subscribed || own.subscribed_at.len() == 1;
                own.subscribed = knew_all.then_some(subscribed);
            }
            (_, _, refused) => refused.iter_mut().for_each(|own| own.forget()),
        }
        self.all.extend(own);
    }
}

impl Own {
    fn forget(&mut self) {
        (self.holds, self.subscribed) = (None, None);
    }
}

impl Did {
    fn names(self) -> Vec<u64> {
        match self {
            Did::Rename(from, to) => vec![from, to],
            Did::Make(name) | Did::Remove(name) | Did::Copy(name) | Did::Subscribe(name, _) => {
                vec![name]
            }
        }
    }
}

fn text(name: u64) -> String {
    format!("{PREFIX}{name}")
}

/// Whether it is such a name.
pub(super) fn is_own(name: &str) -> bool {
    name.starts_with(PREFIX)
}

impl World {
    /// Perhaps the client does something to a name of its own; whether it did.
    pub(super) fn uses_own_names(&mut self, index: usize) -> bool {
        if !self.names.rng.one_in(OFTEN) {
            return false;
        }
        let mut rng = self.names.rng.fork();
        let client = &self.clients[index];
        let (account, session) = (client.account, client.session);
        let Some(view) = &client.view else {
            return false;
        };
        let from = mailbox(&view.name);
        let uids = view.uids.iter().copied().filter(|_| rng.one_in(3));
        let uids: Vec<u32> = uids.collect();
        let own = self.names.all.iter().filter(|(_, own)| {
            own.client == index && !own.waits && matches!(own.holds, Some(Some(_)))
        });
        let own: Vec<u64> = own.map(|(name, _)| *name).collect();
        let new = self.names.all.len() as u64 + 1;
        let some = (!own.is_empty()).then(|| *rng.pick(&own));
        let (note, call, did) = match (rng.below(8), some) {
            (2, Some(name)) => {
                let call = MailboxCall::Rename {
                    from: mailbox(&text(name)),
                    to: mailbox(&text(new)),
                    rest: None,
                };
                ("cluster: own name, RENAME", call, Did::Rename(name, new))
            }
            (3, Some(name)) => {
                let call = MailboxCall::Delete {
                    name: mailbox(&text(name)),
                };
                ("cluster: own name, DELETE", call, Did::Remove(name))
            }
            // Where nothing is removed each message is there once.
            (4 | 5, Some(name)) if !is_keeping(account) && !uids.is_empty() => {
                let call = MailboxCall::Copy {
                    session,
                    name: from,
                    uids,
                    to: mailbox(&text(name)),
                    remove: false,
                };
                ("cluster: own name, COPY", call, Did::Copy(name))
            }
            (6 | 7, Some(name)) => {
                let subscribed = rng.one_in(2);
                let call = MailboxCall::Subscribe {
                    name: mailbox(&text(name)),
                    subscribed,
                };
                let did = Did::Subscribe(name, subscribed);
                ("cluster: own name, SUBSCRIBE", call, did)
            }
            _ => {
                let call = MailboxCall::Create {
                    name: mailbox(&text(new)),
                    special_use: None,
                };
                ("cluster: own name, CREATE", call, Did::Make(new))
            }
        };
        if let Did::Make(name) | Did::Rename(_, name) = did {
            let own = Own {
                client: index,
                account,
                holds: None,
                copied_at: BTreeSet::new(),
                subscribed: None,
                subscribed_at: BTreeSet::new(),
                waits: false,
            };
            self.names.all.insert(name, own);
        }
        for name in did.names() {
            if let Some(own) = self.names.all.get_mut(&name) {
                own.waits = true;
            }
        }
        self.note(note);
        self.ask(index, call, What::More(More::Name(did)));
        true
    }

    pub(super) fn name_answered(
        &mut self,
        node: usize,
        account: AccountId,
        did: Did,
        reply: &Reply,
    ) {
        self.names.answered(node, did, reply);
        // What is removed with its node need not be so.
        let counts = !self.members[node].doubtful;
        for name in did.names() {
            match counts {
                true => self.acked(node, account, Acked::Name(name)),
                false => self.names.forget(name),
            }
        }
    }

    /// When nodes are alike.
    pub(super) fn names_hold(&mut self) -> Result<(), String> {
        let low = self.there()[0];
        for account in self.accounts.clone() {
            let picture = self.picture(low, account)?;
            let of_it = self.names.all.iter();
            let of_it = of_it.filter(|(_, own)| own.account == account && !own.waits);
            let mut judged: Vec<&'static str> = Vec::new();
            for (name, own) in of_it {
                let text = text(*name);
                let found = picture.flags_of(&text).map(|all| all.len());
                if let Some(holds) = own.holds {
                    judged.push(match holds {
                        Some(_) => "cluster: own name, there",
                        None => "cluster: own name, gone",
                    });
                    if found != holds {
                        let stands = self.stands(low, account);
                        return Err(format!(
                            "D1: mailbox {text:?} of {account} holds {found:?} messages, by what was acknowledged {holds:?}: {picture:?}, {stands}"
                        ));
                    }
                }
                if let Some(subscribed) = own.subscribed {
                    judged.push("cluster: own name, subscribed or not");
                    if picture.is_subscribed(&text) != subscribed {
                        return Err(format!(
                            "D1: {text:?} of {account} is subscribed: {}, which was acknowledged otherwise",
                            !subscribed
                        ));
                    }
                }
            }
            judged.into_iter().for_each(|what| self.note(what));
        }
        Ok(())
    }
}
