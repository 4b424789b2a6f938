//! A session that has logged somebody in for another one, which goes on where it stopped.

#![allow(clippy::unwrap_used, missing_docs)]

use std::{net::IpAddr, sync::Arc};

use whimbrel_frontend::{
    imap::{self, ImapSession},
    pop3::{self, Pop3Session},
    session::{Action, Binding, Handover, Peer, Resume, Session, Tls},
};
use whimbrel_service::{
    api::{AccountId, Call, Reply, SessionId},
    machine::Now,
};

const NOW: Now = Now {
    wall_micros: 1_700_000_000_000_000,
    mono_micros: 1,
};
const ANNE: AccountId = AccountId([7; 16]);

fn peer() -> Peer {
    Peer {
        session: SessionId(3),
        address: IpAddr::from([192, 0, 2, 9]),
        tls: Some(Tls {
            version: "TLSv1.3",
            cipher: "TLS_AES_256_GCM_SHA384".into(),
            binding: Binding::default(),
        }),
    }
}

/// What a session says until it has nothing to do or asks something.
fn said(session: &mut dyn Session) -> (String, Option<Call>, Option<Handover>) {
    let mut said = String::new();
    while let Some(action) = session.poll(NOW) {
        match action {
            Action::Send(bytes) => said.push_str(std::str::from_utf8(&bytes).unwrap()),
            Action::Call(call) => return (said, Some(call), None),
            Action::HandOver(handover) => return (said, None, Some(*handover)),
            Action::Note(_) => {}
            other => panic!("{other:?}"),
        }
    }
    (said, None, None)
}

/// Logs in, with more behind it; what is handed over.
fn hand_over(session: &mut dyn Session, client: &[u8]) -> Handover {
    session.relay();
    let _ = said(session);
    session.on_bytes(NOW, client);
    let (_, call, _) = said(session);
    assert!(matches!(call, Some(Call::Authenticate(_))), "{call:?}");
    let login = "anne@example.org".into();
    session.on_reply(
        NOW,
        Reply::Authenticated {
            account: ANNE,
            login,
        },
    );
    let (said_then, call, handover) = said(session);
    // The login is not answered, and nothing behind it is carried out.
    assert_eq!((said_then.as_str(), call.is_none()), ("", true));
    let handover = handover.unwrap();
    assert_eq!(handover.account, ANNE);
    assert_eq!(handover.peer.address, peer().address);
    assert!(handover.peer.tls.is_some());
    assert!(!session.wants_input() && session.deadline().is_none());
    session.on_bytes(NOW, b"late");
    session.on_eof(NOW);
    assert!(session.poll(NOW).is_none());
    handover
}

#[test]
fn imap() {
    let mut session = ImapSession::new(peer(), Arc::new(imap::Limits::default()), NOW);
    let client = b"a1 LOGIN anne {6+}\r\nsecret\r\na2 CAPABILITY\r\na3 APP";
    let handover = hand_over(&mut session, client);
    assert_eq!(handover.rest, b"a2 CAPABILITY\r\na3 APP");
    let Resume::Imap { tag } = &handover.at else {
        panic!("{:?}", handover.at)
    };
    let limits = Arc::new(imap::Limits {
        unauthenticate: false,
        ..imap::Limits::default()
    });
    let resumed = |tag: &str| ImapSession::resumed(peer(), Arc::clone(&limits), ANNE, tag, NOW);
    assert!(resumed("a+\r\nb").is_none());
    let mut next = resumed(tag).unwrap();
    let (greeting, ..) = said(&mut next);
    assert!(greeting.starts_with("a1 OK [CAPABILITY "), "{greeting}");
    assert!(next.wants_input() && next.may_be_told());
    next.on_bytes(NOW, &handover.rest);
    let (answer, ..) = said(&mut next);
    assert!(
        answer.contains("a2 OK") && !answer.contains("UNAUTHENTICATE"),
        "{answer}"
    );
    next.on_bytes(NOW, b"END INBOX {3+}\r\n");
    assert!(matches!(said(&mut next).1, Some(Call::BlobCreate)));
    // What is compressed is not mixed with what is not.
    let mut next = resumed(tag).unwrap();
    let _ = said(&mut next);
    next.on_bytes(NOW, b"c COMPRESS DEFLATE\r\n");
    let _ = said(&mut next);
    assert!(!next.may_be_told());
}

#[test]
fn pop3() {
    let mut session = Pop3Session::new(peer(), Arc::new(pop3::Limits::default()), NOW);
    session.relay();
    let _ = said(&mut session);
    session.on_bytes(NOW, b"UTF8\r\nUSER anne|Archive\r\n");
    let _ = said(&mut session);
    let handover = hand_over(&mut session, b"PASS secret\r\nSTAT\r\nLI");
    assert_eq!(handover.rest, b"STAT\r\nLI");
    let (mailbox, utf8) = ("Archive".to_owned(), true);
    assert_eq!(handover.at, Resume::Pop3 { mailbox, utf8 });
    let limits = Arc::new(pop3::Limits::default());
    let resumed =
        |mailbox| Pop3Session::resumed(peer(), Arc::clone(&limits), ANNE, (mailbox, true), NOW);
    assert!(resumed("a\r\nb").is_none());
    let mut next = resumed("Archive").unwrap();
    // It is answered when the maildrop is open.
    let (greeting, call, _) = said(&mut next);
    assert_eq!(greeting, "");
    let Some(Call::Mailbox { account, .. }) = call else {
        panic!("{call:?}")
    };
    assert_eq!(account, ANNE);
    assert!(!next.may_be_told(), "POP3 has no words of its own");
}
