//! What is checked: each answer against the model and the promises about UIDs, and the whole state after whatever went wrong.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_service::api::{AccountId, Call, MailboxCall, Reply, Row};

use super::{Asked, Reached, World, content, text};
use crate::{
    checkers::uid_history::Uids,
    client::{self, Client},
    model::{Message, Model, Number},
};

impl World {
    /// What an answer told, held against the model and the promises about UIDs.
    pub(super) fn told(
        &mut self,
        asked: &Asked,
        reached: &Reached,
        reply: &Reply,
        certain: bool,
    ) -> Result<(), String> {
        let about = asked.planned.about.as_deref().unwrap_or_default();
        let shuffled = self
            .histories
            .get(&asked.account)
            .is_some_and(|history| history.ever_shuffled(about));
        let expected = reached.about.as_deref().filter(|_| certain && !shuffled);
        let Some(uids) = self.uids.get_mut(&asked.account) else {
            return Ok(());
        };
        let client = asked.client.map(|index| &mut self.clients[index]);
        match (reply, client) {
            (Reply::Selected(selected), Some(client)) => {
                uids.validity(selected.status.uid_validity)?;
                client.selected(about, selected, expected)?;
                uids.next(about, reached.number, selected.status.uid_next)?;
                see(uids, client)?;
            }
            (Reply::Changes(changes), Some(client)) => {
                let expunges = matches!(
                    asked.planned.call,
                    MailboxCall::Changes { expunges: true, .. }
                );
                if changes.id.is_none() {
                    if certain && reached.about.is_some() {
                        return Err(format!("{about} is there, but was told to be gone"));
                    }
                    client.view = None;
                } else {
                    client.changed(changes, expunges, expected)?;
                    uids.next(about, reached.number, changes.uid_next)?;
                    see(uids, client)?;
                }
            }
            (Reply::Rows(rows), Some(client)) => {
                if let MailboxCall::Rows { uids: wanted, .. } = &asked.planned.call {
                    client.rows(wanted, rows, expected)?;
                }
            }
            (Reply::Status(status), _) => {
                uids.validity(status.uid_validity)?;
                uids.next(about, reached.number, status.uid_next)?;
                if let Some(expected) = reached.about.as_deref().filter(|_| certain) {
                    let unseen = expected.iter().filter(|m| !m.flags.contains(&1)).count();
                    let deleted = expected.iter().filter(|m| m.flags.contains(&0)).count();
                    let size: u64 = expected.iter().map(|m| u64::from(m.body)).sum();
                    let told = (
                        status.messages as usize,
                        status.unseen as usize,
                        status.deleted as usize,
                        status.size,
                    );
                    if told != (expected.len(), unseen, deleted, size) {
                        return Err(format!(
                            "STATUS of {about} told {told:?}, there is {expected:?}"
                        ));
                    }
                }
            }
            (
                Reply::Appended {
                    uid_validity,
                    uids: told,
                },
                _,
            ) => {
                uids.validity(*uid_validity)?;
                let [uid] = &told[..] else {
                    return Err(format!("one message was appended, told were {told:?}"));
                };
                if let Some(made) = expected.and_then(<[Message]>::last) {
                    uids.seen(about, made.key, made.entered, *uid)?;
                }
                uids.next(about, reached.number, uid + 1)?;
            }
            (Reply::Copied { uids: told, .. }, _) => {
                if let Some(expected) = expected {
                    let made = &expected[expected.len().saturating_sub(told.len())..];
                    for ((_, uid), message) in told.iter().zip(made) {
                        uids.seen(about, message.key, message.entered, *uid)?;
                    }
                }
                if let Some((_, last)) = told.last() {
                    uids.next(about, reached.number, last + 1)?;
                }
            }
            (Reply::Done, _) => {
                if let MailboxCall::Named { name, numbers, .. } = &asked.planned.call {
                    let told = numbers.iter().copied().max().unwrap_or(0);
                    uids.said(name.as_str(), reached.number, told);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// D1 and D2: reads every account whole and finds the state of the model that it is in.
    pub(super) fn compare(
        &mut self,
        before: Option<&BTreeMap<AccountId, usize>>,
    ) -> Result<(), String> {
        let accounts: Vec<AccountId> = self.histories.keys().copied().collect();
        for account in accounts {
            let (actual, subscribed, told) = self.read_all(account)?;
            let Some(history) = self.histories.get_mut(&account) else {
                continue;
            };
            let before = before
                .and_then(|before| before.get(&account))
                .copied()
                .unwrap_or(history.len());
            let Some(uids) = self.uids.get_mut(&account) else {
                continue;
            };
            // Several may look alike: a MOVE into the same mailbox changes nothing but UIDs.
            let mut reason = None;
            let found = history.candidates(before).filter(|model| {
                let mut actual = actual.clone();
                model
                    .shuffled
                    .iter()
                    .filter_map(|name| actual.get_mut(name).map(|list| list.sort()))
                    .count();
                shape(model) == actual && model.subscribed == subscribed
            });
            let found =
                found
                    .into_iter()
                    .find(|model| match uids.all_consistent(&placed(model, &told)) {
                        Ok(()) => true,
                        Err(cause) => {
                            reason.get_or_insert(cause);
                            false
                        }
                    });
            let Some(model) = found else {
                let nearest = history.candidates(before).next().unwrap_or_default();
                return Err(reason.unwrap_or_else(|| {
                    format!(
                        "D1/D2: account {account} holds\n  {actual:?} {subscribed:?}\nbut should hold\n  {:?} {:?}",
                        shape(&nearest),
                        nearest.subscribed
                    )
                }));
            };
            for (name, key, entered, uid) in placed(&model, &told) {
                uids.seen(&name, key, entered, uid)?;
            }
            history.settled(model);
        }
        self.blurred = false;
        Ok(())
    }

    #[allow(clippy::type_complexity, reason = "what an account holds, by name")]
    fn read_all(
        &mut self,
        account: AccountId,
    ) -> Result<
        (
            BTreeMap<String, Vec<(u32, BTreeSet<u8>)>>,
            BTreeSet<String>,
            BTreeMap<String, Vec<u32>>,
        ),
        String,
    > {
        let reply = self.ask_and_wait(Call::mailbox(account, MailboxCall::list()))?;
        let Reply::Mailboxes {
            names: mailboxes, ..
        } = reply
        else {
            return Err(format!("LIST was answered by {reply:?}"));
        };
        let subscribed = mailboxes
            .iter()
            .filter(|m| m.subscribed)
            .map(|m| m.name.as_str().to_owned())
            .collect();
        let (mut actual, mut told) = (BTreeMap::new(), BTreeMap::new());
        let session = self.session();
        let (mut messages, mut bytes) = (0, 0);
        for mailbox in mailboxes.iter().filter(|mailbox| mailbox.exists) {
            let name = mailbox.name.clone();
            if let Some(uids) = self.uids.get_mut(&account) {
                uids.asked(name.as_str());
            }
            let call = MailboxCall::Select {
                session,
                name: name.clone(),
                read_only: true,
            };
            let reply = self.ask_and_wait(Call::mailbox(account, call))?;
            let Reply::Selected(selected) = reply else {
                return Err(format!("SELECT was answered by {reply:?}"));
            };
            let uids = selected.uids.to_vec();
            let call = MailboxCall::Rows {
                name: name.clone(),
                uids: uids.clone(),
            };
            let reply = self.ask_and_wait(Call::mailbox(account, call))?;
            let Reply::Rows(rows) = reply else {
                return Err(format!("rows were answered by {reply:?}"));
            };
            if rows.len() != uids.len() {
                return Err(format!("{} has UIDs without rows", name.as_str()));
            }
            messages += rows.len() as u64;
            for row in &rows {
                bytes += u64::from(row.size);
                self.body_is_there(row, account)?;
            }
            let list = rows
                .iter()
                .map(|row| (row.size, client::numbers(&row.flags)))
                .collect();
            actual.insert(name.as_str().to_owned(), list);
            told.insert(name.as_str().to_owned(), uids);
        }
        self.node.hangup(session);
        let reply = self.ask_and_wait(Call::mailbox(account, MailboxCall::Usage))?;
        match reply {
            Reply::Usage(usage) if (usage.messages, usage.bytes) == (messages, bytes) => {}
            reply => {
                return Err(format!(
                    "{messages} messages of {bytes} bytes are shown: {reply:?}"
                ));
            }
        }
        Ok((actual, subscribed, told))
    }

    fn body_is_there(&mut self, row: &Row, account: AccountId) -> Result<(), String> {
        let reply = self.ask_and_wait(Call::BlobRead {
            blob: row.blob,
            offset: 0,
            len: 100,
        })?;
        if !matches!(&reply, Reply::Bytes(bytes) if *bytes == text(row.size)) {
            return Err(format!("D1: body {} cannot be read: {reply:?}", row.size));
        }
        let reply = self.ask_and_wait(Call::Contents {
            account,
            origins: vec![row.origin],
        })?;
        match &reply {
            Reply::Contents(contents) if contents.first() == Some(&Some(content(row.size))) => {
                Ok(())
            }
            _ => Err(format!(
                "D1: content of {} cannot be read: {reply:?}",
                row.size
            )),
        }
    }

    /// D2, at the end: what was accepted has been delivered.
    pub(super) fn all_delivered(&mut self) -> Result<(), String> {
        for sent in self.entries.values().filter(|sent| sent.acknowledged) {
            if !sent.reached {
                return Err(format!(
                    "D2: message {} was accepted and never delivered",
                    sent.body
                ));
            }
        }
        Ok(())
    }
}

fn see(uids: &mut Uids, client: &Client) -> Result<(), String> {
    let Some(view) = &client.view else {
        return Ok(());
    };
    view.messages
        .iter()
        .try_for_each(|known| uids.seen(&view.name, known.key, known.entered, known.uid))
}

/// The messages of a model with the UIDs that were told for them.
fn placed(model: &Model, told: &BTreeMap<String, Vec<u32>>) -> Vec<(String, Number, Number, u32)> {
    let list = |(name, uids): (&String, &Vec<u32>)| {
        let pairs = uids.iter().zip(&model.boxes[name]);
        pairs
            .map(|(uid, message)| (name.clone(), message.key, message.entered, *uid))
            .collect::<Vec<_>>()
    };
    told.iter()
        .filter(|(name, _)| !model.shuffled.contains(*name))
        .flat_map(list)
        .collect()
}

fn shape(model: &Model) -> BTreeMap<String, Vec<(u32, BTreeSet<u8>)>> {
    let list = |(name, messages): (&String, &Vec<Message>)| {
        let mut list: Vec<_> = messages.iter().map(|m| (m.body, m.flags.clone())).collect();
        if model.shuffled.contains(name) {
            list.sort();
        }
        (name.clone(), list)
    };
    model.boxes.iter().map(list).collect()
}
