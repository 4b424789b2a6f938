//! Transcripts: `C:` and `S:` lines as the RFCs print them, and `=` lines for what the owner was asked and given.
//!
//! - `C: text`: the client sends the text and CRLF. `\r`, `\n`, `\0`, `\\` are escapes; a line ending in `\` has no CRLF after it.
//!   Consecutive `C:` lines are sent in one piece: pipelined.
//! - `S: text`: the server's next line.
//! - `= text`: the next thing the owner was asked, as [`Owner`] writes it.
//! - `* eof`, `* tls`, `* wait N`, `* shutdown`: the connection ends; the handshake is done; N seconds pass; the server goes down.
//!
//! What the server says and asks has to be told completely: before each client's step and at the end nothing may be left over.
//! Every script is run whole and octet by octet.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::Domain;
use crate::Time;
use crate::reply::{Enhanced, Refusal};
use crate::session::*;
use crate::trace::WallTime;

/// A session with a simple owner, who decides by names: see [`Owner::decide`].
pub(crate) struct Owner {
    pub(crate) session: Session,
    pub(crate) now: Time,
    /// What was sent, not yet looked at.
    pub(crate) sent: Vec<u8>,
    /// What was asked and given, as text.
    pub(crate) events: VecDeque<String>,
    pub(crate) closed: Option<CloseReason>,
    /// The bytes of the message being received, and those of the last complete one.
    body: Vec<u8>,
    pub(crate) messages: Vec<Vec<u8>>,
    pub(crate) summary: DataSummary,
    recipients: Vec<RcptTo>,
    /// The handshake waits for `* tls`.
    pub(crate) manual_tls: bool,
}

impl Owner {
    pub(crate) fn new(role: Role, config: Config, tls: bool) -> Self {
        let peer = Peer {
            ip: "192.0.2.7".parse().unwrap(),
            tls: tls.then(tls_info),
        };
        let mut session = Session::new(role, Arc::new(config), peer, Time::ZERO);
        session.offer_auth("PLAIN LOGIN".into());
        session.set_wall_time(Time::ZERO, WallTime::new(1_795_190_400, 0));
        Owner {
            session,
            now: Time::ZERO,
            sent: Vec::new(),
            events: VecDeque::new(),
            closed: None,
            body: Vec::new(),
            messages: Vec::new(),
            summary: DataSummary::default(),
            recipients: Vec::new(),
            manual_tls: false,
        }
    }

    /// Polls until there is nothing more, answering each question.
    pub(crate) fn run(&mut self) {
        while let Some(output) = self.session.poll() {
            assert!(self.closed.is_none(), "output after the close: {output:?}");
            self.take(output);
        }
    }

    fn event(&mut self, text: String) {
        self.events.push_back(text);
    }

    fn take(&mut self, output: Output) {
        let now = self.now;
        match output {
            Output::Send(bytes) => {
                assert!(!bytes.is_empty());
                self.sent.extend(bytes);
            }
            Output::StartTls => {
                self.event("starttls".into());
                if !self.manual_tls {
                    self.session.tls_started(now, tls_info());
                }
            }
            Output::AuthBegin { mechanism, initial } => {
                let initial = initial.map(|message| format!(" {:?}", text(&message)));
                let shown = initial.as_deref().unwrap_or_default();
                self.event(format!("auth {mechanism}{shown}"));
                self.session
                    .answer_auth(now, exchange(&mechanism, initial.as_deref()));
            }
            Output::AuthResponse(message) => {
                let message = text(&message);
                self.event(format!("response {message:?}"));
                self.session
                    .answer_auth(now, exchange("PLAIN", Some(&message)));
            }
            Output::Mail(mail) => {
                let MailFrom {
                    from,
                    size,
                    utf8,
                    body,
                    ret,
                    envid,
                    require_tls,
                    hold,
                } = mail;
                let mut more = String::new();
                more.extend(ret.map(|ret| format!(" ret={ret}")));
                more.extend(envid.map(|id| format!(" envid={:?}", id.as_str())));
                more.extend(require_tls.then_some(" requiretls"));
                more.extend(hold.map(|hold| match hold {
                    Hold::For(seconds) => format!(" for={seconds}"),
                    Hold::Until(time) => format!(" until={}", time.unix_seconds()),
                }));
                let size = size.map(|size| format!(" {size}")).unwrap_or_default();
                let utf8 = if utf8 { " utf8" } else { "" };
                let body = if body == Body::EightBitMime {
                    " 8bit"
                } else {
                    ""
                };
                self.event(format!("mail {from}{size}{utf8}{body}{more}"));
                self.session.answer_mail(now, decide(&from.to_string()));
            }
            Output::Rcpt(to) => {
                let written = to.to_string();
                self.event(format!("rcpt {}", &written["TO:".len()..]));
                self.session.answer_rcpt(now, decide(&to.path.to_string()));
            }
            Output::DataBegin(envelope) => {
                let to: Vec<_> = envelope
                    .recipients
                    .iter()
                    .map(|to| to.path.to_string())
                    .collect();
                self.event(format!("begin {} -> {}", envelope.mail.from, to.join(" ")));
                self.recipients.clone_from(&envelope.recipients);
                self.body.clear();
                let busy = envelope.mail.from.to_string().contains("nobegin");
                self.session.answer_data_begin(
                    now,
                    if busy {
                        Err(Refusal::no_space())
                    } else {
                        Ok(())
                    },
                );
            }
            Output::DataChunk(bytes) => {
                assert!(!bytes.is_empty());
                self.session.acknowledge(now, bytes.len());
                self.body.extend(bytes);
            }
            Output::DataEnd(summary) => {
                assert_eq!(summary.bytes, self.body.len() as u64);
                self.summary = summary;
                self.event(format!("end {:?}", String::from_utf8_lossy(&self.body)));
                self.messages.push(core::mem::take(&mut self.body));
                let each = self.recipients.iter().map(|to| {
                    let to = to.path.to_string();
                    if to.contains("full") {
                        Err(Refusal::mailbox_full())
                    } else {
                        Ok(Accepted::default())
                    }
                });
                self.session
                    .answer_data_end(now, DataAnswer::Each(each.collect()));
            }
            Output::DataAbort(reason) => {
                self.event(format!("abort {reason:?}"));
                self.body.clear();
            }
            Output::Close(reason) => {
                self.event(format!("close {reason:?}"));
                self.closed = Some(reason);
            }
        }
    }

    /// Feeds bytes in pieces of `size`; stops when the session is closed or takes no more.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], size: usize) {
        while !bytes.is_empty() && self.closed.is_none() {
            let piece = &bytes[..size.min(bytes.len())];
            let taken = self.session.input(self.now, piece);
            bytes = &bytes[taken..];
            self.run();
            if taken == 0 {
                return;
            }
        }
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while let Some(at) = self.session.deadline().filter(|&at| at <= until) {
            self.now = at;
            self.session.on_time(at);
            self.run();
            assert!(
                self.session.deadline().is_none_or(|next| next > at),
                "a deadline that does not go away"
            );
        }
        self.now = until;
        self.session.on_time(until);
        self.run();
    }
}

fn tls_info() -> TlsInfo {
    TlsInfo {
        version: "TLS1.3".into(),
        cipher: "X".into(),
    }
}

fn text(message: &Secret) -> String {
    String::from_utf8_lossy(&message.0).into_owned()
}

/// A mechanism that goes by words.
fn exchange(mechanism: &str, message: Option<&str>) -> AuthAnswer {
    match (mechanism, message) {
        ("CRAM-MD5", _) => {
            AuthAnswer::Broken(Refusal::new(504, Enhanced(5, 4), "Mechanism not supported"))
        }
        (_, None) => AuthAnswer::Challenge(Vec::new()),
        (_, Some(message)) if message.contains("right") => AuthAnswer::Accepted,
        (_, Some(message)) if message.contains("later") => AuthAnswer::Unavailable,
        (_, Some(message)) if message.contains("wrong") => AuthAnswer::Rejected,
        (_, Some(message)) if message.contains("more") => AuthAnswer::Challenge(b"go on".to_vec()),
        _ => AuthAnswer::Broken(Refusal::new(501, Enhanced(5, 2), "Malformed credentials")),
    }
}

/// Whom the owner does not like.
fn decide(path: &str) -> Result<(), Refusal> {
    if path.contains("unknown") {
        Err(Refusal::unknown_recipient())
    } else if path.contains("relay") {
        Err(Refusal::relay_denied())
    } else if path.contains("later") {
        Err(Refusal::new(451, Enhanced(7, 1), "Try later"))
    } else {
        Ok(())
    }
}

pub(crate) fn config() -> Config {
    let mut config = Config::new(Domain::new("mx.example.org").unwrap());
    config.starttls = true;
    config.limits.message_bytes_max = 1_000;
    config.limits.discard_bytes_max = 2_000;
    config
}

fn unescape(text: &str) -> Vec<u8> {
    let (text, end) = match text.strip_suffix('\\') {
        Some(text) => (text, ""),
        None => (text, "\r\n"),
    };
    let text = text
        .replace("\\r", "\r")
        .replace("\\n", "\n")
        .replace("\\0", "\0")
        + end;
    text.into_bytes()
}

/// Runs a transcript with the default configuration of these tests.
pub(crate) fn check(role: Role, script: &str) {
    check_with(role, config(), false, script);
}

/// Runs a transcript.
pub(crate) fn check_with(role: Role, config: Config, tls: bool, script: &str) {
    for size in [usize::MAX, 1, 3] {
        run(Owner::new(role, config.clone(), tls), script, size);
    }
}

fn run(mut owner: Owner, script: &str, size: usize) {
    owner.manual_tls = script.contains("* tls");
    owner.run();
    let mut pending = Vec::new();
    let lines = script
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.is_empty());
    for line in lines.chain(["* end"]) {
        let (kind, text) = line.split_at(2.min(line.len()));
        if kind != "C:" && !pending.is_empty() {
            assert_all_told(&owner, line, script);
            owner.feed(&core::mem::take(&mut pending), size);
        }
        let text = text.strip_prefix(' ').unwrap_or(text);
        match kind {
            "C:" => pending.extend(unescape(text)),
            "S:" => {
                let end = owner.sent.windows(2).position(|w| w == b"\r\n");
                let end = end.unwrap_or_else(|| {
                    panic!(
                        "server is silent at {line:?}; events {:?}\n{script}",
                        owner.events
                    )
                });
                let got: Vec<u8> = owner.sent.drain(..end + 2).collect();
                assert_eq!(
                    String::from_utf8_lossy(&got[..end]),
                    text,
                    "size {size}\n{script}"
                );
            }
            "= " => {
                let got = owner.events.pop_front();
                assert_eq!(got.as_deref(), Some(text), "size {size}\n{script}");
            }
            "* " => {
                assert_all_told(&owner, line, script);
                match text.split_once(' ') {
                    None if text == "eof" => owner.session.on_eof(owner.now),
                    None if text == "tls" => owner.session.tls_started(owner.now, tls_info()),
                    None if text == "shutdown" => owner.session.shut_down(owner.now),
                    Some(("wait", seconds)) => owner.wait(seconds.parse().unwrap()),
                    None if text == "end" => {}
                    _ => panic!("{line}"),
                }
                owner.run();
            }
            _ => panic!("{line}"),
        }
    }
}

fn assert_all_told(owner: &Owner, line: &str, script: &str) {
    let sent = String::from_utf8_lossy(&owner.sent);
    assert!(
        owner.sent.is_empty() && owner.events.is_empty(),
        "before {line:?}: {sent:?} {:?}\n{script}",
        owner.events
    );
}
