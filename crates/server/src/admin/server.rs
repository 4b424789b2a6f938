//! The server's side of the admin socket.

use std::{io, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::timeout,
};

use whimbrel_mailbox::AccountId;
use whimbrel_service::admin::{AdminCall, AdminReply};

use super::{
    protocol::{self, Answer, QUESTION_BYTES_MAX, Question},
    queue,
    session::{Serve, Sessions},
    short_path,
};
use crate::{
    cluster::{DrainAsk, NodeNames, Told},
    router::Router,
};

/// Questions at once: enough for one administrator, or a script.
const QUESTIONS_MAX: usize = 8;
/// Time limit from the connection to the end of the answer.
const QUESTION_WAIT_MAX: Duration = Duration::from_secs(60);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Opens the socket, mode 0600, and replaces one that a dead server left. The data directory's lock excludes running ones.
pub fn bind(directory: &Path) -> io::Result<UnixListener> {
    let (path, _open) = short_path(directory)?;
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until its task is dropped.
pub(crate) async fn serve(
    listener: UnixListener,
    board: Arc<Router>,
    sessions: Sessions,
    cluster: Option<Told>,
) {
    let places = Arc::new(Semaphore::new(QUESTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (board, sessions) = (Arc::clone(&board), Arc::clone(&sessions));
                let cluster = cluster.clone();
                tokio::spawn(async move {
                    match timeout(
                        QUESTION_WAIT_MAX,
                        answer(stream, &board, &sessions, cluster.as_ref()),
                    )
                    .await
                    {
                        Ok(Ok(None)) => {}
                        Ok(Ok(Some((stream, serve)))) => serve(stream),
                        Ok(Err(error)) => tracing::warn!(%error, "admin socket"),
                        Err(_) => tracing::warn!("admin socket: a question took too long"),
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "admin socket: cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Logs a change by an administrator.
fn changed(uid: u32, change: &str) {
    let change = crate::log::printable(change);
    tracing::info!(uid, change, "changed by an administrator");
}

const NO_CLUSTER: &str = "this node is not a member of a cluster";

/// Whether a user may administer: the user who runs the server, and root. The socket's mode says the same; this check holds if the mode is changed.
pub(super) fn may_administer(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

/// Answers a question; returns the stream if a session follows on it.
async fn answer(
    mut stream: UnixStream,
    board: &Router,
    sessions: &Sessions,
    cluster: Option<&Told>,
) -> io::Result<Option<(UnixStream, Serve)>> {
    let peer = stream.peer_cred()?.uid();
    if !may_administer(peer, rustix::process::geteuid().as_raw()) {
        tracing::warn!(uid = peer, "admin socket: another user was refused");
        let refusal = refused(
            "only the server's user and root may do this: run it as `sudo -u USER whimbrel ...`",
        );
        protocol::write(&mut stream, &refusal).await?;
        return Ok(None);
    }
    let question: Question = protocol::read(&mut stream, QUESTION_BYTES_MAX).await?;
    let question = match question {
        Question::ClusterRemove(remove) => {
            if remove.really {
                changed(peer, &format!("cluster: remove {}", remove.node));
            }
            let removal = match cluster {
                Some(cluster) => cluster.remove(remove).await,
                None => Err(NO_CLUSTER.to_owned()),
            };
            let answer = removal.map_or_else(|why| refused(&why), Answer::Removal);
            protocol::write(&mut stream, &answer).await?;
            return Ok(None);
        }
        Question::ClusterDrain { node, cancel, look } => {
            if !look {
                let node = node.as_deref().unwrap_or("this node");
                let what = if cancel { "end the drain of" } else { "drain" };
                changed(peer, &format!("cluster: {what} {node}"));
            }
            let drain = match cluster {
                Some(cluster) => cluster.drain(node, DrainAsk::new(cancel, look)).await,
                None => Err(NO_CLUSTER.to_owned()),
            };
            let answer = drain.map_or_else(|why| refused(&why), Answer::Drain);
            protocol::write(&mut stream, &answer).await?;
            return Ok(None);
        }
        question => question,
    };
    let not_yet = cluster.and_then(Told::refuses);
    if let Some(why) = not_yet.filter(|_| question != Question::ClusterStatus {}) {
        protocol::write(&mut stream, &refused(why)).await?;
        return Ok(None);
    }
    if let Question::Session { address } = question {
        let granted = match account(board, &address).await {
            Ok(account) => sessions(account)
                .map(|serve| (account, serve))
                .map_err(str::to_owned),
            Err(reason) => Err(reason),
        };
        return match granted {
            Ok((account, serve)) => {
                let account = account.to_string();
                protocol::write(&mut stream, &Answer::Session { account }).await?;
                Ok(Some((stream, serve)))
            }
            Err(reason) => {
                protocol::write(&mut stream, &refused(&reason)).await?;
                Ok(None)
            }
        };
    }
    if let Question::QueueList(filter) = &question {
        let names = names(cluster).await;
        queue::list(&mut stream, board, &names, filter).await?;
        return Ok(None);
    }
    if let Question::QueueShow { id } = &question {
        let names = names(cluster).await;
        queue::show(&mut stream, board, &names, id).await?;
        return Ok(None);
    }
    if question == (Question::ClusterStatus {}) {
        let status = match cluster {
            Some(cluster) => cluster.status().await,
            None => None,
        };
        let answers = status.map_or_else(|| vec![refused(NO_CLUSTER)], protocol::status_frames);
        for answer in &answers {
            protocol::write(&mut stream, answer).await?;
        }
        return Ok(None);
    }
    let change = question.change();
    let answers = match question.into_call() {
        Ok(call) => match board.admin(call).await {
            Ok(reply) => {
                if let (Some(change), AdminReply::Done) = (change, &reply) {
                    changed(peer, &change);
                }
                protocol::frames(reply)
            }
            Err(stopped) => vec![refused(&stopped.to_string())],
        },
        Err(reason) => vec![refused(&reason)],
    };
    for answer in &answers {
        protocol::write(&mut stream, answer).await?;
    }
    Ok(None)
}

async fn names(cluster: Option<&Told>) -> NodeNames {
    match cluster {
        Some(cluster) => cluster.names().await.unwrap_or_default(),
        None => NodeNames::default(),
    }
}

/// The account with this address.
async fn account(board: &Router, address: &str) -> Result<AccountId, String> {
    match board.admin(AdminCall::ListAccounts).await {
        Ok(AdminReply::Accounts(accounts)) => accounts
            .iter()
            .find(|line| !line.set_aside && line.address.eq_ignore_ascii_case(address))
            .map(|line| line.account)
            .ok_or_else(|| format!("there is no account {address}")),
        Ok(AdminReply::Refused(reason)) => Err(reason),
        Ok(_) => Err("the accounts cannot be listed".to_owned()),
        Err(stopped) => Err(stopped.to_string()),
    }
}

pub(super) fn refused(reason: &str) -> Answer {
    Answer::Refused {
        reason: reason.to_owned(),
    }
}
