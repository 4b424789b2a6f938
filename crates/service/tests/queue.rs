//! The queue's owner by itself: limits, recovery, repetition, failed commits.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{Hash, Incarnation, PartitionId};
use whimbrel_service::{
    api::{AccountId, BlobName, Call, Date, Delivery, Entry, EntryId, Failure, MailboxName, Reply},
    figures::Figures,
    machine::{Input, Machine, Note, Now, Output, RequestId, Ticket},
    peers::{LogEnd, PeerInput, PeerOutput},
    queue::{Config, Limits, QueueOwner, entry_id},
};
use whimbrel_storage::{Commit, Mutation, StoreError};

/// A driver that carries out nothing by itself.
struct Bench {
    queue: QueueOwner,
    seconds: u64,
    requests: u64,
    rows: BTreeMap<Vec<u8>, Bytes>,
    /// Who holds which blob.
    held: BTreeMap<Vec<u8>, [u8; 16]>,
    commits: Vec<(Ticket, Commit)>,
    deliveries: Vec<(Ticket, u8, usize)>,
}

fn entry(number: u8, recipients: u8) -> Entry {
    let delivery = |n| Delivery {
        account: AccountId([n; 16]),
        target: MailboxName::new(if n == 0 { "INBOX" } else { "Lists/x" }).unwrap(),
        content: Bytes::from(vec![n; 100]),
        size: 1000 + u32::from(n),
        open_end: false,
        sent: n == 2,
    };
    Entry {
        id: EntryId([number; 16]),
        sender: "carl@elsewhere.example".into(),
        deliveries: (0..recipients).map(delivery).collect(),
        blob: BlobName {
            hash: [number; 32],
            upload: [number; 16],
        },
        date: Date {
            seconds: 1_700_000_000,
            zone_minutes: 60,
        },
    }
}

impl Bench {
    fn new(limits: Limits) -> Bench {
        Bench::over(BTreeMap::new(), limits)
    }

    /// One that finds these rows, in pages of two.
    fn over(rows: BTreeMap<Vec<u8>, Bytes>, limits: Limits) -> Bench {
        let mut bench = Bench {
            queue: QueueOwner::new(Config::alone(Incarnation::from_hash(1), limits)),
            seconds: 100,
            requests: 0,
            rows: rows.clone(),
            held: BTreeMap::new(),
            commits: Vec::new(),
            deliveries: Vec::new(),
        };
        let Some(Output::Load {
            ticket, from, to, ..
        }) = bench.queue.poll()
        else {
            panic!("it reads what is there first");
        };
        assert!(bench.queue.poll().is_none());
        // Whoever asks meanwhile waits.
        assert_eq!(bench.accept(&entry(200, 1)), "");
        let rows: Vec<_> = rows
            .into_iter()
            .filter(|(key, _)| (&from..&to).contains(&key))
            .collect();
        let mut pages: Vec<_> = rows.chunks(2).map(<[_]>::to_vec).collect();
        pages.push(Vec::new());
        let last = pages.len() - 1;
        for (index, rows) in pages.into_iter().enumerate() {
            assert!(bench.commits.is_empty() && bench.deliveries.is_empty());
            let done = index == last;
            let said = bench.input(Input::Loaded { ticket, rows, done });
            match said.as_str() {
                "" => assert!(!done),
                "recovered" => {
                    // The one that waited is ended at once, so that each test begins with what it found.
                    let (ticket, _) = bench.commits.pop().expect("its commit");
                    assert_eq!(bench.input(Input::CommitFailed(ticket)), "1 full");
                }
                said => assert_eq!(said, "recovered, 1 full"),
            }
        }
        bench
    }

    fn input(&mut self, input: Input) -> String {
        let now = Now {
            wall_micros: 5,
            mono_micros: self.seconds * 1_000_000,
        };
        self.queue.handle(now, input);
        let mut words = Vec::new();
        while let Some(output) = self.queue.poll() {
            match output {
                Output::Commit(ticket, commit) => self.commits.push((ticket, commit)),
                Output::Deliver {
                    ticket,
                    entry,
                    index,
                    others,
                } => {
                    assert_eq!(others.needed, 0, "it is alone");
                    self.deliveries.push((ticket, entry.id.0[0], index));
                }
                Output::Reply(RequestId(n), Reply::Done) => words.push(format!("{n} done")),
                Output::Reply(RequestId(n), Reply::Failed(Failure::Storage)) => {
                    words.push(format!("{n} full"))
                }
                Output::Unfinished(_) | Output::Closing(_) => {}
                Output::Finished(id) => words.push(format!("finished {}", id.0[0])),
                Output::QueueRecovered => words.push("recovered".into()),
                Output::Log(Note::DeliveryTook(micros)) => {
                    words.push(format!("took {} s", micros / 1_000_000));
                }
                Output::Log(_) => words.push("warning".into()),
                Output::Fatal(cause) => words.push(cause),
                other => panic!("{other:?}"),
            }
        }
        words.join(", ")
    }

    fn figures(&self) -> Figures {
        self.queue.figures(Now {
            wall_micros: (1_700_000_000 + self.seconds - 100) * 1_000_000,
            mono_micros: 0,
        })
    }

    fn accept(&mut self, entry: &Entry) -> String {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.input(Input::Call(request, Call::Accept(entry.clone())))
    }

    /// The oldest commit is made durable.
    fn commit(&mut self) -> String {
        let (ticket, commit) = self.commits.remove(0);
        for mutation in commit.mutations {
            match mutation {
                Mutation::Put { key, value } => drop(self.rows.insert(key.to_vec(), value)),
                Mutation::Delete { key } => drop(self.rows.remove(&key[..])),
                Mutation::Reference { blob, holder } => {
                    self.held.insert(holder.to_vec(), blob.upload.0);
                }
                Mutation::Release { blob, holder } => {
                    assert_eq!(self.held.remove(&holder[..]), Some(blob.upload.0));
                }
            }
        }
        self.input(Input::Committed(ticket))
    }

    fn refuse(&mut self) -> String {
        let (ticket, _) = self.commits.remove(0);
        self.input(Input::CommitFailed(ticket))
    }

    /// The deliveries handed out since the last look: entry and index.
    fn handed_out(&mut self) -> Vec<(u8, usize)> {
        self.deliveries
            .iter()
            .map(|(_, entry, index)| (*entry, *index))
            .collect()
    }

    fn delivered(&mut self) -> String {
        let (ticket, ..) = self.deliveries.remove(0);
        self.input(Input::Delivered(ticket))
    }
}

fn limits() -> Limits {
    Limits {
        entries_max: 3,
        bytes_max: 1000,
        retry_after_seconds: 10,
    }
}

#[test]
fn an_entry_from_acceptance_to_its_end() {
    let mut bench = Bench::new(limits());
    assert_eq!(bench.accept(&entry(1, 2)), "");
    assert_eq!(
        bench.handed_out(),
        [],
        "nothing is delivered before it is on disk"
    );
    assert_eq!(bench.commit(), "2 done");
    assert_eq!(
        (bench.rows.len(), bench.held.len(), bench.queue.len()),
        (1, 1, 1)
    );
    assert_eq!(bench.handed_out(), [(1, 0), (1, 1)]);
    assert_eq!(bench.delivered(), "took 0 s");
    assert!(bench.commits.is_empty());
    bench.seconds += 3;
    assert_eq!(bench.figures().queue_oldest_seconds, 3);
    assert_eq!(bench.delivered(), "took 3 s");
    assert_eq!(bench.commits.len(), 1);
    assert_eq!(bench.queue.len(), 1, "what is being removed is one entry");
    assert_eq!(bench.commit(), "finished 1");
    assert_eq!(
        (bench.rows.len(), bench.held.len(), bench.queue.is_empty()),
        (0, 0, true)
    );
}

#[test]
fn what_is_too_much_is_refused_and_takes_no_room() {
    let mut bench = Bench::new(limits());
    for number in 1..=3 {
        assert_eq!(bench.accept(&entry(number, 1)), "");
    }
    // Commits under way count.
    assert_eq!(bench.accept(&entry(4, 1)), "5 full");
    assert_eq!(bench.refuse(), "2 full");
    assert_eq!(bench.accept(&entry(5, 1)), "");
    for _ in 0..3 {
        assert!(bench.commit().ends_with("done"));
    }
    assert_eq!(bench.accept(&entry(6, 1)), "7 full");

    let mut bench = Bench::new(limits());
    assert_eq!(bench.accept(&entry(1, 5)), "");
    assert_eq!(bench.accept(&entry(2, 5)), "3 full", "their bytes");
    assert_eq!(bench.refuse(), "2 full");
    assert_eq!(
        bench.accept(&entry(3, 5)),
        "",
        "what was refused is not counted"
    );
    assert_eq!(bench.commit(), "4 done");
    assert_eq!(bench.accept(&entry(4, 5)), "5 full");
    for _ in 0..5 {
        bench.delivered();
    }
    assert_eq!(bench.commit(), "finished 3");
    assert_eq!(
        bench.accept(&entry(4, 5)),
        "",
        "what is finished is not, either"
    );
    assert_eq!(bench.accept(&entry(5, 9)), "7 full");
}

#[test]
fn what_was_accepted_is_found_again() {
    let mut bench = Bench::new(Limits::default());
    for number in 1..=5 {
        bench.accept(&entry(number, 2));
        bench.commit();
    }
    // More than the limits allow now, and all the same taken up.
    let mut again = Bench::over(bench.rows.clone(), limits());
    let expected: Vec<_> = (1..=5).flat_map(|entry| [(entry, 0), (entry, 1)]).collect();
    assert_eq!(again.handed_out(), expected);
    assert_eq!(again.accept(&entry(6, 1)), "2 full");
    for _ in 0..10 {
        again.delivered();
    }
    let ends: Vec<String> = (1..=5)
        .map(|_| {
            let (ticket, _) = again.commits.remove(0);
            again.input(Input::Committed(ticket))
        })
        .collect();
    assert_eq!(
        ends,
        [
            "finished 1",
            "finished 2",
            "finished 3",
            "finished 4",
            "finished 5"
        ]
    );
    assert!(again.queue.is_empty());
    assert_eq!(again.accept(&entry(6, 1)), "", "their bytes are free again");
}

#[test]
fn entries_that_are_being_removed_take_one_place_each() {
    let mut bench = Bench::new(limits());
    for number in 1..=2 {
        bench.accept(&entry(number, 1));
    }
    for _ in 0..2 {
        bench.commit();
    }
    for _ in 0..2 {
        bench.delivered();
    }
    assert_eq!((bench.commits.len(), bench.queue.len()), (2, 2));
    assert_eq!(bench.accept(&entry(3, 1)), "", "there is room for a third");
    assert_eq!(bench.queue.len(), 3);
    assert_eq!(bench.accept(&entry(4, 1)), "5 full");
    assert_eq!(bench.commit(), "finished 1");
    assert_eq!(bench.accept(&entry(5, 1)), "");
}

#[test]
fn an_entry_is_read_back_as_it_was_accepted() {
    let mut bench = Bench::new(Limits::default());
    let accepted = entry(1, 3);
    bench.accept(&accepted);
    bench.commit();
    let mut queue = QueueOwner::new(Config::alone(Incarnation::from_hash(1), Limits::default()));
    let Some(Output::Load { ticket, .. }) = queue.poll() else {
        panic!()
    };
    let rows = bench.rows.into_iter().collect();
    queue.handle(
        Now::default(),
        Input::Loaded {
            ticket,
            rows,
            done: true,
        },
    );
    assert!(matches!(queue.poll(), Some(Output::Unfinished(_))));
    let Some(Output::Deliver { entry: found, .. }) = queue.poll() else {
        panic!()
    };
    assert_eq!(format!("{found:?}"), format!("{accepted:?}"));
}

#[test]
fn a_row_that_cannot_be_read_stops_the_node() {
    let mut bench = Bench::new(Limits::default());
    bench.accept(&entry(1, 1));
    bench.commit();
    let (key, row) = bench.rows.pop_first().unwrap();
    let mut newer = row.to_vec();
    let version = newer.iter().position(|byte| *byte == 1).unwrap();
    newer[version] = 2;
    for (key, row) in [
        (key.clone(), Bytes::from(newer)),
        (key.clone(), row.slice(..row.len() - 1)),
        (key[..5].to_vec(), row),
    ] {
        let mut queue =
            QueueOwner::new(Config::alone(Incarnation::from_hash(1), Limits::default()));
        let Some(Output::Load { ticket, .. }) = queue.poll() else {
            panic!()
        };
        let rows = vec![(key, row)];
        queue.handle(
            Now::default(),
            Input::Loaded {
                ticket,
                rows,
                done: true,
            },
        );
        assert!(matches!(queue.poll(), Some(Output::Fatal(_))));
        assert!(
            queue.poll().is_none(),
            "nothing is delivered, nothing forgotten"
        );
    }
    let mut queue = QueueOwner::new(Config::alone(Incarnation::from_hash(1), Limits::default()));
    queue.poll();
    queue.handle(
        Now::default(),
        Input::LoadFailed(Ticket(1), StoreError::Read("no disk".into())),
    );
    assert!(matches!(queue.poll(), Some(Output::Fatal(cause)) if cause.contains("no disk")));
}

#[test]
fn what_was_not_delivered_is_handed_out_again() {
    let mut bench = Bench::new(limits());
    bench.accept(&entry(1, 3));
    bench.commit();
    let tickets: Vec<Ticket> = bench
        .deliveries
        .drain(..)
        .map(|(ticket, ..)| ticket)
        .collect();
    bench.input(Input::Delivered(tickets[0]));
    bench.input(Input::NotDelivered(tickets[1]));
    // The third says nothing.
    assert_eq!(bench.queue.deadline(), Some(110_000_000));
    bench.seconds = 109;
    assert_eq!(bench.input(Input::Time), "");
    assert_eq!(bench.handed_out(), []);
    bench.seconds = 110;
    assert_eq!(bench.input(Input::Time), "warning");
    assert_eq!(bench.handed_out(), [(1, 1), (1, 2)]);
    // A late answer to the first attempt is nobody's; the second counts.
    assert_eq!(bench.input(Input::Delivered(tickets[2])), "");
    assert_eq!(bench.delivered(), "took 10 s");
    assert!(bench.commits.is_empty());
    assert_eq!(bench.delivered(), "took 10 s");
    assert_eq!(bench.commit(), "finished 1");
    // And time goes by without a wish.
    bench.seconds = 120;
    bench.input(Input::Time);
    assert_eq!(bench.queue.deadline(), None);
}

#[test]
fn each_entry_has_its_own_time() {
    let mut bench = Bench::new(limits());
    bench.accept(&entry(1, 1));
    bench.commit();
    bench.seconds = 105;
    bench.accept(&entry(2, 1));
    bench.commit();
    bench.deliveries.clear();
    bench.seconds = 110;
    bench.input(Input::Time);
    assert_eq!(bench.handed_out(), [(1, 0)]);
    bench.deliveries.clear();
    bench.seconds = 120;
    bench.input(Input::Time);
    assert_eq!(bench.handed_out(), [(1, 0), (2, 0)]);
}

#[test]
fn a_removal_that_fails_is_tried_again_without_a_delivery() {
    let mut bench = Bench::new(limits());
    bench.accept(&entry(1, 1));
    bench.commit();
    bench.delivered();
    assert_eq!(bench.refuse(), "", "nobody is told that it is finished");
    assert_eq!(bench.queue.len(), 1);
    bench.seconds = 115;
    bench.input(Input::Time);
    assert_eq!(bench.handed_out(), []);
    assert_eq!(bench.commits.len(), 1);
    bench.seconds = 130;
    bench.input(Input::Time);
    assert_eq!(bench.commits.len(), 1, "one at a time");
    assert_eq!(bench.commit(), "finished 1");
    assert!(bench.queue.is_empty());
}

#[test]
fn an_entry_without_recipients_ends_at_once() {
    let mut bench = Bench::new(limits());
    bench.accept(&entry(1, 0));
    assert_eq!(bench.commit(), "2 done");
    assert_eq!(bench.commit(), "finished 1");
    assert!(bench.queue.is_empty());
}

#[test]
fn ids_follow_from_uploads_and_do_not_show_them() {
    assert_eq!(entry_id(&[1; 16]), entry_id(&[1; 16]));
    assert_ne!(entry_id(&[1; 16]), entry_id(&[2; 16]));
    assert_ne!(entry_id(&[1; 16]).0, [1; 16]);
}

/// Answers what is asked of the store, and gives what is to be committed.
fn settle(queue: &mut QueueOwner, now: Now) -> Vec<Ticket> {
    let mut commits = Vec::new();
    while let Some(output) = queue.poll() {
        match output {
            Output::Load { ticket, .. } => {
                let (rows, done) = (Vec::new(), true);
                queue.handle(now, Input::Loaded { ticket, rows, done });
            }
            Output::Peer(PeerOutput::LoadLogs { ticket, .. }) => {
                queue.handle(now, Input::Peer(PeerInput::Logs(ticket, Vec::new())));
            }
            Output::Commit(ticket, _) => commits.push(ticket),
            _ => {}
        }
    }
    commits
}

#[test]
fn it_reports_what_holds_up_stability_until_logs_are_closed() {
    let [me, here, gone] = [1, 2, 3].map(Incarnation::from_hash);
    let mut queue = QueueOwner::new(Config {
        peers: [here, gone].into(),
        in_cluster: true,
        other_nodes: 0,
        ..Config::alone(me, Limits::default())
    });
    let now = Now {
        wall_micros: 5_000_000,
        mono_micros: 5_000_000,
    };
    let report = |queue: &QueueOwner| {
        let [report] = &queue.reports()[..] else {
            panic!("one partition");
        };
        assert_eq!(report.partition, PartitionId::QUEUE);
        report.open.clone()
    };
    // Of what is being read nothing is known.
    assert_eq!(report(&queue), None);
    assert_eq!(settle(&mut queue, now), []);
    assert_eq!(report(&queue).map(|open| open.stable), Some(0));
    let accept = Call::Accept(entry(1, 1));
    queue.handle(now, Input::Call(RequestId(1), accept));
    let [ticket] = settle(&mut queue, now)[..] else {
        panic!("one commit");
    };
    // Not on disk, not reported.
    let stored = |queue: &QueueOwner| report(queue).map(|open| open.logs[&me].stored);
    assert_eq!(stored(&queue), Some(0));
    queue.handle(now, Input::Committed(ticket));
    assert_eq!(stored(&queue), Some(1));
    // Neither has it; one that was removed counts until its logs are closed.
    let stable = |queue: &QueueOwner| report(queue).map(|open| open.stable);
    assert_eq!(stable(&queue), Some(0));
    let mut members: BTreeMap<Incarnation, u8> = [(me, 0), (gone, 2)].into();
    queue.handle(now, Input::Peer(PeerInput::Members(members.clone())));
    let _ = settle(&mut queue, now);
    assert_eq!(stable(&queue), Some(0));
    let _ = members.remove(&gone);
    queue.handle(
        now,
        Input::Peer(PeerInput::Closed([(gone, BTreeMap::new())].into())),
    );
    queue.handle(now, Input::Peer(PeerInput::Members(members)));
    let _ = settle(&mut queue, now);
    assert_eq!(stable(&queue), Some(1));
}

/// A disk that hangs and has no room: what was refused is read again when the rest is known, and until then there is nothing to do.
#[test]
fn it_is_at_rest_while_a_refused_commit_waits_for_others() {
    let [me, peer] = [1, 2].map(Incarnation::from_hash);
    let mut queue = QueueOwner::new(Config {
        peers: [peer].into(),
        in_cluster: true,
        other_nodes: 0,
        ..Config::alone(me, Limits::default())
    });
    let mut now = Now {
        wall_micros: 5_000_000,
        mono_micros: 5_000_000,
    };
    assert_eq!(settle(&mut queue, now), []);
    queue.handle(now, Input::Peer(PeerInput::Linked(peer, 0)));
    for number in 1..=2 {
        let accept = Call::Accept(entry(number, 1));
        queue.handle(now, Input::Call(RequestId(number.into()), accept));
    }
    let [refused, waits] = settle(&mut queue, now)[..] else {
        panic!("two commits");
    };
    assert!(queue.deadline().is_some(), "the peer is greeted again");
    queue.handle(now, Input::CommitFailed(refused));
    assert_eq!(settle(&mut queue, now), []);
    for _ in 0..10 {
        let Some(at) = queue.deadline() else { break };
        assert!(at > now.mono_micros, "its time is over, and stays so");
        now.mono_micros = at;
        queue.handle(now, Input::Time);
        assert_eq!(settle(&mut queue, now), []);
    }
    queue.handle(now, Input::CommitFailed(waits));
    assert_eq!(settle(&mut queue, now), []);
    let _ = queue.reports().remove(0).open.expect("it goes on");
}

/// A disk that takes nothing: what the queue does of itself, after it has read all again, it does no more often than once a second.
#[test]
fn what_is_refused_is_tried_once_a_second() {
    let [me, peer] = [1, 2].map(Incarnation::from_hash);
    let mut queue = QueueOwner::new(Config {
        peers: [peer].into(),
        in_cluster: true,
        other_nodes: 0,
        ..Config::alone(me, Limits::default())
    });
    let mut now = Now {
        wall_micros: 5_000_000,
        mono_micros: 5_000_000,
    };
    // A body that is not here, until it is looked for.
    let blob = BlobName {
        hash: [7; 32],
        upload: [7; 16],
    };
    let missing_blobs = [b"\0lacking", &blob.upload[..], &blob.hash[..]].concat();
    let mut disk = Disk {
        rows: [(missing_blobs.clone(), Bytes::new())].into(),
        ..Disk::default()
    };
    disk.carry_out(&mut queue, now);
    let accept = Call::Accept(entry(1, 1));
    queue.handle(now, Input::Call(RequestId(1), accept));
    disk.carry_out(&mut queue, now);
    let ticket = disk.delivers.pop().expect("a delivery");
    disk.refuses = true;
    disk.answers = true;
    queue.handle(now, Input::Delivered(ticket));
    let mut pass = |disk: &mut Disk, seconds: u64| {
        disk.carry_out(&mut queue, now);
        let end = now.mono_micros + seconds * 1_000_000;
        while let Some(at) = queue.deadline().filter(|at| *at < end) {
            now.mono_micros = at.max(now.mono_micros + 1);
            queue.handle(now, Input::Time);
            disk.carry_out(&mut queue, now);
        }
        now.mono_micros = end;
    };
    pass(&mut disk, 5);
    // Two at a time.
    assert!((2..=12).contains(&disk.refused), "{}", disk.refused);
    disk.refuses = false;
    pass(&mut disk, 2);
    assert!(disk.finished && !disk.rows.contains_key(&missing_blobs[..]));
}

/// A commit was refused, and what is read again cannot be for some seconds: who comes meanwhile is told to come again.
#[test]
fn what_cannot_be_read_again_is_asked_for_later() {
    let [me, peer] = [1, 2].map(Incarnation::from_hash);
    for fails in 1..=5 {
        let mut queue = QueueOwner::new(Config {
            peers: [peer].into(),
            in_cluster: true,
            other_nodes: 0,
            ..Config::alone(me, Limits::default())
        });
        let mut now = Now {
            wall_micros: 5_000_000,
            mono_micros: 5_000_000,
        };
        let mut disk = Disk::default();
        disk.carry_out(&mut queue, now);
        (disk.refuses, disk.fails) = (true, fails);
        let accept = Call::Accept(entry(1, 1));
        queue.handle(now, Input::Call(RequestId(1), accept));
        disk.carry_out(&mut queue, now);
        assert!(queue.reports()[0].open.is_none());
        disk.refuses = false;
        let accept = |number: u8| {
            let call = Call::Accept(entry(number, 1));
            Input::Call(RequestId(number.into()), call)
        };
        queue.handle(now, accept(2));
        let later = |output: Output| match output {
            Output::Reply(RequestId(2), Reply::Failed(Failure::Temporary)) => Some(()),
            _ => None,
        };
        assert_eq!(
            queue.poll().and_then(later),
            Some(()),
            "it is not kept waiting"
        );
        for _ in 0..fails {
            let Some(at) = queue.deadline() else { break };
            assert!(at > now.mono_micros, "it waits");
            now.mono_micros = at;
            queue.handle(now, Input::Time);
            disk.carry_out(&mut queue, now);
        }
        assert_eq!(disk.fails, 0);
        assert!(queue.reports()[0].open.is_some(), "it goes on");
        queue.handle(now, accept(3));
        disk.carry_out(&mut queue, now);
        assert_eq!(disk.delivers.len(), 1);
    }
}

/// Who waited already when it turned out that the store cannot read is not kept waiting.
#[test]
fn who_waits_for_what_cannot_be_read_is_told() {
    let mut queue = QueueOwner::new(Config {
        peers: [Incarnation::from_hash(2)].into(),
        in_cluster: true,
        other_nodes: 0,
        ..Config::alone(Incarnation::from_hash(1), Limits::default())
    });
    let now = Now::default();
    let mut disk = Disk::default();
    disk.carry_out(&mut queue, now);
    let accept = |number: u8| {
        let call = Call::Accept(entry(number, 1));
        Input::Call(RequestId(number.into()), call)
    };
    queue.handle(now, accept(1));
    let outputs = |queue: &mut QueueOwner| std::iter::from_fn(|| queue.poll()).collect::<Vec<_>>();
    let commit = outputs(&mut queue)
        .into_iter()
        .find_map(|output| match output {
            Output::Commit(ticket, _) => Some(ticket),
            _ => None,
        });
    queue.handle(now, Input::CommitFailed(commit.unwrap()));
    let load = outputs(&mut queue)
        .into_iter()
        .find_map(|output| match output {
            Output::Load { ticket, .. } => Some(ticket),
            _ => None,
        });
    queue.handle(now, accept(2));
    assert!(outputs(&mut queue).is_empty(), "it waits");
    let cause = StoreError::Read("it is opened again".into());
    queue.handle(now, Input::LoadFailed(load.unwrap(), cause));
    let told = |output: &Output| {
        matches!(
            output,
            Output::Reply(RequestId(2), Reply::Failed(Failure::Temporary))
        )
    };
    assert_eq!(
        outputs(&mut queue)
            .iter()
            .filter(|output| told(output))
            .count(),
        1
    );
}

/// What a driver does for a queue.
#[derive(Default)]
struct Disk {
    rows: BTreeMap<Vec<u8>, Bytes>,
    refuses: bool,
    refused: u64,
    /// So many reads fail.
    fails: u32,
    /// Deliveries are made at once, and bodies are here.
    answers: bool,
    delivers: Vec<Ticket>,
    finished: bool,
    /// Where the log of the node stands.
    end: Option<(Incarnation, LogEnd)>,
}

impl Disk {
    fn carry_out(&mut self, queue: &mut QueueOwner, now: Now) {
        while let Some(output) = queue.poll() {
            let answer = match output {
                Output::Load { ticket, .. } | Output::Peer(PeerOutput::LoadLogs { ticket, .. })
                    if self.fails > 0 =>
                {
                    self.fails -= 1;
                    let cause = StoreError::Read("it is opened again".into());
                    Input::LoadFailed(ticket, cause)
                }
                Output::Load { ticket, .. } => {
                    let rows = self.rows.clone().into_iter().collect();
                    let done = true;
                    Input::Loaded { ticket, rows, done }
                }
                Output::Peer(PeerOutput::LoadLogs { ticket, .. }) => {
                    let ends = self.end.into_iter().collect();
                    Input::Peer(PeerInput::Logs(ticket, ends))
                }
                Output::Deliver { ticket, .. } if self.answers => Input::Delivered(ticket),
                Output::Deliver { ticket, .. } => {
                    self.delivers.push(ticket);
                    continue;
                }
                Output::Peer(PeerOutput::Request(blob)) if self.answers => {
                    Input::Peer(PeerInput::Body(blob, u64::MAX))
                }
                Output::Commit(ticket, _) if self.refuses => {
                    self.refused += 1;
                    assert!(self.refused < 100, "it tries without end");
                    Input::CommitFailed(ticket)
                }
                Output::Commit(ticket, commit) => {
                    if let Some(entry) = commit.entry {
                        let origin = Incarnation::new(entry.origin.0).unwrap();
                        let end = LogEnd {
                            last: entry.end() - 1,
                            hash: Hash(*blake3::hash(&entry.bytes).as_bytes()),
                            low: 1,
                        };
                        self.end = Some((origin, end));
                    }
                    for mutation in commit.mutations {
                        match mutation {
                            Mutation::Put { key, value } => {
                                drop(self.rows.insert(key.to_vec(), value));
                            }
                            Mutation::Delete { key } => drop(self.rows.remove(&key[..])),
                            _ => {}
                        }
                    }
                    Input::Committed(ticket)
                }
                Output::Fatal(cause) => panic!("{cause}"),
                Output::Finished(_) => {
                    self.finished = true;
                    continue;
                }
                _ => continue,
            };
            queue.handle(now, answer);
        }
    }
}
