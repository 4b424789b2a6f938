//! The model against the conformance suite, and its own crash semantics and faults.

use std::future::Future;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::{Faults, Memory, MemoryStore};
use crate::conformance::{self, Factory};
use crate::{Commit, KeyRange, LogStore, Mutation, PartitionId, Room, ScanLimit, StoreError};

const P: PartitionId = PartitionId(1);

/// Polls until done: the model's futures make progress with each poll and need nobody else.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

struct Model {
    memory: Memory,
    sync_polls: u32,
}

impl Factory for Model {
    type Engine = MemoryStore;

    async fn open(&mut self) -> Result<MemoryStore, StoreError> {
        let store = MemoryStore::over(std::mem::take(&mut self.memory));
        store.set_sync_polls(self.sync_polls);
        Ok(store)
    }

    async fn close(&mut self, engine: MemoryStore) {
        self.memory = engine.take();
        self.memory.reopen();
    }

    async fn crash(&mut self, engine: MemoryStore, seed: u64) {
        self.memory = engine.take();
        self.memory.crash(seed);
    }
}

#[test]
fn the_model_conforms_on_a_quick_and_on_a_slow_disk() {
    for sync_polls in [1, 7] {
        block_on(conformance::run(|| Model {
            memory: Memory::new(),
            sync_polls,
        }));
    }
}

fn put(key: &'static str) -> Commit {
    Commit {
        mutations: vec![Mutation::Put {
            key: key.into(),
            value: "".into(),
        }],
        ..Commit::new(P)
    }
}

fn keys(memory: &Memory) -> Vec<String> {
    let page = memory.scan(P, &KeyRange::all(), ScanLimit::default());
    page.rows
        .iter()
        .map(|(key, _)| String::from_utf8(key.to_vec()).unwrap())
        .collect()
}

#[test]
fn a_crash_keeps_what_was_synced_and_any_prefix_of_the_rest() {
    let mut seen = [false; 4];
    for seed in 0..100 {
        let mut memory = Memory::new();
        memory.write(put("a")).unwrap();
        let mark = memory.begin_sync();
        // Written while the sync is under way: not covered by it.
        memory.write(put("b")).unwrap();
        memory.complete_sync(mark).unwrap();
        memory.write(put("c")).unwrap();
        memory.write(put("d")).unwrap();
        assert_eq!(keys(&memory), ["a", "b", "c", "d"]);
        memory.crash(seed);
        let kept = keys(&memory);
        assert_eq!(kept, ["a", "b", "c", "d"][..kept.len()]);
        seen[kept.len() - 1] = true;
        assert_eq!(memory.unsynced(), 0);
    }
    assert_eq!(seen, [true; 4], "a hundred seeds keep each possible prefix");
}

#[test]
fn a_full_disk_refuses_to_add_and_lets_remove() {
    let mut memory = Memory::new();
    memory.write(put("a")).unwrap();
    memory.faults = Faults {
        full: true,
        ..Faults::default()
    };
    let error = memory.write(put("b")).unwrap_err();
    assert!(error.is_temporary() && !error.stops_node(), "{error}");
    let delete = Commit {
        mutations: vec![Mutation::Delete { key: "a".into() }],
        ..Commit::new(P)
    };
    memory.write(delete).unwrap();
    assert!(keys(&memory).is_empty());
    // What the node cannot do without.
    let vital = Commit {
        room: Room::Vital,
        ..put("vital")
    };
    memory.write(vital).unwrap();
    assert_eq!(keys(&memory), ["vital"]);
    let frees = Commit {
        room: Room::Frees,
        ..put("frees")
    };
    assert!(memory.write(frees.clone()).unwrap_err().is_temporary());
    memory.faults = Faults {
        below_reserve: true,
        ..Faults::default()
    };
    assert!(memory.write(put("b")).unwrap_err().is_temporary());
    memory.write(frees).unwrap();
    let gone = Commit {
        mutations: vec![Mutation::Delete {
            key: "frees".into(),
        }],
        ..Commit::new(P)
    };
    memory.write(gone).unwrap();
    memory.faults = Faults::default();
    memory.write(put("b")).unwrap();
    assert_eq!(keys(&memory), ["b", "vital"]);
}

#[test]
fn a_failed_sync_poisons_for_everyone() {
    let store = MemoryStore::new();
    store.set_sync_polls(3);
    block_on(store.commit(put("before"))).unwrap();
    store.with(|memory| memory.faults.sync_fails = true);
    let under_way = store.commit(put("under way"));
    let waiting = store.commit(put("waiting"));
    for result in [block_on(waiting), block_on(under_way)] {
        assert!(result.unwrap_err().stops_node());
    }
    // The disk is good again; the store is not, since nobody knows what it holds.
    store.with(|memory| memory.faults.sync_fails = false);
    assert!(
        block_on(store.commit(put("after")))
            .unwrap_err()
            .stops_node()
    );
    let mut memory = store.take();
    memory.crash(0);
    let kept = keys(&memory);
    assert!(
        kept.contains(&"before".to_owned()) && !kept.contains(&"after".to_owned()),
        "{kept:?}"
    );
}

#[test]
fn commits_share_syncs() {
    let store = MemoryStore::new();
    store.set_sync_polls(5);
    let under_way: Vec<_> = (0..20).map(|_| store.commit(put("key"))).collect();
    for commit in under_way {
        block_on(commit).unwrap();
    }
    assert_eq!(
        store.totals(),
        (2, 20),
        "the first alone, at once; the others together"
    );
}
