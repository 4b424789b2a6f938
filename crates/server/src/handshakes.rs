//! Handshakes of clients: bounds their number in total and for each address.
//!
//! Invariants: a silent connection takes no place; no address takes all places; a connection waits only for those of its own address, and no longer
//! than a handshake may take.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustls::ServerConfig;
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use whimbrel_frontend::session::Tls;

use crate::{
    config::TlsSection,
    crowd::{Crowd, Ending},
    listen::client,
    tls::ServedCertificate,
    transport::Transport,
};

/// The part of all places that one address may take, one in so many: so many addresses are needed to take all, and an office behind one address has
/// several handshakes side by side.
const SHARE: usize = 8;

/// Places for handshakes.
pub(crate) struct Handshakes {
    time_max: Duration,
    all_max: usize,
    /// Handshakes under way, by address.
    all: Mutex<Crowd>,
    of_address_max: usize,
    /// The addresses with handshakes under way, and how many; never iterated.
    addresses: Mutex<HashMap<IpAddr, (usize, Arc<Semaphore>)>>,
}

impl Handshakes {
    pub(crate) fn new(of: &TlsSection) -> Self {
        Handshakes {
            time_max: of.handshake_timeout,
            all_max: of.handshakes_max,
            all: Mutex::default(),
            of_address_max: (of.handshakes_max / SHARE).max(1),
            addresses: Mutex::default(),
        }
    }

    /// Makes a handshake within its time, when the client has begun it and there is a place for it.
    pub(crate) async fn shake(
        &self,
        stream: TcpStream,
        config: &Arc<ServerConfig>,
        shown: &ServedCertificate,
    ) -> io::Result<(Transport, Tls)> {
        let deadline = Instant::now() + self.time_max;
        let shaken = timeout_at(deadline, async {
            // A silent connection costs next to nothing, but in a place it would keep others from their handshakes.
            let _ = stream.peek(&mut [0]).await?;
            let aborted = |_| io::Error::from(io::ErrorKind::ConnectionAborted);
            let address = self.of(stream.peer_addr()?.ip());
            let _of_address = address.places.acquire().await.map_err(aborted)?;
            let place = self.place(stream.peer_addr()?.ip());
            tokio::select! {
                shaken = Transport::start_tls(stream, Arc::clone(config), shown) => shaken,
                // Another connection needs its place.
                () = place.ending.comes() => Err(io::ErrorKind::ConnectionAborted.into()),
            }
        });
        shaken.await?
    }

    /// A place of all places. If none is free, the oldest handshake of the address with most ends, so that nobody waits for clients that begin and go
    /// silent.
    fn place(&self, address: IpAddr) -> InAll<'_> {
        let mut all = self.lock();
        if all.len() >= self.all_max {
            all.displace();
        }
        let ending = Ending::default();
        let number = all.enter(std::time::Instant::now(), client(address), ending.clone());
        drop(all);
        InAll {
            handshakes: self,
            number,
            ending,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Crowd> {
        // A panic leaves no change half done.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, address: IpAddr) -> OfAddress<'_> {
        let address = client(address);
        let mut addresses = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let new = || (0, Arc::new(Semaphore::new(self.of_address_max)));
        let (count, places) = addresses.entry(address).or_insert_with(new);
        *count += 1;
        let places = Arc::clone(places);
        OfAddress {
            handshakes: self,
            address,
            places,
        }
    }
}

/// A place of all places, given back when dropped.
struct InAll<'h> {
    handshakes: &'h Handshakes,
    number: u64,
    ending: Ending,
}

impl Drop for InAll<'_> {
    fn drop(&mut self) {
        self.handshakes.lock().leave(self.number);
    }
}

/// The places of one address, as long as they are needed.
struct OfAddress<'h> {
    handshakes: &'h Handshakes,
    address: IpAddr,
    places: Arc<Semaphore>,
}

impl Drop for OfAddress<'_> {
    fn drop(&mut self) {
        let addresses = &self.handshakes.addresses;
        let mut addresses = addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((count, _)) = addresses.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn an_address_is_forgotten_with_its_last_handshake() {
        let handshakes = Handshakes::new(&Config::default().tls);
        let of = |text: &str| handshakes.of(text.parse().unwrap());
        let (one, two, other) = (of("2001:db8::1"), of("2001:db8::2"), of("192.0.2.1"));
        assert_eq!(one.places.available_permits(), 128 / SHARE);
        assert!(Arc::ptr_eq(&one.places, &two.places));
        assert!(!Arc::ptr_eq(&one.places, &other.places));
        drop(one);
        assert_eq!(handshakes.addresses.lock().unwrap().len(), 2);
        drop((two, other));
        assert!(handshakes.addresses.lock().unwrap().is_empty());
    }
}
