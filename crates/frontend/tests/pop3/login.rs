//! The AUTHORIZATION state: greeting, CAPA, STLS, the ways to log in, and which mailbox is the maildrop.

use whimbrel_frontend::session::Note;
use whimbrel_service::api::AccountId;

use super::{
    script::check,
    world::{Cut, World},
};

fn nothing(_: &mut World) {}

#[test]
fn in_the_clear() {
    check(
        nothing,
        "connect a
         S: +OK Whimbrel is ready
         C: CAPA
         S: +OK Capabilities follow
         S: TOP
         S: UIDL
         S: RESP-CODES
         S: AUTH-RESP-CODE
         S: PIPELINING
         S: STLS
         S: UTF8 USER
         S: LANG
         S: EXPIRE NEVER
         S: IMPLEMENTATION Whimbrel
         S: .
         C: USER anne@example.org
         S: -ERR Give STLS first...
         C: PASS secret
         S: -ERR Give USER first
         C: AUTH PLAIN AGFubmVAZXhhbXBsZS5vcmcAc2VjcmV0
         S: -ERR Give STLS first...
         C: AUTH
         S: +OK The mechanisms follow
         S: .
         C: STAT
         S: -ERR Log in first
         C: RETR 1
         S: -ERR Log in first
         C: APOP anne c4c9334bac560ecc979e58001b3e22fb
         S: -ERR Unknown command
         C: LANG
         S: +OK The languages follow
         S: en English
         S: .
         C: LANG EN
         S: +OK en English it is
         C: LANG *
         S: +OK en English it is
         C: LANG de
         S: -ERR No such language
         open
         C: QUIT
         S: +OK Bye
         closed",
    );
}

#[test]
fn within_tls() {
    check(
        nothing,
        "secure a
         S: +OK Whimbrel is ready
         C: CAPA
         S: +OK Capabilities follow
         S: TOP
         S: UIDL
         S: RESP-CODES
         S: AUTH-RESP-CODE
         S: PIPELINING
         S: USER
         S: SASL SCRAM-SHA-256 PLAIN LOGIN
         S: UTF8 USER
         S: LANG
         S: EXPIRE NEVER
         S: IMPLEMENTATION Whimbrel
         S: .
         C: STLS
         S: -ERR This connection is encrypted already
         C: AUTH
         S: +OK The mechanisms follow
         S: SCRAM-SHA-256
         S: PLAIN
         S: LOGIN
         S: .
         C: UTF8
         S: +OK UTF-8 it is
         C: PASS secret
         S: -ERR Give USER first
         C: USER nobody
         S: +OK Now the password
         C: NOOP
         S: -ERR Log in first
         C: USER Anne@Example.org
         S: +OK Now the password
         C: PASS secret
         S: +OK Logged in
         C: USER anne@example.org
         S: -ERR You are logged in already
         C: UTF8
         S: -ERR You are logged in already
         C: AUTH PLAIN
         S: -ERR You are logged in already
         C: STLS
         S: -ERR You are logged in already
         C: STAT
         S: +OK 0 0
         C: QUIT
         S: +OK Bye
         closed",
    );
}

#[test]
fn sasl() {
    check(
        nothing,
        "secure a
         S: +OK Whimbrel is ready
         C: AUTH PLAIN AGFubmVAZXhhbXBsZS5vcmcAc2VjcmV0
         S: +OK Logged in
         secure b
         S: +OK Whimbrel is ready
         C: AUTH NTLM
         S: -ERR No such authentication mechanism
         C: AUTH PLAIN =
         S: -ERR Invalid PLAIN message
         C: AUTH PLAIN
         S: +\\x20
         C: *
         S: -ERR Authentication cancelled
         C: AUTH PLAIN
         S: +\\x20
         C: not base64
         S: -ERR Invalid authentication message
         C: AUTH PLAIN Ym9iAGFubmVAZXhhbXBsZS5vcmcAc2VjcmV0
         S: -ERR [AUTH] Acting for others is not possible
         C: AUTH PLAIN
         S: +\\x20
         C: AGFubmVAZXhhbXBsZS5vcmcAc2VjcmV0
         S: +OK Logged in
         secure c
         S: +OK Whimbrel is ready
         C: auth login
         S: + VXNlcm5hbWU6
         C: YW5uZUBleGFtcGxlLm9yZw==
         S: + UGFzc3dvcmQ6
         C: c2VjcmV0
         S: +OK Logged in
         secure d
         S: +OK Whimbrel is ready
         C: AUTH LOGIN YW5uZUBleGFtcGxlLm9yZw==
         S: + UGFzc3dvcmQ6
         eof
         closed",
    );
}

#[test]
fn wrong_passwords() {
    check(
        nothing,
        "secure a
         S: +OK Whimbrel is ready
         C: USER anne@example.org
         S: +OK Now the password
         C: PASS wrong
         S: -ERR [AUTH] Authentication failed
         C: PASS secret
         S: -ERR Give USER first
         C: USER nobody@example.org
         S: +OK Now the password
         C: PASS secret
         S: -ERR [AUTH] Authentication failed
         open
         C: AUTH PLAIN AGFubmVAZXhhbXBsZS5vcmcAeA==
         S: -ERR [AUTH] Authentication failed
         closed",
    );
}

/// Row 16 of what broke others: whatever stands in a login name is a name and nothing else.
#[test]
fn strange_names() {
    let mut world = World::new(Cut::AtOnce);
    for user in [
        "%s%n%x",
        "%{pass}@example.org",
        "${HOME}",
        "../../anne@example.org",
        "anne@example.org\u{2028}",
        "' OR 1=1 --",
        &"a".repeat(1900),
        &"|".repeat(1900),
        "|||@|||",
        "anne@example.org@example.org",
    ] {
        world.connect("x", true);
        world.told();
        assert_eq!(
            world.ask(&format!("USER {user}")),
            "+OK Now the password\r\n"
        );
        assert_eq!(
            world.ask("PASS secret"),
            "-ERR [AUTH] Authentication failed\r\n",
            "{user}"
        );
        // The directory counts failures of an address.
        world.wait(61);
    }
}

#[test]
fn the_user_name_carries_a_mailbox() {
    let prepare = |world: &mut World| {
        world.put("Archive", b"", b"archived\r\n");
        world.put("INBOX", b"", b"new\r\n");
        world.put("INBOX", b"", b"newer\r\n");
        world.account("bert@example.org", AccountId([2; 16]));
        world.account("bert@example.net", AccountId([3; 16]));
    };
    check(
        prepare,
        "secure a
         S: +OK Whimbrel is ready
         C: USER anne@example.org|Archive
         S: +OK Now the password
         C: PASS secret
         S: +OK Logged in
         C: STAT
         S: +OK 1 10
         C: DELE 1
         S: +OK Marked as deleted
         C: QUIT
         S: +OK Bye, the messages are removed
         secure b
         S: +OK Whimbrel is ready
         C: USER anne|inbox
         S: +OK Now the password
         C: PASS secret
         S: +OK Logged in
         C: STAT
         S: +OK 2 12
         secure c
         S: +OK Whimbrel is ready
         C: AUTH PLAIN AGFubmV8QXJjaGl2ZQBzZWNyZXQ=
         S: +OK Logged in
         C: STAT
         S: +OK 0 0
         secure d
         S: +OK Whimbrel is ready
         C: USER anne
         S: +OK Now the password
         C: PASS secret
         S: +OK Logged in
         C: STAT
         S: +OK 2 12
         secure e
         S: +OK Whimbrel is ready
         C: USER anne|Nowhere
         S: +OK Now the password
         C: PASS secret
         S: -ERR [SYS/PERM] No such mailbox
         C: USER anne|//
         S: +OK Now the password
         C: PASS secret
         S: -ERR [SYS/PERM] No such mailbox
         C: STAT
         S: -ERR Log in first
         C: USER bert
         S: +OK Now the password
         C: PASS secret
         S: -ERR [AUTH] Authentication failed
         closed",
    );
}

/// Row 2: what is pipelined behind STLS is never carried out, and nothing of before is known.
#[test]
fn stls_forgets() {
    check(
        nothing,
        "connect a
         S: +OK Whimbrel is ready
         C: STLS
         S: +OK Begin TLS negotiation
         tls
         C: USER anne@example.org
         S: +OK Now the password
         C: PASS secret
         S: +OK Logged in
         connect b
         S: +OK Whimbrel is ready
         C: UTF8
         S: +OK UTF-8 it is
         C: STLS
         S: -ERR STLS must come before UTF8
         connect c
         S: +OK Whimbrel is ready
         C: STLS
         S: +OK Begin TLS negotiation
         eof
         closed",
    );
    // All in one packet.
    let mut world = World::new(Cut::AtOnce);
    world.connect("a", false);
    world.send(b"STLS\r\nCAPA\r\nQUIT\r\nUSER anne@example.org\r\nPA");
    assert_eq!(
        world.told(),
        "+OK Whimbrel is ready\r\n+OK Begin TLS negotiation\r\n"
    );
    world.tls();
    assert_eq!(world.told(), "");
    assert_eq!(world.ask("SS secret"), "-ERR Unknown command\r\n");
    assert_eq!(world.ask("PASS secret"), "-ERR Give USER first\r\n");
    // Bytes that come while the handshake runs.
    world.connect("b", false);
    world.send(b"STLS\r\n");
    let now = world.node.now();
    use whimbrel_frontend::session::Session as _;
    world.client().session.on_bytes(now, b"QUIT\r\n");
    world.run();
    assert!(world.client().closed);
    assert!(
        world
            .client()
            .notes
            .contains(&Note::Closed("bytes in the clear after STLS"))
    );
}
