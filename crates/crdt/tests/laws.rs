//! The laws of the replicated types, on random causal histories of three replicas.

use proptest::prelude::*;
use whimbrel_crdt::{
    Context, DisableWins, Dot, DotSet, EnableWins, Hlc, Incarnation, Lww, OrMap, Stamp,
    VersionVector,
};

const REPLICAS: usize = 3;

fn origin(i: usize) -> Incarnation {
    Incarnation::new(i as u64 + 1).expect("not zero")
}

/// Everything at once: each operation acts on one of the types.
#[derive(Clone, Debug, PartialEq)]
struct All {
    enable: EnableWins,
    disable: DisableWins,
    register: Lww<u8>,
    map: OrMap<u8>,
    kept: DotSet,
}

impl All {
    fn new() -> Self {
        let never = Stamp {
            hlc: 0,
            origin: origin(0),
        };
        Self {
            enable: EnableWins::default(),
            disable: DisableWins::default(),
            register: Lww::new(never, 0),
            map: OrMap::default(),
            kept: DotSet::new(),
        }
    }

    fn apply(&mut self, op: &Op) {
        let context = op.context();
        match op.what % 9 {
            0 => self.enable.set(&context),
            1 => self.enable.unset(&context),
            2 => self.disable.set(&context),
            3 => self.disable.unset(&context),
            4 => drop(self.register.write(context.stamp, op.what)),
            5 => self.map.add(op.what / 9 % 3, &context),
            6 => self.map.remove(&(op.what / 9 % 3), &op.dots),
            7 => self.kept.supersede(&context),
            _ => self.kept.remove_seen(&context),
        }
    }

    fn join(&mut self, mine: &VersionVector, other: &Self, theirs: &VersionVector) {
        self.enable.join(mine, &other.enable, theirs);
        self.disable.join(mine, &other.disable, theirs);
        self.register.join(&other.register);
        self.map.join(mine, &other.map, theirs);
        self.kept.join(mine, &other.kept, theirs);
    }
}

#[derive(Clone, Debug)]
struct Op {
    dot: Dot,
    stamp: Stamp,
    deps: VersionVector,
    what: u8,
    dots: Vec<Dot>,
}

impl Op {
    fn context(&self) -> Context<'_> {
        Context {
            dot: self.dot,
            stamp: self.stamp,
            deps: &self.deps,
        }
    }
}

#[derive(Clone, Debug)]
struct Replica {
    state: All,
    vector: VersionVector,
    hlc: Hlc,
}

/// Plays steps: an operation at a replica, or a replica applying what it can of another's.
fn play(steps: &[(u8, u8, u8)]) -> (Vec<Replica>, Vec<Op>) {
    let fresh = Replica {
        state: All::new(),
        vector: VersionVector::new(),
        hlc: Hlc::default(),
    };
    let mut replicas = vec![fresh; REPLICAS];
    let mut ops: Vec<Op> = Vec::new();
    for (who, kind, what) in steps {
        let who = usize::from(*who) % REPLICAS;
        if kind % 3 == 0 {
            let from = usize::from(*what) % REPLICAS;
            let has = replicas[from].vector.clone();
            for op in &ops {
                let replica = &mut replicas[who];
                if has.covers(op.dot)
                    && !replica.vector.covers(op.dot)
                    && replica.vector.covers_all(&op.deps)
                {
                    replica.state.apply(op);
                    replica.vector.advance(op.dot.origin, op.dot.seq);
                    replica.hlc.observe(op.stamp.hlc);
                }
            }
        } else {
            let replica = &mut replicas[who];
            let dot = Dot::new(origin(who), replica.vector.get(origin(who)) + 1);
            let stamp = Stamp {
                hlc: replica.hlc.tick(u64::from(*kind)),
                origin: origin(who),
            };
            let dots = replica
                .state
                .map
                .dots(&(what / 9 % 3))
                .map(|dots| dots.as_slice().to_vec());
            let op = Op {
                dot,
                stamp,
                deps: replica.vector.clone(),
                what: *what,
                dots: dots.unwrap_or_default(),
            };
            replica.state.apply(&op);
            replica.vector.advance(dot.origin, dot.seq);
            ops.push(op);
        }
    }
    (replicas, ops)
}

fn joined(a: &Replica, b: &Replica) -> Replica {
    let mut result = a.clone();
    result.state.join(&a.vector, &b.state, &b.vector);
    result.vector.merge(&b.vector);
    result
}

fn same(a: &Replica, b: &Replica) -> bool {
    a.state == b.state && a.vector == b.vector
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn joins(steps in prop::collection::vec(any::<(u8, u8, u8)>(), 1..60)) {
        let (r, ops) = play(&steps);
        for a in &r {
            prop_assert!(same(&joined(a, a), a), "idempotent");
            for b in &r {
                prop_assert!(same(&joined(a, b), &joined(b, a)), "commutative");
                for c in &r {
                    prop_assert!(same(&joined(&joined(a, b), c), &joined(a, &joined(b, c))), "associative");
                }
                let mut applied = a.clone();
                for op in &ops {
                    if b.vector.covers(op.dot) && !a.vector.covers(op.dot) {
                        applied.state.apply(op);
                        applied.vector.advance(op.dot.origin, op.dot.seq);
                    }
                }
                prop_assert!(same(&joined(a, b), &applied), "join equals apply");
            }
        }
    }

    #[test]
    fn registers_by_definition(steps in prop::collection::vec(any::<(u8, u8, u8)>(), 1..60)) {
        let (r, ops) = play(&steps);
        let before = |a: &Op, b: &Op| b.context().saw(a.dot);
        for replica in &r {
            let known: Vec<&Op> = ops.iter().filter(|op| replica.vector.covers(op.dot)).collect();
            let of = |kinds: [u8; 2]| known.iter().copied().filter(move |op| kinds.contains(&(op.what % 9)));
            let last = |kinds| of(kinds).filter(move |op| !of(kinds).any(|other| before(op, other)));
            let set = last([0, 1]).any(|op| op.what % 9 == 0);
            prop_assert_eq!(replica.state.enable.is_set(), set);
            let set = of([2, 3]).next().is_some() && last([2, 3]).all(|op| op.what % 9 == 2);
            prop_assert_eq!(replica.state.disable.is_set(), set);
            let latest = known.iter().filter(|op| op.what % 9 == 4).max_by_key(|op| op.stamp);
            prop_assert_eq!(replica.state.register.value, latest.map_or(0, |op| op.what));
            for key in 0..3 {
                let on_key = |op: &&Op| op.what / 9 % 3 == key;
                let there = of([5, 5]).filter(on_key).any(|add| !of([6, 6]).filter(on_key).any(|rm| before(add, rm)));
                prop_assert_eq!(replica.state.map.contains(&key), there);
            }
        }
    }

    #[test]
    fn vectors(a in pairs(), b in pairs()) {
        let (a, b): (VersionVector, VersionVector) = (a.into_iter().collect(), b.into_iter().collect());
        let mut both = a.clone();
        both.merge(&b);
        let mut common = a.clone();
        common.meet(&b);
        prop_assert!(both.covers_all(&a) && both.covers_all(&b) && a.covers_all(&common) && b.covers_all(&common));
        prop_assert_eq!(a <= b, b.covers_all(&a));
        prop_assert_eq!(a.partial_cmp(&b).is_none(), !a.covers_all(&b) && !b.covers_all(&a));
        for (origin, seq) in both.iter() {
            prop_assert_eq!(seq, a.get(origin).max(b.get(origin)));
            prop_assert_eq!(common.get(origin), a.get(origin).min(b.get(origin)));
        }
    }

    #[test]
    fn clocks(walls in prop::collection::vec((any::<bool>(), 0..1_000u64), 1..100)) {
        let mut clock = Hlc::restore(50);
        for (foreign, time) in walls {
            let last = clock.last();
            if foreign {
                clock.observe(time);
                prop_assert_eq!(clock.last(), last.max(time));
            } else {
                prop_assert_eq!(clock.tick(time), (last + 1).max(time));
            }
        }
        let first = clock.tick_many(0, 5);
        prop_assert_eq!(clock.last(), first + 4);
    }
}

fn pairs() -> impl Strategy<Value = Vec<(Incarnation, u64)>> {
    prop::collection::vec(((0..4usize).prop_map(origin), 0..4u64), 0..5)
}
