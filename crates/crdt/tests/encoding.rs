//! The envelope's encoding: old bytes keep their meaning, garbage is refused.

use proptest::prelude::*;
use whimbrel_crdt::{
    Batch, BatchError, Hash, Incarnation, PartitionId, Section, Stamp, VersionVector,
};

fn example() -> Batch {
    let origin = Incarnation::new(0xDEAD_BEEF_0BAD_CAFE).expect("not zero");
    let other = Incarnation::new(7).expect("not zero");
    Batch {
        partition: PartitionId::accounts(200),
        origin,
        first: 41,
        count: 3,
        previous: Hash([0xAB; 32]),
        deps: VersionVector::from_iter([(origin, 40), (other, 9)]),
        stamp: Stamp {
            hlc: 1_700_000_000_000_000,
            origin,
        },
        sections: vec![
            Section {
                subject: [1; 16],
                counter: 77,
                count: 2,
                ops: b"opaque".to_vec(),
            },
            Section {
                subject: [2; 16],
                counter: 0,
                count: 1,
                ops: vec![],
            },
        ],
        blobs: vec![vec![5; 48].into()],
    }
}

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/batch-v1.cbor");

#[test]
fn version_1_keeps_its_meaning() {
    let sealed = example().seal();
    if std::env::var_os("WHIMBREL_WRITE_FIXTURES").is_some() {
        std::fs::write(FIXTURE, &sealed.bytes).expect("the fixture is written");
    }
    let bytes = std::fs::read(FIXTURE).expect("the fixture is there");
    assert_eq!(Batch::decode(&bytes), Ok(example()));
    assert_eq!(sealed.bytes, bytes);
    assert_eq!(sealed.hash.0, *blake3::hash(&bytes).as_bytes());
}

#[test]
fn blobs_are_found_without_the_rest() {
    let mut batch = example();
    batch.blobs.push(b"another".to_vec().into());
    let bytes = batch.seal().bytes;
    let found: Vec<&[u8]> = Batch::blobs_of(&bytes).collect();
    assert_eq!(found, [&[5; 48][..], b"another"]);
    let mut later = bytes;
    later[1] = 9;
    assert_eq!(Batch::blobs_of(&later).count(), 0);
}

#[test]
fn unknown_version_is_named() {
    let mut bytes = example().seal().bytes;
    bytes[1] = 9;
    assert_eq!(Batch::decode(&bytes), Err(BatchError::Version(9)));
}

#[test]
fn unknown_fields_are_skipped() {
    let mut bytes = example().seal().bytes;
    // The array of nine fields becomes one of ten.
    assert_eq!(bytes[2], 0x89);
    bytes[2] = 0x8A;
    bytes.extend_from_slice(&[0x82, 0x01, 0x63, b'n', b'e', b'w']);
    assert_eq!(Batch::decode(&bytes), Ok(example()));
}

#[test]
fn impossible_numbers_are_refused() {
    let check = |change: fn(&mut Batch), expected: &'static str| {
        let mut batch = example();
        change(&mut batch);
        assert_eq!(
            Batch::decode(&batch.seal().bytes),
            Err(BatchError::Numbers(expected))
        );
    };
    check(|b| b.count = 4, "count");
    check(|b| b.first = 0, "first");
    check(|b| b.first = u64::MAX - 1, "first");
    check(|b| b.first = 40, "deps");
    check(|b| b.stamp.hlc = u64::MAX, "stamp");
    check(|b| b.stamp.origin = Incarnation::from_hash(3), "stamp");
}

#[test]
fn contexts_number_the_operations() {
    let batch = example();
    let last = batch.context(2);
    assert_eq!((last.dot.seq, last.stamp.hlc), (43, 1_700_000_000_000_002));
    assert!(last.saw(batch.context(1).dot) && !batch.context(1).saw(last.dot));
    let indexes: Vec<u32> = batch.indexed_sections().map(|(index, _)| index).collect();
    assert_eq!(indexes, [0, 2]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(5_000) })]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Batch::decode(&bytes);
        let _ = Batch::blobs_of(&bytes).count();
    }

    #[test]
    fn mutated_bytes_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), cut in any::<prop::sample::Index>()) {
        let mut bytes = example().seal().bytes;
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(batch) = Batch::decode(&bytes) {
            prop_assert_eq!(Batch::decode(&batch.seal().bytes), Ok(batch.clone()));
            prop_assert!(Batch::blobs_of(&bytes).eq(batch.blobs.iter().map(|name| &name[..])));
        }
        bytes.truncate(cut.index(bytes.len()));
        let _ = Batch::decode(&bytes);
    }
}
