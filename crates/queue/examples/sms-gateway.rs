//! Three gateways take text messages from customers and give them to an operator, who answers slowly or not at all. One gateway is killed, and its disk
//! is lost; the others send what it had accepted. Channels stand for connections.
//!
//! `cargo run --example sms-gateway`

use std::{
    collections::HashMap,
    process::ExitCode,
    sync::LazyLock,
    sync::mpsc::{Receiver, Sender, channel},
    thread::{sleep, spawn},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use whimbrel_queue::{Change, Config, Id, Input, Node, Nodes, Now, Output, Queue, Start, Tuple};

const GATEWAYS: u8 = 3;

enum Event {
    Queue(Input),
    /// A customer's message, and where the answer goes.
    Message(String, Sender<bool>),
    Kill,
}

/// A message for the operator, and where the answer goes.
type Delivery = (Id, String, Sender<Event>);

struct Gateway {
    me: Node,
    queue: Queue,
    peers: HashMap<Node, Sender<Event>>,
    operator: Sender<Delivery>,
    /// A real one is synced before a write is confirmed.
    disk: HashMap<Id, Bytes>,
    /// By the number of their ticket.
    customers: Vec<Sender<bool>>,
}

fn now() -> Now {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let unix = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Now {
        monotonic: BEGUN.elapsed().as_micros() as u64,
        unix: unix.as_micros() as u64,
    }
}

fn node(number: u8) -> Node {
    Node::new(number).unwrap_or_default()
}

impl Gateway {
    fn run(mut self, events: &Receiver<Event>) {
        loop {
            let due = self.queue.deadline().unwrap_or(0);
            let wait = Duration::from_micros(due.saturating_sub(now().monotonic));
            match events.recv_timeout(wait) {
                Ok(Event::Kill) => return,
                Ok(Event::Queue(input)) => self.input(input),
                Ok(Event::Message(text, customer)) => {
                    let ticket = self.customers.len() as u64;
                    self.customers.push(customer);
                    let id = Id::new(now().unix, ticket << 8 | u64::from(self.me.number()));
                    let tuples = vec![Tuple::new(id, text)];
                    self.input(Input::Put { ticket, tuples });
                }
                Err(_) => self.input(Input::Time),
            }
        }
    }

    fn input(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.queue.handle(now(), input);
            while let Some(output) = self.queue.poll() {
                inputs.extend(self.output(output));
            }
        }
    }

    /// Does what the queue asks for; what follows from that.
    fn output(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Write { id, change, .. } => {
                match change {
                    Change::Tuple(_, Some(text)) => drop(self.disk.insert(id, text)),
                    Change::Tuple(_, None) => {}
                    Change::Tombstone(_) | Change::Remove => drop(self.disk.remove(&id)),
                }
                return Some(Input::Written(id));
            }
            Output::Read(id) => return Some(Input::Payload(id, self.disk.get(&id).cloned())),
            Output::Accepted(ticket) | Output::Refused(ticket, _) => {
                let accepted = matches!(output, Output::Accepted(_));
                let _ = self.customers.get(ticket as usize)?.send(accepted);
            }
            Output::Mine(id, _) => {
                let text = String::from_utf8_lossy(self.disk.get(&id)?).into_owned();
                let back = self.peers.get(&self.me)?.clone();
                let _ = self.operator.send((id, text, back));
            }
            Output::Wake(peer) => {
                while let Some(frame) = self.queue.transmit(peer) {
                    let frame = Event::Queue(Input::Frame(self.me, frame));
                    let _ = self.peers.get(&peer)?.send(frame);
                }
            }
            Output::Close(peer, _) => return Some(Input::Unlinked(peer)),
            _ => {}
        }
        None
    }
}

/// The operator: how often each message came. One in ten is never answered; its gateway tries again after a second.
fn operate(deliveries: &Receiver<Delivery>) -> HashMap<String, u32> {
    let mut received = HashMap::new();
    for (number, (id, text, gateway)) in (0..).zip(deliveries) {
        sleep(Duration::from_millis(1));
        let answer = if number % 10 == 9 {
            Input::Later(id, now().unix + 1_000_000)
        } else {
            *received.entry(text).or_default() += 1;
            Input::Done(id)
        };
        let _ = gateway.send(Event::Queue(answer));
    }
    received
}

fn start(me: u8, events: Receiver<Event>, all: &[Sender<Event>], operator: Sender<Delivery>) {
    let start = Start {
        me: node(me),
        members: (0..GATEWAYS).map(node).collect::<Nodes>(),
        life: 1,
        former: Nodes::NONE,
        seed: u64::from(me),
    };
    let config = Config {
        handed_max: 4, // What the operator has when a gateway dies comes twice.
        silent_after: 300_000,
        takeover_after: 900_000,
        wave_every: 100_000,
        ..Config::default()
    };
    let mut gateway = Gateway {
        me: start.me,
        queue: Queue::new(config, start, now()),
        peers: (0..).map(node).zip(all.iter().cloned()).collect(),
        operator,
        disk: HashMap::new(),
        customers: Vec::new(),
    };
    gateway.queue.begin();
    for peer in (0..GATEWAYS).filter(|peer| *peer != me).map(node) {
        gateway.input(Input::Linked(peer));
    }
    let _ = spawn(move || gateway.run(&events));
}

pub(crate) fn main() -> ExitCode {
    let (operator, deliveries) = channel();
    let operator_ends = spawn(move || operate(&deliveries));
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..GATEWAYS).map(|_| channel()).unzip();
    for (me, events) in (0..GATEWAYS).zip(receivers) {
        start(me, events, &senders, operator.clone());
    }
    drop(operator);
    let mut accepted = Vec::new();
    for number in 0..900 {
        let text = format!("message {number}");
        if number == 450 {
            let _ = senders[0].send(Event::Kill);
        }
        // A customer whose gateway does not answer goes to the next one.
        for gateway in senders.iter().cycle().skip(number % 3).take(3) {
            let (customer, answer) = channel();
            let _ = gateway.send(Event::Message(text.clone(), customer));
            if answer.recv_timeout(Duration::from_millis(500)) == Ok(true) {
                accepted.push(text);
                break;
            }
        }
    }
    sleep(Duration::from_secs(8));
    for gateway in senders {
        let _ = gateway.send(Event::Kill);
    }
    let received = operator_ends.join().unwrap_or_default();
    let is_lost = |text: &&String| !received.contains_key(*text);
    let lost = accepted.iter().filter(is_lost).count();
    let sent: u32 = received.values().sum();
    let doubled = sent as usize - received.len();
    let accepted = accepted.len();
    println!("accepted {accepted}, sent {sent}, duplicated {doubled}, lost {lost}");
    ExitCode::from(u8::from(lost > 0))
}
