//! Blobs: streams in and out, ranges, names, references and what removes a blob.

use bytes::Bytes;

use super::{Factory, download, noise, records, upload, upload_id};
use crate::blob::CHUNK_BYTES_MAX;
use crate::{
    BlobInfo, BlobName, BlobRange, BlobReader, BlobStore, BlobWriter, Hash, LogStore, Mutation,
    PartitionId, StoreError,
};

const P: PartitionId = PartitionId(1);
const Q: PartitionId = PartitionId(2);

pub(super) async fn run<F: Factory>(make: &mut impl FnMut() -> F) {
    streams(&mut make()).await;
    uploads_are_apart(&mut make()).await;
    lists(&mut make()).await;
    references_keep(&mut make()).await;
    unnamed_are_swept(&mut make()).await;
}

fn reference(blob: BlobName, holder: &'static str) -> Mutation {
    Mutation::Reference {
        blob,
        holder: Bytes::from_static(holder.as_bytes()),
    }
}

fn release(blob: BlobName, holder: &'static str) -> Mutation {
    Mutation::Release {
        blob,
        holder: Bytes::from_static(holder.as_bytes()),
    }
}

/// Removal may lag behind the commit that asks for it: it is done, at the latest, some commits later.
async fn is_removed<E: LogStore + BlobStore>(engine: &E, name: BlobName) -> bool {
    for _ in 0..100 {
        if engine.stat(name).await.expect("reads").is_none() {
            return true;
        }
        engine
            .commit(records(P, vec![super::put("tick", "")]))
            .await
            .expect("is taken");
    }
    false
}

async fn streams<F: Factory>(factory: &mut F) {
    let mut engine = factory.open().await.expect("opens");
    let mut kept = Vec::new();
    for (number, len) in [0usize, 1, 65_535, 65_536, 65_537, 262_144, 1_000_003]
        .into_iter()
        .enumerate()
    {
        for (variant, piece) in [usize::MAX, 4096, 100_000].into_iter().enumerate() {
            let id = upload_id((number * 10 + variant) as u64);
            let bytes = noise(number as u64, len);
            let info = upload(&engine, id, &bytes, piece).await.expect("uploads");
            assert_eq!(
                info,
                BlobInfo {
                    name: BlobName {
                        upload: id,
                        hash: Hash::of(&bytes)
                    },
                    size: len as u64
                }
            );
            engine
                .commit(records(P, vec![reference(info.name, "h")]))
                .await
                .expect("is taken");
            kept.push((info, bytes));
        }
    }
    for _ in 0..2 {
        for (info, bytes) in &kept {
            assert_eq!(engine.stat(info.name).await.expect("reads"), Some(*info));
            let len = bytes.len();
            for (offset, count) in [
                (0, len),
                (0, 1),
                (len / 2, 70_000),
                (len.saturating_sub(1), 5),
                (len, 5),
                (len + 9, 5),
                (0, 0),
            ] {
                let end = len.min(offset.saturating_add(count));
                let expected = &bytes[offset.min(len)..end.max(offset.min(len))];
                let found = download(&engine, info.name, offset as u64, count as u64)
                    .await
                    .expect("reads");
                assert!(found == expected, "{offset}+{count} of {len}");
            }
            let all = download(&engine, info.name, 0, u64::MAX)
                .await
                .expect("reads");
            assert!(all == *bytes, "all {len} bytes");
        }
        several_at_once(&engine, &kept).await;
        factory.close(engine).await;
        engine = factory.open().await.expect("opens again");
    }
    factory.close(engine).await;
}

/// The begin of each range is read; a range that cannot be read gives nothing and does not disturb the others. But the first range is needed: its
/// error is reported.
async fn several_at_once<E: BlobStore>(engine: &E, kept: &[(BlobInfo, Bytes)]) {
    let nobody = BlobName {
        upload: upload_id(999_999),
        hash: Hash::of(b""),
    };
    let range = |name, offset, len| BlobRange { name, offset, len };
    let mut ranges = Vec::new();
    for (info, _) in kept {
        ranges.push(range(info.name, 0, 40_000));
        ranges.push(range(nobody, 0, 10));
        ranges.push(range(info.name, info.size / 2, u64::MAX));
    }
    let first_fails = [&[range(nobody, 0, 10)], &ranges[..]].concat();
    assert!(engine.read_many(first_fails).await.is_err());
    let found = engine.read_many(ranges.clone()).await.expect("reads");
    assert_eq!(found.len(), ranges.len());
    for (range, found) in ranges.iter().zip(&found) {
        let whole = kept.iter().find(|(info, _)| info.name == range.name);
        let whole = whole.map_or(&[][..], |(_, bytes)| bytes);
        let rest = &whole[(range.offset as usize).min(whole.len())..];
        let len = (range.len.min(CHUNK_BYTES_MAX as u64) as usize).min(rest.len());
        assert!(rest.starts_with(found) && found.len() <= len, "{range:?}");
        assert_eq!(found.is_empty(), len == 0, "{range:?}");
    }
}

async fn uploads_are_apart<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    // Two at once, interleaved, of the same bytes: two blobs with one hash.
    let bytes = noise(5, 200_000);
    let mut one = engine.create(upload_id(1)).await.expect("begins");
    let mut two = engine.create(upload_id(2)).await.expect("begins");
    assert!(
        matches!(
            engine.create(upload_id(1)).await,
            Err(StoreError::Refused(_))
        ),
        "an id in use"
    );
    for piece in bytes.chunks(3_000) {
        one.write(Bytes::copy_from_slice(piece))
            .await
            .expect("writes");
        two.write(Bytes::copy_from_slice(piece))
            .await
            .expect("writes");
    }
    let one = one.finish().await.expect("finishes");
    assert!(
        matches!(
            engine.create(upload_id(1)).await,
            Err(StoreError::Refused(_))
        ),
        "the id of a finished upload"
    );
    let two = two.finish().await.expect("finishes");
    assert_eq!(one.name.hash, two.name.hash);
    assert_ne!(one.name, two.name);
    engine.delete(one.name).await.expect("deletes");
    engine
        .delete(one.name)
        .await
        .expect("deleting again is no error");
    assert_eq!(engine.stat(one.name).await.expect("reads"), None);
    assert!(matches!(
        download(&engine, one.name, 0, 10).await,
        Err(StoreError::NoBlob(_))
    ));
    assert!(
        download(&engine, two.name, 0, u64::MAX)
            .await
            .expect("reads")
            == bytes
    );
    let wrong = BlobName {
        hash: Hash::ZERO,
        ..two.name
    };
    assert_eq!(
        engine.stat(wrong).await.expect("reads"),
        None,
        "an upload under another hash is another name"
    );
    assert!(engine.read(wrong, 0, 1).next().await.is_err());
    engine.delete(wrong).await.expect("no error");

    let mut gone = engine.create(upload_id(3)).await.expect("begins");
    gone.write(bytes.clone()).await.expect("writes");
    gone.abort().await.expect("aborts");
    let again = upload(&engine, upload_id(3), &Bytes::from_static(b"short"), 9)
        .await
        .expect("the id is free again");
    assert_eq!(
        download(&engine, again.name, 0, 100).await.expect("reads"),
        b"short",
        "nothing of the aborted one"
    );
    factory.close(engine).await;
}

async fn lists<F: Factory>(factory: &mut F) {
    let engine = factory.open().await.expect("opens");
    let mut infos = Vec::new();
    for number in 0..50u64 {
        let id = upload_id(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        infos.push(
            upload(&engine, id, &noise(number, 10), 10)
                .await
                .expect("uploads"),
        );
    }
    let _unfinished = engine.create(upload_id(1)).await.expect("begins");
    infos.sort_by_key(|info| info.name);
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = engine.list(after, 7).await.expect("lists");
        assert!(page.len() <= 7);
        let Some(last) = page.last() else { break };
        after = Some(last.name);
        found.extend(page);
    }
    assert_eq!(found, infos);
}

async fn references_keep<F: Factory>(factory: &mut F) {
    let mut engine = factory.open().await.expect("opens");
    let bytes = noise(9, 150_000);
    let name = upload(&engine, upload_id(1), &bytes, 9_999)
        .await
        .expect("uploads")
        .name;
    let other = upload(&engine, upload_id(2), &bytes, 9_999)
        .await
        .expect("uploads")
        .name;
    engine
        .commit(records(
            P,
            vec![
                reference(name, "a"),
                reference(name, "b"),
                reference(other, "a"),
            ],
        ))
        .await
        .expect("taken");
    engine
        .commit(records(Q, vec![reference(name, "a")]))
        .await
        .expect("taken");
    engine.delete(name).await.expect("no error");
    assert!(
        engine.stat(name).await.expect("reads").is_some(),
        "what is named is not deleted"
    );

    engine
        .commit(records(
            P,
            vec![
                release(name, "a"),
                release(name, "b"),
                release(name, "never"),
            ],
        ))
        .await
        .expect("taken");
    assert!(
        !is_removed(&engine, name).await,
        "another partition names it"
    );
    engine
        .commit(records(Q, vec![release(name, "b")]))
        .await
        .expect("taken");
    assert!(
        !is_removed(&engine, name).await,
        "a holder that never named it"
    );
    factory.close(engine).await;
    engine = factory.open().await.expect("opens again");
    assert!(download(&engine, name, 0, u64::MAX).await.expect("reads") == bytes);

    hand_over(&engine, name).await;
    assert!(matches!(
        download(&engine, name, 0, 10).await,
        Err(StoreError::NoBlob(_))
    ));
    assert!(
        download(&engine, other, 0, u64::MAX).await.expect("reads") == bytes,
        "another upload of the same bytes"
    );

    name_what_is_gone(&engine, name).await;

    factory.close(engine).await;
    engine = factory.open().await.expect("opens again");
    assert_eq!(engine.stat(name).await.expect("reads"), None);
    assert!(download(&engine, other, 0, u64::MAX).await.expect("reads") == bytes);
    factory.close(engine).await;
}

/// Hands a blob over: within one commit, and in commits of two partitions that may share a group. Then nothing names it.
async fn hand_over<E: LogStore + BlobStore>(engine: &E, name: BlobName) {
    engine
        .commit(records(Q, vec![release(name, "a"), reference(name, "c")]))
        .await
        .expect("taken");
    assert!(
        !is_removed(engine, name).await,
        "released and named again in one commit"
    );
    let handed = engine.commit(records(P, vec![reference(name, "d")]));
    let let_go = engine.commit(records(Q, vec![release(name, "c")]));
    handed.await.expect("taken");
    let_go.await.expect("taken");
    assert!(!is_removed(engine, name).await, "handed over");

    engine
        .commit(records(P, vec![reference(name, "d"), release(name, "d")]))
        .await
        .expect("taken");
    assert!(
        is_removed(engine, name).await,
        "a repeated reference counts once"
    );
}

/// What is gone is named by who knows that it comes again, and by others only when it is.
async fn name_what_is_gone<E: LogStore + BlobStore>(engine: &E, name: BlobName) {
    let late = records(Q, vec![super::put("late", ""), reference(name, "e")]);
    let refused = engine.commit(late.clone()).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    let mut coming = records(P, vec![reference(name, "f")]);
    coming.bodies_come = true;
    engine.commit(coming).await.expect("taken");
    engine.commit(late).await.expect("taken: it is named");
    // Let go of and named again by two that may share a group.
    let let_go = [(Q, "e"), (P, "f")];
    let let_go = let_go.map(|(of, holder)| engine.commit(records(of, vec![release(name, holder)])));
    let late = engine.commit(records(Q, vec![reference(name, "g")]));
    for let_go in let_go {
        let_go.await.expect("taken");
    }
    let refused = late.await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
}

async fn unnamed_are_swept<F: Factory>(factory: &mut F) {
    let mut engine = factory.open().await.expect("opens");
    let bytes = noise(3, 100_000);
    let named = upload(&engine, upload_id(1), &bytes, 50_000)
        .await
        .expect("uploads")
        .name;
    let unnamed = upload(&engine, upload_id(2), &bytes, 50_000)
        .await
        .expect("uploads")
        .name;
    engine
        .commit(records(P, vec![reference(named, "a")]))
        .await
        .expect("taken");
    let mut unfinished = engine.create(upload_id(3)).await.expect("begins");
    unfinished.write(bytes.clone()).await.expect("writes");
    drop(unfinished);
    assert!(
        engine.stat(unnamed).await.expect("reads").is_some(),
        "not before a restart: a reference may still come"
    );
    factory.close(engine).await;
    engine = factory.open().await.expect("opens again");
    assert_eq!(engine.stat(unnamed).await.expect("reads"), None);
    assert!(download(&engine, named, 0, u64::MAX).await.expect("reads") == bytes);
    for number in [2, 3] {
        let again = upload(&engine, upload_id(number), &Bytes::from_static(b"x"), 1)
            .await
            .expect("the id is free again");
        assert_eq!(
            download(&engine, again.name, 0, 10).await.expect("reads"),
            b"x"
        );
    }
    factory.close(engine).await;
}
