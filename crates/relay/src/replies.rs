//! What a reply of another server means for a message, a recipient, the host, and its connections.
//!
//! Two things decide: the class of the reply, and the *stage*, the command that it answers. What is not about a recipient or the message does not fail
//! them: a host that is busy, wants a login, or cannot do TLS says nothing about them.
//!
//! Invariants: 421 never fails anything for good, nor does any reply to STARTTLS or AUTH; a connection that ends behind the final dot is never followed
//! by an attempt at once; what fails at this node never fails for good.

use whimbrel_smtp::Reply;
use whimbrel_smtp::client::Offers;

use crate::{Status, destinations::Failure, limits::Outcome, mutants::broken};

/// What the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A connection.
    Connect,
    /// The greeting.
    Greeting,
    /// The reply to EHLO.
    Hello,
    /// The reply to STARTTLS.
    StartTls,
    /// The handshake of TLS.
    Handshake,
    /// A reply to AUTH.
    Auth,
    /// The reply to MAIL.
    Mail,
    /// The reply to RCPT.
    Recipient,
    /// The reply to DATA, or to a BDAT that is not the last; or the text is on its way.
    Data,
    /// The reply to the final dot, or to the last BDAT: all of it is sent.
    End,
}

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A reply.
    Reply(&'a Reply),
    /// No connection, it ended, or the wait for it was too long; the handshake failed.
    Lost,
    /// What came is no SMTP.
    Invalid,
    /// This node cannot go on: it cannot read the message, or stops.
    Own,
}

/// What the judgement needs to know of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// A message was sent on this connection before.
    pub reused: bool,
    /// It was logged in: the host is a smarthost of ours.
    pub login: bool,
    /// Recipients that were accepted in this transaction.
    pub accepted: usize,
}

/// What it means. *All* are the recipients of the transaction that nothing else was decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The session goes on.
    GoOn,
    /// The host has the message, for all.
    Delivered(Status),
    /// To RCPT: this recipient fails for good; later: all.
    Failed(Status),
    /// To RCPT: this recipient is attempted again, by its schedule; later: all.
    Deferred(Status),
    /// All are attempted again, no sooner than [`crate::schedule::Config::lost_wait`] allows: the host may have the message.
    DeferredAfterDot(Status),
    /// This recipient and those after it go in a further transaction, at once (RFC 5321 4.5.3.1.10).
    NextTransaction,
    /// The host does not take mail now: another address or host is tried, then all are deferred.
    HostUnreachable(Status),
    /// The same, and the host has answered: its other family of addresses is tried.
    HostTemporary(Status),
    /// The host refuses this server: another family and then other hosts are tried; all fail for good when all have refused.
    HostRefused(Status),
    /// The host refuses the sender: its other family is tried, then all fail for good.
    SenderRefused(Status),
    /// An old connection has ended: a new one is made to the same host. It was no attempt.
    Reconnect,
    /// Something is wrong here: credentials, or this node. All are deferred, the operator is told; never a reason to fail.
    OurFault(Status),
}

impl Verdict {
    /// What the walk through the hosts is told, with what is to be kept of it; `None`: the walk is over, or goes on with this host.
    #[must_use]
    pub fn failure<R>(self, reason: R) -> Option<Failure<R>> {
        match self {
            Verdict::HostUnreachable(_) => Some(Failure::Unreachable(reason)),
            Verdict::HostTemporary(_) => Some(Failure::Temporary(reason)),
            Verdict::HostRefused(_) => Some(Failure::Refused(reason)),
            Verdict::SenderRefused(_) => Some(Failure::SenderRefused(reason)),
            _ => None,
        }
    }
}

/// The verdict, and what the limits of the destination learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What it means.
    pub verdict: Verdict,
    /// For [`crate::limits::Limits::learn`] or [`crate::limits::Limits::done`].
    pub outcome: Outcome,
}

/// The status of a reply. RFC 3461 6.3: "If there is no specific code which suitably describes a delivery failure, either 4.0.0 (temporary failure), or
/// 5.0.0 (permanent failure) MUST be used." Replies of class 3 count as successes.
#[must_use]
pub fn status(reply: &Reply) -> Status {
    let (subject, detail) = reply
        .enhanced()
        .map_or((0, 0), |enhanced| (enhanced.0, enhanced.1));
    match reply.code() / 100 {
        4 => Status::temporary(subject, detail),
        5 => Status::permanent(subject, detail),
        _ => Status::success(subject, detail),
    }
}

/// Judges what has happened at a stage.
#[must_use]
pub fn judge(stage: Stage, event: Event<'_>, session: Session) -> Judged {
    let reply = match event {
        Event::Reply(reply) => reply,
        Event::Own => return judged(Verdict::OurFault(Status::temporary(3, 0)), Outcome::Nothing),
        Event::Lost => return lost(stage, session),
        Event::Invalid => return invalid(stage),
    };
    let class = reply.code() / 100;
    if class < 4 {
        return positive(stage, class, reply);
    }
    let status = status(reply);
    let outcome = outcome(stage, reply, status);
    if reply.code() == 421 && !broken("421-is-like-any-other") {
        let verdict = closing(stage, session, status.as_temporary());
        let learned = verdict != Verdict::Reconnect;
        return judged(verdict, if learned { outcome } else { Outcome::Nothing });
    }
    let verdict = negative(stage, reply, status, session);
    let outcome = match (verdict, outcome) {
        (Verdict::OurFault(_), _) => Outcome::Nothing,
        (Verdict::HostTemporary(_), Outcome::Success) => Outcome::Failure,
        (_, outcome) => outcome,
    };
    judged(verdict, outcome)
}

fn judged(verdict: Verdict, outcome: Outcome) -> Judged {
    Judged { verdict, outcome }
}

fn positive(stage: Stage, class: u16, reply: &Reply) -> Judged {
    match (stage, class) {
        (Stage::End, 2) => judged(Verdict::Delivered(status(reply)), Outcome::Success),
        // More is asked for in AUTH, or the text after DATA; a BDAT is answered by 250.
        (Stage::Auth, _) | (Stage::Data, _) => judged(Verdict::GoOn, Outcome::Nothing),
        (Stage::Greeting | Stage::Hello | Stage::StartTls | Stage::Mail | Stage::Recipient, 2) => {
            judged(Verdict::GoOn, Outcome::Nothing)
        }
        _ => invalid(stage),
    }
}

/// RFC 5321 3.8: 421 may answer any command. Too many connections, too many messages, a shutdown: nothing about the message. Behind the dot it says that
/// the host has not taken the message.
fn closing(stage: Stage, session: Session, status: Status) -> Verdict {
    match stage {
        // The host had closed an idle connection: it is no answer to this message.
        Stage::Mail if session.reused && !broken("reused-counts") => Verdict::Reconnect,
        Stage::End => Verdict::Deferred(status),
        _ => Verdict::HostTemporary(status),
    }
}

fn negative(stage: Stage, reply: &Reply, status: Status, session: Session) -> Verdict {
    let permanent = status.is_permanent();
    // 530 and 538 want a login or TLS, 534 and 535 another one (RFC 4954 6): a smarthost that says so does not like our configuration.
    let about_login = matches!(reply.code(), 530 | 534 | 535 | 538);
    if session.login && about_login {
        return Verdict::OurFault(status.as_temporary());
    }
    match stage {
        Stage::Connect | Stage::Greeting | Stage::Hello if permanent => {
            if broken("refused-session-fails-all") {
                Verdict::Failed(status)
            } else {
                Verdict::HostRefused(status)
            }
        }
        Stage::Connect | Stage::Greeting | Stage::Hello => Verdict::HostTemporary(status),
        Stage::StartTls | Stage::Handshake => {
            if permanent && broken("starttls-fails-mail") {
                return Verdict::HostRefused(status);
            }
            Verdict::HostTemporary(match status.subject() {
                0 => Status::temporary(7, 0),
                _ => status.as_temporary(),
            })
        }
        Stage::Auth if permanent && broken("auth-fails-mail") => Verdict::Failed(status),
        Stage::Auth if permanent => Verdict::OurFault(Status::temporary(7, 8)),
        Stage::Auth => Verdict::HostTemporary(status),
        Stage::Mail => to_mail(reply, status),
        Stage::Recipient => to_recipient(reply, status, session),
        Stage::Data | Stage::End if permanent => Verdict::Failed(status),
        Stage::Data | Stage::End => Verdict::Deferred(status),
    }
}

fn to_mail(reply: &Reply, status: Status) -> Verdict {
    if status.is_permanent() {
        // Too large, or not to be converted: no other address will like it better.
        let about_message = reply.code() == 552
            || status.subject() == 6
            || (status.subject(), status.detail()) == (3, 4);
        return match about_message {
            true => Verdict::Failed(status),
            false => Verdict::SenderRefused(status),
        };
    }
    // RFC 5321 4.2.2: 451 and 452 are about the host, unless it says more; another host may have room.
    let about_host =
        status.subject() == 3 || (status.subject() == 0 && matches!(reply.code(), 451 | 452));
    match about_host {
        true => Verdict::HostTemporary(status),
        false => Verdict::Deferred(status),
    }
}

/// RFC 5321 4.5.3.1.10 on too many recipients: "The correct reply code for this condition is 452. Clients SHOULD treat a 552 code in this case as a
/// temporary, rather than permanent, failure". The case is not meant where an enhanced code says otherwise: 5.2.2 is a full mailbox, 5.3.4 a message that
/// is too large.
fn to_recipient(reply: &Reply, status: Status, session: Session) -> Verdict {
    let says_so = (status.subject(), status.detail()) == (5, 3);
    let may_say_so = status.subject() == 0 && matches!(reply.code(), 452 | 552);
    if (says_so || may_say_so) && !broken("552-fails-recipients") {
        // A first recipient is not one too many.
        return match session.accepted {
            0 => Verdict::Deferred(Status::temporary(status.subject(), status.detail())),
            _ => Verdict::NextTransaction,
        };
    }
    match status.is_permanent() {
        true => Verdict::Failed(status),
        false => Verdict::Deferred(status),
    }
}

/// RFC 5321 4.5.3.2.6: to give up too soon behind the final dot "would typically result in delivery of multiple copies of the message".
fn lost(stage: Stage, session: Session) -> Judged {
    let verdict = match stage {
        Stage::Connect => Verdict::HostUnreachable(Status::temporary(4, 1)),
        Stage::Handshake => Verdict::HostTemporary(Status::temporary(7, 5)),
        Stage::Mail if session.reused => return judged(Verdict::Reconnect, Outcome::Nothing),
        Stage::End if broken("lost-behind-the-dot-at-once") => {
            Verdict::HostUnreachable(Status::temporary(4, 2))
        }
        Stage::End => Verdict::DeferredAfterDot(Status::temporary(4, 2)),
        _ => Verdict::HostUnreachable(Status::temporary(4, 2)),
    };
    judged(verdict, Outcome::Failure)
}

/// Not SMTP, or a reply of a class that cannot follow.
fn invalid(stage: Stage) -> Judged {
    let status = Status::temporary(5, 0);
    let verdict = match stage {
        Stage::Handshake => Verdict::HostTemporary(Status::temporary(7, 5)),
        Stage::End => Verdict::DeferredAfterDot(status),
        _ => Verdict::HostTemporary(status),
    };
    judged(verdict, Outcome::Failure)
}

fn outcome(stage: Stage, reply: &Reply, status: Status) -> Outcome {
    let of_session = stage < Stage::Mail;
    match (reply.code(), of_session) {
        (421, _) => Outcome::Busy,
        (400..=499, true) if status.subject() == 7 => Outcome::Busy,
        (_, true) => Outcome::Failure,
        // Greylisting, and limits on what one server sends.
        (400..=499, false) if status.subject() == 7 => Outcome::Slow,
        (400..=499, false) if status.subject() == 3 => Outcome::Failure,
        (_, false) => Outcome::Success,
    }
}

/// What a message asks of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Octets.
    pub bytes: u64,
    /// It has an address or a header that is not ASCII: SMTPUTF8 (RFC 6531).
    pub utf8: bool,
    /// It has other octets that are not ASCII: 8BITMIME (RFC 6152).
    pub eight_bit: bool,
}

/// What becomes of a message with 8-bit text where the host does not offer 8BITMIME. It is never converted: that would break its signatures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EightBit {
    /// It fails there, with 5.6.3.
    #[default]
    Refuse,
    /// It is sent as it is. Nearly all hosts take it.
    Send,
}

/// Why a host cannot take a message, by what it offers: it counts as a host that has refused ([`Verdict::HostRefused`]), for another one may offer more.
#[must_use]
pub fn unfit(needs: &Needs, offers: &Offers, eight_bit: EightBit) -> Option<Status> {
    // RFC 1870 4: SIZE without a number, or with 0, is no limit.
    let limit = offers.size.filter(|limit| *limit > 0);
    if limit.is_some_and(|limit| needs.bytes > limit) {
        return Some(Status::permanent(3, 4));
    }
    if needs.utf8 && !offers.utf8 {
        return Some(Status::permanent(6, 7));
    }
    let refused = needs.eight_bit && !offers.eight_bit_mime && eight_bit == EightBit::Refuse;
    refused.then(|| Status::permanent(6, 3))
}
