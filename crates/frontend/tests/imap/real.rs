//! The real owner of a partition on a store of one ordered map that syncs at once.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_service::{
    api::{AccountId, Call, Event, MessageId, Reply, SessionId},
    machine::{AccountOrigin, AccountStatus, Input, Machine, Now, Output, RequestId},
    owner::{Config, Incarnation, PartitionOwner, keys},
};
use whimbrel_storage::Mutation;

/// The owner and its store.
pub(crate) struct Real {
    owner: PartitionOwner,
    records: BTreeMap<Vec<u8>, Bytes>,
    requests: u64,
    now: Now,
}

impl Real {
    pub(crate) fn new() -> Real {
        let now = Now {
            wall_micros: 1_700_000_000_000_000,
            mono_micros: 1,
        };
        Real {
            owner: PartitionOwner::new(Config::default()),
            records: BTreeMap::new(),
            requests: 0,
            now,
        }
    }

    /// One call moves or removes so many messages, from now on; whoever watches is forgotten.
    pub(crate) fn few(&mut self, messages_per_call_max: usize) {
        self.owner = PartitionOwner::new(Config {
            messages_per_call_max,
            ..Config::default()
        });
    }

    /// What is stored now: a copy of the disk.
    pub(crate) fn copy(&self) -> BTreeMap<Vec<u8>, Bytes> {
        self.records.clone()
    }

    /// An older copy of the disk is put back, and another incarnation goes on from there with a lead that is too short.
    pub(crate) fn put_back(&mut self, records: BTreeMap<Vec<u8>, Bytes>) {
        self.records = records;
        self.owner = PartitionOwner::new(Config {
            origin: Incarnation::from_hash(2),
            slot: 5,
            lead: 0,
            ..Config::default()
        });
    }

    pub(crate) fn contents(&self, account: AccountId, origins: &[MessageId]) -> Vec<Option<Bytes>> {
        let row = |origin: &MessageId| {
            let key = keys::content_key(account, *origin);
            self.records
                .get(&key[..])
                .map(|row| keys::content_of_row(row).unwrap())
        };
        origins.iter().map(row).collect()
    }

    /// Carries out a call, and all that follows from it.
    pub(crate) fn call(&mut self, call: Call, events: &mut Vec<(SessionId, Event)>) -> Reply {
        self.requests += 1;
        self.now.wall_micros += 1000;
        self.now.mono_micros += 1000;
        let request = RequestId(self.requests);
        self.owner.handle(self.now, Input::Call(request, call));
        let mut answer = None;
        while let Some(output) = self.owner.poll() {
            match output {
                Output::Reply(to, reply) => {
                    assert_eq!(to, request);
                    answer = Some(reply);
                }
                Output::Commit(ticket, commit) => {
                    for mutation in commit.mutations {
                        match mutation {
                            Mutation::Put { key, value } => {
                                self.records.insert(key.to_vec(), value);
                            }
                            Mutation::Delete { key } => {
                                self.records.remove(&key[..]);
                            }
                            _ => {}
                        }
                    }
                    self.owner.handle(self.now, Input::Committed(ticket));
                }
                Output::Load {
                    ticket, from, to, ..
                } => {
                    let rows = self
                        .records
                        .range(from..to)
                        .map(|(k, v)| (k.clone(), v.clone()))
                        .collect();
                    let done = true;
                    self.owner
                        .handle(self.now, Input::Loaded { ticket, rows, done });
                }
                Output::Build(ticket, building) => {
                    self.owner
                        .handle(self.now, Input::Built(ticket, building.run()));
                }
                Output::AskBirth(account) => {
                    let birth = AccountOrigin {
                        created: 7,
                        uid_validity: 7,
                        risen: 7,
                    };
                    self.owner.handle(
                        self.now,
                        Input::AccountOrigin(account, AccountStatus::Living(birth)),
                    );
                }
                Output::Notify(session, event) => events.push((session, event)),
                Output::Fatal(cause) => panic!("{cause}"),
                _ => {}
            }
        }
        answer.expect("every call is answered")
    }
}
