//! One stream between two nodes: frames to packs to TLS and back, driven with the machine of the link.
//!
//! Reading and writing go on side by side, so that two nodes that both send much do not wait for each other. A frame is passed on before more is
//! read: if the receiver does not take it, the peer's socket fills up.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf},
    time::{sleep, timeout},
};
use whimbrel_replication::{
    link::{Agreed, Arrived, Config, Link, LinkError},
    wire::{CONTROL_BYTES_MAX, Decoder, Frame, HEADER_BYTES, Handshake, WireError},
};

use crate::{
    Clock, FEATURE_LZ4, Handle, NodeName,
    outbox::Next,
    pack::{self, PACK_BYTES_MAX},
};

/// Time limit for the first frame of each side.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);
/// If the stream takes no bytes for so long, the peer or the network between is gone. This is longer than the failure detector's time, since one long
/// frame on a slow line is no failure.
const WRITE_TIME_MAX: Duration = Duration::from_secs(30);
/// Answers to pings that wait to be sent. A peer that sends more pings and reads nothing is cut off.
const OWN_WAITING_MAX: usize = 64;

/// Why a link has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Ended {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the stream ended")]
    Over,
    #[error("closed here")]
    Closed,
    #[error("the node takes no more")]
    Deaf,
    #[error("pings without end")]
    Pings,
    #[error("this node is not ready yet")]
    NotBegun,
    #[error("there is a link to {0} already")]
    Double(NodeName),
}

/// A stream whose link is up.
pub(crate) struct Up<S> {
    stream: S,
    link: Link,
    pub(crate) agreed: Agreed,
}

/// The receiver of what a running link brings.
pub(crate) trait Hears {
    /// A frame came. False: no frames are taken any more.
    fn frame(&self, frame: Frame) -> impl Future<Output = bool> + Send;
    /// Frames that were refused have room again.
    fn room(&self) -> impl Future<Output = bool> + Send;
    /// The last round trip.
    fn round_trip(&self, link: &Link);
    /// Bytes of packs that were received and sent.
    fn moved(&self, received: usize, sent: usize);
}

/// Exchanges handshakes.
pub(crate) async fn greet<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    ours: Handshake,
    certified: &NodeName,
    clock: &Clock,
) -> Result<Up<S>, Ended> {
    let mut link = Link::new(Config::default(), ours, certified.to_string(), clock());
    let greeted = timeout(HANDSHAKE_TIME_MAX, async {
        let mut bytes = Vec::new();
        link.handshake().encode(&mut bytes);
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        // Reads the handshake and no further: packs follow.
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).await?;
        let [a, b, c, d, ..] = header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > CONTROL_BYTES_MAX {
            return Err(Ended::Link(LinkError::Order));
        }
        let mut decoder = Decoder::default();
        decoder.push(&header);
        let mut body = Vec::new();
        (&mut stream)
            .take(length as u64)
            .read_to_end(&mut body)
            .await?;
        decoder.push(&body);
        decoder.frame()?.ok_or(Ended::Over)
    });
    let first = greeted
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    match link.arrive(clock(), first)? {
        Arrived::Up(agreed) => Ok(Up {
            stream,
            link,
            agreed,
        }),
        _ => Err(Ended::Link(LinkError::Order)),
    }
}

impl<S: AsyncRead + AsyncWrite> Up<S> {
    /// Carries frames until the link ends. Returns the reason.
    pub(crate) async fn run(self, handle: &Handle, clock: &Clock, ears: &impl Hears) -> Ended {
        let compress = self.agreed.features & FEATURE_LZ4 != 0;
        let (from, to) = tokio::io::split(self.stream);
        let read = read(from, self.link, handle, clock, ears);
        let write = write(to, handle, compress, ears);
        tokio::select! {
            Err(ended) = read => ended,
            Err(ended) = write => ended,
        }
    }
}

async fn write<W: AsyncWrite>(
    mut to: WriteHalf<W>,
    handle: &Handle,
    compress: bool,
    ears: &impl Hears,
) -> Result<std::convert::Infallible, Ended> {
    let mut wire = Vec::new();
    loop {
        let (bytes, room) = match handle.next(PACK_BYTES_MAX / 2).await {
            Next::Send { bytes, room } => (bytes, room),
            Next::Closed => {
                // The peer is told that this is a regular end. If it does not read that, it notices the end later.
                let _ = timeout(HANDSHAKE_TIME_MAX, to.shutdown()).await;
                return Err(Ended::Closed);
            }
        };
        for piece in bytes.chunks(PACK_BYTES_MAX) {
            wire.clear();
            pack::pack(piece, compress, &mut wire);
            timeout(WRITE_TIME_MAX, to.write_all(&wire))
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            ears.moved(0, wire.len());
        }
        timeout(WRITE_TIME_MAX, to.flush())
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if room && !ears.room().await {
            return Err(Ended::Deaf);
        }
    }
}

async fn read<R: AsyncRead>(
    mut from: ReadHalf<R>,
    mut link: Link,
    handle: &Handle,
    clock: &Clock,
    ears: &impl Hears,
) -> Result<std::convert::Infallible, Ended> {
    let mut packs = Packs::new();
    let mut decoder = Decoder::default();
    loop {
        let wait = link.deadline().saturating_sub(clock().mono_micros);
        tokio::select! {
            biased;
            // The read loses no bytes when the other branch completes first.
            read = from.read(packs.space()) => {
                let length = read?;
                if length == 0 {
                    return Err(Ended::Over);
                }
                link.heard(clock());
                ears.moved(length, 0);
                packs.came(length, &mut decoder)?;
            }
            () = sleep(Duration::from_micros(wait)) => {
                if let Some(ping) = link.time(clock())? {
                    handle.own(&ping);
                }
            }
        }
        while let Some(frame) = decoder.frame()? {
            match link.arrive(clock(), frame)? {
                Arrived::Pass(frame) => {
                    if !hand_over(frame, &mut link, handle, clock, ears).await {
                        return Err(Ended::Deaf);
                    }
                    // However long that took, the peer was not silent.
                    link.heard(clock());
                }
                Arrived::Answer(frame) => {
                    if handle.own_waiting() >= OWN_WAITING_MAX {
                        return Err(Ended::Pings);
                    }
                    handle.own(&frame);
                }
                Arrived::Nothing => {
                    ears.round_trip(&link);
                }
                Arrived::Up(_) => return Err(Ended::Link(LinkError::Order)),
            }
        }
    }
}

/// Waits until the frame is taken. Meanwhile nothing is read, not even pings, so this node sends pings to show that it is alive.
async fn hand_over(
    frame: Frame,
    link: &mut Link,
    handle: &Handle,
    clock: &Clock,
    ears: &impl Hears,
) -> bool {
    let mut taken = std::pin::pin!(ears.frame(frame));
    loop {
        let wait = link.busy_deadline().saturating_sub(clock().mono_micros);
        tokio::select! {
            biased;
            taken = &mut taken => return taken,
            () = sleep(Duration::from_micros(wait)) => {
                // One ping in the outbox is enough.
                if let Some(ping) = link.busy(clock())
                    && handle.own_waiting() == 0
                {
                    handle.own(&ping);
                }
            }
        }
    }
}

/// Received bytes, at most one pack.
pub(crate) struct Packs {
    buffer: Box<[u8]>,
    filled: usize,
    raw: Box<[u8]>,
}

impl Packs {
    pub(crate) fn new() -> Self {
        Packs {
            buffer: vec![0; pack::HEADER_BYTES + PACK_BYTES_MAX].into(),
            filled: 0,
            raw: vec![0; PACK_BYTES_MAX].into(),
        }
    }

    /// Space for more bytes. It is never empty, since a complete pack is taken out at once.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// So many bytes came: passes complete packs to the decoder.
    pub(crate) fn came(&mut self, length: usize, decoder: &mut Decoder) -> io::Result<()> {
        self.filled += length;
        let mut at = 0;
        while let Some((header, rest)) =
            self.buffer[at..self.filled].split_first_chunk::<{ pack::HEADER_BYTES }>()
        {
            let (wire, raw) = pack::lengths(*header)?;
            let Some(body) = rest.get(..wire) else {
                break;
            };
            let out = &mut self.raw[..raw];
            pack::unpack(body, out)?;
            decoder.push(out);
            at += pack::HEADER_BYTES + wire;
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(())
    }
}

/// A handle and a clock for each end of a stream.
#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use bytes::Bytes;
    use tokio::{io::DuplexStream, sync::mpsc};
    use whimbrel_crdt::Incarnation;
    use whimbrel_replication::{
        Now,
        wire::{BlobChunk, BlobName, Ping},
    };

    use super::*;

    struct Ears {
        frames: mpsc::Sender<Frame>,
        received: AtomicUsize,
    }

    impl Hears for Ears {
        async fn frame(&self, frame: Frame) -> bool {
            self.frames.send(frame).await.is_ok()
        }
        async fn room(&self) -> bool {
            true
        }
        fn round_trip(&self, _: &Link) {}
        fn moved(&self, received: usize, _: usize) {
            self.received.fetch_add(received, Ordering::Relaxed);
        }
    }

    fn hello(name: &str, id: u64) -> Handshake {
        Handshake {
            cluster: [1; 16],
            name: name.into(),
            incarnation: Incarnation::new(id).unwrap(),
            wire_min: 1,
            wire_max: 1,
            features: FEATURE_LZ4,
        }
    }

    fn clock() -> Clock {
        let started = tokio::time::Instant::now();
        Arc::new(move || Now {
            wall_micros: 0,
            mono_micros: started.elapsed().as_micros() as u64,
        })
    }

    async fn pair(bytes: usize, clock: &Clock) -> (Up<DuplexStream>, Up<DuplexStream>) {
        let (a, b) = tokio::io::duplex(bytes);
        let (of_a, of_b) = (NodeName::new("a").unwrap(), NodeName::new("b").unwrap());
        let (a, b) = tokio::join!(
            greet(a, hello("a", 1), &of_b, clock),
            greet(b, hello("b", 2), &of_a, clock),
        );
        (a.ok().unwrap(), b.ok().unwrap())
    }

    fn body(bytes: usize) -> Frame {
        Frame::BlobChunk(BlobChunk {
            name: BlobName([0; 48]),
            offset: 9,
            data: Bytes::from(vec![b'm'; bytes]),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn both_sides_send_much_at_once_and_neither_waits_for_the_other() {
        // The buffer is far smaller than what is sent: with one task that first writes and then reads, both sides would block.
        let clock = clock();
        let (a, b) = pair(100, &clock).await;
        let (to_a, mut at_a) = mpsc::channel(1);
        let (to_b, mut at_b) = mpsc::channel(1);
        let ears = |frames| Ears {
            frames,
            received: AtomicUsize::new(0),
        };
        let (ears_a, ears_b) = (ears(to_a), ears(to_b));
        let (handle_a, handle_b) = (Handle::default(), Handle::default());
        let frame = body(3_000_000);
        handle_a.offer(&frame).unwrap();
        handle_b.offer(&frame).unwrap();
        let ended = tokio::select! {
            ended = a.run(&handle_a, &clock, &ears_a) => Some(ended),
            ended = b.run(&handle_b, &clock, &ears_b) => Some(ended),
            (first, second) = async { tokio::join!(at_a.recv(), at_b.recv()) } => {
                assert_eq!((first, second), (Some(frame.clone()), Some(frame)));
                None
            }
        };
        assert!(ended.is_none(), "{ended:?}");
        // It was compressed.
        assert!(ears_a.received.load(Ordering::Relaxed) < 100_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_and_one_that_only_asks_are_cut_off() {
        let clock = clock();
        let (a, b) = pair(1000, &clock).await;
        let (frames, _at_a) = mpsc::channel(1);
        let ears = Ears {
            frames,
            received: AtomicUsize::new(0),
        };
        let handle = Handle::default();
        let ended = a.run(&handle, &clock, &ears).await;
        assert!(matches!(ended, Ended::Link(LinkError::Silent)), "{ended:?}");
        drop(b);

        let (a, b) = pair(1000, &clock).await;
        let (_from, mut to) = tokio::io::split(b.stream);
        let asking = async {
            for id in 0.. {
                let (mut bytes, mut wire) = (Vec::new(), Vec::new());
                Frame::Ping(Ping { id }).encode(&mut bytes);
                pack::pack(&bytes, false, &mut wire);
                if to.write_all(&wire).await.is_err() {
                    break;
                }
            }
        };
        let (ended, ()) = tokio::join!(
            async {
                // Moved in, so that the stream is gone when it is over.
                let a = a;
                a.run(&Handle::default(), &clock, &ears).await
            },
            asking
        );
        assert!(matches!(ended, Ended::Pings), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_takes_nothing_for_long_is_not_taken_for_dead() {
        let clock = clock();
        let (a, b) = pair(1000, &clock).await;
        let (to_a, _at_a) = mpsc::channel(1);
        let (to_b, mut at_b) = mpsc::channel(1);
        let ears = |frames| Ears {
            frames,
            received: AtomicUsize::new(0),
        };
        let (ears_a, ears_b) = (ears(to_a), ears(to_b));
        let (handle_a, handle_b) = (Handle::default(), Handle::default());
        // One frame is in the channel, one waits to be taken; after it the first side's pings are not read.
        for _ in 0..3 {
            handle_a.push(&body(10));
        }
        let ended = tokio::select! {
            ended = a.run(&handle_a, &clock, &ears_a) => Some(ended),
            ended = b.run(&handle_b, &clock, &ears_b) => Some(ended),
            () = async {
                sleep(Duration::from_secs(20)).await;
                for _ in 0..3 {
                    at_b.recv().await.unwrap();
                }
                // And it goes on.
                sleep(Duration::from_secs(20)).await;
            } => None,
        };
        assert!(ended.is_none(), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_handshake_or_no_pack_ends_it() {
        let check = async |first: &[u8]| {
            let (a, mut b) = tokio::io::duplex(1000);
            b.write_all(first).await.unwrap();
            let of_b = NodeName::new("b").unwrap();
            greet(a, hello("a", 1), &of_b, &clock()).await.map(|_| ())
        };
        // Nothing; an endless one; another frame.
        assert!(matches!(check(b"").await, Err(Ended::Io(_))));
        assert!(matches!(check(&[0xFF; 6]).await, Err(Ended::Link(_))));
        let mut ping = Vec::new();
        Frame::Ping(Ping { id: 1 }).encode(&mut ping);
        assert!(matches!(check(&ping).await, Err(Ended::Link(_))));

        let clock = clock();
        let (a, mut b) = pair(1000, &clock).await;
        b.stream.write_all(&[0xFF; 8]).await.unwrap();
        let (frames, _at_a) = mpsc::channel(1);
        let ears = Ears {
            frames,
            received: AtomicUsize::new(0),
        };
        let ended = a.run(&Handle::default(), &clock, &ears).await;
        assert!(matches!(ended, Ended::Io(_)), "{ended:?}");
    }
}
