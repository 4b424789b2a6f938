//! The directory's owner by itself: what it tells about UIDVALIDITY.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{Context, Dot, Incarnation, Stamp, VersionVector};
use whimbrel_directory::{Directory, Op};
use whimbrel_service::{
    admin::AdminCall,
    api::AccountId,
    auth::{self, Authenticator},
    directory::DirectoryOwner,
    machine::{Input, Machine, Now, Output, RequestId},
};
use whimbrel_storage::Mutation;

const ADDRESS: &str = "anne@example.org";
const FIRST: [u8; 16] = [1; 16];
const SECOND: [u8; 16] = [2; 16];

/// What is in the store when two regions have made the address at once, and have met.
fn rows() -> BTreeMap<Vec<u8>, Bytes> {
    let mut directory = Directory::default();
    let mut rows = BTreeMap::new();
    for (number, (account, uid_validity)) in (1..).zip([(FIRST, 1000), (SECOND, 1000)]) {
        let origin = Incarnation::from_hash(number);
        let context = Context {
            dot: Dot::new(origin, 1),
            stamp: Stamp {
                hlc: number,
                origin,
            },
            deps: &VersionVector::new(),
        };
        let op = Op::AddAccount {
            account,
            address: ADDRESS.into(),
            created: 1000,
            uid_validity,
            credential: "x".to_owned().into(),
        };
        for row in directory.apply(&context, &op) {
            rows.insert(row.key(), directory.row(&row).unwrap().into());
        }
    }
    rows
}

struct Bench {
    owner: DirectoryOwner,
    rows: BTreeMap<Vec<u8>, Bytes>,
    told: Vec<(AccountId, u32)>,
}

impl Bench {
    fn over(rows: BTreeMap<Vec<u8>, Bytes>) -> Bench {
        let authenticator = Authenticator::new(auth::Limits::default(), [7; 32], "nobody's".into());
        let mut bench = Bench {
            owner: DirectoryOwner::new(Incarnation::from_hash(9), authenticator),
            rows,
            told: Vec::new(),
        };
        bench.poll();
        bench
    }

    fn handle(&mut self, input: Input) {
        let now = Now {
            wall_micros: 2_000_000_000,
            mono_micros: 1,
        };
        self.owner.handle(now, input);
        self.poll();
    }

    fn poll(&mut self) {
        while let Some(output) = self.owner.poll() {
            match output {
                Output::Load { ticket, .. } => {
                    let rows = self.rows.clone().into_iter().collect();
                    self.handle(Input::Loaded {
                        ticket,
                        rows,
                        done: true,
                    });
                }
                Output::Commit(ticket, commit) => {
                    for mutation in commit.mutations {
                        match mutation {
                            Mutation::Put { key, value } => {
                                self.rows.insert(key.to_vec(), value);
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    self.handle(Input::Committed(ticket));
                }
                Output::LeastUidValidity(account, least) => self.told.push((account, least)),
                Output::Fatal(cause) => panic!("{cause}"),
                _ => {}
            }
        }
    }

    fn told(&mut self) -> Vec<(AccountId, u32)> {
        std::mem::take(&mut self.told)
    }

    fn validity(&mut self, account: [u8; 16]) -> u32 {
        self.owner
            .handle(Now::default(), Input::AskBirth(AccountId(account)));
        match self.owner.poll() {
            Some(Output::Birth(_, Some(birth))) => birth.uid_validity,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_account_that_comes_forward_is_not_taken_for_the_one_before() {
    let mut bench = Bench::over(rows());
    // Made in the same second: the one that holds the address must not be taken for the other either.
    assert_eq!(bench.told(), [(AccountId(FIRST), 1001)]);
    assert_eq!(bench.validity(FIRST), 1001);
    bench.handle(Input::UidValidity(AccountId(FIRST), 5000));
    assert_eq!(bench.validity(SECOND), 5001, "set aside");
    assert_eq!(bench.told(), []);
    let remove = AdminCall::RemoveAccount {
        address: ADDRESS.into(),
    };
    bench.handle(Input::Admin(RequestId(1), remove));
    assert_eq!(bench.told(), [(AccountId(SECOND), 5001)]);
    // Until its owner has answered, it is told again.
    let mut again = Bench::over(bench.rows.clone());
    assert_eq!(again.told(), [(AccountId(SECOND), 5001)]);
    again.handle(Input::UidValidity(AccountId(SECOND), 6000));
    let mut last = Bench::over(again.rows.clone());
    assert_eq!(last.told(), []);
    // And whoever comes after is above that.
    let remove = AdminCall::RemoveAccount {
        address: ADDRESS.into(),
    };
    last.handle(Input::Admin(RequestId(2), remove));
    let add = AdminCall::AddAccount {
        address: ADDRESS.into(),
        verifier: "y".into(),
        scram: None,
        account: AccountId([3; 16]),
    };
    last.handle(Input::Admin(RequestId(3), add));
    assert_eq!(last.validity([3; 16]), 6001);
}
