//! Greeting, EHLO, STARTTLS, AUTH.

use super::script::{check, check_all, client_config};
use crate::client::*;

const HELLO: &str = "S: 220 mx\nC: EHLO client\n";

fn with_starttls(starttls: StartTls) -> ClientConfig {
    ClientConfig {
        starttls,
        ..client_config()
    }
}

fn with_login(name: &str, password: &str) -> ClientConfig {
    ClientConfig {
        tls: true,
        login: Login::new(name, password),
        ..client_config()
    }
}

/// Up to `Ready`, or a failure.
fn check_opening(config: &ClientConfig, script: &str) {
    check_all(config, &[], false, script);
}

#[test]
fn greeting_is_refused() {
    check_opening(
        &client_config(),
        "S: 554-not
         S: 554 you
         = failed: refused: 554 not you (greeting)
         C: QUIT",
    );
    check_opening(
        &client_config(),
        "S: 421 busy\n= failed: refused: 421 busy (greeting)",
    );
    check_opening(
        &client_config(),
        "S: eof\n= failed: connection lost (greeting)",
    );
}

#[test]
fn helo_after_ehlo_is_refused() {
    for code in [500, 502, 504, 550, 554] {
        let script = format!("{HELLO}S: {code} what\nC: HELO client\nS: 250 PIPELINING\n= ready");
        check_opening(&client_config(), &script);
    }
    let check = |rest: &str| check_opening(&client_config(), &format!("{HELLO}{rest}"));
    check("S: 421 busy\n= failed: refused: 421 busy (EHLO)");
    check("S: 451 busy\n= failed: refused: 451 busy (EHLO)\nC: QUIT");
    check("S: 502 what\nC: HELO client\nS: 554 no\n= failed: refused: 554 no (EHLO)\nC: QUIT");
    check("S: 502 what\nC: HELO client\nS: eof\n= failed: connection lost (EHLO)");
    // There is nothing offered after HELO.
    check_opening(
        &with_starttls(StartTls::Require),
        &format!(
            "{HELLO}S: 502 what\nC: HELO client\nS: 250-mx\nS: 250 STARTTLS\n= failed: server does not offer STARTTLS (STARTTLS)\nC: QUIT"
        ),
    );
    // RFC 2033 4.1: LMTP has neither.
    let mut config = client_config();
    config.lmtp = true;
    check_opening(
        &config,
        "S: 220 mx\nC: LHLO client\nS: 502 what\n= failed: refused: 502 what (EHLO)\nC: QUIT",
    );
}

#[test]
fn starttls() {
    let mut config = client_config();
    config.starttls = StartTls::Require;
    let tls = "S: 220 mx
         C: EHLO client
         S: 250-mx
         S: 250 STARTTLS
         C: STARTTLS
         S: 220 go
         = starttls
         C: EHLO client
         S: 250 mx
         = ready
         C: MAIL FROM:<>
         S: 451 later
         C: RSET
         = done 451 later
         S: 250 ok
         = ready
         C: QUIT
         S: 221 bye
         = closed";
    check(&config, &["a@x"], tls);
    check(
        &config,
        &["a@x"],
        "S: 220 mx\nC: EHLO client\nS: 250 mx\n= failed: server does not offer STARTTLS (STARTTLS)\nC: QUIT",
    );
}

/// Replies behind the one to STARTTLS, in the same piece, were put there by somebody.
#[test]
fn bytes_behind_starttls() {
    let mut client = Client::new(with_starttls(StartTls::Require), crate::Time::ZERO);
    for input in [
        "220 mx\r\n",
        "250-mx\r\n250 STARTTLS\r\n",
        "220 go\r\n250 mx\r\n",
    ] {
        while client.poll().is_some() {}
        client.input(crate::Time::ZERO, input.as_bytes());
    }
    let Some(ClientOutput::Close(Err(failure))) = client.poll() else {
        panic!("{client:?}")
    };
    let error = ClientError::InvalidReply("bytes behind the reply to STARTTLS");
    assert_eq!((failure.error, failure.stage), (error, Stage::Handshake));
}

#[test]
fn starttls_is_refused() {
    let offer = format!("{HELLO}S: 250-mx\nS: 250 STARTTLS\nC: STARTTLS\n");
    let check = |starttls, rest: &str| {
        check_opening(&with_starttls(starttls), &format!("{offer}{rest}"));
    };
    for reply in ["454 TLS not available", "502 what", "554 5.7.1 no"] {
        check(
            StartTls::IfOffered,
            &format!("S: {reply}\n= no starttls: {reply}\n= ready"),
        );
        check(
            StartTls::Require,
            &format!("S: {reply}\n= failed: refused: {reply} (STARTTLS)\nC: QUIT"),
        );
    }
    for starttls in [StartTls::IfOffered, StartTls::Require] {
        check(
            starttls,
            "S: 421 down\n= failed: refused: 421 down (STARTTLS)",
        );
        check(starttls, "S: eof\n= failed: connection lost (STARTTLS)");
        check(
            starttls,
            "S: 220 go\n= starttls\nS: eof\n= failed: connection lost (TLS handshake)",
        );
    }
    check_opening(
        &with_starttls(StartTls::IfOffered),
        &format!("{HELLO}S: 250 mx\n= ready"),
    );
}

/// What was offered in clear text is forgotten, and AUTH is not used outside TLS.
#[test]
fn offers_in_clear_text_do_not_count() {
    let mut config = with_login("anne", "secret");
    config.tls = false;
    config.starttls = StartTls::IfOffered;
    check_opening(
        &config,
        &format!(
            "{HELLO}S: 250 AUTH PLAIN\n= failed: server does not take a login here (AUTH)\nC: QUIT"
        ),
    );
    check_opening(
        &config,
        &format!(
            "{HELLO}S: 250-mx\nS: 250-AUTH PLAIN\nS: 250 STARTTLS\nC: STARTTLS\nS: 220 go\n= starttls
         C: EHLO client\nS: 502 what\nC: HELO client\nS: 250 mx
         = failed: server does not take a login here (AUTH)\nC: QUIT"
        ),
    );
}

#[test]
fn logins() {
    let offers = |auth: &str| format!("{HELLO}S: 250-mx\nS: 250 {auth}\n");
    let check = |auth: &str, rest: &str| {
        check_opening(
            &with_login("anne", "secret"),
            &format!("{}{rest}", offers(auth)),
        );
    };
    check(
        "AUTH LOGIN PLAIN",
        "C: AUTH PLAIN AGFubmUAc2VjcmV0\nS: 235 ok\n= ready",
    );
    let login =
        "C: AUTH LOGIN\nS: 334 VXNlcm5hbWU6\nC: YW5uZQ==\nS: 334 UGFzc3dvcmQ6\nC: c2VjcmV0\n";
    check("AUTH LOGIN CRAM-MD5", &format!("{login}S: 235 ok\n= ready"));
    check("AUTH=LOGIN", &format!("{login}S: 235 ok\n= ready"));
    let none = "= failed: server does not take a login here (AUTH)\nC: QUIT";
    check("AUTH CRAM-MD5", none);
    check("AUTH", none);
    // Never an answer to a message, whatever the code.
    for code in [421, 454, 535, 550] {
        let quit = if code == 421 { "" } else { "C: QUIT" };
        let failed = format!("S: {code} no\n= failed: refused: {code} no (AUTH)\n{quit}");
        check(
            "AUTH PLAIN",
            &format!("C: AUTH PLAIN AGFubmUAc2VjcmV0\n{failed}"),
        );
        check("AUTH LOGIN", &format!("{login}{failed}"));
        check("AUTH LOGIN", &format!("C: AUTH LOGIN\n{failed}"));
    }
    for (rest, error) in [
        (
            "C: AUTH PLAIN AGFubmUAc2VjcmV0\nS: 334 more",
            "AUTH goes on after the password",
        ),
        (
            "C: AUTH PLAIN AGFubmUAc2VjcmV0\nS: 354 go",
            "an intermediate reply where none is due",
        ),
    ] {
        let failed = format!("= failed: invalid reply from the server: {error} (AUTH)");
        check("AUTH PLAIN", &format!("{rest}\n{failed}"));
    }
    check(
        "AUTH LOGIN",
        "C: AUTH LOGIN\nS: 235 ok\n= failed: invalid reply from the server: AUTH is accepted before the password (AUTH)",
    );
    assert_eq!(Login::new("a\0b", "c"), None);
    assert_eq!(Login::new("a", "b\0"), None);
}

/// RFC 4954 4: an initial response that makes the command too long goes in a line of its own.
#[test]
fn long_login() {
    let password = "p".repeat(400);
    let response = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        format!("\0anne\0{password}"),
    );
    check_opening(
        &with_login("anne", &password),
        &format!(
            "{HELLO}S: 250-mx\nS: 250 AUTH PLAIN\nC: AUTH PLAIN\nS: 334\nC: {response}\nS: 235 ok\n= ready"
        ),
    );
}
