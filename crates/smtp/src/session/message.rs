//! The message: DATA (RFC 5321 4.1.1.4) and BDAT (RFC 3030).
//!
//! Invariants:
//! - A message that has begun (`DataBegin` accepted) ends in exactly one `DataEnd` or `DataAbort`.
//! - A fault is told to the owner at once and to the client after the true end of the data, so that what follows is read as commands
//!   only from there.
//! - The octets of a BDAT are always read as octets, also when it is refused (RFC 3030 2: "the receiver-SMTP MUST accept and
//!   discard the associated message data"); its declared size allocates nothing.
//! - BDAT carries text as DATA does: BINARYMIME is not offered, and a bare CR or LF or a NUL is refused in both.

use std::sync::Arc;

use super::{
    AbortReason, CloseReason, DataAnswer, DataSummary, Envelope, Mode, Origin, Output, Question,
    Role, Session, Verdict,
};
use crate::reply::{Enhanced, Refusal, Reply};
use crate::text::{TextFault, TextScanner};
use crate::{HeaderWatch, Limits, Time};

/// A message being received.
#[derive(Debug)]
pub(super) struct Message {
    scanner: TextScanner,
    watch: HeaderWatch,
    bytes: u64,
    pub(super) unacknowledged: usize,
    /// The owner has accepted it.
    pub(super) begun: bool,
    /// The owner has been told to forget it.
    fault: Option<AbortReason>,
    /// Octets read of it, also those thrown away.
    read: u64,
}

/// A BDAT chunk being read.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    left: u64,
    last: bool,
    size: u64,
    /// Its octets are thrown away, and this is the reply.
    refusal: Option<Refusal>,
}

impl Message {
    fn new(scanner: TextScanner, limits: &Limits) -> Self {
        let watch = HeaderWatch::new(limits.header_watch_bytes_max);
        Message {
            scanner,
            watch,
            bytes: 0,
            unacknowledged: 0,
            begun: false,
            fault: None,
            read: 0,
        }
    }

    /// Counts a piece of text, cut at the size limit.
    fn take(&mut self, mut text: Vec<u8>, limits: &Limits) -> Vec<u8> {
        let room = limits.message_bytes_max - self.bytes;
        if text.len() as u64 > room {
            text.truncate(usize::try_from(room).unwrap_or(usize::MAX));
            self.fault = Some(AbortReason::TooLarge);
        } else if let Some(fault) = self.scanner.fault() {
            self.fault = Some(reason(fault));
        }
        self.bytes += text.len() as u64;
        self.watch.feed(&text);
        text
    }
}

fn reason(fault: TextFault) -> AbortReason {
    match fault {
        TextFault::BareLineEnd => AbortReason::BareLineEnd,
        TextFault::Nul => AbortReason::Nul,
        TextFault::LineTooLong => AbortReason::LineTooLong,
    }
}

/// What the client is told of a message that has failed in transfer.
fn refusal(reason: AbortReason) -> Refusal {
    let media = |text| Refusal::new(554, Enhanced(6, 0), text);
    match reason {
        AbortReason::TooLarge => Refusal::too_large(),
        AbortReason::BareLineEnd => media("Message has a bare CR or LF"),
        AbortReason::Nul => media("Message has a NUL"),
        AbortReason::LineTooLong => media("Message has an overlong line"),
        AbortReason::Loop => Refusal::mail_loop(),
        AbortReason::ConnectionLost
        | AbortReason::Reset
        | AbortReason::Timeout
        | AbortReason::Protocol => Refusal::try_later(),
    }
}

impl Session {
    pub(super) fn data(&mut self) {
        let may = match self.message {
            // RFC 3030 2: "DATA and BDAT commands cannot be used in the same transaction."
            Some(_) => Err(Refusal::new(503, Enhanced(5, 1), "DATA after BDAT")),
            None => self.may_begin_message(),
        };
        match may {
            Ok(()) => {
                let limits = &self.config.limits;
                self.message = Some(Message::new(
                    TextScanner::data(limits.text_line_bytes_max),
                    limits,
                ));
                self.mode = Mode::Data;
                self.ask_begin();
            }
            Err(refusal) => {
                self.fail_in_sequence(&refusal);
                self.excused = false;
            }
        }
    }

    pub(super) fn bdat(&mut self, bytes: u64, last: bool) {
        let config = Arc::clone(&self.config);
        let limits = &config.limits;
        if bytes > limits.bdat_chunk_bytes_max {
            self.note_refused_message(&Refusal::too_large());
            self.close_with(
                &Refusal::too_large(),
                CloseReason::TooMuchData,
                AbortReason::TooLarge,
            );
            return;
        }
        let mut chunk = Chunk {
            left: bytes,
            last,
            size: bytes,
            refusal: None,
        };
        let total = self
            .message
            .as_ref()
            .map_or(0, |message| message.bytes)
            .saturating_add(bytes);
        if let Err(refusal) = self.may_begin_message() {
            // Chunks pipelined behind one that failed are no fault of the client.
            self.counters.errors += u32::from(self.transaction.is_none() && !self.excused);
            chunk.refusal = Some(refusal);
        } else if total > limits.message_bytes_max {
            chunk.refusal = Some(Refusal::too_large());
            self.note_refused_message(&Refusal::too_large());
            self.fail_message(AbortReason::TooLarge);
        }
        let first = self.message.is_none();
        let begins = first && chunk.refusal.is_none();
        self.clock.message_begins(first);
        if begins {
            self.message = Some(Message::new(
                TextScanner::chunks(limits.text_line_bytes_max),
                limits,
            ));
        }
        self.mode = Mode::Chunk(chunk);
        if begins {
            self.ask_begin();
        }
    }

    fn ask_begin(&mut self) {
        let (Some(transaction), Some((helo, basic))) = (&self.transaction, &self.hello) else {
            unreachable!("a message begins only within a transaction")
        };
        let envelope = Envelope {
            role: self.role,
            origin: Origin {
                helo: helo.clone(),
                basic: *basic,
                ip: self.peer.ip,
                tls: self.peer.tls.clone(),
                authenticated: self.authenticated,
            },
            mail: transaction.mail.clone(),
            recipients: transaction.recipients.clone(),
        };
        self.ask(Question::DataBegin, Output::DataBegin(Arc::new(envelope)));
    }

    /// Answer to [`Output::DataBegin`].
    pub fn answer_data_begin(&mut self, now: Time, answer: Result<(), Refusal>) {
        self.advance(now);
        if self
            .take_question(|q| matches!(q, Question::DataBegin))
            .is_none()
        {
            return;
        }
        if let Err(refusal) = &answer {
            self.note_refused_message(refusal);
        }
        let Some(message) = &mut self.message else {
            unreachable!("DataBegin is asked of a message")
        };
        match (answer, &mut self.mode) {
            (Ok(()), mode) => {
                message.begun = true;
                let data = matches!(mode, Mode::Data);
                self.clock.message_begins(true);
                if data {
                    self.reply(&Reply::new(354, None, "End data with <CRLF>.<CRLF>"));
                }
            }
            (Err(refusal), Mode::Chunk(chunk)) => {
                chunk.refusal = Some(refusal);
                self.message = None;
                if let Some(transaction) = &mut self.transaction {
                    transaction.failed = true;
                }
            }
            (Err(refusal), _) => {
                self.reply(refusal.reply());
                self.message = None;
                self.transaction = None;
                self.mode = Mode::Command;
                self.go_on();
            }
        }
    }

    /// The owner is told to forget the message; the transaction stays as a failed one, for the replies it still has to give.
    fn fail_message(&mut self, reason: AbortReason) {
        if self.message.take().is_some_and(|message| message.begun) {
            self.outputs.push_back(Output::DataAbort(reason));
        }
        if let Some(transaction) = &mut self.transaction {
            transaction.failed = true;
        }
    }

    pub(super) fn step_data(&mut self) -> bool {
        let Session {
            message: Some(message),
            buffer,
            config,
            ..
        } = self
        else {
            unreachable!("in DATA there is a message")
        };
        let limits = &config.limits;
        if buffer.is_empty() || message.unacknowledged >= limits.data_unacknowledged_bytes_max {
            return false;
        }
        let unread = buffer.unread();
        let before = message.fault;
        let mut text = Vec::new();
        if before.is_none() {
            text.reserve_exact(unread.len());
        }
        let scanned = message.scanner.feed(unread, &mut text);
        if before.is_none() {
            text = message.take(text, limits);
            message.unacknowledged += text.len();
        }
        message.read += scanned.consumed as u64;
        let (fault, discarded) = (message.fault, message.read - message.bytes);
        buffer.consume(scanned.consumed);
        if before.is_none() && !text.is_empty() {
            self.outputs.push_back(Output::DataChunk(text));
        }
        if let (None, Some(reason)) = (before, fault) {
            self.outputs.push_back(Output::DataAbort(reason));
            if let Some(message) = &mut self.message {
                message.begun = false;
                message.unacknowledged = 0;
            }
        }
        // Before the end is looked at: whether it came in the same piece must not matter.
        if fault.is_some() && discarded > self.config.limits.discard_bytes_max {
            self.too_much_data();
        } else if scanned.end {
            self.mode = Mode::Command;
            match fault {
                Some(reason) => self.finish_message(&DataAnswer::All(Err(refusal(reason)))),
                None => self.message_complete(),
            }
        }
        true
    }

    /// Octets of chunks that nobody gets.
    fn discard(&mut self, octets: u64) {
        self.discarded += octets;
        if self.discarded > self.config.limits.discard_bytes_max {
            self.too_much_data();
        }
    }

    fn too_much_data(&mut self) {
        let refusal = Refusal::new(421, Enhanced(3, 4), "Far too much data");
        self.close_with(&refusal, CloseReason::TooMuchData, AbortReason::TooLarge);
    }

    pub(super) fn step_chunk(&mut self) -> bool {
        let Session {
            message,
            buffer,
            config,
            mode: Mode::Chunk(chunk),
            ..
        } = self
        else {
            unreachable!("in a chunk")
        };
        let limits = &config.limits;
        if chunk.left == 0 {
            let chunk = chunk.clone();
            self.chunk_end(chunk);
            return true;
        }
        if buffer.is_empty()
            || message
                .as_ref()
                .is_some_and(|m| m.unacknowledged >= limits.data_unacknowledged_bytes_max)
        {
            return false;
        }
        let count = buffer
            .len()
            .min(usize::try_from(chunk.left).unwrap_or(usize::MAX));
        chunk.left -= count as u64;
        let Some(message) = message else {
            buffer.consume(count);
            self.discard(count as u64);
            return true;
        };
        let mut text = Vec::with_capacity(count);
        message.scanner.feed(&buffer.unread()[..count], &mut text);
        let text = message.take(text, limits);
        message.unacknowledged += text.len();
        message.read += count as u64;
        let (fault, unused) = (message.fault, message.read - message.bytes);
        buffer.consume(count);
        if let Some(reason) = fault {
            chunk.refusal = Some(refusal(reason));
        }
        if !text.is_empty() {
            self.outputs.push_back(Output::DataChunk(text));
        }
        if let Some(reason) = fault {
            self.fail_message(reason);
            // What came in one piece with the fault is thrown away like what comes after it.
            self.discard(unused);
        }
        true
    }

    fn chunk_end(&mut self, chunk: Chunk) {
        self.mode = Mode::Command;
        if chunk.last
            && let Some(message) = &mut self.message
        {
            message.scanner.finish();
            if let Some(fault) = message.scanner.fault() {
                self.fail_message(reason(fault));
                self.finish_message(&DataAnswer::All(Err(refusal(reason(fault)))));
            } else {
                self.message_complete();
            }
            return;
        }
        match chunk.refusal {
            None => self.say(
                250,
                Enhanced(0, 0),
                &format!("{} octets received", chunk.size),
            ),
            // In LMTP the last BDAT has a reply for each recipient, also when the message failed before.
            Some(refusal) if chunk.last && self.transaction.is_some() => {
                self.finish_message(&DataAnswer::All(Err(refusal)));
            }
            Some(refusal) => self.reply(refusal.reply()),
        }
        if self.counters.errors >= self.config.limits.errors_max {
            let refusal = Refusal::new(421, Enhanced(7, 0), "Too many errors");
            self.close_with(&refusal, CloseReason::TooManyErrors, AbortReason::Protocol);
        }
        self.go_on();
    }

    /// All of the message is here and sound.
    fn message_complete(&mut self) {
        let Some(message) = &mut self.message else {
            unreachable!("a message is complete")
        };
        message.watch.finish();
        let received = message.watch.received();
        if received > self.config.limits.received_hops_max {
            self.fail_message(AbortReason::Loop);
            self.finish_message(&DataAnswer::All(Err(Refusal::mail_loop())));
            return;
        }
        let summary = DataSummary {
            bytes: message.bytes,
            received,
            delivered_to: message.watch.delivered_to().to_vec(),
        };
        self.ask(Question::DataEnd, Output::DataEnd(summary));
    }

    /// `bytes` of the chunks given so far have been dealt with.
    pub fn acknowledge(&mut self, now: Time, bytes: usize) {
        self.advance(now);
        if let Some(message) = &mut self.message {
            message.unacknowledged = message.unacknowledged.saturating_sub(bytes);
        }
    }

    /// Answer to [`Output::DataEnd`].
    ///
    /// # Panics
    /// If `Each` has not as many verdicts as there are recipients.
    pub fn answer_data_end(&mut self, now: Time, answer: DataAnswer) {
        self.advance(now);
        if self
            .take_question(|q| matches!(q, Question::DataEnd))
            .is_none()
        {
            return;
        }
        self.finish_message(&answer);
        if self.lost {
            self.out.clear();
            self.close(CloseReason::ConnectionLost);
        }
    }

    /// Replies to the end of the message and ends the transaction.
    fn finish_message(&mut self, answer: &DataAnswer) {
        self.message = None;
        match answer {
            DataAnswer::All(Err(refusal)) => self.note_refused_message(refusal),
            DataAnswer::All(Ok(_)) => {}
            DataAnswer::Each(verdicts) => {
                let transaction = self.transaction.as_ref();
                let recipients = transaction.map_or(&[][..], |of| &of.recipients);
                let each = recipients.iter().zip(verdicts);
                let refused = each.filter_map(|(to, verdict)| Some((to, verdict.as_ref().err()?)));
                let refused: Vec<_> = refused.map(|(to, why)| (to.to_string(), why)).collect();
                for (to, refusal) in refused {
                    self.note_refused("message", to, refusal);
                }
            }
        }
        let recipients = self
            .transaction
            .take()
            .map_or(0, |transaction| transaction.recipients.len());
        let verdicts: &[Verdict] = match answer {
            DataAnswer::All(verdict) => core::slice::from_ref(verdict),
            DataAnswer::Each(verdicts) => {
                assert_eq!(verdicts.len(), recipients, "a verdict for each recipient");
                verdicts
            }
        };
        if verdicts.iter().any(Result::is_ok) {
            self.counters.messages += 1;
            self.counters.idle_commands = 0;
        }
        if self.role == Role::Lmtp {
            // RFC 2033 4.2: a reply for each accepted RCPT, in the order of the RCPTs.
            for verdict in verdicts.iter().cycle().take(recipients) {
                self.verdict(verdict);
            }
        } else {
            let temporary = |verdict: &&Verdict| verdict.as_ref().is_err_and(Refusal::is_temporary);
            let decides = verdicts
                .iter()
                .find(|v| v.is_ok())
                .or_else(|| verdicts.iter().find(temporary))
                .or(verdicts.first());
            if let Some(verdict) = decides {
                self.verdict(verdict);
            }
        }
        self.go_on();
    }

    fn verdict(&mut self, verdict: &Verdict) {
        match verdict {
            Ok(accepted) if accepted.note.is_empty() => {
                self.say(250, Enhanced(0, 0), "Message accepted")
            }
            Ok(accepted) => self.say(250, Enhanced(0, 0), &accepted.note),
            Err(refusal) => self.reply(refusal.reply()),
        }
    }
}
