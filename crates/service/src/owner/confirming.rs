//! Answers that wait until other nodes have what was written (`f = n`, `docs/decisions/0038`).
//!
//! A call says how many other nodes must have what it writes. If fewer can be reached nothing is written. Else it is written as ever, and its answer
//! is held until so many have applied the last batch that it made, durably, and have the bodies of the messages that it added. *Applied*, and not
//! only stored: what the batch rests on is there, too, whoever made it.
//!
//! Of bodies nobody tells unasked. When a peer has applied the batch it is asked for them, in the stream of the partition; it answers at once if it
//! does not lack the body, else when that has come and is held there. On a new stream all is asked again.
//!
//! If too few have it in time, messages that the call added are taken back, by an ordinary EXPUNGE of just these: who is refused appends again, and
//! must not have them twice. Whatever else it did stays: to do it again changes nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_crdt::{Incarnation, PartitionId, Stamp, mutants::broken};
use whimbrel_mailbox::{AccountId, BlobName, MessageId, Op};
use whimbrel_replication::{
    blobs::FEATURE_CONFIRM,
    waits::{self, Outcome, Refused, Waits},
    wire::BlobHave,
};
use whimbrel_storage::Room;

use super::{Mail, Own, Partition, keys, split_commits::fits};
use crate::{
    api::{Failure, MailboxCall},
    machine::{Now, Output, Ticket},
    peers::{Frame, PeerOutput, clocks, off_wire, on_wire},
};

/// Bodies of one partition of which one peer is to be told, or all together want to know: about as many messages as one COPY has room for. Who asks
/// for more is not answered, and gives up on this node in the end. Bounds memory, which a peer would decide about.
const ASKED_MAX: usize = 32 * 1024;

/// What a call writes is to be confirmed by other nodes.
pub(super) struct ToConfirm {
    needed: usize,
    /// Bodies of the messages that it adds.
    bodies: BTreeSet<BlobName>,
    /// Whether it does nothing but add messages.
    adds: bool,
    /// The number of the next operation before the call.
    next: u64,
}

/// What was written waits to be confirmed.
pub(super) struct Confirm {
    /// The last operation.
    pub(super) number: u64,
    /// Whether messages were added, and nothing else was done.
    pub(super) adds: bool,
}

/// Whether other nodes have what an answer tells of.
#[derive(PartialEq, Eq)]
pub(super) enum OtherNodes {
    /// The batch of this number, of the bodies that it rests on.
    Awaited(u64),
    /// As many as have to, or none has to.
    Enough,
    /// Not in time.
    TooFew,
}

/// A peer is told of a body.
struct Have {
    body: BlobName,
    /// Whether it is asked, too.
    ask: bool,
    /// When this commit is durable, and with it the body.
    after: Ticket,
}

/// In one partition: what waits for other nodes, and what they want to know.
pub(super) struct Confirming {
    partition: PartitionId,
    waits: Waits,
    /// What waits, by the number of its last operation: whose it is, and with which bodies.
    open: BTreeMap<u64, (AccountId, BTreeSet<BlobName>)>,
    /// Up to which number peers were asked for the bodies, on their present streams.
    asked: BTreeMap<Incarnation, u64>,
    /// Peers that want to know of bodies that are not here.
    askers: BTreeMap<BlobName, BTreeSet<Incarnation>>,
    /// Bodies that are here, and of which peers are told.
    haves: BTreeMap<Incarnation, VecDeque<Have>>,
    /// The newest commit that is durable.
    synced: Ticket,
    /// Bodies of deliveries, of which peers are asked: who was, on its present stream, and who has said that it has the body.
    delivered: BTreeMap<BlobName, (BTreeSet<Incarnation>, BTreeSet<Incarnation>)>,
    /// Peers that have to be woken for these.
    woken: BTreeSet<Incarnation>,
    outcomes: Vec<Outcome>,
}

impl Confirming {
    pub(super) fn new(partition: PartitionId, config: waits::Config) -> Self {
        Confirming {
            partition,
            waits: Waits::new(config),
            open: BTreeMap::new(),
            asked: BTreeMap::new(),
            askers: BTreeMap::new(),
            haves: BTreeMap::new(),
            synced: Ticket::default(),
            delivered: BTreeMap::new(),
            woken: BTreeSet::new(),
            outcomes: Vec::new(),
        }
    }

    /// The stream to a peer is new, or gone, or all is said again on it.
    pub(super) fn stream_of(&mut self, peer: Incarnation) {
        self.asked.remove(&peer);
        self.haves.remove(&peer);
        self.woken.remove(&peer);
        for (asked, _) in self.delivered.values_mut() {
            asked.remove(&peer);
        }
        self.askers.retain(|_, askers| {
            askers.remove(&peer);
            !askers.is_empty()
        });
    }

    fn begin(
        &mut self,
        now: Now,
        number: u64,
        needed: usize,
        account: AccountId,
        bodies: BTreeSet<BlobName>,
    ) {
        let bodies = match broken("confirmed-without-bodies") {
            true => BTreeSet::new(),
            false => bodies,
        };
        let blobs = bodies.iter().map(on_wire).collect();
        self.waits.begin(clocks(now), number, needed, blobs);
        self.open.insert(number, (account, bodies));
    }

    /// A peer has applied our log up to here, where ours ends with `own`; whether it answers for bodies.
    fn applied(&mut self, peer: Incarnation, number: u64, own: u64, answers: bool) {
        self.outcomes.extend(self.waits.applied(peer, number, own));
        let before = self.asked.get(&peer).copied().unwrap_or(0);
        if !answers || number <= before || number > own {
            return;
        }
        self.asked.insert(peer, number);
        let open = self.open.range(before + 1..=number);
        let bodies = open.flat_map(|(_, (_, bodies))| bodies.iter());
        // They were durable here before the batch left.
        let bodies = bodies.map(|body| Have {
            body: *body,
            ask: true,
            after: Ticket::default(),
        });
        let of = self.haves.entry(peer).or_default();
        of.extend(bodies);
        if of.is_empty() {
            self.haves.remove(&peer);
        } else {
            self.woken.insert(peer);
        }
    }

    /// A peer wants to know of a body, which is durable with this commit if it is here.
    fn ask(&mut self, peer: Incarnation, body: BlobName, here: bool, after: Ticket) {
        if here {
            self.send(peer, body, after);
        } else if self.askers.contains_key(&body) || self.askers.len() < ASKED_MAX {
            self.askers.entry(body).or_default().insert(peer);
        }
    }

    fn send(&mut self, peer: Incarnation, body: BlobName, after: Ticket) {
        let of = self.haves.entry(peer).or_default();
        if of.len() < ASKED_MAX {
            let ask = false;
            of.push_back(Have { body, ask, after });
            self.woken.insert(peer);
        }
    }

    /// Asks a peer that has applied a delivery for its body, once on each stream.
    pub(super) fn ask_for(&mut self, peer: Incarnation, body: BlobName) {
        let (asked, _) = self.delivered.entry(body).or_default();
        if asked.insert(peer) {
            let have = Have {
                body,
                ask: true,
                after: Ticket::default(),
            };
            self.haves.entry(peer).or_default().push_back(have);
            self.woken.insert(peer);
        }
    }

    /// Who has to be woken, since there is something to be said.
    pub(super) fn take_woken(&mut self) -> BTreeSet<Incarnation> {
        std::mem::take(&mut self.woken)
    }

    /// Who has said to have the body of a delivery.
    pub(super) fn told_of(&self, body: &BlobName) -> Option<&BTreeSet<Incarnation>> {
        self.delivered.get(body).map(|(_, have)| have)
    }

    /// The delivery is done.
    pub(super) fn tell_no_more(&mut self, body: &BlobName) {
        self.delivered.remove(body);
    }

    /// A body is here from now on, and stays, when this commit is durable.
    pub(super) fn here(&mut self, body: &BlobName, after: Ticket) {
        for peer in self.askers.remove(body).unwrap_or_default() {
            self.send(peer, *body, after);
        }
    }

    /// A commit is durable; whether somebody is to be told of a body for that.
    pub(super) fn durable(&mut self, ticket: Ticket) -> bool {
        self.synced = self.synced.max(ticket);
        let may = |of: &VecDeque<Have>| of.front().is_some_and(|have| have.after <= ticket);
        let told = self.haves.iter().filter(|(_, of)| may(of));
        self.woken.extend(told.map(|(peer, _)| *peer));
        !self.woken.is_empty()
    }

    pub(super) fn transmit(&mut self, peer: Incarnation) -> Option<Frame> {
        let of = self.haves.get_mut(&peer)?;
        let synced = self.synced;
        let next = of.pop_front_if(|have| have.after <= synced);
        if of.is_empty() {
            self.haves.remove(&peer);
        }
        let Have { body, ask, .. } = next?;
        Some(Frame::BlobHave(BlobHave {
            name: on_wire(&body),
            here: true,
            ask,
            partition: Some(self.partition),
        }))
    }

    /// Answers that wait for other nodes.
    pub(super) fn waiting(&self) -> u64 {
        self.open.len() as u64
    }

    pub(super) fn time(&mut self, now: Now) {
        self.outcomes.extend(self.waits.time(clocks(now)));
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.waits.deadline()
    }
}

impl Own {
    /// A peer has a body, or asks for it.
    pub(super) fn told_of_body(&mut self, peer: Incarnation, have: &BlobHave) {
        if have.here {
            let outcomes = self.confirming.waits.has_blob(peer, have.name);
            self.confirming.outcomes.extend(outcomes);
            if let Some((_, told)) = self.confirming.delivered.get_mut(&off_wire(&have.name)) {
                told.insert(peer);
            }
        }
        if have.ask {
            let body = off_wire(&have.name);
            let here = self.has_body(&body) || broken("body-said-before-it-came");
            let after = self.newest();
            self.confirming.ask(peer, body, here, after);
        }
    }

    /// When this commit is durable, all is that is here now.
    pub(super) fn newest(&self) -> Ticket {
        self.gate.newest().unwrap_or_default()
    }

    /// Whether a body is here and held, of a batch that is applied: of accounts that are yet to be joined, or cannot be, it is not known what they lack.
    fn has_body(&self, body: &BlobName) -> bool {
        let joining = self.states.joining();
        !self.missing_blobs.contains_key(body) && joining.is_none_or(|joining| joining.knows(body))
    }
}

/// Whether what the call writes, if it does, must be confirmed by others.
///
/// # Errors
/// It cannot be: nothing may be written.
pub(super) fn to_be_confirmed(
    mail: &Mail,
    account: AccountId,
    call: &MailboxCall,
    other_nodes: usize,
) -> Result<Option<ToConfirm>, Failure> {
    let needed = other_nodes.min(mail.config.peers.len());
    if needed == 0 || !call.writes() {
        return Ok(None);
    }
    let partition = keys::partition_of(account);
    let Some(Partition::Running(own)) = mail.partitions.get(&partition) else {
        return Err(Failure::Temporary);
    };
    // The partition may have been opened a moment ago, here or there, so that they have not said yet where they stand in it.
    let links = mail.links.iter();
    let links = links.filter(|(peer, _)| mail.config.holds(*peer, partition));
    let reachable = links.filter(|(_, link)| link.has(FEATURE_CONFIRM));
    let may = own.confirming.waits.check(needed, reachable.count());
    may.map_err(|refused| match refused {
        Refused::TooFew { .. } => Failure::TooFewNodes,
        Refused::TooMany => Failure::Temporary,
    })?;
    let replica = mail.accounts.replica(account)?;
    let (adds, bodies) = match call {
        MailboxCall::Append {
            messages, replaces, ..
        } => {
            let bodies = messages.iter().map(|new| new.blob);
            (replaces.is_none(), bodies.collect())
        }
        // Those of records: what is here already may have come from another upload. It is not taken back: imports are never forgotten, so that it
        // would never come again.
        MailboxCall::Import { messages, .. } => {
            let bodies = messages.iter().map(|(entry, new)| {
                let known = replica.blob(&MessageId::imported(*entry, account));
                known.unwrap_or(new.blob)
            });
            (false, bodies.collect())
        }
        // They may be of before others were waited for.
        MailboxCall::Copy {
            name,
            uids,
            remove: false,
            ..
        } => {
            let bodies = replica.visible(name, uids).map(|shown| shown.row().blob);
            (true, bodies.collect())
        }
        _ => (false, BTreeSet::new()),
    };
    Ok(Some(ToConfirm {
        needed,
        bodies,
        adds,
        next: own.log.next(),
    }))
}

/// The call is carried out: what it has written waits. If it has written nothing it has found done what others may lack; then an operation that
/// changes nothing is written, and waits as any other does: whoever has applied it has all that was known here.
pub(super) fn confirm(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    of: ToConfirm,
) -> Option<Confirm> {
    let partition = keys::partition_of(account);
    let Some(Partition::Running(own)) = mail.partitions.get(&partition) else {
        return None;
    };
    if own.log.next() == of.next {
        let applied = own.log.applied();
        let peers = mail.config.peers.keys();
        let have = peers.filter(|peer| own.shipping.has_applied(**peer, applied));
        let is_enough = of.bodies.is_empty() && have.count() >= of.needed;
        if is_enough {
            return None;
        }
        let replica = mail.accounts.replica(account).ok()?;
        let (counter, epoch) = (replica.counter(), replica.epoch());
        mail.write(now, account, vec![Op::Bump { counter, epoch }], &[]);
    }
    let own = mail.partitions.running(partition)?;
    let number = own.log.next() - 1;
    own.confirming
        .begin(now, number, of.needed, account, of.bodies);
    Some(Confirm {
        number,
        adds: of.adds,
    })
}

/// A peer may have more, or time has passed: answers that need not wait are ready.
pub(super) fn confirm_on(mail: &mut Mail, partition: PartitionId) {
    let Some(Partition::Running(own)) = mail.partitions.get_mut(&partition) else {
        return;
    };
    if own.failed {
        return;
    }
    let (origin, last) = (own.log.origin(), own.log.next() - 1);
    if !own.confirming.open.is_empty() {
        for (peer, link) in mail.links.iter() {
            let applied = own.shipping.applied_at(peer, origin);
            let answers = link.has(FEATURE_CONFIRM) && own.shipping.is_greeted(peer);
            own.confirming.applied(peer, applied, last, answers);
        }
    }
    for peer in std::mem::take(&mut own.confirming.woken) {
        let wake = PeerOutput::Wake(partition, peer);
        mail.out.push(Output::Peer(wake));
    }
    for outcome in std::mem::take(&mut own.confirming.outcomes) {
        let (number, others) = match outcome {
            Outcome::Enough(number) => {
                mail.counted.answers_confirmed += 1;
                (number, OtherNodes::Enough)
            }
            Outcome::Abort(number) => {
                mail.counted.answers_unconfirmed += 1;
                (number, OtherNodes::TooFew)
            }
        };
        let Some((account, _)) = own.confirming.open.remove(&number) else {
            continue;
        };
        let entry = mail.accounts.get_mut(&account);
        let mut held = entry.into_iter().flat_map(|entry| &mut entry.held);
        // It may have been refused since, with its account.
        if let Some(held) = held.find(|held| held.others == OtherNodes::Awaited(number)) {
            held.others = others;
            mail.agenda.answer(account);
        }
    }
}

/// A state is joined, as far as that can be: it is known of bodies whether they are here.
pub(super) fn answer_of_bodies(mail: &mut Mail, partition: PartitionId) {
    if let Some(own) = mail.partitions.running(partition) {
        let askers = own.confirming.askers.keys().copied();
        let here: Vec<BlobName> = askers.filter(|body| own.has_body(body)).collect();
        let after = own.newest();
        here.iter()
            .for_each(|body| own.confirming.here(body, after));
    }
    confirm_on(mail, partition);
}

/// Too few nodes have it in time: takes back messages that lie where they were put, by whatever name. Says what the client is told.
pub(super) fn not_confirmed(
    mail: &mut Mail,
    now: Now,
    account: AccountId,
    put: Option<&[(MessageId, Stamp)]>,
) -> Failure {
    let Some(mut rest) = put.filter(|put| !put.is_empty()) else {
        return Failure::DoneHere;
    };
    if broken("unconfirmed-stays") {
        return Failure::NotConfirmed;
    }
    while !rest.is_empty() {
        let mut len = rest.len().min(mail.config.messages_per_call_max.max(1));
        let Ok(replica) = mail.accounts.replica(account) else {
            return Failure::Temporary;
        };
        let mut plan = replica.plan_take_back(&rest[..len]);
        while len > 1 && !fits(replica, &plan) {
            len /= 2;
            plan = replica.plan_take_back(&rest[..len]);
        }
        // What was refused must not stay, however little room there is.
        mail.write_for(now, account, plan.ops, &[], false, Some(Room::Vital));
        rest = &rest[len..];
    }
    mail.collect_soon(now, account);
    Failure::NotConfirmed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(number: usize) -> BlobName {
        let mut upload = [0; 16];
        upload[..8].copy_from_slice(&number.to_be_bytes());
        BlobName {
            hash: [0; 32],
            upload,
        }
    }

    #[test]
    fn what_a_peer_asks_is_bounded() {
        let peer = Incarnation::from_hash(1);
        let mut of = Confirming::new(PartitionId::accounts(0), waits::Config::default());
        for number in 0..2 * ASKED_MAX {
            of.ask(peer, body(number), true, Ticket::default());
            of.ask(peer, body(number), false, Ticket::default());
        }
        assert_eq!(
            (of.haves[&peer].len(), of.askers.len()),
            (ASKED_MAX, ASKED_MAX)
        );
        // Those that are remembered are told of.
        while of.transmit(peer).is_some() {}
        of.here(&body(0), Ticket::default());
        of.here(&body(2 * ASKED_MAX - 1), Ticket::default());
        assert!(of.transmit(peer).is_some());
        assert!(of.transmit(peer).is_none());
        of.stream_of(peer);
        assert!(of.askers.is_empty());
    }
}
