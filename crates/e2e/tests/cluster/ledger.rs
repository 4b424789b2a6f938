//! What was done to each message, what of it was acknowledged, and where: the judge of what is there in the end.
//!
//! A message has one writer, who does one thing after the other to it and stops when an answer stays away. So what is there must be what it was after
//! one of its steps: not before the last one that cannot be lost, and not behind the last one that was sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

/// What is done to a message after it came to INBOX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    /// By LMTP: nothing.
    Delivered,
    /// A flag is set.
    Flagged,
    /// It is copied to Work.
    Copied,
    /// It is moved to Work.
    Moved,
    /// `\Deleted` is set, and it is expunged.
    Expunged,
}

/// Lives of messages that IMAP brings.
pub(crate) const LIVES: [Life; 4] = [Life::Flagged, Life::Copied, Life::Moved, Life::Expunged];

/// Where a message is, and with which flags.
pub(crate) type Places = BTreeMap<&'static str, BTreeSet<String>>;

impl Life {
    /// What there is of a message after so many steps, the first of which brings it.
    fn after(self, steps: usize) -> Places {
        let with = |flags: &[&str]| flags.iter().map(|flag| (*flag).to_owned()).collect();
        let inbox = |flags: &[&str]| Places::from([("INBOX", with(flags))]);
        match (steps, self) {
            (0, _) => Places::new(),
            (1, _) | (_, Life::Delivered) => inbox(&[]),
            (_, Life::Flagged) => inbox(&["$Set"]),
            (_, Life::Copied) => Places::from([("INBOX", with(&[])), ("Work", with(&[]))]),
            (_, Life::Moved) => Places::from([("Work", with(&[]))]),
            (2, Life::Expunged) => inbox(&["\\Deleted"]),
            (_, Life::Expunged) => Places::new(),
        }
    }
}

/// One message.
#[derive(Clone, Debug)]
struct Entry {
    life: Life,
    node: usize,
    /// Steps that were acknowledged.
    done: usize,
    /// Steps that no fault of one node may take back.
    safe: usize,
    /// One more was sent, and what became of it is not known.
    open: bool,
}

/// All messages, by name.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<String, Entry>>);

impl Ledger {
    fn change<T>(&self, then: impl FnOnce(&mut BTreeMap<String, Entry>) -> T) -> T {
        then(&mut self.0.lock().unwrap())
    }

    /// The next step is sent.
    pub(crate) fn sends(&self, name: &str, life: Life, node: usize) {
        self.change(|entries| {
            let new = || Entry {
                life,
                node,
                done: 0,
                safe: 0,
                open: false,
            };
            entries.entry(name.to_owned()).or_insert_with(new).open = true;
        });
    }

    /// It was refused: nothing was done.
    pub(crate) fn refused(&self, name: &str) {
        self.change(|entries| entries.get_mut(name).unwrap().open = false);
    }

    /// It was acknowledged.
    pub(crate) fn acknowledged(&self, name: &str) {
        self.change(|entries| {
            let entry = entries.get_mut(name).unwrap();
            entry.done += 1;
            entry.open = false;
            entry.safe = entry.done;
        });
    }

    /// How many steps were acknowledged at a node.
    pub(crate) fn count(&self, node: usize) -> usize {
        self.change(|entries| {
            let of = entries.values().filter(|entry| entry.node == node);
            of.map(|entry| entry.done).sum()
        })
    }

    /// What was acknowledged at a node, step by step of each message.
    pub(crate) fn at(&self, node: usize) -> BTreeMap<String, usize> {
        self.change(|entries| {
            let of = entries.iter().filter(|(_, entry)| entry.node == node);
            of.map(|(name, entry)| (name.clone(), entry.done)).collect()
        })
    }

    /// The disk of a node is lost, and with it what IMAP acknowledged there, which promises that disk alone (`imap.other_nodes`), but for what others
    /// have. LMTP acknowledges when another node has it. How many steps may be lost.
    pub(crate) fn lost(&self, node: usize, others_have: &BTreeMap<String, usize>) -> usize {
        self.change(|entries| {
            let mut lost = 0;
            for (name, entry) in entries.iter_mut() {
                if entry.node == node && entry.life != Life::Delivered {
                    entry.safe = others_have.get(name).copied().unwrap_or(0);
                    lost += entry.done - entry.safe;
                }
            }
            lost
        })
    }

    /// How many messages of each life had it to its end.
    pub(crate) fn whole(&self) -> BTreeMap<Life, usize> {
        self.change(|entries| {
            let mut whole = BTreeMap::new();
            for entry in entries.values() {
                let last = match entry.life {
                    Life::Delivered => 1,
                    Life::Expunged => 3,
                    _ => 2,
                };
                *whole.entry(entry.life).or_default() += usize::from(entry.done == last);
            }
            whole
        })
    }

    /// What is wrong with what is shown.
    pub(crate) fn wrong(&self, shown: &BTreeMap<String, Places>) -> Option<String> {
        self.change(|entries| {
            if let Some(name) = shown.keys().find(|name| !entries.contains_key(*name)) {
                return Some(format!("{name} is there, and nobody wrote it"));
            }
            for (name, entry) in entries.iter() {
                let there = shown.get(name).cloned().unwrap_or_default();
                let mut may = entry.safe..=entry.done + usize::from(entry.open);
                if !may.any(|steps| entry.life.after(steps) == there) {
                    return Some(format!("{name} is {there:?}, and of it is known {entry:?}"));
                }
            }
            None
        })
    }
}

#[test]
fn the_ledger_judges() {
    let ledger = Ledger::default();
    let step = |name: &str, life: Life, node: usize| {
        ledger.sends(name, life, node);
        ledger.acknowledged(name);
    };
    step("a", Life::Flagged, 0);
    step("a", Life::Flagged, 0);
    step("b", Life::Expunged, 1);
    step("b", Life::Expunged, 1);
    ledger.sends("b", Life::Expunged, 1);
    step("c", Life::Delivered, 1);
    ledger.sends("d", Life::Moved, 0);
    ledger.refused("d");
    let inbox = |flag: &str| {
        let flags = Some(flag.to_owned()).filter(|flag| !flag.is_empty());
        Places::from([("INBOX", flags.into_iter().collect())])
    };
    let shown = |of: &[(&str, Places)]| -> BTreeMap<String, Places> {
        let of = of.iter();
        of.map(|(name, places)| ((*name).to_owned(), places.clone()))
            .collect()
    };
    #[track_caller]
    fn check(ledger: &Ledger, shown: &BTreeMap<String, Places>, expected: Option<&str>) {
        let wrong = ledger.wrong(shown);
        match expected {
            None => assert_eq!(wrong, None),
            Some(begin) => assert!(wrong.unwrap().starts_with(begin)),
        }
    }
    let (a, b, c) = (
        ("a", inbox("$Set")),
        ("b", inbox("\\Deleted")),
        ("c", inbox("")),
    );
    check(&ledger, &shown(&[a.clone(), b.clone(), c.clone()]), None);
    check(&ledger, &shown(&[a.clone(), c.clone()]), None);
    check(&ledger, &shown(&[b.clone(), c.clone()]), Some("a is {}"));
    check(&ledger, &shown(&[a.clone(), b.clone()]), Some("c is {}"));
    let old = ("b", inbox(""));
    check(&ledger, &shown(&[a.clone(), old, c.clone()]), Some("b is "));
    let unset = ("a", inbox(""));
    check(&ledger, &shown(&[unset.clone(), c.clone()]), Some("a is "));
    let (d, e) = (("d", inbox("")), ("e", inbox("")));
    check(&ledger, &shown(&[a.clone(), c.clone(), d]), Some("d is "));
    check(&ledger, &shown(&[a, c.clone(), e]), Some("e is there"));
    // The disk of the first is lost behind the first step of `a`.
    let had = BTreeMap::from([("a".to_owned(), 1)]);
    assert_eq!(ledger.lost(0, &had), 1);
    check(&ledger, &shown(&[unset, c.clone()]), None);
    check(&ledger, &shown(&[c]), Some("a is {}"));
    // What LMTP acknowledged is not lost with a disk.
    assert_eq!(ledger.lost(1, &BTreeMap::new()), 2);
    check(&ledger, &BTreeMap::new(), Some("a is {}"));
}
