//! The directory's owner by itself: what it tells about UIDVALIDITY, what of other nodes it takes, and what waits for what.
//!
//! size: scenarios of one machine on one bench.

use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_crdt::{
    Batch, Context, Dot, Hash, Incarnation, PartitionId, Section, Stamp, VersionVector,
};
use whimbrel_directory::{Directory, Op};
use whimbrel_replication::wire::{Batches, Frame, Hello, Room};
use whimbrel_service::{
    admin::AdminCall,
    api::{AccountId, Asker, Authenticate, Call, Ended, Failure, Reply, Resolution},
    auth::{self, Authenticator},
    directory::{Config, DirectoryOwner, ProbeLimits},
    log::JOINING_KEY,
    machine::{AccountOrigin, AccountStatus, Input, Machine, Note, Now, Output, RequestId, Ticket},
    owner::keys::partition_of,
    peers::{Holders, PeerInput, PeerOutput},
    scram::{KEY_BYTES, SALT_BYTES, ScramKeys},
};
use whimbrel_storage::{Mutation, StoreError};

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
    standings: Vec<(AccountId, AccountStatus)>,
    warnings: Vec<String>,
    now: u64,
    /// Commits are not durable before [`Bench::let_go`].
    holds_commits: bool,
    held: Vec<Ticket>,
    /// The disk takes nothing; and so many commits it has not taken.
    refuses: bool,
    refused: u64,
    /// Owners answer at once that UIDVALIDITY has risen.
    raises: bool,
    /// So many reads fail.
    fails: u32,
    /// Who was answered.
    answered: Vec<RequestId>,
    /// Whose sessions end.
    ended: Vec<(AccountId, Ended)>,
}

impl Bench {
    fn over(rows: BTreeMap<Vec<u8>, Bytes>) -> Bench {
        let config = Config::alone(Incarnation::from_hash(9), 9);
        Bench::with(config, rows)
    }

    fn with(config: Config, rows: BTreeMap<Vec<u8>, Bytes>) -> Bench {
        let authenticator = Authenticator::new(auth::Limits::default(), [7; 32], "nobody's".into());
        let mut bench = Bench {
            owner: DirectoryOwner::new(config, authenticator),
            warnings: Vec::new(),
            now: 1,
            rows,
            told: Vec::new(),
            standings: Vec::new(),
            holds_commits: false,
            held: Vec::new(),
            refuses: false,
            refused: 0,
            raises: false,
            fails: 0,
            answered: Vec::new(),
            ended: Vec::new(),
        };
        bench.poll();
        bench
    }

    fn handle(&mut self, input: Input) {
        let now = Now {
            wall_micros: 2_000_000_000,
            mono_micros: self.now,
        };
        self.owner.handle(now, input);
        self.poll();
    }

    fn poll(&mut self) {
        while let Some(output) = self.owner.poll() {
            match output {
                Output::Load { ticket, .. } | Output::Peer(PeerOutput::LoadLogs { ticket, .. })
                    if self.fails > 0 =>
                {
                    self.fails -= 1;
                    let cause = StoreError::Read("it is opened again".into());
                    self.handle(Input::LoadFailed(ticket, cause));
                }
                Output::Load { ticket, .. } => {
                    let rows = self.rows.clone().into_iter().collect();
                    self.handle(Input::Loaded {
                        ticket,
                        rows,
                        done: true,
                    });
                }
                Output::Commit(ticket, _) if self.refuses => {
                    self.refused += 1;
                    assert!(self.refused < 100, "it tries without end");
                    self.handle(Input::CommitFailed(ticket));
                }
                Output::Commit(ticket, commit) => {
                    for mutation in commit.mutations {
                        match mutation {
                            Mutation::Put { key, value } => {
                                self.rows.insert(key.to_vec(), value);
                            }
                            Mutation::Delete { key } => drop(self.rows.remove(&key[..])),
                            other => panic!("{other:?}"),
                        }
                    }
                    if self.holds_commits {
                        self.held.push(ticket);
                    } else {
                        self.handle(Input::Committed(ticket));
                    }
                }
                Output::AdminReply(request, _) => self.answered.push(request),
                Output::EndSessions(account, why) => self.ended.push((account, why)),
                Output::AccountOrigin(account, account_status) => {
                    self.standings.push((account, account_status))
                }
                Output::Peer(PeerOutput::LoadLogs { ticket, .. }) => {
                    self.handle(Input::Peer(PeerInput::Logs(ticket, Vec::new())));
                }
                Output::Log(Note::Warning(text)) => self.warnings.push(text),
                Output::LeastUidValidity(account, least) => {
                    self.told.push((account, least.next));
                    if self.raises {
                        self.handle(Input::UidValidity(account, least.next));
                    }
                }
                Output::Fatal(cause) => panic!("{cause}"),
                _ => {}
            }
        }
    }

    /// There is a stream to a peer that has nothing yet.
    fn link(&mut self, peer: Incarnation) {
        let hello = Hello {
            partition: PartitionId::DIRECTORY,
            durable: VersionVector::new(),
            applied: VersionVector::new(),
            heads: Vec::new(),
            room: Room {
                bytes: 1 << 20,
                batches: 100,
            },
            yours: None,
            anew: None,
            syncing: None,
            lives: None,
        };
        self.peer(PeerInput::Linked(peer, 0));
        self.peer(PeerInput::Frame(peer, Frame::Hello(hello)));
    }

    /// The first batches of a peer, of one operation each, come on its stream.
    fn batches(&mut self, peer: Incarnation, sections: Vec<Vec<u8>>) {
        let batches = Batches {
            partition: PartitionId::DIRECTORY,
            round: 0,
            batches: batches(peer, sections),
        };
        self.peer(PeerInput::Frame(peer, Frame::Batches(batches)));
    }

    fn peer(&mut self, input: PeerInput) {
        self.handle(Input::Peer(input));
    }

    /// What SCRAM shows to who says that it is `login`.
    fn salt(&mut self, login: &str) -> [u8; SALT_BYTES] {
        let call = Call::ScramBegin {
            login: login.into(),
            peer: "192.0.2.1".parse().unwrap(),
        };
        let now = Now::default();
        self.owner.handle(now, Input::Call(RequestId(1), call));
        match self.owner.poll() {
            Some(Output::Reply(_, Reply::ScramChallenge { salt, .. })) => salt,
            other => panic!("{other:?}"),
        }
    }

    fn let_go(&mut self) {
        self.holds_commits = false;
        for ticket in std::mem::take(&mut self.held) {
            self.handle(Input::Committed(ticket));
        }
    }

    fn told(&mut self) -> Vec<(AccountId, u32)> {
        std::mem::take(&mut self.told)
    }

    fn validity(&mut self, account: [u8; 16]) -> u32 {
        self.birth(account).risen
    }

    fn birth(&mut self, account: [u8; 16]) -> AccountOrigin {
        self.owner
            .handle(Now::default(), Input::AskBirth(AccountId(account)));
        match self.owner.poll() {
            Some(Output::AccountOrigin(_, AccountStatus::Living(birth))) => birth,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_account_that_comes_forward_is_not_taken_for_the_one_before() {
    let mut bench = Bench::over(rows());
    // Made in the same second by nodes of one slot: the one that holds the address must not be taken for the other either. The slot of this node is 9.
    let first = bench.told();
    assert_eq!(first, [(AccountId(FIRST), 1033)]);
    assert_eq!(1033 % 64, 9);
    let birth = bench.birth(FIRST);
    bench.handle(Input::UidValidity(AccountId(FIRST), 5000));
    // A node that has not heard of it opens the account alike.
    assert_eq!(
        bench.birth(FIRST),
        AccountOrigin {
            risen: 5000,
            ..birth
        }
    );
    assert_eq!(bench.validity(SECOND), 1000, "set aside");
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
    assert!(last.validity([3; 16]) > 6000);
    // The owner's news of the one before may come after its removal.
    last.handle(Input::UidValidity(AccountId(SECOND), 2_000_000));
    let told = last.told();
    assert!(
        matches!(told[..], [(AccountId([3, ..]), least)] if least > 2_000_000),
        "{told:?}"
    );
}

/// An account has one salt, however its name is written: so has a name that nobody has, or its two spellings would tell.
#[test]
fn a_local_part_alone_has_the_salt_of_its_address() {
    let mut bench = Bench::over(BTreeMap::new());
    let mut number = 1;
    let mut add = |bench: &mut Bench, address: &str, scram: bool| {
        number += 1;
        let keys = ScramKeys {
            salt: [number; SALT_BYTES],
            iterations: 4096,
            stored_key: [0; KEY_BYTES],
            server_key: [0; KEY_BYTES],
        };
        let add = AdminCall::AddAccount {
            address: address.into(),
            verifier: "y".into(),
            scram: scram.then_some(keys),
            account: AccountId([number; 16]),
        };
        bench.handle(Input::Admin(RequestId(u64::from(number)), add));
        [number; SALT_BYTES]
    };
    let bobs = add(&mut bench, "bob@example.org", true);
    add(&mut bench, "carol@example.org", false);
    assert_eq!(bench.salt("bob"), bobs);
    assert_eq!(bench.salt("Bob@Example.org"), bobs);
    for nobodys in ["carol", "eve", "Eve", "a b", "\u{212B}ke"] {
        let salt = bench.salt(nobodys);
        assert_ne!(salt, bobs);
        let address = format!("{nobodys}@Example.org");
        assert_eq!(bench.salt(&address) == salt, nobodys != "a b", "{nobodys}");
    }
    assert_ne!(bench.salt("eve"), bench.salt("carol"));

    // With two domains it has that of one of the two, as if an account were there.
    add(&mut bench, "dave@example.net", false);
    let names = (0..32).map(|number| format!("eve{number}"));
    let of_net = names.filter(|name| {
        let [alone, net, org] = ["", "@example.net", "@example.org"]
            .map(|domain| bench.salt(&format!("{name}{domain}")));
        assert!(net != org && (alone == net || alone == org), "{name}");
        alone == net
    });
    assert!((4..28).contains(&of_net.count()));
    // It leads to neither of two accounts, and that there are two does not show.
    assert_eq!(bench.salt("bob"), bobs);
    let others = add(&mut bench, "bob@example.net", true);
    let alone = bench.salt("bob");
    assert!(alone == bobs || alone == others);
}

/// A removal that is not durable yet may still be lost: owners are told of the account when it cannot any more.
#[test]
fn owners_are_told_what_is_durable() {
    let mut bench = Bench::over(rows());
    bench.told();
    bench.holds_commits = true;
    for _ in 0..2 {
        let address = ADDRESS.into();
        bench.handle(Input::Admin(
            RequestId(1),
            AdminCall::RemoveAccount { address },
        ));
    }
    for account in [FIRST, SECOND, [3; 16]] {
        bench.handle(Input::AskBirth(AccountId(account)));
    }
    assert_eq!(bench.standings, []);
    // What comes later is not waited for: there may always be something.
    let add = AdminCall::AddAccount {
        address: ADDRESS.into(),
        verifier: "y".into(),
        scram: None,
        account: AccountId([3; 16]),
    };
    bench.handle(Input::Admin(RequestId(2), add));
    let last = bench.held.pop().unwrap();
    bench.let_go();
    assert_eq!(
        bench.standings,
        [
            (AccountId(FIRST), AccountStatus::Removed),
            (AccountId(SECOND), AccountStatus::Removed),
            (AccountId([3; 16]), AccountStatus::Unknown)
        ]
    );
    // Nor is what a failed commit took back told: it is read again.
    bench.rows = rows();
    bench.standings.clear();
    bench.handle(Input::AskBirth(AccountId([3; 16])));
    bench.handle(Input::CommitFailed(last));
    assert_eq!(
        bench.standings,
        [(AccountId([3; 16]), AccountStatus::Unknown)]
    );
}

/// A disk that hangs and has no room: what was refused is read again when the rest is known, and until then there is nothing to do.
#[test]
fn it_is_at_rest_while_a_refused_commit_waits_for_others() {
    let [me, peer] = [9, 2].map(Incarnation::from_hash);
    let config = Config {
        peers: [peer].into(),
        ..Config::alone(me, 9)
    };
    let mut bench = Bench::with(config, rows());
    bench.link(peer);
    bench.holds_commits = true;
    for request in 1..=2 {
        let address = ADDRESS.into();
        let remove = AdminCall::RemoveAccount { address };
        bench.handle(Input::Admin(RequestId(request), remove));
    }
    assert!(
        bench.owner.deadline().is_some(),
        "the peer is greeted again"
    );
    let refused = bench.held.remove(0);
    assert!(!bench.held.is_empty());
    bench.handle(Input::CommitFailed(refused));
    for _ in 0..10 {
        let Some(at) = bench.owner.deadline() else {
            break;
        };
        assert!(at > bench.now, "its time is over, and stays so");
        bench.now = at;
        bench.handle(Input::Time);
    }
    // Nothing of it was written.
    bench.rows = rows();
    for waits in std::mem::take(&mut bench.held) {
        bench.handle(Input::CommitFailed(waits));
    }
    assert!(bench.owner.reports()[0].open.is_some(), "it goes on");
}

/// A commit was refused, and what is read again cannot be for some seconds: whoever asks meanwhile is answered.
#[test]
fn what_cannot_be_read_again_is_asked_for_later() {
    let [me, peer] = [9, 2].map(Incarnation::from_hash);
    let config = Config {
        peers: [peer].into(),
        ..Config::alone(me, 9)
    };
    for fails in 1..=5 {
        let mut bench = Bench::with(config.clone(), rows());
        (bench.refuses, bench.fails) = (true, fails);
        let address = ADDRESS.into();
        let remove = AdminCall::RemoveAccount { address };
        bench.handle(Input::Admin(RequestId(1), remove));
        assert!(bench.owner.reports()[0].open.is_none());
        bench.refuses = false;
        bench.handle(Input::Admin(RequestId(2), AdminCall::ListAccounts));
        assert_eq!(bench.answered, [RequestId(1), RequestId(2)]);
        for _ in 0..fails {
            let Some(at) = bench.owner.deadline() else {
                break;
            };
            assert!(at > bench.now, "it waits");
            bench.now = at;
            bench.handle(Input::Time);
        }
        assert_eq!(bench.fails, 0);
        assert!(bench.owner.reports()[0].open.is_some(), "it goes on");
    }
}

/// Five seconds pass. What it tries of itself meanwhile, and is refused, it tries no more often than once a second.
#[track_caller]
fn tries_once_a_second(bench: &mut Bench) {
    let (end, before) = (bench.now + 5_000_000, bench.refused);
    while let Some(at) = bench.owner.deadline().filter(|at| *at < end) {
        bench.now = at.max(bench.now + 1);
        bench.handle(Input::Time);
    }
    bench.now = end;
    let refused = bench.refused - before;
    // A try is two commits at most.
    assert!((1..=12).contains(&refused), "{refused}");
}

/// What it tells owners after it has read all again leads to a commit, which is refused.
#[test]
fn a_uidvalidity_that_cannot_be_written_is_raised_once_a_second() {
    let mut bench = Bench::over(rows());
    assert_eq!(bench.told(), [(AccountId(FIRST), 1033)]);
    (bench.refuses, bench.raises) = (true, true);
    bench.handle(Input::UidValidity(AccountId(FIRST), 1033));
    tries_once_a_second(&mut bench);
    // It answers meanwhile.
    assert_eq!(bench.validity(FIRST), 1000);
    bench.refuses = false;
    bench.now += 1_000_000;
    bench.handle(Input::Time);
    assert_eq!(bench.validity(FIRST), 1033);
}

/// A state was taken over, and there is no room for what it changes.
#[test]
fn a_state_that_cannot_be_written_is_joined_once_a_second() {
    let joined = (7_u64, VersionVector::new(), VersionVector::new());
    let mut rows = rows();
    for (key, row) in rows.clone() {
        rows.remove(&key);
        rows.insert([b"h", &7_u64.to_be_bytes()[..], &key].concat(), row);
    }
    let joining = minicbor::to_vec(joined).unwrap().into();
    rows.insert(JOINING_KEY.to_vec(), joining);
    let mut bench = Bench::over(BTreeMap::new());
    (bench.rows, bench.refuses) = (rows, true);
    // Any commit, so that it is read.
    let add = AdminCall::AddAccount {
        address: "bob@example.org".into(),
        verifier: "y".into(),
        scram: None,
        account: AccountId([3; 16]),
    };
    bench.handle(Input::Admin(RequestId(1), add));
    tries_once_a_second(&mut bench);
    bench.refuses = false;
    bench.now += 1_000_000;
    bench.handle(Input::Time);
    assert!(!bench.rows.contains_key(JOINING_KEY));
    assert!(bench.birth(FIRST).created > 0);
}

/// The batches of another node, of one operation each.
fn batches(origin: Incarnation, sections: Vec<Vec<u8>>) -> Vec<Bytes> {
    let mut previous = Hash::default();
    let mut all = Vec::new();
    for (first, ops) in (1..).zip(sections) {
        let section = Section {
            subject: *b"whimbrel direct.",
            counter: 0,
            count: 1,
            ops,
        };
        let batch = Batch {
            partition: PartitionId::DIRECTORY,
            origin,
            first,
            count: 1,
            previous,
            deps: VersionVector::new(),
            stamp: Stamp { hlc: first, origin },
            sections: vec![section],
            blobs: Vec::new(),
        };
        let sealed = batch.seal();
        previous = sealed.hash;
        all.push(sealed.bytes.into());
    }
    all
}

/// What a later version made is not applied by half, and nothing that follows it; what came before is.
#[test]
fn what_is_not_understood_stops_what_comes_after_it() {
    let peer = Incarnation::from_hash(5);
    let mut config = Config::alone(Incarnation::from_hash(9), 9);
    config.peers = [peer].into();
    let mut bench = Bench::with(config, BTreeMap::new());
    let add = |key: u8| {
        whimbrel_directory::op::encode(&[Op::AddAccount {
            account: [key; 16],
            address: format!("a{key}@example.org"),
            created: 1000,
            uid_validity: 1000,
            credential: "x".into(),
        }])
    };
    // An operation of kind 99.
    let unknown = vec![0x82, 1, 0x81, 0x82, 0x18, 99, 0x80];
    bench.link(peer);
    bench.batches(peer, vec![add(1), unknown, add(2)]);
    for account in [[1; 16], [2; 16]] {
        bench.handle(Input::AskBirth(AccountId(account)));
    }
    let stands: Vec<bool> = bench
        .standings
        .iter()
        .map(|(_, account_status)| matches!(account_status, AccountStatus::Living(_)))
        .collect();
    assert_eq!(stands, [true, false]);
    assert_eq!(bench.warnings.len(), 1, "{:?}", bench.warnings);
    assert!(bench.warnings[0].contains("directory: batch 2 of"));
}

/// The removal is of another node, and brings an account forward that must not be taken for the one before. It is raised once: by the node that
/// removed, if it holds the account, else by the first that does.
#[test]
fn one_node_raises_what_another_one_brings_forward() {
    const ME: Incarnation = Incarnation::from_hash(9);
    const REMOVER: Incarnation = Incarnation::from_hash(5);
    const OTHER: Incarnation = Incarnation::from_hash(7);
    let partition = partition_of(AccountId(SECOND));
    let away = |nodes: &[Incarnation]| {
        let mut holders = Holders::default();
        for node in nodes {
            holders.leave(*node, partition).unwrap();
            holders.left(*node, partition, 0).unwrap();
        }
        holders
    };
    let mut leaving = away(&[REMOVER]);
    leaving.leave(OTHER, partition).unwrap();
    let removed = |first: Holders| {
        let mut config = Config::alone(ME, 9);
        config.peers = [REMOVER, OTHER].into();
        config.holders = first;
        let mut bench = Bench::with(config, rows());
        bench.handle(Input::UidValidity(AccountId(FIRST), 5000));
        bench.told();
        let seen = [(Incarnation::from_hash(1), 1)];
        let remove = Op::RemoveAccount {
            account: FIRST,
            seen: seen.map(|(node, number)| Dot::new(node, number)).into(),
        };
        bench.link(REMOVER);
        bench.batches(REMOVER, vec![whimbrel_directory::op::encode(&[remove])]);
        bench.handle(Input::AskBirth(AccountId(FIRST)));
        let removed = (AccountId(FIRST), AccountStatus::Removed);
        assert_eq!(bench.standings.pop(), Some(removed));
        bench
    };
    let mine = [(AccountId(SECOND), 5001)];
    for (holders, told) in [
        (away(&[]), &[][..]),
        (away(&[REMOVER]), &[]),
        (away(&[REMOVER, OTHER]), &mine),
        (leaving.clone(), &mine),
        (away(&[REMOVER, OTHER, ME]), &[]),
    ] {
        assert_eq!(removed(holders.clone()).told(), told, "{holders:?}");
    }
    // Who was to raise it is out of reach, and then goes: by being removed, or from the partition.
    let mut bench = removed(away(&[REMOVER]));
    let members =
        |nodes: &[Incarnation]| PeerInput::Members(nodes.iter().map(|n| (*n, 1)).collect());
    bench.peer(members(&[ME, REMOVER, OTHER]));
    assert_eq!(bench.told(), []);
    bench.peer(members(&[ME, REMOVER]));
    assert_eq!(bench.told(), mine);
    // It is told once, and again at a change that is made here, until the owner has answered.
    bench.peer(PeerInput::Holders(away(&[REMOVER])));
    assert_eq!(bench.told(), []);
    let add = |key: u8| AdminCall::AddAccount {
        address: format!("a{key}@example.org"),
        verifier: "y".into(),
        scram: None,
        account: AccountId([key; 16]),
    };
    bench.handle(Input::Admin(RequestId(1), add(3)));
    assert_eq!(bench.told(), mine);
    bench.handle(Input::UidValidity(AccountId(SECOND), 5001));
    bench.handle(Input::Admin(RequestId(2), add(4)));
    assert_eq!(bench.told(), []);
    let mut bench = removed(away(&[REMOVER]));
    bench.peer(PeerInput::Holders(leaving));
    assert_eq!(bench.told(), mine);
    // Or it does not do it for so long: it may be away.
    let mut bench = removed(away(&[]));
    let mut tries = Vec::new();
    while bench.now < 100_000_000 {
        let at = bench.owner.deadline().unwrap();
        bench.now = bench.now.max(at);
        bench.handle(Input::Time);
        if !bench.told().is_empty() {
            tries.push(bench.now / 1_000_000);
        }
    }
    assert_eq!(
        tries,
        [60],
        "first of the remover, then of the other one, then of this one"
    );
}

/// Sessions end with what they rest on, when that is durable, whoever changed it; and stay where the administrator wants it.
#[test]
fn sessions_end_with_the_password_and_with_the_account() {
    let peer = Incarnation::from_hash(5);
    let mut config = Config::alone(Incarnation::from_hash(9), 9);
    config.peers = [peer].into();
    let mut bench = Bench::with(config, rows());
    let set = |keeps_sessions: bool| {
        let address = ADDRESS.to_owned();
        let (verifier, scram) = ("new".to_owned(), None);
        let call = AdminCall::SetVerifier {
            address,
            verifier,
            scram,
            keeps_sessions,
        };
        Input::Admin(RequestId(1), call)
    };
    let changed = (AccountId(FIRST), Ended::PasswordChanged);
    bench.holds_commits = true;
    bench.handle(set(false));
    assert_eq!(bench.ended, [], "it may be lost still");
    bench.let_go();
    assert_eq!(std::mem::take(&mut bench.ended), [changed]);
    bench.handle(set(true));
    assert_eq!(bench.ended, []);

    let op = |account, keeps_sessions: Option<bool>| {
        whimbrel_directory::op::encode(&[Op::SetCredential {
            account,
            credential: "theirs".into(),
            keeps_sessions,
        }])
    };
    let gone = whimbrel_directory::op::encode(&[Op::RemoveAccount {
        account: SECOND,
        seen: vec![Dot::new(Incarnation::from_hash(2), 1)],
    }]);
    bench.link(peer);
    // The first is older than the password that was set here: nothing changes.
    let all = vec![
        op(FIRST, None),
        op(SECOND, Some(true)),
        op(SECOND, None),
        gone,
    ];
    bench.batches(peer, all);
    let second = AccountId(SECOND);
    let expected = [
        (second, Ended::PasswordChanged),
        (second, Ended::AccountRemoved),
    ];
    assert_eq!(bench.ended, expected);
}

/// After the parameters had been changed, names of nobody had the new ones and all accounts the old.
#[test]
fn a_name_of_nobody_costs_what_accounts_cost() {
    let mut bench = Bench::over(BTreeMap::new());
    let add = |bench: &mut Bench, number: u8, iterations: u32| {
        let keys = ScramKeys {
            salt: [number; SALT_BYTES],
            iterations,
            stored_key: [0; KEY_BYTES],
            server_key: [0; KEY_BYTES],
        };
        let add = AdminCall::AddAccount {
            address: format!("a{number}@example.org"),
            verifier: format!("made with {iterations}"),
            scram: Some(keys),
            account: AccountId([number.wrapping_mul(41); 16]),
        };
        bench.handle(Input::Admin(RequestId(u64::from(number)), add));
    };
    let mut asked = 0;
    let mut shown = |bench: &mut Bench, name: &str| {
        asked += 1;
        let call = |call| Input::Call(RequestId(1), call);
        let (login, peer) = (name.to_owned(), [192, 0, 2, asked].into());
        let begin = call(Call::ScramBegin { login, peer });
        bench.owner.handle(Now::default(), begin);
        let Some(Output::Reply(
            _,
            Reply::ScramChallenge {
                iterations, salt, ..
            },
        )) = bench.owner.poll()
        else {
            panic!("no challenge");
        };
        let ask = Authenticate {
            login: name.to_owned(),
            password: b"x".to_vec().into(),
            peer,
        };
        bench
            .owner
            .handle(Now::default(), call(Call::Authenticate(ask)));
        let Some(Output::Verify {
            ticket, verifier, ..
        }) = bench.owner.poll()
        else {
            panic!("it is not verified");
        };
        bench
            .owner
            .handle(Now::default(), Input::Verified(ticket, true));
        while bench.owner.poll().is_some() {}
        (iterations, salt, verifier)
    };
    let names: Vec<String> = (0..15)
        .map(|number| format!("eve{number}@example.org"))
        .collect();
    for number in 1..=3 {
        add(&mut bench, number, 5000);
    }
    let before: Vec<_> = names.iter().map(|name| shown(&mut bench, name)).collect();
    let of_account = shown(&mut bench, "a1@example.org");
    for (iterations, _, verifier) in &before {
        assert_eq!((*iterations, verifier), (of_account.0, &of_account.2));
    }
    // With accounts of other parameters beside them, some are like these: and show another salt with it, as an account does.
    for number in 4..=6 {
        add(&mut bench, number, 9000);
    }
    let after: Vec<_> = names.iter().map(|name| shown(&mut bench, name)).collect();
    let mut changed = 0;
    for (before, after) in before.iter().zip(&after) {
        changed += usize::from(after.0 == 9000);
        assert_eq!(before.0 == after.0, before.1 == after.1);
        assert_eq!(after.2, format!("made with {}", after.0));
    }
    assert!((1..names.len()).contains(&changed), "{changed}");
}

/// One address found out 69,000 addresses a second.
#[test]
fn unknown_recipients_are_counted_over_all_connections() {
    let limits = ProbeLimits {
        unknown_max: 2,
        window_seconds: 60,
        peers_max: 10,
    };
    let mut bench = Bench::over(rows());
    let config = Config::alone(Incarnation::from_hash(9), 9);
    let authenticator = Authenticator::new(auth::Limits::default(), [7; 32], "nobody's".into());
    bench.owner = DirectoryOwner::new(config, authenticator).with_probes(&limits);
    bench.poll();
    let add = AdminCall::AddAccount {
        address: "bob@example.org".into(),
        verifier: "y".into(),
        scram: None,
        account: AccountId([7; 16]),
    };
    bench.handle(Input::Admin(RequestId(1), add));
    let mut ask = |seconds: u64, local: &str, asker: Asker| {
        let call = Call::Resolve {
            local: local.into(),
            domain: Some("example.org".into()),
            asker,
        };
        let now = Now {
            wall_micros: 0,
            mono_micros: seconds * 1_000_000,
        };
        let input = Input::Call(RequestId(1), call);
        bench.owner.handle(now, input);
        match bench.owner.poll() {
            Some(Output::Reply(_, Reply::Resolved(found))) => Ok(found != Resolution::NoSuchUser),
            Some(Output::Reply(_, Reply::Failed(failure))) => Err(failure),
            other => panic!("{other:?}"),
        }
    };
    let from = |peer: &str| Asker::Stranger(peer.parse().unwrap());
    let later = Err(Failure::Throttled);
    let mallory = from("2001:db8::1");
    assert_eq!(ask(1, "x", mallory), Ok(false));
    assert_eq!(ask(2, "anne", mallory), Ok(true));
    assert_eq!(ask(3, "y", from("2001:db8::2")), Ok(false));
    // Whoever is asked for: the answer says nothing.
    assert_eq!(ask(4, "anne", mallory), later);
    assert_eq!(ask(4, "z", mallory), later);
    assert_eq!(ask(5, "anne", from("2001:db8:0:1::1")), Ok(true));
    for name in ["x", "y", "z", "anne"] {
        assert_eq!(ask(6, name, Asker::Front), Ok(name == "anne"));
    }
    assert_eq!(ask(61, "anne", mallory), Ok(true));
}
