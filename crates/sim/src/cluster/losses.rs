//! Disks that are lost while all else goes on, and older ones that are put back.
//!
//! In the clusters that draw it a node, or two at once where clients wait for two others, comes back with another disk than it died with: an empty
//! one, or a copy that was made of its own earlier. This happens up to three times, each time when all nodes are up and complete. With an older disk
//! a node asks the peers that it reaches what they remember, as at each start, and goes on under a new incarnation, for which
//! a member gives it a slot. A copy of a directory is noticed without peers; one made below the file system is, if no peer knows better, renewed by
//! the operator (`whimbrel node renew`, `docs/decisions/0011`). So the node never goes on under its old incarnation.
//!
//! D1: what was acknowledged when other nodes had it is there. What was acknowledged `local` may be gone, but only what was on no other disk when the
//! node died: what its answer rested on is held against what the others have on disk then. Checked, too: a peer that has more of the node's log
//! notices.
//!
//! Not drawn: a loss while the directory of the node has what no other has. Accounts may be gone then, and mail of theirs that others have
//! (`membership` draws that).

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_crdt::{Hash, Incarnation, PartitionId};
use whimbrel_replication::{identity::Because, roster::MergeOutcome};
use whimbrel_service::{
    api::{AccountId, BlobName, MessageId},
    cluster::startup::{self, Judged, RememberedLog, Startup, Verdict},
    log::store_partition,
    owner::{self, keys},
    queue,
};
use whimbrel_storage::{
    KeyRange, Origin, ScanLimit,
    memory::{DiskCopy, Memory},
};

use super::{Plan, SECOND, World};
use whimbrel_testkit::Rng;

/// With which disk a node comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// Always its own.
    Own,
    /// With an older copy of it, up to three times one after the other.
    Older,
    /// With an empty one, likewise.
    Lost,
    /// With empty ones, two nodes at once.
    TwoLost,
}

/// Whoever finds no member that gives it a slot tries again.
const AGAIN_MICROS: u64 = SECOND;

/// What was acknowledged, and rests on a disk.
pub(super) enum Acked {
    /// A message is appended; its body.
    Body(u32),
    /// A message was imported, which waits for no other node; its body.
    Imported(u32),
    /// Mail was accepted, and another node has it.
    Accepted(u32),
    /// Flags were set.
    Flags(MessageId),
    /// A message was expunged.
    Expunged(MessageId),
    /// Something was done to a name that one client uses.
    Name(u64),
}

pub(super) struct Ack {
    node: usize,
    /// Who that was then.
    pub(super) by: Incarnation,
    pub(super) account: AccountId,
    /// Up to which number of its own log the answer may rest.
    pub(super) number: u64,
    pub(super) what: Acked,
}

/// What a seed draws of it, from a generator of its own.
pub(super) struct Losses {
    rng: Rng,
    /// At which call the copy is made, and from which on the disk goes.
    copied_at: u64,
    lost_at: u64,
    /// Whether those that are gone for good are removed.
    removes: bool,
    /// Which loss this is, and how many there are.
    loss: u64,
    losses: u64,
    copy: Option<(usize, DiskCopy)>,
    pub(super) acks: Vec<Ack>,
    /// Where the bodies of messages lie: what is imported again was uploaded again.
    blobs: BTreeMap<u32, Vec<BlobName>>,
    /// Who delivered mail, by entry of the queue: from which number of its own log on that is, the last time.
    deliveries: BTreeMap<(String, AccountId), BTreeMap<Incarnation, u64>>,
    /// Nodes that come back with another disk.
    pending: BTreeMap<usize, DiskCopy>,
    is_over: bool,
}

impl Losses {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0x0010_55e5_d15c);
        let lost_at = rng.between(plan.calls / 4, plan.calls * 3 / 4);
        Losses {
            copied_at: rng.between(plan.calls / 10, lost_at),
            removes: rng.one_in(2),
            loss: 1,
            losses: plan.losses(),
            rng,
            lost_at,
            copy: None,
            acks: Vec::new(),
            blobs: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            pending: BTreeMap::new(),
            is_over: plan.disks == Disks::Own,
        }
    }

    /// Whether the body is on one of these disks.
    pub(super) fn has_body(&self, disks: &[Memory], body: u32) -> bool {
        let blobs = self.blobs.get(&body).into_iter().flatten();
        let mut blobs = blobs.map(owner::blob_name);
        blobs.any(|blob| disks.iter().any(|disk| disk.blob_stat(blob).is_some()))
    }

    /// Who delivered this mail, and from which number of its own log on that is.
    pub(super) fn deliveries(&self, account: AccountId, body: u32) -> Vec<(Incarnation, u64)> {
        let blobs = self.blobs.get(&body).into_iter().flatten();
        let entries = blobs.map(|blob| queue::entry_id(&blob.upload).to_string());
        let of = entries.filter_map(|entry| self.deliveries.get(&(entry, account)));
        of.flatten().map(|(by, number)| (*by, *number)).collect()
    }

    pub(super) fn uploaded(&mut self, body: u32, blob: BlobName) {
        self.blobs.entry(body).or_default().push(blob);
    }
}

impl Plan {
    /// Where members do not change: there is one loss at a time, and a removal may be another.
    pub(super) fn with_disks(mut self) -> Self {
        let drawn = Rng::new(self.seed ^ 0x0d15_c51e_57ed).below(5);
        self.disks = match drawn {
            _ if self.membership > 0 => Disks::Own,
            0 | 1 => Disks::Older,
            2 | 3 if self.other_nodes == 2 => Disks::TwoLost,
            2 | 3 => Disks::Lost,
            _ => Disks::Own,
        };
        self
    }

    /// How often a disk is lost: more than once in every second seed alone.
    fn losses(&self) -> u64 {
        let is_series =
            matches!(self.disks, Disks::Older | Disks::Lost) && self.seed.is_multiple_of(2);
        match is_series {
            true => Rng::new(self.seed ^ 0x05e2_1e5d_15c5).between(1, 3),
            false => 1,
        }
    }
}

/// The last numbers of a log, by partition.
pub(super) fn ends(disk: &Memory, of: Incarnation) -> BTreeMap<PartitionId, u64> {
    let logs = logs_of(disk, of).into_iter();
    logs.map(|log| (log.partition, log.last)).collect()
}

/// What follows the account in the keys of its messages' rows, before their ids (`mailbox::RowKey`).
const MESSAGE_PREFIX: u8 = 6;

/// The messages of an account that are on a disk; `None`: nothing of it is there.
fn messages_of(disk: &Memory, account: AccountId) -> Option<Vec<MessageId>> {
    let partition = store_partition(keys::partition_of(account));
    let prefix = [b"a", &account.0[..]].concat();
    let (mut messages, mut is_there) = (Vec::new(), false);
    let mut next = Some(KeyRange::prefix(prefix.clone()));
    while let Some(range) = next {
        let page = disk.scan(partition, &range, ScanLimit::default());
        is_there |= !page.rows.is_empty();
        let rest = page.rows.iter().map(|(key, _)| &key[prefix.len()..]);
        let ids = rest.filter_map(|rest| rest.strip_prefix(&[MESSAGE_PREFIX]));
        messages.extend(ids.filter_map(|id| Some(MessageId(id.try_into().ok()?))));
        next = page.next.map(|start| KeyRange { start, ..range });
    }
    is_there.then_some(messages)
}

/// As a node that dies and starts finds it.
pub(super) fn durable(copy: &DiskCopy) -> Memory {
    let mut disk = Memory::new();
    disk.put_back(copy.clone());
    disk
}

impl World {
    /// A node has acknowledged something that only it need have; or mail, which one more has.
    pub(super) fn acked(&mut self, node: usize, account: AccountId, what: Acked) {
        let one_disk = matches!(what, Acked::Accepted(_) | Acked::Imported(_));
        let is_local = self.plan.other_nodes == 0 || one_disk;
        // Of removals there are several.
        let may_be_lost = !self.losses.is_over && is_local;
        if self.plan.membership == 0 && !may_be_lost {
            return;
        }
        let ack = Ack {
            node,
            by: self.members[node].id,
            account,
            number: self.own_log(node, account),
            what,
        };
        self.losses.acks.push(ack);
    }

    /// A node has delivered mail: what it writes now.
    pub(super) fn delivered(&mut self, node: usize, entry: String, account: AccountId) {
        let number = self.own_log(node, account) + 1;
        let of_it = self.losses.deliveries.entry((entry, account)).or_default();
        of_it.insert(self.members[node].id, number);
    }

    /// The last number of a node's own log where an account is.
    fn own_log(&self, node: usize, account: AccountId) -> u64 {
        let member = &self.members[node];
        let partition = store_partition(keys::partition_of(account));
        let logs = member.node.disk.log_positions(partition).into_iter();
        let mut own = logs.filter(|(origin, _)| *origin == Origin(member.id.get()));
        own.next().map_or(0, |(_, log)| log.next - 1)
    }

    /// A client has done so many things: perhaps a disk goes now.
    pub(super) fn maybe_lose_a_disk(&mut self, call: u64) {
        if self.losses.is_over {
            return;
        }
        if self.losses.lost_at == 0 {
            let mut there = self.there().into_iter();
            let is_back = self.losses.pending.is_empty()
                && there.all(|index| self.members[index].is_up() && !self.is_syncing(index));
            if !is_back {
                return;
            }
            self.losses.loss += 1;
            self.losses.copied_at = call + self.losses.rng.below(5);
            self.losses.lost_at = self.losses.copied_at + self.losses.rng.between(5, 25);
            self.note("cluster: disks go one after the other");
        }
        if self.plan.disks == Disks::Older && self.losses.copy.is_none() {
            if call < self.losses.copied_at {
                return;
            }
            let there = self.there();
            let index = *self.losses.rng.pick(&there);
            self.say(|| format!("the disk of {index} is copied"));
            let copy = self.members[index].node.disk.copy();
            self.losses.copy = Some((index, copy));
        }
        if call < self.losses.lost_at {
            return;
        }
        let mut there = self.there();
        let older = self.losses.copy.as_ref().map(|(index, _)| *index);
        let count = if self.plan.disks == Disks::TwoLost {
            2
        } else {
            1
        };
        let mut victims = BTreeSet::new();
        while victims.len() < count && !there.is_empty() {
            let drawn = self.losses.rng.below(there.len() as u64);
            victims.insert(there.swap_remove(usize::try_from(drawn).unwrap_or(0)));
        }
        if let Some(older) = older {
            victims = [older].into();
        }
        let is_ready = |index: &usize| self.members[*index].down.is_none();
        let goes_on = self.lets_in(&victims) && self.is_complete_without(&victims);
        // Who has come for a lost disk may have nothing yet: with the others all would be lost.
        let mut left = self.there().into_iter();
        let one_has_all = left.any(|index| {
            let may_know = self.members[index].is_up() && !self.is_syncing(index);
            may_know && !victims.contains(&index)
        });
        let goes_on = goes_on && one_has_all;
        if victims.len() == count && victims.iter().all(is_ready) && goes_on {
            self.lose_disks(&victims);
        }
    }

    /// Whether one of those who are left has slots for all of these: who has come for a lost disk may have none to give, and then they never come back.
    fn lets_in(&self, victims: &BTreeSet<usize>) -> bool {
        let left = self.there().into_iter();
        let mut left = left.filter(|index| !victims.contains(index));
        left.any(|index| {
            let member = &self.members[index];
            let mut roster = member.roster.clone();
            let mut ids = victims.iter().map(|victim| self.id_after(*victim));
            ids.all(|id| roster.sponsor(member.id, id, "").is_ok())
        })
    }

    /// Under which incarnation a node comes back with another disk.
    fn id_after(&self, index: usize) -> Incarnation {
        Incarnation::from_hash(self.plan.seed << 8 | self.losses.loss << 4 | 0x80 | index as u64)
    }

    fn lose_disks(&mut self, victims: &BTreeSet<usize>) {
        // What survives: the disks of the others, and the copy.
        let others = self.there().into_iter();
        let others = others.filter(|index| !victims.contains(index));
        let mut left: Vec<Memory> = others
            .map(|index| durable(&self.members[index].node.disk.copy()))
            .collect();
        if let Some((_, copy)) = &self.losses.copy {
            left.push(durable(copy));
        }
        let most = |id: Incarnation, partition| {
            let ends = left.iter().map(|disk| ends(disk, id));
            let ends = ends.filter_map(|ends| ends.get(&partition).copied());
            ends.max().unwrap_or(0)
        };
        let is_alone = |of: &usize| {
            let own = ends(&self.members[*of].node.disk, self.members[*of].id);
            let own = own.get(&PartitionId::DIRECTORY).copied().unwrap_or(0);
            own > most(self.members[*of].id, PartitionId::DIRECTORY)
        };
        if victims.iter().any(is_alone) {
            return;
        }
        let has_body = |body: &u32| self.losses.has_body(&left, *body);
        let is_gone = |ack: &Ack| match &ack.what {
            // One other node had it: that is no promise for two, together or one after the other. What is imported may be another's operation.
            Acked::Accepted(body) => victims.len() > 1 || (self.losses.loss > 1 && !has_body(body)),
            Acked::Imported(_) if victims.len() > 1 => true,
            _ if !victims.contains(&ack.node) => false,
            Acked::Body(body) | Acked::Imported(body) if !has_body(body) => true,
            _ => ack.number > most(ack.by, keys::partition_of(ack.account)),
        };
        let gone: Vec<usize> = (0..self.losses.acks.len())
            .filter(|index| is_gone(&self.losses.acks[*index]))
            .collect();
        self.let_go(&gone);
        self.note_if(
            !gone.is_empty(),
            "cluster: what a lost disk alone had is gone",
        );
        if self.losses.loss == self.losses.losses {
            self.losses.acks.clear();
            self.losses.is_over = true;
        } else {
            let mut index = 0..;
            let mut is_gone = || index.next().is_some_and(|index| gone.contains(&index));
            self.losses.acks.retain(|_| !is_gone());
        }
        self.losses.lost_at = 0;
        for index in victims {
            self.note(match self.plan.disks {
                Disks::Older => "cluster: older disk put back",
                Disks::TwoLost => "cluster: two disks lost at once",
                Disks::Lost | Disks::Own => "cluster: disk lost under load",
            });
            self.say(|| format!("the disk of {index} is gone, with {} answers", gone.len()));
            let copy = self.losses.copy.take().map(|(_, copy)| copy);
            self.losses.pending.insert(*index, copy.unwrap_or_default());
            let down = self.losses.rng.below(20 * SECOND);
            self.crash(*index, self.now + 1 + down);
        }
    }

    /// These answers hold no more.
    pub(super) fn let_go(&mut self, gone: &[usize]) {
        for index in gone {
            let ack = &self.losses.acks[*index];
            match &ack.what {
                Acked::Body(body) | Acked::Imported(body) | Acked::Accepted(body) => {
                    self.kept.made(ack.account, *body);
                    // It may have been copied, and nobody has it for the copy either.
                    self.names.forget_copies(ack.account);
                }
                Acked::Flags(id) => {
                    self.kept.unflagged(ack.account, *id);
                    self.flagging.forget(ack.account, *id);
                }
                Acked::Expunged(id) => self.removals.forget(ack.account, *id),
                Acked::Name(name) => self.names.forget(*name),
            }
        }
    }

    /// Whether it will come back with another disk.
    pub(super) fn has_lost_its_disk(&self, index: usize) -> bool {
        self.losses.pending.contains_key(&index)
    }

    /// The members that a node which starts can ask.
    fn reached_by(&self, index: usize) -> Vec<usize> {
        let there = self.there().into_iter();
        let reached = there.filter(|peer| {
            let is_up = *peer != index && self.members[*peer].is_up();
            is_up && (self.calm || self.network.is_reachable(self.now, index, *peer))
        });
        reached.collect()
    }

    /// A node has started with its own disk: it asks the peers who it is, and hears of members from them, as in the server ([`startup`]). Whether it
    /// has heard of some of which it did not know; `None`: it was removed.
    pub(super) fn asks_who_it_is(&mut self, index: usize) -> Result<Option<bool>, String> {
        let (reached, mut heard) = (self.reached_by(index), false);
        for peer in &reached {
            let (from, theirs) = (self.members[*peer].id, self.members[*peer].roster.clone());
            let outcome = self.members[index].roster.hear(from, &theirs);
            let outcome = outcome.map_err(|error| error.to_string())?;
            heard |= outcome == MergeOutcome::Taken { new: true };
        }
        if self.verdict(index, &self.members[index].node.disk, &reached)? == Verdict::Removed {
            self.note("cluster: a removed node does not start");
            self.leave(index);
            return Ok(None);
        }
        Ok(Some(heard))
    }

    /// A node starts with another disk, if some peer gives it a slot; whether it does.
    pub(super) fn starts_with_another_disk(&mut self, index: usize) -> Result<bool, String> {
        let Some(copy) = self.losses.pending.remove(&index) else {
            return Ok(false);
        };
        let reached = self.reached_by(index);
        let id = self.id_after(index);
        let mut sponsors = reached.clone();
        sponsors.retain(|at| {
            let member = &self.members[*at];
            member.roster.clone().sponsor(member.id, id, "").is_ok()
        });
        if sponsors.is_empty() {
            self.say(|| format!("node {index} finds nobody that lets it in"));
            self.losses.pending.insert(index, copy);
            self.members[index].down = Some(self.now + AGAIN_MICROS);
            return Ok(false);
        }
        let is_older = self.plan.disks == Disks::Older;
        if is_older {
            let disk = durable(&copy);
            let verdict = self.verdict(index, &disk, &reached)?;
            let is_noticed = matches!(verdict, Verdict::Older(_));
            self.note_if(is_noticed, "cluster: older disk noticed by peers");
            // The accounts that are there lead, so U2 holds for what was told after the copy; what was told of others is known nowhere.
            let mut held = BTreeSet::new();
            for account in self.accounts.clone() {
                let Some(messages) = messages_of(&disk, account) else {
                    self.note("cluster: older disk without an account");
                    continue;
                };
                held.extend(messages.into_iter().map(|id| (account, id)));
            }
            let mut known = BTreeMap::new();
            self.looks.forget_unless(index, |account| {
                let known = known.entry(account);
                *known.or_insert_with(|| messages_of(&disk, account).is_some())
            });
            self.looks.put_back(index, held);
        } else {
            self.looks.forget(index);
        }
        let sponsor = *self.losses.rng.pick(&sponsors);
        let removes = self.losses.removes;
        self.join_with(index, id, sponsor, copy, removes)?;
        Ok(true)
    }

    /// Who a node with this disk is by the answers of these peers. A peer that has more of its log must object, and only such a one.
    fn verdict(
        &self,
        index: usize,
        disk: &Memory,
        reached: &[usize],
    ) -> Result<Verdict<Because>, String> {
        let me = self.members[index].id;
        let own = ends(disk, me);
        let is_more =
            |log: &&RememberedLog| own.get(&log.partition).is_none_or(|has| log.last > *has);
        let (mut startup, mut more) = (Startup::new(me), None);
        for peer in reached {
            let peer = &self.members[*peer];
            let remembered = logs_of(&peer.node.disk, me);
            more = more.or(remembered.iter().find(is_more).cloned());
            let mut of_logs = remembered.iter();
            let older = of_logs.find_map(|log| older_than(disk, me, peer.id, log));
            startup.answered(&remembered, older);
        }
        let verdict = startup.verdict(&self.members[index].roster);
        match (&verdict, &more) {
            (Verdict::Older(_), Some(_)) | (Verdict::Keep, None) | (Verdict::Removed, _) => {
                Ok(verdict)
            }
            _ => Err(format!(
                "node {index} with the logs {own:?}, of which peers have {more:?}: {verdict:?}"
            )),
        }
    }
}

/// The logs of one incarnation on a disk.
fn logs_of(disk: &Memory, of: Incarnation) -> Vec<RememberedLog> {
    let partitions = disk.partitions().into_iter();
    let partitions = partitions.filter_map(|at| u16::try_from(at.0).ok().map(PartitionId));
    partitions
        .filter_map(|at| RememberedLog::of(at, of, &disk.log_positions(store_partition(at))))
        .collect()
}

/// Why this disk is older than a log that a peer has, if it is.
fn older_than(
    disk: &Memory,
    me: Incarnation,
    peer: Incarnation,
    log: &RememberedLog,
) -> Option<Because> {
    let partition = store_partition(log.partition);
    let own = startup::own(me, &disk.log_positions(partition));
    let look = match startup::judge(me, peer, &log.hello(me), &own) {
        Judged::Fits => return None,
        Judged::Older(because) => return Some(because),
        Judged::Look(look) => look,
    };
    let page = disk.read_log(partition, Origin(me.get()), look.number, 1);
    let entry = page.entries.first();
    let entry = entry.filter(|entry| entry.first <= look.number);
    look.found(entry.map(|entry| Hash(entry.hash().0)))
}
