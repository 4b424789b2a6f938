//! What all commands of a session share: its state, and the output being gathered.

use std::{collections::VecDeque, sync::Arc};

use whimbrel_service::api::{Call, MailboxCall};

use super::{
    ahead::Ahead,
    limits::{Limits, OUTPUT_BYTES},
    maildrop::Maildrop,
};
use crate::{
    sasl::Channel,
    session::{Note, Peer},
};

/// The state of a session.
pub(super) struct Context {
    pub(super) limits: Arc<Limits>,
    pub(super) peer: Peer,
    /// USER was given.
    pub(super) user: Option<String>,
    /// UTF8 was given (RFC 6856).
    pub(super) utf8: bool,
    /// Another session goes on when somebody has logged in.
    pub(super) relays: bool,
    pub(super) login_failures: u32,
    /// The TRANSACTION state.
    pub(super) maildrop: Option<Box<Maildrop>>,
    /// More commands have come already.
    pub(super) pipelined: bool,
    /// Messages that were looked up for them.
    pub(super) ahead: Option<Box<Ahead>>,
    /// Gathered output; given away when it is sent, so that an idle session holds none.
    pub(super) out: Vec<u8>,
    pub(super) notes: VecDeque<Note>,
}

impl Context {
    /// The connection, as mechanisms of SASL see it.
    pub(super) fn channel(&self) -> Channel<'_> {
        Channel::of(&self.peer, self.limits.scram)
    }

    /// Whether enough output is gathered to let the client take it first.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= OUTPUT_BYTES
    }

    /// The maildrop, in commands that are accepted only in the TRANSACTION state.
    pub(super) fn maildrop(&self) -> &Maildrop {
        self.maildrop
            .as_deref()
            .expect("only in the TRANSACTION state")
    }

    /// As [`Context::maildrop`].
    pub(super) fn maildrop_mut(&mut self) -> &mut Maildrop {
        self.maildrop
            .as_deref_mut()
            .expect("only in the TRANSACTION state")
    }

    /// A call about the mail of who is logged in.
    pub(super) fn call(&self, call: MailboxCall) -> Call {
        let Maildrop {
            account,
            uid_validity,
            ..
        } = *self.maildrop();
        Call::Mailbox {
            account,
            uid_validity: call.names_uids().then_some(uid_validity),
            call,
            other_nodes: self.limits.other_nodes,
        }
    }
}
