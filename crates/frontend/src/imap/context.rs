//! What all commands of a session share: its state, and the output being gathered.

use std::sync::Arc;

use whimbrel_imap::{
    core::MailboxName as WireName,
    encode::{Code, Kind, untagged},
};
use whimbrel_service::{
    api::{AccountId, Call, MailboxCall, MailboxName},
    machine::Now,
};

use super::{
    limits::{Limits, OUTPUT_BYTES},
    outcome::Outcome,
    view::View,
};
use crate::{
    sasl::Channel,
    session::{Note, Peer},
};

/// The state of a session.
pub(super) struct Context {
    pub(super) limits: Arc<Limits>,
    pub(super) peer: Peer,
    pub(super) now: Now,
    /// Who is logged in.
    pub(super) account: Option<AccountId>,
    pub(super) login_failures: u32,
    /// Another session goes on when somebody has logged in.
    pub(super) relays: bool,
    /// The administrator's session: messages may be imported.
    pub(super) imports: bool,
    /// ENABLE IMAP4rev2 was given: SEARCH answers ESEARCH.
    pub(super) rev2: bool,
    /// ENABLE UTF8=ACCEPT was given (RFC 6855): APPEND takes UTF8, SEARCH no CHARSET.
    pub(super) utf8_accept: bool,
    /// One of both: names and quoted strings are UTF-8.
    pub(super) utf8: bool,
    /// A CONDSTORE enabling command was given (RFC 7162, 3.1).
    pub(super) condstore: bool,
    /// ENABLE QRESYNC was given: VANISHED instead of EXPUNGE (RFC 7162, 3.2.3).
    pub(super) qresync: bool,
    /// COMPRESS was given: both sides compress what they send (RFC 4978).
    pub(super) compressed: bool,
    /// The selected mailbox.
    pub(super) view: Option<Box<View>>,
    /// Something has changed since a mailbox was asked for. The answer waits for the disk, and does not say it: it was made before.
    pub(super) has_changed: bool,
    /// Not before this moment of the monotonic clock a session in IDLE asks what has changed: it was refused.
    pub(super) asks_from: u64,
    /// Gathered output; given away when it is sent, so that an idle session holds none.
    pub(super) out: Vec<u8>,
    /// How often it was given away: what is in it since the same number can still be taken back.
    pub(super) sends: u64,
    pub(super) notes: std::collections::VecDeque<Note>,
}

impl Context {
    /// Whether enough output is gathered to let the client take it first.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= OUTPUT_BYTES
    }

    /// The connection, as far as logins care.
    pub(super) fn channel(&self) -> Channel<'_> {
        Channel::of(&self.peer, self.limits.scram)
    }

    /// Nobody is logged in any more, and nothing of what the last one has enabled or opened holds: "to reset all connection state except for
    /// the state of the TLS layer" (RFC 8437, 3). Wrong logins stay counted, or who guesses would have as many as he likes.
    pub(super) fn log_out(&mut self) {
        // All are named, so that none is forgotten.
        let Context {
            limits: _,
            peer: _,
            now: _,
            account,
            login_failures: _,
            relays: _,
            imports,
            rev2,
            utf8_accept,
            utf8,
            condstore,
            qresync,
            compressed,
            view,
            has_changed: _,
            asks_from: _,
            out: _,
            sends: _,
            notes: _,
        } = self;
        *account = None;
        *imports = false;
        *rev2 = false;
        *utf8_accept = false;
        *utf8 = false;
        *condstore = false;
        *qresync = false;
        *compressed = false;
        *view = None;
    }

    /// A call about the mail of who is logged in.
    pub(super) fn call(&self, call: MailboxCall) -> Call {
        self.call_of(
            call,
            match self.imports {
                // An administrator does it again.
                true => 0,
                false => self.limits.other_nodes,
            },
        )
    }

    /// As [`Context::call`], of what is written beside reading: that neither waits for other nodes nor fails without them.
    pub(super) fn call_beside(&self, call: MailboxCall) -> Call {
        self.call_of(call, 0)
    }

    fn call_of(&self, call: MailboxCall, other_nodes: usize) -> Call {
        // No command that leads here is accepted before the login.
        let account = self.account.expect("mail is asked for only after a login");
        let view = self.view.as_deref().filter(|_| call.names_uids());
        Call::Mailbox {
            account,
            uid_validity: view.map(|view| view.uid_validity),
            call,
            other_nodes,
        }
    }

    /// The selected mailbox, in commands that are accepted only in the selected state.
    pub(super) fn view(&self) -> &View {
        self.view.as_deref().expect("only in the selected state")
    }

    /// As [`Context::view`].
    pub(super) fn view_mut(&mut self) -> &mut View {
        self.view
            .as_deref_mut()
            .expect("only in the selected state")
    }

    /// Writes an untagged OK.
    pub(super) fn ok(&mut self, code: Option<Code<'_>>, text: &str) {
        untagged(&mut self.out, Kind::Ok, code, text, self.utf8);
    }

    /// "A first CONDSTORE enabling command executed in the session with a mailbox selected MUST cause the server to return
    /// HIGHESTMODSEQ" (RFC 7162, 3.1).
    pub(super) fn enable_condstore(&mut self) {
        if !std::mem::replace(&mut self.condstore, true)
            && let Some(view) = &self.view
        {
            let highest = view.highest_modseq;
            self.ok(Some(Code::HighestModSeq(highest)), "CONDSTORE is enabled");
        }
    }
}

/// A name as the service wants it; else what the client is told.
pub(super) fn name(name: &WireName) -> Result<MailboxName, Outcome> {
    MailboxName::new(name.as_str()).map_err(|error| Outcome::no(Code::Cannot, error.to_string()))
}

/// A name that must exist to be of use.
pub(super) fn existing_name(name: &WireName) -> Result<MailboxName, Outcome> {
    MailboxName::new(name.as_str()).map_err(|_| Outcome::no(Code::NonExistent, "No such mailbox"))
}
