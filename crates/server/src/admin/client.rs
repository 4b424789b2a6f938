//! The client side of the administrator's commands: the socket of a running server, or the store itself when none runs.

use std::{io, path::Path, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixStream,
    time::timeout,
};

use super::{
    protocol::{self, ANSWER_BYTES_MAX, Answer, Question},
    short_path,
};
use crate::{
    actor::Fatal,
    clock::Clock,
    cluster,
    config::Config,
    node::{DataDir, NodeError},
    serve::{self, StartError},
    service::Service,
};

/// Time limit for a running server's answer; the removal of a large account is only begun in this time.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);
/// Time limit for the work of a removal without a server.
const SETTLE_WAIT_MAX: Duration = Duration::from_secs(600);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// A server runs, but its socket does not work.
    #[error("the server's admin socket: {0}{hint}", hint = hint(.0))]
    Socket(io::Error),
    /// No server answers, and the data directory is not free.
    #[error("{0}, but no server answers on its admin socket: try again in a moment")]
    Busy(NodeError),
    /// The store cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The store failed in the meantime.
    #[error("the store stopped")]
    Stopped,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run this command as the server's user: `sudo -u USER whimbrel ...`"
        }
        _ => "",
    }
}

/// Asks a running server, or else the store.
pub async fn ask(config: &Config, question: Question, fatal: Fatal) -> Result<Answer, AdminError> {
    match ask_running(config, &question).await? {
        Some(answer) => Ok(answer),
        None => ask_store(config, question, fatal).await,
    }
}

/// Asks a running server. `None`: none runs.
///
/// # Errors
/// When its socket does not work.
pub async fn ask_running(
    config: &Config,
    question: &Question,
) -> Result<Option<Answer>, AdminError> {
    match connect(&config.server.data_dir).await {
        Ok(stream) => {
            let answer = timeout(ANSWER_WAIT_MAX, ask_server(stream, question)).await;
            let answer = answer.map_err(|late| AdminError::Socket(late.into()))?;
            answer.map(Some).map_err(AdminError::Socket)
        }
        Err(error) if is_nobody(&error) => Ok(None),
        Err(error) => Err(AdminError::Socket(error)),
    }
}

async fn connect(directory: &Path) -> io::Result<UnixStream> {
    let (path, _open) = short_path(directory)?;
    UnixStream::connect(path).await
}

/// There is no socket, or a dead server left it.
fn is_nobody(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// An IMAP session of an account with a running server, and the account's id. `None`: no server runs.
///
/// # Errors
/// When the server refuses, or its socket does not work.
pub async fn session(
    directory: &Path,
    address: &str,
) -> Result<Option<(UnixStream, String)>, Box<dyn std::error::Error + Send + Sync>> {
    let mut stream = match connect(directory).await {
        Ok(stream) => stream,
        Err(error) if is_nobody(&error) => return Ok(None),
        Err(error) => return Err(AdminError::Socket(error).into()),
    };
    let address = address.to_owned();
    protocol::write(&mut stream, &Question::Session { address }).await?;
    match protocol::read(&mut stream, ANSWER_BYTES_MAX).await? {
        Answer::Session { account } => Ok(Some((stream, account))),
        Answer::Refused { reason } => Err(reason.into()),
        other => Err(format!("the server answered {other:?}").into()),
    }
}

/// Asks a question on a connection.
pub async fn ask_server(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    question: &Question,
) -> io::Result<Answer> {
    protocol::write(&mut stream, question).await?;
    let mut answer: Answer = protocol::read(&mut stream, ANSWER_BYTES_MAX).await?;
    while answer.more() {
        answer.join(protocol::read(&mut stream, ANSWER_BYTES_MAX).await?)?;
    }
    Ok(answer)
}

async fn ask_store(
    config: &Config,
    question: Question,
    fatal: Fatal,
) -> Result<Answer, AdminError> {
    let path = &config.server.data_dir;
    // The caller has checked before whether it may create one.
    let opened = match &question {
        Question::AccountAdd { .. } => DataDir::open(path),
        _ => DataDir::open_existing(path),
    };
    let mut data = opened.map_err(|error| match error {
        NodeError::Locked { .. } => AdminError::Busy(error),
        other => StartError::from(other).into(),
    })?;
    let call = match question.into_call() {
        Ok(call) => call,
        Err(reason) => return Ok(Answer::Refused { reason }),
    };
    let store = serve::open_store(config, &mut data).await?;
    let membership = cluster::offline(&data, &store).await?;
    let service = Service::start(
        config,
        data.identity(),
        store,
        membership,
        Clock::start(),
        fatal,
    )
    .map_err(StartError::from)?;
    let reply = service
        .board
        .admin(call)
        .await
        .map_err(|_| AdminError::Stopped)?;
    service.settle(SETTLE_WAIT_MAX).await;
    service.stop().await.close().await;
    let mut frames = protocol::frames(reply).into_iter();
    let mut answer = frames.next().ok_or(AdminError::Stopped)?;
    for next in frames {
        answer.join(next).map_err(AdminError::Socket)?;
    }
    Ok(answer)
}
