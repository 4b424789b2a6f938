//! Frames that wait to be sent on a link: bounded, and small frames before large ones.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use whimbrel_replication::wire::Frame;

/// Bytes of small frames (batches and all control frames) that may wait. One frame is always accepted, however long it is.
pub const OUTBOX_BYTES_MAX: usize = 1 << 20;
/// The same for bulk (blobs and rows of snapshots), which has its own room, so that small frames have room when bulk fills its own. Two packs, so
/// that the stream never waits.
pub const BULK_BYTES_MAX: usize = 256 << 10;

/// So many packs of small frames go before bulk that waits: small frames may come without end.
const PASSED_MAX: usize = 8;

/// Small pieces of bulk go together up to the length of one piece of a large blob, so that small frames wait no longer.
const BULK_AT_ONCE: usize = 64 << 10;

/// There is no room, or the link is gone: the frame was not accepted. [`crate::Event::Room`] reports when there is room again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room")]
pub struct NoRoom;

#[derive(Default)]
struct Waiting {
    /// The link's own frames: pings and their answers. A few bytes, at most two frames for each that came in.
    own: VecDeque<Vec<u8>>,
    /// The newest roster. It contains what an older one does, so it replaces one that waits.
    roster: Option<Vec<u8>>,
    /// Small frames: batches and control frames.
    small: VecDeque<Vec<u8>>,
    /// Bulk: blobs and rows of snapshots.
    bulk: VecDeque<Vec<u8>>,
    small_bytes: usize,
    bulk_bytes: usize,
    /// Packs of small frames that were sent since the last bulk, while bulk waited.
    passed: usize,
    /// Whether a frame was refused, so that room has to be reported: for small frames, for bulk.
    refused: [bool; 2],
    closed: bool,
}

impl Waiting {
    /// Takes frames up to `bytes_max`, or one longer frame.
    fn take_small(&mut self, bytes_max: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < bytes_max {
            let own = self.own.pop_front();
            if let Some(frame) = own.or_else(|| self.roster.take()) {
                bytes.extend_from_slice(&frame);
            } else if let Some(frame) = self.small.pop_front() {
                self.small_bytes -= frame.len();
                bytes.extend_from_slice(&frame);
            } else {
                break;
            }
        }
        bytes
    }

    /// Takes one piece, or several small ones up to the usual length of one: small ones sent by themselves would cost more than their bytes.
    fn take_bulk(&mut self) -> Vec<u8> {
        self.passed = 0;
        let Some(mut bytes) = self.bulk.pop_front() else {
            return Vec::new();
        };
        let fits = |have: &Vec<u8>, next: &mut Vec<u8>| have.len() + next.len() <= BULK_AT_ONCE;
        while let Some(next) = self.bulk.pop_front_if(|next| fits(&bytes, next)) {
            bytes.extend_from_slice(&next);
        }
        self.bulk_bytes -= bytes.len();
        bytes
    }
}

#[derive(Default)]
struct Inner {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

/// The sending end of a link.
#[derive(Clone, Default)]
pub struct Handle(Arc<Inner>);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

/// The next task of the writer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Send these bytes; `room`: report that there is room again.
    Send { bytes: Vec<u8>, room: bool },
    /// The link has ended.
    Closed,
}

impl Handle {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // A panic leaves no change half done.
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a frame.
    ///
    /// [`NoRoom`]: the frame was not accepted.
    pub fn offer(&self, frame: &Frame) -> Result<(), NoRoom> {
        if !self.has_room(is_bulk(frame)) {
            return Err(NoRoom);
        }
        self.push(frame);
        Ok(())
    }

    /// Whether a frame would be accepted now, of bulk or a small one. If not, [`crate::Event::Room`] comes when there is room.
    pub fn has_room(&self, bulk: bool) -> bool {
        let mut waiting = self.waiting();
        let room = !waiting.closed
            && if bulk {
                waiting.bulk_bytes < BULK_BYTES_MAX
            } else {
                waiting.small_bytes < OUTBOX_BYTES_MAX
            };
        waiting.refused[usize::from(bulk)] |= !room;
        room
    }

    /// Queues a frame in any case: for several callers that saw room a moment ago, and for frames that must not wait for room.
    pub fn push(&self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let mut waiting = self.waiting();
        if waiting.closed {
            return;
        }
        if matches!(frame, Frame::Roster(_)) {
            waiting.roster = Some(bytes);
        } else if is_bulk(frame) {
            waiting.bulk_bytes += bytes.len();
            waiting.bulk.push_back(bytes);
        } else {
            waiting.small_bytes += bytes.len();
            waiting.small.push_back(bytes);
        }
        drop(waiting);
        self.0.changed.notify_one();
    }

    /// Ends the link.
    pub fn close(&self) {
        self.waiting().closed = true;
        self.0.changed.notify_one();
    }

    /// Queues a frame of the link itself, before all small frames.
    pub(crate) fn own(&self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.waiting().own.push_back(bytes);
        self.0.changed.notify_one();
    }

    /// How many of the link's own frames wait: a peer that sends pings and reads nothing is cut off.
    pub(crate) fn own_waiting(&self) -> usize {
        self.waiting().own.len()
    }

    /// Waits for something to send: as many small frames as make up `bytes_max`, or bulk.
    pub(crate) async fn next(&self, bytes_max: usize) -> Next {
        loop {
            let changed = self.0.changed.notified();
            if let Some(next) = self.take(bytes_max) {
                return next;
            }
            changed.await;
        }
    }

    fn take(&self, bytes_max: usize) -> Option<Next> {
        let mut waiting = self.waiting();
        if waiting.closed {
            return Some(Next::Closed);
        }
        // Bulk is sent when no small frame waits, or when many have passed it. It is sent by itself, so that the next small frame waits for no more
        // than one pack.
        let mut bytes = Vec::new();
        if waiting.passed < PASSED_MAX {
            bytes = waiting.take_small(bytes_max);
        }
        if bytes.is_empty() {
            bytes = waiting.take_bulk();
        } else if !waiting.bulk.is_empty() {
            waiting.passed += 1;
        }
        if bytes.is_empty() {
            return None;
        }
        let has_room = [
            waiting.small_bytes <= OUTBOX_BYTES_MAX / 2,
            waiting.bulk_bytes <= BULK_BYTES_MAX / 2,
        ];
        let mut room = false;
        for (refused, has_room) in waiting.refused.iter_mut().zip(has_room) {
            room |= has_room && std::mem::take(refused);
        }
        Some(Next::Send { bytes, room })
    }
}

/// Whether a frame is bulk: blobs or snapshots. The frames that begin and end a row of pieces keep their place among the pieces. The frame that only
/// offers a snapshot is small.
fn is_bulk(frame: &Frame) -> bool {
    matches!(
        frame,
        Frame::BlobChunk(_)
            | Frame::BlobDone(_)
            | Frame::BlobPush(_)
            | Frame::StateChunk(_)
            | Frame::StateEnd(_)
    ) || matches!(frame, Frame::StateBegin(begin) if begin.state != 0)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use whimbrel_replication::wire::{
        BlobChunk, BlobName, BlobPush, Decoder, Ping, StateBegin, StateChunk,
    };

    use super::*;

    fn small(id: u64) -> Frame {
        Frame::Ping(Ping { id })
    }

    fn bulk(bytes: usize) -> Frame {
        Frame::BlobChunk(BlobChunk {
            name: BlobName([0; 48]),
            offset: 0,
            data: Bytes::from(vec![7; bytes]),
        })
    }

    /// What would be sent now, as kinds and sizes.
    fn sent(handle: &Handle, bytes_max: usize) -> (Vec<Frame>, bool) {
        let Some(Next::Send { bytes, room }) = handle.take(bytes_max) else {
            return (Vec::new(), false);
        };
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let frames = std::iter::from_fn(|| decoder.frame().unwrap()).collect();
        (frames, room)
    }

    #[test]
    fn small_frames_go_before_bulk() {
        let handle = Handle::default();
        handle.offer(&bulk(100)).unwrap();
        handle.offer(&bulk(50)).unwrap();
        handle.offer(&small(1)).unwrap();
        handle.own(&small(2));
        assert_eq!(sent(&handle, 4096), (vec![small(2), small(1)], false));
        assert_eq!(sent(&handle, 4096), (vec![bulk(100), bulk(50)], false));
        handle.offer(&bulk(60)).unwrap();
        handle.offer(&bulk(BULK_AT_ONCE)).unwrap();
        handle.offer(&bulk(70)).unwrap();
        handle.offer(&bulk(80)).unwrap();
        handle.offer(&small(3)).unwrap();
        assert_eq!(sent(&handle, 4096), (vec![small(3)], false));
        // No more than one piece of a large blob.
        assert_eq!(sent(&handle, 4096), (vec![bulk(60)], false));
        assert_eq!(sent(&handle, 4096), (vec![bulk(BULK_AT_ONCE)], false));
        assert_eq!(sent(&handle, 4096), (vec![bulk(70), bulk(80)], false));
        assert_eq!(sent(&handle, 4096), (vec![], false));
        assert_eq!(handle.waiting().bulk_bytes, 0);
        // Also a pushed blob.
        let push = Frame::BlobPush(BlobPush {
            name: BlobName([0; 48]),
            data: Some(Bytes::from(vec![7; 100])),
        });
        handle.offer(&push).unwrap();
        handle.offer(&small(4)).unwrap();
        assert_eq!(sent(&handle, 4096), (vec![small(4)], false));
        assert_eq!(sent(&handle, 4096), (vec![push], false));
    }

    #[test]
    fn an_outbox_is_bounded_and_says_when_there_is_room() {
        let handle = Handle::default();
        // One frame is always accepted, and leaves room for small ones.
        handle.offer(&bulk(2 * BULK_BYTES_MAX)).unwrap();
        assert_eq!(handle.offer(&bulk(1)), Err(NoRoom));
        handle.offer(&small(1)).unwrap();
        assert_eq!(sent(&handle, 1), (vec![small(1)], false));
        let (frames, room) = sent(&handle, 1);
        assert_eq!((frames.len(), room), (1, true));
        handle.offer(&bulk(1)).unwrap();
        assert_eq!(sent(&handle, 1), (vec![bulk(1)], false));
        // Small frames have a bound of their own, which only `push` exceeds.
        let mut count = 0;
        while handle.offer(&small(7)).is_ok() {
            count += 1;
        }
        let (mut one, mut least) = (Vec::new(), Vec::new());
        small(7).encode(&mut one);
        handle.push(&small(8));
        small(8).encode(&mut least);
        assert_eq!(count, OUTBOX_BYTES_MAX.div_ceil(one.len()));
        assert_eq!(
            handle.waiting().small_bytes,
            count * one.len() + least.len()
        );
        let (frames, room) = sent(&handle, 2 * OUTBOX_BYTES_MAX);
        assert_eq!((frames.len(), room), (count + 1, true));
        let quarter = BULK_BYTES_MAX / 4;
        for _ in 0..4 {
            handle.offer(&bulk(quarter)).unwrap();
        }
        assert_eq!(handle.offer(&bulk(1)), Err(NoRoom));
        // Room is reported once, when half is gone: two quarters and the heads of their frames are a little more.
        let room: Vec<bool> = (0..4).map(|_| sent(&handle, 1).1).collect();
        assert_eq!(room, [false, false, true, false]);
    }

    #[test]
    fn bulk_is_not_passed_for_ever() {
        let handle = Handle::default();
        handle.offer(&bulk(10)).unwrap();
        handle.offer(&bulk(BULK_AT_ONCE)).unwrap();
        let mut at = Vec::new();
        for id in 0..3 * PASSED_MAX as u64 {
            handle.offer(&small(id)).unwrap();
            let (frames, _) = sent(&handle, 1);
            if !matches!(frames[..], [Frame::Ping(_)]) {
                at.push(id as usize);
            }
        }
        assert_eq!(at, [PASSED_MAX, 2 * PASSED_MAX + 1]);
        // A sender of bulk that waits for room hears of it, however many small frames wait.
        handle.offer(&bulk(BULK_BYTES_MAX)).unwrap();
        assert_eq!(handle.offer(&bulk(1)), Err(NoRoom));
        while handle.offer(&small(7)).is_ok() {}
        let mut told = 0;
        for _ in 0..2 * PASSED_MAX {
            told += usize::from(sent(&handle, 1).1);
            while handle.offer(&small(7)).is_ok() {}
        }
        assert_eq!(told, 1);
        while !sent(&handle, OUTBOX_BYTES_MAX).0.is_empty() {}
        // No bulk waits any more.
        assert_eq!(handle.waiting().passed, 0);
    }

    /// The receiver would drop rows of a snapshot that no frame has named.
    #[test]
    fn a_state_begins_before_its_rows() {
        let partition = whimbrel_crdt::PartitionId::accounts(7);
        let begin = |state| {
            Frame::StateBegin(StateBegin {
                partition,
                state,
                applied: whimbrel_crdt::VersionVector::new(),
                heads: Vec::new(),
                hlc: None,
                question: None,
            })
        };
        let chunk = Frame::StateChunk(StateChunk {
            partition,
            state: 9,
            after: Vec::new(),
            last: vec![1],
            rows: Bytes::from_static(b"rows"),
        });
        let handle = Handle::default();
        for id in 0..4 * PASSED_MAX as u64 {
            handle.offer(&small(id)).unwrap();
        }
        for frame in [begin(0), begin(9), chunk.clone()] {
            handle.offer(&frame).unwrap();
        }
        let mut all = Vec::new();
        while let (frames, _) = sent(&handle, 1)
            && !frames.is_empty()
        {
            all.extend(frames);
        }
        let at = |frame: &Frame| all.iter().position(|sent| sent == frame);
        assert!(at(&begin(9)) < at(&chunk) && at(&chunk) < at(&begin(0)));
    }

    #[test]
    fn members_go_first_and_once() {
        use whimbrel_crdt::Incarnation;
        use whimbrel_replication::roster::Roster;

        let handle = Handle::default();
        let mut roster = Roster::found(Incarnation::from_hash(1), "a", 0, !1);
        handle.push(&Frame::Roster(roster.clone()));
        handle.offer(&small(1)).unwrap();
        for (id, name) in [(2, "b"), (3, "c")] {
            roster
                .sponsor(Incarnation::from_hash(1), Incarnation::from_hash(id), name)
                .unwrap();
            handle.push(&Frame::Roster(roster.clone()));
        }
        let all = sent(&handle, 1 << 20).0;
        assert_eq!(all, vec![Frame::Roster(roster), small(1)]);
    }

    #[test]
    fn a_closed_link_takes_nothing() {
        let handle = Handle::default();
        handle.offer(&small(1)).unwrap();
        handle.close();
        assert_eq!(handle.offer(&small(2)), Err(NoRoom));
        assert_eq!(handle.take(4096), Some(Next::Closed));
    }
}
