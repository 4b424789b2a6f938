//! SMTP, LMTP and submission: from the protocol machine's questions to calls of the service.
//!
//! The machine in `whimbrel_smtp` knows the protocol and asks; here each question becomes at most one call at a time. A message
//! streams into an upload and, beside it, through the MIME parser; at its end it becomes one queue entry, and the client hears 250 when
//! that is on disk.
//!
//! Invariant: while a call is under way the machine's further outputs wait, so the calls of a session are strictly one after the
//! other, and an abort never overtakes a write to the upload it aborts.

mod auth;
mod handover;
mod mailboxes;
mod stamp;
mod submission;
mod submit;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use whimbrel_mime::Parser;
use whimbrel_service::{
    api::{
        Asker, BLOB_CHUNK_BYTES_MAX, BlobName, Call, Date, Delivery, Ended, Entry, Event, Failure,
        Reply, Resolution, Target, UploadId,
    },
    machine::Now,
    queue::entry_id,
};
use whimbrel_smtp::{
    Config, Enhanced, ForwardPath, Mailbox, Refusal, Role,
    session::{Accepted, CloseReason, DataAnswer, DataSummary, Envelope, Output, RcptTo, TlsInfo},
    trace::WallTime,
};

use stamp::Stamp;

use crate::session::{Action, Handover, Note, Peer, Session, Tls};

/// What bounds a transaction beyond the protocol's own limits. Keys in `[smtp]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Accounts that the recipients of one transaction may lead to, aliases followed: bounds the queue entry. `smtp.targets_max`.
    pub targets_max: usize,
    /// Bytes of all summaries in one queue entry; with many recipients each gets less. Keeps an entry, which is in a commit twice
    /// (in a log and by itself), below the store's 16 MiB for one. Not a key: it follows from the store.
    pub entry_bytes_max: usize,
    /// What the parser takes from a message.
    pub mime: whimbrel_mime::Limits,
    /// Of submission.
    pub submission: Submission,
    /// Whether SCRAM is offered. No limit, but it comes the same way: `auth.scram_iterations` is not 0.
    pub scram: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            targets_max: 1000,
            entry_bytes_max: 6 << 20,
            mime: whimbrel_mime::Limits::default(),
            submission: Submission::default(),
            scram: true,
        }
    }
}

/// What bounds submission, and what it does beside. Keys in `[submission]`.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The header of a message, which is held whole. `submission.header_bytes_max`.
    pub header_bytes_max: usize,
    /// Whether a copy goes to the sender's mailbox for sent mail. `submission.save_sent`.
    pub save_sent: bool,
}

impl Default for Submission {
    fn default() -> Self {
        Submission {
            header_bytes_max: 256 * 1024,
            save_sent: true,
        }
    }
}

/// One SMTP, LMTP or submission connection.
pub struct SmtpSession {
    machine: whimbrel_smtp::Session,
    client: auth::Client,
    role: Role,
    config: Arc<Config>,
    limits: Arc<Limits>,
    /// Bytes that the machine had no room for.
    rest: Vec<u8>,
    /// The call under way and what follows it.
    pending: Option<Pending>,
    /// Targets of each accepted recipient of the transaction.
    recipients: Vec<Vec<Target>>,
    targets: usize,
    message: Option<Message>,
    /// An action that follows from the last reply, before the machine is asked for more.
    next: Option<Action>,
    closed: bool,
    notes: std::collections::VecDeque<Note>,
    /// The command that is being answered, and since when, by the monotonic clock.
    answering: Option<(&'static str, u64)>,
    /// Whoever has logged in may send nothing more.
    ended: Option<Ended>,
    /// Another session takes the mail.
    relays: bool,
    /// To be given out when all that was said has gone out.
    handover: Option<Box<Handover>>,
}

enum Pending {
    Auth,
    /// Whether the envelope's sender is the client's own.
    Sender,
    /// Whether those are whom the header names.
    Header(Box<submit::Checked>),
    Resolve,
    Create,
    Write(Write),
    Finish(DataSummary),
    Accept {
        accepted: Box<Acceptance>,
    },
    Abort,
}

/// Part of a message on its way to the store.
struct Write {
    /// How many bytes of the client's this deals with.
    length: usize,
    /// What is still to be written.
    rest: Bytes,
    /// The message ends with it.
    end: Option<DataSummary>,
}

struct Acceptance {
    /// One for each recipient, where they differ (LMTP).
    verdicts: Vec<Result<(), Refusal>>,
    upload: UploadId,
    id: String,
    bytes: u64,
    deliveries: usize,
}

struct Message {
    envelope: Arc<Envelope>,
    upload: Option<UploadId>,
    parser: Box<Parser>,
    /// Its header, while that is incomplete (submission).
    header: Option<submission::Header>,
    /// Fields that only the sender keeps.
    blind: Vec<u8>,
    /// A user sends it again, who may have it from whom it goes to: what says where it was is no sign of a loop.
    resent: bool,
    /// Storing failed: the rest is read and forgotten, and the end is answered with this.
    failed: Option<Refusal>,
}

impl SmtpSession {
    /// A session on a fresh connection.
    #[must_use]
    pub fn new(
        role: Role,
        config: Arc<Config>,
        limits: Arc<Limits>,
        peer: &Peer,
        now: Now,
    ) -> Self {
        let machine = whimbrel_smtp::Session::new(role, config.clone(), known(peer), time(now));
        let client = auth::Client::new(peer.clone(), None);
        let mut session = SmtpSession::with(machine, client, config, limits);
        session.offer_auth();
        session
    }

    fn with(
        machine: whimbrel_smtp::Session,
        client: auth::Client,
        config: Arc<Config>,
        limits: Arc<Limits>,
    ) -> Self {
        SmtpSession {
            client,
            role: machine.role(),
            machine,
            config,
            limits,
            rest: Vec::new(),
            pending: None,
            recipients: Vec::new(),
            targets: 0,
            message: None,
            next: None,
            closed: false,
            notes: std::collections::VecDeque::new(),
            answering: None,
            ended: None,
            relays: false,
            handover: None,
        }
    }

    fn feed(&mut self, now: Now) {
        let taken = self.machine.input(time(now), &self.rest);
        self.rest.drain(..taken);
        if self.rest.is_empty() {
            self.rest = Vec::new();
        }
    }

    fn call(&mut self, pending: Pending, call: Call) -> Option<Action> {
        self.pending = Some(pending);
        Some(Action::Call(call))
    }

    /// Turns one output of the machine into an action; `None`: nothing to be done outside.
    fn output(&mut self, now: Now, output: Output) -> Option<Action> {
        match output {
            Output::Send(bytes) => return Some(Action::Send(bytes)),
            Output::StartTls if !self.rest.is_empty() => {
                // Clear text behind STARTTLS (RFC 3207, 6): nothing of it may be taken for protected.
                self.rest.clear();
                self.closed = true;
                self.notes
                    .push_back(Note::ProtocolError("bytes behind STARTTLS"));
                return Some(Action::Close);
            }
            Output::StartTls => return Some(Action::StartTls),
            Output::AuthBegin { mechanism, initial } => {
                let initial = initial.as_ref().map(|message| message.0.as_slice());
                return self.auth_begin(now, &mechanism, initial);
            }
            Output::AuthResponse(message) => return self.auth_respond(now, &message.0),
            Output::Mail(_) if self.hands_over(now) => {}
            Output::Mail(mail) => {
                self.answering = Some(("MAIL", now.mono_micros));
                self.recipients.clear();
                self.targets = 0;
                if self.role == Role::Submission {
                    return self.may_send_from(now, &mail.from);
                }
                self.answered(now);
                self.machine.answer_mail(time(now), Ok(()));
            }
            Output::Rcpt(RcptTo { path, .. }) => {
                self.answering = Some(("RCPT", now.mono_micros));
                let (local, domain) = match &path {
                    ForwardPath::Postmaster => ("postmaster".to_owned(), None),
                    ForwardPath::Mailbox(mailbox) => (
                        mailbox.local().as_str().to_owned(),
                        Some(mailbox.domain().as_str().to_owned()),
                    ),
                };
                let asker = match (self.role, self.client.account) {
                    (Role::Lmtp, _) => Asker::Front,
                    (_, Some(account)) => Asker::Account(account),
                    (_, None) => Asker::Stranger(self.client.peer.address),
                };
                let call = Call::Resolve {
                    local,
                    domain,
                    asker,
                };
                return self.call(Pending::Resolve, call);
            }
            Output::DataBegin(envelope) => {
                let parser = Box::new(Parser::new(&self.limits.mime));
                self.message = Some(Message {
                    envelope,
                    upload: None,
                    parser,
                    header: (self.role == Role::Submission)
                        .then(|| submission::Header::new(self.limits.submission.header_bytes_max)),
                    blind: Vec::new(),
                    resent: false,
                    failed: None,
                });
                return self.call(Pending::Create, Call::BlobCreate(None));
            }
            Output::DataChunk(bytes) => {
                let length = bytes.len();
                match &mut self.message {
                    Some(Message {
                        header: Some(_),
                        failed: None,
                        ..
                    }) => return self.header_chunk(now, &bytes),
                    Some(Message {
                        upload: Some(upload),
                        parser,
                        failed: None,
                        ..
                    }) => {
                        parser.push(&bytes);
                        let upload = *upload;
                        return self.write(upload, length, bytes.into(), None);
                    }
                    _ => self.machine.acknowledge(time(now), length),
                }
            }
            Output::DataEnd(data) => {
                // What the client took to send it is not counted.
                self.answering = Some(("DATA", now.mono_micros));
                return self.data_end(now, data);
            }
            Output::DataAbort(_) => return self.abort(),
            Output::Close(reason) => {
                self.closed = true;
                self.notes.push_back(Note::Closed(close_text(reason)));
                return Some(Action::Close);
            }
        }
        None
    }

    /// All of a message has come.
    fn data_end(&mut self, now: Now, data: DataSummary) -> Option<Action> {
        match &mut self.message {
            // A header without a body.
            Some(Message {
                header: Some(_),
                failed: None,
                ..
            }) => self.header_complete(now, &[], 0, Some(data)),
            Some(Message {
                upload: Some(upload),
                failed: None,
                ..
            }) => {
                let call = Call::BlobFinish { upload: *upload };
                self.call(Pending::Finish(data), call)
            }
            _ => self.end_failed(now),
        }
    }

    fn answer_data(&mut self, now: Now, answer: DataAnswer) {
        self.answered(now);
        self.machine.answer_data_end(time(now), answer);
    }

    /// Counts the command that is being answered.
    fn answered(&mut self, now: Now) {
        if let Some((name, began)) = self.answering.take() {
            let took = now.mono_micros.saturating_sub(began);
            self.notes.push_back(Note::Command(name, took));
        }
    }

    /// A full input buffer and what the machine had held back of a line end before it are a little more than one call may bring.
    fn write(
        &mut self,
        upload: UploadId,
        length: usize,
        mut bytes: Bytes,
        end: Option<DataSummary>,
    ) -> Option<Action> {
        let rest = bytes.split_off(bytes.len().min(BLOB_CHUNK_BYTES_MAX));
        let call = Call::BlobWrite { upload, bytes };
        self.call(Pending::Write(Write { length, rest, end }), call)
    }

    fn written(&mut self, now: Now, write: Write, reply: &Reply) -> Option<Action> {
        let Write { length, rest, end } = write;
        match (reply, &mut self.message) {
            (
                Reply::Done,
                Some(Message {
                    upload: Some(upload),
                    ..
                }),
            ) => {
                let upload = *upload;
                if !rest.is_empty() {
                    return self.write(upload, length, rest, end);
                }
                if let Some(data) = end {
                    return self.call(Pending::Finish(data), Call::BlobFinish { upload });
                }
            }
            (_, None) => {}
            (_, Some(message)) => {
                message.failed = Some(failed(reply));
                if end.is_some() {
                    return self.end_failed(now);
                }
            }
        }
        self.machine.acknowledge(time(now), length);
        None
    }

    /// The end of a message that could not be taken: tells why, and forgets it.
    fn end_failed(&mut self, now: Now) -> Option<Action> {
        let message = self.message.as_mut();
        let refusal = message.and_then(|message| message.failed.take());
        let refusal = refusal.unwrap_or_else(Refusal::try_later);
        self.answer_data(now, DataAnswer::All(Err(refusal)));
        self.abort()
    }

    fn abort(&mut self) -> Option<Action> {
        let upload = self.message.take()?.upload?;
        self.call(Pending::Abort, Call::BlobAbort { upload })
    }

    fn verdict(&mut self, now: Now, verdict: Result<Accepted, Refusal>) {
        self.message = None;
        self.answer_data(now, DataAnswer::All(verdict));
    }

    fn resolved(&mut self, now: Now, reply: Reply) {
        let answer = match reply {
            Reply::Resolved(Resolution::Local(targets))
                if self.targets + targets.len() > self.limits.targets_max =>
            {
                // RFC 5321, 4.5.3.1.10: the client sends the rest in another transaction.
                Err(Refusal::new(
                    452,
                    Enhanced(5, 3),
                    "Too many recipients in this transaction",
                ))
            }
            Reply::Resolved(Resolution::Local(targets)) => {
                self.targets += targets.len();
                self.recipients.push(targets);
                Ok(())
            }
            Reply::Resolved(Resolution::NoSuchUser) => Err(Refusal::unknown_recipient()),
            Reply::Resolved(Resolution::Full) => Err(Refusal::mailbox_full()),
            Reply::Resolved(Resolution::NotOurs) if self.role == Role::Submission => {
                Err(submit::no_relaying())
            }
            Reply::Resolved(Resolution::NotOurs) => Err(Refusal::relay_denied()),
            Reply::Resolved(Resolution::Loop) => Err(Refusal::mail_loop()),
            Reply::Failed(Failure::Throttled) if self.client.account.is_some() => {
                Err(Refusal::new(
                    450,
                    Enhanced(7, 1),
                    "You have named too many recipients, try again later",
                ))
            }
            Reply::Failed(Failure::Throttled) => Err(Refusal::new(
                450,
                Enhanced(7, 1),
                "Too many unknown recipients from your address, try again later",
            )),
            _ => Err(Refusal::try_later()),
        };
        self.answered(now);
        self.machine.answer_rcpt(time(now), answer);
    }

    /// Which of the accepted recipients the message has come back to: those of whom an account stands in a Delivered-To field (RFC 5321, 6.3).
    /// An alias is refused as a whole: its other accounts had the message when the first one did.
    fn loops(&self, delivered_to: &[String]) -> Vec<Result<(), Refusal>> {
        let known: BTreeSet<String> = delivered_to.iter().map(|text| unquoted(text)).collect();
        let looped = |target: &Target| known.contains(&target.address);
        self.recipients
            .iter()
            .map(|targets| match targets.iter().any(looped) {
                true => Err(Refusal::mail_loop()),
                false => Ok(()),
            })
            .collect()
    }

    /// The body is stored: makes the queue entry. A message that loops to one recipient among others: LMTP tells each its own reply. SMTP has
    /// one reply, and 250 would take a recipient on who gets nothing, so the whole is refused before anything is accepted.
    fn finished(&mut self, now: Now, blob: BlobName, data: &DataSummary) -> Option<Action> {
        let message = self.message.take()?;
        if let Some(why) = self.ended {
            let refusal = Refusal::new(554, Enhanced(7, 0), why.text());
            self.answer_data(now, DataAnswer::All(Err(refusal)));
            let upload = blob.upload;
            return self.call(Pending::Abort, Call::BlobAbort { upload });
        }
        let open_end = message.parser.has_open_end();
        let summary = message.parser.finish();
        let id = entry_id(&blob.upload);
        let verdicts = match message.resent {
            true => vec![Ok(()); self.recipients.len()],
            false => self.loops(&data.delivered_to),
        };
        let looping = verdicts.iter().any(Result::is_err);
        if verdicts.iter().all(Result::is_err) || (looping && self.role != Role::Lmtp) {
            self.answer_data(now, DataAnswer::All(Err(Refusal::mail_loop())));
            return self.call(
                Pending::Abort,
                Call::BlobAbort {
                    upload: blob.upload,
                },
            );
        }
        let accepted = self.recipients.iter().zip(&verdicts);
        let targets: BTreeSet<&Target> = accepted
            .filter(|(_, verdict)| verdict.is_ok())
            .flat_map(|(targets, _)| targets)
            .collect();
        let seconds = i64::try_from(now.wall_seconds()).unwrap_or(i64::MAX);
        let stamp = Stamp {
            host: &self.config.host,
            id: id.to_string(),
            time: WallTime::new(seconds, 0),
            summary_bytes_max: (self.limits.entry_bytes_max / (targets.len() + 1)).clamp(
                whimbrel_mime::Limits::SUMMARY_BYTES_MIN,
                self.limits.mime.summary_bytes_max,
            ),
            mime: &self.limits.mime,
            open_end,
        };
        let alone = targets.len() == 1;
        let mut deliveries: Vec<Delivery> = targets
            .into_iter()
            .map(|target| stamp.delivery(&message.envelope, &summary, target, alone))
            .collect();
        let recipients = deliveries.len();
        if let (Some(account), true) = (self.client.account, self.limits.submission.save_sent) {
            deliveries.push(stamp.sent(&message.envelope, &summary, account, message.blind));
        }
        let sender = message
            .envelope
            .mail
            .from
            .mailbox()
            .map(ToString::to_string)
            .unwrap_or_default();
        let accepted = Box::new(Acceptance {
            verdicts: if looping { verdicts } else { Vec::new() },
            upload: blob.upload,
            id: id.to_string(),
            bytes: data.bytes,
            deliveries: recipients,
        });
        let entry = Entry {
            id,
            sender,
            deliveries,
            blob,
            date: Date {
                seconds,
                zone_minutes: 0,
            },
        };
        self.call(Pending::Accept { accepted }, Call::Accept(entry))
    }
}

/// The inverse, for whatever stands in a Delivered-To field; folded as our addresses are.
fn unquoted(text: &str) -> String {
    match Mailbox::parse(text) {
        Ok(mailbox) => format!("{}@{}", mailbox.local().as_str(), mailbox.domain()).to_lowercase(),
        Err(_) => text.to_lowercase(),
    }
}

fn time(now: Now) -> Duration {
    Duration::from_micros(now.mono_micros)
}

/// What the machine is told of the other end.
fn known(peer: &Peer) -> whimbrel_smtp::session::Peer {
    whimbrel_smtp::session::Peer {
        ip: peer.address,
        tls: peer.tls.as_ref().map(tls_info),
    }
}

fn tls_info(tls: &Tls) -> TlsInfo {
    TlsInfo {
        version: tls.version.to_owned(),
        cipher: tls.cipher.clone(),
    }
}

fn close_text(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Quit => "quit",
        CloseReason::ConnectionLost => "connection lost",
        CloseReason::Timeout => "timeout",
        CloseReason::EarlyTalker => "client talked before the greeting",
        CloseReason::BytesBehindStartTls => "bytes behind STARTTLS",
        CloseReason::TooManyErrors => "too many errors",
        CloseReason::TooManyCommands => "too many commands",
        CloseReason::TooManyTransactions => "too many transactions",
        CloseReason::TooManyRefusedRecipients => "too many refused recipients",
        CloseReason::TooManyAuthFailures => "too many failed logins",
        CloseReason::TooMuchData => "too much data",
        CloseReason::ShuttingDown => "shutting down",
        CloseReason::LoggedOut => "logged out by the server",
    }
}

/// What a sender is told when the service could not.
fn refusal(failure: Failure) -> Refusal {
    match failure {
        Failure::TooManyRecipients => Refusal::too_many_recipients(),
        Failure::Storage => Refusal::no_space(),
        Failure::TooFewNodes => Refusal::not_accepting(),
        Failure::Clock => Refusal::wrong_clock(),
        Failure::NotConfirmed => Refusal::not_confirmed(),
        _ => Refusal::try_later(),
    }
}

impl Session for SmtpSession {
    fn on_bytes(&mut self, now: Now, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        self.feed(now);
    }

    fn on_eof(&mut self, now: Now) {
        self.rest = Vec::new();
        self.machine.on_eof(time(now));
    }

    fn on_reply(&mut self, now: Now, reply: Reply) {
        match (self.pending.take(), reply) {
            (Some(Pending::Auth), reply) => self.next = self.auth_reply(now, reply),
            (Some(Pending::Resolve), reply) => self.resolved(now, reply),
            (Some(Pending::Create), Reply::Upload(upload)) => {
                if let Some(message) = &mut self.message {
                    message.upload = Some(upload);
                }
                self.machine.answer_data_begin(time(now), Ok(()));
            }
            (Some(Pending::Create), reply) => {
                self.message = None;
                self.machine
                    .answer_data_begin(time(now), Err(failed(&reply)));
            }
            (Some(Pending::Sender), reply) => self.sender_checked(now, &reply),
            (Some(Pending::Header(checked)), reply) => {
                self.next = self.header_checked(now, *checked, &reply);
            }
            (Some(Pending::Write(write)), reply) => self.next = self.written(now, write, &reply),
            (Some(Pending::Finish(data)), Reply::Blob(blob)) => {
                self.next = self.finished(now, blob, &data)
            }
            (Some(Pending::Finish(_)), reply) => {
                self.next = self.abort();
                self.verdict(now, Err(failed(&reply)));
            }
            (Some(Pending::Accept { accepted }), Reply::Done) => {
                let Acceptance {
                    verdicts,
                    id,
                    bytes,
                    deliveries,
                    ..
                } = *accepted;
                self.notes.push_back(Note::Accepted {
                    entry: id.clone(),
                    bytes,
                    deliveries,
                });
                let accepted = Accepted { note: id };
                if verdicts.is_empty() {
                    self.verdict(now, Ok(accepted));
                } else {
                    let each = verdicts
                        .into_iter()
                        .map(|verdict| verdict.map(|()| accepted.clone()));
                    self.answer_data(now, DataAnswer::Each(each.collect()));
                }
            }
            (Some(Pending::Accept { accepted }), reply) => {
                self.verdict(now, Err(failed(&reply)));
                // Nothing names the blob.
                self.pending = Some(Pending::Abort);
                self.next = Some(Action::Call(Call::BlobAbort {
                    upload: accepted.upload,
                }));
            }
            (Some(Pending::Abort) | None, _) => {}
        }
    }

    fn on_event(&mut self, now: Now, event: Event) {
        match event {
            Event::Changed => {}
            Event::Shutdown => self.machine.shut_down(time(now)),
            Event::Ended(why) => {
                self.ended = Some(why);
                self.machine.log_out(time(now), why.text());
            }
        }
    }

    fn on_tls(&mut self, now: Now, tls: Tls) {
        self.machine.tls_started(time(now), tls_info(&tls));
        self.client.peer.tls = Some(tls);
        self.offer_auth();
    }

    fn on_time(&mut self, now: Now) {
        self.machine.on_time(time(now));
    }

    fn deadline(&self) -> Option<u64> {
        let deadline = self.machine.deadline()?;
        Some(u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX))
    }

    fn wants_input(&self) -> bool {
        !self.closed && self.rest.is_empty() && self.machine.wants_input()
    }

    fn relay(&mut self) {
        self.relays = true;
    }

    fn may_be_told(&self) -> bool {
        self.pending.is_none() && self.machine.is_at_rest()
    }

    fn poll(&mut self, now: Now) -> Option<Action> {
        loop {
            let refused = std::iter::from_fn(|| self.machine.take_refused());
            self.notes.extend(refused.map(Note::Refused));
            if let Some(note) = self.notes.pop_front() {
                return Some(Action::Note(note));
            }
            if let Some(action) = self.next.take() {
                return Some(action);
            }
            if self.pending.is_some() || self.closed {
                return None;
            }
            if !self.rest.is_empty() {
                self.feed(now);
            }
            match self.machine.poll() {
                Some(output) => {
                    if let Some(action) = self.output(now, output) {
                        return Some(action);
                    }
                }
                // What is thrown away makes room and no output.
                None if !self.rest.is_empty() && self.machine.wants_input() => {}
                None if !self.notes.is_empty() => {}
                None => {
                    let handover = self.handover.take()?;
                    self.closed = true;
                    return Some(Action::HandOver(handover));
                }
            }
        }
    }
}

fn failed(reply: &Reply) -> Refusal {
    match reply {
        Reply::Failed(failure) => refusal(*failure),
        _ => Refusal::try_later(),
    }
}
