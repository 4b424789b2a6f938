//! The encodings of operations and rows: old bytes keep their meaning, garbage is refused and never panics.

use proptest::prelude::*;
use whimbrel_crdt::{Context, Dot, Incarnation, Stamp, VersionVector};
use whimbrel_directory::{
    Address, Credential, DecoySecret, Directory, Op, OpError, OwnQuota, ScramKeys,
    op::{decode, encode},
    state::Row,
};

fn origin() -> Incarnation {
    Incarnation::new(0x1234_5678_9ABC_DEF0).unwrap()
}

/// One operation of each kind, and what makes a directory with one row of each kind of them.
fn every_op() -> Vec<Op> {
    let dot = |seq| Dot::new(origin(), seq);
    vec![
        Op::AddDomain {
            domain: "x.example".into(),
        },
        Op::AddDomain {
            domain: "bücher.example".into(),
        },
        Op::AddAccount {
            account: [7; 16],
            address: "anne@x.example".into(),
            created: 1_700_000_000,
            uid_validity: 1_700_000_001,
            credential: "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA".into(),
        },
        Op::AddAccount {
            account: [8; 16],
            address: "bob@x.example".into(),
            created: 5,
            uid_validity: 5,
            credential: "old".into(),
        },
        Op::SetCredential {
            account: [8; 16],
            credential: "new".into(),
            keeps_sessions: None,
        },
        Op::RemoveAccount {
            account: [7; 16],
            seen: vec![dot(3)],
        },
        Op::AddAlias {
            from: "@x.example".into(),
            to: "bob@x.example".into(),
        },
        Op::AddAlias {
            from: "info@x.example".into(),
            to: "bob@x.example".into(),
        },
        Op::RemoveAlias {
            from: "info@x.example".into(),
            to: "bob@x.example".into(),
            seen: vec![dot(8)],
        },
        Op::RemoveDomain {
            domain: "bücher.example".into(),
            seen: vec![dot(2), Dot::new(Incarnation::from_hash(0), 1)],
        },
        Op::RaiseUidValidity {
            account: [8; 16],
            uid_validity: 1_700_000_002,
        },
    ]
}

/// Key and value.
type Pair = (Vec<u8>, Vec<u8>);

/// The rows after each operation, in the order of their keys.
fn rows(ops: Vec<Op>) -> (Directory, Vec<Pair>) {
    let mut directory = Directory::default();
    let mut touched: Vec<Row> = Vec::new();
    for (seq, op) in (1..).zip(ops) {
        let stamp = Stamp {
            hlc: 1_700_000_000_000_000 + seq,
            origin: origin(),
        };
        let dot = Dot::new(origin(), seq);
        let deps = VersionVector::new();
        let deps = &deps;
        touched.extend(directory.apply(&Context { dot, stamp, deps }, &op));
    }
    touched.sort();
    touched.dedup();
    let mut rows: Vec<_> = touched
        .iter()
        .filter_map(|row| Some((row.key(), directory.row(row)?)))
        .collect();
    rows.sort();
    (directory, rows)
}

fn fixture(file: &str, now: &[u8]) -> Vec<u8> {
    let path = format!("{}/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("WHIMBREL_WRITE_FIXTURES").is_some() {
        std::fs::write(&path, now).unwrap();
    }
    std::fs::read(&path).expect("the fixture is there")
}

#[test]
fn operations_of_version_1_keep_their_meaning() {
    let encoded = encode(&every_op());
    let bytes = fixture("ops-v1.cbor", &encoded);
    assert_eq!(decode(&bytes), Ok(every_op()));
    assert_eq!(encoded, bytes);
}

/// What came with SCRAM, beside what was there before.
#[test]
fn credentials_with_keys_keep_their_meaning() {
    let credential = |number: u8| Credential {
        verifier: format!("of {number}"),
        scram: Some(ScramKeys {
            salt: [number; 16],
            iterations: 4096,
            stored_key: [number + 1; 32],
            server_key: [number + 2; 32],
        }),
    };
    let ops = vec![
        Op::SetDecoy {
            secret: DecoySecret([9; 32]),
        },
        Op::AddAccount {
            account: [7; 16],
            address: "anne@x.example".into(),
            created: 1,
            uid_validity: 1,
            credential: credential(1),
        },
        Op::SetCredential {
            account: [7; 16],
            credential: credential(5),
            keeps_sessions: None,
        },
    ];
    let encoded = encode(&ops);
    let bytes = fixture("ops-v1-scram.cbor", &encoded);
    assert_eq!(decode(&bytes), Ok(ops.clone()));
    assert_eq!(encoded, bytes);

    let mut directory = Directory::default();
    let mut packed = Vec::new();
    let mut loaded = Directory::default();
    for (seq, op) in (1..).zip(&ops) {
        let stamp = Stamp {
            hlc: seq,
            origin: origin(),
        };
        let dot = Dot::new(origin(), seq);
        let deps = &VersionVector::new();
        for row in directory.apply(&Context { dot, stamp, deps }, op) {
            let value = directory.row(&row).unwrap();
            loaded.load(&row.key(), &value).unwrap();
            packed.extend([row.key(), value].concat());
        }
    }
    assert_eq!(loaded, directory);
    assert_eq!(packed, fixture("rows-v1-scram.bin", &packed));
    assert_eq!(directory.decoy(), Some(DecoySecret([9; 32])));
}

#[test]
fn rows_of_version_1_keep_their_meaning() {
    // Of an account whose UIDVALIDITY had risen they do not say what it was made with.
    let mut ops = every_op();
    let Some(Op::RaiseUidValidity {
        uid_validity: risen,
        ..
    }) = ops.pop()
    else {
        panic!("it is the last");
    };
    let made = ops.iter_mut().find_map(|op| match op {
        Op::AddAccount {
            account: [8, ..],
            uid_validity,
            ..
        } => Some(uid_validity),
        _ => None,
    });
    *made.unwrap() = risen;
    are_kept("rows-v1.bin", ops);
}

/// What came with quotas of single accounts.
#[test]
fn rows_with_quotas_keep_their_meaning() {
    let mut ops = every_op();
    ops.push(Op::SetQuota {
        account: [8; 16],
        quota: OwnQuota {
            bytes: Some(5 << 30),
            messages: Some(u64::MAX),
            mailboxes: None,
        },
    });
    assert_eq!(decode(&encode(&ops)), Ok(ops.clone()));
    are_kept("rows-v1-quota.bin", ops);
}

/// What came with the UIDVALIDITY that an account was made with.
#[test]
fn rows_of_what_has_risen_keep_their_meaning() {
    are_kept("rows-v1-risen.bin", every_op());
}

fn are_kept(file: &str, ops: Vec<Op>) {
    let (directory, rows) = rows(ops);
    let mut packed = Vec::new();
    for part in rows.iter().flat_map(|(key, value)| [key, value]) {
        packed.extend_from_slice(&u16::try_from(part.len()).unwrap().to_be_bytes());
        packed.extend_from_slice(part);
    }
    let bytes = fixture(file, &packed);
    let mut loaded = Directory::default();
    let mut rest = &bytes[..];
    let mut part = || {
        let (len, after) = rest.split_first_chunk::<2>()?;
        let (part, after) = after.split_at(usize::from(u16::from_be_bytes(*len)));
        rest = after;
        Some(part)
    };
    while let Some(key) = part() {
        loaded.load(key, part().unwrap()).unwrap();
    }
    assert_eq!(loaded, directory);
    assert_eq!(packed, bytes);
    let letters: String = rows.iter().map(|(key, _)| char::from(key[0])).collect();
    assert_eq!(
        letters, "aadffl",
        "one row of each kind, and none of what is gone"
    );
}

#[test]
fn what_is_not_known_is_refused_and_what_is_more_is_skipped() {
    let check = |bytes: &[u8], expected: Result<Vec<Op>, &str>| {
        assert_eq!(
            decode(bytes).map_err(|error| error.to_string()),
            expected.map_err(Into::into)
        );
    };
    check(
        &[0x82, 0x02, 0x80],
        Err("directory operations have version 2, newest known is 1"),
    );
    check(
        &[0x81, 0x01],
        Err("directory operations cannot be read: no version"),
    );
    check(&[0x82, 0x01, 0x80], Ok(vec![]));
    // AddDomain "x" with a second field that this version does not know.
    let domain = || vec![Op::AddDomain { domain: "x".into() }];
    check(
        &[0x82, 0x01, 0x81, 0x82, 0x00, 0x81, 0x61, b'x'],
        Ok(domain()),
    );
    check(
        &[
            0x82, 0x01, 0x81, 0x82, 0x00, 0x82, 0x61, b'x', 0x82, 0x01, 0x02,
        ],
        Ok(domain()),
    );
    for bytes in [
        &[][..],
        &[0x80],
        // A kind that is not known, and a field that is missing.
        &[0x82, 0x01, 0x81, 0x82, 0x07, 0x81, 0x61, b'x'],
        &[0x82, 0x01, 0x81, 0x82, 0x00, 0x80],
        // An account of 15 bytes.
        &[
            [0x82, 0x01, 0x81, 0x82, 0x03, 0x82, 0x4f].as_slice(),
            &[1; 15],
            &[0x80],
        ]
        .concat(),
        // A list that says it has 2^60 operations.
        &[0x82, 0x01, 0x9b, 0x10, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert!(
            matches!(decode(bytes), Err(OpError::Damaged(_))),
            "{bytes:02x?}"
        );
    }
}

#[test]
fn damaged_rows_are_refused() {
    let (_, rows) = rows(every_op());
    for (key, value) in &rows {
        for len in 0..value.len() {
            let error = Directory::default().load(key, &value[..len]).unwrap_err();
            assert!(error.to_string().starts_with("directory row ["), "{error}");
        }
    }
    for key in [
        &b""[..],
        b"x",
        b"d\xff",
        b"a",
        b"a123",
        b"lno nul",
        b"l\xff\0x",
        b"f\xff",
    ] {
        assert!(
            Directory::default().load(key, &[0x80]).is_err(),
            "{key:02x?}"
        );
    }
}

fn dots() -> impl Strategy<Value = Vec<Dot>> {
    let dot = (any::<u64>(), any::<u64>())
        .prop_map(|(origin, seq)| Dot::new(Incarnation::from_hash(origin), seq));
    proptest::collection::vec(dot, 0..4)
}

fn credential() -> impl Strategy<Value = Credential> {
    let keys = any::<([u8; 16], u32, [u8; 32], [u8; 32])>();
    let keys = keys.prop_map(|(salt, iterations, stored_key, server_key)| ScramKeys {
        salt,
        iterations,
        stored_key,
        server_key,
    });
    (any::<String>(), proptest::option::of(keys))
        .prop_map(|(verifier, scram)| Credential { verifier, scram })
}

fn any_op() -> impl Strategy<Value = Op> {
    let key = any::<[u8; 16]>;
    let text = any::<String>;
    prop_oneof![
        text().prop_map(|domain| Op::AddDomain { domain }),
        any::<[u8; 32]>().prop_map(|secret| Op::SetDecoy {
            secret: DecoySecret(secret)
        }),
        (text(), dots()).prop_map(|(domain, seen)| Op::RemoveDomain { domain, seen }),
        (key(), text(), any::<u64>(), any::<u32>(), credential()).prop_map(
            |(account, address, created, uid_validity, credential)| Op::AddAccount {
                account,
                address,
                created,
                uid_validity,
                credential
            }
        ),
        (key(), dots()).prop_map(|(account, seen)| Op::RemoveAccount { account, seen }),
        (key(), credential(), any::<bool>()).prop_map(|(account, credential, keeps)| {
            Op::SetCredential {
                account,
                credential,
                keeps_sessions: keeps.then_some(true),
            }
        }),
        (text(), text()).prop_map(|(from, to)| Op::AddAlias { from, to }),
        (text(), text(), dots()).prop_map(|(from, to, seen)| Op::RemoveAlias { from, to, seen }),
        (key(), any::<[Option<u64>; 3]>()).prop_map(|(account, [bytes, messages, mailboxes])| {
            Op::SetQuota {
                account,
                quota: OwnQuota {
                    bytes,
                    messages,
                    mailboxes,
                },
            }
        }),
        (key(), any::<u32>()).prop_map(|(account, uid_validity)| Op::RaiseUidValidity {
            account,
            uid_validity
        }),
    ]
}

/// Looks everywhere, so that a state that should not be is met.
fn look(directory: &Directory) {
    for (_, entry, _) in directory.accounts() {
        if let Ok(address) = Address::parse(&entry.address) {
            let _ = directory.holder(&address);
        }
    }
    let _ = directory.aliases().count() + directory.domains().count();
    for local in ["anne", "info+x"] {
        let _ = directory.resolve(local, "x.example");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn decode_is_the_inverse_of_encode(ops in proptest::collection::vec(any_op(), 0..6)) {
        prop_assert_eq!(decode(&encode(&ops)), Ok(ops));
    }

    #[test]
    fn garbage_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = decode(&[&[0x82, 0x01], &bytes[..]].concat());
    }

    /// Operations and rows with some bytes changed: an error, or something else that can be worked with.
    #[test]
    fn damage_does_no_harm(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4)) {
        let damage = |bytes: &mut Vec<u8>| {
            for (at, byte) in &changes {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
        };
        let mut bytes = encode(&every_op());
        damage(&mut bytes);
        let mut directory = Directory::default();
        if let Ok(ops) = decode(&bytes) {
            for (seq, op) in (1..).zip(ops) {
                let dot = Dot::new(origin(), seq);
                let stamp = Stamp { hlc: seq, origin: origin() };
                directory.apply(&Context { dot, stamp, deps: &VersionVector::new() }, &op);
            }
        }
        look(&directory);
        let mut directory = Directory::default();
        for (mut key, mut value) in rows(every_op()).1 {
            damage(&mut value);
            let _ = directory.load(&key, &value);
            damage(&mut key);
            let _ = directory.load(&key, &value);
        }
        look(&directory);
    }

    #[test]
    fn addresses_are_read_back_as_written(text in any::<String>(), local in "[a-zA-Z0-9.+İßΣ'-]{1,12}") {
        for text in [text, format!("{local}@Example.ORG")] {
            if let Ok(address) = Address::parse_alias(&text) {
                let written = address.to_string();
                prop_assert_eq!(Address::parse_alias(&written), Ok(address));
                prop_assert!(!written.contains('\0'), "it parts the names in a row's key");
            }
        }
    }
}
