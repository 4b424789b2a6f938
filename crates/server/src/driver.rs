//! The life of one connection: a session machine between a socket and the service.
//!
//! Invariants:
//! - Bytes are read only while the session wants input; other bytes stay in the socket.
//! - The session's output is sent before the connection waits for the client: nothing is held back while idle.
//! - Nothing is sent after the node has begun to die: if a question was lost with its machine, the connection ends silently.

use std::{
    io,
    net::IpAddr,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use rustls::ServerConfig;
use tokio::{
    net::TcpStream,
    sync::{OwnedMutexGuard, Semaphore, oneshot},
    time::{Instant, sleep, sleep_until},
};
use whimbrel_frontend::session::{Action, Handover, Note, Session, Tls};
use whimbrel_mailbox::AccountId;
use whimbrel_service::{
    api::{Call, Failure, MailboxCall, Reply, Resolution},
    machine::{Route, route},
};

use crate::{
    actor::Fatal,
    answer_budget::{Answers, Share, TURN, is_long},
    clock::{Alarm, Clock},
    cluster::relay::{Relays, Way},
    handshakes::Handshakes,
    listen::{Place, Protocol, ResumeSession, displaced},
    log::printable,
    metrics::{self, Open, Stage, Traffic},
    registry::Registered,
    router::Router,
    store_calls::{Store, StoreCalls},
    tls::ServedCertificate,
    transport::Transport,
};

/// Output is collected up to this length (or until the session has nothing more to send): fewer and fuller packets and TLS records.
const WRITE_BYTES: usize = 16 * 1024;
/// Output before a question's answer waits for the answer as long as this, so that both are sent together.
const HOLD_BACK: Duration = Duration::from_millis(20);

/// What all connections share.
pub(crate) struct Context<S> {
    pub(crate) clock: Clock,
    pub(crate) board: Arc<Router>,
    pub(crate) store: S,
    pub(crate) fatal: Fatal,
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) shown: ServedCertificate,
    pub(crate) handshakes: Handshakes,
    pub(crate) write_timeout: Duration,
    pub(crate) uploads_max: usize,
    /// Sessions that sort or thread at once.
    pub(crate) turns: Arc<Semaphore>,
    pub(crate) answers: Answers,
    /// The most finished uploads of a connection that no message names yet.
    pub(crate) finished_max: usize,
    /// Makes the session that goes on after a handover.
    pub(crate) resume: ResumeSession,
    /// Relays to other nodes; `None` without a cluster.
    pub(crate) relays: Option<Relays<S>>,
}

impl<S> Context<S> {
    /// As [`Handshakes::shake`].
    pub(crate) async fn handshake(&self, stream: TcpStream) -> io::Result<(Transport, Tls)> {
        self.handshakes.shake(stream, &self.tls, &self.shown).await
    }
}

/// Why a connection ended, if not by the session's wish.
#[derive(Debug)]
enum End {
    Io(io::Error),
    Handshake(io::Error),
    /// The machine is gone: the node stops.
    Stopped,
    /// Another connection needs its place.
    Displaced,
    /// The session neither reads nor waits nor closes after the client has gone.
    Gone,
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        End::Io(error)
    }
}

/// A connection.
pub(crate) struct Connection<S: Store> {
    pub(crate) session: Box<dyn Session + Send>,
    /// The address of the client.
    pub(crate) address: IpAddr,
    pub(crate) protocol: Protocol,
    pub(crate) registered: Registered,
    pub(crate) place: Place,
    pub(crate) context: Arc<Context<S>>,
    pub(crate) open: Open,
}

struct Driver<S: Store> {
    session: Box<dyn Session + Send>,
    protocol: Protocol,
    open: Open,
    traffic: Traffic,
    registered: Registered,
    place: Place,
    context: Arc<Context<S>>,
    calls: StoreCalls<S>,
    /// `None` only while it changes into TLS.
    transport: Option<Transport>,
    out: Vec<u8>,
    /// A share of the memory for answers, from the first long answer until the connection waits for the client.
    share: Option<Share>,
    /// Held during a slice of long work: no other session of the account does one.
    slice: Option<OwnedMutexGuard<()>>,
    /// The call under way, or the last one, names the blobs that were uploaded.
    naming: bool,
    /// When output that is held back is sent without the answer.
    flush_at: Option<Instant>,
    /// The address of the client.
    address: IpAddr,
    /// The login name that the client has given.
    asked: Option<String>,
    /// The client has closed its side.
    at_end: bool,
    /// Tells the owner when the connection ends, however it ends.
    watching: Watching,
}

struct Watching {
    account: Option<AccountId>,
    /// The answer under way.
    answer: Option<oneshot::Receiver<Reply>>,
    session: whimbrel_service::api::SessionId,
    board: Arc<Router>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let Some(account) = self.account else {
            return;
        };
        let (board, session) = (Arc::clone(&self.board), self.session);
        // The answer under way may be one to SELECT, which waits in another queue than the end of the session. If the end came first, the owner would
        // watch the mailbox for ever.
        match (self.answer.take(), tokio::runtime::Handle::try_current()) {
            (Some(answer), Ok(runtime)) => drop(runtime.spawn(async move {
                let _ = answer.await;
                board.hang_up(account, session);
            })),
            _ => board.hang_up(account, session),
        }
    }
}

impl<S: Store> Connection<S> {
    /// Serves until the connection ends.
    pub(crate) async fn run(self, transport: Transport) {
        let Connection {
            session,
            address,
            protocol,
            registered,
            place,
            context,
            open,
        } = self;
        let id = registered.id;
        let mut driver = Driver {
            session,
            protocol,
            open,
            traffic: metrics::traffic(protocol.name()),
            place,
            calls: StoreCalls::new(
                context.store.clone(),
                context.uploads_max,
                context.finished_max,
                Arc::clone(&context.turns),
                Arc::clone(&context.fatal),
            ),
            transport: Some(transport),
            out: Vec::new(),
            share: None,
            slice: None,
            naming: false,
            flush_at: None,
            address,
            asked: None,
            at_end: false,
            watching: Watching {
                account: None,
                answer: None,
                session: id,
                board: Arc::clone(&context.board),
            },
            registered,
            context,
        };
        let ending = driver.place.ending();
        let end = tokio::select! {
            end = driver.serve() => end,
            () = ending.comes() => Err(End::Displaced),
        };
        let naming = driver.naming && driver.watching.answer.is_some();
        Box::pin(driver.calls.end(naming)).await;
        match end {
            Ok(()) => {
                if let Some(transport) = driver.transport.take() {
                    let patience = driver.context.write_timeout;
                    Box::pin(transport.close(patience, driver.at_end)).await;
                }
            }
            Err(End::Io(error)) if error.kind() == io::ErrorKind::TimedOut => {
                metrics::refused("write timeout");
                tracing::info!(session = id.0, "cut: the client does not read");
            }
            Err(End::Io(error)) => tracing::debug!(session = id.0, %error, "connection lost"),
            Err(End::Handshake(error)) => {
                metrics::refused("handshake");
                tracing::debug!(session = id.0, %error, "TLS handshake failed");
            }
            Err(End::Displaced) => displaced(protocol, address),
            Err(End::Stopped | End::Gone) => {}
        }
    }
}

enum Wake {
    Answer(Option<Reply>),
    Event(whimbrel_service::api::Event),
    Time,
    Read(io::Result<bool>),
    Flush,
}

impl<S: Store> Driver<S> {
    async fn serve(&mut self) -> Result<(), End> {
        let mut alarm = Alarm::new();
        loop {
            if self.act().await? {
                return Ok(());
            }
            if self.watching.answer.is_none() {
                self.flush().await?;
                if self.session.wants_input() {
                    self.share = None;
                    if self.session.may_be_told()
                        && let Some(transport) = &mut self.transport
                    {
                        transport.at_rest(self.context.write_timeout).await?;
                    }
                }
                if self.at_end && !self.session.wants_input() && self.session.deadline().is_none() {
                    return Err(End::Gone);
                }
            }
            alarm.set(&self.context.clock, self.session.deadline());
            let wake = self.wait(&mut alarm).await;
            let now = self.context.clock.now();
            match wake {
                Wake::Answer(reply) => {
                    self.watching.answer = None;
                    let reply = self.seen(reply.ok_or(End::Stopped)?).await;
                    // Events from before the answer are passed on before it: otherwise the session would take an old state for the present one.
                    if let Some(event) = self.registered.signal.take() {
                        self.session.on_event(now, event);
                    }
                    self.session.on_reply(now, reply);
                }
                Wake::Event(event) => self.session.on_event(now, event),
                Wake::Time => self.session.on_time(now),
                Wake::Flush => self.flush().await?,
                Wake::Read(Ok(true)) => {}
                Wake::Read(end) => {
                    if let Err(error) = end {
                        tracing::debug!(session = self.registered.id.0, %error, "the client is gone");
                    }
                    self.at_end = true;
                    self.session.on_eof(now);
                }
            }
        }
    }

    async fn wait(&mut self, alarm: &mut Alarm) -> Wake {
        let wants_input = self.session.wants_input() && !self.at_end;
        let Driver {
            session,
            transport,
            watching,
            registered,
            flush_at,
            context,
            traffic,
            ..
        } = self;
        let clock = &context.clock;
        tokio::select! {
            reply = async {
                match &mut watching.answer {
                    Some(answer) => answer.await.ok(),
                    None => std::future::pending().await,
                }
            } => Wake::Answer(reply),
            event = registered.signal.next() => Wake::Event(event),
            () = alarm.ring() => Wake::Time,
            () = async {
                match flush_at {
                    Some(at) => sleep_until(*at).await,
                    None => std::future::pending().await,
                }
            } => Wake::Flush,
            read = async {
                match transport {
                    Some(transport) => transport.read(|bytes| {
                        if !bytes.is_empty() {
                            traffic
                                .received
                                .fetch_add(bytes.len() as u64, Ordering::Relaxed);
                            session.on_bytes(clock.now(), bytes);
                        }
                        !bytes.is_empty()
                    }).await,
                    None => std::future::pending().await,
                }
            }, if wants_input => Wake::Read(read),
        }
    }

    /// Carries out the session's requests; true when it wants to close.
    async fn act(&mut self) -> Result<bool, End> {
        loop {
            let action = self.session.poll(self.context.clock.now());
            // The session has ended its slice of long work.
            self.slice = None;
            let Some(action) = action else {
                return Ok(false);
            };
            match action {
                Action::Send(bytes) => {
                    if self.out.is_empty() {
                        self.out = bytes;
                    } else {
                        self.out.extend_from_slice(&bytes);
                    }
                    if self.out.len() >= WRITE_BYTES {
                        self.flush().await?;
                        self.interrupt();
                    }
                }
                Action::Call(call) => self.call(call).await?,
                Action::Yield => {
                    tokio::task::yield_now().await;
                    if let Some(slice) = self.registered.slice() {
                        self.slice = Some(Arc::clone(slice).lock_owned().await);
                    }
                    self.interrupt();
                }
                Action::LoggedOut => self.logged_out().await?,
                Action::StartTls => Box::pin(self.start_tls()).await?,
                Action::HandOver(handover) => {
                    if Box::pin(self.hand_over(*handover)).await? {
                        return Ok(true);
                    }
                }
                Action::Note(note) => self.note(&note),
                Action::Close => {
                    self.flush().await?;
                    return Ok(true);
                }
            }
        }
    }

    async fn call(&mut self, call: Call) -> Result<(), End> {
        assert!(
            self.watching.answer.is_none(),
            "a session has one call under way"
        );
        if is_long(&call) {
            self.share(&call).await?;
        } else if matches!(call, Call::TurnBegin) {
            // A session with a turn may wait for a share, so none may wait for a turn while it has a share. It holds no rows at this point.
            self.share = None;
        }
        match route(&call) {
            Route::Store => {
                // Boxed, like all large state that an idle connection does not need: it is no part of the connection's own.
                let reply = Box::pin(self.calls.answer(call)).await;
                if let Some(blob) = self.calls.take_missed()
                    && let Some(account) = self.watching.account
                {
                    self.context.board.tell_of_missed(account, blob);
                }
                self.session.on_reply(self.context.clock.now(), reply);
                self.interrupt();
            }
            to => {
                if matches!(call, Call::Authenticate(_) | Call::ScramFinish(_)) {
                    self.registered.asks();
                }
                if let Some(login) = login_of(&call) {
                    self.asked = Some(printable(login));
                }
                self.naming = matches!(
                    &call,
                    Call::Accept(_)
                        | Call::Mailbox {
                            call: MailboxCall::Append { .. } | MailboxCall::Import { .. },
                            ..
                        }
                );
                if let Route::Owner(account) = to {
                    if let Some(before) = self.watching.account.filter(|of| *of != account) {
                        self.leave(before).await?;
                    }
                    self.watching.account = Some(account);
                }
                let answer = self
                    .context
                    .board
                    .call(call)
                    .await
                    .map_err(|_| End::Stopped)?;
                self.watching.answer = Some(answer);
                self.flush_at = (!self.out.is_empty()).then(|| Instant::now() + HOLD_BACK);
            }
        }
        Ok(())
    }

    /// Takes a share of the memory for this call's answer, if there is none.
    async fn share(&mut self, call: &Call) -> Result<(), End> {
        if matches!(route(call), Route::Owner(_)) {
            // Sends pending output first, so that no long answer comes while the session waits for its client.
            self.flush().await?;
        }
        let answers = &self.context.answers;
        // Between the rows of messages and their content rows the session cannot drop anything.
        if let Some(share) = &self.share
            && !matches!(call, Call::Contents { .. })
            && answers.wants(share)
        {
            self.session.shed();
            self.share = None;
        }
        if self.share.is_none() {
            self.share = answers.try_share();
        }
        if self.share.is_none() {
            self.flush().await?;
            self.share = Some(Box::pin(self.context.answers.share()).await);
        }
        Ok(())
    }

    /// Passes events and deadlines to a session between the parts of a long answer.
    fn interrupt(&mut self) {
        let now = self.context.clock.now();
        if let Some(event) = self.registered.signal.take() {
            self.session.on_event(now, event);
        }
        if self
            .session
            .deadline()
            .is_some_and(|deadline| deadline <= now.mono_micros)
        {
            self.session.on_time(now);
        }
    }

    /// What the connection itself learns from an answer.
    async fn seen(&mut self, reply: Reply) -> Reply {
        if self.naming && matches!(reply, Reply::Done | Reply::Appended { .. }) {
            self.calls.named();
        }
        if let Reply::Resolved(Resolution::Local(_)) = &reply {
            self.place.has_spoken();
        }
        let (Reply::Authenticated { account, .. } | Reply::ScramAuthenticated { account, .. }) =
            &reply
        else {
            return reply;
        };
        if !self.registered.log_in(*account) {
            metrics::refused("account");
            tracing::info!(session = self.registered.id.0, account = %account, "too many connections of this account");
            return Reply::Failed(Failure::InUse);
        }
        self.place.authenticated();
        self.open.is_now(Stage::Authenticated);
        if let Some(relays) = &self.context.relays
            && self.transport.as_ref().is_some_and(Transport::is_a_clients)
            && !relays.is_here(Some(*account))
        {
            self.session.relay();
        }
        reply
    }

    /// The connection counts as it did before its login.
    async fn logged_out(&mut self) -> Result<(), End> {
        self.registered.log_out();
        self.place.unauthenticated();
        if let Some(account) = self.watching.account {
            self.leave(account).await?;
            self.watching.account = None;
        }
        Ok(())
    }

    /// The session leaves its account, which it does not watch any more. If the connection ends while this waits, the account hears of the end.
    async fn leave(&mut self, account: AccountId) -> Result<(), End> {
        let left = self.context.board.leave(account, self.registered.id);
        left.await.map_err(|_| End::Stopped)
    }

    async fn flush(&mut self) -> Result<(), End> {
        self.flush_at = None;
        if let Some(transport) = &mut self.transport
            && !self.out.is_empty()
        {
            // Dropped after the write: an idle connection holds no buffer.
            let out = std::mem::take(&mut self.out);
            self.traffic
                .sent
                .fetch_add(out.len() as u64, Ordering::Relaxed);
            let mut write = pin!(transport.write(&out, self.context.write_timeout));
            let answers = &self.context.answers;
            loop {
                tokio::select! {
                    biased;
                    written = &mut write => return Ok(written?),
                    () = sleep(TURN), if self.share.is_some() => {
                        // The client is slow: its share goes to the sessions that wait.
                        if self.share.as_ref().is_some_and(|share| answers.wants(share)) {
                            self.session.shed();
                            self.share = None;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// RFC 9051, 6.2.1 and RFC 3207, 4.2: everything known or read before is void. The clear stream is consumed, the session drops what it holds in
    /// `on_tls`, and bytes that were not read yet become part of the handshake, which they break.
    async fn start_tls(&mut self) -> Result<(), End> {
        self.flush().await?;
        let Some(Transport::Clear(stream)) = self.transport.take() else {
            return Err(End::Handshake(io::Error::other("TLS within TLS")));
        };
        let (transport, tls) = self
            .context
            .handshake(stream)
            .await
            .map_err(End::Handshake)?;
        self.transport = Some(transport);
        self.session.on_tls(self.context.clock.now(), tls);
        Ok(())
    }

    /// Another session goes on, here or at another node; true when that session has ended.
    async fn hand_over(&mut self, handover: Handover) -> Result<bool, End> {
        self.flush().await?;
        let context = Arc::clone(&self.context);
        let Some(relays) = &context.relays else {
            return self.last_words("The server is not ready").await;
        };
        self.registered.passes();
        let there = match relays.find(&handover).await {
            Err(why) => {
                metrics::refused("relay");
                tracing::info!(session = self.registered.id.0, account = ?handover.account, why, "not served");
                return self.last_words(why).await;
            }
            Ok(Way::Here) => {
                self.registered.stays();
                let now = context.clock.now();
                let session = (context.resume)(handover.peer, handover.account, &handover.at);
                // The handover comes from a session of this node, so it is valid.
                self.session = session.ok_or(End::Gone)?;
                if !handover.rest.is_empty() {
                    self.session.on_bytes(now, &handover.rest);
                }
                if self.at_end {
                    self.session.on_eof(now);
                }
                return Ok(false);
            }
            Ok(Way::There(there)) => there,
        };
        let Some(transport) = &mut self.transport else {
            return Err(End::Gone);
        };
        let patience = context.write_timeout;
        let carried = relays.carry(
            *there,
            transport,
            &self.registered,
            handover.rest,
            &self.traffic,
            patience,
        );
        match carried.await? {
            Some(why) => self.last_words(why).await,
            None => Ok(true),
        }
    }

    /// Tells the client why nobody serves it, and that it may try again.
    async fn last_words(&mut self, why: &str) -> Result<bool, End> {
        self.out = self.protocol.refusal(why).into_bytes();
        self.flush().await?;
        Ok(true)
    }

    fn note(&self, note: &Note) {
        let session = self.registered.id.0;
        let protocol = self.protocol.name();
        match note {
            Note::Command(name, micros) => {
                metrics::command(protocol, name, Duration::from_micros(*micros));
            }
            Note::NotLoggedIn { mechanism, why } => {
                metrics::login(protocol, mechanism, why);
                if crate::log::may_write("login refused") {
                    let login = self.asked.as_deref().unwrap_or_default();
                    tracing::info!(session, protocol, peer = %self.address, login, mechanism, reason = why, "login refused");
                }
            }
            Note::LoggedIn { login, mechanism } => {
                metrics::login(protocol, mechanism, "ok");
                tracing::info!(session, protocol, peer = %self.address, login = printable(login), mechanism, "logged in");
            }
            Note::ProtocolError(kind) => {
                metrics::protocol_error(protocol, kind);
                tracing::debug!(session, protocol, kind, "protocol error");
            }
            Note::Accepted {
                entry,
                bytes,
                deliveries,
            } => {
                metrics::accepted(protocol, *bytes);
                tracing::info!(session, protocol, entry, bytes, deliveries, "accepted");
            }
            Note::Refused(refused) => {
                metrics::mail_refused(protocol, refused.what);
                if crate::log::may_write("refused") {
                    let [from, to] = [&refused.from, &refused.to].map(|text| printable(text));
                    let (what, reply) = (refused.what, &refused.reply);
                    tracing::info!(session, protocol, peer = %self.address, what, from, to, reply, "refused");
                }
            }
            Note::Closed(reason) => tracing::info!(session, protocol, reason, "closed"),
        }
    }
}

/// The login name in a call.
fn login_of(call: &Call) -> Option<&str> {
    match call {
        Call::Authenticate(ask) => Some(&ask.login),
        Call::ScramBegin { login, .. } => Some(login),
        Call::ScramFinish(ask) => Some(&ask.login),
        _ => None,
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
