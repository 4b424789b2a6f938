//! Scripts: what a client sends and what it is answered.
//!
//! `C:` sends the text and CRLF, `C|` the text alone; `\r`, `\n`, `\0` and `\xNN` are bytes. `S:` is the next line of the server, where
//! `...` stands for any text. Whatever the server has said must be expected before the client goes on. `smtp` and `lmtp` connect and say
//! hello, `submit NAME` logs in as NAME@example.org, `eof`, `shutdown`, `ended` (the password was changed), `tls`, `closed` (it has closed), `open`
//! (it has not), `wait SECONDS`, `full` and `room` are about the disk.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use whimbrel_service::api::{Ended, Event};
use whimbrel_smtp::Role;

use super::world::World;

impl World {
    /// Runs a script; panics where it does not hold.
    pub(crate) fn script(&mut self, text: &str) {
        for line in text.lines().map(str::trim_start) {
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            if !matches!(verb, "" | "S:" | "smtp" | "lmtp" | "submit") {
                assert_eq!(self.rest(), "", "before {line}");
            }
            match verb {
                "" => {}
                "C:" => self.send(&[&bytes(rest)[..], b"\r\n"].concat()),
                "C|" => self.send(&bytes(rest)),
                "S:" => {
                    let said = self.line();
                    assert!(
                        matches(&said, rest),
                        "{line}\nbut it is\nS: {said}\n{}",
                        self.rest()
                    );
                }
                "submit" => self.log_in(rest),
                "smtp" => self.hello(Role::Smtp, "EHLO"),
                "lmtp" => self.hello(Role::Lmtp, "LHLO"),
                "eof" => self.eof(),
                "shutdown" => self.event(Event::Shutdown),
                "ended" => self.event(Event::Ended(Ended::PasswordChanged)),
                "tls" => self.tls(),
                "closed" | "open" => assert_eq!(self.client().closed, verb == "closed", "{line}"),
                "wait" => self.wait(rest.parse().unwrap()),
                "full" => self.node.disk.faults.full = true,
                "room" => self.node.disk.faults.full = false,
                _ => panic!("{line}: no such verb"),
            }
        }
        assert_eq!(self.rest(), "", "at the end");
    }

    /// A connection of submission on which somebody has logged in.
    fn log_in(&mut self, name: &str) {
        self.connect_tls(Role::Submission);
        self.send(b"EHLO client.example\r\n");
        assert!(self.told().contains("AUTH SCRAM-SHA-256 PLAIN LOGIN\r\n"));
        let message = STANDARD.encode(format!("\0{name}@example.org\0secret"));
        self.send(format!("AUTH PLAIN {message}\r\n").as_bytes());
        assert_eq!(self.told(), "235 2.7.0 Authentication succeeded\r\n");
    }

    fn hello(&mut self, role: Role, verb: &str) {
        self.connect(role);
        assert!(self.told().starts_with("220 mx.example.org "));
        self.send(format!("{verb} client.example\r\n").as_bytes());
        assert!(self.told().contains("ENHANCEDSTATUSCODES\r\n"));
    }

    fn rest(&mut self) -> String {
        match self.clients.last() {
            Some(client) => String::from_utf8_lossy(&client.outbox).into_owned(),
            None => String::new(),
        }
    }

    fn line(&mut self) -> String {
        let outbox = &mut self.client().outbox;
        let end = outbox.windows(2).position(|pair| pair == b"\r\n");
        let end = end.unwrap_or_else(|| panic!("no line: {:?}", String::from_utf8_lossy(outbox)));
        let line: Vec<u8> = outbox.drain(..end + 2).collect();
        String::from_utf8(line[..end].to_vec()).unwrap()
    }
}

fn matches(line: &str, pattern: &str) -> bool {
    match pattern.split_once("...") {
        Some((head, tail)) => {
            line.len() >= head.len() + tail.len() && line.starts_with(head) && line.ends_with(tail)
        }
        None => line == pattern,
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let (byte, len) = match (first, tail.first()) {
            (b'\\', Some(b'r')) => (b'\r', 1),
            (b'\\', Some(b'n')) => (b'\n', 1),
            (b'\\', Some(b'0')) => (0, 1),
            (b'\\', Some(b'x')) => {
                let digits = std::str::from_utf8(&tail[1..3]).unwrap();
                (u8::from_str_radix(digits, 16).unwrap(), 3)
            }
            _ => (first, 0),
        };
        out.push(byte);
        rest = &rest[len..];
    }
    out
}
