//! Logs: order, no gap, no fork, no repetition; cut; positions; what outlives a restart.

use super::{Chain, Factory, put, records, refused};
use crate::{
    Commit, Cut, Hash, Jump, KeyRange, LogPosition, LogStore, Origin, PartitionId, ScanLimit,
};

const P: PartitionId = PartitionId(7);

pub(super) async fn run<F: Factory>(make: &mut impl FnMut() -> F) {
    appends_in_order(&mut make()).await;
    refuses_what_does_not_follow(&mut make()).await;
    refused_commit_leaves_nothing(&mut make()).await;
    keeps_the_order_of_calls(&mut make()).await;
    what_rests_on_a_refused_commit_is_refused(&mut make()).await;
    logs_are_apart(&mut make()).await;
    cuts(&mut make()).await;
    jumps(&mut make()).await;
    forgets(&mut make()).await;
}

/// A log begins behind a number, with the rows of the same commit.
async fn jumps<F: Factory>(factory: &mut F) {
    let mut engine = factory.open().await.expect("opens");
    let mut chain = Chain::new(3);
    for index in 0..5u32 {
        let commit = chain.commit(P, index.to_be_bytes().to_vec());
        engine.commit(commit).await.expect("is taken");
    }
    let hash = Hash::of(b"the entry before");
    let jump = |origin, next| Commit {
        jumps: vec![Jump {
            origin: Origin(origin),
            next,
            hash,
        }],
        mutations: vec![put("jumped", "1")],
        ..Commit::new(P)
    };
    for next in [1, 5, 6] {
        let back = engine.commit(jump(3, next)).await;
        refused(back, "a jump that does not lead ahead");
    }
    let mut twice = jump(3, 7);
    twice.jumps.push(twice.jumps[0]);
    refused(engine.commit(twice).await, "a second jump to one number");
    let mut before = jump(3, 7);
    before.entry = Some(Chain { ..chain }.entry(9, "beyond it"));
    refused(
        engine.commit(before).await,
        "a jump to before what is appended with it",
    );
    let rows = engine.scan(P, KeyRange::all(), ScanLimit::default()).await;
    assert!(
        rows.expect("reads").rows.is_empty(),
        "a refused jump leaves nothing"
    );
    // A log with entries, and one without.
    for origin in [3, 4] {
        engine.commit(jump(origin, 100)).await.expect("jumps");
    }
    let position = LogPosition {
        low: 100,
        next: 100,
        hash,
    };
    for _ in 0..2 {
        let positions = engine.log_positions(P).await.expect("reads");
        assert_eq!(positions, [(Origin(3), position), (Origin(4), position)]);
        for origin in [3, 4] {
            let page = engine.read_log(P, Origin(origin), 0, usize::MAX).await;
            assert!(page.expect("reads").entries.is_empty());
        }
        let rows = engine.scan(P, KeyRange::all(), ScanLimit::default()).await;
        assert_eq!(rows.expect("reads").rows.len(), 1);
        factory.close(engine).await;
        engine = factory.open().await.expect("opens again");
    }
    let mut fork = Chain {
        next: 100,
        ..Chain::new(3)
    };
    let fork = engine.commit(fork.commit(P, "another")).await;
    refused(fork, "an entry that does not follow what was jumped over");
    for origin in [3, 4] {
        let mut chain = Chain {
            origin: Origin(origin),
            next: 100,
            hash,
        };
        let commit = chain.commit(P, "goes on");
        let entry = commit.entry.clone().expect("it has one");
        engine.commit(commit).await.expect("the log goes on");
        let page = engine.read_log(P, Origin(origin), 1, usize::MAX).await;
        assert_eq!(page.expect("reads").entries, [entry]);
    }
    factory.close(engine).await;
    engine = factory.open().await.expect("opens a log that was jumped");
    factory.close(engine).await;
}

/// A log that was cut at its end is forgotten, and begins anew with other entries; another one of the partition goes on.
async fn forgets<F: Factory>(factory: &mut F) {
    let mut engine = factory.open().await.expect("opens");
    let (mut gone, mut other) = (Chain::new(3), Chain::new(4));
    for index in 0..300u32 {
        for chain in [&mut gone, &mut other] {
            let commit = chain.commit(P, index.to_be_bytes().to_vec());
            engine.commit(commit).await.expect("is taken");
        }
    }
    let forget = |origin| Commit {
        forgets: vec![Origin(origin)],
        mutations: vec![put("forgotten", "1")],
        ..Commit::new(P)
    };
    refused(engine.commit(forget(3)).await, "a log with entries");
    let cut = Commit {
        cuts: vec![Cut {
            origin: Origin(3),
            below: gone.next,
        }],
        ..Commit::new(P)
    };
    let both = Commit {
        forgets: vec![Origin(3)],
        ..cut.clone()
    };
    refused(engine.commit(both).await, "a log that is cut just now");
    engine.commit(cut).await.expect("cuts");
    let adds = Commit {
        entry: Some(Chain { ..gone }.entry(1, "more")),
        ..forget(3)
    };
    refused(engine.commit(adds).await, "a log that goes on with it");
    engine.commit(forget(3)).await.expect("is forgotten");
    engine.commit(forget(9)).await.expect("there was none");
    for again in [false, true] {
        let positions = engine.log_positions(P).await.expect("reads");
        let origins: Vec<Origin> = positions.iter().map(|(origin, _)| *origin).collect();
        assert_eq!(origins, [Origin(4)], "{again}");
        long(&engine, 1200).await;
        let page = engine.read_log(P, Origin(3), 0, usize::MAX).await;
        assert!(page.expect("reads").entries.is_empty());
        let page = engine.read_log(P, Origin(4), 0, usize::MAX).await;
        assert_eq!(page.expect("reads").entries.len(), 300);
        factory.close(engine).await;
        engine = factory.open().await.expect("opens again");
    }
    let mut anew = Chain::new(3);
    let commit = anew.commit(P, "another life");
    let entry = commit.entry.clone().expect("it has one");
    engine.commit(commit).await.expect("it begins anew");
    for _ in 0..2 {
        let page = engine.read_log(P, Origin(3), 0, usize::MAX).await;
        assert_eq!(page.expect("reads").entries, std::slice::from_ref(&entry));
        factory.close(engine).await;
        engine = factory.open().await.expect("opens again");
    }
    factory.close(engine).await;
}

async fn appends_in_order<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let mut chain = Chain::new(1);
    let mut entries = Vec::new();
    for index in 0..40u32 {
        let entry = chain.entry(1 + index % 3, vec![index as u8; 100]);
        entries.push(entry.clone());
        let commit = Commit {
            entry: Some(entry),
            ..Commit::new(P)
        };
        engine
            .commit(commit)
            .await
            .expect("a following entry is taken");
    }
    let all = engine
        .read_log(P, Origin(1), 1, usize::MAX)
        .await
        .expect("reads");
    assert_eq!(all.entries, entries);
    assert_eq!(all.next, None);
    // From the middle of an entry: the entry that contains the number; and page by page.
    let holds = &entries[5];
    assert_eq!(holds.count, 3, "the sixth entry takes three numbers");
    let page = engine
        .read_log(P, Origin(1), holds.first + 1, 250)
        .await
        .expect("reads");
    assert_eq!(
        page.entries,
        entries[5..8],
        "three entries of 100 bytes reach 250 bytes"
    );
    assert_eq!(page.next, Some(entries[8].first));
    let page = engine
        .read_log(P, Origin(1), chain.next, usize::MAX)
        .await
        .expect("reads");
    assert!(page.entries.is_empty() && page.next.is_none());
    let one = engine.read_log(P, Origin(1), 1, 0).await.expect("reads");
    assert_eq!(one.entries, entries[..1], "at least one entry");
    let position = LogPosition {
        low: 1,
        next: chain.next,
        hash: chain.hash,
    };
    assert_eq!(
        engine.log_positions(P).await.expect("reads"),
        [(Origin(1), position)]
    );

    factory.close(engine).await;
    let engine = factory.open().await.expect("opens again");
    assert_eq!(
        engine
            .read_log(P, Origin(1), 1, usize::MAX)
            .await
            .expect("reads")
            .entries,
        entries
    );
    assert_eq!(
        engine.log_positions(P).await.expect("reads"),
        [(Origin(1), position)]
    );
    let next = chain.commit(P, "after a restart");
    engine
        .commit(next)
        .await
        .expect("the log goes on after a restart");
    factory.close(engine).await;
}

async fn refuses_what_does_not_follow<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let mut chain = Chain::new(1);
    let first = chain.commit(P, "one");
    let mut early = first.clone();
    early.entry.as_mut().expect("has one").first = 2;
    refused(engine.commit(early).await, "a first entry with number 2");
    let mut zero = first.clone();
    zero.entry.as_mut().expect("has one").first = 0;
    refused(engine.commit(zero).await, "a first entry with number 0");
    let mut empty = first.clone();
    empty.entry.as_mut().expect("has one").count = 0;
    refused(engine.commit(empty).await, "an entry that takes no number");
    let mut fork = first.clone();
    fork.entry.as_mut().expect("has one").previous = crate::Hash::of(b"nothing");
    refused(
        engine.commit(fork).await,
        "a first entry that follows something",
    );
    engine
        .commit(first.clone())
        .await
        .expect("the first entry is taken");
    refused(engine.commit(first).await, "a repetition");

    let second = chain.commit(P, "two");
    let mut gap = second.clone();
    gap.entry.as_mut().expect("has one").first += 1;
    refused(engine.commit(gap).await, "a gap");
    let mut fork = second.clone();
    fork.entry.as_mut().expect("has one").previous = crate::Hash::of(b"another one");
    refused(engine.commit(fork).await, "a fork");
    engine
        .commit(second)
        .await
        .expect("the second entry is taken");
    factory.close(engine).await;
}

async fn refused_commit_leaves_nothing<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let mut chain = Chain::new(1);
    let mut bad = chain.commit(P, "one");
    bad.entry.as_mut().expect("has one").first = 9;
    bad.mutations = vec![put("key", "value")];
    // In one group with others: they are not touched by the refusal.
    let before = engine.commit(super::records(P, vec![put("before", "1")]));
    let refusal = engine.commit(bad);
    let after = engine.commit(super::records(P, vec![put("after", "1")]));
    before.await.expect("is taken");
    refused(refusal.await, "a gap");
    after.await.expect("is taken");
    let page = engine
        .scan(P, KeyRange::all(), ScanLimit::default())
        .await
        .expect("scans");
    let keys: Vec<_> = page.rows.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [&b"after"[..], b"before"]);
    factory.close(engine).await;
}

/// Calls one after the other, awaited only afterwards and in the wrong order, take effect in the order of the calls.
async fn keeps_the_order_of_calls<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let mut chain = Chain::new(1);
    let mut under_way = Vec::new();
    for index in 0..100u32 {
        let mut commit = chain.commit(P, index.to_be_bytes().to_vec());
        commit.mutations = vec![put("last", &index.to_string())];
        under_way.push(engine.commit(commit));
    }
    for commit in under_way.into_iter().rev() {
        commit.await.expect("each follows the one called before");
    }
    let last = engine.get(P, vec!["last".into()]).await.expect("reads");
    assert_eq!(last, [Some("99".into())]);
    factory.close(engine).await;
}

async fn logs_are_apart<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let partitions = [0, 1, 255, 256, u64::MAX];
    let origins = [0, 1, 256, u64::MAX];
    for partition in partitions {
        for origin in origins {
            let mut chain = Chain::new(origin);
            for index in 0..3 {
                let commit = chain.commit(
                    PartitionId(partition),
                    format!("{partition} {origin} {index}"),
                );
                engine.commit(commit).await.expect("a log of its own");
            }
        }
    }
    let all: Vec<_> = partitions.into_iter().map(PartitionId).collect();
    assert_eq!(engine.partitions().await.expect("reads"), all);
    for partition in all {
        let logs: Vec<_> = engine
            .log_positions(partition)
            .await
            .expect("reads")
            .into_iter()
            .map(|(o, _)| o)
            .collect();
        assert_eq!(logs, origins.map(Origin));
        for origin in origins {
            let page = engine
                .read_log(partition, Origin(origin), 0, usize::MAX)
                .await
                .expect("reads");
            let expected =
                [0, 1, 2].map(|index| format!("{} {origin} {index}", partition.0).into_bytes());
            let bytes: Vec<_> = page
                .entries
                .iter()
                .map(|entry| entry.bytes.to_vec())
                .collect();
            assert_eq!(bytes, expected);
        }
    }
    factory.close(engine).await;
}

async fn what_rests_on_a_refused_commit_is_refused<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let other = PartitionId(8);
    let rests = |partition, key| Commit {
        follows: true,
        ..records(partition, vec![put(key, "x")])
    };
    engine
        .commit(rests(P, "first"))
        .await
        .expect("nothing was refused yet");
    let bad = Commit {
        cuts: vec![Cut {
            origin: Origin(9),
            below: 100,
        }],
        ..Commit::new(P)
    };
    // All are under way at once, as an owner submits them.
    let under_way = [
        engine.commit(bad),
        engine.commit(rests(P, "behind it")),
        engine.commit(rests(other, "elsewhere")),
        engine.commit(rests(P, "further behind")),
    ];
    let mut results = Vec::new();
    for commit in under_way {
        results.push(commit.await.is_ok());
    }
    assert_eq!(results, [false, false, true, false]);
    engine
        .commit(records(P, vec![put("anew", "x")]))
        .await
        .expect("a commit that rests on nothing begins anew");
    engine
        .commit(rests(P, "behind that"))
        .await
        .expect("and others may follow it");
    let page = engine
        .scan(P, KeyRange::all(), ScanLimit::default())
        .await
        .expect("scans");
    let keys: Vec<&[u8]> = page.rows.iter().map(|(key, _)| &key[..]).collect();
    assert_eq!(keys, [&b"anew"[..], b"behind that", b"first"]);
}

async fn long<E: LogStore>(engine: &E, bytes: u64) {
    let lengths = engine.log_lengths().await.expect("reads");
    let all: Vec<u64> = lengths.iter().map(|log| log.bytes).collect();
    assert_eq!(all, [bytes], "bytes of the one log");
}

async fn cuts<F: Factory>(factory: &mut F) {
    let mut engine = factory.open().await.expect("opens");
    let mut chain = Chain::new(3);
    let origin = Origin(3);
    // Entries of ten numbers each: 1..11, 11..21, ...
    for index in 0..300u32 {
        let entry = chain.entry(10, index.to_be_bytes().to_vec());
        engine
            .commit(Commit {
                entry: Some(entry),
                ..Commit::new(P)
            })
            .await
            .expect("is taken");
    }
    // Four bytes each.
    long(&engine, 1200).await;
    let cut = |below| Commit {
        cuts: vec![Cut { origin, below }],
        ..Commit::new(P)
    };
    refused(
        engine.commit(cut(chain.next + 1)).await,
        "a cut beyond the end",
    );
    for (below, low) in [(1, 1), (10, 1), (11, 11), (25, 21), (20, 21), (2005, 2001)] {
        engine.commit(cut(below)).await.expect("cuts");
        let page = engine.read_log(P, origin, 0, 0).await.expect("reads");
        assert_eq!(page.entries[0].first, low, "cut below {below}");
        let positions = engine.log_positions(P).await.expect("reads");
        assert_eq!(
            positions,
            [(
                origin,
                LogPosition {
                    low,
                    next: 3001,
                    hash: chain.hash
                }
            )]
        );
    }
    long(&engine, 400).await;
    factory.close(engine).await;
    engine = factory.open().await.expect("opens again");
    long(&engine, 400).await;
    assert_eq!(
        engine
            .read_log(P, origin, 0, 0)
            .await
            .expect("reads")
            .entries[0]
            .first,
        2001,
        "stays cut"
    );
    cut_all(factory, engine, &mut chain).await;
}

/// Cuts all of a log, and then an entry with the commit that brings it.
async fn cut_all<F: Factory>(factory: &mut F, mut engine: F::Engine, chain: &mut Chain) {
    let origin = Origin(3);
    let cut = Commit {
        cuts: vec![Cut {
            origin,
            below: chain.next,
        }],
        ..Commit::new(P)
    };
    engine.commit(cut).await.expect("cuts everything");
    long(&engine, 0).await;
    assert!(
        engine
            .read_log(P, origin, 0, usize::MAX)
            .await
            .expect("reads")
            .entries
            .is_empty()
    );
    factory.close(engine).await;
    engine = factory.open().await.expect("opens again");
    let position = LogPosition {
        low: 3001,
        next: 3001,
        hash: chain.hash,
    };
    assert_eq!(
        engine.log_positions(P).await.expect("reads"),
        [(origin, position)],
        "an empty log keeps its position"
    );
    // Append and cut together.
    let mut commit = chain.commit(P, "the next");
    commit.cuts = vec![Cut {
        origin,
        below: chain.next,
    }];
    engine
        .commit(commit)
        .await
        .expect("an entry that is cut at once");
    let position = LogPosition {
        low: 3002,
        next: 3002,
        hash: chain.hash,
    };
    assert_eq!(
        engine.log_positions(P).await.expect("reads"),
        [(origin, position)]
    );
    factory.close(engine).await;
}
