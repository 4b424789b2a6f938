//! A session that stops at MAIL because another one, of another node, goes on; and the one that does.
//!
//! The first has greeted, made TLS and authenticated, and has answered all before MAIL. What it read from MAIL on is the other's, which offers
//! neither STARTTLS nor AUTH: both ended where the client is connected.

use std::sync::Arc;

use super::{Config, InputBuffer, Mode, Peer, Question, Role, Session};
use crate::{Time, address::HostName};

/// What the next session has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// The name in HELO, EHLO or LHLO.
    pub helo: HostName,
    /// Whether it was HELO.
    pub basic: bool,
    /// MAIL, and what the client has sent behind it.
    pub rest: Vec<u8>,
}

impl Session {
    /// In place of an answer to [`Output::Mail`](super::Output::Mail): nothing is said here behind the replies that are still to be polled. `None`: the
    /// server goes down, and the answer is wanted, so that the client is told.
    pub fn hand_over(&mut self, now: Time) -> Option<Handed> {
        self.advance(now);
        if self.ending.is_some() {
            return None;
        }
        let (helo, basic) = self.hello.clone()?;
        let Some(Question::Mail(mail)) = self.take_question(|q| matches!(q, Question::Mail(_)))
        else {
            return None;
        };
        let mut rest = format!("MAIL {mail}\r\n").into_bytes();
        rest.extend_from_slice(self.buffer.unread());
        self.buffer = InputBuffer::default();
        self.mode = Mode::Closed;
        Some(Handed { helo, basic, rest })
    }

    /// The session that goes on at the client's MAIL. For submission the client has authenticated.
    #[must_use]
    pub fn resumed(
        role: Role,
        config: Arc<Config>,
        peer: Peer,
        (helo, basic): (HostName, bool),
        now: Time,
    ) -> Self {
        let config = match config.starttls {
            true => Arc::new(Config {
                starttls: false,
                ..(*config).clone()
            }),
            false => config,
        };
        let mut session = Session::new(role, config, peer, now);
        // It was greeted.
        session.out.clear();
        session.mode = Mode::Command;
        session.hello = Some((helo, basic));
        session.authenticated = role == Role::Submission;
        session
    }

    /// Whether a command of the client's is waited for, and nothing is being done.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.question.is_none() && matches!(self.mode, Mode::Command)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Output;
    use super::*;
    use crate::Domain;

    const NOW: Time = Time::ZERO;

    fn config() -> Arc<Config> {
        let mut config = Config::new(Domain::new("mx.example.org").unwrap());
        config.starttls = true;
        Arc::new(config)
    }

    fn peer() -> Peer {
        Peer {
            ip: [192, 0, 2, 7].into(),
            tls: None,
        }
    }

    /// Replies until there is a question, and the question.
    fn run(session: &mut Session) -> (String, Option<Output>) {
        let mut said = String::new();
        while let Some(output) = session.poll() {
            match output {
                Output::Send(bytes) => said.push_str(core::str::from_utf8(&bytes).unwrap()),
                other => return (said, Some(other)),
            }
        }
        (said, None)
    }

    #[test]
    fn what_comes_from_mail_on_is_the_other_sessions() {
        let client = "EHLO a.example\r\nNOOP\r\nMAIL FROM:<\"a b\"@c.example> size=7 body=8BITMIME AUTH=<>\r\nRCPT TO:<d@e.example>\r\nBDAT 3 LAST\r\nx\r";
        let handed = "MAIL FROM:<\"a b\"@c.example> SIZE=7 BODY=8BITMIME\r\nRCPT TO:<d@e.example>\r\nBDAT 3 LAST\r\nx\r";
        let mut session = Session::new(Role::Smtp, config(), peer(), NOW);
        assert!(!session.is_at_rest() || session.poll().is_some());
        assert_eq!(session.input(NOW, client.as_bytes()), client.len());
        let (_, question) = run(&mut session);
        assert!(matches!(question, Some(Output::Mail(_))), "{question:?}");
        assert!(!session.is_at_rest());
        let handed_over = session.hand_over(NOW).unwrap();
        assert_eq!(core::str::from_utf8(&handed_over.rest), Ok(handed));
        // What was said before still goes out, and nothing after it.
        let (said, question) = run(&mut session);
        assert!(
            said.ends_with("250 2.0.0 OK\r\n") && question.is_none(),
            "{said}"
        );
        assert!(!session.wants_input() && session.deadline().is_none());
        session.shut_down(NOW);
        session.on_eof(NOW);
        assert!(session.poll().is_none());

        let hello = (handed_over.helo, handed_over.basic);
        let mut next = Session::resumed(Role::Smtp, config(), peer(), hello, NOW);
        assert!(next.is_at_rest());
        let _ = next.input(NOW, &handed_over.rest);
        let (said, question) = run(&mut next);
        assert_eq!(said, "");
        let Some(Output::Mail(mail)) = question else {
            panic!("{question:?}")
        };
        assert_eq!(mail.size, Some(7));
        next.answer_mail(NOW, Ok(()));
        let (_, question) = run(&mut next);
        assert!(matches!(question, Some(Output::Rcpt(_))), "{question:?}");
        next.answer_rcpt(NOW, Ok(()));
        let (said, question) = run(&mut next);
        assert!(
            matches!(question, Some(Output::DataBegin(_))),
            "{said} {question:?}"
        );
        assert!(!next.is_at_rest());
    }

    #[test]
    fn who_goes_down_says_so_and_hands_nothing_over() {
        let mut session = Session::new(Role::Lmtp, config(), peer(), NOW);
        let _ = session.input(NOW, b"LHLO a\r\nMAIL FROM:<>\r\n");
        let _ = run(&mut session);
        session.shut_down(NOW);
        assert_eq!(session.hand_over(NOW), None);
        session.answer_mail(NOW, Ok(()));
        assert!(run(&mut session).0.contains("\r\n421 4.3.2"));
    }

    #[test]
    fn neither_starttls_nor_auth_is_for_who_goes_on() {
        let hello = || (HostName::new("a").unwrap(), false);
        for role in [Role::Smtp, Role::Lmtp, Role::Submission] {
            let mut session = Session::resumed(role, config(), peer(), hello(), NOW);
            session.offer_auth("PLAIN".into());
            let again = match role {
                Role::Lmtp => "LHLO",
                _ => "EHLO",
            };
            let client = format!("{again} b\r\nSTARTTLS\r\nAUTH PLAIN\r\nMAIL FROM:<>\r\n");
            let _ = session.input(NOW, client.as_bytes());
            let (said, question) = run(&mut session);
            assert!(matches!(question, Some(Output::Mail(_))), "{said}");
            session.answer_mail(NOW, Ok(()));
            let said = said + &run(&mut session).0;
            assert!(said.contains("502 5.5.1 STARTTLS"), "{said}");
            assert!(
                !said.contains("250-STARTTLS") && !said.contains("AUTH PLAIN"),
                "{said}"
            );
        }
    }
}
