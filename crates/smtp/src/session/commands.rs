//! Commands outside of a message: greeting, MAIL, RCPT, STARTTLS and the small ones.

use super::{
    AbortReason, Body, CloseReason, Hold, MailFrom, Output, Question, RcptTo, Refusal, Role,
    Session, Transaction,
};
use crate::address::{ForwardPath, HostName};
use crate::command::{Command, CommandError, Extensions};
use crate::reply::{Enhanced, Reply};
use crate::trace::WallTime;

/// `X.5.1`: a command that is unknown, not supported or out of sequence (RFC 3463 3.6).
const SEQUENCE: Enhanced = Enhanced(5, 1);

/// Whether it brings no message nearer.
fn is_idle(command: &Command) -> bool {
    matches!(
        command,
        Command::Noop
            | Command::Rset
            | Command::Vrfy
            | Command::Help
            | Command::Helo(_)
            | Command::Ehlo(_)
            | Command::Lhlo(_)
    )
}

fn out_of_sequence(text: &str) -> Refusal {
    Refusal::new(503, SEQUENCE, text)
}

impl Session {
    /// A complete line of `length` bytes is at the head of the buffer.
    pub(super) fn command_line(&mut self, length: usize) {
        self.count_command();
        if self.counters.commands > self.config.limits.commands_max {
            let refusal = Refusal::new(421, Enhanced(7, 0), "Too many commands");
            self.close_with(
                &refusal,
                CloseReason::TooManyCommands,
                AbortReason::Protocol,
            );
            return;
        }
        let line = &self.buffer.unread()[..length];
        // RFC 5321 4.5.3.1.4 counts the line as a whole; only AUTH may be longer (RFC 4954 4).
        let auth = line
            .get(..5)
            .is_some_and(|verb| verb.eq_ignore_ascii_case(b"AUTH "));
        let parsed = if length + 2 > self.config.limits.command_line_bytes_max && !auth {
            Err(Refusal::new(500, Enhanced(5, 2), "Line too long"))
        } else {
            Command::parse(line, self.extensions()).map_err(CommandError::refusal)
        };
        let bdat = super::is_bdat(line);
        // Until the answer says otherwise.
        self.excused |= line
            .get(..4)
            .is_some_and(|verb| verb.eq_ignore_ascii_case(b"MAIL"));
        if auth {
            self.buffer.wipe(length + 2);
        } else {
            self.buffer.consume(length + 2);
        }
        match parsed {
            Ok(command) => self.command(command),
            Err(refusal) if bdat => {
                self.counters.errors += 1;
                self.close_with(&refusal, CloseReason::TooMuchData, AbortReason::Protocol);
            }
            Err(refusal) => self.fail(&refusal),
        }
    }

    fn command(&mut self, command: Command) {
        if is_idle(&command) {
            self.counters.idle_commands += 1;
            if self.counters.idle_commands > self.config.limits.idle_commands_max {
                self.close_with(
                    &Refusal::new(421, Enhanced(7, 0), "Too many commands without a message"),
                    CloseReason::TooManyCommands,
                    AbortReason::Protocol,
                );
                return;
            }
        }
        match command {
            Command::Helo(name) if self.role != Role::Lmtp => {
                self.reset(AbortReason::Reset);
                self.reply(&Reply::new(250, None, self.config.host.as_str()));
                self.hello = Some((name, true));
            }
            Command::Ehlo(name) if self.role != Role::Lmtp => self.extended_hello(name),
            // RFC 2033 4.1: LHLO takes the place of HELO and EHLO, which LMTP does not have.
            Command::Lhlo(name) if self.role == Role::Lmtp => self.extended_hello(name),
            Command::Helo(_) | Command::Ehlo(_) | Command::Lhlo(_) => {
                self.fail(&CommandError::Unknown.refusal())
            }
            Command::Mail(mail) => self.mail(mail),
            Command::Rcpt(to) => self.rcpt(to),
            Command::Data => self.data(),
            Command::Bdat { bytes, last } => self.bdat(bytes, last),
            Command::Rset => {
                self.reset(AbortReason::Reset);
                self.say(250, Enhanced(0, 0), "OK");
            }
            Command::Noop => self.say(250, Enhanced(0, 0), "OK"),
            Command::Quit => {
                self.reset(AbortReason::Reset);
                self.say(221, Enhanced(0, 0), "Bye");
                self.close(CloseReason::Quit);
            }
            // RFC 5321 3.5.3, 7.3: 252 where existence is not told.
            Command::Vrfy => self.say(
                252,
                Enhanced(5, 0),
                "Cannot VRFY user; try RCPT to attempt delivery",
            ),
            Command::Expn => self.fail(&Refusal::new(502, SEQUENCE, "EXPN not available")),
            Command::Help => self.say(214, Enhanced(0, 0), "See RFC 5321"),
            Command::StartTls => self.starttls(),
            Command::Auth { mechanism, initial } => self.auth(mechanism, initial),
        }
    }

    /// EHLO or LHLO. RFC 5321 4.1.4: "the server MUST clear all buffers and reset the state exactly as if a RSET command had been issued".
    fn extended_hello(&mut self, name: HostName) {
        self.reset(AbortReason::Reset);
        self.hello = Some((name, false));
        let size = format!("SIZE {}", self.config.limits.message_bytes_max);
        let mut lines = vec![
            self.config.host.as_str(),
            "PIPELINING",
            &size,
            "8BITMIME",
            "SMTPUTF8",
            "CHUNKING",
            "ENHANCEDSTATUSCODES",
        ];
        let extensions = self.extensions();
        if extensions.dsn {
            lines.push("DSN");
        }
        if extensions.require_tls {
            lines.push("REQUIRETLS");
        }
        // RFC 4865: the longest hold, and the latest time up to which it reaches.
        let future_release = self.future_release().map(|(seconds, now)| {
            let latest = WallTime::new(now.saturating_add(seconds.into()), 0);
            format!("FUTURERELEASE {seconds} {}", latest.rfc3339())
        });
        lines.extend(future_release.as_deref());
        if self.config.starttls && self.peer.tls.is_none() {
            lines.push("STARTTLS");
        }
        let auth = format!("AUTH {}", self.mechanisms);
        if self.auth_offered() {
            lines.push(&auth);
        }
        let reply = Reply::multi(250, None, lines);
        self.reply(&reply);
    }

    /// What the wall clock says, which FUTURERELEASE goes by (RFC 4865). Without it that extension is not offered.
    pub fn set_wall_time(&mut self, now: crate::Time, wall: WallTime) {
        let passed = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        self.wall = Some(wall.unix_seconds().saturating_sub(passed));
    }

    /// The longest hold and the wall clock, both in seconds, where FUTURERELEASE is offered.
    fn future_release(&self) -> Option<(u32, i64)> {
        let seconds = self.config.offer_future_release?;
        let passed = i64::try_from(self.clock.now.as_secs()).unwrap_or(i64::MAX);
        (self.role == Role::Submission)
            .then_some((seconds.min(999_999_999), self.wall?.saturating_add(passed)))
    }

    /// What was offered: nothing after HELO (RFC 5321 4.1.1.11: parameters belong to EHLO).
    fn extensions(&self) -> Extensions {
        match self.hello {
            Some((_, false)) => Extensions {
                dsn: self.config.offer_dsn,
                require_tls: self.config.offer_requiretls && self.peer.tls.is_some(),
                future_release: self.future_release().is_some(),
            },
            _ => Extensions::default(),
        }
    }

    /// Whether a message may be held so long. `Err`: 501, which RFC 4865 has for a hold beyond what was offered.
    fn may_hold(&self, hold: Hold) -> Result<(), Refusal> {
        let Some((longest, now)) = self.future_release() else {
            return Ok(());
        };
        let seconds = match hold {
            Hold::For(seconds) => i64::from(seconds),
            Hold::Until(time) => time.unix_seconds() - now,
        };
        let text = match seconds {
            ..=0 => "HOLDUNTIL is in the past".to_owned(),
            _ if seconds > i64::from(longest) => {
                format!("Messages are held for {longest} seconds at most")
            }
            _ => return Ok(()),
        };
        Err(Refusal::new(501, Enhanced(5, 4), &text))
    }

    /// Ends a transaction without a reply.
    pub(super) fn reset(&mut self, reason: AbortReason) {
        self.excused = false;
        self.abort(reason);
    }

    fn starttls(&mut self) {
        if self.peer.tls.is_some() {
            self.fail(&out_of_sequence("TLS is active"));
        } else if !self.config.starttls {
            self.fail(&Refusal::new(502, SEQUENCE, "STARTTLS not available"));
        } else if !self.buffer.is_empty() {
            // Whoever sits between client and server may have put these here to be taken for the client's own, after the handshake.
            let thrown_away = self.buffer.clear();
            self.counters.bytes_behind_starttls += thrown_away as u64;
            self.counters.errors += 1;
            let refusal = Refusal::new(554, SEQUENCE, "Nothing may be sent behind STARTTLS");
            self.close_with(
                &refusal,
                CloseReason::BytesBehindStartTls,
                AbortReason::Protocol,
            );
        } else {
            self.reset(AbortReason::Reset);
            self.say(220, Enhanced(0, 0), "Ready to start TLS");
            self.ask(Question::StartTls, Output::StartTls);
        }
    }

    fn mail(&mut self, mail: MailFrom) {
        let from = mail.from.to_string();
        let limits = &self.config.limits;
        let refusal = match &self.hello {
            None => out_of_sequence("Say hello first"),
            Some(_) if self.transaction.is_some() => out_of_sequence("Nested MAIL"),
            Some(_) if self.config.require_tls && self.peer.tls.is_none() => {
                Refusal::new(530, Enhanced(7, 0), "Must issue a STARTTLS command first")
            }
            Some(_) if self.role == Role::Submission && !self.authenticated => {
                Refusal::new(530, Enhanced(7, 0), "Authentication required")
            }
            // RFC 5321 4.1.1.11: parameters belong to EHLO.
            Some((_, true)) if mail.size.is_some() || mail.utf8 || mail.body != Body::SevenBit => {
                CommandError::Parameter.refusal()
            }
            Some(_)
                if mail
                    .size
                    .is_some_and(|size| size > limits.message_bytes_max) =>
            {
                Refusal::too_large()
            }
            Some(_) if self.counters.transactions >= limits.transactions_max => {
                let refusal = Refusal::new(421, Enhanced(7, 0), "Too many transactions");
                self.close_with(
                    &refusal,
                    CloseReason::TooManyTransactions,
                    AbortReason::Protocol,
                );
                return;
            }
            Some(_) => match mail.hold.map_or(Ok(()), |hold| self.may_hold(hold)) {
                Err(refusal) => refusal,
                Ok(()) => {
                    self.ask(Question::Mail(mail.clone()), Output::Mail(mail));
                    return;
                }
            },
        };
        if self.transaction.is_none() && self.hello.is_some() {
            self.note_refused_sender(from, &refusal);
        }
        self.fail(&refusal);
    }

    /// Answer to [`Output::Mail`].
    pub fn answer_mail(&mut self, now: crate::Time, answer: Result<(), Refusal>) {
        self.advance(now);
        let Some(Question::Mail(mail)) = self.take_question(|q| matches!(q, Question::Mail(_)))
        else {
            return;
        };
        match answer {
            Ok(()) => {
                self.counters.transactions += 1;
                self.excused = false;
                self.transaction = Some(Transaction {
                    mail,
                    recipients: Vec::new(),
                    refused: 0,
                    failed: false,
                });
                self.say(250, Enhanced(1, 0), "Sender OK");
            }
            Err(refusal) => {
                self.note_refused_sender(mail.from.to_string(), &refusal);
                self.reply(refusal.reply());
            }
        }
        self.go_on();
    }

    fn rcpt(&mut self, to: RcptTo) {
        let Some(transaction) = &self.transaction else {
            self.fail_in_sequence(&out_of_sequence("MAIL first"));
            return;
        };
        if self.message.is_some() || transaction.failed {
            self.fail(&out_of_sequence("RCPT after BDAT"));
        } else if transaction.recipients.len() >= self.config.limits.recipients_max {
            let refusal = Refusal::new(452, Enhanced(5, 3), "Too many recipients");
            self.refuse_recipient(&to.path, &refusal);
        } else if !transaction.mail.utf8
            && to.path.mailbox().is_some_and(|mailbox| !mailbox.is_ascii())
        {
            self.refuse_recipient(&to.path, &CommandError::NeedsUtf8.refusal());
        } else {
            self.ask(Question::Rcpt(to.clone()), Output::Rcpt(to));
        }
    }

    /// Answer to [`Output::Rcpt`].
    pub fn answer_rcpt(&mut self, now: crate::Time, answer: Result<(), Refusal>) {
        self.advance(now);
        let Some(Question::Rcpt(to)) = self.take_question(|q| matches!(q, Question::Rcpt(_)))
        else {
            return;
        };
        match (answer, &mut self.transaction) {
            (Ok(()), Some(transaction)) => {
                transaction.recipients.push(to);
                self.say(250, Enhanced(1, 5), "Recipient OK");
            }
            (Ok(()), None) => unreachable!("a recipient is asked about only within a transaction"),
            (Err(refusal), _) => self.refuse_recipient(&to.path, &refusal),
        }
        self.go_on();
    }

    fn refuse_recipient(&mut self, to: &ForwardPath, refusal: &Refusal) {
        self.note_refused("recipient", to.to_string(), refusal);
        self.reply(refusal.reply());
        let limits = &self.config.limits;
        if refusal.reply().enhanced() == Some(Enhanced(1, 1)) && !refusal.is_temporary() {
            self.counters.unknown_recipients += 1;
        }
        let refused = self.transaction.as_mut().map_or(0, |transaction| {
            transaction.refused += 1;
            transaction.refused
        });
        if refused > limits.recipients_refused_max
            || self.counters.unknown_recipients > limits.unknown_recipients_max
        {
            let refusal = Refusal::new(421, Enhanced(7, 0), "Too many refused recipients");
            self.close_with(
                &refusal,
                CloseReason::TooManyRefusedRecipients,
                AbortReason::Protocol,
            );
        }
    }

    /// What DATA and BDAT have in common: whether a message may begin. `Err`: why not.
    pub(super) fn may_begin_message(&self) -> Result<(), Refusal> {
        match &self.transaction {
            None => Err(out_of_sequence("MAIL first")),
            Some(transaction) if transaction.failed => {
                Err(out_of_sequence("The message has failed; RSET"))
            }
            // RFC 2033 4.2 asks for 503; RFC 5321 3.3: '"command out of sequence" (503) or "no valid recipients" (554)'.
            Some(transaction) if transaction.recipients.is_empty() && self.role == Role::Lmtp => {
                Err(out_of_sequence("No valid recipients"))
            }
            Some(transaction) if transaction.recipients.is_empty() => {
                Err(Refusal::new(554, SEQUENCE, "No valid recipients"))
            }
            Some(_) => Ok(()),
        }
    }
}
