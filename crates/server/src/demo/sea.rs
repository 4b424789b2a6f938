//! What lies between the demo's regions: one way from each to each other, which carries bytes or does not.
//!
//! The nodes know nothing of it: the ways are the addresses under which their configuration says that the others are.

use std::{io, net::SocketAddr};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// All ways.
pub(super) struct Sea {
    cut_off: watch::Sender<Option<usize>>,
    /// From, to, where it begins.
    ways: Vec<(usize, usize, SocketAddr)>,
    /// They end with it.
    _ferries: JoinSet<()>,
}

impl Sea {
    /// Ways between regions that listen there.
    pub(super) async fn open(regions: &[SocketAddr]) -> io::Result<Sea> {
        let (cut_off, watched) = watch::channel(None);
        let (mut ways, mut ferries) = (Vec::new(), JoinSet::new());
        for from in 0..regions.len() {
            for (to, &address) in regions.iter().enumerate() {
                if from == to {
                    continue;
                }
                let listener = TcpListener::bind((address.ip(), 0)).await?;
                ways.push((from, to, listener.local_addr()?));
                ferries.spawn(ferry(listener, address, watched.clone(), [from, to]));
            }
        }
        Ok(Sea {
            cut_off,
            ways,
            _ferries: ferries,
        })
    }

    /// Where a region reaches the others: which, and the address.
    pub(super) fn ways(&self, from: usize) -> impl Iterator<Item = (usize, SocketAddr)> {
        let own = self.ways.iter().filter(move |way| way.0 == from);
        own.map(|(_, to, address)| (*to, *address))
    }

    /// Nothing goes to or from this region any more.
    pub(super) fn cut_off(&self, region: usize) {
        self.cut_off.send_replace(Some(region));
    }

    /// All ways are open.
    pub(super) fn heal(&self) {
        self.cut_off.send_replace(None);
    }
}

async fn ferry(
    listener: TcpListener,
    to: SocketAddr,
    cut_off: watch::Receiver<Option<usize>>,
    ends: [usize; 2],
) {
    let mut streams = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = streams.join_next() => continue,
        };
        if let Ok((stream, _)) = accepted {
            streams.spawn(carry(stream, to, cut_off.clone(), ends));
        }
    }
}

async fn carry(
    mut near: TcpStream,
    to: SocketAddr,
    mut cut_off: watch::Receiver<Option<usize>>,
    ends: [usize; 2],
) {
    let is_cut = |cut_off: &Option<usize>| cut_off.is_some_and(|region| ends.contains(&region));
    let carried = async {
        let mut far = TcpStream::connect(to).await?;
        far.set_nodelay(true)?;
        near.set_nodelay(true)?;
        copy_bidirectional(&mut near, &mut far).await
    };
    // However it ends, both streams are closed: that is all there is to tell.
    tokio::select! {
        biased;
        _ = cut_off.wait_for(is_cut) => {}
        _ = carried => {}
    }
}
