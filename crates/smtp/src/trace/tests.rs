use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::session::{MailFrom, Origin, TlsInfo};
use crate::{ForwardPath, HostName};

fn envelope(role: Role) -> Envelope {
    Envelope {
        role,
        origin: Origin {
            helo: HostName::new("mail.example.net").unwrap(),
            basic: false,
            ip: "192.0.2.7".parse().unwrap(),
            tls: None,
            authenticated: false,
        },
        mail: MailFrom::new(ReversePath::Null),
        recipients: vec![ForwardPath::Postmaster.into()],
    }
}

fn tls() -> Option<TlsInfo> {
    Some(TlsInfo {
        version: "TLS1.3".into(),
        cipher: "TLS_AES_256_GCM_SHA384".into(),
    })
}

fn check(envelope: &Envelope, recipient: Option<&str>, expected: &str) {
    let recipient = recipient.map(|text| Mailbox::parse(text).unwrap());
    let field = received(&Received {
        envelope,
        by: &Domain::new("mx.example.org").unwrap(),
        id: "8f3a",
        recipient: recipient.as_ref(),
        time: WallTime::new(1_795_190_400, 60),
    });
    assert_eq!(String::from_utf8(field).unwrap(), expected);
}

#[test]
fn received_fields() {
    let mut e = envelope(Role::Smtp);
    check(
        &e,
        Some("anne@example.org"),
        "Received: from mail.example.net ([192.0.2.7]) by mx.example.org with ESMTP id\r\n 8f3a for <anne@example.org>; Fri, 20 Nov 2026 17:00:00 +0100\r\n",
    );
    e.origin.tls = tls();
    e.origin.ip = "2001:db8::1".parse().unwrap();
    check(
        &e,
        None,
        "Received: from mail.example.net ([IPv6:2001:db8::1]) (using TLS1.3\r\n with cipher TLS_AES_256_GCM_SHA384) by mx.example.org with ESMTPS id 8f3a;\r\n Fri, 20 Nov 2026 17:00:00 +0100\r\n",
    );
}

#[test]
fn protocols() {
    let mut e = envelope(Role::Smtp);
    assert_eq!(protocol(&e), "ESMTP");
    e.origin.basic = true;
    assert_eq!(protocol(&e), "SMTP");
    e.origin.basic = false;
    e.origin.tls = tls();
    assert_eq!(protocol(&e), "ESMTPS");
    e.mail.utf8 = true;
    assert_eq!(protocol(&e), "UTF8SMTPS");
    e.role = Role::Submission;
    e.origin.authenticated = true;
    assert_eq!(protocol(&e), "UTF8SMTPSA");
    e.mail.utf8 = false;
    assert_eq!(protocol(&e), "ESMTPSA");
    e.role = Role::Lmtp;
    e.origin.authenticated = false;
    assert_eq!(protocol(&e), "LMTPS");
    e.origin.tls = None;
    assert_eq!(protocol(&e), "LMTP");
}

#[test]
fn return_paths() {
    assert_eq!(return_path(&ReversePath::Null), b"Return-Path: <>\r\n");
    let mailbox = Mailbox::parse("\"a b\"@example.org").unwrap();
    assert_eq!(
        return_path(&ReversePath::Mailbox(mailbox.clone())),
        b"Return-Path: <\"a b\"@example.org>\r\n"
    );
    assert_eq!(
        delivered_to(&mailbox),
        b"Delivered-To: \"a b\"@example.org\r\n"
    );
}

/// One field: a name, then lines that each end in CRLF and, after the first, begin with white space.
fn assert_one_field(field: &[u8], name: &str) {
    let text = core::str::from_utf8(field).unwrap();
    let text = text.strip_suffix("\r\n").unwrap();
    assert!(text.starts_with(name));
    for (i, line) in text.split("\r\n").enumerate() {
        assert!(!line.chars().any(char::is_control), "{text:?}");
        assert!(
            i == 0 || (line.starts_with(' ') && !line.trim().is_empty()),
            "{text:?}"
        );
        assert!(line.len() <= 998);
    }
}

proptest! {
    #[test]
    fn nothing_can_be_injected(
        helo in "[a-z_.:\\[\\]\r\n -]{1,40}",
        text in "(\\PC|\r|\n|\0|\\(|\\)){0,60}",
        local in "(\\PC|\r|\n|\0){0,40}",
        seconds: i64,
        offset: i16,
        utf8: bool,
    ) {
        let mut e = envelope(Role::Smtp);
        if let Ok(helo) = HostName::new(&helo) {
            e.origin.helo = helo;
        }
        e.mail.utf8 = utf8;
        e.origin.tls = Some(TlsInfo { version: text.clone(), cipher: text.clone() });
        let mailbox = crate::LocalPart::new(&local).and_then(|l| Mailbox::new(l, Domain::new("b.example").unwrap())).ok();
        let by = Domain::new("mx.example.org").unwrap();
        let time = WallTime::new(seconds, offset);
        let e = Arc::new(e);
        assert_one_field(&received(&Received { envelope: &e, by: &by, id: &text, recipient: mailbox.as_ref(), time }), "Received: ");
        if let Some(mailbox) = mailbox {
            assert_one_field(&delivered_to(&mailbox), "Delivered-To: ");
            assert_one_field(&return_path(&ReversePath::Mailbox(mailbox)), "Return-Path: ");
        }
    }
}
