//! `whimbrel cluster`; what `status` shows is in [`status`].

mod status;

use std::{
    io::{self, Read as _},
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use whimbrel_cluster::{Authority, JoinError, NodeName, Token, TokenError, ask};
use whimbrel_crdt::Incarnation;
use whimbrel_replication::roster::Roster;
use whimbrel_storage::LogStore as _;
use whimbrel_storage_embedded::Embedded;
use zeroize::Zeroizing;

use super::{
    Cluster, ConfigFile, EXIT_NOT_WELL,
    accounts::{is_new, tell_of_new},
    prompt,
    run::{load, print, runtime},
};
use crate::{
    admin::{
        client,
        protocol::{Answer, Question},
    },
    clock::wall_micros,
    cluster::{
        Drain, DrainAsk, Removal, Remove, Status,
        files::{Files, FilesError, Joining, Kept},
        question_of_join,
    },
    config::{Config, LogFormat, LogLevel, LogSection},
    log,
    node::{DataDir, random},
    serve,
    transfer::counted,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A token is one line of some hundred letters.
const TOKEN_BYTES_MAX: u64 = 4096;

/// The message for a command that needs a running server.
const NOBODY: &str =
    "no server runs here: start it, or run the command on a node whose server runs";

pub(super) fn cluster(command: Cluster) -> Result<ExitCode, Failure> {
    let of = match &command {
        Cluster::Init { config }
        | Cluster::Join { config, .. }
        | Cluster::Token { config, .. }
        | Cluster::Drain { config, .. }
        | Cluster::Remove { config, .. }
        | Cluster::Status { config, .. } => config,
    };
    let makes = matches!(command, Cluster::Init { .. } | Cluster::Join { .. });
    let new = makes && is_new(of)?;
    let config = open(of)?;
    let done = match command {
        Cluster::Init { .. } => {
            let name = runtime()?.block_on(found(&config))?;
            if new {
                tell_of_new(&config);
            }
            print(&format!(
                "{name} is the first node of a cluster. Start it (`whimbrel serve`). `whimbrel cluster token` makes a token for each node that is to join.\n\
                 docs/cluster.md describes the next steps. Clusters are new: keep another copy of the mail.\n"
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
            if new {
                tell_of_new(&config);
            }
            print(&format!(
                "{name} has joined the cluster by {}. Start it (`whimbrel serve`).\n\
                 docs/cluster.md describes the next steps. Clusters are new: keep another copy of the mail.\n",
                token.sponsor
            ))
        }
        Cluster::Token { valid, .. } => {
            let token = new_token(&config, valid)?.to_text();
            print(&Zeroizing::new(format!("{}\n", *token)))
        }
        Cluster::Drain {
            node, of, cancel, ..
        } => runtime()?.block_on(drain_or_refuse(&config, node.as_deref(), of, cancel)),
        Cluster::Remove {
            node, earlier, yes, ..
        } => {
            let remove = Remove {
                node,
                earlier,
                really: false,
            };
            runtime()?.block_on(removal(&config, remove, yes))
        }
        Cluster::Status {
            partitions,
            verbose,
            json,
            ..
        } => {
            let form = match (json, verbose) {
                (true, _) => status::Form::Json,
                (false, true) => status::Form::Verbose,
                (false, false) => status::Form::Table,
            };
            let is_well = runtime()?.block_on(status::status(&config, partitions, form))?;
            let not_well = (!is_well).then_some(ExitCode::from(EXIT_NOT_WELL));
            return Ok(not_well.unwrap_or(ExitCode::SUCCESS));
        }
    };
    done.map(|()| ExitCode::SUCCESS)
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
        return Err("set cluster.name in the configuration, such as \"eu-1\", and cluster.listen and cluster.address, at which the other nodes reach \
                    this node"
            .into());
    }
    let name = NodeName::new(&config.cluster.name)?;
    // Where names of certificates are looked for that would be an address of IPv4: no other node could make a link.
    if name.as_str().bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("cluster.name: {name} consists of digits only, and other nodes could not reach it by that name; use \"node-{name}\", for example").into());
    }
    Ok(name)
}

fn be_in_none(files: &Files) -> Result<(), Failure> {
    match files.open()? {
        None => Ok(()),
        Some(kept) => Err(format!(
            "this node is a member of a cluster already, as {}; `whimbrel cluster status` shows it",
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
    store.close().await;
    let authority = Authority::found(random())?;
    let credentials = authority.certify(&name)?;
    let identity = data.identity();
    let free = identity.slots_free.iter();
    let share = free.fold(0u64, |share, slot| share | 1 << (slot & 63));
    let roster = Roster::found(me, name.as_str(), identity.slot, share);
    files.make()?;
    files.keep_life(me)?;
    files.keep(&Kept {
        authority,
        credentials,
        roster,
    })?;
    Ok(name)
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
            "{} contains accounts or mail; a node joins with an empty data directory (server.data_dir)",
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
    let admitted = ask(token, &name, question_of_join(me)).await;
    let admitted = admitted.map_err(|error| in_vain(&error, &name))?;
    let roster: Roster = minicbor::decode(&admitted.detail)
        .map_err(|_| "the member's answer cannot be read: does it run another version?")?;
    let member = roster.members().get(me);
    let slot = member
        .ok_or("the member's answer does not name this node")?
        .slot;
    let credentials = admitted.authority.certify(&name)?;
    data.join(joining.incarnation, slot);
    data.write()?;
    files.keep_syncing()?;
    files.keep_life(me)?;
    files.keep(&Kept {
        authority: admitted.authority,
        credentials,
        roster,
    })?;
    Ok(name)
}

/// The message for a node that was not let in.
fn in_vain(error: &JoinError, name: &NodeName) -> String {
    match error {
        // The member may have let it in, and the answer was lost.
        JoinError::Io { .. } => format!(
            "{error}. Try again with the same token. With another one, {name} may be in use already: if it never started, run \
             `whimbrel cluster remove {name}` on a member"
        ),
        JoinError::Refused(why) if *why == TokenError::Invalid.to_string() => {
            format!("{error}. Make a new one on a member: `whimbrel cluster token`")
        }
        JoinError::Refused(_) | JoinError::Authority(_) => error.to_string(),
    }
}

/// A token that lets one node in.
pub(crate) fn new_token(config: &Config, minutes: u64) -> Result<Token, Failure> {
    let files = Files::of(&config.server.data_dir);
    let kept = files.open()?.ok_or(
        "this node is not a member of a cluster: `whimbrel cluster init` creates one, `whimbrel cluster join` joins one",
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
    Token(#[from] TokenError),
}

/// As [`drain`], unless it would wait for what can never come.
async fn drain_or_refuse(
    config: &Config,
    node: Option<&str>,
    of: Option<u64>,
    cancel: bool,
) -> Result<(), Failure> {
    if !cancel {
        let asked = ask_status(config).await?;
        if let Some(why) = never_safe(status::others_than(&asked, node), of) {
            return Err(why.into());
        }
    }
    drain(config, node, of, cancel).await
}

/// The reason why it is never safe to stop a node with so many other members.
fn never_safe(others: u64, of: Option<u64>) -> Option<String> {
    match of {
        _ if others == 0 => Some(
            "there is no other member that could take over the data of this node, so it would never be safe to stop it. Nothing was drained"
                .into(),
        ),
        Some(of) if of > others => Some(format!(
            "--of {of} is greater than the number of other members ({others}), so it would never be safe to stop the node. Nothing was drained"
        )),
        _ => None,
    }
}

async fn ask_status(config: &Config) -> Result<Status, Failure> {
    match client::ask_running(config, &Question::ClusterStatus {}).await? {
        Some(Answer::Cluster { status, .. }) => Ok(status),
        Some(Answer::Refused { reason }) => Err(reason.into()),
        Some(other) => Err(format!("the server answered {other:?}").into()),
        None => Err(NOBODY.into()),
    }
}

/// How often the progress is asked for.
const DRAIN_PAUSE: Duration = Duration::from_secs(1);

async fn drain(
    config: &Config,
    node: Option<&str>,
    of: Option<u64>,
    cancel: bool,
) -> Result<(), Failure> {
    if cancel {
        let _ = ask_to_drain(config, node, DrainAsk::Cancel).await?;
        return print("The drain is undone: sessions are accepted again.\n");
    }
    let mut shown = String::new();
    let mut ask = DrainAsk::Begin;
    loop {
        let mut asked = pin!(ask_to_drain(config, node, ask));
        let asked = tokio::select! {
            asked = &mut asked => asked,
            // If the signal cannot be heard, the command cannot be interrupted.
            Ok(()) = tokio::signal::ctrl_c() => {
                // A question under way must not arrive after the one that cancels the drain; a second Ctrl-C does not wait for it.
                tokio::select! {
                    _ = &mut asked => {}
                    Ok(()) = tokio::signal::ctrl_c() => {}
                }
                return take_back(config, node).await;
            }
        };
        let drain = asked?;
        ask = next_ask(&drain)?;
        let text = progress(&drain);
        if text != shown {
            print(&text)?;
            shown = text;
        }
        if is_safe(&drain, of) {
            return print(&format!(
                "It is safe to stop {}.\n",
                node.unwrap_or("this node")
            ));
        }
        tokio::select! {
            () = tokio::time::sleep(DRAIN_PAUSE) => {}
            Ok(()) = tokio::signal::ctrl_c() => return take_back(config, node).await,
        }
    }
}

async fn take_back(config: &Config, node: Option<&str>) -> Result<(), Failure> {
    let _ = ask_to_drain(config, node, DrainAsk::Cancel).await?;
    Err("the drain is undone: sessions are accepted again".into())
}

/// The next question to a node that was asked to drain: a command that cancels the drain, or a start of the node, must not be overruled.
fn next_ask(drain: &Drain) -> Result<DrainAsk, Failure> {
    match drain.draining {
        Some(true) => Ok(DrainAsk::Look),
        Some(false) => Err(
            "another command, or a start, has undone the drain: sessions are accepted again".into(),
        ),
        None => Ok(DrainAsk::Begin),
    }
}

async fn ask_to_drain(
    config: &Config,
    node: Option<&str>,
    ask: DrainAsk,
) -> Result<Drain, Failure> {
    let node = node.map(str::to_owned);
    let (cancel, look) = ask.words();
    let question = Question::ClusterDrain { node, cancel, look };
    match client::ask_running(config, &question).await? {
        Some(Answer::Drain(drain)) => Ok(drain),
        Some(Answer::Refused { reason }) => Err(reason.into()),
        Some(other) => Err(format!("the server answered {other:?}").into()),
        None => Err(NOBODY.into()),
    }
}

/// Whether so many others hold all that is here, and nothing more comes; `None`: all others.
fn is_safe(drain: &Drain, of: Option<u64>) -> bool {
    let holders = drain
        .others
        .iter()
        .filter(|other| other.holds_all())
        .count() as u64;
    let wanted = of.unwrap_or(drain.others.len().max(1) as u64);
    let is_enough = holders >= wanted && drain.least.is_none_or(|least| least >= of.unwrap_or(1));
    drain.sessions == 0 && drain.queue_entries == 0 && is_enough
}

fn progress(drain: &Drain) -> String {
    let queue = match drain.queue_entries {
        // The count did not come.
        u64::MAX => "messages in the queue: not known yet".to_owned(),
        entries => format!("{} in the queue", counted(entries, "message")),
    };
    let mut out = format!("{}, {queue}", counted(drain.sessions, "session"));
    if drain.others.is_empty() {
        out.push_str("; there is no other member");
    }
    for other in &drain.others {
        let state = match (other.linked, other.lag_operations, other.unfinished) {
            (false, ..) => "is not linked".to_owned(),
            (_, None, _) | (_, _, None) => "has not answered yet".to_owned(),
            (_, Some(0), Some(0)) => "holds all".to_owned(),
            (_, Some(lacks), Some(unfinished)) => format!(
                "lacks {}; {unfinished} operations and blobs are not in place there",
                counted(lacks, "operation")
            ),
        };
        out.push_str(&format!("; {} {state}", other.name));
    }
    if let Some(least) = drain.least {
        out.push_str(&format!(
            "; each partition is complete on {least} of them, or more"
        ));
    }
    out.push('\n');
    out
}

async fn removal(config: &Config, mut remove: Remove, yes: bool) -> Result<(), Failure> {
    let means = ask_to_remove(config, &remove).await?;
    if means.lives.is_empty() {
        return print(&format!(
            "{}: its earlier incarnations have been removed already.\n",
            remove.node
        ));
    }
    if !yes {
        print(&meaning(&means))?;
        if !prompt::confirm("Remove it?")? {
            return Err("nothing was removed".into());
        }
    }
    remove.really = true;
    let done = ask_to_remove(config, &remove).await?;
    let mut out = String::new();
    for life in &done.lives {
        out.push_str(&format!(
            "{} ({}) is removed.\n",
            life.name, life.incarnation
        ));
    }
    out.push_str(
        "Its slot becomes free when all other members have the same operations of it: `whimbrel cluster status` shows that.\n",
    );
    print(&out)
}

async fn ask_to_remove(config: &Config, remove: &Remove) -> Result<Removal, Failure> {
    match client::ask_running(config, &Question::ClusterRemove(remove.clone())).await? {
        Some(Answer::Removal(removal)) => Ok(removal),
        Some(Answer::Refused { reason }) => Err(reason.into()),
        Some(other) => Err(format!("the server answered {other:?}").into()),
        None => Err(NOBODY.into()),
    }
}

fn meaning(removal: &Removal) -> String {
    let mut out = String::new();
    for life in &removal.lives {
        let state = match life.linked {
            true => {
                "it is linked. What it has not sent yet will be lost: drain it first (`whimbrel cluster drain`)"
            }
            false => {
                "it is not linked. What it wrote and had not sent is lost, unless its disk can still be read"
            }
        };
        out.push_str(&format!("{} ({}): {state}.\n", life.name, life.incarnation));
    }
    for other in removal.others.iter().filter(|other| !other.linked) {
        out.push_str(&format!(
            "{} ({}) cannot be reached either: the removal is complete when that node has been reached, or removed as well.\n",
            other.name, other.incarnation
        ));
    }
    out.push_str("A removal cannot be undone.\n");
    out
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        cluster::DrainLine,
        serve::{Server, Sockets},
    };

    /// A command that waits until it is safe to stop a node asked each second, and drained the node again each time.
    #[tokio::test]
    async fn what_another_command_has_taken_back_stays_so() {
        /// Some times as long as the command pauses.
        const STAYS: Duration = Duration::from_secs(3);
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "[server]\ndata_dir = {:?}\nhostname = 'localhost'\n[storage]\nfree_bytes_min = '0B'\n[cluster]\nname = 'a'\nlisten = ['127.0.0.1:0']\n",
            directory.path()
        );
        let config = Config::parse(&text).unwrap();
        found(&config).await.unwrap();
        let data = DataDir::open(directory.path()).unwrap();
        let fatal = Arc::new(|reason: &str| panic!("{reason}"));
        let server = Server::start(&config, data, Sockets::none(), fatal, None);
        let server = server.await.unwrap();
        let is_draining = async || {
            let looked = ask_to_drain(&config, None, DrainAsk::Look).await.unwrap();
            looked.draining.unwrap()
        };
        assert!(!is_draining().await);
        // Alone it is never safe to stop.
        let running = tokio::spawn({
            let config = config.clone();
            async move {
                let drained = drain(&config, None, None, false).await;
                drained.map_err(|error| error.to_string())
            }
        });
        while !is_draining().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        drain(&config, None, None, true).await.unwrap();
        let until = tokio::time::Instant::now() + STAYS;
        while tokio::time::Instant::now() < until {
            assert!(!is_draining().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let ended = running.await.unwrap().unwrap_err();
        assert!(ended.contains("undone the drain"), "{ended}");
        assert!(server.stop().await);
    }

    #[test]
    fn the_same_token_is_good_where_no_answer_came() {
        let name = NodeName::new("b").unwrap();
        let lost = JoinError::Io {
            address: "a:1".into(),
            cause: io::ErrorKind::TimedOut.into(),
        };
        let used = JoinError::Refused(TokenError::Invalid.to_string());
        let other = JoinError::Refused("this node is starting; try again".into());
        for (error, same, another) in [
            (lost, true, false),
            (used, false, true),
            (other, false, false),
        ] {
            let told = in_vain(&error, &name);
            assert!(told.starts_with(&error.to_string()), "{told}");
            assert_eq!(told.contains("the same token"), same, "{told}");
            assert_eq!(told.contains("`whimbrel cluster token`"), another, "{told}");
        }
    }

    #[test]
    fn what_can_never_be_safe_is_not_waited_for() {
        for (others, of, refused) in [
            (0, None, Some("no other member")),
            (0, Some(1), Some("no other member")),
            (1, Some(2), Some("--of 2")),
            (1, None, None),
            (1, Some(1), None),
            (3, Some(3), None),
        ] {
            let why = never_safe(others, of);
            assert_eq!(why.is_some(), refused.is_some(), "{why:?}");
            assert!(
                why.is_none_or(|why| refused.is_some_and(|says| why.contains(says))),
                "{others} of {of:?}"
            );
        }
    }

    #[test]
    fn what_is_not_known_of_the_queue_is_no_number() {
        let told = |queue_entries| {
            progress(&Drain {
                queue_entries,
                ..Drain::default()
            })
        };
        let nobody = "there is no other member\n";
        let known = format!("0 sessions, 7 messages in the queue; {nobody}");
        assert_eq!(told(7), known);
        let unknown = format!("0 sessions, messages in the queue: not known yet; {nobody}");
        assert_eq!(told(u64::MAX), unknown);
    }

    #[test]
    fn no_node_is_named_by_a_number() {
        let named = |text: &str| {
            let config = Config::parse(&format!("[cluster]\nname = '{text}'")).unwrap();
            name(&config).map_err(|error| error.to_string())
        };
        assert_eq!(named("1a").unwrap().as_str(), "1a");
        let refused = named("12").unwrap_err();
        assert!(refused.contains("digits only"), "{refused}");
    }

    #[test]
    fn a_node_of_an_earlier_version_is_asked_as_before() {
        let next = |draining| {
            next_ask(&Drain {
                draining,
                ..Drain::default()
            })
        };
        assert_eq!(next(None).unwrap(), DrainAsk::Begin);
        assert_eq!(next(Some(true)).unwrap(), DrainAsk::Look);
        assert!(next(Some(false)).is_err());
        for ask in [DrainAsk::Begin, DrainAsk::Look, DrainAsk::Cancel] {
            let (cancel, look) = ask.words();
            assert_eq!(DrainAsk::new(cancel, look), ask);
        }
        // A field that it does not know is not sent before it has said that it knows it.
        let begin = Question::ClusterDrain {
            node: None,
            cancel: false,
            look: false,
        };
        let said = serde_json::to_string(&begin).unwrap();
        assert_eq!(
            said,
            r#"{"ask":"cluster-drain","node":null,"cancel":false}"#
        );
        assert_eq!(serde_json::from_str::<Question>(&said).unwrap(), begin);
    }

    #[test]
    fn a_node_is_safe_to_stop_when_others_hold_all() {
        let line = |linked, lacks, unfinished| DrainLine {
            name: "b".into(),
            linked,
            lag_operations: lacks,
            unfinished,
        };
        let holds = line(true, Some(0), Some(0));
        let check = |sessions, queue_entries, others: &[&DrainLine], of, safe| {
            let drain = Drain {
                sessions,
                queue_entries,
                others: others.iter().map(|line| (*line).clone()).collect(),
                least: None,
                draining: None,
            };
            assert_eq!(is_safe(&drain, of), safe, "{drain:?} of {of:?}");
        };
        // Others hold all that they are to hold, but of one partition nobody does, or one alone.
        for (least, of, safe) in [
            (0, None, false),
            (1, None, true),
            (0, Some(1), false),
            (1, Some(1), true),
            (1, Some(2), false),
        ] {
            let drain = Drain {
                others: vec![holds.clone(); 3],
                least: Some(least),
                ..Drain::default()
            };
            assert_eq!(is_safe(&drain, of), safe, "{least} of {of:?}");
        }
        check(0, 0, &[&holds, &holds], None, true);
        check(1, 0, &[&holds], None, false);
        check(0, 1, &[&holds], None, false);
        // Nobody holds anything in a cluster of one.
        check(0, 0, &[], None, false);
        for other in [
            line(false, Some(0), Some(0)),
            line(true, Some(1), Some(0)),
            line(true, Some(0), Some(1)),
            line(true, None, Some(0)),
            line(true, Some(0), None),
        ] {
            check(0, 0, &[&holds, &other], None, false);
            check(0, 0, &[&holds, &other], Some(1), true);
            check(0, 0, &[&holds, &other], Some(2), false);
        }
    }
}
