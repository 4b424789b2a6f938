//! Commands that are none, and commands that a few bytes have made into others.
//!
//! Whatever they are, each is answered under its tag, and nothing changes. Only commands that change nothing are mutated: what a mutated
//! one does is not known.

use whimbrel_e2e::{
    imap::{Response, Status},
    model::Allowed,
    wire::Trouble,
};

use super::driver::Driver;

/// Never right, in any state.
const NEVER: &[&str] = &[
    "STORE 1",
    "STORE 0 +FLAGS (\\Seen)",
    "STORE x +FLAGS (\\Seen)",
    "STORE 1 FLAGS (\\Seen",
    "STORE 1 *FLAGS (\\Seen)",
    "COPY 1",
    "MOVE 1",
    "UID MOVE 1",
    "FETCH 1 (FLAGS",
    "FETCH 1 FLAGS)",
    "FETCH 1",
    "FETCH FLAGS",
    "FETCH 1 BODY[",
    "FETCH 1 BODY[]<1>",
    "FETCH 1 BODY[0]",
    "FETCH 1 BODY[HEADER.FIELDS ()]",
    "FETCH 0 FLAGS",
    "FETCH -1 FLAGS",
    "FETCH 1: FLAGS",
    "FETCH 1,,2 FLAGS",
    "FETCH 4294967296 FLAGS",
    "UID FETCH",
    "UID FOO 1",
    "UID",
    "SELECT",
    "EXAMINE",
    "CREATE",
    "DELETE",
    "RENAME a",
    "SUBSCRIBE",
    "EXPUNGE 1",
    "UID EXPUNGE",
    "SEARCH",
    "SEARCH FOO",
    "SEARCH NOT",
    "SEARCH OR ALL",
    "SEARCH (ALL",
    "SEARCH ALL)",
    "SEARCH BEFORE never",
    "SEARCH LARGER -1",
    "SEARCH CHARSET X-NONE ALL",
    "SEARCH RETURN (FOO) ALL",
    "STATUS INBOX",
    "STATUS INBOX ()",
    "STATUS INBOX (FOO)",
    "LIST \"\"",
    "APPEND INBOX",
    "APPEND INBOX (\\Seen",
    "LOGIN",
    "LOGIN a b",
    "AUTHENTICATE",
    "AUTHENTICATE X-NONE",
    "STARTTLS",
    "NOOP NOOP",
    "FOO",
    "IDLE now",
    "ENABLE",
    "CLOSE all",
    "*",
    "()",
    "\"NOOP\"",
    "NAMESPACE 1",
    "CAPABILITY x",
];

/// Right, and without effect: stuff for mutations.
const HARMLESS: &[&str] = &[
    "NOOP",
    "CAPABILITY",
    "NAMESPACE",
    "ID NIL",
    "ID (\"name\" \"x\")",
    "LIST \"\" *",
    "LIST (SUBSCRIBED) \"\" (\"%\" \"a/*\") RETURN (CHILDREN STATUS (MESSAGES))",
    "STATUS INBOX (MESSAGES UIDNEXT)",
    "FETCH 1:* (UID FLAGS)",
    "UID FETCH 1:* (FLAGS BODY.PEEK[HEADER.FIELDS (SUBJECT FROM)])",
    "FETCH 1 BODY.PEEK[TEXT]<0.100>",
    "SEARCH RETURN (MIN MAX COUNT) OR SEEN (NOT FLAGGED SUBJECT \"x\")",
    "UID SEARCH SINCE 1-Jan-2020 UID 1:* HEADER Subject \"a\"",
    "SEARCH TEXT \"end of\"",
    "FETCH 1:3 (ENVELOPE BODYSTRUCTURE INTERNALDATE RFC822.SIZE)",
    "UID FETCH 1:* FLAGS (CHANGEDSINCE 1)",
];

/// Bytes that mean something. No line end, and no brace: a literal would make the next command part of this one.
const BYTES: &[u8] = b" ()[]<>\"\\*%:,.+-/0123456789aAzZ\0\x01\x7f\x80\xc3\xa4\xff&=;'~^$#@!?|`";

impl Driver<'_> {
    pub(crate) fn invalid(&mut self, session: usize) {
        if self.random.one_in(3) {
            let command = (*self.random.pick(NEVER).unwrap()).to_owned();
            self.odd(session, command.as_bytes(), true);
            return;
        }
        let mut command = if self.random.one_in(5) {
            (0..self.random.below(60))
                .map(|_| *self.random.pick(BYTES).unwrap())
                .collect()
        } else {
            self.random.pick(HARMLESS).unwrap().as_bytes().to_vec()
        };
        for _ in 0..=self.random.below(4) {
            let at = self.random.below(command.len() + 1);
            let byte = *self.random.pick(BYTES).unwrap();
            match self.random.below(4) {
                0 => command.insert(at, byte),
                1 if at < command.len() => command[at] = byte,
                2 if at < command.len() => drop(command.remove(at)),
                // A piece twice.
                _ => {
                    let end = (at + self.random.below(20)).min(command.len());
                    let piece = command[at..end].to_vec();
                    command.splice(at..at, piece);
                }
            }
        }
        self.odd(session, &command, false);
    }

    /// Sends something odd: it must be answered under its tag, or the server must say goodbye.
    fn odd(&mut self, session: usize, command: &[u8], refused: bool) {
        let shown = String::from_utf8_lossy(command).into_owned();
        self.note(session, &shown);
        let allowed = Allowed {
            bye: true,
            ..Allowed::default()
        };
        let reply = match self.sessions[session].imap.raw_command(command) {
            Ok(reply) => reply,
            // Too many mistakes: a server may close, and what it said before was a goodbye, which is no reply.
            Err(Trouble::Closed) => return self.reconnect(session),
            Err(trouble) => self.wrong(&shown, &format!("{trouble:?}")),
        };
        if refused && reply.status == Status::Ok {
            self.wrong(&shown, &format!("{reply:?}"));
        }
        self.hear(session, &shown, &reply, &allowed);
        if reply
            .untagged
            .iter()
            .any(|response| matches!(response, Response::State(Status::Bye, ..)))
        {
            self.reconnect(session);
        }
    }
}
