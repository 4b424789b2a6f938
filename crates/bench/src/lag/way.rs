//! What lies between two nodes: bytes take their time, or do not come.
//!
//! It stands in for a long line: a stream that is opened gives nothing before a round trip is over, then each byte comes one delay later than it was
//! sent, however many are on the way (up to [`BYTES_MAX`]). Each pair of nodes has a delay of its own.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::error::{Result, io_at};

/// Read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// On the way in one direction of a stream: 100 MB/s at a delay of 160 ms.
const BYTES_MAX: usize = 16 << 20;

/// All ways between some nodes.
#[derive(Clone, Default)]
pub struct Ways(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    carried_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// In one direction, for pairs of nodes that have one of their own.
    delays: BTreeMap<[usize; 2], Duration>,
    /// For all others.
    delay: Duration,
    cut_off: Option<usize>,
    next: u64,
    /// With their ends.
    streams: BTreeMap<u64, ([usize; 2], TcpStream)>,
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

impl Ways {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A way from one node to another's port; its own port. Its threads end with the program.
    pub fn open(&self, from: usize, to: usize, port: u16) -> Result<u16> {
        self.open_for(to, port, move |_| Some(from))
    }

    /// A way to a node's port for all others that reach it under one address. Who connects follows from the other end's port; a stranger is turned away.
    pub fn open_for(
        &self,
        to: usize,
        port: u16,
        who: impl Fn(u16) -> Option<usize> + Send + 'static,
    ) -> Result<u16> {
        let listener = TcpListener::bind(local(0)).map_err(io_at("a way between nodes"))?;
        let own = listener
            .local_addr()
            .map_err(io_at("a way between nodes"))?;
        let ways = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let source = stream.peer_addr().ok();
                if let Some(from) = source.and_then(|source| who(source.port())) {
                    // A node that does not listen closes it, too.
                    let _ = ways.carry([from, to], stream, port);
                }
            }
        });
        Ok(own.port())
    }

    /// Between all nodes. From now on, also for what is sent on streams that are there.
    pub fn set_delay(&self, one_way: Duration) {
        let mut state = self.state();
        state.delays.clear();
        state.delay = one_way;
    }

    /// Between two nodes, in both directions.
    pub fn set_delay_between(&self, ends: [usize; 2], one_way: Duration) {
        let [one, other] = ends;
        let mut state = self.state();
        for pair in [[one, other], [other, one]] {
            state.delays.insert(pair, one_way);
        }
    }

    fn delay(&self, ends: [usize; 2]) -> Duration {
        let state = self.state();
        state.delays.get(&ends).copied().unwrap_or(state.delay)
    }

    /// Bytes that all streams have taken so far, in both directions.
    #[must_use]
    pub fn carried_bytes(&self) -> u64 {
        self.0.carried_bytes.load(Ordering::Relaxed)
    }

    /// Ends all streams of this node, and lets none be made.
    pub fn cut_off(&self, node: usize) {
        let mut state = self.state();
        state.cut_off = Some(node);
        for (ends, stream) in state.streams.values() {
            if ends.contains(&node) {
                // It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// All ways are open.
    pub fn heal(&self) {
        self.state().cut_off = None;
    }

    fn carry(&self, ends: [usize; 2], near: TcpStream, port: u16) -> std::io::Result<()> {
        let opened = Instant::now();
        let far = TcpStream::connect(local(port))?;
        let mut state = self.state();
        if state.cut_off.is_some_and(|node| ends.contains(&node)) {
            return Ok(());
        }
        for (from, to) in [(&near, &far), (&far, &near)] {
            from.set_nodelay(true)?;
            let number = state.next;
            state.next += 1;
            state.streams.insert(number, (ends, from.try_clone()?));
            let line = Arc::new(Line::default());
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let (ways, into) = (self.clone(), line.clone());
            thread::spawn(move || {
                ways.take(from, &into, ends, opened);
                into.end();
                ways.state().streams.remove(&number);
            });
            thread::spawn(move || give(to, &line));
        }
        Ok(())
    }

    fn take(&self, mut from: TcpStream, to: &Line, ends: [usize; 2], opened: Instant) {
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(length) = from.read(&mut buffer)
            && length > 0
        {
            let carried = u64::try_from(length).unwrap_or(0);
            self.0.carried_bytes.fetch_add(carried, Ordering::Relaxed);
            let delay = self.delay(ends);
            let due = Instant::now().max(opened + 2 * delay) + delay;
            if !to.put(due, &buffer[..length]) {
                break;
            }
        }
    }
}

/// One direction of a stream: what is on its way.
#[derive(Default)]
struct Line {
    state: Mutex<OnTheWay>,
    changed: Condvar,
}

#[derive(Default)]
struct OnTheWay {
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    /// Nothing more comes, or nobody takes it.
    ended: bool,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, OnTheWay> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    /// Waits while too much is on its way; false if nobody takes it any more.
    fn put(&self, due: Instant, bytes: &[u8]) -> bool {
        let state = self.state();
        let full = |state: &mut OnTheWay| state.bytes > BYTES_MAX && !state.ended;
        let waited = self.changed.wait_while(state, full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return false;
        }
        state.bytes += bytes.len();
        state.chunks.push_back((due, bytes.to_vec()));
        self.changed.notify_all();
        true
    }

    /// What has arrived, as soon as there is something: all of it, since one write is cheaper than many. None at the end.
    fn next(&self) -> Option<Vec<u8>> {
        let state = self.state();
        let empty = |state: &mut OnTheWay| state.chunks.is_empty() && !state.ended;
        let waited = self.changed.wait_while(state, empty);
        let due = {
            let state = waited.unwrap_or_else(PoisonError::into_inner);
            state.chunks.front()?.0
        };
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut state = self.state();
        let (_, mut bytes) = state.chunks.pop_front()?;
        let now = Instant::now();
        while let Some((_, more)) = state.chunks.pop_front_if(|(due, _)| *due <= now) {
            bytes.extend(more);
        }
        state.bytes -= bytes.len();
        self.changed.notify_all();
        Some(bytes)
    }
}

fn give(mut to: TcpStream, line: &Line) {
    while let Some(bytes) = line.next() {
        if to.write_all(&bytes).is_err() {
            // Whoever sends must hear of it.
            let _ = to.shutdown(Shutdown::Both);
            line.end();
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time_and_a_cut_ends_streams() {
        let listener = TcpListener::bind(local(0)).unwrap();
        let ways = Ways::default();
        let port = ways
            .open(0, 1, listener.local_addr().unwrap().port())
            .unwrap();
        let delay = Duration::from_millis(30);
        ways.set_delay(delay);
        let mut near = TcpStream::connect(local(port)).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut heard = [0; 4];
        let began = Instant::now();
        near.write_all(b"ping").unwrap();
        far.read_exact(&mut heard).unwrap();
        far.write_all(b"pong").unwrap();
        near.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"pong");
        assert!(began.elapsed() >= 2 * delay);
        assert_eq!(ways.carried_bytes(), 8);
        let longer = Duration::from_millis(60);
        ways.set_delay_between([1, 0], longer);
        let began = Instant::now();
        near.write_all(b"ping").unwrap();
        far.read_exact(&mut heard).unwrap();
        assert!(began.elapsed() >= longer);
        ways.cut_off(1);
        assert_eq!(far.read(&mut heard).unwrap_or(0), 0);
        let mut refused = TcpStream::connect(local(port)).unwrap();
        assert_eq!(refused.read(&mut heard).unwrap_or(0), 0);
        ways.heal();
        let _near = TcpStream::connect(local(port)).unwrap();
        listener.accept().unwrap();
        listener.accept().unwrap();
    }
}
