//! What may be gone with nodes that are removed.
//!
//! D1: what was acknowledged when so many other nodes had it is there, if no more than these were removed by then. Else it may be gone if whoever
//! acknowledged it was removed, and none of those that stay has applied its log up to what the answer rests on, or none has the body. Their disks
//! count, as they are when they die. Mail that was delivered rests on the logs of those who delivered it, whoever accepted it.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_service::owner::keys;
use whimbrel_storage::memory::Memory;

use super::{
    World,
    losses::{Ack, Acked, durable, ends},
};

/// Up to which number logs are at those that stay.
type LogEnds = BTreeMap<(PartitionId, Incarnation), u64>;

impl World {
    /// Somebody was removed: what he and those before him had alone may be gone.
    pub(super) fn doubt_what_only_these_have(&mut self) {
        let gone = self.members.iter().filter(|member| member.doubtful);
        let gone: BTreeSet<Incarnation> = gone.map(|member| member.id).collect();
        let stays = |index: &usize| !self.members[*index].doubtful && !self.members[*index].out;
        let left: Vec<usize> = (0..self.members.len()).filter(stays).collect();
        let mut held = LogEnds::new();
        let mut disks: Vec<Memory> = Vec::new();
        let mut lacks = false;
        for index in left {
            let node = &self.members[index].node;
            let disk = durable(&node.disk.copy());
            if self.members[index].down.is_none() {
                let mut reports = node.reports().into_iter();
                lacks |= reports.any(|report| report.blobs_missing > 0);
                for of in &gone {
                    self.note_held(index, *of, &disk, &mut held);
                }
            }
            disks.push(disk);
        }
        let promised = self.plan.other_nodes >= gone.len();
        let is_held = |account, by: Incarnation, number: u64| {
            let last = held.get(&(keys::partition_of(account), by));
            last.is_some_and(|last| *last >= number)
        };
        let has = |ack: &Ack| is_held(ack.account, ack.by, ack.number);
        let has_body = |body: &u32| self.losses.has_body(&disks, *body);
        let doubtful = self.members.iter().filter(|member| member.doubtful);
        let theirs = doubtful.map(|member| durable(&member.node.disk.copy()));
        let theirs: Vec<Memory> = theirs.collect();
        // It was handed to others, and as many have the delivery as have to: it is let go of by all. No node that stays has that.
        let handed_on = |ack: &Ack, body: u32| {
            let partition = keys::partition_of(ack.account);
            let deliveries = self.losses.deliveries(ack.account, body);
            let stays = |(by, number): &(Incarnation, u64)| {
                !gone.contains(by) || is_held(ack.account, *by, *number)
            };
            let had = theirs.iter().filter(|disk| {
                let has = |(by, number): &(Incarnation, u64)| {
                    let end = ends(disk, *by).get(&partition).copied();
                    end.is_some_and(|last| last >= *number)
                };
                deliveries.iter().any(has)
            });
            !deliveries.iter().any(stays) && had.count() > 1
        };
        let is_gone = |ack: &Ack| match &ack.what {
            Acked::Accepted(body) if !gone.contains(&ack.by) => {
                gone.len() > 1 && handed_on(ack, *body)
            }
            _ if !gone.contains(&ack.by) => false,
            // One other node had it: that is no promise for two. What is imported may be another's operation.
            Acked::Accepted(_) => gone.len() > 1,
            Acked::Imported(body) => gone.len() > 1 || !has(ack) || !has_body(body),
            _ if promised => false,
            Acked::Body(body) => !has(ack) || !has_body(body),
            Acked::Flags(_) | Acked::Expunged(_) => !has(ack),
            // What was copied there is shown if its body is somewhere.
            Acked::Name(_) => !has(ack) || lacks,
        };
        let acks = self.losses.acks.iter().enumerate();
        let lost: Vec<usize> = (acks.clone())
            .filter(|(_, ack)| is_gone(ack))
            .map(|(index, _)| index)
            .collect();
        let mut acks = acks.filter(|(index, ack)| gone.contains(&ack.by) && !lost.contains(index));
        let is_held = acks.next().is_some();
        drop(acks);
        self.note_if(is_held, "cluster: what a removed node acknowledged is held");
        let what = "cluster: what a removed node alone had is gone";
        self.note_if(!lost.is_empty(), what);
        self.say(|| format!("{gone:?} are removed, with {} answers", lost.len()));
        self.let_go(&lost);
        let mut index = 0;
        self.losses.acks.retain(|_| {
            index += 1;
            lost.binary_search(&(index - 1)).is_err()
        });
    }

    /// What a node that stays has of the logs of a removed one: what rests on what nobody has is given up, so what it has applied counts.
    fn note_held(&self, index: usize, of: Incarnation, disk: &Memory, held: &mut LogEnds) {
        let ends = ends(disk, of);
        for report in self.members[index].node.reports() {
            let open = report.open.unwrap_or_default();
            let applied = open.logs.get(&of).map_or(0, |log| log.applied);
            let stored = ends.get(&report.partition).copied().unwrap_or(0);
            let last = held.entry((report.partition, of)).or_default();
            *last = applied.min(stored).max(*last);
        }
    }
}
