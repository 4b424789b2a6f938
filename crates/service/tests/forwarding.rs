//! Deliveries that the queue has other nodes make: who is asked, how much at once, and what answers come to. How they are made is seen in
//! `sim/tests/cluster/syncing.rs`.

use bytes::Bytes;
use whimbrel_crdt::{Incarnation, PartitionId};
use whimbrel_replication::wire::{self, BlobHave, Deliver, Delivered};
use whimbrel_service::{
    api::{AccountId, BlobName, Call, Date, Delivery, Entry, EntryId, MailboxName},
    machine::{Input, Machine, Now, Output, RequestId, Ticket},
    owner::keys::partition_of,
    peers::{FEATURE_DELIVER, Frame, Holders, PeerInput, PeerOutput, Stream},
    queue::{Config, Limits, QueueOwner, entry_id},
};

const ID: EntryId = EntryId([1; 16]);

fn node(number: u64) -> Incarnation {
    Incarnation::from_hash(number)
}

fn entry(recipients: u8) -> Entry {
    let delivery = |number| Delivery {
        account: AccountId([number; 16]),
        target: MailboxName::inbox(),
        content: Bytes::from_static(b"summary"),
        size: 1000,
        open_end: false,
        sent: false,
    };
    Entry {
        id: ID,
        sender: "carl@elsewhere.example".into(),
        deliveries: (0..recipients).map(delivery).collect(),
        blob: BlobName {
            hash: [1; 32],
            upload: [1; 16],
        },
        date: Date {
            seconds: 1_700_000_000,
            zone_minutes: 60,
        },
    }
}

/// The queue of node 1, which is linked with some of the others.
struct Bench {
    queue: QueueOwner,
    seconds: u64,
    commits: Vec<Ticket>,
    deliveries: Vec<(Ticket, usize)>,
    answered: bool,
}

impl Bench {
    /// One that is asked for no confirmation has taken an entry.
    fn with(recipients: u8, peers: &[(u64, u64)]) -> Bench {
        let mut bench = Bench {
            queue: QueueOwner::new(Config {
                peers: [node(2), node(3), node(4)].into(),
                in_cluster: true,
                other_nodes: 0,
                ..Config::alone(node(1), Limits::default())
            }),
            seconds: 100,
            commits: Vec::new(),
            deliveries: Vec::new(),
            answered: false,
        };
        bench.settle();
        for (peer, features) in peers {
            bench.input(Input::Peer(PeerInput::Linked(node(*peer), *features)));
        }
        bench.input(Input::Call(RequestId(1), Call::Accept(entry(recipients))));
        let [ticket] = bench.commits[..] else {
            panic!("one commit");
        };
        bench.input(Input::Committed(ticket));
        bench.commits.clear();
        assert_eq!(bench.deliveries.len(), usize::from(recipients));
        bench
    }

    fn input(&mut self, input: Input) {
        self.queue.handle(self.now(), input);
        self.settle();
    }

    fn now(&self) -> Now {
        Now {
            wall_micros: self.seconds * 1_000_000,
            mono_micros: self.seconds * 1_000_000,
        }
    }

    fn settle(&mut self) {
        let now = self.now();
        while let Some(output) = self.queue.poll() {
            match output {
                Output::Load { ticket, .. } => {
                    let (rows, done) = (Vec::new(), true);
                    self.queue.handle(now, Input::Loaded { ticket, rows, done });
                }
                Output::Peer(PeerOutput::LoadLogs { ticket, .. }) => {
                    let logs = PeerInput::Logs(ticket, Vec::new());
                    self.queue.handle(now, Input::Peer(logs));
                }
                Output::Commit(ticket, _) => self.commits.push(ticket),
                Output::Deliver { ticket, index, .. } => self.deliveries.push((ticket, index)),
                Output::Finished(id) => self.answered |= id == ID,
                _ => {}
            }
        }
    }

    /// The account's partition is not here.
    fn not_here(&mut self) {
        for (ticket, _) in std::mem::take(&mut self.deliveries) {
            self.input(Input::NotHere(ticket));
        }
    }

    /// What a peer is told of deliveries.
    fn told(&mut self, peer: u64) -> Vec<Frame> {
        let mut sent = self.sent(peer);
        sent.retain(|frame| matches!(frame, Frame::Deliver(_) | Frame::Delivered(_)));
        sent
    }

    /// What a peer is told of bodies.
    fn haves(&mut self, peer: u64) -> Vec<BlobHave> {
        let sent = self.sent(peer).into_iter();
        let haves = sent.filter_map(|frame| match frame {
            Frame::BlobHave(have) => Some(have),
            _ => None,
        });
        haves.collect()
    }

    fn sent(&mut self, peer: u64) -> Vec<Frame> {
        let mut all = Vec::new();
        loop {
            let ready = PeerInput::Ready(PartitionId::QUEUE, Stream::open(node(peer)));
            self.queue.handle(self.now(), Input::Peer(ready));
            let mut sent = None;
            while let Some(output) = self.queue.poll() {
                if let Output::Peer(PeerOutput::Send(_, frame)) = output {
                    sent = Some(frame);
                }
            }
            match sent {
                None => return all,
                Some(frame) => all.push(frame),
            }
        }
    }

    /// Which deliveries a peer is asked for.
    fn asked(&mut self, peer: u64) -> Vec<u32> {
        let asked = |frame| match frame {
            Frame::Deliver(ask) if ask.entry == ID.0 => ask.index,
            other => panic!("{other:?}"),
        };
        self.told(peer).into_iter().map(asked).collect()
    }

    fn answer(&mut self, peer: u64, index: u32, done: bool) {
        let entry = ID.0;
        let answer = Frame::Delivered(Delivered { entry, index, done });
        self.input(Input::Peer(PeerInput::Frame(node(peer), answer)));
    }

    fn pass(&mut self, seconds: u64) {
        self.seconds += seconds;
        self.input(Input::Time);
    }
}

const ABLE: u64 = FEATURE_DELIVER;

#[test]
fn peers_are_asked_until_one_has_made_it() {
    let mut bench = Bench::with(1, &[(2, ABLE), (3, 0), (4, ABLE)]);
    bench.not_here();
    let first = if bench.asked(2).is_empty() { 4 } else { 2 };
    let second = 6 - first;
    assert!(bench.asked(second).is_empty(), "one is asked");
    bench.answer(first, 0, false);
    assert_eq!(bench.asked(second), [0]);
    bench.answer(first, 0, true);
    assert!(
        bench.commits.is_empty(),
        "of who is not asked nothing counts"
    );
    bench.answer(second, 0, false);
    assert!(bench.asked(first).is_empty() && bench.asked(3).is_empty());
    bench.pass(5);
    assert!(bench.deliveries.is_empty(), "it rests");
    bench.pass(10);
    assert_eq!(bench.deliveries.len(), 1, "it is tried here again");
    bench.not_here();
    let (to_2, to_4) = (bench.asked(2), bench.asked(4));
    let peer = if to_2.is_empty() { 4 } else { 2 };
    assert_eq!([to_2, to_4].concat(), [0]);
    assert!(bench.commits.is_empty());
    bench.answer(peer, 0, true);
    assert_eq!(bench.commits.len(), 1, "it is finished");
    let forwarded = bench.queue.figures(bench.now()).deliveries_forwarded;
    assert_eq!(forwarded, 1);
    bench.input(Input::Committed(bench.commits[0]));
    assert!(bench.answered);
}

#[test]
fn only_who_holds_the_partition_is_asked() {
    let partition = partition_of(AccountId([0; 16]));
    for phases in 0..3 {
        let mut bench = Bench::with(1, &[(2, ABLE), (4, ABLE)]);
        let mut holders = Holders::default();
        let others = PartitionId::accounts(partition.bucket().unwrap_or(0) ^ 1);
        holders.leave(node(4), others).unwrap();
        if phases > 0 {
            holders.leave(node(2), partition).unwrap();
        }
        if phases > 1 {
            holders.left(node(2), partition, 0).unwrap();
        }
        bench.input(Input::Peer(PeerInput::Holders(holders)));
        bench.not_here();
        let (to_2, to_4) = (bench.asked(2), bench.asked(4));
        assert_eq!([to_2.clone(), to_4].concat(), [0], "{phases}");
        assert!(phases == 0 || to_2.is_empty(), "{phases}");
        bench.answer(4, 0, false);
        assert!(phases == 0 || bench.asked(2).is_empty(), "{phases}");
    }
}

#[test]
fn a_peer_that_goes_is_left_for_another() {
    let mut bench = Bench::with(1, &[(2, ABLE)]);
    bench.not_here();
    assert_eq!(bench.asked(2), [0]);
    bench.input(Input::Peer(PeerInput::Linked(node(4), ABLE)));
    bench.input(Input::Peer(PeerInput::Unlinked(node(2))));
    assert_eq!(bench.asked(4), [0]);
    bench.answer(4, 0, true);
    assert_eq!(bench.commits.len(), 1);
}

#[test]
fn one_peer_is_asked_for_64_at_once() {
    let mut bench = Bench::with(200, &[(2, ABLE)]);
    bench.not_here();
    let mut asked = bench.asked(2);
    assert_eq!(asked, (0..64).collect::<Vec<_>>());
    for index in 0..200 {
        assert!(bench.commits.is_empty());
        bench.answer(2, index, true);
        asked.extend(bench.asked(2));
    }
    assert_eq!(asked, (0..200).collect::<Vec<_>>());
    assert_eq!(bench.commits.len(), 1);
}

#[test]
fn of_what_a_peer_asks_64_are_kept() {
    let mut bench = Bench::with(0, &[(2, ABLE), (3, ABLE)]);
    let ask = |bench: &mut Bench, peer, index| {
        let ask = Deliver {
            entry: [9; 16],
            index,
            needed: 1,
            nodes: [node(3)].into(),
        };
        bench.input(Input::Peer(PeerInput::Frame(
            node(peer),
            Frame::Deliver(ask),
        )));
    };
    let no = |index| {
        let (entry, done) = ([9; 16], false);
        Frame::Delivered(Delivered { entry, index, done })
    };
    for index in 0..66 {
        ask(&mut bench, 2, index);
    }
    // Nothing was heard of the entry: it may come. Asked twice is asked once.
    ask(&mut bench, 2, 7);
    assert_eq!(bench.told(2), [no(64), no(65)]);
    ask(&mut bench, 3, 1000);
    assert_eq!(bench.told(3), [], "another has its own room");
    bench.pass(11);
    ask(&mut bench, 2, 66);
    assert_eq!(
        bench.told(2),
        [],
        "what was asked long ago is asked again elsewhere"
    );
}

/// Of 30,000 that wait for room each retry took back all, and each answer looked at all.
#[test]
fn what_waits_is_taken_back_and_asked_for_again_in_its_order() {
    let mut bench = Bench::with(200, &[(2, ABLE)]);
    bench.not_here();
    assert_eq!(bench.asked(2), (0..64).collect::<Vec<_>>());
    // Not answered in time: all is handed out again, and nothing is asked twice.
    bench.pass(11);
    assert_eq!(bench.deliveries.len(), 200);
    bench.not_here();
    assert_eq!(bench.asked(2), (0..64).collect::<Vec<_>>());
    bench.answer(2, 70, true);
    assert!(bench.asked(2).is_empty(), "that was asked before");
    bench.answer(2, 5, true);
    assert_eq!(bench.asked(2), [64], "the first that waits");
}

/// 64 waited for a node that was away, and nothing that came later was ever asked for.
#[test]
fn what_waits_for_a_place_has_its_turn_before_what_is_not_answered() {
    let mut bench = Bench::with(64, &[(2, ABLE)]);
    bench.not_here();
    assert_eq!(bench.asked(2).len(), 64);
    let later = Entry {
        id: EntryId([200; 16]),
        ..entry(3)
    };
    bench.input(Input::Call(RequestId(2), Call::Accept(later)));
    bench.input(Input::Committed(bench.commits[0]));
    bench.not_here();
    assert_eq!(bench.told(2), []);
    bench.pass(11);
    bench.not_here();
    let asked = bench.told(2).into_iter().map(|frame| match frame {
        Frame::Deliver(ask) => (ask.entry[0], ask.index),
        other => panic!("{other:?}"),
    });
    let asked: Vec<(u8, u32)> = asked.collect();
    let later = (0..3).map(|index| (200, index));
    let before = (0..61).map(|index| (ID.0[0], index));
    assert_eq!(asked, later.chain(before).collect::<Vec<_>>());
}

/// One that has said no to all has room, and the other has none: whoever waits has its turn with both.
#[test]
fn a_peer_that_links_is_asked_for_what_waits() {
    let mut bench = Bench::with(200, &[(2, ABLE)]);
    bench.not_here();
    assert_eq!(bench.asked(2).len(), 64);
    bench.input(Input::Peer(PeerInput::Linked(node(3), ABLE)));
    assert_eq!(bench.asked(3), (64..128).collect::<Vec<_>>());
}

/// It asks again and again before it takes what it is told. What has ended meanwhile it need not be told.
#[test]
fn a_peer_is_told_of_a_body_once() {
    let mut bench = Bench::with(0, &[(2, ABLE)]);
    let of = |number| BlobName {
        hash: [number; 32],
        upload: [number; 16],
    };
    for number in [5, 4] {
        let blob = of(number);
        let id = entry_id(&blob.upload);
        let entry = Entry {
            id,
            blob,
            ..entry(1)
        };
        let accept = Call::Accept(entry);
        bench.commits.clear();
        bench.input(Input::Call(RequestId(number.into()), accept));
        bench.input(Input::Committed(bench.commits[0]));
    }
    let have = |number| BlobHave {
        name: wire::BlobName([[number; 16]; 3].concat().try_into().unwrap()),
        here: true,
        ask: true,
        partition: None,
    };
    let ask = |bench: &mut Bench| {
        for number in [5, 4, 5, 5, 4] {
            let frame = Frame::BlobHave(have(number));
            bench.input(Input::Peer(PeerInput::Frame(node(2), frame)));
        }
    };
    let told = |number| BlobHave {
        ask: false,
        ..have(number)
    };
    ask(&mut bench);
    assert_eq!(bench.haves(2), [told(5), told(4)]);
    ask(&mut bench);
    bench.commits.clear();
    let (delivered, _) = bench.deliveries[0];
    bench.input(Input::Delivered(delivered));
    bench.input(Input::Committed(bench.commits[0]));
    assert_eq!(bench.haves(2), [told(4)]);
    assert_eq!(bench.haves(2), []);
}
