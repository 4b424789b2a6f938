//! A million tuples: memory, what a link-up exchanges, how much one input does, and how fast lists are mended. Times are printed, counts are checked.

use std::time::{Duration, Instant};

use bytes::Bytes;
use whimbrel_queue::{
    Choice, Config, Id, Input, Node, Nodes, Now, Output, Owners, Ownership, Queue, Record, Start,
};

use crate::world::{self, SECOND, node};

const MILLION: u64 = 1_000_000;

fn id(number: u64) -> Id {
    // 200 a second.
    Id::new(number * 5000, number)
}

fn ownership(owners: &[usize]) -> Ownership {
    let owners: Owners = owners.iter().map(|at| node(*at)).collect();
    Ownership {
        owners,
        term: 1,
        holders: owners.set(),
        tracked: true,
        priority: 1,
        not_before: u64::MAX,
        progress: Bytes::new(),
    }
}

struct Site {
    queue: Queue,
    now: u64,
    /// The longest that one input took, and the most that came of it.
    longest: Duration,
    most: usize,
    writes: usize,
}

impl Site {
    fn new(me: usize, members: usize, of: impl Iterator<Item = u64>, owners: &[usize]) -> Site {
        let config = Config {
            choice: Choice::Nearest(0),
            ..world::config(1)
        };
        let members: Nodes = (0..members).map(node).collect();
        let start = Start {
            me: node(me),
            members,
            life: 1,
            former: Nodes::NONE,
            seed: me as u64,
        };
        let mut queue = Queue::new(config, start, Now::default());
        let record = Record::Tuple {
            ownership: ownership(owners),
            sent: Nodes::NONE,
            life: 1,
        };
        for number in of {
            queue.load(id(number), record.clone());
        }
        queue.begin();
        Site {
            queue,
            now: 0,
            longest: Duration::ZERO,
            most: 0,
            writes: 0,
        }
    }

    fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let begun = Instant::now();
            let now = Now {
                monotonic: self.now,
                unix: self.now,
            };
            self.queue.handle(now, input);
            self.longest = self.longest.max(begun.elapsed());
            let before = inputs.len();
            while let Some(output) = self.queue.poll() {
                match output {
                    Output::Write { id, .. } => {
                        self.writes += 1;
                        inputs.push(Input::Written(id));
                    }
                    Output::Read(id) => {
                        inputs.push(Input::Payload(id, Some(Bytes::from_static(&[7; 300]))));
                    }
                    _ => {}
                }
            }
            self.most = self.most.max(inputs.len() - before);
        }
    }

    /// Time passes, in steps in which other inputs could come.
    fn pass(&mut self, to: u64) {
        self.now = to;
        while self.queue.deadline().is_some_and(|due| due <= to) {
            self.input(Input::Time);
        }
    }
}

/// All frames arrive; how many bytes they were.
fn exchange(one: &mut Site, other: &mut Site, names: (Node, Node)) -> usize {
    let mut bytes = 0;
    loop {
        let before = bytes;
        while let Some(frame) = one.queue.transmit(names.1) {
            bytes += frame.encode().len();
            other.input(Input::Frame(names.0, frame));
        }
        while let Some(frame) = other.queue.transmit(names.0) {
            bytes += frame.encode().len();
            one.input(Input::Frame(names.1, frame));
        }
        if bytes == before {
            return bytes;
        }
    }
}

fn link(one: &mut Site, other: &mut Site, names: (Node, Node)) -> usize {
    one.input(Input::Linked(names.1));
    other.input(Input::Linked(names.0));
    exchange(one, other, names)
}

#[test]
fn a_million_tuples_of_which_few_differ() {
    let begun = Instant::now();
    let mut one = Site::new(0, 2, 0..MILLION - 5, &[0, 1]);
    let loaded = begun.elapsed();
    let mut other = Site::new(
        1,
        2,
        (0..MILLION - 40).chain(MILLION - 20..MILLION),
        &[0, 1],
    );
    let memory = one.queue.table_bytes() as u64 / MILLION;
    let begun = Instant::now();
    let bytes = link(&mut one, &mut other, (node(0), node(1)));
    println!(
        "a million tuples: loaded in {loaded:?}, {memory} bytes each; linked in {:?} with {bytes} bytes, at most {:?} at a time",
        begun.elapsed(),
        one.longest.max(other.longest)
    );
    assert!(memory <= 96, "{memory}");
    assert!(bytes <= 200_000, "{bytes}");
    // The acting owner has stored again what the other one had not.
    assert_eq!(other.queue.len() as u64, MILLION);
    assert!(one.queue.compared().contains(node(1)));
}

#[test]
fn a_million_tuples_are_adopted_bit_by_bit() {
    let mut one = Site::new(1, 3, 0..MILLION, &[0, 1]);
    let mut third = Site::new(2, 3, 0..0, &[0, 1]);
    let names = (node(1), node(2));
    let _ = link(&mut one, &mut third, names);
    let begun = Instant::now();
    for second in 1..200 {
        for at in [&mut one, &mut third] {
            at.pass(second * SECOND);
        }
        let _ = exchange(&mut one, &mut third, names);
        if one.queue.counters().adopted == MILLION {
            println!("adopted after {second} s of the clock");
            break;
        }
    }
    println!(
        "a million tuples adopted in {:?}, at most {:?} and {} writes at a time",
        begun.elapsed(),
        one.longest,
        one.most
    );
    assert_eq!(one.queue.counters().adopted, MILLION);
    // Eight questions of a thousand ids may end together.
    assert!(one.most <= 9000, "{}", one.most);
}

#[test]
fn lists_are_mended_at_a_bounded_rate_until_the_peer_is_back() {
    const COUNT: u64 = 200_000;
    let mut one = Site::new(0, 3, 0..COUNT, &[0, 1]);
    let mut second = Site::new(1, 3, 0..COUNT, &[0, 1]);
    let mut third = Site::new(2, 3, 0..0, &[0, 1]);
    let _ = link(&mut one, &mut third, (node(0), node(2)));
    let (mut mended, mut now) = (Vec::new(), 0);
    for second in 1..40 {
        for at in [&mut one, &mut third] {
            at.pass(second * SECOND);
        }
        let _ = exchange(&mut one, &mut third, (node(0), node(2)));
        mended.push(one.queue.counters().repaired);
        now = second * SECOND;
        if one.queue.counters().repaired > COUNT / 4 {
            break;
        }
    }
    // 4 MiB a second, at 400 bytes of payload and frame, and 200 for the list.
    let most = mended
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap_or(0);
    let all = mended.last().copied().unwrap_or(0);
    println!("mended: {all} of {COUNT}, at most {most} a second");
    assert!(all > 10_000, "{all}");
    assert!(most <= 2 * (4 << 20) / 200, "{most}");
    assert!(all < COUNT, "it was over before it could be stopped");
    second.now = now;
    let _ = link(&mut one, &mut second, (node(0), node(1)));
    let before = one.queue.counters().repaired;
    for _ in 0..20 {
        now += SECOND;
        for site in [&mut one, &mut second, &mut third] {
            site.pass(now);
        }
        let _ = exchange(&mut one, &mut third, (node(0), node(2)));
        let _ = exchange(&mut one, &mut second, (node(0), node(1)));
    }
    assert_eq!(one.queue.counters().repaired, before);
}
