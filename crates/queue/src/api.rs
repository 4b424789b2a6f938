//! What goes into the machine and what comes out of it.

use bytes::Bytes;

use crate::{
    frame::{Frame, Record},
    types::{Id, Node, Nodes},
};

/// Joins two progresses of one tuple: commutative, associative and idempotent, or nodes do not agree in the end. An empty one says that nothing was done.
pub type Join = fn(&[u8], &[u8]) -> Bytes;

/// How a node chooses to whom it entrusts a tuple, among those it hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Any of them.
    Random,
    /// The nearest ones whose round trip takes at least so many microseconds: far enough that one fire, flood or power cut does not take both. Where
    /// there are too few of them, the farthest of the others.
    Nearest(u64),
}

/// Rules and bounds. Times are microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// f: so many nodes may lose their disks and no accepted tuple is lost. At most 6. Where there are fewer other members, all of them.
    pub copies: usize,
    /// To whom a tuple is entrusted.
    pub choice: Choice,
    /// A peer that was silent for so long gets no new tuples, and the link to it is closed.
    pub silent_after: u64,
    /// A peer that was silent for so long is taken for dead: its tuples are adopted.
    pub takeover_after: u64,
    /// A tuple that had fewer than f other living owners for so long is entrusted to others.
    pub repair_after: u64,
    /// Bytes a second that are sent again to mend lists of owners.
    pub repair_rate: u64,
    /// After a start nothing that was found is acted on before all members were met, or for so long.
    pub start_wait: u64,
    /// Before an adoption the others are asked, and waited for so long.
    pub ask_wait: u64,
    /// While an owner that acts is away, the others are asked this often.
    pub ask_every: u64,
    /// A chosen peer that has not answered for so long, and for three times what it usually takes, is replaced.
    pub late_min: u64,
    /// A tombstone is in memory alone for so long.
    pub tombstone_wait: u64,
    /// How often a wave is sent. It is the heartbeat, too.
    pub wave_every: u64,
    /// Tuples that the application has at a time.
    pub handed_max: usize,
    /// Tuples that are put and not accepted yet.
    pub waiting_max: usize,
    /// Bytes of their payloads.
    pub waiting_bytes_max: usize,
    /// How progresses are joined.
    pub join: Join,
}

const SECOND: u64 = 1_000_000;

impl Default for Config {
    fn default() -> Config {
        Config {
            copies: 1,
            choice: Choice::Random,
            silent_after: 10 * SECOND,
            takeover_after: 60 * SECOND,
            repair_after: 300 * SECOND,
            repair_rate: 4 << 20,
            start_wait: 10 * SECOND,
            ask_wait: 3 * SECOND,
            ask_every: 60 * SECOND,
            late_min: SECOND / 4,
            tombstone_wait: SECOND,
            wave_every: 2 * SECOND,
            handed_max: 1000,
            waiting_max: 10_000,
            waiting_bytes_max: 64 << 20,
            join: longer,
        }
    }
}

/// The join of an application whose progress only grows, each one a continuation of the one before: the longer one.
pub fn longer(one: &[u8], other: &[u8]) -> Bytes {
    let order = (one.len(), one).cmp(&(other.len(), other));
    Bytes::copy_from_slice(if order.is_lt() { other } else { one })
}

/// Who starts.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// This node.
    pub me: Node,
    /// All members, this node among them.
    pub members: Nodes,
    /// How often the disk was replaced by an older copy of itself: 1 for a disk that never was. What was written in an earlier life is in doubt, since it
    /// may have been finished elsewhere. The application keeps this number outside the disk's copies, or raises it when it notices an older copy.
    pub life: u32,
    /// Numbers that this node had in earlier lives: for them nobody answers.
    pub former: Nodes,
    /// Whatever differs from start to start: for the choice of peers and the numbers of waves.
    pub seed: u64,
}

/// A tuple to be put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// Never used before.
    pub id: Id,
    /// Whether [`Output::Swept`] counts it: so the application learns when a tuple of this kind cannot come again. One of an older disk that no
    /// other node ever had is acted on, since it may be acted on twice.
    pub tracked: bool,
    /// When it is due: microseconds since 1970. 0: at once.
    pub not_before: u64,
    /// Among tuples that are due the lowest goes first.
    pub priority: u8,
    /// Whatever the application makes of it.
    pub payload: Bytes,
    /// Bytes that belong to it besides the payload, and that its owners get in the application's own way before they say [`Input::Written`]. They are
    /// given so much more time for it, at [`Config::repair_rate`].
    pub attached: u64,
}

impl Tuple {
    /// One that is due at once, before no other and after no other, and not tracked.
    pub fn new(id: Id, payload: impl Into<Bytes>) -> Tuple {
        Tuple {
            id,
            tracked: false,
            not_before: 0,
            priority: 0,
            payload: payload.into(),
            attached: 0,
        }
    }
}

/// Names tuples that are put together.
pub type Ticket = u64;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Only the time has passed. Due at [`crate::Queue::deadline`].
    Time,
    /// Tuples are to be kept. They are accepted together, and entrusted to the same nodes.
    Put {
        /// Not in use.
        ticket: Ticket,
        /// At least one.
        tuples: Vec<Tuple>,
    },
    /// Nobody waits for the ticket any more: the tuples are finished, and it is refused.
    GiveUp(Ticket),
    /// The last [`Output::Write`] of this tuple is durable.
    Written(Id),
    /// The disk has refused it.
    NotWritten(Id),
    /// What [`Output::Read`] asked for; none if it is not there.
    Payload(Id, Option<Bytes>),
    /// A link to a peer is up: ordered, and it loses nothing while it lasts. A former one to the same peer is over.
    Linked(Node),
    /// It is over. What had not arrived is lost.
    Unlinked(Node),
    /// A frame has arrived on the present link.
    Frame(Node, Frame),
    /// How long the way to a peer and back takes: microseconds.
    RoundTrip(Node, u64),
    /// Who is a member. One that is no member any more never comes back with its disk.
    Members(Nodes),
    /// Nothing new is entrusted to these.
    Excluded(Nodes),
    /// This node stops and will be back in so many microseconds: the others are told.
    Leaving(u64),
    /// Something was done of a tuple. It is joined with what is known.
    Progress(Id, Bytes),
    /// The application gives a tuple back until this time: microseconds since 1970.
    Later(Id, u64),
    /// All is done: every copy goes.
    Done(Id),
    /// The application has asked a peer to do something with a tuple of this node.
    Asked(Id, Node),
    /// That peer has answered.
    Answered(Id, Node),
    /// The application begins to do something with a tuple of another node.
    Holding(Id),
    /// It is durably done, or will not be done.
    Released(Id),
    /// What the operator says of a tuple that was reported as [`Output::Stale`]: whether it is to be acted on, or dropped.
    Stale(Id, bool),
}

/// Why a ticket is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refusal {
    /// Too few peers are heard.
    #[error("fewer peers are reachable than must hold a copy")]
    Peers,
    /// Too much waits to be accepted.
    #[error("too many tuples wait to be accepted")]
    Busy,
    /// The disk.
    #[error("the disk takes no writes")]
    Disk,
    /// Nobody waits for it any more.
    #[error("it was given up")]
    GivenUp,
    /// Another node took it for orphaned and acts on it now.
    #[error("another node has adopted it")]
    Adopted,
    /// No tuple, or an id that is in use.
    #[error("there is no tuple, or one with an id that is in use")]
    Ids,
}

/// Why a link is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Close {
    /// Nothing came over it for [`Config::silent_after`]. Where the transport itself closes links on which nothing arrives, this need not be done: the peer
    /// may be busy with its disk.
    Silent,
    /// Too much waits for the peer: what was not sent is found when it is linked again.
    Behind,
    /// The peer is no member.
    NoMember,
    /// The peer has said what makes no sense.
    Senseless,
}

/// What the disk is to hold of a tuple.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// This record, and this payload with it in one commit. Without one, the payload stays.
    Tuple(Record, Option<Bytes>),
    /// This record, and no payload.
    Tombstone(Record),
    /// Nothing.
    Remove,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// Make this durable, and say [`Input::Written`] or [`Input::NotWritten`]. What comes out of one call may be one commit. For one tuple there is one
    /// write at a time.
    Write {
        /// Which tuple.
        id: Id,
        /// What the disk is to hold.
        change: Change,
        /// From whom it came, if it is new here: whatever belongs to it can be fetched there, and must be durable, too.
        from: Option<Node>,
    },
    /// The tuples are safe: this node and f others hold them.
    Accepted(Ticket),
    /// They are not, and go.
    Refused(Ticket, Refusal),
    /// This tuple is due here, and nobody else is to act on it. With what was done of it already.
    Mine(Id, Bytes),
    /// Another node acts on it now. What is under way may end.
    NotMine(Id),
    /// What is held for another's tuple and has not begun ([`Input::Holding`]) is to be dropped: the tuple is done.
    Cancel(Id),
    /// A tuple of an older disk that is not tracked and that nobody else has: the operator decides.
    Stale(Id),
    /// Read a payload.
    Read(Id),
    /// [`crate::Queue::transmit`] has something for this peer.
    Wake(Node),
    /// The link is of no use: close it.
    Close(Node, Close),
    /// Keep durably for how long this peer is away: microseconds; 0: it is not. It need not be confirmed.
    Away(Node, u64),
    /// A wave is over: no tracked tuple below `least`, if there is one, was anywhere when the wave with this number began. One that is to come below that
    /// was put later.
    Swept {
        /// The wave's number. They are counted up.
        wave: u64,
        /// When it began, by the monotonic clock.
        began: u64,
        /// None: there was no tracked tuple at all.
        least: Option<Id>,
    },
}

/// What has been done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Tuples accepted here.
    pub accepted: u64,
    /// Tickets refused here.
    pub refused: u64,
    /// Tuples of others that this node acts on now, since those before it were away.
    pub adopted: u64,
    /// Lists rewritten since too few of their owners were heard.
    pub repaired: u64,
    /// Lists rewritten since a chosen peer was late.
    pub replaced: u64,
    /// Tuples that this node acted on, and that another one did, too.
    pub both_acted: u64,
    /// Tuples dropped since an older disk alone had them.
    pub dropped: u64,
}
