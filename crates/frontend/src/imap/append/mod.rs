//! APPEND and REPLACE (RFC 9051, 6.3.12; RFC 3502; RFC 4315; RFC 4469; RFC 7888; RFC 8508).
//!
//! Each message goes to the blob store chunk by chunk as it comes in, and beside that through the parser that makes its summary; no more of
//! it than one chunk is held ([`upload`]). Parts that a URL names are read from the store in the same way ([`source`]). When the command is
//! whole, all messages are named in one call, which the service carries out in one commit: "A MULTIAPPEND APPEND operation is atomic;
//! either all messages are successfully appended, or no messages are appended". Before that nothing is visible, and whatever goes wrong,
//! the uploads are given up and the rest of the command is skipped. What can be refused is refused before the client is asked to send it.
//!
//! Reading order: this file (the command), [`upload`] (one message), [`source`] (one URL).

mod source;
mod upload;

use bytes::Bytes;
use whimbrel_imap::{
    AppendBegin, AppendLiteral, AppendMessage,
    encode::{self, Code},
};
use whimbrel_service::api::{
    Call, EntryId, MailboxCall, MailboxName, NewMail, Replaced, Reply, UploadId,
};

use self::{
    source::{Source, SourceStep},
    upload::Upload,
};
use super::{
    context::Context,
    expunge,
    mailboxes::status_call,
    outcome::{EndCode, Outcome},
    task::{Expect, Step, Task, Wake},
};

/// APPEND or REPLACE.
pub(super) struct Append {
    name: MailboxName,
    replaces: Option<Replaced>,
    /// The mailbox was seen to exist.
    checked: bool,
    /// Messages that are whole and uploaded, and their uploads.
    messages: Vec<NewMail>,
    finished: Vec<UploadId>,
    /// Of an import: what `messages` are elsewhere.
    imports: Vec<EntryId>,
    /// Content rows of `messages`, in bytes.
    content_bytes: usize,
    /// The message in hand.
    upload: Option<Box<Upload>>,
    state: State,
}

/// What the answer under way is for.
enum State {
    /// None: the client sends, or the command has just begun.
    Reading,
    /// Is there such a mailbox? Then this part.
    Checking(Part),
    /// A blob is begun, for this part.
    Creating(Part),
    /// A chunk goes to the store; then more of what is read.
    Writing(Then),
    /// Octets that a URL names.
    Url(Box<Source>),
    /// The message's blob is whole.
    Finishing(Bytes),
    /// The service names the blobs, or they are given up after all.
    Appending,
    /// Uploads are given up, these are left; then this is the answer.
    GivingUp(Vec<UploadId>, Option<Outcome>),
}

/// What octets of a message come from.
enum Part {
    Literal(AppendLiteral),
    Url(String),
}

/// What follows when a chunk is written.
enum Then {
    Read,
    Url(Box<Source>),
    Finish(Bytes),
}

/// A non-synchronising literal up to this size is taken without asking first whether there is such a mailbox: it is on its way already.
const UNCHECKED_BYTES_MAX: u64 = 64 * 1024;

impl Append {
    pub(super) fn new(cx: &Context, begin: AppendBegin) -> Result<Append, Outcome> {
        let name = MailboxName::new(begin.mailbox.as_str())
            .map_err(|error| Outcome::no(Code::Cannot, error.to_string()))?;
        let replaces = match begin.replaces {
            None => None,
            Some(replaces) => {
                expunge::writable(cx)?;
                let view = cx.view();
                let places = view
                    .places(&replaces.set, replaces.uid)
                    .map_err(|_| Outcome::bad("No such message"))?;
                // "NO - replace error; can't remove specified message" (RFC 8508, 3.2).
                let place = places
                    .iter()
                    .next()
                    .ok_or_else(|| Outcome::no(Code::NonExistent, "No such message"))?;
                Some(Replaced {
                    name: view.name.clone(),
                    uid: view.uid(place),
                })
            }
        };
        Ok(Append {
            name,
            replaces,
            checked: false,
            messages: Vec::new(),
            finished: Vec::new(),
            imports: Vec::new(),
            content_bytes: 0,
            upload: None,
            state: State::Reading,
        })
    }

    fn read(&mut self) -> Step {
        self.state = State::Reading;
        Step::Input(Expect::Append)
    }

    fn message(&mut self, cx: &Context, message: AppendMessage) -> Step {
        if self.messages.len() >= cx.limits.append_messages_max {
            return self.give_up(Outcome::no(
                Code::Limit,
                "Too many messages in one APPEND: send them in several",
            ));
        }
        if let Some(import) = message.import {
            if !cx.imports || self.replaces.is_some() {
                return self.give_up(Outcome::bad("expected the message"));
            }
            self.imports.push(EntryId(import.id));
        }
        self.upload = Some(Box::new(Upload::new(cx, message)));
        self.read()
    }

    /// The next part of the message in hand.
    fn part(&mut self, cx: &mut Context, part: Part) -> Step {
        let Some(upload) = &mut self.upload else {
            return Step::Done(Outcome::bug());
        };
        if let Part::Literal(literal) = &part
            && literal.utf8
            && !cx.utf8_accept
        {
            return self.give_up(Outcome::bad("UTF8 before ENABLE UTF8=ACCEPT"));
        }
        if let Part::Literal(literal) = &part
            && let Err(refused) = upload.announce(literal)
        {
            return self.give_up(refused.outcome());
        }
        let on_its_way = match &part {
            Part::Literal(literal) => !literal.synchronising && literal.size <= UNCHECKED_BYTES_MAX,
            Part::Url(_) => false,
        };
        if !self.checked && !on_its_way {
            let call = status_call(cx, &self.name);
            self.state = State::Checking(part);
            return Step::Call(call);
        }
        if upload.id.is_none() {
            self.state = State::Creating(part);
            let upload = upload.called(cx);
            return Step::Call(Call::BlobCreate(upload));
        }
        match part {
            Part::Literal(literal) => {
                if literal.synchronising {
                    encode::continuation(&mut cx.out, "Send the message");
                }
                self.state = State::Reading;
                Step::Input(Expect::Literal)
            }
            Part::Url(url) => match Source::new(cx, url) {
                Ok((source, call)) => {
                    self.state = State::Url(Box::new(source));
                    Step::Call(call)
                }
                Err(outcome) => self.give_up(outcome),
            },
        }
    }

    /// Octets have come; a whole chunk is given to the store.
    fn octets(&mut self, bytes: &[u8], then: Then) -> Step {
        let Some(upload) = &mut self.upload else {
            return Step::Done(Outcome::bug());
        };
        match upload.push(bytes) {
            Ok(()) => self.pass_on(then),
            Err(refused) => self.give_up(refused.outcome()),
        }
    }

    fn pass_on(&mut self, then: Then) -> Step {
        let Some(upload) = &mut self.upload else {
            return Step::Done(Outcome::bug());
        };
        if let Some(call) = upload.write(matches!(then, Then::Finish(_))) {
            self.state = State::Writing(then);
            return Step::Call(call);
        }
        match then {
            Then::Read => self.read(),
            Then::Url(source) => match source.wants() {
                Some(call) => {
                    self.state = State::Url(source);
                    Step::Call(call)
                }
                None => self.read(),
            },
            Then::Finish(content) => match upload.id {
                Some(upload) => {
                    self.state = State::Finishing(content);
                    Step::Call(Call::BlobFinish { upload })
                }
                None => Step::Done(Outcome::bug()),
            },
        }
    }

    /// What a URL led to.
    fn source(&mut self, mut source: Box<Source>, cx: &Context, reply: Reply) -> Step {
        let Some(upload) = &mut self.upload else {
            return Step::Done(Outcome::bug());
        };
        let mut pushed = Ok(());
        let mut take = |bytes: &[u8]| {
            if pushed.is_ok() {
                pushed = upload.push(bytes);
            }
        };
        let step = source.step(cx, reply, &mut take);
        if let Err(refused) = pushed {
            return self.give_up(refused.outcome());
        }
        match step {
            SourceStep::Call(call) => {
                self.state = State::Url(source);
                Step::Call(call)
            }
            SourceStep::Octets => self.pass_on(Then::Url(source)),
            SourceStep::Failed(outcome) => self.give_up(outcome),
        }
    }

    /// The message in hand is whole.
    fn message_end(&mut self, cx: &Context) -> Step {
        let Some(upload) = &mut self.upload else {
            return Step::Done(Outcome::bug());
        };
        match upload.end() {
            Err(refused) => self.give_up(refused.outcome()),
            Ok(content) => {
                self.content_bytes += content.len();
                // One is always taken: a summary has a limit of its own.
                if !self.messages.is_empty()
                    && self.content_bytes > cx.limits.append_summary_bytes_max
                {
                    return self.give_up(Outcome::no(
                        Code::Limit,
                        "Too many message parts in one APPEND: send the messages in several",
                    ));
                }
                self.pass_on(Then::Finish(content))
            }
        }
    }

    fn append(&mut self, cx: &Context) -> Step {
        if !self.imports.is_empty() && self.imports.len() != self.messages.len() {
            return self.give_up(Outcome::bad("All messages are imported, or none"));
        }
        self.state = State::Appending;
        if !self.imports.is_empty() {
            let imports = std::mem::take(&mut self.imports).into_iter();
            return Step::Call(cx.call(MailboxCall::Import {
                name: self.name.clone(),
                messages: imports.zip(std::mem::take(&mut self.messages)).collect(),
            }));
        }
        Step::Call(cx.call(MailboxCall::Append {
            session: cx.peer.session,
            name: self.name.clone(),
            messages: std::mem::take(&mut self.messages),
            replaces: self.replaces.clone(),
        }))
    }

    fn appended(&mut self, cx: &mut Context, uid_validity: u32, uids: Vec<u32>) -> Step {
        // "If the mailbox is currently selected, normal new message actions SHOULD occur" (RFC 9051, 6.3.12).
        if let Some(view) = &mut cx.view
            && view.name == self.name
        {
            view.dirty = true;
        }
        if uids.is_empty() {
            return Step::Done(Outcome::ok("All messages exist already"));
        }
        let code = EndCode::AppendUid { uid_validity, uids };
        if self.replaces.is_none() {
            return Step::Done(Outcome::ok_code(code, "Appended"));
        }
        // "also advised to send the APPENDUID response code in an untagged OK before sending the EXPUNGE" (RFC 8508, 4.3), which is
        // told at the end of the command.
        if let EndCode::AppendUid { uid_validity, uids } = code {
            let uids = whimbrel_imap::core::SequenceSet::from_numbers(uids);
            cx.ok(
                Some(Code::AppendUid(uid_validity, &uids)),
                "The new message is stored",
            );
        }
        Step::Done(Outcome::ok("Replaced"))
    }

    /// Gives up: what was uploaded is dropped, what still comes of the command is skipped.
    fn give_up(&mut self, outcome: Outcome) -> Step {
        let mut uploads = std::mem::take(&mut self.finished);
        uploads.extend(self.upload.take().and_then(|upload| upload.id));
        self.messages = Vec::new();
        self.state = State::GivingUp(uploads, Some(outcome));
        self.given_up()
    }

    fn given_up(&mut self) -> Step {
        let State::GivingUp(uploads, outcome) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        match uploads.pop() {
            Some(upload) => Step::Call(Call::BlobAbort { upload }),
            None => Step::Refuse(outcome.take().unwrap_or_else(Outcome::bug)),
        }
    }

    fn reply(&mut self, cx: &mut Context, reply: Reply) -> Step {
        let state = std::mem::replace(&mut self.state, State::Reading);
        match (state, reply) {
            (State::Checking(part), Reply::Status(_)) => {
                self.checked = true;
                self.part(cx, part)
            }
            (State::Checking(_), reply) => self.give_up(Outcome::failed_target(reply)),
            (State::Creating(part), Reply::Upload(id)) => {
                if let Some(upload) = &mut self.upload {
                    upload.id = Some(id);
                }
                self.part(cx, part)
            }
            (State::Writing(then), Reply::Done) => self.pass_on(then),
            (State::Url(source), reply) => self.source(source, cx, reply),
            (State::Finishing(content), Reply::Blob(blob)) => {
                if let Some(upload) = self.upload.take() {
                    self.finished.extend(upload.id);
                    if !upload.is_as_announced(&blob) {
                        return self.give_up(Outcome::bad("the octets have another hash"));
                    }
                    self.messages.push(upload.named(cx, blob, content));
                }
                self.read()
            }
            (State::Appending, Reply::Appended { uid_validity, uids }) => {
                self.finished = Vec::new();
                self.appended(cx, uid_validity, uids)
            }
            (State::Appending, reply) => self.give_up(Outcome::failed_target(reply)),
            (state @ State::GivingUp(..), _) => {
                self.state = state;
                self.given_up()
            }
            (_, reply) => self.give_up(Outcome::of_reply(reply)),
        }
    }
}

impl Task for Append {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match wake {
            Wake::Go => self.read(),
            Wake::Message(message) => self.message(cx, message),
            Wake::Literal(literal) => self.part(cx, Part::Literal(literal)),
            Wake::Url(url) => self.part(cx, Part::Url(url)),
            Wake::Chunk(bytes) => self.octets(bytes, Then::Read),
            Wake::MessageEnd => self.message_end(cx),
            Wake::AppendEnd => self.append(cx),
            Wake::Broken(text) => self.give_up(Outcome::bad(text)),
            Wake::Reply(reply) => self.reply(cx, reply),
            _ => Step::Done(Outcome::bug()),
        }
    }

    /// While the service may be naming the blobs none is given up, and those that are finished go with the connection; so there is only
    /// the one in hand.
    fn abandon(&mut self) -> Option<Call> {
        let upload = self.upload.take()?.id?;
        Some(Call::BlobAbort { upload })
    }
}
