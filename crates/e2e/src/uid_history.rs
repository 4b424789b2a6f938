//! What a client that caches by UID relies on, checked over everything it is told, restarts of the server included.
//!
//! - **U1** a (mailbox name, UIDVALIDITY, UID) never denotes two messages.
//! - **U2** whatever is new has a UID of at least every UIDNEXT told before (RFC 9051, 2.3.1.1).

use std::collections::BTreeMap;

/// The cache of one client.
#[derive(Debug, Default)]
pub struct Witness {
    seen: BTreeMap<(String, u32, u32), String>,
    told_next: BTreeMap<(String, u32), u32>,
}

impl Witness {
    /// A whole look at a mailbox: its UIDVALIDITY, the UIDNEXT told with it, and UID and name of every message in it.
    ///
    /// # Errors
    /// What is broken.
    pub fn look(
        &mut self,
        mailbox: &str,
        validity: u32,
        next: u32,
        messages: &[(u32, String)],
    ) -> Result<(), String> {
        let epoch = (mailbox.to_owned(), validity);
        let floor = self.told_next.get(&epoch).copied().unwrap_or(0);
        if next < floor {
            return Err(format!(
                "{mailbox}: UIDNEXT went back from {floor} to {next}"
            ));
        }
        for (uid, name) in messages {
            self.assign(mailbox, validity, *uid, name, floor)?;
            if *uid >= next {
                return Err(format!("{mailbox}: UID {uid} is not below UIDNEXT {next}"));
            }
        }
        self.told_next.insert(epoch, next);
        Ok(())
    }

    /// Forgets the UIDNEXTs it was told: only U1 is checked against what came before.
    pub fn forget_next(&mut self) {
        self.told_next.clear();
    }

    /// A UID told in passing (APPENDUID, COPYUID).
    ///
    /// # Errors
    /// What is broken.
    pub fn told(
        &mut self,
        mailbox: &str,
        validity: u32,
        uid: u32,
        name: &str,
    ) -> Result<(), String> {
        let floor = self
            .told_next
            .get(&(mailbox.to_owned(), validity))
            .copied()
            .unwrap_or(0);
        self.assign(mailbox, validity, uid, name, floor)
    }

    fn assign(
        &mut self,
        mailbox: &str,
        validity: u32,
        uid: u32,
        name: &str,
        floor: u32,
    ) -> Result<(), String> {
        let key = (mailbox.to_owned(), validity, uid);
        match self.seen.get(&key) {
            Some(before) if before == name => Ok(()),
            Some(before) => Err(format!(
                "U1: {mailbox} {validity} {uid} was {before} and is {name}"
            )),
            None if uid < floor => Err(format!(
                "U2: {mailbox}: {name} is new with UID {uid} after UIDNEXT {floor} was told"
            )),
            None => {
                self.seen.insert(key, name.to_owned());
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UIDVALIDITY, UIDNEXT, messages.
    type Look<'a> = (u32, u32, &'a [(u32, &'a str)]);

    fn check(looks: &[Look<'_>], expected: Result<(), &str>) {
        let mut witness = Witness::default();
        let outcome = looks.iter().try_for_each(|(validity, next, messages)| {
            let messages: Vec<(u32, String)> = messages
                .iter()
                .map(|(uid, name)| (*uid, (*name).to_owned()))
                .collect();
            witness.look("INBOX", *validity, *next, &messages)
        });
        assert_eq!(outcome, expected.map_err(str::to_owned));
    }

    #[test]
    fn looks_are_judged() {
        check(
            &[(1, 3, &[(1, "a"), (2, "b")]), (1, 5, &[(2, "b"), (4, "c")])],
            Ok(()),
        );
        check(
            &[(1, 3, &[(1, "a"), (2, "b")]), (1, 3, &[(2, "c")])],
            Err("U1: INBOX 1 2 was b and is c"),
        );
        check(
            &[(1, 5, &[(1, "a")]), (1, 5, &[(1, "a"), (3, "b")])],
            Err("U2: INBOX: b is new with UID 3 after UIDNEXT 5 was told"),
        );
        check(
            &[(1, 5, &[]), (1, 4, &[])],
            Err("INBOX: UIDNEXT went back from 5 to 4"),
        );
        check(
            &[(1, 5, &[(5, "a")])],
            Err("INBOX: UID 5 is not below UIDNEXT 5"),
        );
        // Another UIDVALIDITY is another mailbox.
        check(&[(1, 5, &[(1, "a")]), (2, 2, &[(1, "b")])], Ok(()));
    }
}
