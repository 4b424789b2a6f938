//! `whimbrel cluster`.

use std::io::{self, Read as _};

use whimbrel_cluster::{Authority, NodeName, Token, ask};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::roster::Roster;
use whimbrel_storage::{LogStore as _, Origin};
use whimbrel_storage_embedded::Embedded;
use zeroize::Zeroizing;

use super::{
    Cluster, ConfigFile,
    run::{load, print, runtime},
};
use crate::{
    admin::{
        client,
        protocol::{Answer, Question},
    },
    clock::wall_micros,
    cluster::{
        NodeLine, Status,
        files::{Files, FilesError, Joining, Kept},
        question_of_join,
    },
    config::{Config, LogFormat, LogLevel, LogSection},
    log,
    node::{DataDir, random},
    serve,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A token is one line of some hundred letters.
const TOKEN_BYTES_MAX: u64 = 4096;

pub(super) fn cluster(command: Cluster) -> Result<(), Failure> {
    let of = match &command {
        Cluster::Init { config }
        | Cluster::Join { config, .. }
        | Cluster::Token { config, .. }
        | Cluster::Status { config, .. } => config,
    };
    let config = open(of)?;
    match command {
        Cluster::Init { .. } => {
            let name = runtime()?.block_on(found(&config))?;
            print(&format!(
                "{name} is the first node of a cluster. Start it (`whimbrel serve`), and let others in with `whimbrel cluster token`.\n\
                 Not ready for mail: docs/replication.md says what is missing.\n"
            ))
        }
        Cluster::Join { token, .. } => {
            let token = match token {
                Some(token) => Zeroizing::new(token),
                None => {
                    let mut text = Zeroizing::new(String::new());
                    io::stdin()
                        .take(TOKEN_BYTES_MAX)
                        .read_to_string(&mut text)?;
                    text
                }
            };
            let token = Token::from_text(&token)?;
            let name = runtime()?.block_on(enter(&config, &token))?;
            print(&format!(
                "{name} is a member, let in by {}. Start it (`whimbrel serve`).\nNot ready for mail: docs/replication.md says what is missing.\n",
                token.sponsor
            ))
        }
        Cluster::Token { valid, .. } => {
            let token = new_token(&config, valid)?.to_text();
            print(&Zeroizing::new(format!("{}\n", *token)))
        }
        Cluster::Status { json, .. } => runtime()?.block_on(status(&config, json)),
    }
}

fn open(file: &ConfigFile) -> Result<Config, Failure> {
    let config = load(file)?;
    log::start(&LogSection {
        level: LogLevel::Warn,
        format: LogFormat::Text,
    });
    Ok(config)
}

fn name(config: &Config) -> Result<NodeName, Failure> {
    if config.cluster.name.is_empty() {
        return Err("set cluster.name in the configuration: a name for this node, such as \"eu-1\"; and cluster.listen and cluster.address, where the \
                    other nodes reach it"
            .into());
    }
    Ok(NodeName::new(&config.cluster.name)?)
}

fn be_in_none(files: &Files) -> Result<(), Failure> {
    match files.open()? {
        None => Ok(()),
        Some(kept) => Err(format!(
            "this is the node {} of a cluster already; `whimbrel cluster status` shows it",
            kept.credentials.name()
        )
        .into()),
    }
}

/// Opens the store as a start does, which settles whether the directory is a copy.
async fn open_store(config: &Config, data: &mut DataDir) -> Result<Embedded, Failure> {
    Ok(serve::open_store(config, data).await?)
}

/// Makes this node the first of a cluster.
pub(crate) async fn found(config: &Config) -> Result<NodeName, Failure> {
    let name = name(config)?;
    let mut data = DataDir::open(&config.server.data_dir)?;
    let files = Files::of(data.path());
    be_in_none(&files)?;
    let store = open_store(config, &mut data).await?;
    let me = Incarnation::from_hash(data.identity().incarnation);
    let shortened = is_shortened(&store, me).await;
    store.close().await;
    if shortened? {
        return Err("the logs of this node were shortened while it was alone, or it went on from an older disk: nodes that join could not get all that is \
                    here, since states are not given yet. Found the cluster on an empty data directory, and bring the mail by `whimbrel export` and \
                    `whimbrel import`"
            .into());
    }
    let authority = Authority::found(random())?;
    let credentials = authority.certify(&name)?;
    let identity = data.identity();
    let free = identity.slots_free.iter();
    let share = free.fold(0u64, |share, slot| share | 1 << (slot & 63));
    let roster = Roster::found(me, name.as_str(), identity.slot, share);
    files.keep(&Kept {
        authority,
        credentials,
        roster,
    })?;
    Ok(name)
}

/// Whether a log lacks its beginning, or is not this incarnation's.
async fn is_shortened(store: &Embedded, me: Incarnation) -> Result<bool, Failure> {
    for partition in store.partitions().await? {
        let logs = store.log_positions(partition).await?;
        let whole = |origin: Origin, low| origin.0 == me.get() && low <= 1;
        if !logs
            .iter()
            .all(|(origin, position)| whole(*origin, position.low))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lets this node in by a member's token.
pub(crate) async fn enter(config: &Config, token: &Token) -> Result<NodeName, Failure> {
    let name = name(config)?;
    let mut data = DataDir::open(&config.server.data_dir)?;
    let files = Files::of(data.path());
    be_in_none(&files)?;
    let store = open_store(config, &mut data).await?;
    let used = store.partitions().await;
    store.close().await;
    if !used?.is_empty() {
        return Err(format!(
            "{} has accounts or mail in it; a node joins with an empty data directory (server.data_dir)",
            data.path().display()
        )
        .into());
    }
    // One incarnation shows one token to one member: if no answer comes, the same is asked again, and nothing is given twice.
    files.make()?;
    let asked = files.joining()?.filter(|asked| asked.token == token.id);
    let joining = asked.unwrap_or_else(|| Joining {
        token: token.id,
        incarnation: Incarnation::from_hash(u64::from_le_bytes(random())).get(),
    });
    files.keep_joining(&joining)?;
    let me = Incarnation::from_hash(joining.incarnation);
    let admitted = ask(token, &name, question_of_join(me)).await?;
    let roster: Roster = minicbor::decode(&admitted.detail)
        .map_err(|_| "the member's answer is not understood: is it of another version?")?;
    let member = roster.members().get(me);
    let slot = member
        .ok_or("the member's answer does not name this node")?
        .slot;
    let credentials = admitted.authority.certify(&name)?;
    data.join(joining.incarnation, slot);
    data.write()?;
    files.keep(&Kept {
        authority: admitted.authority,
        credentials,
        roster,
    })?;
    Ok(name)
}

/// A token that lets one node in.
pub(crate) fn new_token(config: &Config, minutes: u64) -> Result<Token, Failure> {
    let files = Files::of(&config.server.data_dir);
    let kept = files.open()?.ok_or(
        "this node belongs to no cluster: `whimbrel cluster init` founds one, `whimbrel cluster join` joins one",
    )?;
    let token = Token {
        address: config.cluster_address(),
        sponsor: kept.credentials.name().to_string(),
        fingerprint: kept.authority.fingerprint(),
        id: u64::from_le_bytes(random()),
        secret: random(),
    };
    let now = wall_micros();
    let until = now.saturating_add(minutes * 60_000_000);
    files.tokens(|tokens| {
        tokens.give(now, &token, until)?;
        Ok::<_, TokenFailure>(())
    })?;
    Ok(token)
}

#[derive(Debug, thiserror::Error)]
enum TokenFailure {
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error(transparent)]
    Token(#[from] whimbrel_cluster::TokenError),
}

async fn status(config: &Config, json: bool) -> Result<(), Failure> {
    let status = match client::ask_running(config, &Question::ClusterStatus {}).await? {
        Some(Answer::Cluster { status }) => status,
        Some(Answer::Refused { reason }) => return Err(reason.into()),
        Some(other) => return Err(format!("the server answered {other:?}").into()),
        None => offline(config)?,
    };
    if json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&status)?));
    }
    print(&shown(&status))
}

fn offline(config: &Config) -> Result<Status, Failure> {
    let files = Files::of(&config.server.data_dir);
    let kept = files.open()?.ok_or("this node belongs to no cluster")?;
    let me = DataDir::read(&config.server.data_dir)?.incarnation;
    Ok(Status::of(
        kept.credentials.cluster(),
        &kept.roster,
        Some(Incarnation::from_hash(me)),
        &[],
    ))
}

fn shown(status: &Status) -> String {
    let mut out = format!("cluster {}\n", status.cluster);
    for node in &status.nodes {
        out.push_str(&line(node));
    }
    out
}

fn line(node: &NodeLine) -> String {
    let place = match (&node.region, &node.address) {
        (Some(region), Some(address)) => format!("{region}  {address}"),
        _ => "not here any more, or not heard yet".to_owned(),
    };
    let link = match (node.this, node.linked, node.round_trip_micros) {
        (true, ..) => "this node".to_owned(),
        (_, false, _) => "no link".to_owned(),
        (_, true, None) => "linked".to_owned(),
        (_, true, Some(micros)) => format!(
            "linked  {}.{:03} ms  {} bytes in  {} bytes out",
            micros / 1000,
            micros % 1000,
            node.received,
            node.sent
        ),
    };
    format!(
        "{}  {}  slot {}  {place}  {link}\n",
        node.name, node.incarnation, node.slot
    )
}
