//! What peers send for a partition that is being opened.

use std::collections::BTreeSet;

use whimbrel_crdt::Incarnation;
use whimbrel_replication::{readers, wire::Reading};

use super::Frame;

/// Frames of one peer that are kept, beside those of which the newest says all. What else it sends it says once, or about what was written here: of
/// bodies that it asks for more than these it is not told, and gives up on this node in the end. Bounds memory, which a peer would decide about.
const KEPT_MAX: usize = 64;

/// Keeps a frame for a partition that is being opened, unless it comes again or there are too many.
///
/// However long that takes, and however much other peers say meanwhile, a peer has said where it stands when it is over: it says that once for each
/// link, and goes on with what has changed.
pub(crate) fn keep_early(
    frames: &mut Vec<(Incarnation, Frame)>,
    peer: Incarnation,
    mut frame: Frame,
) {
    // These are sent again when we have said where we stand: they come only if the partition was open before, and are too many to be kept. Who leaves
    // asks again.
    if matches!(
        frame,
        Frame::Batches(_)
            | Frame::StateChunk(_)
            | Frame::VisibleVector(_)
            | Frame::Leaving(_)
            | Frame::Covered(_)
    ) {
        return;
    }
    let mut newest = false;
    frames.retain_mut(|(from, kept)| {
        let goes = *from == peer && replaces(&mut frame, kept);
        newest |= goes;
        !goes
    });
    let is_state = matches!(
        frame,
        Frame::Hello(_) | Frame::Ack(_) | Frame::Announced(_) | Frame::Readers(_) | Frame::Links(_)
    );
    let of_peer = || frames.iter().filter(|(from, _)| *from == peer).count();
    if newest || is_state || of_peer() < KEPT_MAX {
        frames.push((peer, frame));
    }
}

/// Whether all that a frame said that is kept is said by this one of the same peer, too, which takes over what would be lost.
fn replaces(frame: &mut Frame, kept: &mut Frame) -> bool {
    match (frame, kept) {
        // Both say all of where a peer stands. That something is to be sent again asks for what was sent before the partition was opened, and is begun anew.
        (Frame::Hello(_), Frame::Hello(_) | Frame::Ack(_)) => true,
        (Frame::Ack(_), Frame::Ack(_)) => true,
        // Comes five times a second, and says all.
        (Frame::Announced(_), Frame::Announced(_)) => true,
        // Tells of changes only, unless it begins anew.
        (Frame::Readers(new), Frame::Readers(old)) => {
            if new.anew != Some(true) {
                with_older(&mut new.accounts, &mut old.accounts);
                new.anew = old.anew;
                new.upto = new.upto.max(old.upto);
            }
            true
        }
        (Frame::ReadersOf(new), Frame::ReadersOf(old)) if new.member == old.member => {
            if new.anew != Some(true) && new.ends != Some(true) && old.ends != Some(true) {
                with_older(&mut new.accounts, &mut old.accounts);
                new.anew = old.anew;
                new.upto = new.upto.max(old.upto);
            }
            true
        }
        // All of them, each time.
        (Frame::Links(_), Frame::Links(_)) => true,
        // Asked, or hinted at, again and again until there is an answer.
        (Frame::StateTake(_), Frame::StateTake(_)) => true,
        (Frame::StateBegin(new), Frame::StateBegin(old)) => new.state == old.state,
        _ => false,
    }
}

/// Tells, too, what was told before of other accounts.
fn with_older(new: &mut Vec<Reading>, old: &mut Vec<Reading>) {
    let told: BTreeSet<_> = new.iter().map(|of| of.account).collect();
    old.retain(|of| !told.contains(&of.account));
    let room = readers::Config::default().accounts_max;
    old.truncate(room.saturating_sub(told.len()));
    new.append(old);
}

#[cfg(test)]
mod tests {
    use whimbrel_crdt::{PartitionId, VersionVector};
    use whimbrel_replication::wire::{
        Ack, Announced, BlobHave, BlobName, Hello, Readers, Reading, Room,
    };

    use super::*;

    const PARTITION: PartitionId = PartitionId(1);
    const ROOM: Room = Room {
        bytes: 0,
        batches: 0,
    };

    fn node(id: u64) -> Incarnation {
        Incarnation::from_hash(id)
    }

    fn vector(number: u64) -> VersionVector {
        [(node(9), number)].into_iter().collect()
    }

    fn announced(number: u64) -> Frame {
        Frame::Announced(Announced {
            partition: PARTITION,
            vector: vector(number),
            except: Vec::new(),
        })
    }

    fn ack(number: u64) -> Frame {
        Frame::Ack(Ack {
            partition: PARTITION,
            durable: vector(number),
            applied: vector(number),
            room: ROOM,
            again: None,
            lives: None,
        })
    }

    fn hello(number: u64) -> Frame {
        Frame::Hello(Hello {
            partition: PARTITION,
            durable: vector(number),
            applied: vector(number),
            heads: Vec::new(),
            room: ROOM,
            yours: None,
            anew: Some(false),
            syncing: None,
            lives: None,
        })
    }

    fn readers(upto: u64, accounts: &[(u8, u32)], anew: bool) -> Frame {
        let reading = |(account, counter): &(u8, u32)| Reading {
            account: [*account; 16],
            reading: true,
            counter: *counter,
        };
        Frame::Readers(Readers {
            partition: PARTITION,
            upto,
            accounts: accounts.iter().map(reading).collect(),
            anew: anew.then_some(true),
        })
    }

    fn asks(number: u64) -> Frame {
        let mut name = [0; 48];
        name[..8].copy_from_slice(&number.to_be_bytes());
        Frame::BlobHave(BlobHave {
            name: BlobName(name),
            here: true,
            ask: true,
            partition: Some(PARTITION),
        })
    }

    fn keep(frames: &[(u64, Frame)]) -> Vec<(u64, Frame)> {
        let mut kept = Vec::new();
        for (peer, frame) in frames {
            keep_early(&mut kept, node(*peer), frame.clone());
        }
        let kept = kept.into_iter();
        kept.map(|(id, frame)| (id.get(), frame)).collect()
    }

    /// A disk that reads for a minute.
    #[test]
    fn who_is_late_finds_room() {
        let mut all: Vec<(u64, Frame)> = Vec::new();
        for number in 1..=300 {
            for peer in [1, 2] {
                all.extend([(peer, announced(number)), (peer, ack(number))]);
                all.push((peer, asks(number)));
            }
        }
        let late = [hello(5), readers(5, &[(1, 1)], true), asks(1)].map(|frame| (3, frame));
        all.extend(late.clone());
        let kept = keep(&all);
        assert_eq!(kept[kept.len() - 3..], late);
        for peer in [1, 2] {
            let of_it = kept.iter().filter(|(of, _)| *of == peer);
            let of_it: Vec<_> = of_it.map(|(_, frame)| frame).collect();
            assert!(of_it.len() <= KEPT_MAX + 2, "{}", of_it.len());
            assert!(of_it.contains(&&announced(300)) && of_it.contains(&&ack(300)));
        }
        // However much it has said before.
        all.push((1, hello(301)));
        assert_eq!(keep(&all).pop(), Some((1, hello(301))));
    }

    #[test]
    fn the_newest_takes_the_place_of_what_it_says() {
        let check = |frames: &[Frame], expected: &[Frame]| {
            let of = |peer, frames: &[Frame]| -> Vec<(u64, Frame)> {
                frames.iter().map(|frame| (peer, frame.clone())).collect()
            };
            // Another one's stay.
            let all = [of(1, frames), of(2, &[hello(7)])].concat();
            let kept = [of(1, expected), of(2, &[hello(7)])].concat();
            assert_eq!(keep(&all), kept);
        };
        check(
            &[hello(1), ack(2), asks(1), ack(3)],
            &[hello(1), asks(1), ack(3)],
        );
        check(&[hello(1), ack(2), hello(3)], &[hello(3)]);
        check(
            &[announced(1), hello(1), announced(2)],
            &[hello(1), announced(2)],
        );
        check(
            &[
                readers(1, &[(1, 1), (2, 2)], true),
                ack(1),
                readers(2, &[(1, 3)], false),
            ],
            &[ack(1), readers(2, &[(1, 3), (2, 2)], true)],
        );
        check(
            &[readers(1, &[(1, 1)], false), readers(2, &[(2, 2)], true)],
            &[readers(2, &[(2, 2)], true)],
        );
    }
}
