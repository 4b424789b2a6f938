//! One partition's machine, with what it asked for and what it waits for.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::ControlFlow,
};

use bytes::Bytes;
use whimbrel_crdt::{Batch, Hash, Incarnation, PartitionId, VersionVector, mutants::broken};
use whimbrel_replication::{
    clocks::OFF_MICROS_MAX,
    members::{Ends, ends_in},
    partition::{
        Alarm, Config, Entry, Foreign, Input, Membership, Output, Partition, Report, Resume,
        ResumeError, Rows, Snapshot, SnapshotProgress, StateInput, StateOutput, Taking,
        Ticket as Asked, Used,
    },
    wire::{Frame, Room},
};
use whimbrel_storage::Commit;

use super::{
    PeerOutput, Stream, clocks,
    log_reads::{LogRead, LogReads},
    log_retention::GivenUp,
};
use crate::{
    log::Log,
    machine::{Note, Now, Output as Told, Ticket},
};

/// When the store has refused a commit, nothing of other nodes is forwarded to it for so long: a disk that was full a moment ago mostly still is, and each
/// try costs the reading of the partition.
const PAUSE_MICROS: u64 = 1_000_000;

/// What has to be forwarded to the store next.
pub(crate) enum Work {
    /// A batch of another node, to be stored and, if so said, applied in the same commit.
    Store {
        asked: Asked,
        foreign: Foreign,
        apply: bool,
    },
    /// A batch that is in the log already, to be applied.
    Apply { asked: Asked, batch: Box<Batch> },
    /// Of a state that is taken.
    State(StateWork),
}

/// What has to be done for a state that is taken.
pub(crate) enum StateWork {
    /// It begins to come: what is held of another is of no use.
    Begin(Box<SnapshotProgress>),
    /// Keep these rows, and that all up to `last` are here.
    Rows {
        asked: Asked,
        last: Vec<u8>,
        rows: Bytes,
    },
    /// All are here.
    Join {
        asked: Asked,
        held: Box<SnapshotProgress>,
        jumps: BTreeMap<Incarnation, (u64, Hash)>,
    },
    /// Nothing of it is wanted any more.
    Forget,
}

impl Work {
    /// The batch, if it is to be applied.
    pub(crate) fn applies(&self) -> Option<&Batch> {
        match self {
            Work::Store { apply: false, .. } | Work::State(_) => None,
            Work::Store { foreign, .. } => Some(&foreign.batch),
            Work::Apply { batch, .. } => Some(batch),
        }
    }
}

/// A batch that is stored or applied.
pub(crate) struct BatchWork<'a> {
    pub(crate) asked: Asked,
    pub(crate) batch: &'a Batch,
    /// If it is to be stored.
    pub(crate) foreign: Option<&'a Foreign>,
}

impl Work {
    /// The batch that it is about; `None`: it is about a state.
    pub(crate) fn of_batch(&self) -> Option<BatchWork<'_>> {
        match self {
            Work::Store { asked, foreign, .. } => Some(BatchWork {
                asked: *asked,
                batch: &foreign.batch,
                foreign: Some(foreign),
            }),
            Work::Apply { asked, batch } => Some(BatchWork {
                asked: *asked,
                batch,
                foreign: None,
            }),
            Work::State(_) => None,
        }
    }
}

/// What the machine is told when a commit is durable.
pub(crate) enum OnDurable {
    /// Our own batch.
    Own(Entry, Hash),
    /// What it had asked for.
    Done(Asked),
}

impl OnDurable {
    /// Of a commit that may hold a batch of our own, sealed with this hash.
    pub(crate) fn own(commit: &Commit, hash: Hash) -> Option<OnDurable> {
        let entry = commit.entry.as_ref()?;
        let own = Entry {
            first: entry.first,
            last: entry.end() - 1,
            bytes: entry.bytes.clone(),
        };
        Some(OnDurable::Own(own, hash))
    }
}

/// What the owner has to do for the machine at once.
#[derive(Debug)]
pub(crate) enum Request {
    /// Read a log.
    Read {
        asked: Asked,
        origin: Incarnation,
        from: u64,
        bytes_max: usize,
    },
    Wake(Incarnation),
    /// Forget entries of a log that end below the number, with the next commit.
    Cut(Incarnation, u64),
    Unlink(Incarnation),
    /// For the log of the node.
    Warn(String),
    /// This disk is older than what was told from it.
    Older(String),
    /// Stop the node.
    Fatal(String),
    /// What is not the same in all partitions.
    Particular(Wanted),
}

/// What each kind of partition does in its own way.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// A new node has all that it lacked: keep that.
    Grown,
    /// Nobody is left who had all of it: keep that, before anything that follows from it.
    Alone {
        /// What this node made itself is lost, too.
        own_lost: bool,
        /// For the log of the node.
        warning: String,
    },
    /// Fix the rows as they are.
    Snapshot { asked: Asked },
    /// Read rows that were fixed.
    ReadState {
        asked: Asked,
        state: u64,
        after: Vec<u8>,
        bytes_max: usize,
    },
    /// Nobody needs them any more.
    DropState(u64),
}

impl Request {
    /// Does what is the same in every partition, and gives what the driver is told. Else gives what is wanted. `ticket`: of a read.
    pub(crate) fn carry_out(
        self,
        partition: PartitionId,
        ticket: Ticket,
        log: &mut Log,
        reads: &mut LogReads,
    ) -> ControlFlow<Option<Told>, Wanted> {
        ControlFlow::Break(Some(match self {
            Request::Read {
                asked,
                origin,
                from,
                bytes_max,
            } => {
                let read = LogRead {
                    partition,
                    asked,
                    origin,
                    from,
                    bytes_max,
                };
                reads.ask(ticket, read)
            }
            Request::Cut(origin, below) => {
                log.cut(origin, below);
                return ControlFlow::Break(None);
            }
            Request::Wake(peer) => Told::Peer(PeerOutput::Wake(partition, peer)),
            Request::Unlink(peer) => Told::Peer(PeerOutput::Unlink(peer)),
            Request::Warn(text) => Told::Log(Note::Warning(text)),
            Request::Older(because) => Told::Log(Note::Older(because)),
            Request::Fatal(cause) => Told::Fatal(cause),
            Request::Particular(wanted) => return ControlFlow::Continue(wanted),
        }))
    }
}

/// The machine of one partition.
pub(crate) struct Shipping {
    machine: Partition,
    work: VecDeque<Work>,
    /// Commits of the partition that are under way, in their order.
    commits: VecDeque<(Ticket, OnDurable)>,
    deadline: Option<u64>,
    linked: bool,
    /// The store has refused something: nothing is forwarded to it before this time.
    paused_until: Option<u64>,
    /// It has all that it lacked when it was new, which is kept when that time is over.
    grown: bool,
    /// The partition is left: nothing new is taken.
    closing: bool,
    /// Peers of a version that does not understand that we begin anew on a stream.
    older: BTreeSet<Incarnation>,
    /// That this node's log is held back was said, and what is to be said of it.
    held_back: bool,
    warning: Option<String>,
}

impl Shipping {
    /// Goes on from what the store knows, among these members, this node included.
    pub(crate) fn resume(
        config: Config,
        partition: PartitionId,
        me: Incarnation,
        members: BTreeMap<Incarnation, Membership>,
        known: Resume,
    ) -> Result<Self, ResumeError> {
        let resume = Resume {
            members: members.clone(),
            ..known
        };
        let mut machine = Partition::resume(config, partition, me, resume)?;
        // Alone, all that is here is stable; with others, what is stable is what they say.
        machine.handle(clocks(Now::default()), Input::Members(members));
        Ok(Shipping {
            machine,
            work: VecDeque::new(),
            commits: VecDeque::new(),
            deadline: None,
            linked: false,
            paused_until: None,
            grown: false,
            closing: false,
            older: BTreeSet::new(),
            held_back: false,
            warning: None,
        })
    }

    /// What all members have applied: hidden records of before may go.
    pub(crate) fn stable(&self) -> &VersionVector {
        self.machine.stable()
    }

    /// Others belong to it now, or hold it: nothing gets stable before all of them have it.
    pub(crate) fn members(&mut self, now: Now, members: BTreeMap<Incarnation, Membership>) {
        self.machine.handle(clocks(now), Input::Members(members));
    }

    /// Between these nodes batches are passed on at once.
    pub(crate) fn pass_on(&mut self, now: Now, passes: BTreeSet<(Incarnation, Incarnation)>) {
        self.machine.handle(clocks(now), Input::Passes(passes));
    }

    /// These logs end there.
    pub(crate) fn closed(&mut self, now: Now, closed: &Ends) {
        let closed = ends_in(closed, self.machine.id());
        self.machine.handle(clocks(now), Input::Closed(closed));
    }

    /// Logs of the partition that have become too long are kept for nobody who is away, up to these numbers.
    pub(crate) fn give_up_logs(&mut self, now: Now, logs: &GivenUp) {
        let partition = self.machine.id();
        for ((_, origin), number) in logs.iter().filter(|((of, _), _)| *of == partition) {
            self.give_up(now, *origin, *number);
        }
    }

    /// A log is kept for nobody who is away, up to this number.
    pub(crate) fn give_up(&mut self, now: Now, origin: Incarnation, number: u64) {
        let input = Input::GiveUp(origin, number);
        self.machine.handle(clocks(now), input);
    }

    /// What these operations made is forgotten here: they are given to nobody.
    pub(crate) fn forgotten(&mut self, now: Now, upto: &VersionVector) {
        for (origin, number) in upto.iter() {
            let input = Input::Forgotten(origin, number);
            self.machine.handle(clocks(now), input);
        }
    }

    /// What was used of a peer's window since this was asked last.
    pub(crate) fn take_used(&mut self, peer: Incarnation) -> Used {
        self.machine.take_used(peer)
    }

    /// How many bytes may wait for this peer, and of it.
    pub(crate) fn set_window(&mut self, peer: Incarnation, bytes: u64) {
        let batches = u32::MAX;
        self.machine.set_window(peer, Room { bytes, batches });
    }

    /// How it stands.
    pub(crate) fn report(&self) -> Report {
        self.machine.holder_state()
    }

    /// What is on disk, be it applied or not.
    pub(crate) fn durable_vector(&self) -> VersionVector {
        self.machine.durable()
    }

    /// Whether all of this is applied here, durably.
    pub(crate) fn applied_all(&self, all: &VersionVector) -> bool {
        self.machine.applied().covers_all(all)
    }

    /// Whether a peer has said where it stands, and that it has what clients may know.
    pub(crate) fn is_complete_at(&self, peer: Incarnation) -> bool {
        self.machine.is_greeted(peer) && !self.machine.is_syncing_at(peer)
    }

    /// Whether the peer is linked, and has said that it is new. One that is not linked may have all by now.
    pub(crate) fn is_syncing_at(&self, peer: Incarnation) -> bool {
        self.machine.is_greeted(peer) && self.machine.is_syncing_at(peer)
    }

    /// Up to where our own log is durable.
    pub(crate) fn durable(&self, origin: Incarnation) -> u64 {
        self.machine.durable().get(origin)
    }

    /// Whether the peer has said on its present stream where it stands.
    pub(crate) fn is_greeted(&self, peer: Incarnation) -> bool {
        self.machine.is_greeted(peer)
    }

    /// Up to where a peer has said to have applied a log, durably.
    pub(crate) fn applied_at(&self, peer: Incarnation, origin: Incarnation) -> u64 {
        let applied = self.machine.applied_at(peer);
        applied.map_or(0, |applied| applied.get(origin))
    }

    /// Whether a peer has said to have applied all of this, durably.
    pub(crate) fn has_applied(&self, peer: Incarnation, all: &VersionVector) -> bool {
        let applied = self.machine.applied_at(peer);
        applied.is_some_and(|applied| applied.covers_all(all)) && !self.machine.remembers_more(peer)
    }

    pub(crate) fn linked(&mut self, now: Now, peer: Incarnation) {
        self.linked = true;
        self.machine.handle(clocks(now), Input::Linked(peer));
    }

    /// Goes on with streams on which the machine before this one has spoken, which is gone since the store has refused a commit. Peers are asked to wait.
    pub(crate) fn begin_anew(&mut self, now: Now, peers: impl Iterator<Item = Incarnation>) {
        self.paused_until = Some(now.mono_micros + PAUSE_MICROS);
        self.machine.take_of_peers(Taking::Nothing);
        for peer in peers {
            self.linked = true;
            self.machine.handle(clocks(now), Input::LinkedAnew(peer));
        }
    }

    /// Nothing new is taken while the partition is left; or it is as before.
    pub(crate) fn close(&mut self, closing: bool) {
        self.closing = closing;
        match self.paused_until {
            None => self.take(Taking::All),
            Some(_) => self.take(Taking::Nothing),
        }
    }

    fn take(&mut self, taking: Taking) {
        self.machine.take_of_peers(match self.closing {
            true => Taking::Nothing,
            false => taking,
        });
    }

    /// Those of the peers that would not understand it: streams to them have to be made anew.
    pub(crate) fn older_peers(&self) -> impl Iterator<Item = Incarnation> + use<> {
        self.older.clone().into_iter()
    }

    pub(crate) fn unlinked(&mut self, now: Now, peer: Incarnation) {
        self.older.remove(&peer);
        self.machine.handle(clocks(now), Input::Unlinked(peer));
    }

    pub(crate) fn received(&mut self, now: Now, log: &Log, peer: Incarnation, frame: Frame) {
        self.machine.observe(log.hlc().last());
        if let Frame::Hello(hello) = &frame {
            match hello.anew {
                None => _ = self.older.insert(peer),
                Some(_) => _ = self.older.remove(&peer),
            }
        }
        self.machine
            .handle(clocks(now), Input::Received(peer, frame));
    }

    /// What was read of a log. Reads may see what is not durable yet; that must not leave the node, nor count as stored.
    pub(crate) fn read(
        &mut self,
        now: Now,
        asked: Asked,
        origin: Incarnation,
        mut entries: Vec<Entry>,
    ) {
        let durable = self.machine.durable().get(origin);
        entries.retain(|entry| entry.last <= durable);
        self.machine.handle(clocks(now), Input::Log(asked, entries));
    }

    /// A state of which some had been taken before the start.
    pub(crate) fn hold(&mut self, now: Now, held: SnapshotProgress) {
        self.machine.hold(clocks(now), held);
    }

    /// The rows were fixed, or cannot be.
    pub(crate) fn fixed(&mut self, now: Now, asked: Asked, snapshot: Option<Snapshot>) {
        let input = StateInput::Snapshot(asked, snapshot);
        self.machine.handle(clocks(now), Input::State(input));
    }

    /// Rows that were fixed have been read.
    pub(crate) fn rows(&mut self, now: Now, asked: Asked, rows: Rows) {
        let input = StateInput::Rows(asked, rows);
        self.machine.handle(clocks(now), Input::State(input));
    }

    /// Rows that were fixed cannot be read any more.
    pub(crate) fn rows_lost(&mut self, now: Now, asked: Asked) {
        self.machine
            .handle(clocks(now), Input::State(StateInput::Lost(asked)));
    }

    pub(crate) fn time(&mut self, now: Now) {
        if self.paused_until.is_some_and(|at| at <= now.mono_micros) {
            self.paused_until = None;
            self.take(Taking::One);
        }
        self.machine.handle(clocks(now), Input::Time);
    }

    pub(crate) fn transmit(&mut self, now: Now, to: Stream) -> Option<Frame> {
        match to.takes_bulk {
            true => self.machine.transmit(clocks(now), to.peer),
            false => self.machine.transmit_small(clocks(now), to.peer),
        }
    }

    /// A commit of the partition was forwarded to the store. One of rows alone is nothing to the machine.
    pub(crate) fn committing(&mut self, ticket: Ticket, then: impl Into<Option<OnDurable>>) {
        let then = then.into();
        self.commits.extend(then.map(|then| (ticket, then)));
    }

    /// A commit is durable, and with it all before it.
    pub(crate) fn committed(&mut self, now: Now, ticket: Ticket) {
        if self.paused_until.is_none() {
            self.take(Taking::All);
        }
        while let Some((_, then)) = self.commits.pop_front_if(|(first, _)| *first <= ticket) {
            match then {
                OnDurable::Own(entry, hash) => {
                    self.machine.handle(clocks(now), Input::Own(entry, hash))
                }
                OnDurable::Done(asked) => self.machine.handle(clocks(now), Input::Done(asked)),
            }
        }
    }

    /// Whether the store is left alone, since it has refused a commit a moment ago.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused_until.is_some()
    }

    /// The next thing to hand to the store, if it is not to be left alone for a while.
    pub(crate) fn next_work(&self) -> Option<&Work> {
        self.work.front().filter(|_| self.paused_until.is_none())
    }

    pub(crate) fn take_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    /// What the machine wants at once; what it wants stored or applied is put behind what waits already.
    pub(crate) fn poll(&mut self) -> Option<Request> {
        if !self.is_paused() && std::mem::take(&mut self.grown) {
            return Some(Request::Particular(Wanted::Grown));
        }
        loop {
            if let Some(warning) = self.warning.take() {
                return Some(Request::Warn(warning));
            }
            return Some(match self.machine.poll()? {
                Output::Store {
                    ticket,
                    foreign,
                    apply,
                } => {
                    self.work.push_back(Work::Store {
                        asked: ticket,
                        foreign,
                        apply,
                    });
                    continue;
                }
                Output::Apply { ticket, batch } => {
                    self.work.push_back(Work::Apply {
                        asked: ticket,
                        batch,
                    });
                    continue;
                }
                // Asked for when it is needed.
                Output::Stable(_) => continue,
                Output::State(output) => match state(output) {
                    Ok(wanted) => Request::Particular(wanted),
                    Err(work) => {
                        self.work.push_back(Work::State(work));
                        continue;
                    }
                },
                Output::Read {
                    ticket,
                    origin,
                    from,
                    bytes_max,
                } => Request::Read {
                    asked: ticket,
                    origin,
                    from,
                    bytes_max,
                },
                Output::Wake(peer) => Request::Wake(peer),
                Output::Cut { origin, below } => Request::Cut(origin, below),
                Output::Behind { peer, origin } => Request::Warn(format!(
                    "node {:016x} lacks what was cut from the log of {:016x}: it needs state",
                    peer.get(),
                    origin.get()
                )),
                Output::Grown if self.is_paused() => {
                    self.grown = true;
                    continue;
                }
                Output::Grown => Request::Particular(Wanted::Grown),
                Output::Stop(peer) => Request::Unlink(peer),
                Output::Alarm(alarm) => {
                    let warning = alarm_text(self.machine.id(), &alarm);
                    match alarm {
                        Alarm::Alone | Alarm::OwnLost(_) => Request::Particular(Wanted::Alone {
                            own_lost: alarm != Alarm::Alone,
                            warning,
                        }),
                        Alarm::Forgotten { .. } => Request::Older(warning),
                        _ => Request::Warn(warning),
                    }
                }
                Output::Fatal(cause) => Request::Fatal(cause),
            });
        }
    }

    /// Looks again when it wants to be called, and says so if it is earlier than before. Without peers it never does.
    pub(crate) fn reckon(&mut self, now: Now) -> Option<u64> {
        let wanted = self.linked.then(|| self.machine.deadline(clocks(now)));
        self.deadline = wanted.flatten().into_iter().chain(self.paused_until).min();
        self.deadline
    }

    /// Whether there are streams, or were some.
    pub(crate) fn has_peers(&self) -> bool {
        self.linked
    }

    /// Whether peers hold back what this node writes, because its log runs ahead: its clock was wrong once, and nobody was there who knew. More of that
    /// would be as late there as this.
    pub(crate) fn is_held_back(&mut self, now: Now, log: &Log) -> bool {
        let ahead = log.hlc().last().saturating_sub(now.wall_micros);
        let held_back =
            ahead > OFF_MICROS_MAX && self.machine.is_held_back() && !broken("clock-unguarded");
        if held_back && !self.held_back {
            let (partition, seconds) = (self.machine.id().0, ahead / 1_000_000);
            self.warning = Some(format!(
                "partition {partition}: the clock of this node was ahead when it wrote last, by {seconds} s still; the others apply that when it is time, \
                 and until then nothing more is written here"
            ));
        }
        self.held_back = held_back;
        held_back
    }

    /// When it wants to be called.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.deadline
    }
}

/// What is wanted at once, or has its place among what is forwarded to the store.
fn state(output: StateOutput) -> Result<Wanted, StateWork> {
    Ok(match output {
        StateOutput::Snapshot { ticket } => Wanted::Snapshot { asked: ticket },
        StateOutput::Read {
            ticket,
            state,
            after,
            bytes_max,
        } => Wanted::ReadState {
            asked: ticket,
            state,
            after,
            bytes_max,
        },
        StateOutput::Drop { state } => Wanted::DropState(state),
        StateOutput::Begin { held } => return Err(StateWork::Begin(held)),
        StateOutput::Store { ticket, last, rows } => {
            let asked = ticket;
            return Err(StateWork::Rows { asked, last, rows });
        }
        StateOutput::Join {
            ticket,
            held,
            jumps,
        } => {
            return Err(StateWork::Join {
                asked: ticket,
                held,
                jumps,
            });
        }
        StateOutput::Forget => return Err(StateWork::Forget),
    })
}

fn alarm_text(partition: PartitionId, alarm: &Alarm) -> String {
    match alarm {
        Alarm::TwoHashes {
            peer,
            origin,
            number,
        } => format!(
            "node {:016x} has another batch of {:016x} under the number {number}: the stream to it is ended",
            peer.get(),
            origin.get()
        ),
        Alarm::Forgotten { peer, number } => format!(
            "node {:016x} knows {number} operations of this node in partition {}, and its disk has fewer",
            peer.get(),
            partition.0
        ),
        Alarm::Ahead {
            origin,
            first,
            micros,
        } => format!(
            "batch {first} of {:016x} is stamped {micros} us ahead: it is kept and not applied before",
            origin.get()
        ),
        Alarm::Malformed { peer, what } => {
            format!("node {:016x} sent what is no batch: {what}", peer.get())
        }
        Alarm::Origins(peer) => format!("node {:016x} tells of too many logs", peer.get()),
        Alarm::OwnLost(lost) => format!(
            "{lost} operations of partition {} that this node had made before it left it are lost with those who held it",
            partition.0
        ),
        Alarm::Alone => format!(
            "nobody is left who had all of partition {}: this node goes on with what it has",
            partition.0
        ),
    }
}
