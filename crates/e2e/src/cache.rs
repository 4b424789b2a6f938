//! What a client that uses QRESYNC keeps of a mailbox, and the judgement of what it is told when it comes back (RFC 7162, 3.2.5).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    imap::{
        Node, Reply, Response,
        parse::{modseq, ranges},
    },
    model::Account,
};

/// A mailbox as it was at some MODSEQ.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Its name then.
    pub mailbox: String,
    validity: u32,
    modseq: u64,
    flags: BTreeMap<u32, BTreeSet<String>>,
}

impl Cache {
    /// What a client that has just been told everything knows.
    #[must_use]
    pub fn of(account: &Account, mailbox: &str, validity: u32, modseq: u64) -> Cache {
        let mails = account.mailbox(mailbox).mails.iter();
        Cache {
            mailbox: mailbox.to_owned(),
            validity,
            modseq,
            flags: mails
                .map(|(uid, mail)| (*uid, mail.flags.clone()))
                .collect(),
        }
    }

    /// The parameter of SELECT; with `known`, the client says which messages it knows.
    #[must_use]
    pub fn parameter(&self, known: bool) -> String {
        let uids: Vec<String> = self.flags.keys().map(u32::to_string).collect();
        let known = if known && !uids.is_empty() {
            format!(" {}", uids.join(","))
        } else {
            String::new()
        };
        format!("(QRESYNC ({} {}{known}))", self.validity, self.modseq)
    }

    /// What SELECT told, applied: the cache must then be the mailbox, as far as it reached.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn resync(mut self, reply: &Reply, account: &Account) -> Result<(), String> {
        let mails = &account.mailbox(&self.mailbox).mails;
        if reply.code_number("UIDVALIDITY") != Some(self.validity) {
            return Ok(());
        }
        let last = self.flags.keys().next_back().copied().unwrap_or(0);
        let mut fetched = false;
        for response in &reply.untagged {
            match response {
                Response::Data(name, nodes) if name == "VANISHED" => {
                    let [Node::List(_), set] = nodes.as_slice() else {
                        return Err(format!("not (EARLIER): {nodes:?}"));
                    };
                    if fetched {
                        return Err("VANISHED (EARLIER) after FETCH".to_owned());
                    }
                    for (first, last) in ranges(&set.text()) {
                        if let Some((uid, _)) = mails.range(first..=last).next() {
                            return Err(format!(
                                "UID {uid} is said to have vanished, and is there"
                            ));
                        }
                        self.flags.retain(|uid, _| !(first..=last).contains(uid));
                    }
                }
                Response::Fetch(_, items) => {
                    fetched = true;
                    let (Some(uid), Some(flags), Some(_)) = (
                        items.uid(),
                        items.flags(),
                        items.get("MODSEQ").and_then(modseq),
                    ) else {
                        return Err(format!("UID, FLAGS or MODSEQ is missing: {items:?}"));
                    };
                    if uid <= last {
                        self.flags.insert(uid, flags.into_iter().collect());
                    }
                }
                _ => {}
            }
        }
        let truth: BTreeMap<u32, BTreeSet<String>> = mails
            .range(..=last)
            .map(|(uid, mail)| (*uid, mail.flags.clone()))
            .collect();
        if self.flags == truth {
            Ok(())
        } else {
            Err(format!(
                "the client believes {:?}, and it is {truth:?}",
                self.flags
            ))
        }
    }
}
