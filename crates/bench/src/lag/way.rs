//! What lies between two nodes: bytes take their time, or do not come.
//!
//! It stands in for a long line: a stream that is opened gives nothing before a round trip is over, then each byte comes one delay later than it was
//! sent, however many are on the way (up to [`CHUNKS_MAX`]).

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::error::{Result, io_at};

/// Read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// On the way in one direction of a stream: 16 MiB, which is 100 MB/s at the longest delay.
const CHUNKS_MAX: usize = 256;

/// All ways between some nodes.
#[derive(Clone, Default)]
pub struct Ways(Arc<Shared>);

#[derive(Default)]
struct Shared {
    delay_micros: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
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
        let listener = TcpListener::bind(local(0)).map_err(io_at("a way between nodes"))?;
        let own = listener
            .local_addr()
            .map_err(io_at("a way between nodes"))?;
        let ways = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A node that does not listen closes it, too.
                let _ = ways.carry([from, to], stream, port);
            }
        });
        Ok(own.port())
    }

    /// From now on, also for what is sent on streams that are there.
    pub fn set_delay(&self, one_way: Duration) {
        let micros = u64::try_from(one_way.as_micros()).unwrap_or(u64::MAX);
        self.0.delay_micros.store(micros, Ordering::Relaxed);
    }

    fn delay(&self) -> Duration {
        Duration::from_micros(self.0.delay_micros.load(Ordering::Relaxed))
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
            let (sender, receiver) = sync_channel(CHUNKS_MAX);
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let ways = self.clone();
            thread::spawn(move || {
                ways.take(from, &sender, opened);
                ways.state().streams.remove(&number);
            });
            thread::spawn(move || give(to, &receiver));
        }
        Ok(())
    }

    fn take(&self, mut from: TcpStream, to: &SyncSender<(Instant, Vec<u8>)>, opened: Instant) {
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(length) = from.read(&mut buffer)
            && length > 0
        {
            let delay = self.delay();
            let due = Instant::now().max(opened + 2 * delay) + delay;
            if to.send((due, buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    }
}

fn give(mut to: TcpStream, chunks: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, bytes)) = chunks.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            // Whoever sends must hear of it.
            let _ = to.shutdown(Shutdown::Both);
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
