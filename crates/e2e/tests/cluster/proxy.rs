//! What lies between two nodes and can be cut.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use whimbrel_e2e::server::free_port;

/// Carries bytes to a port, or nothing while it is cut.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
}

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
        let port = free_port();
        let listener = TcpListener::bind(local(port)).unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut state = shared.lock().unwrap();
                // Dropped, which closes it.
                if state.cut {
                    continue;
                }
                if let (Ok(near), Ok(far)) = (stream, TcpStream::connect(local(to))) {
                    for (from, to) in [(&near, &far), (&far, &near)] {
                        let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                        thread::spawn(move || carry(from, to));
                    }
                    state.streams.extend([near, far]);
                }
            }
        });
        Proxy { port, state }
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
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 << 10];
    while let Ok(length) = from.read(&mut buffer)
        && length > 0
        && to.write_all(&buffer[..length]).is_ok()
    {}
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
