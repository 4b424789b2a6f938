//! Crashes: acknowledged commits are there, others are there completely or not at all, and logs stay prefixes.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Chain, Factory, download, noise, upload, upload_id};
use crate::{
    BlobName, BlobStore, Commit, Hash, Jump, LogPosition, LogStore, Mutation, Origin, PartitionId,
};

const PARTITIONS: u64 = 3;
const ROUNDS: u64 = 6;

pub(super) async fn run<F: Factory>(make: &mut impl FnMut() -> F) {
    for seed in 0..4 {
        crash_again_and_again(&mut make(), seed).await;
        jump_and_crash(&mut make(), seed).await;
    }
}

/// Logs that jump, each with a row that says how far: after a crash both are there or neither.
async fn jump_and_crash<F: Factory>(factory: &mut F, seed: u64) {
    let (partition, origin) = (PartitionId(5), Origin(4));
    let mut acknowledged = 1;
    let mut next = 1;
    for round in 0..ROUNDS {
        let engine = factory.open().await.expect("opens after a crash");
        let positions = engine.log_positions(partition).await.expect("reads");
        let there = positions.first().map_or(LogPosition::EMPTY, |(_, at)| *at);
        let rows = engine.get(partition, vec!["next".into()]).await;
        let row = rows.expect("reads").remove(0);
        let said = row.map_or(1, |row| u64::from_be_bytes(row[..].try_into().expect("8")));
        assert_eq!(there.next, said, "the log and the row of one commit");
        assert!(there.next >= acknowledged, "what was acknowledged is there");
        next = next.max(there.next);
        let mut under_way = Vec::new();
        for step in 0..10 {
            next += 1 + step % 3;
            let commit = Commit {
                jumps: vec![Jump {
                    origin,
                    next,
                    hash: Hash::of(&next.to_be_bytes()),
                }],
                mutations: vec![Mutation::Put {
                    key: "next".into(),
                    value: Bytes::copy_from_slice(&next.to_be_bytes()),
                }],
                ..Commit::new(partition)
            };
            under_way.push((next, engine.commit(commit)));
        }
        for (number, commit) in under_way.drain(..5) {
            commit.await.expect("is taken");
            acknowledged = number;
        }
        drop(under_way);
        factory.crash(engine, seed ^ round).await;
    }
}

/// Each commit takes the next number of its partition's log, and writes that number into two records and the bytes and
/// name of its blob into others: so after a crash everything must agree with the length of the log.
struct Partition {
    id: PartitionId,
    chain: Chain,
    acknowledged: u64,
    blobs: BTreeMap<u64, (BlobName, Bytes)>,
}

async fn crash_again_and_again<F: Factory>(factory: &mut F, seed: u64) {
    let mut partitions: Vec<_> = (0..PARTITIONS)
        .map(|id| Partition {
            id: PartitionId(id),
            chain: Chain::new(9),
            acknowledged: 0,
            blobs: BTreeMap::new(),
        })
        .collect();
    let mut uploads = seed << 32;
    for round in 0..ROUNDS {
        let engine = factory.open().await.expect("opens after a crash");
        for partition in &mut partitions {
            check(&engine, partition).await;
        }
        let mut under_way = Vec::new();
        for step in 0..40u64 {
            for (index, partition) in partitions.iter_mut().enumerate() {
                let number = partition.chain.next;
                uploads += 1;
                let bytes = noise(uploads, if step % 8 == 0 { 150_000 } else { 700 });
                let info = upload(&engine, upload_id(uploads), &bytes, 64_000)
                    .await
                    .expect("uploads");
                let mut commit = partition
                    .chain
                    .commit(partition.id, number.to_be_bytes().to_vec());
                let value = Bytes::copy_from_slice(&number.to_be_bytes());
                commit.mutations = vec![
                    Mutation::Put {
                        key: "first".into(),
                        value: value.clone(),
                    },
                    Mutation::Reference {
                        blob: info.name,
                        holder: value.clone(),
                    },
                    Mutation::Put {
                        key: "second".into(),
                        value,
                    },
                ];
                partition.blobs.insert(number, (info.name, bytes));
                under_way.push((index, number, engine.commit(commit)));
            }
            // Some commits are awaited, some are still under way when the node dies.
            while under_way.len() > 20 {
                let (index, number, commit) = under_way.remove(0);
                commit.await.expect("is taken");
                partitions[index].acknowledged = number;
            }
        }
        drop(under_way);
        factory.crash(engine, seed * ROUNDS + round).await;
    }
    let engine = factory.open().await.expect("opens after a crash");
    for partition in &mut partitions {
        check(&engine, partition).await;
    }
    factory.close(engine).await;
}

/// Checks a partition and takes up its log where the crash has left it.
async fn check<E: LogStore + BlobStore>(engine: &E, partition: &mut Partition) {
    let origin = partition.chain.origin;
    let mut chain = Chain::new(origin.0);
    let mut from = 1;
    loop {
        let page = engine
            .read_log(partition.id, origin, from, 4096)
            .await
            .expect("reads");
        for entry in &page.entries {
            let expected = chain.entry(1, chain.next.to_be_bytes().to_vec());
            assert_eq!(*entry, expected, "the log is a prefix of what was written");
        }
        let Some(next) = page.next else { break };
        from = next;
    }
    let last = chain.next - 1;
    assert!(
        last >= partition.acknowledged,
        "{last} of {} acknowledged batches are there",
        partition.acknowledged
    );
    let records = engine
        .get(partition.id, vec!["first".into(), "second".into()])
        .await
        .expect("reads");
    let expected = (last > 0).then(|| Bytes::copy_from_slice(&last.to_be_bytes()));
    assert_eq!(
        records,
        [expected.clone(), expected],
        "batch and records are one write"
    );
    for (number, (name, bytes)) in std::mem::take(&mut partition.blobs) {
        if number <= last {
            let found = download(engine, name, 0, u64::MAX)
                .await
                .expect("a blob that a committed batch names is there");
            assert!(found == bytes, "and is whole");
            partition.blobs.insert(number, (name, bytes));
        } else {
            assert_eq!(
                engine.stat(name).await.expect("reads"),
                None,
                "a blob that nothing names has been swept"
            );
        }
    }
    partition.chain = chain;
    partition.acknowledged = last;
    // One more commit, alone: a log that was cut short shows at once if it cannot go on.
    let number = partition.chain.next;
    let mut commit: Commit = partition
        .chain
        .commit(partition.id, number.to_be_bytes().to_vec());
    let value = Bytes::copy_from_slice(&number.to_be_bytes());
    commit.mutations = vec![
        Mutation::Put {
            key: "first".into(),
            value: value.clone(),
        },
        Mutation::Put {
            key: "second".into(),
            value,
        },
    ];
    engine.commit(commit).await.expect("the log goes on");
    partition.acknowledged = number;
}
