//! A session that has logged somebody in for another one, or has come to MAIL, which goes on where it stopped.

use std::{net::IpAddr, sync::Arc};

use whimbrel_frontend::{
    imap::{self, ImapSession},
    pop3::{self, Pop3Session},
    session::{Action, Binding, Handover, Peer, Resume, Session, Tls},
    smtp::{self, SmtpSession},
};
use whimbrel_service::{
    api::{AccountId, Call, Reply, SessionId},
    machine::Now,
};
use whimbrel_smtp::{Config, Domain, HostName, Role};

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
    assert_eq!(handover.account, Some(ANNE));
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
    assert!(matches!(said(&mut next).1, Some(Call::BlobCreate(_))));
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

fn mail(role: Role, tls: Option<Tls>) -> SmtpSession {
    let peer = Peer { tls, ..peer() };
    let (config, limits) = of_mail(role);
    SmtpSession::new(role, config, limits, &peer, NOW)
}

fn of_mail(role: Role) -> (Arc<Config>, Arc<smtp::Limits>) {
    let mut config = Config::new(Domain::new("mx.example.org").unwrap());
    config.starttls = true;
    config.require_tls = role == Role::Submission;
    (Arc::new(config), Arc::default())
}

/// Says all this; what was answered before it stopped at MAIL, and what is handed over.
fn stops_at_mail(session: &mut SmtpSession, client: &[u8]) -> (String, Handover) {
    session.relay();
    session.on_bytes(NOW, client);
    let (mut answers, mut call, mut handover) = said(session);
    if call.is_some() {
        let login = "anne@example.org".into();
        let account = ANNE;
        session.on_reply(NOW, Reply::Authenticated { account, login });
        let (more, next_call, next) = said(session);
        answers.push_str(&more);
        (call, handover) = (next_call, next);
    }
    assert!(call.is_none(), "{call:?}");
    let handover = handover.unwrap();
    assert_eq!(handover.peer.address, peer().address);
    assert!(!session.wants_input() && session.deadline().is_none());
    session.on_bytes(NOW, b"late");
    session.on_eof(NOW);
    assert!(session.poll(NOW).is_none());
    (answers, handover)
}

#[test]
fn mail_of_strangers() {
    for (role, hello) in [(Role::Smtp, "HELO"), (Role::Lmtp, "LHLO")] {
        let mut session = mail(role, None);
        let rest = "MAIL FROM:<>\r\nRCPT TO:<anne@example.org>\r\nDATA\r\nwhat";
        let client = format!("{hello} a.example\r\nNOOP\r\n{rest}");
        let (answers, handover) = stops_at_mail(&mut session, client.as_bytes());
        assert!(answers.ends_with("250 2.0.0 OK\r\n"), "{answers}");
        assert_eq!(handover.rest, rest.as_bytes());
        assert_eq!(handover.account, None);
        let basic = role == Role::Smtp;
        let helo = HostName::new("a.example").unwrap();
        let at = Resume::Mail {
            role,
            helo: helo.clone(),
            basic,
        };
        assert_eq!(handover.at, at);
        let resumed = |account| {
            let hello = (helo.clone(), basic);
            SmtpSession::resumed(role, of_mail(role), &peer(), account, hello, NOW)
        };
        assert!(resumed(Some(ANNE)).is_none());
        let mut next = resumed(None).unwrap();
        assert_eq!(said(&mut next).0, "");
        assert!(next.may_be_told());
        next.on_bytes(NOW, &handover.rest);
        let (answer, call, _) = said(&mut next);
        assert!(matches!(call, Some(Call::Resolve { .. })), "{call:?}");
        assert!(!next.may_be_told(), "{answer}");
    }
}

#[test]
fn submission() {
    let mut session = mail(Role::Submission, peer().tls);
    // Base64 of NUL anne NUL secret.
    let client =
        b"EHLO a\r\nAUTH PLAIN AGFubmUAc2VjcmV0\r\nMAIL FROM:<anne@example.org> SIZE=5\r\nRCPT";
    let (answers, handover) = stops_at_mail(&mut session, client);
    assert!(answers.contains("\r\n235 2.7.0"), "{answers}");
    assert_eq!(handover.account, Some(ANNE));
    assert!(handover.peer.tls.is_some());
    let Resume::Mail { helo, basic, .. } = handover.at else {
        panic!("{:?}", handover.at)
    };
    let resumed = |peer: &Peer, account| {
        let (role, hello) = (Role::Submission, (helo.clone(), basic));
        SmtpSession::resumed(role, of_mail(role), peer, account, hello, NOW)
    };
    assert!(resumed(&peer(), None).is_none());
    let mut next = resumed(&peer(), handover.account).unwrap();
    next.on_bytes(NOW, &handover.rest);
    let (_, call, _) = said(&mut next);
    let Some(Call::MaySend { account, .. }) = call else {
        panic!("{call:?}")
    };
    assert_eq!(account, ANNE);
    // Whoever brought it says that there is no TLS: nothing is sent so.
    let clear = Peer {
        tls: None,
        ..peer()
    };
    let mut next = resumed(&clear, handover.account).unwrap();
    next.on_bytes(NOW, &handover.rest);
    let (answer, call, _) = said(&mut next);
    assert!(answer.starts_with("530 ") && call.is_none(), "{answer}");
}
