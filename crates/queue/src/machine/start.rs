//! What a node finds on its disk: before it acts on it, the others are met; what an older copy of the disk holds stays in doubt until another node knows of it.

use super::{Queue, finish::Tombstone};
use crate::{
    api::Output,
    frame::Record,
    mutants::broken,
    table::{Flag, Row},
    types::{Id, Node, Nodes},
};

/// Whether what was found at the start is acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Gate {
    /// Rows are still being loaded.
    Loading,
    /// Others are waited for until then.
    Closed(u64),
    Open,
}

impl Gate {
    pub(super) fn is_open(self) -> bool {
        self == Gate::Open
    }
}

impl Queue {
    /// A record that was found on the disk. All of them come before [`Queue::begin`].
    pub fn load(&mut self, id: Id, record: Record) {
        match record {
            Record::Tuple {
                ownership,
                sent,
                life,
            } => {
                let mut row = Row::new(id, &ownership);
                row.sent = sent;
                row.set(Flag::ON_DISK, true);
                row.set(Flag::DOUBT, life != self.life);
                if row.has(Flag::DOUBT) {
                    self.doubts.insert(id, Nodes::NONE);
                }
                if !ownership.progress.is_empty() {
                    row.set(Flag::PROGRESS, true);
                    self.progress.insert(id, ownership.progress);
                }
                self.insert_row(row, ownership.tracked);
            }
            Record::Tombstone {
                version,
                holders,
                unconfirmed,
                tracked,
            } => {
                let tomb = Tombstone {
                    version,
                    holders,
                    unconfirmed: unconfirmed.both(self.members),
                    tracked,
                    on_disk: true,
                    kept: true,
                };
                self.tombs.insert(id, tomb);
                if tomb.unconfirmed.is_empty() {
                    self.touch(id);
                }
            }
        }
    }

    /// A peer had said that it would be away for so many microseconds ([`Output::Away`]), and has not come back. It counts anew.
    pub fn load_away(&mut self, node: Node, micros: u64) {
        let until = self.now.monotonic.saturating_add(micros);
        if let Some(peer) = self.peers.get_mut(&node)
            && !broken("away-forgotten-at-a-start")
        {
            peer.away_until = Some(until);
            self.peers_due = 0;
        }
    }

    /// All that was on the disk is loaded.
    pub fn begin(&mut self) {
        let empty = self.tracked.len() + self.untracked.len() == 0;
        let alone = self.members.without(self.me).is_empty();
        self.gate = if empty || alone {
            Gate::Open
        } else {
            Gate::Closed(self.now.monotonic + self.config.start_wait)
        };
        if self.gate.is_open() || broken("acts-at-once-after-a-start") {
            self.gate = Gate::Open;
            self.opened();
        }
        self.end_of_input();
    }

    pub(super) fn look_at_gate(&mut self) {
        let Gate::Closed(until) = self.gate else {
            return;
        };
        let others = self.members.without(self.me);
        let missing = others.iter().filter(|node| {
            let peer = self.peers.get(node);
            !peer.is_some_and(|peer| peer.linked && peer.comparing.is_over())
        });
        let missing: Nodes = missing.collect();
        let linked = missing.both(self.linked());
        let in_time = self.now.monotonic < until || broken("waits-for-all-for-ever");
        if missing.is_empty() || (!in_time && linked.is_empty()) {
            self.gate = Gate::Open;
            self.opened();
        }
    }

    fn opened(&mut self) {
        self.walk.again = true;
        self.plan_all();
    }

    /// A node has no copy of what is in doubt here.
    pub(super) fn doubt_unknown(&mut self, from: Node, id: Id) {
        if let Some(nodes) = self.doubts.get_mut(&id) {
            nodes.insert(from);
            self.judge_doubt(id);
        }
    }

    /// What nobody else has is finished; or, where that cannot be told, it is the operator's.
    pub(super) fn judge_doubt(&mut self, id: Id) {
        let Some(row) = self.row(id).copied().filter(|row| row.has(Flag::DOUBT)) else {
            return;
        };
        let others = self.members.without(self.me);
        if others.is_empty() && !broken("alone-in-doubt") {
            self.clear_doubt(id);
            self.take_over(id);
            return;
        }
        let others = others.minus(self.former);
        let owners = row.owners.set().both(others);
        let silent = self.doubts.get(&id).copied().unwrap_or_default();
        // Where there is no other owner, all that may hold it are asked.
        let wanted = if owners.is_empty() {
            others.both(row.holders)
        } else {
            owners
        };
        let wanted = if broken("doubt-judged-by-those-linked") {
            wanted.both(self.linked())
        } else {
            wanted
        };
        if !wanted.minus(silent).is_empty() || row.has(Flag::STALE) {
            return;
        }
        if (self.is_tracked(id) || broken("stale-dropped")) && !owners.is_empty() {
            self.counters.dropped += 1;
            self.drop_copy(id);
            self.doubts.remove(&id);
        } else if self.is_tracked(id) {
            // Nobody else ever had it: to act on it twice is better than to lose it, and what is tracked may be acted on twice.
            self.clear_doubt(id);
            self.take_over(id);
        } else {
            if let Some(row) = self.row_mut(id) {
                row.set(Flag::STALE, true);
            }
            self.out.push_back(Output::Stale(id));
        }
    }

    /// The operator has decided about a tuple of an older disk.
    pub(super) fn on_stale(&mut self, id: Id, act: bool) {
        if !self.row(id).is_some_and(|row| row.has(Flag::STALE)) {
            return;
        }
        if act {
            self.clear_doubt(id);
            self.take_over(id);
        } else {
            self.finish(id);
        }
    }

    /// This node acts on a tuple from now on, whoever did before.
    fn take_over(&mut self, id: Id) {
        let first = self
            .row(id)
            .map(|row| (row.owners.first(), row.owners.set()));
        if let Some((first, owners)) = first
            && first != self.me
        {
            self.counters.adopted += 1;
            self.rewrite(id, owners, &[]);
        }
    }

    /// Who is a member from now on.
    pub(super) fn on_members(&mut self, members: Nodes) {
        let gone = self.members.minus(members);
        self.members = members.with(self.me);
        for node in gone.iter() {
            self.on_unlinked(node);
            self.peers.remove(&node);
        }
        self.add_peers();
        let ids: Vec<Id> = self
            .tombs
            .iter()
            .filter(|(_, tomb)| !tomb.unconfirmed.both(gone).is_empty())
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            for node in gone.iter().filter(|_| !broken("waits-for-removed-members")) {
                self.confirm_removal(node, id);
            }
        }
        self.walk.again = true;
    }
}
