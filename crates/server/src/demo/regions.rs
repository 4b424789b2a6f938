//! `whimbrel demo --regions N`: nodes of one cluster, each a region, in one process. They communicate by mutual TLS through connections of the demo,
//! some of which it closes.
//!
//! The output is checked: [`View`]s are read by IMAP, and differing ones end the demo with an error.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    net::SocketAddr,
    path::Path,
    sync::Arc,
};

use rustls::ClientConfig;
use tokio::time::{Duration, Instant, sleep};
use whimbrel_imap::client::{FetchData, ReplyCode, Response};
use zeroize::Zeroizing;

use super::{
    ANNE, BOB, Failure, address, begin, configuration, deliver, mail, make_accounts, overdue,
    sea::Sea, show, wait_for,
};
use crate::{
    actor::Fatal,
    admin::{
        client::ask_running,
        protocol::{Answer, Question},
    },
    cli::{
        Stop,
        cluster::{enter, found, new_token},
    },
    client::{self, ClientError, Imap},
    config::Config,
    listen::Protocol,
    node::DataDir,
    serve::{Kind, Server, Sockets, StartError},
};

const NAMES: [&str; 5] = ["europe", "america", "asia", "africa", "oceania"];
/// As many as have names.
pub const REGIONS_MAX: u16 = NAMES.len() as u16;
/// From one region's ports to the next one's: all of a node's own lie within a thousand.
const PORTS_APART: u16 = 1000;
/// Where the ports of the default configuration begin.
pub const FIRST_PORT: u16 = 10_000;
/// For one region to let the next one in: it takes milliseconds.
const TOKEN_MINUTES: u64 = 5;
/// For anything to be everywhere. It takes milliseconds, and after a cut up to some seconds until the next try to reach the other side.
const AGREE_WAIT_MAX: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// A node that runs.
struct Region {
    name: &'static str,
    config: Config,
    server: Server,
    tls: Arc<ClientConfig>,
}

/// A message: its UID, its flags, its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) uid: u32,
    pub(super) flags: BTreeSet<String>,
    pub(super) subject: String,
}

/// What a client sees of one mailbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) validity: u32,
    pub(super) lines: Vec<Line>,
}

/// All mailboxes of an account, by name.
pub(super) type Views = BTreeMap<String, View>;

/// The same, or what a region said instead.
pub(super) type Looked = Result<Views, String>;

/// Runs until Ctrl-C, or until all is shown.
///
/// # Errors
/// When anything that should work does not, or the regions do not show the same in the end.
pub async fn run(count: u16, first_port: u16, exit: bool, fatal: Fatal) -> Result<(), Failure> {
    let mut stop = Stop::new()?;
    let directory = begin()?;
    let names = &NAMES[..usize::from(count.min(REGIONS_MAX))];
    let mut configs: Vec<Config> = names
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let shift = first_port - FIRST_PORT + PORTS_APART * u16::try_from(index).unwrap_or(0);
            region(name, &directory.path().join(name), shift)
        })
        .collect();
    // All at once: nothing is begun if a port is taken.
    let sockets: Vec<Sockets> = configs
        .iter()
        .map(open_sockets)
        .collect::<Result<_, Failure>>()?;
    let peers: Vec<SocketAddr> = configs
        .iter()
        .filter_map(|config| config.cluster.listen.first().copied())
        .collect();
    let sea = Sea::open(&peers).await?;
    for (from, config) in configs.iter_mut().enumerate() {
        let ways = sea.ways(from);
        config.cluster.peers = ways
            .map(|(to, address)| format!("{}={address}", names[to]))
            .collect();
    }

    show::regions(directory.path());
    let mut regions = Vec::new();
    let started = start(&mut regions, names, configs, sockets, &fatal).await;
    let shown = match started {
        Err(failure) => Err(failure),
        Ok(()) => tokio::select! {
            shown = present(&regions, &sea) => shown.map(|()| true),
            () = stop.asked() => Ok(false),
        },
    };
    if matches!(shown, Ok(true)) && !exit {
        stop.asked().await;
        show::ending();
    }
    for region in regions {
        region.server.stop().await;
    }
    directory.close()?;
    shown.map(drop)
}

/// As the default configuration, with other ports.
fn region(name: &str, directory: &Path, shift: u16) -> Config {
    let mut config = configuration(directory);
    config.cluster.name = name.to_owned();
    config.cluster.region = name.to_owned();
    // The region that is cut off takes mail, too: else senders are told to come back.
    config.queue.other_nodes = 0;
    // Metrics belong to the whole process: one region's page would show those of all.
    config.metrics.listen.clear();
    let lists = [
        &mut config.cluster.listen,
        &mut config.imap.listen,
        &mut config.imap.listen_tls,
        &mut config.pop3.listen,
        &mut config.pop3.listen_tls,
        &mut config.smtp.listen,
        &mut config.submission.listen,
        &mut config.submission.listen_tls,
        &mut config.lmtp.listen,
    ];
    for address in lists.into_iter().flatten() {
        address.set_port(address.port() + shift);
    }
    config
}

fn open_sockets(config: &Config) -> Result<Sockets, Failure> {
    Sockets::open(config, false).map_err(|error| match error {
        StartError::Listen { .. } => {
            format!("{error}; if another demo runs, `--first-port 20000` takes other ports").into()
        }
        other => other.into(),
    })
}

/// As an administrator would: `cluster init` on the first, a token for each other one, `cluster join` there.
async fn start(
    regions: &mut Vec<Region>,
    names: &[&'static str],
    configs: Vec<Config>,
    sockets: Vec<Sockets>,
    fatal: &Fatal,
) -> Result<(), Failure> {
    for ((name, config), sockets) in names.iter().zip(configs).zip(sockets) {
        match regions.first() {
            None => {
                let _ = found(&config).await?;
            }
            Some(Region { config: first, .. }) => {
                let _ = enter(&config, &new_token(first, TOKEN_MINUTES)?).await?;
            }
        }
        let data = DataDir::open(&config.server.data_dir)?;
        let server = Server::start(&config, data, sockets, Arc::clone(fatal), None).await?;
        let tls = client::trusting(server.certificates().path())?;
        show::region(name, server.addresses());
        regions.push(Region {
            name,
            config,
            server,
            tls,
        });
    }
    Ok(())
}

async fn present(regions: &[Region], sea: &Sea) -> Result<(), Failure> {
    let (Some(first), Some(second), Some(last)) = (regions.first(), regions.get(1), regions.last())
    else {
        return Err("the demo of a cluster needs two regions".into());
    };
    let others = regions.len() - 1;
    until(
        "all regions are linked",
        regions,
        Region::links,
        |links| links.iter().all(|(_, links)| links.len() == others),
        overdue::plain,
    )
    .await?;
    show::step("all regions are linked, by TLS with certificates of the cluster's own\n");

    let passwords = make_accounts(&first.config, &first.server).await?;
    until(
        "all regions have both accounts",
        regions,
        Region::accounts,
        |accounts| {
            let both = |of: &Result<Vec<_>, _>| of.as_ref().is_ok_and(|of| of.len() == 2);
            accounts.iter().all(|(_, accounts)| both(accounts))
        },
        overdue::plain,
    )
    .await?;
    show::accounts(&[(ANNE, &passwords[0]), (BOB, &passwords[1])]);
    show::step(&format!(
        "accounts made in {}, known in all regions\n",
        first.name
    ));
    let password = &passwords[0];

    // Anne waits for mail on the other side of the sea.
    let mut anne = second.login(password).await?;
    let letters = mail::prepared();
    let for_anne = letters.iter().filter(|letter| letter.to == ANNE).count();
    deliver(
        first.address(Kind::Mail(Protocol::Lmtp, false))?,
        &first.tls,
        letters,
    )
    .await?;
    show::step(&format!(
        "LMTP  {for_anne} messages for anne delivered in {}",
        first.name
    ));
    wait_for(&mut anne, for_anne).await?;
    show::step(&format!(
        "IMAP  anne, who waited in {}, reads them there:",
        second.name
    ));
    show::messages(
        &anne
            .command("FETCH 1:* (FLAGS ENVELOPE RFC822.SIZE)")
            .await?,
    );
    anne.command("LOGOUT").await?;
    // Until a region has all of what others have, these serve its clients: what it shows of them it may not have itself, and would lack when it is cut off.
    until(
        "all regions are in sync",
        regions,
        Region::lacks,
        |lacks| lacks.iter().all(|(_, lacks)| *lacks == Some(0)),
        overdue::plain,
    )
    .await?;
    let what = format!("INBOX with {for_anne} messages");
    let before = alike(regions, password, &what, |views| {
        inbox(views).len() == for_anne
    })
    .await?;

    sea.cut_off(regions.len() - 1);
    until(
        &format!("only {} has no link", last.name),
        regions,
        Region::links,
        |links| {
            links.split_last().is_some_and(|((_, alone), together)| {
                let rest = together.iter().all(|(_, links)| links.len() == others - 1);
                alone.is_empty() && rest
            })
        },
        overdue::plain,
    )
    .await?;
    show::step(&format!(
        "\n{} is cut off from the other regions. Both sides go on:",
        last.name
    ));
    write_on_both_sides(regions, first, last, password).await?;
    let mut apart = Vec::new();
    for region in [first, last] {
        show::step(&format!("anne's mail as {} shows it:", region.name));
        let views = region.views(password).await?;
        views.iter().for_each(show::mailbox);
        apart.push((region.name, views));
    }

    sea.heal();
    let expected = |views: &Views| {
        let flagged = inbox(views).first().is_some_and(|line| {
            ["\\Seen", "\\Flagged"]
                .iter()
                .all(|flag| line.flags.contains(*flag))
        });
        let archived = views.get("Archive").map_or(0, |view| view.lines.len());
        flagged && archived == 1 && inbox(views).len() == for_anne + 1
    };
    let started = Instant::now();
    let what = format!(
        "INBOX with {} messages, the first one \\Seen and \\Flagged, and Archive with one",
        for_anne + 1
    );
    let after = alike(regions, password, &what, expected).await?;
    show::step(&format!(
        "\nthe link is back; {:.1} s later all {} regions show this:",
        started.elapsed().as_secs_f64(),
        regions.len()
    ));
    after.iter().for_each(show::mailbox);
    for (name, views) in &apart {
        for line in inbox(views) {
            let now = inbox(&after).iter().find(|now| now.subject == line.subject);
            if let Some(now) = now.filter(|now| now.uid != line.uid) {
                show::step(&format!(
                    "  {:?} had UID {} in {name}: another region had announced a greater one, so it is {} now",
                    line.subject, line.uid, now.uid
                ));
            }
        }
    }
    kept(&before, &after)?;
    let names: Vec<&str> = regions.iter().map(|region| region.name).collect();
    show::step(&format!(
        "looked at in {}: the same mailboxes, UIDVALIDITY, UIDs and flags; no UID from before the cut has changed\n",
        names.join(", ")
    ));

    show::regions_connect(password);
    for region in regions {
        show::region_connect(
            region.name,
            region.address(Kind::Mail(Protocol::Imap, true))?,
            region.address(Kind::Mail(Protocol::Submission, true))?,
            password,
            &region.server.certificates().fingerprint(),
        );
    }
    show::ready();
    Ok(())
}

/// A new message and flags on both sides, a move on the one that is alone. Who has others beside it takes mail from outside; users go on anywhere.
async fn write_on_both_sides(
    regions: &[Region],
    first: &Region,
    last: &Region,
    password: &str,
) -> Result<(), Failure> {
    let lmtp = Kind::Mail(Protocol::Lmtp, false);
    for (region, letter) in [(first, mail::live()), (last, mail::alone())] {
        let mut anne = region.login(password).await?;
        let before = inbox(&region.views(password).await?).len();
        let how = if region.name == first.name && regions.len() > 2 {
            deliver(region.address(lmtp)?, &region.tls, vec![letter]).await?;
            "delivered by LMTP"
        } else {
            let text = String::from_utf8(letter.text)?;
            let append = format!("APPEND INBOX {{{}+}}\r\n{text}", text.len());
            anne.command(&append).await?;
            "put there by anne"
        };
        wait_for(&mut anne, before + 1).await?;
        let (flag, change, what) = match region.name == first.name {
            true => (
                "\\Flagged",
                "STORE 3 +FLAGS (\\Answered)",
                "\\Answered set on the third",
            ),
            false => (
                "\\Seen",
                "MOVE 2 Archive",
                "the second one moved to Archive",
            ),
        };
        anne.command(&format!("STORE 1 +FLAGS ({flag})")).await?;
        anne.command(change).await?;
        show::step(&format!(
            "  {}: a message {how}; {flag} set on the first one; {what}",
            region.name
        ));
        anne.command("LOGOUT").await?;
    }
    Ok(())
}

fn inbox(views: &Views) -> &[Line] {
    views.get("INBOX").map_or(&[], |view| &view.lines)
}

/// Whatever is in a mailbox as it was has the UID that it had.
fn kept(before: &Views, after: &Views) -> Result<(), Failure> {
    for (name, view) in before {
        let now = after.get(name).ok_or_else(|| format!("{name} has gone"))?;
        if now.validity != view.validity {
            return Err(format!("{name} has another UIDVALIDITY").into());
        }
        for line in &now.lines {
            let earlier = view.lines.iter().find(|old| old.subject == line.subject);
            if earlier.is_some_and(|old| old.uid != line.uid) {
                return Err(format!("{name}: {:?} has another UID", line.subject).into());
            }
        }
    }
    Ok(())
}

/// Waits until all regions show the same, and what is expected: `what`.
async fn alike(
    regions: &[Region],
    password: &str,
    what: &str,
    expected: impl Fn(&Views) -> bool,
) -> Result<Views, Failure> {
    let mut shown = until(
        &format!("all show the same of {ANNE}: {what}"),
        regions,
        |region| region.look(password),
        |shown| match shown {
            [(_, Ok(first)), others @ ..] => {
                let same = |(_, looked): &(_, Looked)| looked.as_ref() == Ok(first);
                expected(first) && others.iter().all(same)
            }
            _ => false,
        },
        overdue::views,
    )
    .await?;
    let (_, views) = shown.pop().ok_or("no region")?;
    Ok(views?)
}

/// Waits until all regions together show what they should, and gives it; else tells what they show.
async fn until<'a, T, F: Future<Output = Result<T, Failure>>>(
    what: &str,
    regions: &'a [Region],
    of: impl Fn(&'a Region) -> F,
    is_so: impl Fn(&[(&'static str, T)]) -> bool,
    tell: impl Fn(&[(&'static str, T)]) -> String,
) -> Result<Vec<(&'static str, T)>, Failure> {
    let started = Instant::now();
    loop {
        let mut shown = Vec::new();
        for region in regions {
            shown.push((region.name, of(region).await?));
        }
        if is_so(&shown) {
            return Ok(shown);
        }
        if started.elapsed() >= AGREE_WAIT_MAX {
            let seconds = AGREE_WAIT_MAX.as_secs();
            return Err(overdue::message(what, seconds, &tell(&shown)).into());
        }
        sleep(LOOK_PAUSE).await;
    }
}

impl Region {
    fn address(&self, wanted: Kind) -> Result<SocketAddr, Failure> {
        address(&self.server, wanted)
    }

    async fn login(&self, password: &str) -> Result<Imap, Failure> {
        let imaps = self.address(Kind::Mail(Protocol::Imap, true))?;
        let mut imap = Imap::connect(imaps, &self.tls).await?;
        let login = Zeroizing::new(format!("LOGIN {ANNE} {password}"));
        imap.command(&login).await?;
        Ok(imap)
    }

    /// As the administrator's commands ask a server.
    async fn ask(&self, question: &Question) -> Result<Answer, Failure> {
        let answer = ask_running(&self.config, question).await?;
        answer.ok_or_else(|| format!("{} does not answer", self.name).into())
    }

    /// To which others it is linked.
    async fn links(&self) -> Result<Vec<String>, Failure> {
        match self.ask(&Question::ClusterStatus {}).await? {
            Answer::Cluster { status, .. } => {
                let linked = status.nodes.into_iter().filter(|node| node.linked);
                Ok(linked.map(|node| node.name).collect())
            }
            other => Err(format!("{}: {other:?}", self.name).into()),
        }
    }

    /// Partitions of which it has not all, and bodies that it lacks.
    async fn lacks(&self) -> Result<Option<u64>, Failure> {
        match self.ask(&Question::ClusterStatus {}).await? {
            Answer::Cluster { status, .. } => {
                Ok(status.here.map(|here| here.syncing + here.blobs_missing))
            }
            other => Err(format!("{}: {other:?}", self.name).into()),
        }
    }

    /// Their addresses, or what it says instead.
    async fn accounts(&self) -> Result<Result<Vec<String>, String>, Failure> {
        match self.ask(&Question::AccountList {}).await? {
            Answer::Accounts { accounts, .. } => {
                let addresses = accounts.into_iter().map(|account| account.address);
                Ok(Ok(addresses.collect()))
            }
            // It is new, and has not heard of all so far.
            Answer::Refused { reason } => Ok(Err(reason)),
            other => Err(format!("{}: {other:?}", self.name).into()),
        }
    }

    /// All of anne's mailboxes.
    async fn views(&self, password: &str) -> Result<Views, Failure> {
        let mut imap = self.login(password).await?;
        let listed = imap.command("LIST \"\" *").await?;
        let names = listed.into_iter().filter_map(|response| match response {
            Response::List(item) => Some(item.name),
            _ => None,
        });
        let mut views = Views::new();
        for name in names.collect::<Vec<_>>() {
            let mut view = View::default();
            let mut exists = 0;
            for response in imap.command(&format!("EXAMINE {name}")).await? {
                match response {
                    Response::Status {
                        code: Some(ReplyCode::UidValidity(validity)),
                        ..
                    } => view.validity = validity,
                    Response::Exists(count) => exists = count,
                    _ => {}
                }
            }
            if exists > 0 {
                let fetched = imap.command("FETCH 1:* (UID FLAGS ENVELOPE)").await?;
                view.lines = fetched.iter().filter_map(line).collect();
            }
            views.insert(name, view);
        }
        imap.command("LOGOUT").await?;
        Ok(views)
    }

    /// The same, if nothing came between.
    async fn look(&self, password: &str) -> Result<Looked, Failure> {
        match self.views(password).await {
            Ok(views) => Ok(Ok(views)),
            // What another region did came between two of the commands: a message that was there is gone.
            Err(failure) if matches!(failure.downcast_ref(), Some(ClientError::Refused(_))) => {
                Ok(Err(failure.to_string()))
            }
            Err(failure) => Err(failure),
        }
    }
}

fn line(response: &Response) -> Option<Line> {
    let Response::Fetch { items, .. } = response else {
        return None;
    };
    let mut line = Line {
        uid: 0,
        flags: BTreeSet::new(),
        subject: String::new(),
    };
    for item in items {
        match item {
            FetchData::Uid(uid) => line.uid = *uid,
            // \Recent is the session's.
            FetchData::Flags(flags) => {
                let kept = flags.iter().filter(|flag| *flag != "\\Recent");
                line.flags = kept.cloned().collect();
            }
            FetchData::Envelope(envelope) => {
                let subject = envelope.subject.as_deref();
                line.subject = subject.map_or_else(String::new, whimbrel_mime::header::decode);
            }
            _ => {}
        }
    }
    Some(line)
}
