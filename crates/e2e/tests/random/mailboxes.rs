//! Commands that change mailboxes: CREATE, DELETE, RENAME, SUBSCRIBE, UNSUBSCRIBE.

use std::collections::BTreeMap;

use whimbrel_e2e::{
    imap::quoted,
    model::{Allowed, Mail, Mailbox},
};

use super::driver::Driver;

const NAMES: &[&str] = &[
    "a",
    "a/x",
    "a/x/deep",
    "b",
    "b/y",
    "c c",
    "d.d",
    "Archive/2026",
];

/// The names above a name: `a/x/deep` has `a` and `a/x`.
fn superiors(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').map(|(at, _)| &name[..at])
}

impl Driver<'_> {
    pub(crate) fn change_mailboxes(&mut self, session: usize) {
        let name = (*self.random.pick(NAMES).unwrap()).to_owned();
        match self.random.below(5) {
            0 | 1 => self.create(session, &name),
            2 => self.delete(session, &name),
            3 => self.rename(session, &name),
            _ => {
                let verb = if self.random.one_in(2) {
                    "SUBSCRIBE"
                } else {
                    "UNSUBSCRIBE"
                };
                let _ = self.must(
                    session,
                    &format!("{verb} {}", quoted(&name)),
                    &Allowed::default(),
                );
            }
        }
        if self.list() != self.account.mailboxes.keys().cloned().collect::<Vec<_>>() {
            let names = self.list();
            self.wrong(
                "LIST",
                &format!("{names:?} instead of {:?}", self.account.mailboxes.keys()),
            );
        }
    }

    fn create(&mut self, session: usize, name: &str) {
        let command = format!("CREATE {}", quoted(name));
        if self.account.mailboxes.contains_key(name) {
            let _ = self.must_not(session, &command);
            return;
        }
        let _ = self.must(session, &command, &Allowed::default());
        self.exists_now(name);
    }

    /// RFC 9051, 6.3.4: "the server SHOULD create any superior hierarchical names that are needed". Ours does.
    fn exists_now(&mut self, name: &str) {
        for name in superiors(name).chain([name]) {
            self.account.mailboxes.entry(name.to_owned()).or_default();
        }
    }

    fn delete(&mut self, session: usize, name: &str) {
        let command = format!("DELETE {}", quoted(name));
        if !self.account.mailboxes.contains_key(name) {
            let _ = self.must_not(session, &command);
            return;
        }
        let below = format!("{name}/");
        // What becomes of names above others is the server's choice; of selected ones, too.
        if self.is_watched(name)
            || self
                .account
                .mailboxes
                .keys()
                .any(|of| of.starts_with(&below))
        {
            return;
        }
        let _ = self.must(session, &command, &Allowed::default());
        self.account.remove(name);
    }

    fn rename(&mut self, session: usize, from: &str) {
        let to = (*self.random.pick(NAMES).unwrap()).to_owned();
        let command = format!("RENAME {} {}", quoted(from), quoted(&to));
        if !self.account.mailboxes.contains_key(from) || self.account.mailboxes.contains_key(&to) {
            let _ = self.must_not(session, &command);
            return;
        }
        if to.starts_with(&format!("{from}/"))
            || from.starts_with(&format!("{to}/"))
            || self.is_watched(from)
        {
            return;
        }
        let below = format!("{from}/");
        let moved: Vec<String> = self
            .account
            .mailboxes
            .keys()
            .filter(|of| *of == from || of.starts_with(&below))
            .cloned()
            .collect();
        let _ = self.must(session, &command, &Allowed::default());
        self.exists_now(&to);
        for old in moved {
            let new = format!("{to}{}", &old[from.len()..]);
            let mailbox = self.account.remove(&old);
            self.account
                .mailboxes
                .insert(new.clone(), Mailbox::default());
            // Under a name that had UIDs before, messages may get others, and with them another order; they and their flags are the same.
            let seen = self.look(&new);
            let sorted = |mails: &BTreeMap<u32, Mail>| {
                let mut list: Vec<Mail> = mails.values().cloned().collect();
                list.sort_by(|a, b| (&a.name, &a.flags).cmp(&(&b.name, &b.flags)));
                list
            };
            if sorted(&seen) != sorted(&mailbox.mails) {
                self.wrong(
                    &command,
                    &format!("{new}: {seen:?} instead of {:?}", mailbox.mails),
                );
            }
            self.account.mailbox_mut(&new).mails = seen;
        }
    }
}
