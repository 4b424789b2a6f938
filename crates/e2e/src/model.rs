//! What a random client believes of one account, and the judgement of what a session is told.
//!
//! One thread drives all sessions of an account, one command at a time, so what is true is known at every moment ([`Account`]); what a
//! session has been told of it ([`View`]) lags behind until the session may be told. Every untagged response is applied to the view
//! by the rules of RFC 9051, 7.4 and 7.5, and compared with what is true.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    imap::{Fetched, Node, Response, Status, parse::ranges},
    message,
    uid_history::Witness,
};

/// A message that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Its name: bytes follow from name and size.
    pub name: String,
    /// The size it was made with.
    pub size: usize,
    /// Its flags.
    pub flags: BTreeSet<String>,
}

impl Mail {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        message::bytes(&self.name, self.size)
    }
}

/// A mailbox that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mailbox {
    /// By UID.
    pub mails: BTreeMap<u32, Mail>,
    /// The greatest UIDNEXT told.
    pub next: u32,
}

/// What is true of an account.
#[derive(Debug, Default)]
pub struct Account {
    /// By name.
    pub mailboxes: BTreeMap<String, Mailbox>,
    /// The UIDVALIDITY of each.
    pub validity: BTreeMap<String, u32>,
    /// What UIDs were told for.
    pub witness: Witness,
}

/// What a session knows of its mailbox.
#[derive(Clone, Debug)]
pub struct View {
    /// Its name.
    pub mailbox: String,
    /// EXAMINE.
    pub read_only: bool,
    /// ENABLE QRESYNC was given: VANISHED instead of EXPUNGE.
    pub qresync: bool,
    /// UIDs by sequence number. The client knows them: a new message has the next UID there is.
    pub uids: Vec<u32>,
    /// Flags as last told.
    pub told: BTreeMap<u32, BTreeSet<String>>,
}

/// What a command allows the server to tell, and changed.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// FETCH, STORE, SEARCH by number: "An EXPUNGE response MUST NOT be sent" (RFC 9051, 7.5.1).
    pub no_expunge: bool,
    /// Flags as they were before the command: it may tell them still.
    pub before: BTreeMap<u32, BTreeSet<String>>,
    /// A command that may have been anything may be answered with BYE.
    pub bye: bool,
}

impl Account {
    /// A mailbox that exists.
    #[must_use]
    pub fn mailbox(&self, name: &str) -> &Mailbox {
        self.mailboxes
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not in the model"))
    }

    /// The same, to be changed.
    pub fn mailbox_mut(&mut self, name: &str) -> &mut Mailbox {
        self.mailboxes
            .get_mut(name)
            .unwrap_or_else(|| panic!("{name} is not in the model"))
    }

    /// Takes in a message under the UID that was told for it.
    ///
    /// # Errors
    /// What is wrong with that UID.
    pub fn add(
        &mut self,
        mailbox: &str,
        validity: u32,
        uid: u32,
        mail: Mail,
    ) -> Result<(), String> {
        self.check_validity(mailbox, validity)?;
        self.witness.told(mailbox, validity, uid, &mail.name)?;
        let into = self.mailbox_mut(mailbox);
        if into
            .mails
            .keys()
            .next_back()
            .is_some_and(|last| *last >= uid)
            || uid < into.next
        {
            return Err(format!(
                "{mailbox}: new UID {uid}, UIDNEXT was {}, last was {:?}",
                into.next,
                into.mails.keys().next_back()
            ));
        }
        into.mails.insert(uid, mail);
        into.next = uid;
        Ok(())
    }

    /// A name is free: whatever bears it later may have another UIDVALIDITY. If it has the same, the witness knows what UIDs were told.
    pub fn remove(&mut self, mailbox: &str) -> Mailbox {
        self.validity.remove(mailbox);
        self.mailboxes.remove(mailbox).unwrap_or_default()
    }

    /// UIDVALIDITY does not change.
    ///
    /// # Errors
    /// If it did.
    pub fn check_validity(&mut self, mailbox: &str, validity: u32) -> Result<(), String> {
        let known = *self.validity.entry(mailbox.to_owned()).or_insert(validity);
        if known == validity {
            Ok(())
        } else {
            Err(format!("{mailbox}: UIDVALIDITY {validity}, was {known}"))
        }
    }
}

impl View {
    /// What SELECT told.
    #[must_use]
    pub fn new(account: &Account, mailbox: &str, read_only: bool, qresync: bool) -> View {
        let uids = account.mailbox(mailbox).mails.keys().copied().collect();
        View {
            mailbox: mailbox.to_owned(),
            read_only,
            qresync,
            uids,
            told: BTreeMap::new(),
        }
    }

    /// Applies one untagged response.
    ///
    /// # Errors
    /// What contradicts the protocol or the truth.
    pub fn hear(
        &mut self,
        response: &Response,
        account: &Account,
        allowed: &Allowed,
    ) -> Result<(), String> {
        let mails = &account.mailbox(&self.mailbox).mails;
        match response {
            Response::Exists(count) => {
                let count = *count as usize;
                let last = self.uids.last().copied().unwrap_or(0);
                let mut news = mails.range(last + 1..).map(|(uid, _)| *uid);
                if count < self.uids.len() {
                    return Err(format!(
                        "EXISTS went from {} to {count} without EXPUNGE",
                        self.uids.len()
                    ));
                }
                while self.uids.len() < count {
                    self.uids.push(
                        news.next()
                            .ok_or_else(|| format!("EXISTS {count}, and there are not so many"))?,
                    );
                }
            }
            Response::Expunge(number) => {
                let at = self.index(*number)?;
                if self.qresync {
                    return Err(format!("EXPUNGE {number}, and QRESYNC is enabled"));
                }
                if allowed.no_expunge {
                    return Err(format!(
                        "EXPUNGE {number} within a command by sequence numbers"
                    ));
                }
                let uid = self.uids.remove(at);
                self.told.remove(&uid);
                if mails.contains_key(&uid) {
                    return Err(format!("EXPUNGE {number}, and UID {uid} is there"));
                }
            }
            Response::Data(name, nodes) if name == "VANISHED" => {
                // (EARLIER) is judged where it is asked for.
                if let [set @ Node::Atom(_)] = nodes.as_slice() {
                    self.hear_vanished(&set.text(), mails, allowed)?;
                }
            }
            Response::Fetch(number, items) => {
                let uid = self.uids[self.index(*number)?];
                self.hear_fetch(*number, uid, items, mails.get(&uid), allowed)?;
            }
            Response::State(Status::Bye, _, text) if !allowed.bye => {
                return Err(format!("BYE {text}"));
            }
            Response::State(..) | Response::Data(..) | Response::Recent(_) => {}
            Response::Tagged(..) | Response::Continue(_) => return Err(format!("{response:?}")),
        }
        Ok(())
    }

    /// "Each UID listed in a VANISHED response results in the client decrementing the message count by one" (RFC 7162, 3.2.10.2).
    fn hear_vanished(
        &mut self,
        set: &str,
        mails: &BTreeMap<u32, Mail>,
        allowed: &Allowed,
    ) -> Result<(), String> {
        if !self.qresync || allowed.no_expunge {
            return Err(format!("VANISHED {set} where it may not be"));
        }
        for uid in ranges(set)
            .into_iter()
            .flat_map(|(first, last)| first..=last)
        {
            if mails.contains_key(&uid) {
                return Err(format!("VANISHED {set}, and UID {uid} is there"));
            }
            let Ok(at) = self.uids.binary_search(&uid) else {
                return Err(format!("VANISHED {set}, and UID {uid} was not seen"));
            };
            self.uids.remove(at);
            self.told.remove(&uid);
        }
        Ok(())
    }

    fn index(&self, number: u32) -> Result<usize, String> {
        let count = self.uids.len();
        match usize::try_from(number) {
            Ok(number) if (1..=count).contains(&number) => Ok(number - 1),
            _ => Err(format!("number {number} of {count}")),
        }
    }

    fn hear_fetch(
        &mut self,
        number: u32,
        uid: u32,
        items: &Fetched,
        mail: Option<&Mail>,
        allowed: &Allowed,
    ) -> Result<(), String> {
        if items.uid().is_some_and(|told| told != uid) {
            return Err(format!(
                "number {number} is UID {uid}, told was {:?}",
                items.uid()
            ));
        }
        // Of a message that is gone, and of which this session was not told so, anything old may be told.
        let Some(mail) = mail else { return Ok(()) };
        if let Some(flags) = items.flags() {
            let flags: BTreeSet<String> = flags.into_iter().collect();
            if flags != mail.flags && allowed.before.get(&uid) != Some(&flags) {
                return Err(format!(
                    "flags of UID {uid}: {flags:?} instead of {:?}",
                    mail.flags
                ));
            }
            self.told.insert(uid, flags);
        }
        for (name, value) in &items.items {
            judge_item(uid, name, value, mail)?;
        }
        Ok(())
    }

    /// After NOOP a session knows everything.
    ///
    /// # Errors
    /// What it was not told.
    pub fn knows_all(&self, account: &Account) -> Result<(), String> {
        let mails = &account.mailbox(&self.mailbox).mails;
        if !self.uids.iter().eq(mails.keys()) {
            return Err(format!(
                "told of {:?}, there are {:?}",
                self.uids,
                mails.keys().collect::<Vec<_>>()
            ));
        }
        for (uid, told) in &self.told {
            if mails.get(uid).is_some_and(|mail| mail.flags != *told) {
                return Err(format!(
                    "flags of UID {uid}: told were {told:?}, and they are {:?}",
                    mails[uid].flags
                ));
            }
        }
        Ok(())
    }
}

/// Whether the value of a FETCH item is what the message says.
fn judge_item(uid: u32, name: &str, value: &Node, mail: &Mail) -> Result<(), String> {
    let bytes = || mail.bytes();
    let head_ends = |bytes: &[u8]| {
        bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .map_or(bytes.len(), |at| at + 4)
    };
    let expected: Vec<u8> = match name {
        "RFC822.SIZE" => bytes().len().to_string().into_bytes(),
        "BODY[]" | "RFC822" | "BINARY[]" => bytes(),
        "BODY[HEADER]" | "RFC822.HEADER" => {
            let bytes = bytes();
            bytes[..head_ends(&bytes)].to_vec()
        }
        "BODY[TEXT]" | "BODY[1]" | "RFC822.TEXT" => {
            let bytes = bytes();
            bytes[head_ends(&bytes)..].to_vec()
        }
        "BODY[HEADER.FIELDS (SUBJECT)]" => {
            format!("Subject: subject of {}\r\n\r\n", mail.name).into_bytes()
        }
        "ENVELOPE" => {
            let Node::List(list) = value else {
                return Err(format!("ENVELOPE of UID {uid}: {value:?}"));
            };
            let subject = list.get(1).map(Node::text).unwrap_or_default();
            let id = list.get(9).map(Node::text).unwrap_or_default();
            return if subject == format!("subject of {}", mail.name)
                && id == format!("<{}@example.net>", mail.name)
            {
                Ok(())
            } else {
                Err(format!(
                    "ENVELOPE of UID {uid}: {subject}, {id} instead of {}",
                    mail.name
                ))
            };
        }
        "BODYSTRUCTURE" | "BODY" => {
            let Node::List(list) = value else {
                return Err(format!("{name} of UID {uid}: {value:?}"));
            };
            let bytes = bytes();
            let octets = (bytes.len() - head_ends(&bytes)).to_string();
            // ("TEXT" "PLAIN" (parameters) id description encoding octets lines ...
            let told = list.get(6).map(Node::text).unwrap_or_default();
            return if told == octets {
                Ok(())
            } else {
                Err(format!(
                    "{name} of UID {uid}: {told} octets instead of {octets}"
                ))
            };
        }
        _ => match partial(name) {
            Some(offset) => {
                let bytes = bytes();
                let from = bytes.get(offset..).unwrap_or_default();
                let Node::Text(told) = value else {
                    return if from.is_empty() {
                        Ok(())
                    } else {
                        Err(format!("{name} of UID {uid}: {value:?}"))
                    };
                };
                // How much was asked for, the answer does not say; what it gives must be what stands there.
                return if from.starts_with(told) {
                    Ok(())
                } else {
                    Err(format!("{name} of UID {uid}: other bytes"))
                };
            }
            None => return Ok(()),
        },
    };
    let told: &[u8] = match value {
        Node::Text(bytes) | Node::Atom(bytes) => bytes,
        Node::Nil => b"",
        Node::List(_) => return Err(format!("{name} of UID {uid} is a list")),
    };
    if told == expected {
        Ok(())
    } else {
        Err(format!(
            "{name} of UID {uid} ({}): {} bytes instead of {}",
            mail.name,
            told.len(),
            expected.len()
        ))
    }
}

/// The offset of `BODY[]<offset>`.
fn partial(name: &str) -> Option<usize> {
    name.strip_prefix("BODY[]<")?
        .strip_suffix('>')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        let mut account = Account::default();
        let mut mailbox = Mailbox::default();
        for uid in [3, 5, 7] {
            let mail = Mail {
                name: format!("m-{uid}"),
                size: 100,
                flags: BTreeSet::from(["a".to_owned()]),
            };
            mailbox.mails.insert(uid, mail);
        }
        account.mailboxes.insert("INBOX".to_owned(), mailbox);
        account
    }

    /// A session that knows UIDs 3, 4 and 5 (4 is gone, 7 is new) hears these.
    fn check(responses: &[Response], no_expunge: bool, expected: Result<&[u32], &str>) {
        let account = account();
        let mut view = View {
            mailbox: "INBOX".to_owned(),
            read_only: false,
            qresync: false,
            uids: vec![3, 4, 5],
            told: BTreeMap::new(),
        };
        let allowed = Allowed {
            no_expunge,
            ..Allowed::default()
        };
        let outcome = responses
            .iter()
            .try_for_each(|response| view.hear(response, &account, &allowed));
        let outcome = outcome.map(|()| view.uids);
        assert_eq!(
            outcome,
            expected.map(<[u32]>::to_vec).map_err(str::to_owned),
            "{responses:?}"
        );
    }

    fn fetch(number: u32, name: &str, value: Node) -> Response {
        Response::Fetch(
            number,
            Fetched {
                items: vec![(name.to_owned(), value)],
            },
        )
    }

    #[test]
    fn what_has_vanished_is_judged() {
        #[track_caller]
        fn check(qresync: bool, no_expunge: bool, set: &str, expected: Result<&[u32], &str>) {
            let account = account();
            let mut view = View {
                mailbox: "INBOX".to_owned(),
                read_only: false,
                qresync,
                uids: vec![3, 4, 5],
                told: BTreeMap::new(),
            };
            let allowed = Allowed {
                no_expunge,
                ..Allowed::default()
            };
            let response = Response::Data("VANISHED".to_owned(), vec![Node::Atom(set.into())]);
            let outcome = view.hear(&response, &account, &allowed).map(|()| view.uids);
            assert_eq!(
                outcome,
                expected.map(<[u32]>::to_vec).map_err(str::to_owned)
            );
        }
        check(true, false, "4", Ok(&[3, 5]));
        check(true, true, "4", Err("VANISHED 4 where it may not be"));
        check(false, false, "4", Err("VANISHED 4 where it may not be"));
        check(true, false, "4:5", Err("VANISHED 4:5, and UID 5 is there"));
        check(true, false, "6", Err("VANISHED 6, and UID 6 was not seen"));
    }

    #[test]
    fn what_is_heard_is_judged() {
        let atom = |text: &str| Node::Atom(text.into());
        check(
            &[Response::Expunge(2), Response::Exists(3)],
            false,
            Ok(&[3, 5, 7]),
        );
        check(&[Response::Exists(4)], false, Ok(&[3, 4, 5, 7]));
        check(
            &[Response::Exists(5)],
            false,
            Err("EXISTS 5, and there are not so many"),
        );
        check(
            &[Response::Exists(2)],
            false,
            Err("EXISTS went from 3 to 2 without EXPUNGE"),
        );
        check(
            &[Response::Expunge(2)],
            true,
            Err("EXPUNGE 2 within a command by sequence numbers"),
        );
        check(
            &[Response::Expunge(1)],
            false,
            Err("EXPUNGE 1, and UID 3 is there"),
        );
        check(
            &[Response::Expunge(2), Response::Expunge(3)],
            false,
            Err("number 3 of 2"),
        );
        check(&[fetch(3, "UID", atom("5"))], false, Ok(&[3, 4, 5]));
        check(
            &[fetch(3, "UID", atom("4"))],
            false,
            Err("number 3 is UID 5, told was Some(4)"),
        );
        check(
            &[fetch(3, "FLAGS", Node::List(vec![atom("a")]))],
            false,
            Ok(&[3, 4, 5]),
        );
        check(
            &[fetch(3, "FLAGS", Node::List(vec![]))],
            false,
            Err("flags of UID 5: {} instead of {\"a\"}"),
        );
        check(
            &[fetch(3, "BODY[]", Node::Text(message::bytes("m-5", 100)))],
            false,
            Ok(&[3, 4, 5]),
        );
        check(
            &[fetch(3, "BODY[]", Node::Text(message::bytes("m-7", 100)))],
            false,
            Err("BODY[] of UID 5 (m-5): 175 bytes instead of 175"),
        );
        check(
            &[fetch(
                3,
                "BODY[]<4>",
                Node::Text(message::bytes("m-5", 100)[4..20].to_vec()),
            )],
            false,
            Ok(&[3, 4, 5]),
        );
        check(
            &[fetch(
                3,
                "BODY[]<4>",
                Node::Text(message::bytes("m-5", 100)[5..20].to_vec()),
            )],
            false,
            Err("BODY[]<4> of UID 5: other bytes"),
        );
        check(
            &[Response::State(
                Status::Bye,
                String::new(),
                "why".to_owned(),
            )],
            false,
            Err("BYE why"),
        );
    }
}
