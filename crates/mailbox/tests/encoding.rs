//! The encodings of operations and rows: old bytes keep their meaning, garbage is refused. And what a message costs.

use proptest::prelude::*;
use whimbrel_crdt::{Dot, Incarnation, Stamp, VersionVector};
use whimbrel_mailbox::*;

fn origin() -> Incarnation {
    Incarnation::new(0x1234_5678_9ABC_DEF0).expect("not zero")
}

fn name(text: &str) -> MailboxName {
    MailboxName::new(text).expect("valid")
}

fn flags() -> Flags {
    let keyword = Keyword::new("$Forwarded").expect("valid");
    Flags::from_iter([Flag::Seen, Flag::Deleted, Flag::Keyword(keyword)])
}

fn message() -> Message {
    Message {
        blob: BlobName {
            hash: [1; 32],
            upload: [2; 16],
        },
        size: 4_096,
        open_end: false,
        date: Date {
            seconds: 1_700_000_000,
            zone_minutes: -330,
        },
    }
}

/// One operation of each kind.
fn every_op() -> Vec<Op> {
    let dot = Dot::new(origin(), 17);
    let stamp = Stamp {
        hlc: 1_700_000_000_123_456,
        origin: origin(),
    };
    let (mailbox, id) = (MailboxId([3; 16]), MessageId([4; 16]));
    let entry = EntryId([5; 16]);
    let removal = Removal {
        message: id,
        dots: vec![dot],
    };
    vec![
        Op::Open {
            created: 1_700_000_000,
            uidvalidity_floor: 5,
        },
        Op::CreateMailbox(CreateMailbox {
            id: NewId::Derived(MailboxId::default_folder("Sent")),
            name: name("Sent"),
            special_use: Some(SpecialUse::Sent),
        }),
        Op::CreateMailbox(CreateMailbox {
            id: NewId::Fresh,
            name: name("a/\u{fc}"),
            special_use: None,
        }),
        Op::DeleteMailbox {
            mailboxes: vec![BoxRemoval {
                mailbox,
                dots: vec![dot, Dot::new(origin(), 19)],
            }],
            messages: vec![removal.clone()],
        },
        Op::RenameMailbox {
            mailboxes: vec![mailbox],
            to: name("b"),
        },
        Op::Subscribe { name: name("x") },
        Op::Unsubscribe {
            name: name("x"),
            dots: vec![dot],
        },
        Op::Append(Append {
            mailbox,
            uid: 6_400,
            flags: flags(),
            message: message(),
            content: vec![9, 8],
            epoch: 0,
        }),
        Op::Deliver(Deliver {
            id,
            entry: entry.tag(),
            placement: entry.placement(mailbox),
            mailbox,
            uid: 6_464,
            message: message(),
            content: vec![],
            epoch: 1_700_000_001,
        }),
        Op::Copy {
            mailbox,
            entries: vec![CopyEntry {
                source: id,
                uid: 6_528,
                flags: flags(),
            }],
            epoch: 0,
        },
        Op::Move {
            mailbox,
            entries: vec![MoveEntry {
                message: id,
                uid: 6_592,
                undelete: true,
            }],
            epoch: 0,
        },
        Op::Store {
            messages: vec![id],
            set: flags(),
            clear: Flags::none(),
            rescue: false,
        },
        Op::Expunge {
            messages: vec![removal],
        },
        Op::Claim {
            claims: vec![Claim {
                message: id,
                placement: stamp,
                uid: 6_656,
            }],
            epoch: 0,
        },
        Op::Bump {
            counter: 200,
            epoch: 0,
        },
        Op::Epoch {
            uidvalidity: 1_700_000_001,
        },
    ]
}

fn fixture(file: &str) -> String {
    format!("{}/fixtures/{file}", env!("CARGO_MANIFEST_DIR"))
}

fn writing() -> bool {
    std::env::var_os("WHIMBREL_WRITE_FIXTURES").is_some()
}

#[test]
fn operations_of_version_1_keep_their_meaning() {
    let encoded = Op::encode_all(&every_op());
    if writing() {
        std::fs::write(fixture("ops-v1.cbor"), &encoded).expect("the fixture is written");
    }
    let bytes = std::fs::read(fixture("ops-v1.cbor")).expect("the fixture is there");
    assert_eq!(Op::decode_all(&bytes), Ok(every_op()));
    assert_eq!(encoded, bytes);
}

#[test]
fn unknown_versions_and_kinds_are_named() {
    assert_eq!(Op::decode_all(&[0x81, 0x02]), Err(DecodeError::Version(2)));
    assert_eq!(
        Op::decode_all(&[0x82, 0x01, 0x82, 0x18, 0x63, 0x80]),
        Err(DecodeError::Kind(99))
    );
    assert_eq!(
        Op::decode_all(&[0x82, 0x01, 0x82, 0x00, 0x80]),
        Err(DecodeError::Kind(0))
    );
    assert!(matches!(
        Op::decode_all(&[0x81, 0x01, 0x00]),
        Err(DecodeError::Malformed(_))
    ));
}

#[test]
fn unknown_fields_are_skipped() {
    // Bump with a third field.
    let bytes = [0x82, 0x01, 0x82, 0x0E, 0x83, 0x05, 0x00, 0x82, 0x01, 0x02];
    assert_eq!(
        Op::decode_all(&bytes),
        Ok(vec![Op::Bump {
            counter: 5,
            epoch: 0
        }])
    );
}

/// An account with one of everything that rows hold.
fn account() -> Replica {
    let mut replica = Replica::new(AccountId([7; 16]), 5);
    let mut applied = VersionVector::new();
    let mut seq = 0;
    let mut apply = |replica: &mut Replica, ops: Vec<Op>| {
        let deps = applied.clone();
        let first = seq + 1;
        seq += ops.len() as u64;
        applied.advance(origin(), seq);
        let peers = Peers::none();
        let hlc = 1_700_000_100_000_000 + seq * 10;
        let step = Step {
            origin: origin(),
            first,
            hlc,
            deps: &deps,
            applied: &applied,
            now_micros: hlc,
            peers: &peers,
        };
        replica.apply(&step, ops).expect("causal");
        At {
            now_micros: hlc + 1,
            next: Dot::new(origin(), seq + 1),
        }
    };
    let plan = replica.plan_open(1_700_000_000, 3, &[(name("Sent"), Some(SpecialUse::Sent))]);
    let at = apply(&mut replica, plan.ops);
    let new = |flags: Flags| NewMessage {
        flags,
        blob: message().blob,
        size: 10,
        open_end: false,
        date: message().date,
        content: b"summary".to_vec(),
    };
    let messages = vec![new(flags()), new(Flags::none()), new(Flags::none())];
    let plan = replica
        .plan_append(&at, &name("INBOX"), messages)
        .expect("planned");
    let uids = plan.outcome.clone();
    let at = apply(&mut replica, plan.ops);
    let delivery = replica.plan_deliver(
        &at,
        EntryId([8; 16]),
        &name("INBOX"),
        &name("INBOX"),
        new(Flags::none()),
    );
    let at = apply(&mut replica, delivery.expect("planned").ops);
    let copy = replica
        .plan_copy(&at, &name("INBOX"), &uids[..1], &name("Sent"))
        .expect("planned");
    apply(&mut replica, copy.ops);
    replica.announce(&name("INBOX"));
    let store = replica.plan_store(
        &name("INBOX"),
        &uids[..1],
        StoreMode::Remove,
        &flags(),
        &|_| None,
    );
    apply(&mut replica, store.expect("planned").ops);
    let expunge = replica
        .plan_expunge(&name("INBOX"), &uids[1..2])
        .expect("planned");
    let at = apply(&mut replica, expunge.ops);
    let claim = Takeover {
        named: vec![(name("INBOX"), uids[2] + 6_400)],
        announced: vec![],
    };
    let plan = replica.plan_takeover(&at, &claim);
    apply(&mut replica, plan.ops);
    replica.raise_marks(&at, &claim);
    let subscribe = replica.plan_subscribe(&name("lists/x")).expect("planned");
    apply(&mut replica, subscribe.ops);
    replica
}

fn encode_rows(rows: &[(RowKey, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, row) in rows {
        for part in [&key.to_bytes(), row] {
            bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
            bytes.extend_from_slice(part);
        }
    }
    bytes
}

fn decode_rows(mut bytes: &[u8]) -> Vec<(RowKey, Vec<u8>)> {
    let mut parts = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (part, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        parts.push(part.to_vec());
        bytes = rest;
    }
    parts
        .chunks(2)
        .map(|pair| {
            (
                RowKey::from_bytes(&pair[0]).expect("a key"),
                pair[1].clone(),
            )
        })
        .collect()
}

#[test]
fn rows_of_version_1_keep_their_meaning() {
    let mut replica = account();
    let rows = replica.all_rows();
    assert_eq!(
        rows.iter()
            .filter(|(key, _)| matches!(key, RowKey::Vanished(_)))
            .count(),
        2
    );
    if writing() {
        let bytes = encode_rows(&rows);
        std::fs::write(fixture("rows-v1-spelled.bin"), bytes).expect("the fixture is written");
    }
    let read = |file| decode_rows(&std::fs::read(fixture(file)).expect("the fixture is there"));
    let stored = read("rows-v1-spelled.bin");
    assert_eq!(rows, stored);
    // Rows from before they said whether a keyword is spelled as its operation spells it: they say the same, and stay as they are until it is said anew.
    let earlier = read("rows-v1.bin");
    let of_earlier = Replica::load(
        replica.account(),
        replica.slot(),
        earlier.clone(),
        &VersionVector::new(),
    );
    let mut of_earlier = of_earlier.expect("loads");
    assert_eq!(of_earlier.all_rows(), earlier);
    assert!(of_earlier.spells_as_heard() && !replica.spells_as_heard());
    of_earlier.spell_as(&replica);
    assert_eq!(of_earlier.all_rows(), rows);
    let loaded = Replica::load(
        replica.account(),
        replica.slot(),
        stored,
        &VersionVector::new(),
    )
    .expect("loads");
    assert_eq!(loaded.all_rows(), rows);
    assert_eq!(loaded.names(), replica.names());
    for info in loaded.names().iter().filter(|info| info.id.is_some()) {
        assert_eq!(
            loaded.rows(&info.name, 1..=u32::MAX),
            replica.rows(&info.name, 1..=u32::MAX)
        );
    }
    let contents: Vec<Content> = replica
        .take_dirty()
        .into_iter()
        .filter(|(key, _)| matches!(key, RowKey::Content(_)))
        .map(|(_, bytes)| Content::decode(&bytes.expect("present")).expect("decodes"))
        .collect();
    assert_eq!(contents.len(), 4);
    assert!(
        contents
            .iter()
            .all(|content| content.summary == b"summary" && content.blob == message().blob)
    );
    assert!(replica.take_dirty().is_empty());
}

/// Rows that were written under another slot: what is announced as HIGHESTMODSEQ is believed when it comes back, and nothing has changed since.
#[test]
fn the_highest_modseq_is_ours_under_any_slot() {
    let written = account();
    let slot = written.slot() + 4;
    let none = VersionVector::new();
    let replica = Replica::load(written.account(), slot, written.all_rows(), &none).expect("loads");
    let inbox = name("INBOX");
    let highest = |replica: &Replica| replica.status(&inbox).map(|status| status.highestmodseq);
    let (before, after) = (highest(&written), highest(&replica));
    assert!(after > before, "{after:?} {before:?}");
    let after = after.expect("it is there");
    assert!(replica.is_own_modseq(after));
    assert!(!replica.is_own_modseq(before.expect("it is there")));
    assert_eq!(replica.changed_since(&inbox, after), [0u32; 0]);
    assert_eq!(replica.vanished_since(&inbox, after), Some(Vec::new()));
    let again = Replica::load(written.account(), slot, replica.all_rows(), &none).expect("loads");
    assert_eq!(highest(&again), Some(after));
}

#[test]
fn damaged_rows_are_named() {
    let rows = account().all_rows();
    for at in 0..rows.len() {
        let mut damaged = rows.clone();
        damaged[at].1[0] = 2;
        let error = Replica::load(
            AccountId([7; 16]),
            5,
            damaged.clone(),
            &VersionVector::new(),
        )
        .expect_err("refused");
        assert_eq!(error, LoadError::Version(2));
        damaged[at].1 = vec![1, 0xFF];
        let error = Replica::load(AccountId([7; 16]), 5, damaged, &VersionVector::new())
            .expect_err("refused");
        assert!(matches!(error, LoadError::Malformed(key, _) if key == rows[at].0));
    }
    let orphans: Vec<_> = rows
        .into_iter()
        .filter(|(key, _)| !matches!(key, RowKey::Mailbox(_)))
        .collect();
    let error =
        Replica::load(AccountId([7; 16]), 5, orphans, &VersionVector::new()).expect_err("refused");
    assert!(matches!(error, LoadError::Dangling(_)));
}

#[test]
fn names() {
    let check = |text: &str, expected: Result<&str, NameError>| {
        assert_eq!(
            MailboxName::new(text).map(|name| name.to_string()),
            expected.map(str::to_string),
            "{text:?}"
        );
    };
    check("inbox", Ok("INBOX"));
    check("iNbOx/a", Ok("INBOX/a"));
    check("Inboxes", Ok("Inboxes"));
    check("a/inbox", Ok("a/inbox"));
    check("Entw\u{fc}rfe", Ok("Entw\u{fc}rfe"));
    check("", Err(NameError::Empty));
    check("/a", Err(NameError::Empty));
    check("a//b", Err(NameError::Empty));
    check("a/", Err(NameError::Empty));
    check("a\nb", Err(NameError::Character('\n')));
    check("a\u{85}b", Err(NameError::Character('\u{85}')));
    check("50%", Err(NameError::Character('%')));
    check(&"x".repeat(NAME_BYTES_MAX), Ok(&"x".repeat(NAME_BYTES_MAX)));
    check(&"x".repeat(NAME_BYTES_MAX + 1), Err(NameError::TooLong));
    check(
        &vec!["x"; NAME_DEPTH_MAX + 1].join("/"),
        Err(NameError::TooDeep),
    );
    assert!(name("a/b").is_below(&name("a")) && !name("ab").is_below(&name("a")));
    assert_eq!(
        name("a/b/c").rebased(&name("a/b"), &name("x")),
        Ok(name("x/c"))
    );
}

#[test]
fn keywords() {
    for bad in [
        "",
        "\\Seen",
        "a b",
        "a(b",
        "a{",
        "a%",
        "a*",
        "a\"",
        "a]",
        "\u{fc}",
        &"x".repeat(KEYWORD_BYTES_MAX + 1),
    ] {
        assert!(Keyword::new(bad).is_none(), "{bad:?}");
    }
    let (a, b) = (
        Keyword::new("$Junk").expect("valid"),
        Keyword::new("$junk").expect("valid"),
    );
    assert!(a.same(&b));
    assert_ne!(a, b, "nodes must show one spelling");
    assert_eq!(
        Flags::from_iter([Flag::Keyword(a), Flag::Keyword(b)])
            .keywords()
            .len(),
        1
    );
}

/// 200,000 ordinary messages, half of them read.
#[test]
fn memory_of_a_large_mailbox() {
    const MESSAGES: usize = 200_000;
    let mut replica = Replica::new(AccountId([7; 16]), 5);
    let mut applied = VersionVector::new();
    let peers = Peers::none();
    let mut seq = 0;
    let mut apply = |replica: &mut Replica, ops: Vec<Op>| {
        let deps = applied.clone();
        let first = seq + 1;
        seq += ops.len() as u64;
        applied.advance(origin(), seq);
        let step = Step {
            origin: origin(),
            first,
            hlc: seq,
            deps: &deps,
            applied: &applied,
            now_micros: seq,
            peers: &peers,
        };
        replica.apply(&step, ops).expect("causal");
        replica.take_dirty();
        At {
            now_micros: seq,
            next: Dot::new(origin(), seq + 1),
        }
    };
    let plan = replica.plan_open(1, 0, &[]);
    let mut at = apply(&mut replica, plan.ops);
    let read = Flags::from_iter([Flag::Seen]);
    for k in 0..MESSAGES / 1_000 {
        let flags = if k % 2 == 0 {
            read.clone()
        } else {
            Flags::none()
        };
        let new = NewMessage {
            flags,
            blob: message().blob,
            size: 10,
            open_end: false,
            date: message().date,
            content: vec![],
        };
        let plan = replica
            .plan_append(&at, &name("INBOX"), vec![new; 1_000])
            .expect("planned");
        at = apply(&mut replica, plan.ops);
    }
    let each = replica.memory_bytes() / MESSAGES;
    println!("{each} bytes a message");
    assert!(each <= 280, "{each} bytes a message");
    // One STORE of all is one operation, and changing everything and expunging half of it is not quadratic.
    let uids = replica.uids(&name("INBOX"));
    let plan = replica
        .plan_store(&name("INBOX"), &uids, StoreMode::Add, &read, &|_| None)
        .expect("planned");
    assert_eq!(plan.ops.len(), 1);
    apply(&mut replica, plan.ops);
    assert_eq!(
        replica.status(&name("INBOX")).map(|status| status.unseen),
        Some(0)
    );
    let plan = replica
        .plan_expunge(&name("INBOX"), &uids[..MESSAGES / 2])
        .expect("planned");
    apply(&mut replica, plan.ops);
    let collected = replica.collect(&applied, &|_, _| true, Tombstones::Left, usize::MAX);
    assert_eq!(collected.messages.len(), MESSAGES / 2);
    assert_eq!(
        replica.status(&name("INBOX")).map(|status| status.messages),
        Some(MESSAGES as u32 / 2)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(5_000) })]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Op::decode_all(&bytes);
        let _ = RowKey::from_bytes(&bytes);
        let _ = Content::decode(&bytes);
    }

    #[test]
    fn mutated_operations_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Op::encode_all(&every_op());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(ops) = Op::decode_all(&bytes) {
            prop_assert_eq!(Op::decode_all(&Op::encode_all(&ops)), Ok(ops));
        }
        bytes.truncate(cut.index(bytes.len()));
        let _ = Op::decode_all(&bytes);
    }

    #[test]
    fn mutated_rows_never_panic(
        row in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut rows = account().all_rows();
        let row = row.index(rows.len());
        for (at, byte) in changes {
            let at = at.index(rows[row].1.len());
            rows[row].1[at] = byte;
        }
        let _ = Replica::load(AccountId([7; 16]), 5, rows, &VersionVector::new());
    }
}

/// Two nodes with rows of an earlier version, each of which had heard another spelling of a keyword first: when each has said what it shows, both
/// show the same.
#[test]
fn nodes_with_rows_of_before_come_to_spell_alike() {
    let rows = decode_rows(&std::fs::read(fixture("rows-v1.bin")).expect("the fixture is there"));
    let heard = |spelling: &str, slot: u8| {
        let mut rows = rows.clone();
        for (_, row) in &mut rows {
            let text = b"$Forwarded";
            let places: Vec<usize> = (0..row.len().saturating_sub(text.len()))
                .filter(|at| row[*at..].starts_with(text))
                .collect();
            for at in places {
                row[at..at + text.len()].copy_from_slice(spelling.as_bytes());
            }
        }
        let account = AccountId([9; 16]);
        Replica::load(account, slot, rows, &VersionVector::new()).expect("loads")
    };
    let keywords = |replica: &Replica| {
        let rows = replica.rows(&name("Sent"), 1..=u32::MAX);
        let keywords = rows.iter().flat_map(|row| row.flags.keywords().to_vec());
        keywords
            .map(|of| of.as_str().to_owned())
            .collect::<Vec<_>>()
    };
    let mut nodes = [heard("$Forwarded", 5), heard("$FORWARDED", 9)];
    assert_eq!(keywords(&nodes[0]), ["$Forwarded"]);
    assert_eq!(keywords(&nodes[1]), ["$FORWARDED"]);
    let seen: VersionVector = [(Incarnation::from_hash(0x1234_5678_9abc_def0), 1000)]
        .into_iter()
        .collect();
    let ops = [0, 1].map(|at: usize| nodes[at].plan_spellings().ops);
    for (at, node) in nodes.iter_mut().enumerate() {
        // Neither knew of the other; each hears of its own first.
        for by in [at, 1 - at] {
            let origin = Incarnation::from_hash(20 + by as u64);
            let mut applied = seen.clone();
            applied.advance(origin, 1);
            let step = Step {
                origin,
                first: 1,
                hlc: 1_800_000_000_000_000,
                deps: &seen,
                applied: &applied,
                now_micros: 1_800_000_000_000_000,
                peers: &Peers::none(),
            };
            node.apply(&step, ops[by].clone()).expect("causal");
        }
        assert!(!node.spells_as_heard() && node.plan_spellings().ops.is_empty());
    }
    assert_eq!(keywords(&nodes[0]), keywords(&nodes[1]));
    assert_eq!(keywords(&nodes[0]), ["$Forwarded"], "the least dot says so");
}
