//! What replies mean, stage by stage.

use whimbrel_relay::limits::Outcome;
use whimbrel_relay::replies::{EightBit, Event, Needs, Session, Stage, Verdict, judge, unfit};
use whimbrel_smtp::client::Offers;
use whimbrel_smtp::{Enhanced, Reply};

use crate::Case;

pub const ALL: &[Case] = &[
    ("the table", the_table),
    ("421", closing_is_never_permanent),
    ("STARTTLS and AUTH", starttls_and_auth_fail_no_mail),
    ("every code", every_code_at_every_stage),
    ("unfit hosts", unfit_hosts),
];

const STAGES: [Stage; 10] = [
    Stage::Connect,
    Stage::Greeting,
    Stage::Hello,
    Stage::StartTls,
    Stage::Handshake,
    Stage::Auth,
    Stage::Mail,
    Stage::Recipient,
    Stage::Data,
    Stage::End,
];

/// `550 5.1.1`, or `550`.
fn reply(text: &str) -> Reply {
    let (code, status) = text.split_once(' ').unwrap_or((text, ""));
    let mut parts = status.split('.').skip(1).map(|part| part.parse().unwrap());
    let enhanced = parts
        .next()
        .zip(parts.next())
        .map(|(subject, detail)| Enhanced(subject, detail));
    Reply::new(code.parse().unwrap(), enhanced, "text")
}

/// A name and a status: `Failed 5.1.1`.
fn shown(verdict: Verdict) -> String {
    let status = match verdict {
        Verdict::GoOn => return "GoOn".to_owned(),
        Verdict::NextTransaction => return "NextTransaction".to_owned(),
        Verdict::Reconnect => return "Reconnect".to_owned(),
        Verdict::Delivered(status) => ("Delivered", status),
        Verdict::Failed(status) => ("Failed", status),
        Verdict::Deferred(status) => ("Deferred", status),
        Verdict::DeferredAfterDot(status) => ("DeferredAfterDot", status),
        Verdict::HostUnreachable(status) => ("HostUnreachable", status),
        Verdict::HostTemporary(status) => ("HostTemporary", status),
        Verdict::HostRefused(status) => ("HostRefused", status),
        Verdict::SenderRefused(status) => ("SenderRefused", status),
        Verdict::OurFault(status) => ("OurFault", status),
    };
    format!("{} {}", status.0, status.1)
}

fn check_in(session: Session, stage: Stage, what: &str, expected: &str, outcome: Outcome) {
    let text = reply(if what.as_bytes()[0].is_ascii_digit() {
        what
    } else {
        "250"
    });
    let event = match what {
        "lost" => Event::Lost,
        "invalid" => Event::Invalid,
        "own" => Event::Own,
        _ => Event::Reply(&text),
    };
    let got = judge(stage, event, session);
    assert_eq!(
        (shown(got.verdict).as_str(), got.outcome),
        (expected, outcome),
        "{stage:?} {what}"
    );
}

fn check(stage: Stage, what: &str, expected: &str, outcome: Outcome) {
    check_in(Session::default(), stage, what, expected, outcome);
}

#[test]
fn the_table() {
    use Outcome::{Busy, Failure, Nothing, Slow, Success};
    check(Stage::Connect, "lost", "HostUnreachable 4.4.1", Failure);
    check(Stage::Greeting, "220", "GoOn", Nothing);
    check(Stage::Greeting, "lost", "HostUnreachable 4.4.2", Failure);
    check(Stage::Greeting, "invalid", "HostTemporary 4.5.0", Failure);
    check(Stage::Greeting, "354", "HostTemporary 4.5.0", Failure);
    check(Stage::Greeting, "450", "HostTemporary 4.0.0", Failure);
    check(Stage::Greeting, "450 4.7.1", "HostTemporary 4.7.1", Busy);
    check(Stage::Greeting, "554 5.7.1", "HostRefused 5.7.1", Failure);
    check(Stage::Greeting, "521", "HostRefused 5.0.0", Failure);
    check(Stage::Hello, "250", "GoOn", Nothing);
    check(Stage::Hello, "550 5.7.1", "HostRefused 5.7.1", Failure);
    check(Stage::Hello, "lost", "HostUnreachable 4.4.2", Failure);
    check(Stage::StartTls, "220", "GoOn", Nothing);
    check(Stage::StartTls, "454 4.7.0", "HostTemporary 4.7.0", Busy);
    check(Stage::StartTls, "lost", "HostUnreachable 4.4.2", Failure);
    check(Stage::Handshake, "lost", "HostTemporary 4.7.5", Failure);
    check(Stage::Auth, "235 2.7.0", "GoOn", Nothing);
    check(Stage::Auth, "334", "GoOn", Nothing);
    check(Stage::Auth, "454 4.7.0", "HostTemporary 4.7.0", Busy);
    check(Stage::Auth, "lost", "HostUnreachable 4.4.2", Failure);
    // MAIL.
    check(Stage::Mail, "250 2.1.0", "GoOn", Nothing);
    check(Stage::Mail, "354", "HostTemporary 4.5.0", Failure);
    check(Stage::Mail, "451", "HostTemporary 4.0.0", Failure);
    check(Stage::Mail, "452 4.3.1", "HostTemporary 4.3.1", Failure);
    check(Stage::Mail, "450 4.1.8", "Deferred 4.1.8", Success);
    check(Stage::Mail, "450 4.7.1", "Deferred 4.7.1", Slow);
    check(Stage::Mail, "550 5.7.1", "SenderRefused 5.7.1", Success);
    check(Stage::Mail, "553", "SenderRefused 5.0.0", Success);
    check(Stage::Mail, "552 5.3.4", "Failed 5.3.4", Success);
    check(Stage::Mail, "552", "Failed 5.0.0", Success);
    check(Stage::Mail, "554 5.6.7", "Failed 5.6.7", Success);
    check(Stage::Mail, "lost", "HostUnreachable 4.4.2", Failure);
    // filtermail #143: an idle connection that the host closes.
    let reused = Session {
        reused: true,
        ..Session::default()
    };
    check_in(reused, Stage::Mail, "421 4.4.2", "Reconnect", Nothing);
    check_in(reused, Stage::Mail, "lost", "Reconnect", Nothing);
    check_in(
        reused,
        Stage::Recipient,
        "lost",
        "HostUnreachable 4.4.2",
        Failure,
    );
    // RCPT.
    check(Stage::Recipient, "250 2.1.5", "GoOn", Nothing);
    check(Stage::Recipient, "251", "GoOn", Nothing);
    check(Stage::Recipient, "550 5.1.1", "Failed 5.1.1", Success);
    check(Stage::Recipient, "550", "Failed 5.0.0", Success);
    check(Stage::Recipient, "450 4.2.0", "Deferred 4.2.0", Success);
    check(Stage::Recipient, "450 4.7.1", "Deferred 4.7.1", Slow);
    check(Stage::Recipient, "lost", "HostUnreachable 4.4.2", Failure);
    let some = Session {
        accepted: 3,
        ..Session::default()
    };
    for too_many in ["452", "452 4.5.3", "552", "552 5.5.3"] {
        check_in(some, Stage::Recipient, too_many, "NextTransaction", Success);
    }
    check(Stage::Recipient, "452", "Deferred 4.0.0", Success);
    check(Stage::Recipient, "552", "Deferred 4.0.0", Success);
    check(Stage::Recipient, "552 5.5.3", "Deferred 4.5.3", Success);
    for session in [some, Session::default()] {
        check_in(
            session,
            Stage::Recipient,
            "452 4.2.2",
            "Deferred 4.2.2",
            Success,
        );
        check_in(
            session,
            Stage::Recipient,
            "552 5.2.2",
            "Failed 5.2.2",
            Success,
        );
        check_in(
            session,
            Stage::Recipient,
            "552 5.3.4",
            "Failed 5.3.4",
            Success,
        );
    }
    // DATA and the end.
    check(Stage::Data, "354", "GoOn", Nothing);
    check(Stage::Data, "451 4.3.0", "Deferred 4.3.0", Failure);
    check(Stage::Data, "554 5.5.1", "Failed 5.5.1", Success);
    check(Stage::Data, "lost", "HostUnreachable 4.4.2", Failure);
    check(Stage::End, "250 2.6.0", "Delivered 2.6.0", Success);
    check(Stage::End, "250", "Delivered 2.0.0", Success);
    check(Stage::End, "451 4.7.1", "Deferred 4.7.1", Slow);
    check(Stage::End, "452 4.3.1", "Deferred 4.3.1", Failure);
    check(Stage::End, "554 5.7.1", "Failed 5.7.1", Success);
    check(Stage::End, "552 5.3.4", "Failed 5.3.4", Success);
    // postal #3016 and others: the host may have it.
    check(Stage::End, "lost", "DeferredAfterDot 4.4.2", Failure);
    check(Stage::End, "invalid", "DeferredAfterDot 4.5.0", Failure);
    check(Stage::End, "354", "DeferredAfterDot 4.5.0", Failure);
}

#[test]
fn closing_is_never_permanent() {
    for stage in STAGES {
        for text in ["421", "421 4.7.0", "421 4.3.2"] {
            let reply = reply(text);
            let got = judge(stage, Event::Reply(&reply), Session::default());
            let expected = match stage {
                Stage::End => "Deferred",
                _ => "HostTemporary",
            };
            assert!(
                shown(got.verdict).starts_with(expected),
                "{stage:?}: {got:?}"
            );
            assert_eq!(got.outcome, Outcome::Busy);
        }
    }
}

/// mox #365, OpenSMTPD #64.
#[test]
fn starttls_and_auth_fail_no_mail() {
    check(
        Stage::StartTls,
        "502",
        "HostTemporary 4.7.0",
        Outcome::Failure,
    );
    check(
        Stage::StartTls,
        "554 5.7.0",
        "HostTemporary 4.7.0",
        Outcome::Failure,
    );
    check(Stage::Auth, "535 5.7.8", "OurFault 4.7.8", Outcome::Nothing);
    check(Stage::Auth, "535", "OurFault 4.7.8", Outcome::Nothing);
    let login = Session {
        login: true,
        ..Session::default()
    };
    for stage in [Stage::Mail, Stage::Recipient, Stage::Data, Stage::End] {
        check_in(
            login,
            stage,
            "530 5.7.0",
            "OurFault 4.7.0",
            Outcome::Nothing,
        );
    }
    // A stranger that wants a login takes no mail from the world.
    check(
        Stage::Recipient,
        "530 5.7.1",
        "Failed 5.7.1",
        Outcome::Success,
    );
}

/// What must hold whatever comes.
#[test]
fn every_code_at_every_stage() {
    let mut permanent = 0;
    for stage in STAGES {
        check(stage, "own", "OurFault 4.3.0", Outcome::Nothing);
        for code in 200..600 {
            for enhanced in [
                None,
                Some(Enhanced(0, 0)),
                Some(Enhanced(1, 1)),
                Some(Enhanced(7, 1)),
            ] {
                let reply = Reply::new(code, enhanced, "");
                let verdict = judge(stage, Event::Reply(&reply), Session::default()).verdict;
                let shown = shown(verdict);
                if shown.contains(" 5.") {
                    permanent += 1;
                    assert!(
                        code >= 500
                            && !matches!(stage, Stage::StartTls | Stage::Handshake | Stage::Auth),
                        "{stage:?} {code}"
                    );
                }
                if shown.starts_with("Delivered") {
                    assert!(stage == Stage::End && code < 300);
                }
                let host = verdict.failure(()).is_some();
                assert_eq!(
                    host,
                    shown.starts_with("Host") || shown.starts_with("Sender")
                );
            }
        }
    }
    assert!(permanent > 2_000, "{permanent}");
}

#[test]
fn unfit_hosts() {
    let needs = |bytes, utf8, eight_bit| Needs {
        bytes,
        utf8,
        eight_bit,
    };
    let check = |needs: Needs, offers: &Offers, eight_bit, expected: Option<&str>| {
        let got = unfit(&needs, offers, eight_bit).map(|status| status.to_string());
        assert_eq!(got.as_deref(), expected, "{needs:?}");
    };
    let plain = Offers::default();
    let full = Offers {
        utf8: true,
        eight_bit_mime: true,
        size: Some(1_000),
        ..Offers::default()
    };
    check(needs(10, false, false), &plain, EightBit::Refuse, None);
    check(
        needs(10, false, true),
        &plain,
        EightBit::Refuse,
        Some("5.6.3"),
    );
    check(needs(10, false, true), &plain, EightBit::Send, None);
    check(needs(10, true, true), &plain, EightBit::Send, Some("5.6.7"));
    check(needs(1_000, true, true), &full, EightBit::Refuse, None);
    check(
        needs(1_001, true, true),
        &full,
        EightBit::Refuse,
        Some("5.3.4"),
    );
    check(
        needs(1_001, false, false),
        &Offers {
            size: Some(0),
            ..plain
        },
        EightBit::Refuse,
        None,
    );
}
