//! `check` on stores whose files are whole and whose rows are not: each defect is told with its key.

use std::{net::SocketAddr, path::Path, sync::Arc};

use bytes::Bytes;
use whimbrel_server::{
    actor::Fatal,
    admin::{
        client::ask,
        protocol::{Answer, Question},
    },
    check::{self, Report},
    client::{self, Mail, send},
    config::{Config, Size},
    listen::Protocol,
    node::DataDir,
    password::make_verifier,
    serve::{self, Kind, Server, Sockets},
};
use whimbrel_smtp::{
    Domain, ForwardPath, HostName, LocalPart, Mailbox, ReversePath,
    client::{ClientConfig, Outgoing, StartTls},
};
use whimbrel_storage::{
    BlobStore as _, Commit, KeyRange, LogStore as _, Mutation, PartitionId, ScanLimit,
};
use whimbrel_storage_embedded::Embedded;

const ANNE: &str = "anne@example.org";
/// Partitions beside those of accounts.
const DIRECTORY: PartitionId = PartitionId(0x100);
const QUEUE: PartitionId = PartitionId(0x300);

fn config(directory: &Path) -> Config {
    let mut config = Config::parse(
        "[imap]\nlisten = []\nlisten_tls = []\n[pop3]\nlisten = []\nlisten_tls = []\n[smtp]\nlisten = []\n[lmtp]\nlisten = ['127.0.0.1:0']\n\
         [metrics]\nlisten = []\n[server]\nhostname = 'localhost'\n[auth]\nargon2_memory = '1MiB'\nargon2_passes = 1\n",
    )
    .unwrap();
    config.server.data_dir = directory.to_owned();
    config.storage.free_bytes_min = Size(1 << 20);
    config
}

fn fatal() -> Fatal {
    Arc::new(|reason| panic!("{reason}"))
}

/// A data directory with an account that has some mail.
async fn filled(config: &Config) {
    let verifier = make_verifier(&config.auth, b"secret").unwrap();
    let add = Question::AccountAdd {
        address: ANNE.into(),
        verifier,
        scram: None,
    };
    let answer = ask(config, add, fatal()).await.unwrap();
    assert!(matches!(answer, Answer::Done {}), "{answer:?}");
    let data = DataDir::open(&config.server.data_dir).unwrap();
    let sockets = Sockets::open(config, false).unwrap();
    let server = Server::start(config, data, sockets, fatal(), None)
        .await
        .unwrap();
    for number in 0..3 {
        deliver(&server, &format!("Subject: {number}\r\n\r\ntext\r\n")).await;
    }
    assert!(server.stop().await);
}

async fn deliver(server: &Server, text: &str) {
    let lmtp = server
        .addresses()
        .iter()
        .find(|(kind, _)| *kind == Kind::Mail(Protocol::Lmtp, false));
    let address: SocketAddr = lmtp.unwrap().1;
    let (local, domain) = ANNE.split_once('@').unwrap();
    let to = Mailbox::new(LocalPart::new(local).unwrap(), Domain::new(domain).unwrap()).unwrap();
    let mail = Mail {
        envelope: Outgoing::new(ReversePath::Null, vec![ForwardPath::Mailbox(to)]),
        text: text.as_bytes().to_vec(),
    };
    let mut client = ClientConfig::new(HostName::new("client.example.net").unwrap());
    client.lmtp = true;
    client.starttls = StartTls::Never;
    let tls = client::trusting(server.certificates().path()).unwrap();
    send(address, client, &tls, vec![mail]).await.unwrap();
}

/// The partition of the one account, and its rows.
async fn account(store: &Embedded) -> (PartitionId, Vec<(Bytes, Bytes)>) {
    for bucket in 0..256 {
        let partition = PartitionId(bucket);
        let page = store.scan(partition, KeyRange::prefix("a"), ScanLimit::default());
        let rows = page.await.unwrap().rows;
        if !rows.is_empty() {
            return (partition, rows);
        }
    }
    panic!("no account")
}

/// The row of the account whose kind this is (`RowKey`).
fn row(rows: &[(Bytes, Bytes)], kind: u8) -> (Bytes, Bytes) {
    rows.iter()
        .find(|(key, _)| key[17] == kind)
        .unwrap()
        .clone()
}

/// The store. Other tests start processes, which hold its lock for a moment, until they are another program.
async fn opened(config: &Config) -> Embedded {
    let path = config.server.data_dir.join("store");
    for _ in 0..100 {
        if let Ok(store) = serve::open_copy(config, &path).await {
            return store;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    serve::open_copy(config, &path).await.unwrap()
}

/// Changes rows as only a defect could, and checks.
async fn after(config: &Config, partition: PartitionId, mutations: Vec<Mutation>) -> Report {
    let store = opened(config).await;
    let mut commit = Commit::new(partition);
    commit.mutations = mutations;
    store.commit(commit).await.unwrap();
    store.close().await;
    check::run(config, None, false).await.unwrap()
}

fn put(key: &Bytes, value: impl Into<Bytes>) -> Vec<Mutation> {
    vec![Mutation::Put {
        key: key.clone(),
        value: value.into(),
    }]
}

/// That key, and nothing else, is damaged.
#[track_caller]
fn expect(report: &Report, partition: PartitionId, key: &[u8], what: &str) {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let damage: Vec<_> = report.found.iter().filter(|found| found.damage).collect();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(damage[0].partition, Some(partition.0), "{damage:?}");
    assert_eq!(damage[0].key.as_deref(), Some(hex.as_str()), "{damage:?}");
    assert!(damage[0].what.contains(what), "{damage:?}");
    assert!(report.is_damaged() && report.summary.complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_do_not_fit_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    filled(&config).await;
    let report = check::run(&config, None, false).await.unwrap();
    assert_eq!(report.found, []);
    let summary = &report.summary;
    assert!(
        summary.complete && summary.rows > 10 && summary.entries > 3,
        "{summary:?}"
    );
    assert_eq!(
        (summary.accounts, summary.replayed, summary.blobs),
        (1, 1, 3)
    );

    let store = opened(&config).await;
    let (partition, rows) = account(&store).await;
    let page = store
        .scan(DIRECTORY, KeyRange::prefix("d"), ScanLimit::default())
        .await
        .unwrap();
    let domain = page.rows[0].clone();
    store.close().await;

    let (message, mailbox, content) = (row(&rows, 6), row(&rows, 2), row(&rows, 0x80));
    let (other, mark) = (
        rows.iter().rfind(|(key, _)| key[17] == 6).unwrap().clone(),
        row(&rows, 3),
    );
    for (partition, key, value, bad, what) in [
        (
            partition,
            &message.0,
            &message.1,
            Bytes::from_static(b"\x01\xff"),
            "malformed",
        ),
        // Another message's: it can be read, and says what the log does not.
        (
            partition,
            &message.0,
            &message.1,
            other.1.clone(),
            "not what the log says",
        ),
        (
            partition,
            &mailbox.0,
            &mailbox.1,
            Bytes::from_static(b"\x07"),
            "version",
        ),
        (
            partition,
            &content.0,
            &content.1,
            Bytes::from_static(b"\x01\x82"),
            "",
        ),
        (
            partition,
            &mark.0,
            &mark.1,
            Bytes::from_static(b"\x01\xff"),
            "malformed",
        ),
        (
            DIRECTORY,
            &domain.0,
            &domain.1,
            Bytes::from_static(b"\x9f"),
            "cannot be read",
        ),
    ] {
        let report = after(&config, partition, put(key, bad)).await;
        let told = report
            .found
            .iter()
            .any(|found| found.damage && found.what.contains(what));
        assert!(told, "{what}: {:?}", report.found);
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let named = report
            .found
            .iter()
            .any(|found| found.key.as_deref() == Some(&hex));
        assert!(named, "{what}: {:?}", report.found);
        after(&config, partition, put(key, value.clone())).await;
    }

    // What is not there.
    let gone = |key: &Bytes| vec![Mutation::Delete { key: key.clone() }];
    let report = after(&config, partition, gone(&content.0)).await;
    expect(&report, partition, &content.0, "no content row");
    after(&config, partition, put(&content.0, content.1.clone())).await;
    let position = Bytes::from_static(b"\0position");
    let store = opened(&config).await;
    let kept = store
        .get(partition, vec![position.clone()])
        .await
        .unwrap()
        .remove(0)
        .unwrap();
    store.close().await;
    let report = after(&config, partition, gone(&position)).await;
    expect(&report, partition, &position, "missing");
    after(&config, partition, put(&position, kept)).await;

    // What should not be there.
    let stray = Bytes::from_static(b"stray");
    let report = after(&config, partition, put(&stray, "x")).await;
    expect(&report, partition, &stray, "nothing that is known");
    after(&config, partition, gone(&stray)).await;
    let entry = Bytes::from_static(b"e0123456789abcdef");
    let report = after(&config, QUEUE, put(&entry, "x")).await;
    expect(&report, QUEUE, &entry, "entry");
    after(&config, QUEUE, gone(&entry)).await;
    let subscribed = [&mark.0[..17], &[4], b"nowhere"].concat().into();
    let report = after(
        &config,
        partition,
        put(&subscribed, b"\x01\x81\x82\x01\x01".to_vec()),
    )
    .await;
    assert!(report.is_damaged(), "{:?}", report.found);
    after(&config, partition, gone(&subscribed)).await;

    // A blob that is gone, and one that nothing holds.
    let store = opened(&config).await;
    let blobs = store.list(None, 10).await.unwrap();
    store.close().await;
    let holder: Bytes = [&content.0[1..17], &content.0[18..]].concat().into();
    let of = blobs
        .iter()
        .find(|blob| content.1.windows(32).any(|part| part == blob.name.hash.0));
    let name = of.unwrap().name;
    let also = Mutation::Reference {
        blob: name,
        holder: "someone else".into(),
    };
    let release = Mutation::Release {
        blob: name,
        holder: holder.clone(),
    };
    let report = after(&config, partition, vec![also, release]).await;
    expect(&report, partition, &content.0, "not held");
    let release = Mutation::Release {
        blob: name,
        holder: "someone else".into(),
    };
    let report = after(&config, partition, vec![release]).await;
    expect(&report, partition, &content.0, "not there");
}
