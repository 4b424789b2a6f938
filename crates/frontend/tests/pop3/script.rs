//! Scripts: what clients send and what they are answered.
//!
//! `C:` sends the text and CRLF, `C|` the text alone; `\r`, `\n`, `\0` and `\xNN` are bytes. `S:` is the next line of the server, where
//! `...` at the end stands for any text. Whatever the server has said must be expected before the client goes on. `connect NAME` is a
//! connection in the clear, `secure NAME` one over TLS, `login NAME` one that has logged in, `as NAME` speaks as one of them. `eof`,
//! `shutdown`, `ended` (the account was removed), `tls`, `closed` (it has closed), `open` (it has not), `wait SECONDS`, `full` and `room` (the disk)
//! are what they say.

use whimbrel_service::api::{Ended, Event};

use super::world::{Cut, World};

/// Runs a script, and again with its bytes one by one and cut at other places, each in a world of its own, made by `prepare`.
pub(crate) fn check(prepare: impl Fn(&mut World), script: &str) {
    for cut in [
        Cut::AtOnce,
        Cut::Sizes(vec![1]),
        Cut::Sizes(vec![3, 1, 17]),
        Cut::Sizes(vec![40, 5]),
    ] {
        let mut world = World::new(cut);
        prepare(&mut world);
        world.script(script);
    }
}

impl World {
    /// Runs a script; panics where it does not hold.
    pub(crate) fn script(&mut self, text: &str) {
        for line in text.lines().map(str::trim_start) {
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            let begins = matches!(verb, "" | "S:" | "connect" | "secure" | "login");
            if !begins {
                assert_eq!(self.rest(), "", "before {line}");
            }
            match verb {
                "" => {}
                "C:" => self.send(&[&bytes(rest)[..], b"\r\n"].concat()),
                "C|" => self.send(&bytes(rest)),
                "S:" => {
                    let said = self.line();
                    let rest = String::from_utf8(bytes(rest)).unwrap();
                    let fits = match rest.strip_suffix("...") {
                        Some(start) => said.starts_with(start),
                        None => said == rest,
                    };
                    assert!(fits, "{line}\nbut it is\nS: {said}\n{}", self.rest());
                }
                "connect" => self.connect(rest, false),
                "secure" => self.connect(rest, true),
                "login" => self.login(rest),
                "as" => rest.clone_into(&mut self.current),
                "eof" => self.eof(),
                "shutdown" => self.event(Event::Shutdown),
                "ended" => self.event(Event::Ended(Ended::AccountRemoved)),
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

    fn rest(&mut self) -> String {
        match self.clients.get(&self.current) {
            Some(client) => String::from_utf8_lossy(&client.outbox).into_owned(),
            None => String::new(),
        }
    }

    fn line(&mut self) -> String {
        let outbox = &mut self.client().outbox;
        let end = outbox.windows(2).position(|pair| pair == b"\r\n");
        let end = end.expect("a line is expected and nothing was said");
        let line: Vec<u8> = outbox.drain(..end + 2).collect();
        String::from_utf8(line[..end].to_vec()).unwrap()
    }
}

fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('r') => out.push(b'\r'),
                Some('n') => out.push(b'\n'),
                Some('0') => out.push(0),
                Some('x') => {
                    let digits: String = chars.by_ref().take(2).collect();
                    out.push(u8::from_str_radix(&digits, 16).unwrap());
                }
                other => panic!("{other:?} behind a backslash"),
            },
            c => out.extend(c.to_string().bytes()),
        }
    }
    out
}
