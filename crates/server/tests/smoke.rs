//! The real server in this process, over real sockets: LMTP and SMTP in, IMAP out; stopped and started again.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpSocket, TcpStream},
};
use whimbrel_imap::{
    client::{FetchData, Response},
    encode::Kind,
};
use whimbrel_server::{
    actor::Fatal,
    admin::{
        client::ask,
        protocol::{Answer, Question},
    },
    client::{self, Imap, Mail, send},
    config::{Config, Size},
    listen::Protocol,
    node::DataDir,
    password::make_verifier,
    serve::{Kind as For, Server, Sockets},
};
use whimbrel_smtp::{
    Domain, ForwardPath, HostName, LocalPart, Mailbox, ReversePath,
    client::{ClientConfig, Outgoing, StartTls},
};

const ANNE: &str = "anne@example.org";
const PASSWORD: &str = "correct-horse-battery";
/// The same, for AUTH.
const PLAIN: &str = "AUTH PLAIN AGFubmVAZXhhbXBsZS5vcmcAY29ycmVjdC1ob3JzZS1iYXR0ZXJ5";

fn config(directory: &Path) -> Config {
    let mut config = Config::parse(
        "[imap]\nlisten = ['127.0.0.1:0']\nlisten_tls = ['127.0.0.1:0']\n[pop3]\nlisten = []\nlisten_tls = ['127.0.0.1:0']\n[smtp]\nlisten = ['127.0.0.1:0']\n[submission]\nlisten = []\nlisten_tls = []\n[lmtp]\n\
         listen = ['127.0.0.1:0']\n[metrics]\nlisten = ['127.0.0.1:0']\n[server]\nhostname = 'localhost'\nshutdown_wait = '1m'\n\
         [auth]\nargon2_memory = '1MiB'\nargon2_passes = 1\n",
    )
    .unwrap();
    config.server.data_dir = directory.to_owned();
    config.storage.free_bytes_min = Size(1 << 20);
    config
}

fn fatal() -> Fatal {
    Arc::new(|reason| panic!("{reason}"))
}

async fn start(config: &Config) -> Server {
    let data = DataDir::open(&config.server.data_dir).unwrap();
    let sockets = Sockets::open(config, false).unwrap();
    Server::start(config, data, sockets, fatal(), None)
        .await
        .unwrap()
}

fn address(server: &Server, kind: For) -> SocketAddr {
    server
        .addresses()
        .iter()
        .find(|(known, _)| *known == kind)
        .unwrap()
        .1
}

fn mail(to: &str, text: &str) -> Mail {
    let (local, domain) = to.split_once('@').unwrap();
    let to = Mailbox::new(LocalPart::new(local).unwrap(), Domain::new(domain).unwrap()).unwrap();
    Mail {
        envelope: Outgoing::new(ReversePath::Null, vec![ForwardPath::Mailbox(to)]),
        text: text.as_bytes().to_vec(),
    }
}

fn smtp(lmtp: bool, starttls: StartTls) -> ClientConfig {
    let mut config = ClientConfig::new(HostName::new("client.example.net").unwrap());
    config.lmtp = lmtp;
    config.starttls = starttls;
    config
}

/// Logs in and waits until INBOX has so many messages.
async fn inbox(server: &Server, messages: u32) -> Imap {
    let tls = client::trusting(server.certificates().path()).unwrap();
    let mut imap = Imap::connect(address(server, For::Mail(Protocol::Imap, true)), &tls)
        .await
        .unwrap();
    imap.command(&format!("LOGIN {ANNE} {PASSWORD}"))
        .await
        .unwrap();
    let there = |response: &Response| matches!(response, Response::Exists(n) if *n >= messages);
    while !imap
        .command("SELECT INBOX")
        .await
        .unwrap()
        .iter()
        .any(there)
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    imap
}

/// Says these lines over TLS, each when the line before it was answered; the answer to the last.
async fn says(server: &Server, protocol: Protocol, lines: &[&str]) -> String {
    let tls = client::trusting(server.certificates().path()).unwrap();
    let stream = TcpStream::connect(address(server, For::Mail(protocol, true)));
    let stream = client::handshake(stream.await.unwrap(), &tls).await;
    let mut stream = BufReader::new(stream.unwrap());
    let mut answer = String::new();
    for line in std::iter::once("").chain(lines.iter().copied()) {
        if !line.is_empty() {
            let line = format!("{line}\r\n");
            stream.get_mut().write_all(line.as_bytes()).await.unwrap();
        }
        loop {
            answer.clear();
            stream.read_line(&mut answer).await.unwrap();
            // All lines of a reply but the last have a hyphen behind the code.
            if answer.as_bytes().get(3) != Some(&b'-') {
                break;
            }
        }
    }
    answer
}

async fn bodies(imap: &mut Imap) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for response in imap.command("FETCH 1:* (UID BODY.PEEK[])").await.unwrap() {
        let Response::Fetch { items, .. } = response else {
            continue;
        };
        let (mut uid, mut text) = (0, String::new());
        for item in items {
            match item {
                FetchData::Uid(n) => uid = n,
                FetchData::Section {
                    data: Some(data), ..
                } => text = String::from_utf8(data).unwrap(),
                _ => {}
            }
        }
        found.push((uid, text));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn mail_goes_in_and_comes_out_and_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(&directory.path().join("data"));

    // The first account without a server: the store itself is asked.
    let verifier = make_verifier(&config.auth, PASSWORD.as_bytes()).unwrap();
    let question = Question::AccountAdd {
        address: ANNE.to_owned(),
        verifier,
        scram: None,
    };
    assert_eq!(
        ask(&config, question, fatal()).await.unwrap(),
        Answer::Done {}
    );

    let server = start(&config).await;
    // The alias through the socket of the running one.
    let alias = Question::AliasAdd {
        from: "info@example.org".to_owned(),
        to: ANNE.to_owned(),
        instead: false,
    };
    assert_eq!(ask(&config, alias, fatal()).await.unwrap(), Answer::Done {});
    let listed = ask(&config, Question::AccountList {}, fatal())
        .await
        .unwrap();
    assert!(
        matches!(&listed, Answer::Accounts { accounts, .. } if accounts.len() == 1 && accounts[0].address == ANNE)
    );

    let tls = client::trusting(server.certificates().path()).unwrap();
    let lmtp = address(&server, For::Mail(Protocol::Lmtp, false));
    let text = "Subject: one\r\n\r\nby LMTP\r\n";
    send(
        lmtp,
        smtp(true, StartTls::Never),
        &tls,
        vec![mail(ANNE, text)],
    )
    .await
    .unwrap();
    let incoming = address(&server, For::Mail(Protocol::Smtp, false));
    let text = "Subject: two\r\n\r\nby SMTP in TLS\r\n..dots\r\n";
    send(
        incoming,
        smtp(false, StartTls::Require),
        &tls,
        vec![mail("info@example.org", text)],
    )
    .await
    .unwrap();
    let refused = send(
        incoming,
        smtp(false, StartTls::Never),
        &tls,
        vec![mail("nobody@example.org", text)],
    )
    .await;
    assert!(refused.is_err_and(|error| error.to_string().contains("550")));

    let mut imap = inbox(&server, 2).await;
    let before = bodies(&mut imap).await;
    let ends: Vec<bool> = ["by LMTP\r\n", "\r\n..dots\r\n"]
        .iter()
        .map(|end| before.iter().any(|(_, text)| text.ends_with(end)))
        .collect();
    assert_eq!(ends, [true, true], "{before:?}");

    // A stopping server says goodbye to who is connected.
    imap.begin("IDLE").await.unwrap();
    let stopping = tokio::spawn(server.stop());
    loop {
        match imap.next().await {
            Ok(Response::Status {
                kind: Kind::Bye, ..
            }) => break,
            Ok(_) => {}
            Err(error) => panic!("no goodbye: {error}"),
        }
    }
    drop(imap);
    assert!(stopping.await.unwrap(), "everything came to its end");

    let server = start(&config).await;
    let mut imap = inbox(&server, 2).await;
    assert_eq!(
        bodies(&mut imap).await,
        before,
        "the same messages under the same UIDs"
    );
    imap.command("LOGOUT").await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_server_is_kept_out_of_the_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let server = start(&config).await;
    assert!(DataDir::open(directory.path()).is_err());
    server.stop().await;
    start(&config).await.stop().await;
}

/// Strangers of twenty networks connect to all ports again and again, begin handshakes, and say no more. Eight addresses kept everybody else out.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_keeps_nobody_out() {
    const NETWORKS: u8 = 20;
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.limits.unauthenticated_max = 60;
    config.limits.smtp_connections_max = 40;
    config.limits.unauthenticated_per_address_max = 8;
    config.tls.handshakes_max = 16;
    config.submission.listen_tls = config.pop3.listen_tls.clone();
    let verifier = make_verifier(&config.auth, PASSWORD.as_bytes()).unwrap();
    let question = Question::AccountAdd {
        address: ANNE.to_owned(),
        verifier,
        scram: None,
    };
    let added = ask(&config, question, fatal()).await;
    assert_eq!(added.unwrap(), Answer::Done {});
    let server = start(&config).await;
    let smtp = address(&server, For::Mail(Protocol::Smtp, false));
    let mail_ports = server.addresses().iter();
    let ports: Vec<SocketAddr> = mail_ports
        .filter(|(kind, _)| matches!(kind, For::Mail(..) | For::Metrics))
        .map(|(_, address)| *address)
        .collect();
    let mut flood = Vec::new();
    for turn in 0..5 {
        for network in 0..NETWORKS {
            for port in &ports {
                let socket = TcpSocket::new_v4().unwrap();
                let from = SocketAddr::from(([127, 1, network, 1], 0));
                socket.bind(from).unwrap();
                let mut stream = socket.connect(*port).await.unwrap();
                // A handshake that goes no further, where there is one. The connection may be over already.
                let _ = stream.write_all(&[0x16, 3, 1]).await;
                flood.push(stream);
            }
        }
        // They hold all places now.
        drop(inbox(&server, 0).await);
        let (user, pass) = (format!("USER {ANNE}"), format!("PASS {PASSWORD}"));
        let answer = says(&server, Protocol::Pop3, &[&user, &pass]).await;
        assert!(answer.starts_with("+OK"), "{answer}");
        let answer = says(&server, Protocol::Submission, &["EHLO c", PLAIN]).await;
        assert!(answer.starts_with("235 "), "{answer}");
        let mut greeting = [0; 4];
        let mut stream = TcpStream::connect(smtp).await.unwrap();
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(greeting.as_slice(), b"220 ", "turn {turn}");
        let metrics = address(&server, For::Metrics);
        let mut stream = TcpStream::connect(metrics).await.unwrap();
        let ask = b"GET /healthz HTTP/1.1\r\n\r\n";
        stream.write_all(ask).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    drop(flood);
    server.stop().await;
}
