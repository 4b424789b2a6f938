//! A client that keeps a mailbox, bodies too, and goes from node to node with it by QRESYNC (RFC 7162, 3.2.5): it believes what it is told of what it has, and
//! loads what is above its UIDNEXT. What it has then must be what is there: else it overlooks something, or shows what is gone, for ever.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    imap::{Imap, Reply, Resync, Status, quoted},
    message,
    process::wait_for,
    server::{ACCOUNTS, Server},
};

/// Flags by UID.
pub type Flags = BTreeMap<u32, BTreeSet<String>>;

/// What the client keeps of a mailbox of the first account.
#[derive(Clone, Debug)]
pub struct Device {
    /// The mailbox.
    pub mailbox: String,
    /// UIDVALIDITY
    pub validity: u32,
    /// UIDNEXT
    pub next: u32,
    /// HIGHESTMODSEQ
    pub modseq: u64,
    /// What is there.
    pub flags: Flags,
    /// What is there, and what it is.
    pub bodies: BTreeMap<u32, Vec<u8>>,
    /// What was there, and it was told that it vanished.
    gone: BTreeMap<u32, Vec<u8>>,
}

/// What a client loads when it comes to a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Names of messages that it did not have.
    pub new: BTreeSet<String>,
    /// Names of messages that it has under another UID.
    pub again: BTreeSet<String>,
}

/// One look at all of a mailbox, within the SELECT that told the rest.
struct Look {
    validity: u32,
    next: u32,
    modseq: u64,
    flags: Flags,
    bodies: BTreeMap<u32, Vec<u8>>,
    selected: Reply,
}

impl Look {
    /// `None`: something changed in the middle of it, or the node cannot serve now.
    fn at(server: &Server, mailbox: &str, parameter: &str) -> Option<Look> {
        let mut imap = server.login(ACCOUNTS[0]).ok()?;
        let enabled = imap.command("ENABLE QRESYNC").ok()?.ok("ENABLE");
        assert_eq!(enabled.data("ENABLED").len(), 1, "{enabled:?}");
        let select = format!("SELECT {}{parameter}", quoted(mailbox));
        let selected = imap.command(&select).ok()?;
        if selected.status == Status::No && selected.code == "UNAVAILABLE" {
            return None;
        }
        let selected = selected.ok("SELECT");
        let number = |name: &str| selected.code(name).and_then(|told| told.parse().ok());
        let small = |name: &str| selected.code_number(name);
        let mut look = Look {
            validity: small("UIDVALIDITY").expect("UIDVALIDITY"),
            next: small("UIDNEXT").expect("UIDNEXT"),
            modseq: number("HIGHESTMODSEQ").expect("HIGHESTMODSEQ"),
            flags: Flags::new(),
            bodies: BTreeMap::new(),
            selected,
        };
        let count = look.selected.exists().expect("EXISTS");
        if count > 0 {
            look.load(&mut imap)?;
        }
        (look.bodies.len() == count as usize).then_some(look)
    }

    fn load(&mut self, imap: &mut Imap) -> Option<()> {
        let fetched = imap.command("FETCH 1:* (UID FLAGS BODY.PEEK[])").ok()?;
        for (_, items) in fetched.fetched() {
            let (Some(uid), Some(body)) = (items.uid(), items.bytes("BODY[]")) else {
                continue;
            };
            self.bodies.insert(uid, body.to_vec());
            let flags = items.flags().expect("FLAGS");
            self.flags.insert(uid, flags.into_iter().collect());
        }
        (fetched.status == Status::Ok).then_some(())
    }
}

impl Device {
    /// One that knows nothing yet loads all that is there.
    #[must_use]
    pub fn of(server: &Server, mailbox: &str) -> Device {
        let look = wait_for("a look at all of it", || Look::at(server, mailbox, ""));
        Device {
            mailbox: mailbox.to_owned(),
            validity: look.validity,
            next: look.next,
            modseq: look.modseq,
            flags: look.flags,
            bodies: look.bodies,
            gone: BTreeMap::new(),
        }
    }

    /// The UID of each message.
    #[must_use]
    pub fn names(&self) -> BTreeMap<String, u32> {
        let names = self.bodies.iter();
        names.map(|(uid, bytes)| (name_of(bytes), *uid)).collect()
    }

    /// The UID of one that is there.
    #[must_use]
    pub fn uid(&self, name: &str) -> u32 {
        self.names()[name]
    }

    /// It goes on at a server.
    ///
    /// # Panics
    /// When what it believes then is not so, or something is there that it is not told.
    pub fn goes_on_at(&mut self, server: &Server) -> News {
        let uids: Vec<u32> = self.flags.keys().copied().collect();
        let parameter = format!(" {}", Resync::parameter(self.validity, self.modseq, &uids));
        let look = wait_for("a look at all of it", || {
            Look::at(server, &self.mailbox, &parameter)
        });
        let judged = self.takes(look);
        judged.unwrap_or_else(|breach| {
            panic!(
                "a client that had {:?} of {}, UIDNEXT {}, HIGHESTMODSEQ {}: {breach}",
                self.names(),
                self.mailbox,
                self.next,
                self.modseq
            )
        })
    }

    /// What it takes from FETCH and VANISHED.
    fn believes(&self, reply: &Reply) -> Result<Flags, String> {
        let mut flags = self.flags.clone();
        let told = Resync::of(reply)?;
        for (first, last) in told.vanished {
            flags.retain(|uid, _| !(first..=last).contains(uid));
        }
        flags.extend(told.changed);
        Ok(flags)
    }

    fn takes(&mut self, look: Look) -> Result<News, String> {
        if look.validity != self.validity {
            return Err(format!(
                "UIDVALIDITY {}, was {}",
                look.validity, self.validity
            ));
        }
        if look.next < self.next {
            return Err(format!(
                "UIDNEXT went back from {} to {}",
                self.next, look.next
            ));
        }
        let believed = self.believes(&look.selected)?;
        let below = |flags: &Flags| -> Flags {
            let known = flags.range(..self.next);
            known.map(|(uid, flags)| (*uid, flags.clone())).collect()
        };
        // A message that it had, and was told elsewhere to be gone, may be there still where nobody has heard of that.
        let (mut known, mut there) = (below(&believed), below(&look.flags));
        let again_there = |uid: &u32| self.gone.get(uid) == look.bodies.get(uid);
        known.retain(|uid, _| !self.gone.contains_key(uid) || !again_there(uid));
        there.retain(|uid, _| !self.gone.contains_key(uid) || !again_there(uid));
        if known != there {
            return Err(format!("it believes {known:?}, and it is {there:?}"));
        }
        let names = self.names();
        let mut news = News::default();
        for (uid, body) in &look.bodies {
            let before = self.bodies.get(uid).or_else(|| self.gone.get(uid));
            if before.is_some_and(|before| before != body) {
                return Err(format!("UID {uid} is another message"));
            }
            if *uid >= self.next {
                let name = name_of(body);
                match names.contains_key(&name) {
                    true => news.again.insert(name),
                    false => news.new.insert(name),
                };
            }
        }
        let before = std::mem::take(&mut self.bodies).into_iter();
        self.gone
            .extend(before.filter(|(uid, _)| !look.bodies.contains_key(uid)));
        self.gone.retain(|uid, _| !look.bodies.contains_key(uid));
        self.next = look.next;
        self.modseq = look.modseq;
        self.flags = look.flags;
        self.bodies = look.bodies;
        Ok(news)
    }
}

/// Its name, or for what other clients wrote its beginning.
fn name_of(body: &[u8]) -> String {
    let beginning = || String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
    message::name_of(body).unwrap_or_else(beginning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imap::{Fetched, Node, Response};

    /// UIDs with their names and flags.
    type Shown<'a> = &'a [(u32, &'a str, &'a str)];

    fn of(shown: Shown<'_>) -> (Flags, BTreeMap<u32, Vec<u8>>) {
        let flag = |flag: &str| BTreeSet::from([flag.to_owned()]);
        let messages = shown.iter();
        messages
            .map(|(uid, name, of)| ((*uid, flag(of)), (*uid, message::bytes(name, 100))))
            .unzip()
    }

    /// A client that has UIDs 3 and 5 (`a` and `b`), UIDNEXT 6, and knows that 4 is gone, comes to where this is, and is told this of it.
    #[track_caller]
    fn check(next: u32, there: Shown<'_>, told: Vec<Response>, expected: Result<News, &str>) {
        let (flags, bodies) = of(&[(3, "a", "x"), (5, "b", "x")]);
        let mut device = Device {
            mailbox: "INBOX".to_owned(),
            validity: 7,
            next: 6,
            modseq: 1,
            flags,
            bodies,
            gone: of(&[(4, "c", "x")]).1,
        };
        let (flags, bodies) = of(there);
        let look = Look {
            validity: 7,
            next,
            modseq: 2,
            flags,
            bodies,
            selected: Reply {
                status: Status::Ok,
                code: String::new(),
                text: String::new(),
                untagged: told,
            },
        };
        assert_eq!(device.takes(look), expected.map_err(str::to_owned));
    }

    fn vanished(set: &str) -> Response {
        let earlier = Node::List(vec![Node::Atom("EARLIER".into())]);
        Response::Data("VANISHED".to_owned(), vec![earlier, Node::Atom(set.into())])
    }

    fn changed(uid: u32, flag: &str) -> Response {
        let atom = |text: &str| Node::Atom(text.into());
        let items = vec![
            ("UID".to_owned(), atom(&uid.to_string())),
            ("FLAGS".to_owned(), Node::List(vec![atom(flag)])),
            ("MODSEQ".to_owned(), Node::List(vec![atom("9")])),
        ];
        Response::Fetch(1, Fetched { items })
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_it_believes_is_judged() {
        let both: Shown<'_> = &[(3, "a", "x"), (5, "b", "x")];
        let nothing = || Ok(News::default());
        check(6, both, vec![], nothing());
        check(6, &both[1..], vec![vanished("1:3")], nothing());
        check(
            6,
            &[(3, "a", "x"), (5, "b", "y")],
            vec![vanished("1:2"), changed(5, "y")],
            nothing(),
        );
        check(
            9,
            &[(3, "a", "x"), (7, "d", "x"), (8, "b", "x")],
            vec![vanished("5"), changed(7, "x"), changed(8, "x")],
            Ok(News {
                new: names(&["d"]),
                again: names(&["b"]),
            }),
        );
        // It was told at another node that this one is gone.
        check(
            6,
            &[(3, "a", "x"), (4, "c", "x"), (5, "b", "x")],
            vec![],
            nothing(),
        );

        let wrong = |next: u32, there: Shown<'_>, told: Vec<Response>, begins: &str| {
            let judged = std::panic::catch_unwind(|| check(next, there, told, Ok(News::default())));
            let said = judged.expect_err("an objection");
            let said = said.downcast_ref::<String>().expect("a text");
            assert!(said.contains(begins), "{said}");
        };
        wrong(5, both, vec![], "UIDNEXT went back from 6 to 5");
        wrong(6, &both[1..], vec![], "it believes {3: ");
        wrong(6, both, vec![vanished("3")], "it believes {5: ");
        wrong(6, both, vec![changed(5, "y")], "it believes {3: ");
        wrong(6, both, vec![changed(5, "x"), vanished("2")], "after FETCH");
        wrong(6, &[(3, "a", "x"), (5, "b", "y")], vec![], "and it is {3: ");
        wrong(
            6,
            &[(3, "a", "x"), (4, "d", "x"), (5, "b", "x")],
            vec![changed(5, "x")],
            "it believes",
        );
        wrong(
            6,
            &[(3, "d", "x"), (5, "b", "x")],
            vec![],
            "UID 3 is another",
        );
    }
}
