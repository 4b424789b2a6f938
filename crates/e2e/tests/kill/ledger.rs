//! What one client knows of its own writes: for each message and mailbox, the states it may be in.
//!
//! Before a write is sent, both the state before and the state after are possible; its OK leaves the one, its NO the other; a cut
//! connection leaves both, until a look after the restart tells.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_e2e::{message, server::Message, uid_history::Witness};

/// Where a message is, and with which flags; `None`: nowhere.
pub(crate) type State = Option<Place>;

/// Mailbox and flags.
pub(crate) type Place = (String, BTreeSet<String>);

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct Fate {
    /// The size its bytes were made with.
    pub(crate) size: usize,
    /// Whether the server put trace fields before it.
    pub(crate) delivered: bool,
    /// The states it may be in; at least one.
    pub(crate) possible: Vec<State>,
    /// Its UID, when it is known to be in one place.
    pub(crate) uid: Option<u32>,
}

/// UIDVALIDITY, UIDNEXT, UIDs and names of messages.
pub(crate) type Cached = (u32, u32, Vec<(u32, String)>);

/// What a look at an account found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Name of a message: where it is.
    pub(crate) messages: BTreeMap<String, Vec<(String, Message)>>,
    /// Name of a mailbox: what a client caches of it.
    pub(crate) mailboxes: BTreeMap<String, Cached>,
}

/// All of one client.
pub(crate) struct Ledger {
    /// Which worker it is.
    pub(crate) number: usize,
    /// Whose mail it writes.
    pub(crate) account: usize,
    /// Every message it ever wrote and that may still be there.
    pub(crate) fates: BTreeMap<String, Fate>,
    /// Every message it ever wrote.
    written: BTreeSet<String>,
    /// Mailboxes of its own, and whether they may exist.
    pub(crate) mailboxes: BTreeMap<String, Vec<bool>>,
    /// Old and new name of a RENAME that was not answered: one of them exists.
    pub(crate) renaming: Vec<(String, String)>,
    /// Its cache by UID.
    pub(crate) witness: Witness,
    validity: BTreeMap<String, u32>,
    next: usize,
}

impl Ledger {
    pub(crate) fn new(number: usize, account: usize) -> Ledger {
        Ledger {
            number,
            account,
            fates: BTreeMap::new(),
            written: BTreeSet::new(),
            mailboxes: BTreeMap::new(),
            renaming: Vec::new(),
            witness: Witness::default(),
            validity: BTreeMap::new(),
            next: 0,
        }
    }

    pub(crate) fn messages(&self) -> usize {
        self.fates.len()
    }

    /// A name that was not used yet.
    pub(crate) fn name(&mut self, kind: &str) -> String {
        self.next += 1;
        format!("{kind}-{}-{}", self.number, self.next)
    }

    /// A message is about to be sent: it may come to be there.
    pub(crate) fn begin(
        &mut self,
        name: &str,
        size: usize,
        delivered: bool,
        state: (String, BTreeSet<String>),
    ) {
        self.written.insert(name.to_owned());
        let fate = Fate {
            size,
            delivered,
            possible: vec![None, Some(state)],
            uid: None,
        };
        self.fates.insert(name.to_owned(), fate);
    }

    /// A change is about to be sent.
    pub(crate) fn intend(&mut self, name: &str, after: State) {
        let fate = self.fates.get_mut(name).expect("a message of ours");
        fate.possible.push(after);
    }

    /// The last thing sent was acknowledged (the newest state holds) or refused (it does not).
    pub(crate) fn settle(&mut self, name: &str, done: bool) {
        let fate = self.fates.get_mut(name).expect("a message of ours");
        let last = fate.possible.pop().expect("an intended state");
        if done {
            fate.possible = vec![last];
        }
        if fate.possible == [None] {
            self.fates.remove(name);
        }
    }

    pub(crate) fn wrote(&self, name: &str) -> bool {
        self.written.contains(name)
    }

    /// Whether something that must come by delivery is not there yet. That is allowed for a while, and for nothing else.
    pub(crate) fn waits_for_delivery(&self, found: &Found) -> bool {
        self.fates.iter().any(|(name, fate)| {
            fate.delivered && !fate.possible.contains(&None) && !found.messages.contains_key(name)
        })
    }

    /// Compares, and learns.
    pub(crate) fn compare(&mut self, found: &Found) -> Result<(), String> {
        for (mailbox, (validity, next, messages)) in &found.mailboxes {
            self.witness.look(mailbox, *validity, *next, messages)?;
            if let Some(before) = self.validity.insert(mailbox.clone(), *validity)
                && before != *validity
            {
                return Err(format!(
                    "{mailbox}: UIDVALIDITY was {before} and is {validity}"
                ));
            }
        }
        for name in &self.written {
            if !self.fates.contains_key(name) && found.messages.contains_key(name) {
                return Err(format!("{name} is back: its removal was acknowledged"));
            }
        }
        let names: Vec<String> = self.fates.keys().cloned().collect();
        for name in names {
            self.compare_message(&name, found)?;
        }
        for (old, new) in self.renaming.drain(..) {
            if found.mailboxes.contains_key(&old) == found.mailboxes.contains_key(&new) {
                return Err(format!("RENAME of {old} to {new}: half done"));
            }
        }
        for (mailbox, possible) in &mut self.mailboxes {
            let exists = found.mailboxes.contains_key(mailbox);
            if !possible.contains(&exists) {
                return Err(format!(
                    "{mailbox} exists: {exists}, possible were {possible:?}"
                ));
            }
            *possible = vec![exists];
        }
        Ok(())
    }

    fn compare_message(&mut self, name: &str, found: &Found) -> Result<(), String> {
        let fate = self.fates.get_mut(name).expect("listed");
        let places = found.messages.get(name).map_or(&[][..], Vec::as_slice);
        let (state, uid) = match places {
            [] => (None, None),
            [(mailbox, at)] => {
                let sent = message::bytes(name, fate.size);
                let whole = if fate.delivered {
                    at.bytes.ends_with(&sent)
                } else {
                    at.bytes == sent
                };
                if !whole {
                    return Err(format!(
                        "{name}: other bytes than were written ({} of {})",
                        at.bytes.len(),
                        sent.len()
                    ));
                }
                (
                    Some((mailbox.clone(), at.flags.iter().cloned().collect())),
                    Some(at.uid),
                )
            }
            several => return Err(format!("{name} is there {} times", several.len())),
        };
        if !fate.possible.contains(&state) {
            return Err(format!(
                "{name} is {state:?}, possible were {:?}",
                fate.possible
            ));
        }
        fate.uid = uid;
        if state.is_some() {
            fate.possible = vec![state];
        } else if !fate.delivered {
            self.fates.remove(name);
        }
        // What a delivery that was never answered has not brought yet, it may still bring.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(mailbox: &str, flags: &[&str]) -> State {
        Some((
            mailbox.to_owned(),
            flags.iter().map(|flag| (*flag).to_owned()).collect(),
        ))
    }

    fn found(messages: &[(&str, &str, u32, &[&str])]) -> Found {
        let mut found = Found::default();
        for mailbox in ["INBOX", "Archive"] {
            found
                .mailboxes
                .insert(mailbox.to_owned(), (7, 100, Vec::new()));
        }
        for (name, mailbox, uid, flags) in messages {
            let at = Message {
                uid: *uid,
                flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
                bytes: message::bytes(name, 10),
            };
            found
                .messages
                .entry((*name).to_owned())
                .or_default()
                .push(((*mailbox).to_owned(), at));
            found
                .mailboxes
                .get_mut(*mailbox)
                .unwrap()
                .2
                .push((*uid, (*name).to_owned()));
        }
        found
    }

    /// A ledger with one message `a` in these states.
    fn check(
        possible: &[State],
        delivered: bool,
        seen: &[(&str, &str, u32, &[&str])],
        expected: Result<(), &str>,
    ) {
        let mut ledger = Ledger::new(0, 0);
        ledger.begin("a", 10, delivered, ("INBOX".to_owned(), BTreeSet::new()));
        ledger.fates.get_mut("a").unwrap().possible = possible.to_vec();
        let outcome = ledger.compare(&found(seen));
        assert_eq!(
            outcome.map_err(|error| error.split([':', ',']).next().unwrap().to_owned()),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn looks_are_judged() {
        let (gone, here, flagged) = (None, place("INBOX", &[]), place("INBOX", &["x"]));
        check(
            std::slice::from_ref(&here),
            false,
            &[("a", "INBOX", 1, &[])],
            Ok(()),
        );
        check(std::slice::from_ref(&here), false, &[], Err("a is None"));
        check(
            &[here.clone(), flagged.clone()],
            false,
            &[("a", "INBOX", 1, &["x"])],
            Ok(()),
        );
        check(
            &[flagged],
            false,
            &[("a", "INBOX", 1, &[])],
            Err("a is Some((\"INBOX\""),
        );
        check(&[gone.clone(), here.clone()], false, &[], Ok(()));
        check(
            &[here.clone(), place("Archive", &[])],
            false,
            &[("a", "Archive", 1, &[])],
            Ok(()),
        );
        check(
            &[here.clone(), place("Archive", &[])],
            false,
            &[("a", "Archive", 1, &[]), ("a", "INBOX", 1, &[])],
            Err("a is there 2 times"),
        );
        check(
            std::slice::from_ref(&here),
            false,
            &[("a", "INBOX", 100, &[])],
            Err("INBOX"),
        );
        check(&[gone, here], true, &[], Ok(()));
    }

    #[test]
    fn what_was_removed_stays_away() {
        let mut ledger = Ledger::new(0, 0);
        ledger.begin("a", 10, false, ("INBOX".to_owned(), BTreeSet::new()));
        ledger.settle("a", true);
        ledger.intend("a", None);
        ledger.settle("a", true);
        assert_eq!(ledger.compare(&found(&[])), Ok(()));
        assert!(ledger.compare(&found(&[("a", "INBOX", 1, &[])])).is_err());
    }
}
