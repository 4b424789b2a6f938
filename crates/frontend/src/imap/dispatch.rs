//! From a command to its task, if the state of the session permits it (RFC 9051, 3).

use whimbrel_imap::{
    AppendBegin, Command, CommandBody,
    encode::{Code, Kind, untagged},
};

use super::{
    ImapSession, Phase, Running, Waits, append, auth, capability,
    copy::Copy,
    expunge::{Close, Expunge},
    fetch::Fetch,
    idle::Idle,
    list, mailboxes,
    named::{self, Named},
    outcome::{EndCode, Outcome},
    quota::Quota,
    search::{Search, Sort, Thread},
    select::Select,
    store::Store,
    task::{Header, Task, Telling},
    unauthenticate::Unauthenticate,
};
use crate::session::Note;

/// The state a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Any,
    NoLogin,
    Login,
    Mailbox,
}

/// Its name, the state it needs, what may be told at its end.
fn traits(body: &CommandBody) -> (&'static str, Needs, Telling) {
    use CommandBody as C;
    use Needs::{Any, Login, Mailbox, NoLogin};
    let by_number = |uid: bool| if uid { Telling::All } else { Telling::Flags };
    match body {
        C::Capability => ("CAPABILITY", Any, Telling::All),
        C::Noop => ("NOOP", Any, Telling::Ask),
        C::Logout => ("LOGOUT", Any, Telling::Nothing),
        C::Id(_) => ("ID", Any, Telling::All),
        C::StartTls => ("STARTTLS", NoLogin, Telling::Nothing),
        C::Authenticate { .. } => ("AUTHENTICATE", NoLogin, Telling::Nothing),
        C::Login { .. } => ("LOGIN", NoLogin, Telling::Nothing),
        C::Enable(_) => ("ENABLE", Login, Telling::All),
        C::Select(_) => ("SELECT", Login, Telling::Nothing),
        C::Examine(_) => ("EXAMINE", Login, Telling::Nothing),
        C::Create { .. } => ("CREATE", Login, Telling::All),
        C::Delete(_) => ("DELETE", Login, Telling::All),
        C::Rename { .. } => ("RENAME", Login, Telling::All),
        C::Subscribe(_) => ("SUBSCRIBE", Login, Telling::All),
        C::Unsubscribe(_) => ("UNSUBSCRIBE", Login, Telling::All),
        C::List(_) => ("LIST", Login, Telling::All),
        C::Lsub { .. } => ("LSUB", Login, Telling::All),
        C::Namespace => ("NAMESPACE", Login, Telling::All),
        C::Status { .. } => ("STATUS", Login, Telling::All),
        C::GetQuota(_) => ("GETQUOTA", Login, Telling::All),
        C::GetQuotaRoot(_) => ("GETQUOTAROOT", Login, Telling::All),
        C::Idle => ("IDLE", Login, Telling::All),
        C::Compress(_) => ("COMPRESS", Login, Telling::Nothing),
        C::Unauthenticate => ("UNAUTHENTICATE", Login, Telling::Nothing),
        C::Check => ("CHECK", Mailbox, Telling::Ask),
        C::Close => ("CLOSE", Mailbox, Telling::Nothing),
        C::Unselect => ("UNSELECT", Mailbox, Telling::Nothing),
        C::Expunge { .. } => ("EXPUNGE", Mailbox, Telling::Ask),
        // "The VANISHED response MUST NOT be sent during a UID SEARCH command that contains message numbers in the search criteria" (RFC 7162,
        // 3.2.10.2); so with UID SORT and UID THREAD.
        C::Search(search) => {
            let by_uid = search.uid && !search.key.has_numbers();
            ("SEARCH", Mailbox, by_number(by_uid))
        }
        C::Sort(sort) => {
            let by_uid = sort.uid && !sort.key.has_numbers();
            ("SORT", Mailbox, by_number(by_uid))
        }
        C::Thread(thread) => {
            let by_uid = thread.uid && !thread.key.has_numbers();
            ("THREAD", Mailbox, by_number(by_uid))
        }
        C::Fetch(fetch) => ("FETCH", Mailbox, by_number(fetch.uid)),
        C::Store(store) => ("STORE", Mailbox, by_number(store.uid)),
        C::Copy { .. } => ("COPY", Mailbox, Telling::All),
        C::Move { .. } => ("MOVE", Mailbox, Telling::Ask),
    }
}

impl Header {
    /// Of a command.
    pub(super) fn of(command: &Command) -> Header {
        let (name, _, telling) = traits(&command.body);
        Header {
            tag: command.tag.clone(),
            name,
            telling,
            uid: is_uid(&command.body),
        }
    }
}

/// Whether the command was given with UID in front.
fn is_uid(body: &CommandBody) -> bool {
    match body {
        CommandBody::Search(search) => search.uid,
        CommandBody::Sort(sort) => sort.uid,
        CommandBody::Thread(thread) => thread.uid,
        CommandBody::Fetch(fetch) => fetch.uid,
        CommandBody::Store(store) => store.uid,
        CommandBody::Copy { uid, .. } | CommandBody::Move { uid, .. } => *uid,
        CommandBody::Expunge { uids } => uids.is_some(),
        _ => false,
    }
}

impl ImapSession {
    /// Begins a command, if need be by way of what it names.
    pub(super) fn begin(&mut self, command: Command) {
        let always = self.cx.condstore || self.cx.rev2;
        let view = self.cx.view.as_deref_mut();
        let unknown = view.and_then(|view| named::unknown(view, &command, always));
        let Some(unknown) = unknown else {
            return self.begin_known(command);
        };
        let header = Header::of(&command);
        self.start(header, Ok(Box::new(Named::new(unknown, command))));
    }

    /// Begins a command that names nothing unknown.
    pub(super) fn begin_known(&mut self, command: Command) {
        let header = Header::of(&command);
        let needs = traits(&command.body).1;
        let task = self
            .permitted(needs)
            .and_then(|()| self.task(&header, command.body));
        self.start(header, task);
    }

    /// Begins APPEND or REPLACE, whose messages have not yet come.
    pub(super) fn begin_append(&mut self, begin: AppendBegin) {
        // "the REPLACE and UID REPLACE commands MUST only be valid in the selected state" (RFC 8508, 3.5).
        let (name, needs, telling) = match &begin.replaces {
            None => ("APPEND", Needs::Login, Telling::All),
            Some(_) => ("REPLACE", Needs::Mailbox, Telling::Ask),
        };
        let header = Header {
            tag: begin.tag.clone(),
            name,
            telling,
            uid: begin.replaces.as_ref().is_some_and(|replaces| replaces.uid),
        };
        let task = self
            .permitted(needs)
            .and_then(|()| append::Append::new(&self.cx, begin));
        if task.is_err() {
            self.decoder.refuse_literal();
        } else if let Some(view) = self.cx.view.as_deref_mut() {
            // APPENDUID tells one that may be of the selected mailbox.
            view.told_before = None;
        }
        self.start(header, task.map(|task| Box::new(task) as Box<dyn Task>));
    }

    fn start(&mut self, header: Header, task: Result<Box<dyn Task>, Outcome>) {
        match task {
            Ok(task) => {
                self.running = Some(Box::new(Running {
                    header,
                    began: self.cx.now.mono_micros,
                    phase: Phase::Task(task, Waits::Nothing),
                }))
            }
            Err(outcome) => {
                // `done` takes the running command from there.
                let ended = Box::new(mailboxes::After(None));
                self.running = Some(Box::new(Running {
                    header,
                    began: self.cx.now.mono_micros,
                    phase: Phase::Task(ended, Waits::Nothing),
                }));
                self.done(outcome);
            }
        }
    }

    fn permitted(&self, needs: Needs) -> Result<(), Outcome> {
        let logged_in = self.cx.account.is_some();
        match needs {
            Needs::NoLogin if logged_in => Err(Outcome::bad("You are logged in already")),
            Needs::Login | Needs::Mailbox if !logged_in => {
                Err(Outcome::bad("You must log in first"))
            }
            Needs::Mailbox if self.cx.view.is_none() => Err(Outcome::bad("No mailbox is selected")),
            _ => Ok(()),
        }
    }

    /// The task of a command; `Err` with its outcome when there is nothing to wait for.
    fn task(&mut self, header: &Header, body: CommandBody) -> Result<Box<dyn Task>, Outcome> {
        use CommandBody as C;
        let cx = &mut self.cx;
        Ok(match body {
            C::Capability => return Err(capability::capability(cx)),
            C::Noop => return Err(Outcome::ok("NOOP completed")),
            C::Logout => {
                untagged(&mut cx.out, Kind::Bye, None, "Goodbye", cx.utf8);
                return Err(Outcome {
                    close: Some("logout"),
                    ..Outcome::ok("Logged out")
                });
            }
            C::Id(_) => return Err(capability::id(cx)),
            C::StartTls => return Err(self.start_tls()),
            C::Authenticate { mechanism, initial } => {
                private(cx)?;
                Box::new(auth::authenticate(cx, &mechanism, initial)?)
            }
            C::Login { user, password } => {
                private(cx)?;
                Box::new(auth::login(user, password))
            }
            C::Enable(names) => return Err(capability::enable(cx, &names)),
            C::Select(arguments) => Box::new(Select::new(cx, arguments, false)?),
            C::Examine(arguments) => Box::new(Select::new(cx, arguments, true)?),
            C::Create {
                mailbox,
                special_use,
                unknown_use,
            } => Box::new(mailboxes::create(&mailbox, &special_use, unknown_use)?),
            C::Delete(mailbox) => Box::new(mailboxes::delete(&mailbox)?),
            C::Rename { from, to } => Box::new(mailboxes::rename(&from, &to)?),
            C::Subscribe(mailbox) => Box::new(mailboxes::subscribe(&mailbox, true)?),
            C::Unsubscribe(mailbox) => Box::new(mailboxes::subscribe(&mailbox, false)?),
            C::List(arguments) => Box::new(list::List::new(arguments)),
            C::Lsub { reference, pattern } => Box::new(list::List::lsub(&reference, &pattern)),
            C::Namespace => return Err(capability::namespace(cx)),
            C::Status { mailbox, items } => Box::new(mailboxes::StatusTask::new(&mailbox, items)?),
            C::GetQuota(root) => Box::new(Quota::of_root(&root)?),
            C::GetQuotaRoot(mailbox) => Box::new(Quota::of_mailbox(&mailbox)?),
            C::Idle => Box::new(Idle::new()),
            C::Compress(mechanism) if cx.limits.compress => {
                return Err(self.compress(&mechanism));
            }
            C::Unauthenticate if cx.limits.unauthenticate => Box::new(Unauthenticate),
            C::Check => return Err(Outcome::ok("CHECK completed")),
            C::Close => Box::new(Close::new(cx, true)),
            C::Unselect => Box::new(Close::new(cx, false)),
            C::Expunge { uids } => Box::new(Expunge::new(cx, uids)?),
            C::Search(arguments) => Box::new(Search::new(cx, header.tag.clone(), arguments)?),
            C::Sort(arguments) => Box::new(Sort::new(cx, header.tag.clone(), arguments)?),
            C::Thread(arguments) => Box::new(Thread::new(cx, arguments)?),
            C::Fetch(arguments) => Box::new(Fetch::new(cx, arguments)?),
            C::Store(arguments) => Box::new(Store::new(cx, arguments)?),
            C::Copy { uid, set, mailbox } => Box::new(Copy::new(cx, uid, &set, &mailbox, false)?),
            C::Move { uid, set, mailbox } => Box::new(Copy::new(cx, uid, &set, &mailbox, true)?),
            // Switched off.
            C::Compress(_) | C::Unauthenticate => {
                return Err(Outcome::bad("Command is not supported"));
            }
        })
    }

    /// COMPRESS (RFC 4978, 3). TLS has no compression of its own here, so that "NO [...] already active via another layer" never comes.
    fn compress(&mut self, mechanism: &str) -> Outcome {
        if self.cx.compressed {
            return Outcome {
                code: EndCode::Plain(Code::CompressionActive),
                ..Outcome::bad("DEFLATE is active already")
            };
        }
        if mechanism != "DEFLATE" {
            return Outcome::bad("No such compression");
        }
        if !self.decoder.is_empty() {
            // "The client MUST NOT send any further commands until it has seen the result of COMPRESS": what came cannot be compressed.
            return Outcome::bad("Nothing may follow COMPRESS");
        }
        self.cx.compressed = true;
        Outcome::ok("DEFLATE is active")
    }

    fn start_tls(&mut self) -> Outcome {
        if self.cx.peer.tls.is_some() {
            return Outcome::bad("TLS is in use already");
        }
        if !self.decoder.is_empty() {
            // What came with STARTTLS was sent by whoever sits between: it must not be taken for what the client says inside TLS.
            self.cx
                .notes
                .push_back(Note::ProtocolError("input after STARTTLS"));
            return Outcome {
                close: Some("input after STARTTLS"),
                ..Outcome::bad("Nothing may follow STARTTLS")
            };
        }
        Outcome::ok("Begin TLS negotiation now")
    }
}

/// Passwords are taken only inside TLS.
fn private(cx: &super::context::Context) -> Result<(), Outcome> {
    if cx.peer.tls.is_some() {
        Ok(())
    } else {
        Err(Outcome::no(
            Code::PrivacyRequired,
            "Passwords are accepted only inside TLS",
        ))
    }
}
