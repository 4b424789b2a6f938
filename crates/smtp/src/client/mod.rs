//! The client machine, for tests, the simulator and the benchmark.
//!
//! It greets, takes STARTTLS if it may, and sends messages one after the other; with PIPELINING the envelope goes out in one piece. The
//! body streams: after [`ClientOutput::WantBody`], [`Client::body`] any number of times, then [`Client::body_end`].
//!
//! Invariant: each command sent has one entry in the queue of replies awaited (LMTP's end of data has one a recipient), and replies are
//! taken in that order alone.

mod parser;
mod types;

pub use types::*;

use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::reply::{Enhanced, Refusal, Reply};
use crate::session::{Body, MailFrom};
use crate::text::stuff_dots;
use parser::ReplyParser;

/// Which command the next reply belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Greeting,
    Hello,
    StartTls,
    Auth,
    Mail,
    /// For the recipient of this index.
    Rcpt(usize),
    Data,
    /// A BDAT that is not the last.
    Chunk,
    /// The end of the message: for this recipient (LMTP), or for all.
    End(Option<usize>),
    /// After RSET.
    Reset,
    Quit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientState {
    /// Up to `Ready`.
    Opening,
    /// The handshake is under way: what comes is not SMTP.
    Handshake,
    Ready,
    /// MAIL and RCPT are out.
    Envelope,
    /// The body may be given.
    Body,
    /// All is sent; replies are awaited.
    Ending,
    Closed,
}

/// The message on its way.
#[derive(Debug)]
struct InTransfer {
    message: Outgoing,
    /// RCPTs sent.
    sent: usize,
    /// Whose RCPT was accepted: in LMTP each of them has a reply at the end, whatever became of the message.
    accepted: Vec<bool>,
    /// What decided, for each recipient.
    decided: Vec<Option<Result<Reply, Refusal>>>,
    /// The next octet of the body begins a line.
    line_start: bool,
    /// The body so far ends in CRLF, or is empty.
    ends_in_crlf: bool,
    /// Its last octet.
    last: u8,
}

/// One connection's client.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    state: ClientState,
    parser: ReplyParser,
    awaited: VecDeque<Awaited>,
    offers: Arc<Offers>,
    tls: bool,
    transfer: Option<InTransfer>,
    out: Vec<u8>,
    outputs: VecDeque<ClientOutput>,
}

impl Client {
    /// A client on a fresh connection; it waits for the greeting.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Client {
            config,
            state: ClientState::Opening,
            parser: ReplyParser::default(),
            awaited: VecDeque::from([Awaited::Greeting]),
            offers: Arc::default(),
            tls: false,
            transfer: None,
            out: Vec::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Next output; `None`: nothing before the next call.
    pub fn poll(&mut self) -> Option<ClientOutput> {
        if !self.out.is_empty() {
            return Some(ClientOutput::Send(core::mem::take(&mut self.out)));
        }
        self.outputs.pop_front()
    }

    /// Bytes from the server, in any split.
    pub fn input(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() && self.state != ClientState::Closed {
            // RFC 3207 4.2: nothing said in the clear counts after the handshake.
            if self.state == ClientState::Handshake {
                return self.fail(ClientError::InvalidReply(
                    "bytes behind the reply to STARTTLS",
                ));
            }
            match self.parser.next(&mut rest) {
                Ok(Some(reply)) => self.reply(reply),
                Ok(None) => return,
                Err(error) => return self.fail(ClientError::InvalidReply(error)),
            }
        }
    }

    /// The connection ended.
    pub fn on_eof(&mut self) {
        self.out.clear();
        self.fail(ClientError::ConnectionLost);
    }

    /// Answer to [`ClientOutput::StartTls`].
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn tls_started(&mut self) {
        if self.state == ClientState::Closed {
            return;
        }
        assert_eq!(
            self.state,
            ClientState::Handshake,
            "no handshake was asked for"
        );
        self.tls = true;
        self.state = ClientState::Opening;
        self.hello();
    }

    /// How it behaves.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Begins a message. Only after [`ClientOutput::Ready`].
    ///
    /// # Panics
    /// If it is not ready, or there is no recipient.
    pub fn send(&mut self, message: Outgoing) {
        if self.state == ClientState::Closed {
            return;
        }
        assert_eq!(self.state, ClientState::Ready, "not ready for a message");
        assert!(
            !message.recipients.is_empty(),
            "a message without recipients"
        );
        let offers = Arc::clone(&self.offers);
        if message.utf8 && !offers.utf8 {
            let refusal = Refusal::new(550, Enhanced(6, 7), "Server does not offer SMTPUTF8");
            let recipients = vec![Err(refusal); message.recipients.len()];
            self.outputs
                .push_back(ClientOutput::Done(Outcome { recipients }));
            return self.ready();
        }
        let decided = vec![None; message.recipients.len()];
        let accepted = vec![false; message.recipients.len()];
        let mail = MailFrom {
            size: message.size.filter(|_| offers.size.is_some()),
            utf8: offers.utf8 && message.utf8,
            body: match offers.eight_bit_mime {
                true => message.body,
                false => Body::SevenBit,
            },
            ..MailFrom::new(message.from.clone())
        };
        let mail = format!("MAIL {mail}");
        self.transfer = Some(InTransfer {
            message,
            sent: 0,
            accepted,
            decided,
            line_start: true,
            ends_in_crlf: true,
            last: b'\n',
        });
        self.state = ClientState::Envelope;
        self.command(&mail, Awaited::Mail);
        if self.pipelining() {
            while self.next_recipient() {}
            if !self.bdat() {
                self.command("DATA", Awaited::Data);
            }
        }
    }

    /// Part of the body, after [`ClientOutput::WantBody`]; dots are stuffed here.
    ///
    /// # Panics
    /// If no body is wanted.
    pub fn body(&mut self, bytes: &[u8]) {
        if self.state == ClientState::Closed || bytes.is_empty() {
            return;
        }
        assert_eq!(self.state, ClientState::Body, "no body is wanted");
        if !self.any_accepted() {
            return;
        }
        if self.bdat() {
            self.command(&format!("BDAT {}", bytes.len()), Awaited::Chunk);
            self.out.extend_from_slice(bytes);
            return;
        }
        let Some(transfer) = &mut self.transfer else {
            return;
        };
        transfer.line_start = stuff_dots(bytes, transfer.line_start, &mut self.out);
        transfer.ends_in_crlf = match bytes {
            [b'\n'] => transfer.last == b'\r',
            _ => bytes.ends_with(b"\r\n"),
        };
        transfer.last = *bytes.last().unwrap_or(&b'\n');
    }

    /// The body is complete. In DATA a text that does not end in CRLF gets one: RFC 5321 4.1.1.4 leaves no other way.
    ///
    /// # Panics
    /// If no body is wanted.
    pub fn body_end(&mut self) {
        if self.state == ClientState::Closed {
            return;
        }
        assert_eq!(self.state, ClientState::Body, "no body is wanted");
        self.state = ClientState::Ending;
        if !self.any_accepted() {
            // A chunk was refused: the rest was not sent.
            return self.command("RSET", Awaited::Reset);
        }
        if self.bdat() {
            self.out.extend_from_slice(b"BDAT 0 LAST\r\n");
        } else {
            let whole = self
                .transfer
                .as_ref()
                .is_none_or(|transfer| transfer.ends_in_crlf);
            self.out
                .extend_from_slice(if whole { b".\r\n" } else { b"\r\n.\r\n" });
        }
        if !self.config.lmtp {
            self.awaited.push_back(Awaited::End(None));
        } else if let Some(transfer) = &self.transfer {
            let accepted = transfer
                .accepted
                .iter()
                .enumerate()
                .filter(|(_, accepted)| **accepted);
            self.awaited
                .extend(accepted.map(|(i, _)| Awaited::End(Some(i))));
        }
    }

    /// Ends the session. Only after [`ClientOutput::Ready`].
    ///
    /// # Panics
    /// If a message is on its way.
    pub fn quit(&mut self) {
        if self.state == ClientState::Closed {
            return;
        }
        assert_eq!(self.state, ClientState::Ready, "a message is on its way");
        self.state = ClientState::Ending;
        self.command("QUIT", Awaited::Quit);
    }

    fn pipelining(&self) -> bool {
        self.config.pipelining && self.offers.pipelining
    }

    /// Chunks are not waited for one by one, which RFC 3030 2 allows only with PIPELINING.
    fn bdat(&self) -> bool {
        self.config.chunking && self.offers.chunking && self.pipelining()
    }

    fn command(&mut self, line: &str, awaited: Awaited) {
        self.out.extend_from_slice(line.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        self.awaited.push_back(awaited);
    }

    fn hello(&mut self) {
        let verb = if self.config.lmtp { "LHLO" } else { "EHLO" };
        let line = format!("{verb} {}", self.config.name);
        self.command(&line, Awaited::Hello);
    }

    fn fail(&mut self, error: ClientError) {
        if self.state != ClientState::Closed {
            self.state = ClientState::Closed;
            self.awaited.clear();
            self.outputs.push_back(ClientOutput::Close(Err(error)));
        }
    }

    fn reply(&mut self, reply: Reply) {
        let Some(awaited) = self.awaited.pop_front() else {
            return self.fail(match Refusal::from_reply(reply) {
                Ok(refusal) if refusal.reply().code() == 421 => ClientError::Refused(refusal),
                _ => ClientError::InvalidReply("a reply to nothing"),
            });
        };
        // 354 is an acceptance of DATA, and of nothing else.
        if reply.code() / 100 == 3 && (awaited != Awaited::Data || reply.code() != 354) {
            return self.fail(ClientError::InvalidReply(
                "an intermediate reply where none is due",
            ));
        }
        if awaited == Awaited::Data && reply.is_positive() {
            return self.fail(ClientError::InvalidReply("DATA is answered by 354"));
        }
        let result = Refusal::from_reply(reply).map_or_else(Ok, Err);
        // RFC 5321 3.8: 421 may come in answer to anything, and the connection is closed.
        if let Err(refusal) = &result
            && refusal.reply().code() == 421
        {
            return self.fail(ClientError::Refused(refusal.clone()));
        }
        match (awaited, result) {
            (Awaited::Greeting, Ok(_)) => self.hello(),
            (Awaited::Hello, Ok(reply)) => self.hello_reply(&reply),
            (Awaited::StartTls, Ok(_)) => {
                self.state = ClientState::Handshake;
                self.outputs.push_back(ClientOutput::StartTls);
            }
            (Awaited::Auth, Ok(_)) => self.ready(),
            (
                Awaited::Greeting | Awaited::Hello | Awaited::StartTls | Awaited::Auth,
                Err(refusal),
            ) => self.fail(ClientError::Refused(refusal)),
            (Awaited::Quit, _) => {
                self.state = ClientState::Closed;
                self.outputs.push_back(ClientOutput::Close(Ok(())));
            }
            (Awaited::Reset, _) => self.done(),
            (awaited, result) => self.message_reply(awaited, result),
        }
    }

    fn hello_reply(&mut self, reply: &Reply) {
        self.offers = Arc::new(Offers::parse(reply));
        let wanted = !self.tls && self.config.starttls != StartTls::Never;
        if wanted && self.offers.starttls {
            self.command("STARTTLS", Awaited::StartTls);
        } else if wanted && self.config.starttls == StartTls::Require {
            self.fail(ClientError::NoStartTls);
        } else {
            self.log_in();
        }
    }

    fn log_in(&mut self) {
        let Some(login) = &self.config.login else {
            return self.ready();
        };
        if !self.tls || !self.offers.auth.iter().any(|name| name == "PLAIN") {
            return self.fail(ClientError::NoAuth);
        }
        let line = Zeroizing::new(format!("AUTH PLAIN {}", STANDARD.encode(&*login.0)));
        self.command(&line, Awaited::Auth);
    }

    fn ready(&mut self) {
        self.state = ClientState::Ready;
        self.outputs
            .push_back(ClientOutput::Ready(Arc::clone(&self.offers)));
    }

    /// Sends the next RCPT; false: all are sent.
    fn next_recipient(&mut self) -> bool {
        let Some(transfer) = &mut self.transfer else {
            return false;
        };
        let Some(recipient) = transfer.message.recipients.get(transfer.sent) else {
            return false;
        };
        let (line, awaited) = (format!("RCPT TO:{recipient}"), Awaited::Rcpt(transfer.sent));
        transfer.sent += 1;
        self.command(&line, awaited);
        true
    }

    /// The same reply for all recipients that have none yet.
    fn decide_all(&mut self, result: &Result<Reply, Refusal>) {
        for decided in self
            .transfer
            .iter_mut()
            .flat_map(|transfer| &mut transfer.decided)
        {
            decided.get_or_insert_with(|| result.clone());
        }
    }

    fn message_reply(&mut self, awaited: Awaited, result: Result<Reply, Refusal>) {
        match awaited {
            Awaited::Mail if result.is_err() => self.decide_all(&result),
            // An accepted RCPT decides nothing yet.
            Awaited::Rcpt(i) if result.is_ok() => {
                if let Some(accepted) = self
                    .transfer
                    .as_mut()
                    .and_then(|transfer| transfer.accepted.get_mut(i))
                {
                    *accepted = true;
                }
            }
            Awaited::Rcpt(i) | Awaited::End(Some(i)) => {
                if let Some(decided) = self
                    .transfer
                    .as_mut()
                    .and_then(|transfer| transfer.decided.get_mut(i))
                {
                    decided.get_or_insert(result);
                }
            }
            Awaited::Data => {
                let accepted = result.is_ok();
                if !accepted {
                    self.decide_all(&result);
                }
                return self.after_data(accepted);
            }
            Awaited::Chunk if result.is_err() => self.decide_all(&result),
            Awaited::End(_) => self.decide_all(&result),
            _ => {}
        }
        match self.state {
            ClientState::Envelope if self.awaited.is_empty() => self.envelope_goes_on(),
            ClientState::Ending if self.awaited.is_empty() => self.done(),
            _ => {}
        }
    }

    fn any_accepted(&self) -> bool {
        self.transfer
            .as_ref()
            .is_some_and(|transfer| transfer.decided.iter().any(Option::is_none))
    }

    /// All that was sent of the envelope has been answered.
    fn envelope_goes_on(&mut self) {
        if !self.any_accepted() {
            self.state = ClientState::Ending;
            self.command("RSET", Awaited::Reset);
        } else if self.next_recipient() {
        } else if self.bdat() {
            self.want_body();
        } else {
            self.command("DATA", Awaited::Data);
        }
    }

    fn want_body(&mut self) {
        self.state = ClientState::Body;
        self.outputs.push_back(ClientOutput::WantBody);
    }

    /// The reply to DATA, the last of the envelope. RFC 2920 3.1: a client that gets 354 though all recipients were refused
    /// "should send a single dot".
    fn after_data(&mut self, accepted: bool) {
        if accepted && self.any_accepted() {
            self.want_body();
        } else if accepted {
            self.state = ClientState::Ending;
            self.out.extend_from_slice(b".\r\n");
            self.awaited.push_back(Awaited::Reset);
        } else {
            self.state = ClientState::Ending;
            self.command("RSET", Awaited::Reset);
        }
    }

    fn done(&mut self) {
        if let Some(transfer) = self.transfer.take() {
            let recipients = transfer
                .decided
                .into_iter()
                .map(|decided| decided.unwrap_or_else(|| Err(Refusal::try_later())));
            self.outputs.push_back(ClientOutput::Done(Outcome {
                recipients: recipients.collect(),
            }));
        }
        self.ready();
    }
}

impl Offers {
    /// From the reply to EHLO or LHLO: an extension a line, after the first.
    fn parse(reply: &Reply) -> Offers {
        let mut offers = Offers::default();
        for line in reply.lines().iter().skip(1) {
            let mut words = line.split(' ');
            match words
                .next()
                .unwrap_or_default()
                .to_ascii_uppercase()
                .as_str()
            {
                "PIPELINING" => offers.pipelining = true,
                "8BITMIME" => offers.eight_bit_mime = true,
                "SMTPUTF8" => offers.utf8 = true,
                "CHUNKING" => offers.chunking = true,
                "STARTTLS" => offers.starttls = true,
                "ENHANCEDSTATUSCODES" => offers.enhanced_status_codes = true,
                "SIZE" => {
                    offers.size = Some(words.next().and_then(|size| size.parse().ok()).unwrap_or(0))
                }
                "AUTH" => offers.auth = words.map(str::to_ascii_uppercase).collect(),
                _ => {}
            }
        }
        offers
    }
}

#[cfg(test)]
mod tests;
