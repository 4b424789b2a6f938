//! Who looks at accounts, here and at other nodes, and what waits for them (docs/design.md#rule-5).
//!
//! While another node has readers on an account, a new claim is shown, and its UID told, only when that node was heard with a counter at
//! least as high: whatever it claims from then on is above. So nothing is late in a whole network where each node that writes to the account has
//! readers of it: one without is not waited for, and what it claims may be late. Who was waited for long enough (three round trips,
//! two seconds at most, and twice as long for each time that the message was claimed before) is waited for no longer; what is late then is claimed
//! again (docs/design.md#rule-4).
//!
//! `mailbox` says what waits; `replication::readers` says who was heard with what. Here the two meet: counters go out when they are durable, what
//! comes in releases what waits, and answers that tell UIDs of waiting messages are held until these are shown.
//!
//! Invariants:
//! - A counter is told when the commit that raised it is durable.
//! - What was heard releases what waits before anything else is told: else a lower claim that waited would be late.
//! - An answer that tells UIDs tells those under which the messages are shown.

use whimbrel_crdt::{Batch, Incarnation, Stamp, mutants::broken};
use whimbrel_mailbox::{
    AccountId, Effects, MailboxName, MessageId, Peer, Peers, Replica, Visibility,
};
use whimbrel_replication::readers;
use whimbrel_storage::{Mutation, Room};

use super::{
    BTreeMap, Own, Partition, PartitionOwner, Phase, confirming::Confirm, keys, rows::push_row,
    writing::take_visible,
};
use crate::{
    api::{Failure, MailboxCall, Reply},
    machine::{Now, Output, RequestId, Ticket},
    peers::{Frame, PeerOutput, Stream, clocks},
};

/// An answer that waits until the messages whose UIDs it tells are shown, or until other nodes have what was written, or both.
pub(super) struct WaitingAnswer {
    request: RequestId,
    /// Where messages were put whose UIDs it tells, and which these are.
    target: Option<MailboxName>,
    messages: Vec<MessageId>,
    /// Tells the UIDs that were claimed first.
    reply: Reply,
    pub(super) others: OtherNodes,
    /// What is taken back when they do not have it in time; `None`: it is done, whatever others have.
    put: Option<Vec<(MessageId, Stamp)>>,
    /// The commit that it tells of; `None`: it was durable.
    commit: Option<Ticket>,
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

impl WaitingAnswer {
    /// A commit of the partition has failed, and is the first that did. Whether the answer tells of what is durable, and so is given when the account
    /// was read again. What others had to have is taken back then, since it is not known any more how far they are.
    pub(super) fn outlives(&mut self, failed: Ticket) -> bool {
        if self.commit.is_some_and(|commit| commit >= failed) || broken("refused-stays") {
            return false;
        }
        if matches!(self.others, OtherNodes::Awaited(_)) {
            self.others = OtherNodes::TooFew;
        }
        true
    }

    /// What is told when it will never be known.
    pub(super) fn refused(self, failure: Failure) -> Output {
        Output::Reply(self.request, Reply::Failed(failure))
    }
}

/// The mailbox of which the answer to this call tells new UIDs. An importer is told of UIDs, too, and tells them to nobody.
pub(super) fn tells_uids_of(call: &MailboxCall) -> Option<MailboxName> {
    match call {
        MailboxCall::Append { name, .. } => Some(name.clone()),
        MailboxCall::Copy { to, .. } => Some(to.clone()),
        _ => None,
    }
}

/// The new UIDs that an answer tells, in its order.
fn told_uids(reply: &mut Reply) -> Vec<&mut u32> {
    match reply {
        Reply::Appended { uids, .. } => uids.iter_mut().collect(),
        Reply::Copied { uids, .. } => uids.iter_mut().map(|(_, new)| new).collect(),
        _ => Vec::new(),
    }
}

impl Own {
    pub(super) fn linked(&mut self, now: Now, peer: Incarnation, round_trip: Option<u64>) {
        self.shipping.linked(now, peer);
        if self.members.get(&peer).is_some_and(|of| of.left.is_some()) {
            return;
        }
        self.hears(now, peer);
        if let Some(micros) = round_trip {
            self.readers.round_trip(peer, micros);
        }
    }

    pub(super) fn unlinked(&mut self, now: Now, peer: Incarnation) {
        self.shipping.unlinked(now, peer);
        self.readers.unlinked(clocks(now), peer);
        self.announced.unlinked(peer);
        self.confirming.stream_of(peer);
        self.parting.remove(&peer);
        self.keep_announced_soon();
    }

    pub(super) fn received(&mut self, now: Now, peer: Incarnation, frame: Frame) {
        match frame {
            Frame::Readers(told) => self.readers.received(clocks(now), peer, told),
            Frame::Links(told) => self.readers.received_links(peer, told),
            Frame::ReadersOf(told) => self.readers.received_of(clocks(now), peer, told),
            Frame::Announced(told) => {
                self.announced.received(peer, told, self.log.applied());
            }
            Frame::VisibleVector(told) => self.announced.received_of(told, self.log.applied()),
            Frame::BlobHave(have) => self.told_of_body(peer, &have),
            other => {
                if matches!(&other, Frame::Hello(hello) if hello.begins_anew()) {
                    self.hears(now, peer);
                }
                if matches!(&other, Frame::Hello(hello) if hello.syncing == Some(true)) {
                    self.announced.is_new(peer);
                }
                self.shipping.received(now, &self.log, peer, other);
            }
        }
    }

    /// Small ones first.
    pub(super) fn transmit(&mut self, now: Now, to: Stream) -> Option<Frame> {
        let peer = to.peer;
        let small = self.readers.transmit(peer);
        let small = small.or_else(|| self.announced.transmit(peer));
        let small = small.or_else(|| self.confirming.transmit(peer));
        let small = small.or_else(|| self.parting.remove(&peer));
        small.or_else(|| self.shipping.transmit(now, to))
    }

    pub(super) fn time(&mut self, now: Now) {
        self.shipping.time(now);
        self.readers.time(clocks(now));
        self.confirming.time(now);
    }

    /// When it wants to be called, as it was reckoned last.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadline
    }

    pub(super) fn reckon(&mut self, now: Now) -> Option<u64> {
        let shipping = self.shipping.reckon(now);
        let others = self.readers.deadline().into_iter().chain(self.report_at());
        let others = others.chain(self.confirming.deadline());
        let others = others.chain(self.retry_at);
        let others = others.chain(self.leaving.as_ref().map(|of| of.deadline()));
        self.deadline = shipping.into_iter().chain(others).min();
        self.deadline
    }

    /// A batch of another node is being applied: what its origin claimed up to the counters in it is here.
    pub(super) fn applied(&mut self, batch: &Batch) {
        let sections = batch.sections.iter();
        let counters: Vec<_> = sections.map(|of| (of.subject, of.counter)).collect();
        self.readers.applied(batch.origin, batch.last(), &counters);
        self.announced.applied(self.log.applied());
    }

    /// A commit is durable, and with it the counters that rose by it.
    pub(super) fn counted(&mut self, origin: Incarnation, ticket: Ticket) {
        let mut counters = Vec::new();
        while let Some((_, account, counter)) = self.counters.pop_front_if(|(of, ..)| *of <= ticket)
        {
            counters.push((account.0, counter));
        }
        let durable = self.shipping.durable(origin);
        self.readers.durable(durable, &counters);
    }

    /// The counter of an account is told when all that is under way is durable: it rose by that at the latest.
    pub(super) fn rose(&mut self, account: AccountId, counter: u32) {
        match self.gate.newest() {
            None => self.readers.durable(0, &[(account.0, counter)]),
            Some(newest) => self.counters.push_back((newest, account, counter)),
        }
    }

    /// The other live replicas with readers on the account. `slots`: of all members.
    pub(super) fn peers(
        &self,
        now: Now,
        account: AccountId,
        slots: &BTreeMap<Incarnation, u8>,
    ) -> Peers {
        if slots.is_empty() || self.nobody_waits {
            return Peers::none();
        }
        let heard = self.readers.peers(clocks(now), account.0).into_iter();
        let peers = heard.filter_map(|heard| {
            Some(Peer {
                slot: *slots.get(&heard.peer)?,
                heard: heard.counter,
                timeout_micros: heard.timeout_micros,
            })
        });
        Peers::new(now.mono_micros, peers.collect())
    }
}

impl PartitionOwner {
    /// Tells other nodes of accounts that are looked at here from now on, or no more.
    pub(super) fn tell_of_readers(&mut self, now: Now) {
        for account in self.agenda.take_watched() {
            let partition = keys::partition_of(account);
            let counter = self.accounts.get(&account).and_then(|entry| {
                let watched = !entry.watchers.is_empty();
                match &entry.phase {
                    Phase::Running(replica) if watched => Some(replica.counter()),
                    _ => None,
                }
            });
            if self.config.peers.is_empty() {
                continue;
            }
            let Some(own) = self.partitions.running(partition) else {
                continue;
            };
            match counter {
                None => own.readers.unwatch(account.0),
                Some(_) if own.readers.is_watched(account.0) => {}
                Some(counter) => {
                    own.readers.watch(account.0, 0);
                    own.rose(account, counter);
                }
            }
            self.hear(now, partition);
        }
    }

    /// Does what follows from what was heard.
    pub(super) fn hear(&mut self, now: Now, partition: whimbrel_crdt::PartitionId) {
        while let Some(output) = self
            .partitions
            .running(partition)
            .and_then(|own| own.readers.poll())
        {
            match output {
                readers::Output::Wake(peer) => {
                    let wake = PeerOutput::Wake(partition, peer);
                    self.out.push(Output::Peer(wake));
                }
                readers::Output::RemoteReaders(account) if !broken("heard-not-released") => {
                    self.release(now, AccountId(account));
                }
                readers::Output::Passes => {
                    if let Some(own) = self.partitions.running(partition) {
                        let passes = own.readers.passes().clone();
                        own.shipping.pass_on(now, passes);
                        self.ship(now, partition);
                    }
                }
                readers::Output::RemoteReaders(_) | readers::Output::Reads { .. } => {}
            }
        }
    }

    /// Accounts of which something has waited long enough.
    pub(super) fn waits_due(&mut self, now: Now) {
        while let Some((at, account)) = self.agenda.next_to_show(now) {
            let entry = self.accounts.get(&account);
            if entry.is_some_and(|entry| entry.wait_until == Some(at)) {
                self.release(now, account);
            }
        }
    }

    /// Shows what need wait no longer.
    fn release(&mut self, now: Now, account: AccountId) {
        let Some(entry) = self.accounts.get(&account) else {
            return;
        };
        let Some(Partition::Running(own)) = self.partitions.get(&entry.partition) else {
            return;
        };
        if entry.wait_until.is_none() || own.failed {
            return;
        }
        // What is shown was accepted before.
        self.show_anew(now, account, Room::Vital, Replica::release);
    }

    /// A step that adds nothing and shows what was not shown: its rows are written, and sessions are told.
    pub(super) fn show_anew(
        &mut self,
        now: Now,
        account: AccountId,
        room: Room,
        step: impl FnOnce(&mut Replica, u64, &Peers) -> Effects,
    ) {
        self.show(now, account, (room, None), step);
    }

    /// The same of what was accepted before, and writes a row of the partition before what is shown, in the same commit. The account must be running.
    pub(super) fn show_with(
        &mut self,
        now: Now,
        account: AccountId,
        row: Option<Mutation>,
        step: impl FnOnce(&mut Replica, u64, &Peers) -> Effects,
    ) {
        self.show(now, account, (Room::Vital, row), step);
    }

    fn show(
        &mut self,
        now: Now,
        account: AccountId,
        (room, row): (Room, Option<Mutation>),
        step: impl FnOnce(&mut Replica, u64, &Peers) -> Effects,
    ) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let (Phase::Running(replica), Some(Partition::Running(own))) =
            (&mut entry.phase, self.partitions.get(&entry.partition))
        else {
            return;
        };
        let peers = own.peers(now, account, &self.config.peers);
        let effects = step(replica, own.log.hlc().last(), &peers);
        entry.wait_until = effects.wait_until;
        self.agenda.show_at(effects.wait_until, account);
        let shown = take_visible(replica, account);
        let shown = row.into_iter().chain(shown);
        let mut rows: Vec<Vec<Mutation>> = shown.map(|row| vec![row]).collect();
        let mut last = Vec::new();
        for (row, value) in replica.take_dirty_state() {
            push_row(&mut last, account, &row, value);
        }
        rows.push(last);
        let measured = self.limits.measure(&mut entry.measured, replica);
        self.out.extend(measured);
        self.sessions
            .changed(&mut self.out, account, &mut entry.watchers, &effects, None);
        self.write_rows(account, room, rows);
        if effects.late {
            self.claim_late(now, account);
        }
    }

    // --- Answers that are held ------------------------------------------------------------------------------------------

    /// Keeps an answer for which other nodes must have what was written, or that tells UIDs (of messages in `target`) which are not shown; gives it back if
    /// it need not be kept.
    pub(super) fn hold(
        &mut self,
        account: AccountId,
        request: RequestId,
        target: Option<MailboxName>,
        mut reply: Reply,
        confirm: Option<Confirm>,
    ) -> Option<Reply> {
        let entry = self.accounts.get_mut(&account);
        let commit = entry.as_ref().and_then(|entry| entry.newest);
        let (kept, replica) = match entry.map(|entry| (&mut entry.held, &entry.phase)) {
            Some((kept, Phase::Running(replica))) => (kept, replica),
            _ if confirm.is_some() => return Some(Reply::Failed(Failure::Temporary)),
            _ => return Some(reply),
        };
        let told_at_once = replica.is_clean() || broken("uids-told-at-once");
        let mut messages = Vec::new();
        if let Some(target) = target
            .as_ref()
            .filter(|_| confirm.is_some() || !told_at_once)
        {
            let claimed = told_uids(&mut reply);
            let claimants = claimed.iter().map(|uid| replica.claimant(target, **uid));
            messages = claimants.collect::<Option<_>>().unwrap_or_default();
        }
        let shown = |of| matches!(replica.visibility(of), Visibility::VisibleMessage(_));
        if confirm.is_none() && (told_at_once || messages.iter().all(shown)) {
            return Some(reply);
        }
        let put = confirm.as_ref().filter(|of| of.adds).map(|_| {
            let put = messages.iter().map(|of| Some((*of, replica.placed(of)?)));
            put.flatten().collect()
        });
        if confirm.is_none() {
            self.agenda.answer(account);
        }
        kept.push(WaitingAnswer {
            request,
            target,
            messages,
            reply,
            others: confirm.map_or(OtherNodes::Enough, |of| OtherNodes::Awaited(of.number)),
            put,
            commit,
        });
        None
    }

    /// Gives the answers that need not be held any more, whatever it is.
    pub(super) fn answer_all_held(&mut self, now: Now) {
        for account in self.agenda.take_answers() {
            self.answer_held(now, account);
            let entry = self.accounts.get(&account);
            let waits = |held: &WaitingAnswer| !matches!(held.others, OtherNodes::Awaited(_));
            if entry.is_some_and(|entry| entry.held.iter().any(waits)) {
                self.agenda.answer(account);
            }
        }
    }

    /// Under which UIDs messages are told to be in a mailbox, where they are shown now. Of what is not, or not any more, the claim is told that was
    /// made for it, and so the mailbox's UIDNEXT is above it.
    fn tell_uids_of<'a>(
        &mut self,
        account: AccountId,
        target: &MailboxName,
        told: impl Iterator<Item = (&'a mut u32, &'a MessageId)>,
    ) {
        let entry = self.accounts.get_mut(&account);
        let Some(Phase::Running(replica)) = entry.map(|entry| &mut entry.phase) else {
            return;
        };
        for (uid, message) in told {
            match replica.visibility(message) {
                Visibility::VisibleMessage(shown)
                    if replica.resolve(target, shown) == Some(shown) =>
                {
                    *uid = shown;
                }
                // Once its body comes, or its wait ends, it is claimed again: what was told of its mailbox is above this claim.
                _ => replica.announce_uid(target, *uid),
            }
        }
    }

    fn answer_held(&mut self, now: Now, account: AccountId) {
        let Some(entry) = self.accounts.get_mut(&account) else {
            return;
        };
        let Phase::Running(replica) = &mut entry.phase else {
            return;
        };
        let is_ready = |held: &mut WaitingAnswer| match held.others {
            OtherNodes::Awaited(_) => false,
            OtherNodes::Enough => !waits(replica, &held.messages),
            OtherNodes::TooFew => true,
        };
        let ready: Vec<WaitingAnswer> = entry.held.extract_if(.., is_ready).collect();
        for mut held in ready {
            if matches!(held.others, OtherNodes::TooFew) {
                let failure = self.not_confirmed(now, account, held.put.as_deref());
                self.answer(account, held.refused(failure));
                continue;
            }
            let Ok(replica) = self.accounts.replica(account) else {
                return;
            };
            // In an epoch that is over it was what it is told with: of the present one it says nothing.
            let is_of_now = match &held.reply {
                Reply::Appended { uid_validity, .. } | Reply::Copied { uid_validity, .. } => {
                    *uid_validity == replica.uidvalidity()
                }
                _ => true,
            };
            if let Some(target) = held.target.as_ref().filter(|_| is_of_now) {
                let told = told_uids(&mut held.reply).into_iter();
                self.tell_uids_of(account, target, told.zip(&held.messages));
                self.write(now, account, Vec::new(), &[target]);
            }
            self.answer(account, Output::Reply(held.request, held.reply));
        }
    }
}

/// For a body no answer waits: nobody may have it.
fn waits(replica: &whimbrel_mailbox::Replica, messages: &[MessageId]) -> bool {
    let mut standings = messages.iter().map(|message| replica.visibility(message));
    standings.any(|visibility| visibility == Visibility::Waits)
}

#[cfg(test)]
mod tests {
    use whimbrel_mailbox::{CLAIMS_KEPT_MAX, TIMEOUT_MICROS_MAX};
    use whimbrel_replication::readers::Config;

    /// Claims end on every link that is faster than the longest wait only if all waits come to it in the end.
    #[test]
    fn the_shortest_wait_comes_to_the_longest() {
        let config = Config::default();
        assert_eq!(
            config.timeout_micros_min << CLAIMS_KEPT_MAX,
            TIMEOUT_MICROS_MAX
        );
        assert!(config.timeout_micros_max <= TIMEOUT_MICROS_MAX);
    }
}
