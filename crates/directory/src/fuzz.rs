//! Entry points for fuzzers, also used by a property test: each takes arbitrary bytes and panics when an invariant is broken.

use whimbrel_crdt::{Context, Dot, Incarnation, Stamp, VersionVector};

use crate::{
    Credential, Directory, Op, Resolution, Target,
    address::{Address, DOMAIN_BYTES_MAX, Domain, LOCAL_BYTES_MAX},
};

/// An address as an administrator or a sender writes it: an accepted one is folded once for all, and parses again wherever it is shown.
pub fn address(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(domain) = Domain::new(&text) {
        assert!(domain.as_str().len() <= DOMAIN_BYTES_MAX && is_plain(domain.as_str()));
        assert_eq!(Domain::new(domain.as_str()), Ok(domain));
    }
    let Ok(address) = Address::parse_alias(&text) else {
        assert!(Address::parse(&text).is_err());
        return;
    };
    let shown = address.to_string();
    assert!(address.local().len() <= LOCAL_BYTES_MAX && is_plain(&shown));
    assert_eq!(Address::parse_alias(&shown).as_ref(), Ok(&address));
    if address.local().is_empty() {
        assert!(text.starts_with('@'));
        return;
    }
    assert_eq!(Address::parse(&text).as_ref(), Ok(&address));
    let plain = address.without_detail();
    assert!(plain.is_none_or(|plain| shown.starts_with(&format!("{}+", plain.local()))));
}

fn is_plain(text: &str) -> bool {
    !text.contains(|c: char| c.is_control() || c.is_whitespace())
}

/// Some of them lead to each other by details and catch-alls.
const ADDRESSES: [&str; 16] = [
    "a@x", "b@x", "c@x", "d@x", "e@x", "f@x", "g@x", "h@x", "i@x", "j@x", "a+d@x", "b+d@x",
    "c+d@x", "a@y", "@x", "@y",
];

/// A node that makes operations and takes others'.
struct Node {
    directory: Directory,
    vector: VersionVector,
    origin: Incarnation,
    made: Vec<(Context<'static>, Op)>,
}

impl Node {
    fn new(origin: u64) -> Self {
        Node {
            directory: Directory::default(),
            vector: VersionVector::new(),
            origin: Incarnation::from_hash(origin),
            made: Vec::new(),
        }
    }

    fn make(&mut self, ops: Vec<Op>) {
        const NOTHING: &VersionVector = &VersionVector::new();
        for op in ops {
            let (origin, hlc) = (self.origin, self.vector.get(self.origin) + 1);
            let context = Context {
                dot: Dot::new(origin, hlc),
                stamp: Stamp { hlc, origin },
                // The directory does not use it: its operations name what they have seen.
                deps: NOTHING,
            };
            self.take(&context, &op);
            self.made.push((context, op));
        }
    }

    fn take(&mut self, context: &Context<'_>, op: &Op) {
        self.directory.apply(context, op);
        self.vector.advance(context.dot.origin, context.dot.seq);
    }

    /// Adds or removes an alias, as three bytes say, if it may; says whether one was removed.
    fn alias(&mut self, step: &[u8]) -> bool {
        let [from, to] = [step[1], step[2]].map(|byte| ADDRESSES[usize::from(byte % 16)]);
        let planned = match step[0] % 8 {
            0 => self.directory.plan_remove_alias(from, None),
            1 => self.directory.plan_remove_alias(from, Some(to)),
            _ => self.directory.plan_add_alias(from, to, true),
        };
        let done = planned.is_ok();
        self.make(planned.unwrap_or_default());
        done && step[0] % 8 < 2
    }
}

/// A node with three accounts as targets.
fn with_accounts() -> Node {
    let mut node = Node::new(1);
    for (key, account) in [(1, "a@x"), (2, "b@x"), (3, "a@y")] {
        let planned =
            node.directory
                .plan_add_account(account, [key; 16], 1, 0, Credential::from(""));
        node.make(planned.unwrap_or_default());
    }
    node
}

/// Aliases that an administrator adds and removes, three bytes each: every accepted alias leads to accounts, and never in a circle or too far. After
/// one was removed, the others may lead by a longer way.
pub fn aliases(data: &[u8]) {
    let mut node = with_accounts();
    let mut removed = false;
    for step in data.chunks_exact(3) {
        removed |= node.alias(step);
    }
    for (address, found) in resolved(&node.directory) {
        assert!(removed || found != Resolution::Loop, "{address}");
    }
}

/// The same by two administrators who do not see each other's changes, and then merge: whatever they made together, circles too, each lookup ends,
/// and both sides agree.
pub fn aliases_of_two(data: &[u8]) {
    let mut one = with_accounts();
    let mut two = Node::new(2);
    for (context, op) in std::mem::take(&mut one.made) {
        two.take(&context, &op);
    }
    for step in data.chunks_exact(3) {
        let node = if step[0] < 128 { &mut one } else { &mut two };
        node.alias(step);
    }
    let (of_one, of_two) = (std::mem::take(&mut one.made), std::mem::take(&mut two.made));
    of_one
        .iter()
        .for_each(|(context, op)| two.take(context, op));
    of_two
        .iter()
        .for_each(|(context, op)| one.take(context, op));
    assert_eq!(one.directory, two.directory);
    assert_eq!(resolved(&one.directory), resolved(&two.directory));
    for address in ADDRESSES {
        // Checked from each side, as an administrator would who repairs it.
        let _ = one.directory.plan_add_alias(address, "a@x", true);
        let _ = one.directory.may_send(&[1; 16], "e", "x");
    }
}

/// Where each of the addresses leads.
fn resolved(directory: &Directory) -> Vec<(&'static str, Resolution)> {
    let mut all = Vec::new();
    for address in ADDRESSES {
        let found = match address.split_once('@') {
            Some(("", _)) | None => continue,
            Some((local, domain)) => directory.resolve(local, domain),
        };
        if let Resolution::Local(targets) = &found {
            assert!(!targets.is_empty() && targets.is_sorted());
            let holds = |to: &Target| {
                let address = Address::parse(&to.address);
                let holder = address.ok().and_then(|address| directory.holder(&address));
                holder.is_some_and(|(key, _)| key == to.account)
            };
            assert!(targets.iter().all(holds));
        }
        all.push((address, found));
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            super::address(&data);
            super::aliases(&data);
            super::aliases_of_two(&data);
        }
    }
}
