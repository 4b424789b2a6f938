//! SMTP and LMTP: from the protocol machine's questions to calls of the service.
//!
//! The machine in `whimbrel_smtp` knows the protocol and asks; here each question becomes at most one call at a time. A message
//! streams into an upload and, beside it, through the MIME parser; at its end it becomes one queue entry, and the client hears 250 when
//! that is on disk.
//!
//! Invariant: while a call is under way the machine's further outputs wait, so the calls of a session are strictly one after the
//! other, and an abort never overtakes a write to the upload it aborts.

mod auth;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use whimbrel_mime::{Parser, Summary};
use whimbrel_service::{
    api::{
        BLOB_CHUNK_BYTES_MAX, BlobName, Call, Date, Delivery, Entry, Event, Failure, MailboxName,
        Reply, Resolution, Target, UploadId,
    },
    content::Content,
    machine::Now,
    queue::entry_id,
};
use whimbrel_smtp::{
    Config, Domain, Enhanced, ForwardPath, LocalPart, Mailbox, Refusal, Role,
    session::{Accepted, CloseReason, DataAnswer, DataSummary, Envelope, Output, TlsInfo},
    trace::{self, Received, WallTime},
};

use crate::session::{Action, Note, Peer, Session, Tls};

/// What bounds a transaction beyond the protocol's own limits. Keys in `[smtp]`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Accounts that the recipients of one transaction may lead to, aliases followed: bounds the queue entry. `smtp.targets_max`.
    pub targets_max: usize,
    /// Bytes of all summaries in one queue entry; with many recipients each gets less. Keeps an entry well below the store's
    /// 16 MiB for one commit. Not a key: it follows from the store.
    pub entry_bytes_max: usize,
    /// What the parser takes from a message.
    pub mime: whimbrel_mime::Limits,
    /// Whether SCRAM is offered. No limit, but it comes the same way: `auth.scram_iterations` is not 0.
    pub scram: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            targets_max: 1000,
            entry_bytes_max: 8 << 20,
            mime: whimbrel_mime::Limits::default(),
            scram: true,
        }
    }
}

/// One SMTP or LMTP connection.
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
}

enum Pending {
    Auth,
    Resolve,
    Create,
    /// This many bytes of a chunk, and those of it that are still to be written.
    Write(usize, Bytes),
    Finish(DataSummary),
    Accept {
        accepted: Box<Acceptance>,
    },
    Abort,
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
        let tls = peer.tls.clone();
        let client = auth::Client::new(peer.address);
        let peer = whimbrel_smtp::session::Peer {
            ip: peer.address,
            tls: tls.as_ref().map(tls_info),
        };
        let mut session = SmtpSession {
            client,
            machine: whimbrel_smtp::Session::new(role, config.clone(), peer, time(now)),
            role,
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
        };
        session.offer_auth(tls);
        session
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
            Output::Mail(_) => {
                self.notes.push_back(Note::Command("MAIL", 0));
                self.recipients.clear();
                self.targets = 0;
                self.machine.answer_mail(time(now), Ok(()));
            }
            Output::Rcpt(path) => {
                self.answering = Some(("RCPT", now.mono_micros));
                let (local, domain) = match &path {
                    ForwardPath::Postmaster => ("postmaster".to_owned(), None),
                    ForwardPath::Mailbox(mailbox) => (
                        mailbox.local().as_str().to_owned(),
                        Some(mailbox.domain().as_str().to_owned()),
                    ),
                };
                return self.call(Pending::Resolve, Call::Resolve { local, domain });
            }
            Output::DataBegin(envelope) => {
                let parser = Box::new(Parser::new(&self.limits.mime));
                self.message = Some(Message {
                    envelope,
                    upload: None,
                    parser,
                    failed: None,
                });
                return self.call(Pending::Create, Call::BlobCreate);
            }
            Output::DataChunk(bytes) => {
                let length = bytes.len();
                match &mut self.message {
                    Some(Message {
                        upload: Some(upload),
                        parser,
                        failed: None,
                        ..
                    }) => {
                        parser.push(&bytes);
                        let upload = *upload;
                        return self.write(upload, length, bytes.into());
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
            Some(Message {
                upload: Some(upload),
                failed: None,
                ..
            }) => {
                let call = Call::BlobFinish { upload: *upload };
                self.call(Pending::Finish(data), call)
            }
            message => {
                let refusal = message.as_mut().and_then(|message| message.failed.take());
                let refusal = refusal.unwrap_or_else(Refusal::try_later);
                self.answer_data(now, DataAnswer::Whole(Err(refusal)));
                self.abort()
            }
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
    fn write(&mut self, upload: UploadId, length: usize, mut bytes: Bytes) -> Option<Action> {
        let rest = bytes.split_off(bytes.len().min(BLOB_CHUNK_BYTES_MAX));
        let call = Call::BlobWrite { upload, bytes };
        self.call(Pending::Write(length, rest), call)
    }

    fn abort(&mut self) -> Option<Action> {
        let upload = self.message.take()?.upload?;
        self.call(Pending::Abort, Call::BlobAbort { upload })
    }

    fn verdict(&mut self, now: Now, verdict: Result<Accepted, Refusal>) {
        self.message = None;
        self.answer_data(now, DataAnswer::Whole(verdict));
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
            Reply::Resolved(Resolution::NotOurs) => Err(Refusal::relay_denied()),
            Reply::Resolved(Resolution::Loop) => Err(Refusal::mail_loop()),
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
        let summary = message.parser.finish();
        let id = entry_id(&blob.upload);
        let verdicts = self.loops(&data.delivered_to);
        let looping = verdicts.iter().any(Result::is_err);
        if verdicts.iter().all(Result::is_err) || (looping && self.role != Role::Lmtp) {
            self.answer_data(now, DataAnswer::Whole(Err(Refusal::mail_loop())));
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
            summary_bytes_max: (self.limits.entry_bytes_max / targets.len().max(1)).clamp(
                whimbrel_mime::Limits::SUMMARY_BYTES_MIN,
                self.limits.mime.summary_bytes_max,
            ),
            mime: &self.limits.mime,
        };
        let alone = targets.len() == 1;
        let deliveries: Vec<Delivery> = targets
            .into_iter()
            .map(|target| stamp.delivery(&message.envelope, &summary, target, alone))
            .collect();
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
            deliveries: deliveries.len(),
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

/// What is the same in the trace header fields of all recipients.
struct Stamp<'a> {
    host: &'a Domain,
    id: String,
    time: WallTime,
    summary_bytes_max: usize,
    mime: &'a whimbrel_mime::Limits,
}

impl Stamp<'_> {
    fn delivery(
        &self,
        envelope: &Envelope,
        summary: &Summary,
        target: &Target,
        alone: bool,
    ) -> Delivery {
        let mut prefix = trace::return_path(&envelope.mail.from);
        if let Some(mailbox) = quoted(&target.address) {
            prefix.extend(trace::delivered_to(&mailbox));
        }
        // Who else received it is nobody's business (RFC 5321, 7.2).
        let recipient = if alone {
            envelope.recipients.first().and_then(ForwardPath::mailbox)
        } else {
            None
        };
        prefix.extend(trace::received(&Received {
            envelope,
            by: self.host,
            id: &self.id,
            recipient,
            time: self.time,
        }));
        let limits = whimbrel_mime::Limits {
            summary_bytes_max: self.summary_bytes_max,
            ..self.mime.clone()
        };
        let summary = summary.clone().with_prefix(&prefix, &limits);
        let size = u32::try_from(summary.size).unwrap_or(u32::MAX);
        let content = Content {
            prefix: prefix.into(),
            summary: summary.encode().into(),
        }
        .encode();
        let target_name = target
            .detail
            .as_deref()
            .and_then(|detail| MailboxName::new(detail).ok());
        Delivery {
            account: target.account,
            target: target_name.unwrap_or_else(MailboxName::inbox),
            content,
            size,
        }
    }
}

/// An address of ours, whose local part has no quotes, as it is written in mail: with quotes where it needs them (`"a..b"@example.org`).
fn quoted(address: &str) -> Option<Mailbox> {
    let (local, domain) = address.rsplit_once('@')?;
    Mailbox::new(LocalPart::new(local).ok()?, Domain::new(domain).ok()?).ok()
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
    }
}

/// What a sender is told when the service could not.
fn refusal(failure: Failure) -> Refusal {
    match failure {
        Failure::Storage => Refusal::no_space(),
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
            (Some(Pending::Write(length, rest)), reply) => {
                match (&reply, &mut self.message) {
                    (
                        Reply::Done,
                        Some(Message {
                            upload: Some(upload),
                            ..
                        }),
                    ) if !rest.is_empty() => {
                        let upload = *upload;
                        self.next = self.write(upload, length, rest);
                        return;
                    }
                    (Reply::Done, _) | (_, None) => {}
                    (_, Some(message)) => message.failed = Some(failed(&reply)),
                }
                self.machine.acknowledge(time(now), length);
            }
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
        if event == Event::Shutdown {
            self.machine.shut_down(time(now));
        }
    }

    fn on_tls(&mut self, now: Now, tls: Tls) {
        self.machine.tls_started(time(now), tls_info(&tls));
        self.offer_auth(Some(tls));
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

    fn poll(&mut self, now: Now) -> Option<Action> {
        loop {
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
                None if self.notes.is_empty() => return None,
                None => {}
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
