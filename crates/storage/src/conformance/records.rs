//! Records: order of scans, limits, isolation of partitions, atomicity of what is seen, sizes.

use bytes::Bytes;

use super::{Factory, delete, noise, put, records, refused};
use crate::types::RECORD_KEY_BYTES_MAX;
use crate::{KeyRange, LogStore, Mutation, PartitionId, SNAPSHOTS_MAX, ScanLimit, StoreError};

const P: PartitionId = PartitionId(1);

pub(super) async fn run<F: Factory>(make: &mut impl FnMut() -> F) {
    puts_gets_deletes(&mut make()).await;
    scans_in_order(&mut make()).await;
    partitions_are_apart(&mut make()).await;
    sizes(&mut make()).await;
    many(&mut make()).await;
    snapshots_are_of_one_moment(&mut make()).await;
}

async fn snapshots_are_of_one_moment<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let key = |index: u32| format!("{index:04}");
    let rows = |value: &str| {
        let rows = (0..200).map(|index| put(&key(index), value));
        records(P, rows.collect())
    };
    engine.commit(rows("before")).await.expect("is taken");
    let elsewhere = records(PartitionId(2), vec![put("0007", "elsewhere")]);
    engine.commit(elsewhere).await.expect("is taken");
    let snapshot = engine.snapshot(P).await.expect("there is room");
    engine.commit(rows("after")).await.expect("is taken");
    let more = vec![put("0000a", "new"), delete("0100"), put("0300", "new")];
    engine.commit(records(P, more)).await.expect("is taken");
    // From a key on, a page at a time, while the rows change.
    let mut range = KeyRange {
        start: "0050".into(),
        end: None,
    };
    let mut seen = Vec::new();
    loop {
        let limit = ScanLimit {
            rows: 7,
            bytes: 4096,
        };
        let page = engine.scan_at(snapshot, range.clone(), limit).await;
        let page = page.expect("it was not released");
        let change = records(P, vec![put("0199", "later")]);
        engine.commit(change).await.expect("is taken");
        seen.extend(page.rows);
        match page.next {
            Some(next) => range.start = next,
            None => break,
        }
    }
    let expected = (50..200).map(|index| (Bytes::from(key(index)), Bytes::from("before")));
    assert_eq!(seen, expected.collect::<Vec<_>>());
    let another = engine.snapshot(P).await.expect("there is room");
    assert!(another != snapshot, "each has its own name");
    let all = |snapshot| engine.scan_at(snapshot, KeyRange::all(), ScanLimit::default());
    assert_eq!(all(another).await.expect("reads").rows.len(), 201);
    engine.release(snapshot);
    let gone = all(snapshot).await;
    assert_eq!(gone, Err(StoreError::NoSnapshot(snapshot)));
    engine.release(snapshot);
    // Bounded.
    let mut taken = vec![another];
    while taken.len() < SNAPSHOTS_MAX {
        taken.push(engine.snapshot(P).await.expect("there is room"));
    }
    assert_eq!(engine.snapshot(P).await, Err(StoreError::Snapshots));
    engine.release(another);
    engine.snapshot(P).await.expect("there is room again");
    factory.close(engine).await;
    // They do not outlive the engine, nor are their names given again.
    let engine = factory.open().await.expect("opens");
    for snapshot in taken {
        let gone = engine.scan_at(snapshot, KeyRange::all(), ScanLimit::default());
        assert_eq!(gone.await, Err(StoreError::NoSnapshot(snapshot)));
    }
    factory.close(engine).await;
}

async fn puts_gets_deletes<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let keys: Vec<Bytes> = vec!["a".into(), "b".into(), "c".into(), "a".into()];
    assert_eq!(
        engine.get(P, keys.clone()).await.expect("reads"),
        vec![None; 4]
    );
    // One after the other inside a commit: the last word counts.
    let mutations = vec![
        put("a", "1"),
        put("b", "1"),
        delete("b"),
        delete("c"),
        put("c", "1"),
        put("a", "2"),
        put("e", ""),
    ];
    engine
        .commit(records(P, mutations))
        .await
        .expect("is taken");
    let expected = vec![Some("2".into()), None, Some("1".into()), Some("2".into())];
    assert_eq!(engine.get(P, keys.clone()).await.expect("reads"), expected);
    for (bytes_max, count) in [(0, 1), (1, 1), (2, 3), (3, 4), (9, 4)] {
        assert_eq!(
            engine
                .get_first(P, keys.clone(), bytes_max)
                .await
                .expect("reads"),
            expected[..count],
            "up to {bytes_max} bytes"
        );
    }
    assert_eq!(
        engine.get(P, vec!["e".into()]).await.expect("reads"),
        [Some(Bytes::new())],
        "an empty value is a value"
    );
    engine
        .commit(records(P, vec![]))
        .await
        .expect("an empty commit is taken");
    factory.close(engine).await;
    let engine = factory.open().await.expect("opens again");
    assert_eq!(engine.get(P, keys).await.expect("reads"), expected);
    factory.close(engine).await;
}

async fn scans_in_order<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    // Written in an order of its own; bytes that sort unlike letters.
    let mut keys: Vec<Vec<u8>> = (0u16..200)
        .map(|i| (i.wrapping_mul(7919)).to_be_bytes().to_vec())
        .collect();
    keys.extend(
        [
            b"".to_vec(),
            b"\x00".to_vec(),
            b"\xff".to_vec(),
            b"\xff\xff\xff".to_vec(),
            vec![1; 300],
        ]
        .map(|mut key| {
            key.insert(0, 0x80);
            key
        }),
    );
    for chunk in keys.chunks(17) {
        let mutations = chunk.iter().map(|key| Mutation::Put {
            key: key.clone().into(),
            value: key.clone().into(),
        });
        engine
            .commit(records(P, mutations.collect()))
            .await
            .expect("is taken");
    }
    keys.sort();
    for (range, limit) in ranges_and_limits(&keys) {
        scan_whole(&engine, &keys, range, limit).await;
    }
    factory.close(engine).await;
}

/// What of the sorted `keys` is scanned, and by which steps.
fn ranges_and_limits(keys: &[Vec<u8>]) -> [(KeyRange, ScanLimit); 8] {
    [
        (
            KeyRange::all(),
            ScanLimit {
                rows: 1000,
                bytes: usize::MAX,
            },
        ),
        (
            KeyRange::all(),
            ScanLimit {
                rows: 7,
                bytes: usize::MAX,
            },
        ),
        (
            KeyRange::all(),
            ScanLimit {
                rows: 1000,
                bytes: 50,
            },
        ),
        (KeyRange::all(), ScanLimit { rows: 0, bytes: 0 }),
        (
            KeyRange::prefix(vec![0x80]),
            ScanLimit {
                rows: 2,
                bytes: usize::MAX,
            },
        ),
        (
            KeyRange {
                start: keys[3].clone().into(),
                end: Some(keys[9].clone().into()),
            },
            ScanLimit::default(),
        ),
        (
            KeyRange {
                start: keys[9].clone().into(),
                end: Some(keys[3].clone().into()),
            },
            ScanLimit::default(),
        ),
        (
            KeyRange {
                start: keys[9].clone().into(),
                end: Some(keys[9].clone().into()),
            },
            ScanLimit::default(),
        ),
    ]
}

/// Scans a range page by page: what is found must be what is there, and no page may exceed its limit.
async fn scan_whole<E: LogStore>(engine: &E, keys: &[Vec<u8>], range: KeyRange, limit: ScanLimit) {
    let expected: Vec<_> = keys
        .iter()
        .filter(|key| range.contains(key))
        .cloned()
        .collect();
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut rest = range.clone();
    loop {
        let page = engine.scan(P, rest.clone(), limit).await.expect("scans");
        assert!(
            page.rows.len() <= limit.rows.max(1),
            "no more rows than asked for"
        );
        let bytes: usize = page
            .rows
            .iter()
            .rev()
            .skip(1)
            .map(|(key, value)| key.len() + value.len())
            .sum();
        assert!(
            bytes <= limit.bytes,
            "no row is added when the bytes are reached"
        );
        assert!(page.rows.iter().all(|(key, value)| key == value));
        found.extend(page.rows.iter().map(|(key, _)| key.to_vec()));
        let Some(next) = page.next else { break };
        assert!(
            !page.rows.is_empty(),
            "a page that is not the last has a row"
        );
        rest.start = next;
    }
    assert_eq!(found, expected, "{range:?} by {limit:?}");
}

async fn partitions_are_apart<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let partitions = [0, 1, 2, 0x100, 0xffff_ffff, u64::MAX - 1, u64::MAX].map(PartitionId);
    for partition in partitions {
        let name = partition.0.to_string();
        engine
            .commit(records(
                partition,
                vec![
                    put("\0", &name),
                    put("k", &name),
                    put("\u{7f}\u{7f}", &name),
                ],
            ))
            .await
            .expect("is taken");
    }
    engine
        .commit(records(PartitionId(1), vec![delete("k")]))
        .await
        .expect("is taken");
    for partition in partitions {
        let page = engine
            .scan(partition, KeyRange::all(), ScanLimit::default())
            .await
            .expect("scans");
        let expected = if partition.0 == 1 { 2 } else { 3 };
        assert_eq!(page.rows.len(), expected, "{partition:?}");
        assert!(
            page.rows
                .iter()
                .all(|(_, value)| value == partition.0.to_string().as_bytes())
        );
    }
    factory.close(engine).await;
}

async fn sizes<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let put_key = |len: usize| {
        records(
            P,
            vec![Mutation::Put {
                key: vec![b'k'; len].into(),
                value: Bytes::new(),
            }],
        )
    };
    refused(engine.commit(put_key(0)).await, "an empty key");
    refused(
        engine.commit(put_key(RECORD_KEY_BYTES_MAX + 1)).await,
        "a key beyond the limit",
    );
    engine
        .commit(put_key(RECORD_KEY_BYTES_MAX))
        .await
        .expect("a key at the limit is taken");
    let large = noise(1, 9 << 20);
    let too_large = vec![
        Mutation::Put {
            key: "large".into(),
            value: large.clone(),
        },
        Mutation::Put {
            key: "also".into(),
            value: large.clone(),
        },
    ];
    refused(
        engine.commit(records(P, too_large)).await,
        "a commit beyond the limit",
    );
    engine
        .commit(records(
            P,
            vec![Mutation::Put {
                key: "large".into(),
                value: large.clone(),
            }],
        ))
        .await
        .expect("is taken");
    factory.close(engine).await;
    let engine = factory.open().await.expect("opens again");
    assert_eq!(
        engine.get(P, vec!["large".into()]).await.expect("reads"),
        [Some(large)]
    );
    factory.close(engine).await;
}

/// Enough rows that an engine has to write them somewhere else than where it writes first.
async fn many<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let mut under_way = Vec::new();
    for index in 0..20_000u32 {
        let key = index.wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
        let mutation = Mutation::Put {
            key: key.into(),
            value: noise(u64::from(index), 64),
        };
        under_way.push(engine.commit(records(PartitionId(u64::from(index % 3)), vec![mutation])));
    }
    for commit in under_way {
        commit.await.expect("is taken");
    }
    factory.close(engine).await;
    let engine = factory.open().await.expect("opens again");
    for index in (0..20_000u32).step_by(97) {
        let key = index.wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
        let found = engine
            .get(PartitionId(u64::from(index % 3)), vec![key.into()])
            .await
            .expect("reads");
        assert_eq!(found, [Some(noise(u64::from(index), 64))]);
    }
    let mut rows = 0;
    for partition in 0..3 {
        let mut range = KeyRange::all();
        loop {
            let page = engine
                .scan(PartitionId(partition), range.clone(), ScanLimit::default())
                .await
                .expect("scans");
            assert!(page.rows.is_sorted_by(|a, b| a.0 < b.0));
            rows += page.rows.len();
            let Some(next) = page.next else { break };
            range.start = next;
        }
    }
    assert_eq!(rows, 20_000);
    factory.close(engine).await;
}
