//! A node on real sockets and a real disk: a thread for the machine, one for the log, one for each peer that reads what it sends.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{Shutdown, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustix::time::{ClockId, clock_gettime};
use whimbrel_queue::{Id, Input, Node as Peer, Now};

use super::{
    link::{self, Message},
    log::{Log, Syncs},
    site::{Setting, Site, Tally},
};
use crate::error::{Result, Trouble, io_at, wrong};

/// What has come together is taken at once, up to this: then it is written and sent.
const EVENTS_AT_ONCE: usize = 256;
/// Between two looks at how long the way to a peer is.
const PING_EVERY_MICROS: u64 = 1_000_000;

/// What the machine's thread hears of.
enum Event {
    Linked(u8, TcpStream),
    Messages(u8, Vec<Message>),
    Unlinked(u8, Result<()>),
    Written(Vec<Id>),
    Begin,
    Measure(bool),
    Stop,
    End,
}

/// What others see of a node while it runs.
#[derive(Default)]
struct Seen {
    accepted: AtomicU64,
    done: AtomicU64,
    ready: AtomicBool,
    empty: AtomicBool,
}

/// A node that runs.
pub(super) struct Node {
    me: u8,
    log: PathBuf,
    events: Sender<Event>,
    seen: Arc<Seen>,
    machine: thread::JoinHandle<Result<Ended>>,
    disk: thread::JoinHandle<Result<Syncs>>,
    readers: Vec<thread::JoinHandle<()>>,
}

/// What a node leaves.
pub(super) struct Ended {
    pub(super) tally: Tally,
    pub(super) accepted: u64,
    pub(super) done: u64,
    pub(super) replaced: u64,
    /// CPU of the machine, of frames and of records, without sockets, disk and threads.
    pub(super) machine_seconds: f64,
    /// Writes to sockets, and readings that brought something.
    pub(super) operations: u64,
    /// How long each sync took, in microseconds.
    pub(super) syncs: Syncs,
    /// Tuples and tombstones in the log.
    pub(super) left: usize,
}

/// The names of all threads of a node begin so.
pub(super) fn threads_of(me: usize) -> String {
    format!("queue-{me}-")
}

/// The names of the threads of all nodes begin so.
pub(super) const THREADS: &str = "queue-";

impl Node {
    /// Starts a node. All nodes of a run have the same beginning of time.
    pub(super) fn start(setting: Setting, log: PathBuf, began: Instant) -> Result<Node> {
        let me = u8::try_from(setting.me).unwrap_or(u8::MAX);
        let name = threads_of(setting.me);
        let (events, received) = channel();
        let seen = Arc::new(Seen::default());
        let back = events.clone();
        let written = move |ids| {
            // The node has ended: nobody wants to know.
            let _ = back.send(Event::Written(ids));
        };
        let (disk_log, disk) = Log::new(&log, format!("{name}log"), written)?;
        let running = Running {
            site: Site::new(setting, now(began)),
            log: disk_log,
            links: BTreeMap::new(),
            seen: seen.clone(),
            began,
            ping_at: 0,
            round_trips: BTreeMap::new(),
            stopped: false,
            buffer: Vec::new(),
            machine_nanos: 0,
            operations: 0,
        };
        let machine = thread::Builder::new()
            .name(format!("{name}machine"))
            .spawn(move || running.run(&received))
            .map_err(io_at("a thread"))?;
        Ok(Node {
            me,
            log,
            events,
            seen,
            machine,
            disk,
            readers: Vec::new(),
        })
    }

    /// Gives it a connection to a peer.
    pub(super) fn link(&mut self, peer: u8, stream: TcpStream) -> Result<()> {
        let reading = stream.try_clone().map_err(io_at("a link"))?;
        let events = self.events.clone();
        // Before anything that comes over it.
        let _ = self.events.send(Event::Linked(peer, stream));
        let reader = thread::Builder::new()
            .name(format!("{}{peer}", threads_of(self.me.into())))
            .spawn(move || {
                let take = |messages| events.send(Event::Messages(peer, messages)).is_ok();
                let ended = link::read_all(reading, take);
                let _ = events.send(Event::Unlinked(peer, ended));
            })
            .map_err(io_at("a thread"))?;
        self.readers.push(reader);
        Ok(())
    }

    fn tell(&self, event: Event) {
        // If it has ended, `end` says why.
        let _ = self.events.send(event);
    }

    pub(super) fn begin(&self) {
        self.tell(Event::Begin);
    }

    pub(super) fn measure(&self, measuring: bool) {
        self.tell(Event::Measure(measuring));
    }

    pub(super) fn stop(&self) {
        self.tell(Event::Stop);
    }

    /// Messages of its own that are accepted and done.
    pub(super) fn done(&self) -> u64 {
        self.seen.done.load(Ordering::Relaxed)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.seen.ready.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seen.empty.load(Ordering::Relaxed)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.machine.is_finished()
    }

    /// Has it end.
    pub(super) fn close(&self) {
        self.tell(Event::End);
    }

    /// Waits for its end and reads its log again.
    pub(super) fn ended(self) -> Result<Ended> {
        drop(self.events);
        let panicked = || Trouble::Wrong("a thread panicked".into());
        let mut ended = self.machine.join().map_err(|_| panicked())??;
        ended.syncs = self.disk.join().map_err(|_| panicked())??;
        for reader in self.readers {
            reader.join().map_err(|_| panicked())?;
        }
        ended.left = super::log::left(&self.log)?;
        Ok(ended)
    }
}

fn now(began: Instant) -> Now {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let unix = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Now {
        monotonic: micros(began.elapsed()),
        unix: micros(unix),
    }
}

/// CPU of this thread so far.
pub(super) fn thread_cpu_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The machine's thread.
struct Running {
    site: Site,
    log: Log,
    links: BTreeMap<u8, TcpStream>,
    seen: Arc<Seen>,
    began: Instant,
    ping_at: u64,
    /// The shortest that was seen to each peer.
    round_trips: BTreeMap<u8, u64>,
    /// All nodes are about to end.
    stopped: bool,
    buffer: Vec<u8>,
    machine_nanos: u64,
    operations: u64,
}

impl Running {
    fn run(mut self, events: &Receiver<Event>) -> Result<Ended> {
        let result = self.work(events);
        for stream in self.links.values() {
            // So that readers at both ends stop.
            let _ = stream.shutdown(Shutdown::Both);
        }
        result?;
        self.site.verify()?;
        Ok(Ended {
            accepted: self.site.accepted,
            done: self.site.done,
            replaced: self.site.replaced(),
            tally: self.site.tally,
            machine_seconds: self.machine_nanos as f64 / 1e9,
            operations: self.operations,
            syncs: Syncs::new(),
            left: 0,
        })
    }

    fn work(&mut self, events: &Receiver<Event>) -> Result<()> {
        loop {
            let due = self.site.deadline().unwrap_or(u64::MAX).min(self.ping_at);
            let wait = due.saturating_sub(now(self.began).monotonic);
            let first = match events.recv_timeout(Duration::from_micros(wait)) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            let before = thread_cpu_nanos();
            let timed_out = first.is_none();
            let more = std::iter::from_fn(|| events.try_recv().ok());
            for event in first.into_iter().chain(more.take(EVENTS_AT_ONCE)) {
                if !self.event(event)? {
                    return Ok(());
                }
            }
            if timed_out {
                self.site.time(now(self.began));
            }
            while !self.site.reads.is_empty() {
                for id in std::mem::take(&mut self.site.reads) {
                    let payload = self.log.read(id)?;
                    let at = now(self.began);
                    self.site.input(at, Input::Payload(id, payload));
                }
            }
            for (id, change) in self.site.writes.drain(..) {
                self.log.append(id, &change);
            }
            self.machine_nanos += thread_cpu_nanos() - before;
            self.log.flush();
            self.send()?;
            self.show();
        }
    }

    /// Whether it goes on.
    fn event(&mut self, event: Event) -> Result<bool> {
        let at = now(self.began);
        match event {
            Event::Linked(number, stream) => {
                self.links.insert(number, stream);
                self.site.input(at, Input::Linked(peer(number)));
                self.ping_at = 0;
            }
            Event::Messages(number, messages) => {
                self.operations += 1;
                for message in messages {
                    self.message(number, message)?;
                }
            }
            Event::Unlinked(number, _) if self.stopped => drop(self.links.remove(&number)),
            Event::Unlinked(number, ended) => {
                ended?;
                return wrong(format!("node {number} has ended its link"));
            }
            Event::Written(ids) => {
                for id in ids {
                    self.site.input(at, Input::Written(id));
                }
            }
            Event::Begin => self.site.begin(at),
            Event::Measure(measuring) => self.site.measure(measuring),
            Event::Stop => {
                self.stopped = true;
                self.site.stop();
            }
            Event::End => return Ok(false),
        }
        Ok(true)
    }

    fn message(&mut self, from: u8, message: Message) -> Result<()> {
        let at = now(self.began);
        match message {
            Message::Frame(frame) => self.site.input(at, Input::Frame(peer(from), frame)),
            Message::Ping(sent) => {
                let mut answer = Vec::new();
                Message::Pong(sent).encode(&mut answer);
                self.write(from, &answer)?;
            }
            Message::Pong(sent) => {
                let took = at.monotonic.saturating_sub(sent);
                let shortest = self.round_trips.entry(from).or_insert(took);
                *shortest = took.min(*shortest);
                let input = Input::RoundTrip(peer(from), *shortest);
                self.site.input(at, input);
            }
        }
        Ok(())
    }

    /// Sends what there is for each peer, in one write. Readers at the other end take everything, so that a write ends.
    fn send(&mut self) -> Result<()> {
        let at = now(self.began).monotonic;
        if at >= self.ping_at {
            self.ping_at = at + PING_EVERY_MICROS;
            let mut ping = Vec::new();
            Message::Ping(at).encode(&mut ping);
            let peers: Vec<u8> = self.links.keys().copied().collect();
            for number in peers {
                self.write(number, &ping)?;
            }
        }
        for to in std::mem::take(&mut self.site.awake).iter() {
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.clear();
            let before = thread_cpu_nanos();
            self.site.transmit(to, &mut buffer);
            self.machine_nanos += thread_cpu_nanos() - before;
            self.write(to.number(), &buffer)?;
            self.buffer = buffer;
        }
        Ok(())
    }

    fn write(&mut self, to: u8, bytes: &[u8]) -> Result<()> {
        self.operations += 1;
        match self
            .links
            .get_mut(&to)
            .map(|stream| stream.write_all(bytes))
        {
            Some(Err(error)) if !self.stopped => Err(io_at("write to a link")(error)),
            _ => Ok(()),
        }
    }

    fn show(&self) {
        let seen = &self.seen;
        seen.accepted.store(self.site.accepted, Ordering::Relaxed);
        seen.done.store(self.site.done, Ordering::Relaxed);
        seen.empty.store(self.site.is_empty(), Ordering::Relaxed);
        if !seen.ready.load(Ordering::Relaxed) {
            seen.ready.store(self.site.is_ready(), Ordering::Relaxed);
        }
    }
}

fn peer(number: u8) -> Peer {
    Peer::new(number).unwrap_or_default()
}
