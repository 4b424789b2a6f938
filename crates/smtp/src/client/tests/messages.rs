//! Messages: replies that decide, parameters, limits, reuse.

use super::script::{check, check_all, client_config, message};
use crate::client::*;
use crate::dsn::{EnvelopeId, Notify, OriginalRecipient, Ret};
use crate::session::Body;
use crate::{Mailbox, ReversePath};

#[test]
fn one_by_one() {
    check(
        &client_config(),
        &["a@x", "b@x"],
        "S: 220 mx
         C: EHLO client
         S: 250 mx
         = ready
         C: MAIL FROM:<>
         S: 250 ok
         C: RCPT TO:<a@x>
         S: 550 5.1.1 no
         C: RCPT TO:<b@x>
         S: 250 ok
         C: DATA
         S: 354 go
         C: x
         C: .
         S: 250 2.0.0 taken
         = done 550 5.1.1 no, 250 2.0.0 taken
         = ready
         C: QUIT
         S: 221 bye
         = closed",
    );
}

#[test]
fn pipelined() {
    let hello = "S: 220 mx
         C: EHLO client
         S: 250-mx
         S: 250-SIZE
         S: 250-8bitmime
         S: 250 PIPELINING
         = ready
         C: MAIL FROM:<> SIZE=5 BODY=8BITMIME
         C: RCPT TO:<a@x>
         C: RCPT TO:<b@x>
         C: DATA
         ";
    let quit = "= ready
         C: QUIT
         S: 221 bye
         = closed";
    let all_refused = "S: 250 ok
         S: 550 no
         S: 451 later
         S: 354 go
         C: .
         = done 550 no, 451 later
         S: 554 no recipients";
    check(
        &client_config(),
        &["a@x", "b@x"],
        &format!("{hello}{all_refused}\n{quit}"),
    );
    let mail_refused = "S: 550 no
         S: 503 MAIL first
         S: 503 MAIL first
         S: 503 MAIL first
         C: RSET
         = done 550 no, 550 no
         S: 250 ok";
    check(
        &client_config(),
        &["a@x", "b@x"],
        &format!("{hello}{mail_refused}\n{quit}"),
    );
    let gone = "S: 250 ok
         S: 421 down
         = failed: refused: 421 down (RCPT): unanswered, unanswered";
    check(&client_config(), &["a@x", "b@x"], &format!("{hello}{gone}"));
    check(
        &client_config(),
        &["a@x", "b@x"],
        &format!("{hello}S: eof\n= failed: connection lost (MAIL): unanswered, unanswered"),
    );
}

#[test]
fn lmtp_and_chunks() {
    let mut config = client_config();
    config.lmtp = true;
    config.chunking = true;
    let hello = "S: 220 mx
         C: LHLO client
         S: 250-mx
         S: 250-CHUNKING
         S: 250 PIPELINING
         = ready
         C: MAIL FROM:<>
         C: RCPT TO:<a@x>
         C: RCPT TO:<b@x>
         C: RCPT TO:<c@x>
         S: 250 ok
         S: 250 ok
         S: 550 no
         S: 250 ok
         C: BDAT 1
         C: xBDAT 0 LAST
         ";
    let quit = "= ready
         C: QUIT
         S: 221 bye
         = closed";
    check(
        &config,
        &["a@x", "b@x", "c@x"],
        &format!("{hello}S: 250 got it\nS: 250 a\nS: 452 c\n= done 250 a, 550 no, 452 c\n{quit}"),
    );
    check(
        &config,
        &["a@x", "b@x", "c@x"],
        &format!("{hello}S: 554 bad\nS: 503 a\nS: 503 c\n= done 554 bad, 550 no, 554 bad\n{quit}"),
    );
}

/// A greeting and the reply to EHLO with these extensions.
fn hello(extensions: &str) -> String {
    let mut script = "S: 220 mx\nC: EHLO client\nS: 250-mx\n".to_owned();
    for line in extensions.split(", ") {
        script += &format!("S: 250-{line}\n");
    }
    script + "S: 250 HELP\n= ready\n"
}

const QUIT: &str = "\nC: QUIT\nS: 221 bye\n= closed";

/// What one message without recipients of its own says in MAIL, with such offers; `expected` without `MAIL `: it is not sent.
fn check_mail(change: impl Fn(&mut Outgoing), offers: &str, expected: &str) {
    let mut message = message(&["a@x"]);
    message.from = ReversePath::Mailbox(Mailbox::parse("f@y").unwrap());
    change(&mut message);
    let rest = match expected.strip_prefix("MAIL ") {
        Some(_) => format!("C: {expected}\nS: eof\n= failed: connection lost (MAIL): unanswered"),
        None => format!("= done not sent: {expected}\n= ready{QUIT}"),
    };
    let mut config = client_config();
    config.eight_bit = EightBit::Refuse;
    check_all(&config, &[message], true, &(hello(offers) + &rest));
}

#[test]
fn parameters_of_mail() {
    let all = "SIZE 100, 8BITMIME, SMTPUTF8, DSN, REQUIRETLS";
    let seven = |message: &mut Outgoing| message.body = Body::SevenBit;
    check_mail(|_| {}, all, "MAIL FROM:<f@y> SIZE=5 BODY=8BITMIME");
    check_mail(seven, "DSN", "MAIL FROM:<f@y>");
    // RFC 1870: without a limit, at the limit, above it.
    let sized = |message: &mut Outgoing| {
        message.body = Body::SevenBit;
        message.size = Some(100);
    };
    check_mail(sized, "SIZE", "MAIL FROM:<f@y> SIZE=100");
    check_mail(sized, "SIZE 0", "MAIL FROM:<f@y> SIZE=100");
    check_mail(sized, "SIZE 100", "MAIL FROM:<f@y> SIZE=100");
    let large = "552 5.3.4 Message is larger than the server takes";
    check_mail(sized, "SIZE 99", large);
    check_mail(
        |_| {},
        "SIZE",
        "554 5.6.3 Server does not offer 8BITMIME, and messages are not converted",
    );
    // RFC 6531, by the flag or by an address.
    let no_utf8 = "550 5.6.7 Server does not offer SMTPUTF8";
    let flag = |message: &mut Outgoing| message.utf8 = true;
    check_mail(flag, "8BITMIME", no_utf8);
    check_mail(
        flag,
        "SMTPUTF8, 8BITMIME",
        "MAIL FROM:<f@y> BODY=8BITMIME SMTPUTF8",
    );
    let from = |message: &mut Outgoing| {
        message.from = ReversePath::Mailbox(Mailbox::parse("é@y").unwrap());
    };
    check_mail(from, "8BITMIME", no_utf8);
    check_mail(
        from,
        "SMTPUTF8, 8BITMIME",
        "MAIL FROM:<é@y> BODY=8BITMIME SMTPUTF8",
    );
    let to = |message: &mut Outgoing| message.recipients = self::message(&["é@x"]).recipients;
    check_mail(to, "8BITMIME", no_utf8);
    check_mail(
        to,
        "SMTPUTF8, 8BITMIME",
        "MAIL FROM:<f@y> BODY=8BITMIME SMTPUTF8",
    );
    let dsn = |message: &mut Outgoing| {
        message.body = Body::SevenBit;
        message.ret = Some(Ret::Headers);
        message.envid = EnvelopeId::new("a b=");
    };
    check_mail(dsn, "DSN", "MAIL FROM:<f@y> RET=HDRS ENVID=a+20b+3D");
    check_mail(dsn, "SIZE", "MAIL FROM:<f@y> SIZE=5");
}

/// Without 8BITMIME a body is sent as it is, where the route says so.
#[test]
fn eight_bit_is_sent_as_it_is() {
    let script = hello("SIZE")
        + "C: MAIL FROM:<> SIZE=5\nS: eof\n= failed: connection lost (MAIL): unanswered";
    check(&client_config(), &["a@x"], &script);
}

/// RFC 8689 4.2.1: TLS, then the offer. Section 5: a notification is sent all the same.
#[test]
fn requiretls() {
    let check = |tls: bool, from: &str, offers: &str, expected: &str| {
        let mut config = client_config();
        config.tls = tls;
        let mut message = message(&["a@x"]);
        message.body = Body::SevenBit;
        message.require_tls = true;
        if !from.is_empty() {
            message.from = ReversePath::Mailbox(Mailbox::parse(from).unwrap());
        }
        let script = hello(offers) + expected;
        check_all(&config, &[message], true, &script);
    };
    let lost = "S: eof\n= failed: connection lost (MAIL): unanswered";
    let refused = |text: &str| format!("= done not sent: 550 {text}\n= ready{QUIT}");
    let offered = "REQUIRETLS";
    check(
        true,
        "f@y",
        offered,
        &format!("C: MAIL FROM:<f@y> REQUIRETLS\n{lost}"),
    );
    check(
        true,
        "f@y",
        "DSN",
        &refused("5.7.30 REQUIRETLS support required"),
    );
    check(false, "f@y", offered, &refused("5.7.10 Encryption needed"));
    check(
        true,
        "",
        offered,
        &format!("C: MAIL FROM:<> REQUIRETLS\n{lost}"),
    );
    check(true, "", "DSN", &format!("C: MAIL FROM:<>\n{lost}"));
    check(false, "", offered, &format!("C: MAIL FROM:<>\n{lost}"));
}

#[test]
fn parameters_of_rcpt() {
    let mut message = message(&["a@x", "b@x", "c@x"]);
    message.body = Body::SevenBit;
    message.size = None;
    message.recipients[0].notify = Some(Notify::default());
    message.recipients[0].orcpt = OriginalRecipient::new("A+1@x");
    message.recipients[1].notify = Notify::parse("SUCCESS,DELAY");
    message.recipients[1].orcpt = OriginalRecipient::new("é@x");
    // Beyond 500 octets where it has no UTF-8.
    message.recipients[2].orcpt = OriginalRecipient::new(&"é".repeat(100));
    let check = |offers: &str, rcpts: &str| {
        let script = format!(
            "{}C: MAIL FROM:<>\n{rcpts}S: eof\n= failed: connection lost (MAIL): unanswered, unanswered, unanswered",
            hello(offers)
        );
        check_all(&client_config(), &[message.clone()], true, &script);
    };
    check(
        "PIPELINING",
        "C: RCPT TO:<a@x>\nC: RCPT TO:<b@x>\nC: RCPT TO:<c@x>\nC: DATA\n",
    );
    check(
        "PIPELINING, DSN",
        "C: RCPT TO:<a@x> NOTIFY=NEVER ORCPT=rfc822;A+2B1@x
         C: RCPT TO:<b@x> NOTIFY=SUCCESS,DELAY ORCPT=utf-8;\\x{E9}@x
         C: RCPT TO:<c@x>
         C: DATA\n",
    );
    check(
        "PIPELINING, DSN, SMTPUTF8",
        &format!(
            "C: RCPT TO:<a@x> NOTIFY=NEVER ORCPT=rfc822;A+2B1@x
         C: RCPT TO:<b@x> NOTIFY=SUCCESS,DELAY ORCPT=utf-8;é@x
         C: RCPT TO:<c@x> ORCPT=utf-8;{}
         C: DATA\n",
            "é".repeat(100)
        ),
    );
}

/// A recipient that the server cannot have fails alone.
#[test]
fn one_address_needs_utf8() {
    check(
        &client_config(),
        &["é@x", "b@x"],
        &(hello("SIZE 0")
            + "C: MAIL FROM:<> SIZE=5
         S: 250 ok
         C: RCPT TO:<b@x>
         S: 250 ok
         C: DATA
         S: 354 go
         C: x
         C: .
         S: 250 taken
         = done not sent: 550 5.6.7 Server does not offer SMTPUTF8, 250 taken
         = ready"
            + QUIT),
    );
}

/// RFC 9422: what does not fit is left for the next transaction, and after the last transaction the session is over.
#[test]
fn limits() {
    let taken = "S: 354 go\nC: x\nC: .\nS: 250 taken\n";
    let rcpt_max = format!(
        "{}C: MAIL FROM:<>\nC: RCPT TO:<a@x>\nC: RCPT TO:<b@x>\nC: DATA
         S: 250 ok\nS: 250 ok\nS: 550 no\n{taken}= done 250 taken, 550 no, left for the next transaction\n= ready{QUIT}",
        hello("PIPELINING, LIMITS RCPTMAX=2")
    );
    check(&client_config(), &["a@x", "b@x", "c@x"], &rcpt_max);
    let domains = format!(
        "{}C: MAIL FROM:<>\nC: RCPT TO:<a@x>\nC: RCPT TO:<c@x>\nC: DATA
         S: 250 ok\nS: 250 ok\nS: 250 ok\n{taken}= done 250 taken, left for the next transaction, 250 taken\n= ready{QUIT}",
        hello("PIPELINING, LIMITS RCPTDOMAINMAX=1")
    );
    check(&client_config(), &["a@x", "b@y", "c@x"], &domains);
    let mail_max = format!(
        "{}C: MAIL FROM:<>\nC: RCPT TO:<a@x>\nC: DATA
         S: 250 ok\nS: 250 ok\n{taken}= done 250 taken{QUIT}",
        hello("PIPELINING, LIMITS MAILMAX=1")
    );
    let two = [message(&["a@x"]), message(&["b@x"])];
    check_all(&client_config(), &two, true, &mail_max);
}

/// RFC 5321 4.5.3.1.10. `replies` to two recipients, and what is told; with one accepted the message is sent.
#[test]
fn too_many_recipients() {
    let check = |replies: [&str; 2], told: &str| {
        let hello = hello("PIPELINING");
        let envelope = "C: MAIL FROM:<>\nC: RCPT TO:<a@x>\nC: RCPT TO:<b@x>\nC: DATA\nS: 250 ok";
        let [a, b] = replies;
        let end = if a.starts_with("25") {
            format!("S: 354 go\nC: x\nC: .\nS: 250 taken\n= done {told}")
        } else {
            format!("S: 554 none\nC: RSET\n= done {told}\nS: 250 ok")
        };
        check(
            &client_config(),
            &["a@x", "b@x"],
            &format!("{hello}{envelope}\nS: {a}\nS: {b}\n{end}\n= ready{QUIT}"),
        );
    };
    check(
        ["250 ok", "452 4.5.3 many"],
        "250 taken, next time: 452 4.5.3 many",
    );
    check(["250 ok", "452 many"], "250 taken, next time: 452 many");
    check(["250 ok", "552 many"], "250 taken, next time: 552 many");
    check(
        ["250 ok", "552 5.5.3 many"],
        "250 taken, next time: 552 5.5.3 many",
    );
    // Codes with another meaning.
    check(["250 ok", "452 4.2.2 full"], "250 taken, 452 4.2.2 full");
    check(["250 ok", "552 5.2.2 full"], "250 taken, 552 5.2.2 full");
    check(["250 ok", "451 4.5.3 odd"], "250 taken, 451 4.5.3 odd");
    // A server that takes nobody would never come to an end.
    check(["452 4.5.3 many", "452 many"], "452 4.5.3 many, 452 many");
    check(["552 many", "552 5.5.3 many"], "452 many, 452 4.5.3 many");
    check(["550 no", "552 5.2.2 full"], "550 no, 552 5.2.2 full");
}

/// One connection, several messages; RSET after one that was not sent to its end.
#[test]
fn reuse() {
    let messages = [message(&["a@x"]), message(&["b@x"]), message(&["c@x"])];
    let script = hello("DSN")
        + "C: MAIL FROM:<>
         S: 250 ok
         C: RCPT TO:<a@x>
         S: 250 ok
         C: DATA
         S: 354 go
         C: x
         C: .
         S: 250 taken
         = done 250 taken
         = ready
         C: MAIL FROM:<>
         S: 250 ok
         C: RCPT TO:<b@x>
         S: 550 no
         C: RSET
         = done 550 no
         S: 250 ok
         = ready
         C: MAIL FROM:<>
         S: 250 ok
         C: RCPT TO:<c@x>
         S: 250 ok
         C: DATA
         S: 451 busy
         C: RSET
         = done 451 busy
         S: 502 what
         = failed: refused: 502 what (RSET)
         C: QUIT";
    check_all(&client_config(), &messages, true, &script);
}

/// RFC 2033 4.2: an LMTP server cannot answer DATA by 354 when it has no recipient; it would never answer the dot.
#[test]
fn lmtp_without_recipients() {
    let mut config = client_config();
    config.lmtp = true;
    let script = (hello("PIPELINING")
        + "C: MAIL FROM:<>
         C: RCPT TO:<a@x>
         C: DATA
         S: 250 ok
         S: 550 no
         S: 354 go
         = done 550 no
         = failed: invalid reply from the server: 354 without recipients (DATA)")
        .replace("EHLO", "LHLO");
    check(&config, &["a@x"], &script);
}
