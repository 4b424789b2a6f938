//! `whimbrel demo`: a server in a temporary directory, used by the project's own clients over real sockets.
//!
//! Reading order: this file (what happens), [`mail`] (the messages), [`show`] (the output); then several servers: [`regions`], `sea` (the network
//! between them), `overdue` (the report when they do not agree).

mod mail;
mod overdue;
pub mod regions;
mod sea;
mod show;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use rustls::ClientConfig;
use tempfile::TempDir;
use tokio::time::timeout;
use whimbrel_imap::client::Response;
use whimbrel_smtp::{
    Domain, ForwardPath, HostName, Mailbox, ReversePath,
    client::{ClientConfig as SmtpConfig, Login, Outgoing, StartTls},
    session::Body,
};
use zeroize::Zeroizing;

use crate::{
    actor::Fatal,
    admin::protocol::{Answer, Question, frames},
    cli::Stop,
    client::{self, Imap, Mail},
    config::{Config, LogFormat, LogLevel, LogSection},
    listen::Protocol,
    log,
    node::DataDir,
    password::{self, generate},
    serve::{Kind, Server, Sockets},
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) const ANNE: &str = "anne@example.org";
pub(crate) const BOB: &str = "bob@example.org";

/// For mail to arrive: it takes milliseconds.
const ARRIVAL_WAIT_MAX: Duration = Duration::from_secs(20);

/// Runs until Ctrl-C, or until all is shown.
///
/// # Errors
/// When anything that should work does not.
pub async fn run(exit: bool, fatal: Fatal) -> Result<(), Failure> {
    let mut stop = Stop::new()?;
    let directory = begin()?;
    let config = configuration(directory.path());
    let data = DataDir::open(directory.path())?;
    let server = Server::start(&config, data, Sockets::open(&config, true)?, fatal, None).await?;

    let shown = tokio::select! {
        shown = present(&config, &server) => shown.map(|()| true),
        () = stop.asked() => Ok(false),
    };
    if matches!(shown, Ok(true)) && !exit {
        stop.asked().await;
        show::ending();
    }
    server.stop().await;
    directory.close()?;
    shown.map(drop)
}

/// Starts the log, and makes the directory that everything is in.
fn begin() -> Result<TempDir, Failure> {
    log::start(&LogSection {
        level: LogLevel::Warn,
        format: LogFormat::Text,
    });
    let mut directory = tempfile::Builder::new();
    Ok(directory.prefix("whimbrel-demo-").tempdir()?)
}

fn configuration(directory: &Path) -> Config {
    let mut config = Config::default();
    config.server.data_dir = directory.to_owned();
    config.server.hostname = "localhost".to_owned();
    // A disk with little room does not prevent a demo.
    config.storage.free_bytes_min = crate::config::Size(1 << 20);
    config
}

fn address(server: &Server, wanted: Kind) -> Result<SocketAddr, Failure> {
    let found = server.addresses().iter().find(|(kind, _)| *kind == wanted);
    found
        .map(|(_, address)| *address)
        .ok_or_else(|| format!("no {}", wanted.name()).into())
}

async fn present(config: &Config, server: &Server) -> Result<(), Failure> {
    let imaps = address(server, Kind::Mail(Protocol::Imap, true))?;
    let pop3s = address(server, Kind::Mail(Protocol::Pop3, true))?;
    let smtp = address(server, Kind::Mail(Protocol::Smtp, false))?;
    let submission = address(server, Kind::Mail(Protocol::Submission, false))?;
    let submissions = address(server, Kind::Mail(Protocol::Submission, true))?;
    let lmtp = address(server, Kind::Mail(Protocol::Lmtp, false))?;
    show::server(&config.server.data_dir, server.addresses());

    let passwords = make_accounts(config, server).await?;
    show::accounts(&[(ANNE, &passwords[0]), (BOB, &passwords[1])]);

    let tls = client::trusting(server.certificates().path())?;
    let prepared = mail::prepared();
    let for_anne = prepared.iter().filter(|letter| letter.to == ANNE).count();
    let count = prepared.len();
    deliver(lmtp, &tls, prepared).await?;
    show::step(&format!("LMTP  {count} messages delivered"));

    // Anne waits for mail, as clients do.
    let mut anne = Imap::connect(imaps, &tls).await?;
    anne.command(&format!("LOGIN {ANNE} {}", passwords[0].as_str()))
        .await?;
    wait_for(&mut anne, for_anne).await?;
    let mut secure = SmtpConfig::new(HostName::new("demo.example.org")?);
    secure.starttls = StartTls::Require;
    let replies = client::send(smtp, secure, &tls, vec![envelope(mail::live())?]).await?;
    show::step(&format!(
        "SMTP  bob writes to anne over TLS: {}",
        replies.join(", ")
    ));

    wait_for(&mut anne, for_anne + 1).await?;
    show::step(&format!("IMAP  anne reads over {}:", anne.tls_version()));
    show::messages(
        &anne
            .command("FETCH 1:* (FLAGS ENVELOPE RFC822.SIZE)")
            .await?,
    );
    show::body(&anne.command("FETCH * (BODY.PEEK[TEXT])").await?);

    let mut logged_in = SmtpConfig::new(HostName::new("demo.example.org")?);
    logged_in.starttls = StartTls::Require;
    logged_in.login = Login::new(ANNE, passwords[0].as_str());
    let replies =
        client::send(submission, logged_in, &tls, vec![envelope(mail::answer())?]).await?;
    show::step(&format!(
        "SUBMISSION  anne logs in and answers: {}",
        replies.join(", ")
    ));
    wait_in(&mut anne, "Sent", 1).await?;
    show::step("IMAP  anne's copy is in Sent:");
    show::messages(
        &anne
            .command("FETCH 1:* (FLAGS ENVELOPE RFC822.SIZE)")
            .await?,
    );
    anne.command("LOGOUT").await?;

    show::connect(
        imaps,
        pop3s,
        submissions,
        &passwords[0],
        &server.certificates().fingerprint(),
    );
    show::ready();
    Ok(())
}

/// Anne's and Bob's, and their passwords.
async fn make_accounts(
    config: &Config,
    server: &Server,
) -> Result<[Zeroizing<String>; 2], Failure> {
    let passwords = [generate(), generate()];
    for (name, password) in [ANNE, BOB].into_iter().zip(&passwords) {
        let kept = password::make(&config.auth, password.as_bytes())?;
        let question = Question::AccountAdd {
            address: name.to_owned(),
            verifier: kept.verifier,
            scram: kept.scram,
        };
        let reply = server.service().board.admin(question.into_call()?).await?;
        if let Some(Answer::Refused { reason }) = frames(reply).pop() {
            return Err(reason.into());
        }
    }
    Ok(passwords)
}

/// By LMTP.
async fn deliver(
    lmtp: SocketAddr,
    tls: &Arc<ClientConfig>,
    letters: Vec<mail::Letter>,
) -> Result<(), Failure> {
    let mut plain = SmtpConfig::new(HostName::new("demo.example.org")?);
    plain.lmtp = true;
    plain.starttls = StartTls::Never;
    let mails = letters
        .into_iter()
        .map(envelope)
        .collect::<Result<Vec<_>, Failure>>()?;
    client::send(lmtp, plain, tls, mails).await?;
    Ok(())
}

fn envelope(letter: mail::Letter) -> Result<Mail, Failure> {
    let mailbox = |text: &str| -> Result<Mailbox, Failure> {
        let (local, domain) = text.split_once('@').ok_or("no address")?;
        Ok(Mailbox::new(
            whimbrel_smtp::LocalPart::new(local)?,
            Domain::new(domain)?,
        )?)
    };
    Ok(Mail {
        envelope: Outgoing {
            size: Some(letter.text.len() as u64),
            body: Body::EightBitMime,
            ..Outgoing::new(
                ReversePath::Mailbox(mailbox(letter.from)?),
                vec![ForwardPath::Mailbox(mailbox(letter.to)?)],
            )
        },
        text: letter.text,
    })
}

/// Selects INBOX and waits in IDLE until it has so many messages.
async fn wait_for(imap: &mut Imap, messages: usize) -> Result<(), Failure> {
    wait_in(imap, "INBOX", messages).await
}

async fn wait_in(imap: &mut Imap, mailbox: &str, messages: usize) -> Result<(), Failure> {
    let mut shown = 0;
    let mut wanted = |response: &Response| {
        if let Response::Exists(count) = response {
            shown = *count as usize;
        }
        shown >= messages
    };
    let waiting = async {
        let select = format!("SELECT {mailbox}");
        let selected = imap.command(&select).await?;
        if selected.iter().any(&mut wanted) {
            return Ok(());
        }
        imap.begin("IDLE").await?;
        while !wanted(&imap.next().await?) {}
        imap.line("DONE").await?;
        imap.end().await.map(drop)
    };
    match timeout(ARRIVAL_WAIT_MAX, waiting).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(format!(
            "the mail does not arrive: after {} s {mailbox} has {shown} messages, not {messages}",
            ARRIVAL_WAIT_MAX.as_secs()
        )
        .into()),
    }
}
