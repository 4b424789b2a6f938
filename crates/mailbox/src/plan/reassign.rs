//! Claims made again: late messages (docs/design.md#rule-4), takeover (docs/design.md#rule-6), epochs (docs/design.md#rule-7).

use super::*;

impl Replica {
    /// Late messages claimed again (docs/design.md#rule-4). `peers` are those who will do the same at once: they give the rank.
    ///
    /// The blocks of replicas that claim the same messages again do not interleave: block `rank` begins `rank` times the
    /// number of messages of this part further on. So one replica's claims win for all messages, and nothing is late again.
    ///
    /// At most [`CLAIMS_PER_OP_MAX`] at a time, and fewer of messages with many keywords: apply, and plan again. Without UIDs to give, it
    /// is empty while [`Replica::is_clean`] is not: an epoch is due.
    pub fn plan_late(&self, at: &At, peers: &Peers) -> Plan<()> {
        if broken("late-not-claimed") {
            return Plan {
                ops: Vec::new(),
                outcome: (),
            };
        }
        let late = self.late.values().copied().take(CLAIMS_PER_OP_MAX);
        let mut slots: Vec<u32> = late.collect();
        slots.truncate(self.first_within(&slots, CLAIMS_BYTES_MAX));
        let rank = peers.rank(self.slot);
        let mut claims = self.claims(at);
        // The gap is as large as this part. If each part left room for the messages of all parts, the account would run out of UIDs.
        claims.next = claims
            .next
            .saturating_add((slots.len() as u32).saturating_mul(rank));
        let ops = self
            .claim_again(&mut claims, slots.into_iter())
            .unwrap_or_default();
        Plan {
            ops: ops.into_iter().collect(),
            outcome: (),
        }
    }

    /// How many messages are to be claimed again: fewer each time that what [`Self::plan_late`] gives is applied.
    pub fn late(&self) -> usize {
        self.late.len()
    }

    /// The greatest counter that is believed of a client: 2^20 ahead of ours.
    pub(crate) fn named_max(&self, at: &At) -> u32 {
        let next = self.claims(at).next;
        next.saturating_add(NAMED_AHEAD_MAX).min(COUNTER_MAX)
    }

    /// The UIDs that a client named, as far as they are plausible.
    fn plausible<'a>(
        &'a self,
        at: &At,
        takeover: &'a Takeover,
    ) -> impl Iterator<Item = &'a (MailboxName, u32)> {
        let ahead = self.named_max(at);
        takeover
            .named
            .iter()
            .filter(move |(_, uid)| uid / 64 <= ahead)
    }

    /// What must be done before a client that may come from another node is answered (docs/design.md#rule-6).
    ///
    /// In this order, all without peers, for a takeover waits for nobody: [`Self::release`], [`Self::plan_late`], this, and
    /// [`Self::raise_marks`] with the same argument before anything is announced. Claims are made as many at a time as by [`Self::plan_late`]: apply,
    /// and plan again, until it is empty.
    pub fn plan_takeover(&self, at: &At, takeover: &Takeover) -> Plan<()> {
        let counter = self
            .plausible(at, takeover)
            .map(|(_, uid)| uid / 64)
            .max()
            .unwrap_or(0);
        let mut ops = Vec::new();
        if counter > self.counter {
            // Whatever raises the counter is an operation: on disk before it is visible.
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
        // Of each slot those up to a counter are known: of most mailboxes nothing, or little, has to be looked at.
        let first_unknown = |(slot, greatest): (&u8, &u32)| {
            let of = takeover.announced.iter().find(|(other, _)| other == slot);
            let known = of.map_or(0, |(_, counter)| *counter);
            (known < *greatest).then(|| known.saturating_add(1).saturating_mul(64))
        };
        let from = self.claimed.iter().filter_map(first_unknown).min();
        let from = from.unwrap_or(u32::MAX);
        let mut again = Vec::new();
        for (name, named) in self.plausible(at, takeover) {
            if from > *named {
                continue;
            }
            for (_, record) in self.members(name) {
                let below = record
                    .uids
                    .range(from..=*named)
                    .filter(|(uid, _)| !known(**uid));
                again.extend(below.map(|(uid, slot)| (*uid, *slot)));
            }
        }
        again.sort_unstable();
        again.dedup();
        again.truncate(CLAIMS_PER_OP_MAX);
        let mut slots: Vec<u32> = again.into_iter().map(|(_, slot)| slot).collect();
        slots.truncate(self.first_within(&slots, CLAIMS_BYTES_MAX));
        if broken("takeover-claims-nothing") {
            slots.clear();
        }
        let again = self.claim_again(&mut claims, slots.into_iter());
        ops.extend(again.unwrap_or_default());
        Plan { ops, outcome: () }
    }

    /// Raises the marks of the names to what a client named (docs/design.md#rule-6), which counts as announced.
    pub fn raise_marks(&mut self, at: &At, takeover: &Takeover) {
        let named: Vec<(MailboxName, u32)> = self.plausible(at, takeover).cloned().collect();
        for (name, uid) in named {
            self.raise_mark(&name, uid.saturating_add(1));
        }
    }

    /// What is due when the account is loaded under another incarnation than last time: see the module `rollback`.
    ///
    /// The lead grows with the time since the account changed last: so two incarnations that begin from one copy, put back twice, hardly
    /// give one UID even when they have drawn one slot. It is not below the marks of [`Self::lead`].
    pub fn plan_renewal(&self, at: &At, renewal: &RestoreRecovery) -> Plan<Renewed> {
        let idle_seconds = at.now_micros.saturating_sub(self.last_change) / 1_000_000;
        let grown = idle_seconds
            .saturating_mul(LEAD_PER_SECOND)
            .min(u64::from(renewal.lead) * LEAD_GROWS_TO);
        let next = self.claims(at).next;
        let counter = next
            .saturating_add(renewal.lead)
            .saturating_add(u32::try_from(grown).unwrap_or(u32::MAX))
            .max(self.floor / 64);
        let room = counter <= COUNTER_MAX - NAMED_AHEAD_MAX;
        if renewal.round > self.lineage.round || !room {
            let Plan { ops, .. } = self.plan_epoch(at, 0);
            return Plan {
                ops,
                outcome: Renewed::Epoch,
            };
        }
        Plan {
            ops: vec![Op::Bump {
                counter,
                epoch: self.epoch,
            }],
            outcome: Renewed::Ahead(counter),
        }
    }

    /// Whether UIDs may run out within one call: then an epoch is due first (docs/design.md#rule-7).
    pub fn needs_epoch(&self, at: &At) -> bool {
        self.created != 0 && self.claims(at).next > COUNTER_MAX - NAMED_AHEAD_MAX
    }

    /// A new epoch rises, and every claim is made again. The last resort. After applying it, [`Self::plan_late`] is due. UIDVALIDITY is at least
    /// `least`. As those of new accounts it is one that only this slot gives, of each 64 in a row: another node may give the account's address to
    /// another account in this second.
    pub fn plan_epoch(&self, at: &At, least: u32) -> Plan<()> {
        let now = u32::try_from(at.now_micros / 1_000_000).unwrap_or(u32::MAX);
        let least = now.max(self.uidvalidity().saturating_add(1)).max(least);
        let uidvalidity = least.saturating_add((u32::from(self.slot) + 64 - least % 64) % 64);
        Plan {
            ops: vec![Op::Epoch { uidvalidity }],
            outcome: (),
        }
    }
}
