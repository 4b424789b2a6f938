//! A body that one node of a cluster has lost, without anything that says so: who wants to read it has it fetched from the other node.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use whimbrel_imap::client::{FetchData, Response};
use whimbrel_server::{
    admin::{
        client::ask,
        protocol::{Answer, Question},
    },
    check,
    client::{self, ClientError, Imap},
    config::Config,
    listen::Protocol,
    node::DataDir,
    password::make_verifier,
    serve::{self, Kind, Server, Sockets},
};
use whimbrel_storage::{
    BlobName, BlobStore as _, Commit, KeyRange, LogStore as _, Mutation, PartitionId, ScanLimit,
};

const BINARY: &str = env!("CARGO_BIN_EXE_whimbrel");
const ANNE: &str = "anne@example.org";
const PASSWORD: &str = "correct-horse-battery";
/// In a row's key, behind the account: it says which body a message has.
const CONTENT: u8 = 0x80;
/// For what takes some seconds; only what never comes takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

struct Node {
    file: PathBuf,
    config: Config,
}

impl Node {
    fn new(directory: &Path, name: &str) -> Node {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let port = port.unwrap().port();
        let text = format!(
            "[imap]\nlisten = []\nlisten_tls = ['127.0.0.1:0']\n[pop3]\nlisten = []\nlisten_tls = []\n[smtp]\nlisten = []\n[submission]\nlisten = []\nlisten_tls = []\n\
             [lmtp]\nlisten = []\n[metrics]\nlisten = []\n[server]\nhostname = 'localhost'\ndata_dir = '{name}'\n\
             [auth]\nargon2_memory = '1MiB'\nargon2_passes = 1\n[storage]\nfree_bytes_min = '1MiB'\n\
             [cluster]\nname = '{name}'\nlisten = ['127.0.0.1:{port}']\naddress = '127.0.0.1:{port}'\n",
        );
        let file = directory.join(format!("{name}.toml"));
        fs::write(&file, &text).unwrap();
        let mut config = Config::parse(&text).unwrap();
        config.server.data_dir = directory.join(name);
        Node { file, config }
    }

    /// An administrator's command; gives what it prints.
    fn cluster(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(BINARY);
        command.arg("cluster").args(arguments);
        let done = command.arg("--config").arg(&self.file).output().unwrap();
        // 5: it is told, and not all is well.
        assert!(matches!(done.status.code(), Some(0 | 5)), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    async fn start(&self) -> Server {
        let data = DataDir::open(&self.config.server.data_dir).unwrap();
        let sockets = Sockets::open(&self.config, false).unwrap();
        let fatal = Arc::new(|reason: &str| panic!("{reason}"));
        let server = Server::start(&self.config, data, sockets, fatal, None);
        server.await.unwrap()
    }
}

fn address(server: &Server, kind: Kind) -> SocketAddr {
    let mut all = server.addresses().iter();
    all.find(|(known, _)| *known == kind).unwrap().1
}

/// A client that has INBOX open; waits until one may.
async fn open(server: &Server) -> Imap {
    let tls = client::trusting(server.certificates().path()).unwrap();
    let imaps = address(server, Kind::Mail(Protocol::Imap, true));
    let until = Instant::now() + PATIENCE;
    loop {
        let mut imap = Imap::connect(imaps, &tls).await.unwrap();
        let login = imap.command(&format!("LOGIN {ANNE} {PASSWORD}")).await;
        match login {
            Ok(_) => {
                imap.command("SELECT INBOX").await.unwrap();
                return imap;
            }
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The messages that are in INBOX; an error if the connection ends, as it does in the middle of what cannot be read.
async fn read(imap: &mut Imap) -> Result<Vec<String>, ClientError> {
    let mut texts = Vec::new();
    for response in imap.command("FETCH 1:* (UID BODY.PEEK[])").await? {
        let Response::Fetch { items, .. } = response else {
            continue;
        };
        texts.extend(items.into_iter().filter_map(|item| match item {
            FetchData::Section {
                data: Some(data), ..
            } => Some(String::from_utf8(data).unwrap()),
            _ => None,
        }));
    }
    Ok(texts)
}

/// Reads until there is a message.
async fn read_all(server: &Server) -> String {
    let until = Instant::now() + PATIENCE;
    let mut failed = 0;
    loop {
        match read(&mut open(server).await).await {
            Ok(mut texts) if !texts.is_empty() => {
                assert_eq!(texts.len(), 1);
                return texts.remove(0);
            }
            Ok(_) => {}
            Err(_) => failed += 1,
        }
        assert!(Instant::now() < until, "not read, {failed} times refused");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The only body of the account goes, and its record and what holds it stay.
async fn lose(config: &Config) {
    let path = config.server.data_dir.join("store");
    let store = serve::open_copy(config, &path).await.unwrap();
    let blobs = store.list(None, 10).await.unwrap();
    let blobs: Vec<BlobName> = blobs.into_iter().map(|of| of.name).collect();
    let [blob] = blobs[..] else {
        panic!("{blobs:?}");
    };
    let mut held = Vec::new();
    for partition in (0..256).map(PartitionId) {
        let scan = store.scan(partition, KeyRange::prefix("a"), ScanLimit::default());
        for (key, row) in scan.await.unwrap().rows {
            if key[17] == CONTENT && row.windows(32).any(|part| part == blob.hash.0) {
                let holder = Bytes::from([&key[1..17], &key[18..]].concat());
                held.push((partition, holder));
            }
        }
    }
    let [(partition, holder)] = &held[..] else {
        panic!("{held:?}");
    };
    let commit = |mutation| {
        let mut commit = Commit::new(*partition);
        commit.mutations = vec![mutation];
        commit.bodies_come = true;
        commit
    };
    let holder = holder.clone();
    let release = Mutation::Release {
        blob,
        holder: holder.clone(),
    };
    store.commit(commit(release)).await.unwrap();
    store.close().await;
    // What nothing holds is removed at the next start at the latest.
    let store = serve::open_copy(config, &path).await.unwrap();
    assert_eq!(store.stat(blob).await.unwrap(), None);
    let hold = Mutation::Reference { blob, holder };
    store.commit(commit(hold)).await.unwrap();
    store.close().await;
}

async fn damage(config: &Config) -> Vec<String> {
    let report = check::run(config, None, false).await.unwrap();
    let damage = report.found.into_iter().filter(|found| found.damage);
    damage.map(|found| found.what).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_one_node_lost_comes_from_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| Node::new(directory.path(), name));
    let verifier = make_verifier(&a.config.auth, PASSWORD.as_bytes()).unwrap();
    let add = Question::AccountAdd {
        address: ANNE.into(),
        verifier,
        scram: None,
    };
    let fatal = Arc::new(|reason: &str| panic!("{reason}"));
    let answer = ask(&a.config, add, fatal).await.unwrap();
    assert_eq!(answer, Answer::Done {});
    a.cluster(&["init"]);
    let first = a.start().await;
    b.cluster(&["join", a.cluster(&["token"]).trim()]);
    let second = b.start().await;
    // Until then the first one serves the clients of the second.
    let syncing = b.config.server.data_dir.join("cluster/young");
    let until = Instant::now() + PATIENCE;
    while syncing.exists() {
        assert!(Instant::now() < until, "{}", a.cluster(&["status"]));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Far more than is read with a message's record.
    let text = format!("Subject: one\r\n\r\n{}", "a line\r\n".repeat(25_000));
    let append = format!("APPEND INBOX {{{}+}}\r\n{text}", text.len());
    open(&first).await.command(&append).await.unwrap();
    assert_eq!(read_all(&second).await, text);
    assert!(first.stop().await);
    assert!(second.stop().await);
    assert_eq!(damage(&b.config).await, Vec::<String>::new());
    lose(&b.config).await;
    let found = damage(&b.config).await;
    assert!(
        found.len() == 1 && found[0].contains("not there"),
        "{found:?}"
    );
    // Alone it can bring nobody to another node, nor fetch anything.
    let second = b.start().await;
    read(&mut open(&second).await).await.unwrap_err();
    let first = a.start().await;
    assert_eq!(read_all(&second).await, text);
    // Not from the other node.
    assert!(first.stop().await);
    assert_eq!(read_all(&second).await, text);
    assert!(second.stop().await);
    assert_eq!(damage(&b.config).await, Vec::<String>::new());
}
