//! How a command ends: what its tagged response says.

use std::borrow::Cow;

use whimbrel_imap::{
    core::ObjectId,
    encode::{Code, Kind},
};
use whimbrel_service::api::{Failure, Reply};

/// How a command ends.
pub(super) struct Outcome {
    pub(super) kind: Kind,
    pub(super) code: EndCode,
    pub(super) text: Cow<'static, str>,
    /// Then close, for this reason.
    pub(super) close: Option<&'static str>,
}

/// A response code that outlives its making.
pub(super) enum EndCode {
    None,
    Plain(Code<'static>),
    /// The capabilities as they are now.
    Capability,
    /// In the order of the messages; they need not ascend, as a UID may have been replaced by another before this is told.
    AppendUid {
        uid_validity: u32,
        uids: Vec<u32>,
    },
    /// The URL that cannot be resolved.
    BadUrl(String),
    /// Old and new UIDs: may be long, and is written piece by piece.
    CopyUid {
        uid_validity: u32,
        uids: Vec<(u32, u32)>,
    },
    /// Numbers: may be long, too.
    Modified(Vec<u32>),
    /// The mailbox that was made.
    MailboxId(ObjectId),
    /// HIGHESTMODSEQ as it is after the changes were told.
    HighestModSeq,
}

impl Outcome {
    fn new(kind: Kind, code: EndCode, text: impl Into<Cow<'static, str>>) -> Outcome {
        Outcome {
            kind,
            code,
            text: text.into(),
            close: None,
        }
    }

    pub(super) fn ok(text: impl Into<Cow<'static, str>>) -> Outcome {
        Outcome::new(Kind::Ok, EndCode::None, text)
    }

    pub(super) fn ok_code(code: EndCode, text: impl Into<Cow<'static, str>>) -> Outcome {
        Outcome::new(Kind::Ok, code, text)
    }

    pub(super) fn no(code: Code<'static>, text: impl Into<Cow<'static, str>>) -> Outcome {
        Outcome::new(Kind::No, EndCode::Plain(code), text)
    }

    pub(super) fn no_code(code: EndCode, text: impl Into<Cow<'static, str>>) -> Outcome {
        Outcome::new(Kind::No, code, text)
    }

    pub(super) fn bad(text: impl Into<Cow<'static, str>>) -> Outcome {
        Outcome::new(Kind::Bad, EndCode::None, text)
    }

    /// The service answered something that does not belong to the call.
    pub(super) fn bug() -> Outcome {
        debug_assert!(false, "a reply that does not answer the call");
        Outcome::no(Code::ServerBug, "Internal error")
    }

    /// What a client is told of a failure (RFC 5530).
    pub(super) fn failed(failure: Failure) -> Outcome {
        let (code, text) = match failure {
            Failure::Credentials => (Code::AuthenticationFailed, "Authentication failed"),
            Failure::Throttled => (Code::Unavailable, "Too many attempts, try again later"),
            Failure::InUse => (
                Code::Unavailable,
                "Too many sessions of this account, try again later",
            ),
            Failure::NoSuchMailbox => (Code::NonExistent, "No such mailbox"),
            Failure::Exists => (Code::AlreadyExists, "Mailbox exists already"),
            Failure::BadName => (Code::Cannot, "Mailbox name is not allowed"),
            Failure::Inbox => (Code::Cannot, "INBOX cannot be deleted"),
            Failure::HasChildren => (Code::HasChildren, "Mailbox has inferior names"),
            Failure::Limit(what) => (Code::Limit, what),
            // No command of IMAP sends mail.
            Failure::TooManyRecipients => (Code::Limit, "Too many recipients"),
            Failure::OverQuota(what) => (Code::OverQuota, what),
            Failure::Storage => (Code::Unavailable, "Insufficient storage, try again later"),
            Failure::Clock => (
                Code::Unavailable,
                "The clock of this server is wrong, try again later",
            ),
            Failure::TooFewNodes => (
                Code::Unavailable,
                "Too few other nodes are reachable, try again later",
            ),
            Failure::NotConfirmed => (
                Code::Unavailable,
                "Other nodes do not answer, try again later",
            ),
            Failure::DoneHere => (
                Code::Unavailable,
                "Done on this node, but too few other nodes have confirmed it in time",
            ),
            Failure::Temporary => (Code::Unavailable, "Temporary failure, try again later"),
            Failure::NoSuchAccount => (Code::ContactAdmin, "Account is unavailable"),
            Failure::NoSuchMessage => (Code::ExpungeIssued, "The message has been expunged"),
            Failure::Gone => (Code::NonExistent, "The selected mailbox is gone"),
        };
        Outcome::no(code, text)
    }

    /// The outcome of a reply that should have been another.
    pub(super) fn of_reply(reply: Reply) -> Outcome {
        match reply {
            Reply::Failed(failure) => Outcome::failed(failure),
            _ => Outcome::bug(),
        }
    }

    /// As [`Outcome::failed`], for a target that the client might create: "[TRYCREATE]" (RFC 9051, 6.3.12, 6.4.7).
    pub(super) fn failed_target(reply: Reply) -> Outcome {
        match reply {
            Reply::Failed(Failure::NoSuchMailbox) => {
                Outcome::no(Code::TryCreate, "No such mailbox")
            }
            reply => Outcome::of_reply(reply),
        }
    }

    /// Whether this is OK.
    pub(super) fn is_ok(&self) -> bool {
        self.kind == Kind::Ok
    }
}
