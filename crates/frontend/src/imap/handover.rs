//! A session that has logged somebody in for another one, and the one that goes on.

use std::sync::Arc;

use whimbrel_imap::core::Tag;
use whimbrel_service::{api::AccountId, machine::Now};

use super::{
    ImapSession, Limits, Phase, Running, Stage, auth,
    finish::Finish,
    task::{Header, Telling},
};
use crate::session::{Handover, Peer, Resume};

impl ImapSession {
    /// The session that goes on where another has logged somebody in, whose command with this tag it answers. `None`: that is no tag.
    pub fn resumed(
        peer: Peer,
        limits: Arc<Limits>,
        account: AccountId,
        tag: &str,
        now: Now,
    ) -> Option<ImapSession> {
        let mut session = ImapSession::new(peer, limits, now);
        session.cx.account = Some(account);
        session.decoder.set_authenticated(true);
        session.stage = Stage::Open;
        session.running = Some(Box::new(Running {
            header: Header {
                tag: Tag::new(tag.as_bytes())?,
                name: "LOGIN",
                telling: Telling::Nothing,
                uid: false,
            },
            began: now.mono_micros,
            phase: Phase::Finish(Finish::new(auth::logged_in())),
        }));
        Some(session)
    }

    /// Nothing more is said here.
    pub(super) fn hand_over(&mut self, account: AccountId) {
        let Some(running) = self.running.take() else {
            return;
        };
        let tag = running.header.tag.as_str().to_owned();
        self.stage = Stage::HandOver(Some(Box::new(Handover {
            account: Some(account),
            peer: self.cx.peer.clone(),
            at: Resume::Imap { tag },
            rest: self.decoder.take_rest(),
        })));
    }
}
