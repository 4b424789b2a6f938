//! Transcripts of a client.
//!
//! - `S: text`: the server says this line. `eof` ends the connection; `wait N`: N seconds pass, and nothing comes.
//! - `C: text`: what the client sends next.
//! - `= text`: what the client tells next, as [`told`] and [`failed`] write it.
//!
//! Before each `S:` line and at the end nothing of what the client sent and told may be left over. Each script is run with input whole, by
//! sevens and octet by octet. The body of each message is `x`.

use std::collections::VecDeque;

use crate::client::*;
use crate::session::Body;
use crate::{ForwardPath, HostName, Mailbox, ReversePath, Time};

pub(super) fn client_config() -> ClientConfig {
    ClientConfig {
        starttls: StartTls::Never,
        ..ClientConfig::new(HostName::new("client").unwrap())
    }
}

pub(super) fn message(recipients: &[&str]) -> Outgoing {
    let recipients = recipients
        .iter()
        .map(|to| ForwardPath::Mailbox(Mailbox::parse(to).unwrap()))
        .collect();
    Outgoing {
        size: Some(5),
        body: Body::EightBitMime,
        ..Outgoing::new(ReversePath::Null, recipients)
    }
}

/// One message, then QUIT.
pub(super) fn check(config: &ClientConfig, recipients: &[&str], script: &str) {
    check_all(config, &[message(recipients)], true, script);
}

/// These messages, then QUIT if it `quits`.
pub(super) fn check_all(config: &ClientConfig, messages: &[Outgoing], quits: bool, script: &str) {
    for size in [1, 7, 1_000] {
        run(config, messages, quits, script, size);
    }
}

fn run(config: &ClientConfig, messages: &[Outgoing], quits: bool, script: &str, size: usize) {
    let mut now = Time::ZERO;
    let mut client = Client::new(config.clone(), now);
    let mut messages = messages.iter();
    let mut sent = Vec::new();
    let mut said = VecDeque::new();
    let lines = script.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty()) {
        let (kind, text) = line.split_at(2);
        let text = text.trim_start();
        if kind == "S:" {
            assert!(
                sent.is_empty() && said.is_empty(),
                "before {line:?}: {:?} {said:?}\n{script}",
                String::from_utf8_lossy(&sent)
            );
            if text == "eof" {
                client.on_eof();
            } else if let Some(seconds) = text.strip_prefix("wait ") {
                now += Time::from_secs(seconds.parse().unwrap());
                client.on_time(now);
            } else {
                let bytes = format!("{}\r\n", text.replace("\\n", "\n"));
                for piece in bytes.as_bytes().chunks(size) {
                    client.input(now, piece);
                }
            }
        }
        while let Some(output) = client.poll() {
            match output {
                ClientOutput::Send(bytes) => sent.extend(bytes),
                ClientOutput::StartTls => {
                    said.push_back("starttls".to_owned());
                    if !script.contains("handshake)") {
                        client.tls_started(now);
                    }
                }
                ClientOutput::StartTlsRefused(refusal) => {
                    said.push_back(format!("no starttls: {refusal}"));
                }
                ClientOutput::Ready(_) => {
                    said.push_back("ready".to_owned());
                    match messages.next() {
                        Some(message) => client.send(now, message.clone()),
                        None if quits => client.quit(now),
                        None => {}
                    }
                }
                ClientOutput::WantBody => {
                    client.body(now, b"x");
                    client.body_end(now);
                }
                ClientOutput::Done(outcome) => said.push_back(told(&outcome)),
                ClientOutput::Close(Ok(())) => said.push_back("closed".to_owned()),
                ClientOutput::Close(Err(failure)) => said.push_back(failed(&failure)),
            }
        }
        match kind {
            "C:" => {
                let end = sent.windows(2).position(|w| w == b"\r\n");
                let end =
                    end.unwrap_or_else(|| panic!("nothing sent at {line:?} {said:?}\n{script}"));
                let got: Vec<u8> = sent.drain(..end + 2).collect();
                assert_eq!(String::from_utf8_lossy(&got[..end]), text, "{script}");
            }
            "= " => assert_eq!(said.pop_front().as_deref(), Some(text), "{script}"),
            "S:" => {}
            _ => panic!("{line}"),
        }
    }
    assert!(
        sent.is_empty() && said.is_empty(),
        "{:?} {said:?}\n{script}",
        String::from_utf8_lossy(&sent)
    );
}

/// `done`, and the decisions; those of the next transaction and those made here are marked.
fn told(outcome: &Outcome) -> String {
    let all: Vec<_> = outcome.recipients.iter().map(decided).collect();
    format!("done {}", all.join(", "))
}

fn decided(decision: &Decision) -> String {
    match decision {
        Decision::Deferred(Some(refusal)) => format!("next time: {refusal}"),
        other => other.to_string(),
    }
}

/// `failed`, why, where, whether it is stale, and the fates.
fn failed(failure: &Failure) -> String {
    let fates = failure.unfinished.iter().flatten();
    let fates: Vec<_> = fates
        .map(|fate| match fate {
            Fate::Unanswered => "unanswered".to_owned(),
            Fate::Recipient => "recipient".to_owned(),
            Fate::Uncertain => "uncertain".to_owned(),
            Fate::Decided(decision) => decided(decision),
        })
        .collect();
    assert_eq!(
        failure.may_be_accepted(),
        fates.iter().any(|fate| fate == "uncertain")
    );
    let stale = if failure.stale { " stale" } else { "" };
    let fates = match failure.unfinished {
        Some(_) => format!(": {}", fates.join(", ")),
        None => String::new(),
    };
    format!("failed: {failure}{stale}{fates}")
}
