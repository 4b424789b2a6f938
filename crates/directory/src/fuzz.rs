//! Entry points for fuzzers, also used by a property test: each takes arbitrary bytes and panics when an invariant is broken.

use whimbrel_crdt::{Context, Dot, Incarnation, Stamp, VersionVector};

use crate::{
    Credential, Directory, Op, Resolution, Target,
    address::{Address, DOMAIN_BYTES_MAX, Domain, LOCAL_BYTES_MAX},
};

/// An address as an administrator or a sender writes it: what is taken is folded once and for all, and is an address wherever it is shown.
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

/// Aliases that an administrator adds and removes, three bytes each: whatever was agreed to leads to accounts, and nowhere in a circle or too far. Until one is removed: what
/// led by it may then lead by a longer way.
pub fn aliases(data: &[u8]) {
    let mut directory = Directory::default();
    let mut seq = 0;
    let mut apply = |directory: &mut Directory, ops: Vec<Op>| {
        for op in ops {
            seq += 1;
            let origin = Incarnation::from_hash(1);
            let context = Context {
                dot: Dot::new(origin, seq),
                stamp: Stamp { hlc: seq, origin },
                deps: &VersionVector::new(),
            };
            directory.apply(&context, &op);
        }
    };
    for (key, account) in [(1, "a@x"), (2, "b@x"), (3, "a@y")] {
        let planned = directory.plan_add_account(account, [key; 16], 1, Credential::from(""));
        apply(&mut directory, planned.unwrap_or_default());
    }
    let mut removed = false;
    for step in data.chunks_exact(3) {
        let [from, to] = [step[1], step[2]].map(|byte| ADDRESSES[usize::from(byte % 16)]);
        let planned = match step[0] % 8 {
            0 => directory.plan_remove_alias(from, None),
            1 => directory.plan_remove_alias(from, Some(to)),
            _ => directory.plan_add_alias(from, to),
        };
        let Ok(ops) = planned else { continue };
        removed |= step[0] % 8 < 2;
        apply(&mut directory, ops);
    }
    for address in ADDRESSES {
        let found = match address.split_once('@') {
            Some(("", _)) | None => continue,
            Some((local, domain)) => directory.resolve(local, domain),
        };
        assert!(removed || found != Resolution::Loop, "{address}");
        if let Resolution::Local(targets) = found {
            assert!(!targets.is_empty() && targets.is_sorted());
            let holds = |to: &Target| {
                let address = Address::parse(&to.address);
                let holder = address.ok().and_then(|address| directory.holder(&address));
                holder.is_some_and(|(key, _)| key == to.account)
            };
            assert!(targets.iter().all(holds));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_survived(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            super::address(&data);
            super::aliases(&data);
        }
    }
}
