//! Which command is allowed when, and those that need nothing but the session.

use whimbrel_pop3::{
    Body, Command,
    encode::{self, Code},
};

use super::{
    Pop3Session, Running, Stage, Waits,
    auth::Login,
    list::{Listing, One, Stat, What},
    maildrop::NoMessage,
    retrieve::Retrieve,
    task::Task,
};
use crate::session::Note;

/// The one language of the texts of replies.
const LANGUAGE: &str = "en";

impl Pop3Session {
    /// Carries a command out, or begins to.
    pub(super) fn begin(&mut self, command: Command) {
        let name = command.name();
        let task = match &command {
            Command::User(_)
            | Command::Pass(_)
            | Command::Auth(_)
            | Command::Stls
            | Command::Utf8
                if self.cx.maildrop.is_some() =>
            {
                self.err(None, "You are logged in already")
            }
            Command::Stat
            | Command::List(_)
            | Command::Uidl(_)
            | Command::Retr(_)
            | Command::Top { .. }
            | Command::Dele(_)
            | Command::Noop
            | Command::Rset
                if self.cx.maildrop.is_none() =>
            {
                self.err(None, "Log in first")
            }
            _ => match command {
                Command::User(user) => self.user(user),
                Command::Pass(password) => match self.cx.user.take() {
                    Some(user) => Some(Task::Login(Box::new(Login::user_pass(user, password)))),
                    None => self.err(None, "Give USER first"),
                },
                Command::Auth(None) => {
                    encode::ok(&mut self.cx.out, "The mechanisms follow");
                    for mechanism in self.cx.channel().mechanisms() {
                        encode::line(&mut self.cx.out, mechanism.name());
                    }
                    encode::end(&mut self.cx.out);
                    None
                }
                Command::Auth(Some(_)) if self.cx.peer.tls.is_none() => self.insecure(),
                Command::Auth(Some(auth)) => {
                    Login::auth(&mut self.cx, &auth).map(|login| Task::Login(Box::new(login)))
                }
                Command::Stls => self.stls(),
                Command::Capa => self.capa(),
                Command::Utf8 => {
                    self.cx.utf8 = true;
                    self.ok("UTF-8 it is")
                }
                Command::Lang(range) => self.lang(range.as_deref()),
                Command::Stat => Some(Task::Stat(Stat::default())),
                Command::List(number) => self.list(What::Sizes, number),
                Command::Uidl(number) => self.list(What::Ids, number),
                Command::Retr(number) => self.retrieve(number, None),
                Command::Top { message, lines } => self.retrieve(message, Some(lines)),
                Command::Dele(number) => {
                    if let Some(place) = self.place(number) {
                        self.cx.maildrop_mut().delete(place);
                        self.ok("Marked as deleted");
                    }
                    None
                }
                Command::Noop => self.ok("NOOP completed"),
                Command::Rset => {
                    self.cx.maildrop_mut().reset();
                    // What was marked was not looked up.
                    self.cx.ahead = None;
                    self.ok("No message is marked as deleted")
                }
                Command::Quit if self.cx.maildrop.is_some() => Some(Task::Update(0, false)),
                Command::Quit => {
                    self.ok("Bye");
                    self.close("logout");
                    None
                }
            },
        };
        match task {
            Some(task) => {
                self.running = Some(Running {
                    name,
                    began: self.now.mono_micros,
                    task,
                    waits: Waits::Nothing,
                });
            }
            None => self.cx.notes.push_back(Note::Command(name, 0)),
        }
    }

    fn ok(&mut self, text: &str) -> Option<Task> {
        encode::ok(&mut self.cx.out, text);
        None
    }

    fn err(&mut self, code: Option<Code>, text: &str) -> Option<Task> {
        encode::err(&mut self.cx.out, code, text);
        None
    }

    /// No password in the clear.
    fn insecure(&mut self) -> Option<Task> {
        self.err(None, "Give STLS first: this connection is not encrypted")
    }

    fn user(&mut self, user: String) -> Option<Task> {
        if self.cx.peer.tls.is_none() {
            return self.insecure();
        }
        self.cx.user = Some(user);
        // The same whether there is such a user or not.
        self.ok("Now the password")
    }

    /// STLS (RFC 2595, 4). What was sent behind it in the clear is discarded with the decoder when the handshake is done.
    fn stls(&mut self) -> Option<Task> {
        if self.cx.peer.tls.is_some() {
            return self.err(None, "This connection is encrypted already");
        }
        // "servers MAY (but are not required to) enforce this by rejecting with an -ERR response an "STLS" command issued subsequent to a
        // successful "UTF8" command" (RFC 6856, 2.1).
        if self.cx.utf8 {
            return self.err(None, "STLS must come before UTF8");
        }
        self.stage = Stage::StartTls;
        self.ok("Begin TLS negotiation")
    }

    /// CAPA (RFC 2449, 5).
    fn capa(&mut self) -> Option<Task> {
        let secure = self.cx.peer.tls.is_some();
        let mechanisms = self.cx.channel().mechanism_names();
        let stranger = self.cx.maildrop.is_none();
        let out = &mut self.cx.out;
        encode::ok(out, "Capabilities follow");
        for capability in ["TOP", "UIDL", "RESP-CODES", "AUTH-RESP-CODE", "PIPELINING"] {
            encode::line(out, capability);
        }
        // Only what would be carried out now: "MUST NOT be advertised or used unless a strong encryption layer [...] is active" (RFC 2595, 6);
        // STLS is for the AUTHORIZATION state (RFC 2595, 4).
        if secure {
            encode::line(out, "USER");
            encode::line(out, &format!("SASL {mechanisms}"));
        } else if stranger {
            encode::line(out, "STLS");
        }
        for capability in [
            "UTF8 USER",
            "LANG",
            "EXPIRE NEVER",
            "IMPLEMENTATION Whimbrel",
        ] {
            encode::line(out, capability);
        }
        encode::end(out);
        None
    }

    /// LANG (RFC 6856, 3): there is one language.
    fn lang(&mut self, range: Option<&str>) -> Option<Task> {
        let Some(range) = range else {
            encode::ok(&mut self.cx.out, "The languages follow");
            encode::line(&mut self.cx.out, "en English");
            encode::end(&mut self.cx.out);
            return None;
        };
        if range == "*" || range.eq_ignore_ascii_case(LANGUAGE) {
            self.ok("en English it is")
        } else {
            self.err(None, "No such language")
        }
    }

    /// The place of a message; else the client is told why there is none.
    fn place(&mut self, number: u32) -> Option<u32> {
        match self.cx.maildrop().place(number) {
            Ok(place) => Some(place),
            Err(NoMessage::Deleted) => {
                self.err(None, "Message is marked as deleted");
                None
            }
            Err(NoMessage::Unknown) => {
                self.err(None, "No such message");
                None
            }
        }
    }

    fn list(&mut self, what: What, number: Option<u32>) -> Option<Task> {
        match number {
            None => Some(Task::Listing(Box::new(Listing::new(what)))),
            Some(number) => {
                let place = self.place(number)?;
                Some(Task::One(One { what, place }))
            }
        }
    }

    fn retrieve(&mut self, number: u32, lines: Option<u32>) -> Option<Task> {
        let place = self.place(number)?;
        let body = lines.map_or_else(Body::whole, Body::top);
        let retrieve = Retrieve::new(place, body, lines.is_some());
        Some(Task::Retrieve(Box::new(retrieve)))
    }
}
