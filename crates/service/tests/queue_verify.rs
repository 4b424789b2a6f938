//! What `verify` finds in the rows and logs of a member's queue.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_crdt::{Batch, Incarnation, PartitionId};
use whimbrel_service::{
    api::{AccountId, BlobName, Call, Date, Delivery, Entry, EntryId, MailboxName},
    machine::{Input, Machine, Now, Output, RequestId, Ticket},
    peers::{PeerInput, PeerOutput},
    queue::{Config, Limits, QueueOwner},
    verify::{self, Queue},
};
use whimbrel_storage::{LogEntry, LogPosition, Mutation, Origin};

const ORIGIN: u64 = 1;

fn entry(number: u8) -> Entry {
    Entry {
        id: EntryId([number; 16]),
        sender: "carl@elsewhere.example".into(),
        deliveries: vec![Delivery {
            account: AccountId([1; 16]),
            target: MailboxName::new("INBOX").unwrap(),
            content: Bytes::from(vec![number; 100]),
            size: 1000,
            open_end: false,
            sent: false,
        }],
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

fn key(number: u8) -> Vec<u8> {
    [&b"e"[..], &[number; 16]].concat()
}

/// A member whose peer is away, and what it stores. Commits are durable at once.
struct Member {
    queue: QueueOwner,
    inputs: VecDeque<Input>,
    rows: BTreeMap<Vec<u8>, Bytes>,
    entries: Vec<LogEntry>,
    deliveries: Vec<Ticket>,
}

impl Member {
    fn new() -> Member {
        let config = Config {
            peers: BTreeSet::from([Incarnation::new(2).unwrap()]),
            in_cluster: true,
            other_nodes: 0,
            ..Config::alone(Incarnation::new(ORIGIN).unwrap(), Limits::default())
        };
        let mut member = Member {
            queue: QueueOwner::new(config),
            inputs: VecDeque::new(),
            rows: BTreeMap::new(),
            entries: Vec::new(),
            deliveries: Vec::new(),
        };
        member.input(Input::Time);
        member
    }

    fn input(&mut self, input: Input) {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            let now = Now {
                wall_micros: 1_700_000_000_000_000,
                mono_micros: 1,
            };
            self.queue.handle(now, input);
            while let Some(output) = self.queue.poll() {
                self.output(output);
            }
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::Load { ticket, .. } => self.inputs.push_back(Input::Loaded {
                ticket,
                rows: Vec::new(),
                done: true,
            }),
            Output::Peer(PeerOutput::LoadLogs { ticket, .. }) => {
                let logs = PeerInput::Logs(ticket, Vec::new());
                self.inputs.push_back(Input::Peer(logs));
            }
            Output::Commit(ticket, commit) => {
                for mutation in commit.mutations {
                    match mutation {
                        Mutation::Put { key, value } => {
                            self.rows.insert(key.to_vec(), value);
                        }
                        Mutation::Delete { key } => drop(self.rows.remove(&key[..])),
                        _ => {}
                    }
                }
                self.entries.extend(commit.entry);
                self.inputs.push_back(Input::Committed(ticket));
            }
            Output::Deliver { ticket, .. } => self.deliveries.push(ticket),
            Output::Fatal(cause) => panic!("{cause}"),
            _ => {}
        }
    }

    fn accept(&mut self, number: u8) {
        let call = Call::Accept(entry(number));
        self.input(Input::Call(RequestId(number.into()), call));
    }

    /// Whether all can be read, and what does not fit, with the keys. `low`: what of the log is here.
    fn found(&self, low: u64) -> (bool, Vec<(Vec<u8>, String)>) {
        let last = self.entries.last().unwrap();
        let position = LogPosition {
            low,
            next: last.end(),
            hash: last.hash(),
        };
        let logs = vec![(Origin(ORIGIN), position)];
        let rows: Vec<_> = self.rows.clone().into_iter().collect();
        let (mut queue, needed) = Queue::new(&rows, logs);
        assert_eq!(queue.len(), needed.len());
        let here = self.entries.iter().filter(|entry| entry.first >= low);
        let read: Vec<_> = here
            .map(|entry| verify::batch(PartitionId::QUEUE, entry))
            .collect();
        let all = read.iter().all(Result::is_ok);
        read.into_iter()
            .flatten()
            .for_each(|batch| queue.take(&batch));
        let faults = queue.end(all).into_iter();
        let faults = faults.map(|fault| {
            assert!(fault.is_damage);
            (fault.key, fault.what)
        });
        (all, faults.collect())
    }

    #[track_caller]
    fn expect(&self, key: Vec<u8>, what: &str) {
        assert_eq!(self.found(1), (true, vec![(key, what.to_owned())]));
    }
}

/// Three entries were taken, the first one is delivered and finished.
fn filled() -> Member {
    let mut member = Member::new();
    (1..=3).for_each(|number| member.accept(number));
    let first = member.deliveries.remove(0);
    member.input(Input::Delivered(first));
    assert_eq!((member.entries.len(), member.rows.len()), (4, 3));
    member
}

#[test]
fn a_members_queue_is_without_fault() {
    let member = filled();
    assert_eq!(member.found(1), (true, vec![]));
    // Of a log that was cut, too.
    assert_eq!(member.found(3), (true, vec![]));
}

#[test]
fn a_batch_that_cannot_be_read_is_found() {
    let mut member = filled();
    let mut batch = Batch::decode(&member.entries[1].bytes).unwrap();
    let whole = batch.sections[0].clone();
    let version = whole.ops.iter().position(|byte| *byte == 1).unwrap();
    batch.sections[0].ops[version] = 9;
    let newer = batch.clone();
    batch.sections[0].ops = whole.ops[..whole.ops.len() - 1].to_vec();
    let torn = batch.clone();
    batch.sections[0] = whole;
    batch.sections[0].subject = [1; 16];
    for (batch, what) in [(newer, "version 9"), (torn, ""), (batch, "not the queue's")] {
        member.entries[1].bytes = batch.seal().bytes.into();
        let read = verify::batch(PartitionId::QUEUE, &member.entries[1]);
        assert!(read.clone().unwrap_err().contains(what), "{read:?}");
        // Nothing is held against rows of which it may have told.
        assert_eq!(member.found(1), (false, vec![]));
    }
}

#[test]
fn rows_that_the_log_does_not_tell_of_are_found() {
    let mut member = filled();
    let rows = member.rows.clone();
    let second = rows[&key(2)].clone();

    member.rows.remove(&key(2));
    member.expect(key(2), "by the log there is such a row");
    // What finished it may have been cut.
    assert_eq!(member.found(2), (true, vec![]));

    member.rows = rows.clone();
    member.rows.insert(key(2), rows[&key(3)].clone());
    member.expect(key(2), "the row is not what the log says");

    member.rows = rows.clone();
    member.rows.insert(key(9), second.clone());
    member.expect(key(9), "by the log there is no such row");

    member.rows = rows.clone();
    member.rows.insert(key(2), second.slice(..second.len() - 1));
    let (all, faults) = member.found(1);
    let unreadable = (key(2), "the entry cannot be read".to_owned());
    assert!(all && faults.contains(&unreadable), "{faults:?}");
}

#[test]
fn an_entry_that_is_finished_has_no_row() {
    let mut member = Member::new();
    member.accept(1);
    let rows = member.rows.clone();
    let delivery = member.deliveries.remove(0);
    member.input(Input::Delivered(delivery));
    member.rows.insert(key(1), rows[&key(1)].clone());
    member.expect(key(1), "by the log it is finished");
}
