//! Messages: what may be sent, MAIL and RCPT, DATA or BDAT, and what became of each recipient.

use std::collections::BTreeSet;

use super::{
    Awaited, Client, ClientError, ClientOutput, ClientState, Decision, EightBit, Fate, Outcome,
    Outgoing, Stage,
};
use crate::Time;
use crate::address::ReversePath;
use crate::dsn::ORCPT_BYTES_MAX;
use crate::reply::{Enhanced, Refusal, Reply};
use crate::session::{Body, MailFrom, RcptTo};
use crate::text::stuff_dots;

/// Lines kept of a reply to a message: one for each recipient is held, and nobody reads more.
const REPLY_LINES_MAX: usize = 8;

/// The message on its way.
#[derive(Debug)]
pub(super) struct Transfer {
    message: Outgoing,
    /// Indices of the recipients that this transaction has.
    chosen: Vec<usize>,
    /// How many RCPTs of them were sent.
    sent: usize,
    /// Whose RCPT was accepted: in LMTP each of them has a reply at the end, whatever became of the message.
    accepted: Vec<bool>,
    /// What decided, for each recipient.
    decided: Vec<Option<Decision>>,
    /// A command of it was answered.
    answered: bool,
    /// The end of the message was put into the output, and given out.
    end: (bool, bool),
    /// The next octet of the body begins a line.
    line_start: bool,
    /// The body so far ends in CRLF, or is empty.
    ends_in_crlf: bool,
    /// Its last octet.
    last: u8,
}

impl Transfer {
    pub(super) fn is_answered(&self) -> bool {
        self.answered
    }

    /// What is in the output goes out.
    pub(super) fn given_out(&mut self) {
        self.end.1 |= self.end.0;
    }

    pub(super) fn end_was_sent(&self) -> bool {
        self.end.1
    }

    fn is_undecided(&self) -> bool {
        self.decided.iter().any(Option::is_none)
    }

    fn decide(&mut self, recipient: usize, decision: Decision) {
        if let Some(decided) = self.decided.get_mut(recipient) {
            decided.get_or_insert(decision);
        }
    }

    /// The same for all recipients that have none yet.
    fn decide_all(&mut self, result: &Result<Reply, Refusal>) {
        for decided in &mut self.decided {
            decided.get_or_insert_with(|| decision(result));
        }
    }

    /// The reply to the end of the message, for one recipient or for all.
    pub(super) fn end_reply(&mut self, recipient: Option<usize>, result: &Result<Reply, Refusal>) {
        match recipient {
            Some(recipient) => self.decide(recipient, decision(result)),
            None => self.decide_all(result),
        }
    }

    /// What is known of each recipient.
    pub(super) fn fates(self) -> Vec<Fate> {
        let any = self.accepted.contains(&true);
        let end = self.end.1;
        let each = self.decided.into_iter().zip(self.accepted);
        each.map(|(decided, accepted)| match decided {
            // The next transaction would meet the same: this is the recipient's own refusal.
            Some(Decision::Deferred(Some(refusal))) if !any => {
                Fate::Decided(Decision::Refused(temporary(refusal)))
            }
            Some(decision) => Fate::Decided(decision),
            None if accepted && end => Fate::Uncertain,
            None if accepted => Fate::Recipient,
            None => Fate::Unanswered,
        })
        .collect()
    }
}

fn decision(result: &Result<Reply, Refusal>) -> Decision {
    match result {
        Ok(reply) => Decision::Accepted(reply.clone().with_lines_max(REPLY_LINES_MAX)),
        Err(refusal) => Decision::Refused(refusal.clone().with_lines_max(REPLY_LINES_MAX)),
    }
}

/// RFC 5321 4.5.3.1.10: for too many recipients a server "MUST use a response code of 452 (but the client SHOULD also be prepared for a
/// 552)". Both codes have other meanings, too, which the enhanced code tells.
fn is_too_many(refusal: &Refusal) -> bool {
    let enhanced = refusal.reply().enhanced();
    matches!(refusal.reply().code(), 452 | 552) && matches!(enhanced, None | Some(Enhanced(5, 3)))
}

/// RFC 5321 4.5.3.1.10: "Clients SHOULD treat a 552 code in this case as a temporary, rather than permanent, failure".
fn temporary(refusal: Refusal) -> Refusal {
    let reply = refusal.reply();
    if refusal.is_temporary() {
        return refusal;
    }
    let lines = reply.lines().iter().map(String::as_str);
    Refusal::from_reply(Reply::multi(452, reply.enhanced(), lines)).unwrap_or(refusal)
}

impl Client {
    /// Begins a message. Only after [`ClientOutput::Ready`]. If the session has ended meanwhile, nothing happens, and the close says why.
    ///
    /// # Panics
    /// If it is not ready, or there is no recipient.
    pub fn send(&mut self, now: Time, message: Outgoing) {
        if self.state == ClientState::Closed {
            return;
        }
        assert_eq!(self.state, ClientState::Ready, "not ready for a message");
        assert!(
            !message.recipients.is_empty(),
            "a message without recipients"
        );
        self.since = self.since.max(now);
        let decided = match self.refusal_before_mail(&message) {
            Some(refusal) => vec![Some(Decision::Unsendable(refusal)); message.recipients.len()],
            None => self.choose(&message.recipients),
        };
        let chosen: Vec<_> = (0..decided.len())
            .filter(|&i| decided[i].is_none())
            .collect();
        if chosen.is_empty() {
            let recipients = decided.into_iter().flatten().collect();
            self.outputs
                .push_back(ClientOutput::Done(Outcome { recipients }));
            return self.ready();
        }
        let mail = self.mail(&message, &chosen);
        self.transactions += 1;
        self.transfer = Some(Transfer {
            accepted: vec![false; decided.len()],
            message,
            chosen,
            sent: 0,
            decided,
            answered: false,
            end: (false, false),
            line_start: true,
            ends_in_crlf: true,
            last: b'\n',
        });
        self.state = ClientState::Envelope;
        self.command(&format!("MAIL {mail}"), Awaited::Mail);
        if self.pipelining() {
            while self.next_recipient() {}
            if !self.bdat() {
                self.command("DATA", Awaited::Data);
            }
        }
    }

    /// Why this server cannot have the message, by what it offers.
    fn refusal_before_mail(&self, message: &Outgoing) -> Option<Refusal> {
        let offers = &self.offers;
        let from = message.from.mailbox();
        // A notification goes on unprotected rather than not at all: see `Outgoing::require_tls`.
        let require_tls = message.require_tls && message.from != ReversePath::Null;
        let limit = offers.size.filter(|size| *size > 0);
        if (message.utf8 || from.is_some_and(|from| !from.is_ascii())) && !offers.utf8 {
            Some(no_utf8())
        } else if require_tls && !self.tls {
            Some(Refusal::new(550, Enhanced(7, 10), "Encryption needed"))
        } else if require_tls && !offers.require_tls {
            let text = "REQUIRETLS support required";
            Some(Refusal::new(550, Enhanced(7, 30), text))
        } else if message
            .size
            .zip(limit)
            .is_some_and(|(size, limit)| size > limit)
        {
            let text = "Message is larger than the server takes";
            Some(Refusal::new(552, Enhanced(3, 4), text))
        } else if message.body == Body::EightBitMime
            && !offers.eight_bit_mime
            && self.config.eight_bit == EightBit::Refuse
        {
            let text = "Server does not offer 8BITMIME, and messages are not converted";
            Some(Refusal::new(554, Enhanced(6, 3), text))
        } else {
            None
        }
    }

    /// Which recipients one transaction can have: those that are not decided here.
    fn choose(&self, recipients: &[RcptTo]) -> Vec<Option<Decision>> {
        let limits = self.offers.limits;
        let most = |limit: Option<u32>| limit.map_or(usize::MAX, |most| most as usize);
        let (rcpt_max, domain_max) = (most(limits.rcpt_max), most(limits.rcpt_domain_max));
        let (mut count, mut domains) = (0, BTreeSet::new());
        let decide = |rcpt: &RcptTo| {
            let mailbox = rcpt.path.mailbox();
            if mailbox.is_some_and(|mailbox| !mailbox.is_ascii()) && !self.offers.utf8 {
                return Some(Decision::Unsendable(no_utf8()));
            }
            let domain = mailbox.map(|mailbox| mailbox.domain().clone());
            if count >= rcpt_max || (domains.len() >= domain_max && !domains.contains(&domain)) {
                return Some(Decision::Deferred(None));
            }
            domains.insert(domain);
            count += 1;
            None
        };
        recipients.iter().map(decide).collect()
    }

    /// MAIL with the parameters that the server offers.
    fn mail(&self, message: &Outgoing, chosen: &[usize]) -> MailFrom {
        let offers = &self.offers;
        let non_ascii = |i: &usize| {
            let mailbox = message.recipients[*i].path.mailbox();
            mailbox.is_some_and(|mailbox| !mailbox.is_ascii())
        };
        let from = message.from.mailbox();
        MailFrom {
            size: message.size.filter(|_| offers.size.is_some()),
            utf8: message.utf8
                || from.is_some_and(|from| !from.is_ascii())
                || chosen.iter().any(non_ascii),
            body: match offers.eight_bit_mime {
                true => message.body,
                false => Body::SevenBit,
            },
            ret: message.ret.filter(|_| offers.dsn),
            envid: message.envid.clone().filter(|_| offers.dsn),
            require_tls: message.require_tls && offers.require_tls && self.tls,
            hold: None,
            from: message.from.clone(),
        }
    }

    /// Part of the body, after [`ClientOutput::WantBody`]; dots are stuffed here.
    ///
    /// # Panics
    /// If no body is wanted.
    pub fn body(&mut self, now: Time, bytes: &[u8]) {
        if self.state == ClientState::Closed || bytes.is_empty() {
            return;
        }
        assert_eq!(self.state, ClientState::Body, "no body is wanted");
        self.since = self.since.max(now);
        if !self.is_undecided() {
            return;
        }
        if self.bdat() {
            self.out
                .extend_from_slice(format!("BDAT {}\r\n", bytes.len()).as_bytes());
            self.out.extend_from_slice(bytes);
            return self.await_reply(Awaited::Chunk);
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
    pub fn body_end(&mut self, now: Time) {
        if self.state == ClientState::Closed {
            return;
        }
        assert_eq!(self.state, ClientState::Body, "no body is wanted");
        self.since = self.since.max(now);
        self.state = ClientState::Ending;
        if !self.is_undecided() {
            // A chunk was refused: the rest was not sent.
            return self.done_and_reset();
        }
        let bdat = self.bdat();
        let Some(transfer) = &mut self.transfer else {
            unreachable!("a recipient is undecided");
        };
        self.out.extend_from_slice(match transfer.ends_in_crlf {
            _ if bdat => b"BDAT 0 LAST\r\n",
            true => b".\r\n",
            false => b"\r\n.\r\n",
        });
        transfer.end.0 = true;
        if !self.config.lmtp {
            return self.await_reply(Awaited::End(None));
        }
        let accepted: Vec<_> = (0..transfer.accepted.len())
            .filter(|&i| transfer.accepted[i])
            .collect();
        for recipient in accepted {
            self.await_reply(Awaited::End(Some(recipient)));
        }
    }

    fn pipelining(&self) -> bool {
        self.config.pipelining && self.offers.pipelining
    }

    /// Chunks are not waited for one by one, which RFC 3030 2 allows only with PIPELINING.
    fn bdat(&self) -> bool {
        self.config.chunking && self.offers.chunking && self.pipelining()
    }

    fn is_undecided(&self) -> bool {
        self.transfer.as_ref().is_some_and(Transfer::is_undecided)
    }

    /// Sends the next RCPT; false: all are sent.
    fn next_recipient(&mut self) -> bool {
        let Some(transfer) = &mut self.transfer else {
            return false;
        };
        let Some(&index) = transfer.chosen.get(transfer.sent) else {
            return false;
        };
        transfer.sent += 1;
        let rcpt = &transfer.message.recipients[index];
        let mut line = format!("RCPT TO:{}", rcpt.path);
        if self.offers.dsn {
            if let Some(notify) = rcpt.notify {
                line.push_str(&format!(" NOTIFY={notify}"));
            }
            let orcpt = rcpt.orcpt.as_ref().map(|of| of.encode(self.offers.utf8));
            if let Some(orcpt) = orcpt.filter(|orcpt| orcpt.len() <= ORCPT_BYTES_MAX) {
                line.push_str(&format!(" ORCPT={orcpt}"));
            }
        }
        self.command(&line, Awaited::Rcpt(index));
        true
    }

    pub(super) fn message_reply(&mut self, awaited: Awaited, result: Result<Reply, Refusal>) {
        if let Some(transfer) = &mut self.transfer {
            transfer.answered = true;
            match awaited {
                Awaited::Mail | Awaited::Data | Awaited::Chunk if result.is_err() => {
                    transfer.decide_all(&result);
                }
                Awaited::Rcpt(i) => match &result {
                    // An accepted RCPT decides nothing yet.
                    Ok(_) => transfer.accepted[i] = true,
                    Err(refusal) if is_too_many(refusal) => {
                        let refusal = refusal.clone().with_lines_max(REPLY_LINES_MAX);
                        transfer.decide(i, Decision::Deferred(Some(refusal)));
                    }
                    Err(_) => transfer.decide(i, decision(&result)),
                },
                Awaited::End(recipient) => transfer.end_reply(recipient, &result),
                _ => {}
            }
        }
        match self.state {
            ClientState::Envelope if awaited == Awaited::Data => self.after_data(result.is_ok()),
            ClientState::Envelope if self.awaited.is_empty() => self.envelope_goes_on(),
            ClientState::Ending if self.awaited.is_empty() => {
                self.done();
                self.ready();
            }
            _ => {}
        }
    }

    /// All that was sent of the envelope has been answered.
    fn envelope_goes_on(&mut self) {
        if !self.is_undecided() {
            self.done_and_reset();
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
        match (accepted, self.is_undecided()) {
            (true, true) => self.want_body(),
            (true, false) if self.config.lmtp => {
                // RFC 2033 4.2: DATA without recipients MUST fail with 503, and nothing would answer the dot.
                self.done();
                let error = ClientError::InvalidReply("354 without recipients");
                self.fail(Stage::Data, error);
            }
            (true, false) => {
                self.done();
                self.state = ClientState::Ending;
                self.out.extend_from_slice(b".\r\n");
                self.await_reply(Awaited::EmptyEnd);
            }
            (false, _) => self.done_and_reset(),
        }
    }

    /// Tells what became of the message.
    fn done(&mut self) {
        if let Some(transfer) = self.transfer.take() {
            let recipients = transfer.fates().into_iter().map(|fate| match fate {
                Fate::Decided(decision) => decision,
                _ => unreachable!("the message is not done"),
            });
            self.outputs.push_back(ClientOutput::Done(Outcome {
                recipients: recipients.collect(),
            }));
        }
    }

    /// The same, and the server forgets what it has of the transaction.
    fn done_and_reset(&mut self) {
        self.done();
        self.state = ClientState::Ending;
        self.command("RSET", Awaited::Reset);
    }
}

fn no_utf8() -> Refusal {
    Refusal::new(550, Enhanced(6, 7), "Server does not offer SMTPUTF8")
}
