use std::{
    pin::Pin,
    task::{Context as Waker, Poll},
};

use tokio::{
    io::{AsyncReadExt as _, duplex},
    net::{TcpListener, TcpStream},
};

use whimbrel_service::api::Ended;

use super::*;

#[test]
fn sessions_of_version_1_are_kept() {
    let head = |account, at| Head {
        account,
        address: "192.0.2.1".into(),
        tls: Some(HeadTls {
            version: "TLSv1.3".into(),
            cipher: "TLS13_AES_256_GCM_SHA384".into(),
        }),
        at,
        // As earlier versions say it.
        from: None,
    };
    let mail = |role| At::Mail {
        role,
        helo: "a.example.org".into(),
        basic: false,
    };
    let tag = "a1".into();
    let mailbox = "INBOX".into();
    let utf8 = true;
    let heads = [
        head(Some([7; 16]), At::Imap { tag }),
        head(Some([7; 16]), At::Pop3 { mailbox, utf8 }),
        head(Some([7; 16]), mail(MailRole::Submission)),
        head(None, mail(MailRole::Smtp)),
        head(None, mail(MailRole::Lmtp)),
    ];
    super::super::rpc::is_kept("sessions-v1.cbor", &heads);
}

/// Takes nothing any more.
struct Gone;

impl AsyncWrite for Gone {
    fn poll_write(self: Pin<&mut Self>, _: &mut Waker<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Waker<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Waker<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A client's stream, and the client's end of it.
async fn connected(listener: &TcpListener) -> (Transport, TcpStream) {
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
    let (far, _) = listener.accept().await.unwrap();
    (Transport::Clear(stream.unwrap()), far)
}

/// It was dropped when the next command could not be written any more: the client did again what was done.
#[tokio::test]
async fn an_answer_that_has_arrived_reaches_its_client() {
    const ANSWER: &[u8] = b"a OK APPEND\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let registry = Registry::new(1);
    // What is looked at first is drawn.
    let ends = [(&AT_REST[..], true), (&[], true)].repeat(20).into_iter();
    for (end, ends) in ends.chain([(&AT_REST[..], false), (&[], false)]) {
        let (mut stream, mut far) = connected(&listener).await;
        let registered = registry.enter();
        let traffic = metrics::traffic("imap");
        let client = Client {
            stream: &mut stream,
            registered: &registered,
            traffic: &traffic,
            patience: Duration::from_secs(1),
        };
        let (mut serving, from) = duplex(4096);
        serving.write_all(&framed(ANSWER)).await.unwrap();
        serving.write_all(end).await.unwrap();
        let serving = Some(serving).filter(|_| !ends);
        let ways = (from, Gone);
        let carried = client.carry(("b", false), ways, b"b NOOP\r\n".into(), || true);
        let told = carried.await.unwrap();
        let may_be_told = serving.is_some() && !end.is_empty();
        assert_eq!(told.is_some(), may_be_told, "{end:?}");
        let mut heard = vec![0; ANSWER.len()];
        far.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, ANSWER);
    }
}

/// It was told that the server shuts down when the other node had waited for what was sent before, and did then what it had been told last: the
/// client did it again.
#[tokio::test]
async fn a_node_that_stops_waits_for_the_answer_to_what_was_sent_last() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (mut stream, mut far) = connected(&listener).await;
    let registry = Registry::new(1);
    let registered = registry.enter();
    let traffic = metrics::traffic("smtp");
    let client = Client {
        stream: &mut stream,
        registered: &registered,
        traffic: &traffic,
        patience: Duration::from_secs(9),
    };
    let (mut serving, from) = duplex(4096);
    let (to, mut sent) = duplex(4096);
    let serve = async {
        let mut heard = vec![0; 5];
        sent.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, b"chunk");
        far.write_all(b"-last").await.unwrap();
        sent.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, b"-last");
        registry.shutdown();
        // What is said of the first chunk, and has been on its way for long.
        let mut said = framed(b"250 a chunk\r\n");
        said.extend(AT_REST);
        serving.write_all(&said).await.unwrap();
        let mut heard = vec![0; 13];
        far.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, b"250 a chunk\r\n");
        let mut said = framed(b"250 all\r\n");
        said.extend(AT_REST);
        serving.write_all(&said).await.unwrap();
    };
    let ways = (from, to);
    let carried = client.carry(("b", true), ways, b"chunk".into(), || true);
    let (told, ()) = tokio::join!(carried, serve);
    assert_eq!(told.unwrap(), Some("Server is shutting down"));
    let mut heard = vec![0; 9];
    far.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, b"250 all\r\n");
}

#[test]
fn frames_come_in_any_split() {
    let long = vec![b'x'; FRAME_BYTES_MAX + 3];
    let mut wire = framed(b"* OK\r\n");
    wire.extend(framed(&long));
    wire.extend(AT_REST);
    for size in [1, 2, 3, 7, wire.len()] {
        let (mut frames, mut out) = (Frames::default(), Vec::new());
        for (index, piece) in wire.chunks(size).enumerate() {
            let end = (index + 1) * size >= wire.len();
            if let Taken::Some(bytes) = frames.take(piece) {
                out.extend(bytes);
            }
            // Only behind all of it.
            assert_eq!(frames.at_rest, end, "{size}");
        }
        assert_eq!(out, [b"* OK\r\n".as_slice(), &long].concat());
        assert!(matches!(frames.take(b""), Taken::End));
        frames.take(&framed(b"more")[..1]);
        assert!(frames.at_rest, "half a length is nothing yet");
        assert!(!frames.is_complete());
        frames.take(&framed(b"more")[1..]);
        assert!(!frames.at_rest && !frames.is_complete());
        frames.take(&framed(b"\r\n"));
        assert!(frames.is_complete());
    }
}

/// The node that serves was cut off and did not hear that the account was gone, or its client sent one command after another.
#[tokio::test]
async fn a_session_that_is_carried_ends_with_its_login() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (mut stream, mut far) = connected(&listener).await;
    let registry = Registry::new(1);
    let mut registered = registry.enter();
    let account = AccountId([1; 16]);
    assert!(registered.log_in(account));
    registered.passes();
    let traffic = metrics::traffic("imap");
    let client = Client {
        stream: &mut stream,
        registered: &registered,
        traffic: &traffic,
        patience: Duration::from_secs(9),
    };
    let (mut serving, from) = duplex(4096);
    let (to, _sent) = duplex(4096);
    serving.write_all(&AT_REST).await.unwrap();
    registry.end(account, Ended::AccountRemoved);
    let ways = (from, to);
    // Something is under way, and never answered.
    far.write_all(b"a NOOP\r\n").await.unwrap();
    let carried = client.carry(("b", false), ways, Vec::new(), || true);
    assert_eq!(carried.await.unwrap(), Some("The account was removed"));
}
