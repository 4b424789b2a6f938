//! Claims made again: late messages (rule 4), takeover (rule 6), epochs (rule 7).

use super::*;

impl Replica {
    /// Late messages claimed again (rule 4). `peers` are those who will do the same at once: they give the rank.
    ///
    /// The blocks of replicas that claim the same messages again do not interleave: block `rank` begins `rank` times the
    /// number of messages further on. So one replica's claims win for all messages, and nothing is late again.
    ///
    /// Without UIDs to give, it is empty while [`Replica::is_clean`] is not: an epoch is due.
    pub fn plan_late(&self, at: &At, peers: &Peers) -> Plan<()> {
        if broken("late-not-claimed") {
            return Plan {
                ops: Vec::new(),
                outcome: (),
            };
        }
        let rank = peers.0.iter().filter(|peer| peer.slot < self.slot).count() as u32;
        let mut claims = self.claims(at);
        claims.next = claims
            .next
            .saturating_add((self.late.len() as u32).saturating_mul(rank));
        let ops = self
            .claim_again(&mut claims, self.late.values().copied())
            .unwrap_or_default();
        Plan {
            ops: ops.into_iter().collect(),
            outcome: (),
        }
    }

    /// The UIDs that a client named, as far as they are plausible: at most 2^20 ahead of the counter.
    fn plausible<'a>(
        &'a self,
        at: &At,
        takeover: &'a Takeover,
    ) -> impl Iterator<Item = &'a (MailboxName, u32)> {
        let ahead = self
            .claims(at)
            .next
            .saturating_add(NAMED_AHEAD_MAX)
            .min(COUNTER_MAX);
        takeover
            .named
            .iter()
            .filter(move |(_, uid)| uid / 64 <= ahead)
    }

    /// What must be done before a client that may come from another node is answered (rule 6).
    ///
    /// In this order, all without peers, for a takeover waits for nobody: [`Self::release`], [`Self::plan_late`], this, and
    /// [`Self::raise_marks`] with the same argument before anything is told.
    pub fn plan_takeover(&self, at: &At, takeover: &Takeover) -> Plan<()> {
        let counter = self
            .plausible(at, takeover)
            .map(|(_, uid)| uid / 64)
            .max()
            .unwrap_or(0);
        let mut ops = Vec::new();
        if counter > self.counter {
            // Whatever raises the counter is an operation: on disk before it is shown.
            ops.push(Op::Bump {
                counter,
                epoch: self.epoch,
            });
        }
        let mut claims = self.claims(at);
        claims.next = claims.next.max(counter.saturating_add(1));
        let known = |uid: u32| {
            let announced = takeover
                .announced
                .iter()
                .find(|(slot, _)| u32::from(*slot) == uid % 64);
            announced.is_some_and(|(_, counter)| uid / 64 <= *counter)
        };
        let mut again = Vec::new();
        for (name, named) in self.plausible(at, takeover) {
            for (_, record) in self.members(name) {
                let below = record
                    .uids
                    .range(..=*named)
                    .filter(|(uid, _)| !known(**uid));
                again.extend(below.map(|(uid, slot)| (*uid, *slot)));
            }
        }
        again.sort_unstable();
        again.dedup();
        if broken("takeover-claims-nothing") {
            again.clear();
        }
        let again = self.claim_again(&mut claims, again.into_iter().map(|(_, slot)| slot));
        ops.extend(again.unwrap_or_default());
        Plan { ops, outcome: () }
    }

    /// Raises the marks of the names to what a client named (rule 6), which counts as announced.
    pub fn raise_marks(&mut self, at: &At, takeover: &Takeover) {
        let named: Vec<(MailboxName, u32)> = self.plausible(at, takeover).cloned().collect();
        for (name, uid) in named {
            self.raise_mark(&name, uid.saturating_add(1));
        }
    }

    /// A new epoch: UIDVALIDITY rises, and every claim is made again. The last resort. After applying it,
    /// [`Self::plan_late`] is due.
    pub fn plan_epoch(&self, at: &At) -> Plan<()> {
        let now = u32::try_from(at.now_micros / 1_000_000).unwrap_or(u32::MAX);
        let uidvalidity = now.max(self.uidvalidity().saturating_add(1));
        Plan {
            ops: vec![Op::Epoch { uidvalidity }],
            outcome: (),
        }
    }
}
