//! What lies between two nodes and can be cut.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use whimbrel_e2e::server::free_port;

/// Carries bytes to a port, or nothing while it is cut.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
    held: Arc<Held>,
}

/// An end of the streams.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    /// Who dials through the proxy.
    Dialer,
    /// Who is reached by it.
    Dialed,
}

/// Of whom nothing is carried at present. It is late, not lost: what is lost of a TCP stream is sent again.
#[derive(Default)]
struct Held {
    sides: Mutex<[bool; 2]>,
    changed: Condvar,
    slow: AtomicBool,
}

/// What a slow line carries at once, and how long that takes: 800 kB/s.
const BYTES_AT_ONCE: usize = 16 << 10;
const SLOW: Duration = Duration::from_millis(20);

#[derive(Default)]
struct State {
    cut: bool,
    streams: Vec<TcpStream>,
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

impl Proxy {
    /// To this port, from one of its own. Its threads end with the test.
    pub(crate) fn start(to: u16) -> Proxy {
        // Somebody else may have taken the port since it was found to be free.
        let bound = (0..100).find_map(|_| {
            let port = free_port();
            Some((port, TcpListener::bind(local(port)).ok()?))
        });
        let (port, listener) = bound.expect("a free port");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let held = Arc::new(Held::default());
        let holds = Arc::clone(&held);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut state = shared.lock().unwrap();
                // Dropped, which closes it.
                if state.cut {
                    continue;
                }
                if let (Ok(near), Ok(far)) = (stream, TcpStream::connect(local(to))) {
                    for (side, from, to) in
                        [(Side::Dialer, &near, &far), (Side::Dialed, &far, &near)]
                    {
                        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                        let held = Arc::clone(&holds);
                        thread::spawn(move || carry(from, to, side, &held));
                    }
                    state.streams.extend([near, far]);
                }
            }
        });
        Proxy { port, state, held }
    }

    pub(crate) fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.cut = true;
        for stream in state.streams.drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn heal(&self) {
        self.state.lock().unwrap().cut = false;
    }

    /// From now on, or no longer, nothing that this side says comes to the other.
    pub(crate) fn hold(&self, side: Side, held: bool) {
        self.held.sides.lock().unwrap()[side as usize] = held;
        self.held.changed.notify_all();
    }

    /// From now on, or no longer, it carries little at a time.
    pub(crate) fn slow(&self, slow: bool) {
        self.held.slow.store(slow, Ordering::Relaxed);
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, side: Side, held: &Held) {
    let mut buffer = [0; BYTES_AT_ONCE];
    while let Ok(length) = from.read(&mut buffer)
        && length > 0
        && held
            .changed
            .wait_while(held.sides.lock().unwrap(), |sides| sides[side as usize])
            .is_ok()
        && to.write_all(&buffer[..length]).is_ok()
    {
        if held.slow.load(Ordering::Relaxed) {
            thread::sleep(SLOW);
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
