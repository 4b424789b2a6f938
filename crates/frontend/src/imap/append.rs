//! APPEND (RFC 9051, 6.3.12; RFC 4315; RFC 7888).
//!
//! The message goes to the blob store chunk by chunk as it comes in, and beside that through the parser that makes its summary; no more of
//! it than one chunk is held. What can be refused is refused before the client is asked to send it.
//!
//! No message with NUL is stored: "The ASCII NUL character, %x00, MUST NOT be used anywhere, with the exception of the OCTET production"
//! (RFC 9051, 9), and BODY[] could not show it as it was sent. In a literal it is an error of syntax. A literal8 may hold it, but IMAP4rev2
//! takes over "the FETCH side of the BINARY extension" only (E, 2), and "If the destination mailbox does not support the storage of binary
//! content, the server MUST fail the request and issue a "NO" response that contains the "UNKNOWN-CTE" extended response code" (RFC 3516,
//! 4.4). A literal8 without NUL is as good as a literal.

use bytes::Bytes;
use whimbrel_imap::{
    AppendBegin,
    encode::{self, Code},
};
use whimbrel_mime::Parser;
use whimbrel_service::{
    api::{BLOB_CHUNK_BYTES_MAX, BlobName, Call, Date, MailboxCall, MailboxName, Reply, UploadId},
    content::Content,
};

use super::{
    context::Context,
    mailboxes::status_call,
    task::{EndCode, Expect, Outcome, Step, Task, Wake},
    view::service_flags,
};

/// APPEND.
pub(super) struct Append {
    begin: AppendBegin,
    name: MailboxName,
    parser: Option<Box<Parser>>,
    /// Octets not yet given to the store.
    buffer: Vec<u8>,
    upload: Option<UploadId>,
    received: u64,
    content: Bytes,
    state: State,
}

enum State {
    Begin,
    /// Is there such a mailbox?
    Checked,
    Created,
    /// The client sends.
    Receiving,
    /// A chunk goes to the store; `true`: it was the last one.
    Writing(bool),
    Finishing,
    /// The service names the blob, or the upload is given up after all.
    Appending(Option<UploadId>),
    /// The upload was given up; the rest of the message is thrown away, if there is one (`true`), and then this is the answer.
    Dropping(bool, Option<Outcome>),
    Ended,
}

/// A non-synchronising literal up to this size is taken without asking first whether there is such a mailbox: it is on its way already.
const UNCHECKED_BYTES_MAX: u64 = 64 * 1024;

impl Append {
    pub(super) fn new(cx: &Context, begin: AppendBegin) -> Result<Append, Outcome> {
        if begin.too_big {
            return Err(Outcome::no(Code::TooBig, "Message is too big"));
        }
        if begin.size == 0 {
            return Err(Outcome::no(
                Code::Cannot,
                "A message has one octet at least",
            ));
        }
        let name = MailboxName::new(begin.mailbox.as_str())
            .map_err(|error| Outcome::no(Code::Cannot, error.to_string()))?;
        Ok(Append {
            name,
            parser: Some(Box::new(Parser::new(&cx.limits.mime))),
            buffer: Vec::new(),
            upload: None,
            received: 0,
            content: Bytes::new(),
            state: State::Begin,
            begin,
        })
    }

    fn create(&mut self) -> Step {
        self.state = State::Created;
        Step::Call(Call::BlobCreate)
    }

    /// Gives the next chunk to the store, if there is a whole one, or if nothing more comes.
    fn pass_on(&mut self, ended: bool) -> Step {
        let Some(upload) = self.upload else {
            return Step::Done(Outcome::bug());
        };
        let len = self.buffer.len().min(BLOB_CHUNK_BYTES_MAX);
        if len == BLOB_CHUNK_BYTES_MAX || (ended && len > 0) {
            let rest = self.buffer.split_off(len);
            let bytes = Bytes::from(std::mem::replace(&mut self.buffer, rest));
            self.state = State::Writing(ended);
            return Step::Call(Call::BlobWrite { upload, bytes });
        }
        if ended {
            self.buffer = Vec::new();
            self.state = State::Finishing;
            return Step::Call(Call::BlobFinish { upload });
        }
        self.state = State::Receiving;
        Step::Input(Expect::MoreLiteral)
    }

    /// Gives up; `rest`: more of the message is still to come.
    fn give_up(&mut self, rest: bool, outcome: Outcome) -> Step {
        self.buffer = Vec::new();
        self.parser = None;
        self.state = State::Dropping(rest, Some(outcome));
        match self.upload.take() {
            Some(upload) => Step::Call(Call::BlobAbort { upload }),
            None => self.dropped(),
        }
    }

    fn dropped(&mut self) -> Step {
        match &mut self.state {
            State::Dropping(true, _) => Step::Input(Expect::MoreLiteral),
            State::Dropping(false, outcome) => {
                Step::Done(outcome.take().unwrap_or_else(Outcome::bug))
            }
            _ => Step::Done(Outcome::bug()),
        }
    }

    fn append(&mut self, cx: &Context, blob: BlobName) -> Step {
        // While the service may be naming the blob it is not given up, not even if the connection ends.
        self.state = State::Appending(self.upload.take());
        let date = match self.begin.date {
            Some(date) => Date {
                seconds: date.unix_seconds(),
                zone_minutes: date.zone_minutes(),
            },
            None => Date {
                seconds: cx.now.wall_seconds() as i64,
                zone_minutes: 0,
            },
        };
        Step::Call(cx.call(MailboxCall::Append {
            session: cx.session,
            name: self.name.clone(),
            flags: service_flags(&self.begin.flags),
            date,
            // Limited before (`append_bytes_max`).
            size: u32::try_from(self.received).unwrap_or(u32::MAX),
            blob,
            content: std::mem::take(&mut self.content),
        }))
    }
}

/// The answer to a message with NUL.
fn nul(begin: &AppendBegin) -> Outcome {
    if begin.binary || begin.utf8 {
        Outcome::no(
            Code::UnknownCte,
            "Messages that hold NUL cannot be stored: encode them",
        )
    } else {
        Outcome::bad("NUL in literal")
    }
}

impl Task for Append {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&mut self.state, wake) {
            (State::Begin, Wake::Go) => {
                if self.begin.synchronising || self.begin.size > UNCHECKED_BYTES_MAX {
                    self.state = State::Checked;
                    return Step::Call(status_call(cx, &self.name));
                }
                self.create()
            }
            (State::Checked, Wake::Reply(Reply::Status(_))) => self.create(),
            (State::Checked, Wake::Reply(reply)) => {
                self.state = State::Ended;
                Step::Refuse(Outcome::failed_target(reply))
            }
            (State::Created, Wake::Reply(Reply::Upload(upload))) => {
                self.upload = Some(upload);
                self.state = State::Receiving;
                if self.begin.synchronising {
                    encode::continuation(&mut cx.out, "Send the message");
                }
                Step::Input(Expect::Literal)
            }
            (State::Created, Wake::Reply(reply)) => {
                self.state = State::Ended;
                Step::Refuse(Outcome::of_reply(reply))
            }
            (State::Receiving, Wake::Chunk(bytes)) if memchr::memchr(0, bytes).is_some() => {
                self.give_up(true, nul(&self.begin))
            }
            (State::Receiving, Wake::Chunk(bytes)) => {
                if let Some(parser) = &mut self.parser {
                    parser.push(bytes);
                }
                self.received += bytes.len() as u64;
                self.buffer.extend_from_slice(bytes);
                self.pass_on(false)
            }
            (State::Receiving, Wake::AppendEnd) => {
                if let Some(parser) = self.parser.take() {
                    let summary = parser.finish().encode();
                    self.content = Content {
                        prefix: Bytes::new(),
                        summary: summary.into(),
                    }
                    .encode();
                }
                self.pass_on(true)
            }
            (State::Receiving, Wake::Broken(text)) => self.give_up(false, Outcome::bad(text)),
            (State::Writing(ended), Wake::Reply(Reply::Done)) => {
                let ended = *ended;
                self.pass_on(ended)
            }
            (State::Writing(ended), Wake::Reply(reply)) => {
                let rest = !*ended;
                self.give_up(rest, Outcome::of_reply(reply))
            }
            (State::Finishing, Wake::Reply(Reply::Blob(blob))) => self.append(cx, blob),
            (State::Finishing, Wake::Reply(reply)) => self.give_up(false, Outcome::of_reply(reply)),
            (State::Appending(_), Wake::Reply(Reply::Appended { uid_validity, uid })) => {
                self.state = State::Ended;
                // "If the mailbox is currently selected, normal new message actions SHOULD occur" (RFC 9051, 6.3.12).
                if let Some(view) = &mut cx.view
                    && view.name == self.name
                {
                    view.dirty = true;
                }
                Step::Done(Outcome::ok_code(
                    EndCode::AppendUid { uid_validity, uid },
                    "Appended",
                ))
            }
            (State::Appending(upload), Wake::Reply(reply)) => {
                self.upload = upload.take();
                self.give_up(false, Outcome::failed_target(reply))
            }
            (State::Dropping(..), Wake::Reply(_)) => self.dropped(),
            (State::Dropping(..), Wake::Chunk(_)) => Step::Input(Expect::MoreLiteral),
            (State::Dropping(rest, _), Wake::AppendEnd | Wake::Broken(_)) => {
                *rest = false;
                self.dropped()
            }
            _ => Step::Done(Outcome::bug()),
        }
    }

    fn abandon(&mut self) -> Option<Call> {
        self.upload.take().map(|upload| Call::BlobAbort { upload })
    }
}
