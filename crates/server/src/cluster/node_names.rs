//! How the nodes of a cluster are called, for whoever knows only their incarnations.

use std::collections::BTreeMap;

use whimbrel_crdt::Incarnation;
use whimbrel_replication::roster::Roster;

/// How the nodes of a cluster are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeNames {
    /// The node that was asked.
    me: Option<Incarnation>,
    names: BTreeMap<Incarnation, String>,
}

impl NodeNames {
    pub(crate) fn of(roster: &Roster, me: Option<Incarnation>) -> Self {
        let names = roster.members().iter().map(|(id, member)| {
            let place = roster.places().get(&member.name);
            let name = match place.is_none_or(|place| place.incarnation == id) {
                true => member.name.clone(),
                false => format!("{} (earlier incarnation)", member.name),
            };
            (id, name)
        });
        let names = names.collect();
        NodeNames { me, names }
    }

    /// The name of an incarnation. A node that is alone has no name, and nobody to be told from.
    pub(crate) fn name(&self, of: Incarnation) -> String {
        match self.names.get(&of) {
            Some(name) => name.clone(),
            None if self.names.is_empty() => "this node".to_owned(),
            None => format!("{:016x}", of.get()),
        }
    }

    /// The name of the node that was asked.
    pub(crate) fn own(&self) -> String {
        self.me
            .map_or_else(|| "this node".to_owned(), |me| self.name(me))
    }

    /// Whether the incarnation is of the node that was asked; a node that is alone has no others.
    pub(crate) fn is_own(&self, of: Incarnation) -> bool {
        self.me.is_none_or(|me| me == of)
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_replication::roster::Place;

    use super::*;

    fn id(number: u64) -> Incarnation {
        Incarnation::new(number).unwrap()
    }

    #[test]
    fn names() {
        let mut roster = Roster::found(id(1), "a", 0, !1);
        for (number, name) in [(2, "b"), (3, "b")] {
            let _ = roster.sponsor(id(1), id(number), name).unwrap();
        }
        let place = Place {
            shares: None,
            version: 1,
            incarnation: id(3),
            address: "b.example.org:10700".into(),
            region: "eu".into(),
            role: None,
        };
        roster.announce("b", place).unwrap();
        let names = NodeNames::of(&roster, Some(id(1)));
        let check = |number: u64, expected: &str| assert_eq!(names.name(id(number)), expected);
        check(1, "a");
        check(2, "b (earlier incarnation)");
        check(3, "b");
        check(4, "0000000000000004");
        assert_eq!(names.own(), "a");
        assert!(names.is_own(id(1)) && !names.is_own(id(2)));
    }

    #[test]
    fn a_node_that_is_alone() {
        let names = NodeNames::default();
        assert_eq!(names.name(id(1)), "this node");
        assert_eq!(names.own(), "this node");
        assert!(names.is_own(id(1)));
    }
}
