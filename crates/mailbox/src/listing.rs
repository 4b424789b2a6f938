//! The list of names, page by page: what LIST and LSUB walk along without holding all of it.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::{MailboxName, NameInfo, Replica};

/// A page of names. All bounds are met as soon as one of them is passed, at a name that exists or is subscribed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Names.
    pub names_max: usize,
    /// Bytes of the names.
    pub bytes_max: usize,
}

/// A name of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedName {
    /// The name. One that neither exists nor is subscribed stands above one that follows.
    pub info: NameInfo,
    /// What is below it.
    pub below: Below,
}

/// Whether some name below a name has something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Below {
    /// It exists.
    pub exists: bool,
    /// It is subscribed.
    pub subscribed: bool,
    /// It has a special use; known only if it was asked for.
    pub special_use: bool,
    /// It has a special use and is subscribed; likewise.
    pub both: bool,
}

/// Names with a special use.
#[derive(Default)]
struct Used<'a> {
    all: BTreeSet<&'a str>,
    subscribed: BTreeSet<&'a str>,
}

impl Replica {
    /// The names behind `after` in order, and whether more follow. Names that only stand above others come once, before the first of these.
    ///
    /// `top`: only names below this one. `uses`: whether a special use below is asked for. That costs a look at every mailbox.
    pub fn names_after(
        &self,
        top: Option<&MailboxName>,
        after: Option<&MailboxName>,
        uses: bool,
        size: PageSize,
    ) -> (Vec<ListedName>, bool) {
        let used = uses.then(|| self.names_with_use());
        let top_prefix = top.map(prefix);
        let from = after.map(MailboxName::as_str).or(top_prefix.as_deref());
        let from = || {
            let from = from.map_or(Bound::Unbounded, Bound::Excluded);
            (from, Bound::Unbounded)
        };
        let mut existing = self
            .names
            .range::<str, _>(from())
            .map(|(name, _)| name)
            .peekable();
        let mut subscribed = self.subscriptions.range::<str>(from()).peekable();
        let (mut page, mut bytes) = (Vec::new(), 0);
        let mut before = after;
        loop {
            let name = match (existing.peek(), subscribed.peek()) {
                (Some(a), Some(b)) if a <= b => *a,
                (_, Some(b)) => *b,
                (Some(a), None) => *a,
                (None, None) => return (page, false),
            };
            if top.is_some_and(|top| !name.is_below(top)) {
                return (page, false);
            }
            if page.len() >= size.names_max || bytes >= size.bytes_max {
                return (page, true);
            }
            existing.next_if_eq(&name);
            subscribed.next_if_eq(&name);
            for parent in name.parents() {
                if top.is_some_and(|top| !parent.is_below(top)) {
                    continue;
                }
                let follows = before.is_some_and(|before| before.is_below(&parent));
                if !follows && !self.exists(&parent) && !self.subscriptions.contains(&parent) {
                    bytes += parent.as_str().len();
                    page.push(self.listed_name(&parent, used.as_ref()));
                }
            }
            bytes += name.as_str().len();
            page.push(self.listed_name(name, used.as_ref()));
            before = Some(name);
        }
    }

    fn listed_name(&self, name: &MailboxName, used: Option<&Used<'_>>) -> ListedName {
        let prefix = prefix(name);
        let from = (Bound::Excluded(&prefix[..]), Bound::Unbounded);
        let is_below = |first: Option<&str>| first.is_some_and(|first| first.starts_with(&prefix));
        let mut existing = self.names.range::<str, _>(from).map(|(name, _)| name);
        let mut subscribed = self.subscriptions.range::<str>(from);
        let below = Below {
            exists: is_below(existing.next().map(MailboxName::as_str)),
            subscribed: is_below(subscribed.next().map(MailboxName::as_str)),
            special_use: used.is_some_and(|used| is_below(first(&used.all, &prefix))),
            both: used.is_some_and(|used| is_below(first(&used.subscribed, &prefix))),
        };
        let member = self.first_box(name).map(|number| &self.boxes[number]);
        let info = NameInfo {
            name: name.clone(),
            id: member.map(|record| record.id),
            special_use: member.and_then(|record| record.special_use.value),
            subscribed: self.subscriptions.contains(name),
        };
        ListedName { info, below }
    }

    fn names_with_use(&self) -> Used<'_> {
        let mut used = Used::default();
        let names = self.names.keys();
        for name in names.filter(|name| self.use_of(name).is_some()) {
            used.all.insert(name.as_str());
            if self.subscriptions.contains(name) {
                used.subscribed.insert(name.as_str());
            }
        }
        used
    }
}

/// What names below a name begin with.
fn prefix(name: &MailboxName) -> String {
    format!("{name}{}", MailboxName::SEPARATOR)
}

/// The first name behind a text.
fn first<'a>(names: &BTreeSet<&'a str>, from: &str) -> Option<&'a str> {
    let behind = (Bound::Excluded(from), Bound::Unbounded);
    names.range::<str, _>(behind).next().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AccountId, At, Op, Peers, SpecialUse, Step};
    use whimbrel_crdt::{Dot, Incarnation, VersionVector};

    /// An account with these names: `a` exists, `a+` is subscribed, too, `a-` is only subscribed, `a!` has a special use.
    fn replica(names: &[&str]) -> Replica {
        let origin = Incarnation::new(7).unwrap();
        let mut replica = Replica::new(AccountId([1; 16]), 1);
        let mut first = 1;
        // The number of the next operation.
        let mut apply = |replica: &mut Replica, ops: Vec<Op>| {
            let mut applied = VersionVector::new();
            applied.advance(origin, first + ops.len() as u64 - 1);
            let step = Step {
                origin,
                first,
                hlc: first,
                deps: &VersionVector::new(),
                applied: &applied,
                now_micros: first,
                peers: &Peers::none(),
            };
            first += ops.len() as u64;
            replica.apply(&step, ops).unwrap();
            first
        };
        let open = replica.plan_open(1, 1, &[]);
        let mut next = apply(&mut replica, open.ops);
        let mut uses = [SpecialUse::Junk, SpecialUse::Trash, SpecialUse::Sent].into_iter();
        for text in names {
            let name = MailboxName::new(text.trim_end_matches(['+', '-', '!'])).unwrap();
            if !text.ends_with('-') {
                let at = At {
                    now_micros: next,
                    next: Dot::new(origin, next),
                };
                let special_use = text.ends_with('!').then(|| uses.next()).flatten();
                let plan = replica.plan_create(&at, &name, special_use).unwrap();
                next = apply(&mut replica, plan.ops);
            }
            if text.ends_with(['+', '-']) {
                let plan = replica.plan_subscribe(&name).unwrap();
                next = apply(&mut replica, plan.ops);
            }
        }
        replica
    }

    const EVERYTHING: PageSize = PageSize {
        names_max: usize::MAX,
        bytes_max: usize::MAX,
    };

    fn all(replica: &Replica, names_max: usize) -> Vec<ListedName> {
        let (mut all, mut after): (Vec<ListedName>, Option<MailboxName>) = (Vec::new(), None);
        loop {
            let size = PageSize {
                names_max,
                bytes_max: usize::MAX,
            };
            let (page, more) = replica.names_after(None, after.as_ref(), true, size);
            all.extend(page);
            if !more {
                return all;
            }
            after = all.last().map(|listed| listed.info.name.clone());
        }
    }

    #[track_caller]
    fn check(names: &[&str], expected: &[&str]) {
        let replica = replica(names);
        let whole = all(&replica, usize::MAX);
        let listed = whole.iter().map(|listed| {
            let (info, below) = (&listed.info, &listed.below);
            let infos = [
                (info.id.is_some(), 'e'),
                (info.subscribed, 's'),
                (info.special_use.is_some(), 'u'),
                (below.exists, 'E'),
                (below.subscribed, 'S'),
                (below.special_use, 'U'),
                (below.both, 'B'),
            ];
            let letters = infos
                .into_iter()
                .filter_map(|(has, letter)| has.then_some(letter));
            format!("{} {}", info.name, letters.collect::<String>())
        });
        assert_eq!(listed.collect::<Vec<_>>(), expected);
        for names_max in 1..4 {
            assert_eq!(all(&replica, names_max), whole, "pages of {names_max}");
        }
        for top in &whole {
            let top = &top.info.name;
            let (names, more) = replica.names_after(Some(top), None, false, EVERYTHING);
            assert!(!more);
            let listed = names.iter().map(|listed| &listed.info.name);
            let all = whole.iter().map(|listed| &listed.info.name);
            let below = all.filter(|name| name.is_below(top));
            assert_eq!(listed.collect::<Vec<_>>(), below.collect::<Vec<_>>());
        }
    }

    #[test]
    fn names_come_in_order_with_those_above_them() {
        check(&[], &["INBOX e"]);
        check(&["b", "a"], &["INBOX e", "a e", "b e"]);
        check(&["a/b"], &["INBOX e", "a eE", "a/b e"]);
        // Only subscribed: what is above does not exist.
        check(&["x/y/z-"], &["INBOX e", "x S", "x/y S", "x/y/z s"]);
        // `a-b` sorts between `a` and `a/b`.
        check(
            &["a/b-", "a-b", "a/c+", "a/c/d-"],
            &["INBOX e", "a eES", "a-b e", "a/b s", "a/c esS", "a/c/d s"],
        );
        check(
            &["j/k!", "j/k-", "j/l!", "k/l!"],
            &["INBOX e", "j eESUB", "j/k esu", "j/l eu", "k eEU", "k/l eu"],
        );
    }
}
