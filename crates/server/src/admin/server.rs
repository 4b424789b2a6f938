//! The server's end of the admin socket.

use std::{io, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::timeout,
};

use super::{
    protocol::{self, Answer, QUESTION_BYTES_MAX, Question},
    short_path,
};
use crate::switchboard::Switchboard;

/// Questions at once: one administrator, or a script of his.
const QUESTIONS_MAX: usize = 8;
/// From the connection to the end of the answer.
const QUESTION_WAIT_MAX: Duration = Duration::from_secs(60);
/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Opens the socket, mode 0600, over one that a dead server left. The data directory's lock keeps living ones apart.
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
pub async fn serve(listener: UnixListener, board: Arc<Switchboard>) {
    let places = Arc::new(Semaphore::new(QUESTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let board = Arc::clone(&board);
                tokio::spawn(async move {
                    match timeout(QUESTION_WAIT_MAX, answer(stream, &board)).await {
                        Ok(Ok(())) => {}
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

/// Whether a user may administer: whoever runs the server, and root. The socket's mode says the same; this holds if it is changed.
pub(super) fn may_administer(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

async fn answer(mut stream: UnixStream, board: &Switchboard) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    if !may_administer(peer, rustix::process::geteuid().as_raw()) {
        tracing::warn!(uid = peer, "admin socket: another user was refused");
        return protocol::write(
            &mut stream,
            &refused("only the user who runs the server may ask"),
        )
        .await;
    }
    let question: Question = protocol::read(&mut stream, QUESTION_BYTES_MAX).await?;
    let answers = match question.into_call() {
        Ok(call) => match board.admin(call).await {
            Ok(reply) => protocol::frames(reply),
            Err(stopped) => vec![refused(&stopped.to_string())],
        },
        Err(reason) => vec![refused(&reason)],
    };
    for answer in &answers {
        protocol::write(&mut stream, answer).await?;
    }
    Ok(())
}

fn refused(reason: &str) -> Answer {
    Answer::Refused {
        reason: reason.to_owned(),
    }
}
