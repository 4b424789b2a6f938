//! What a URL of CATENATE names (RFC 4469, 3): "the octets of the body part pointed to by that URL are appended, as if the literal
//! returned in a FETCH BODY response were put in place of the message part specifier".
//!
//! The octets are read from the store chunk by chunk. `\\Seen` is not set, and nothing is decoded but a message that the part is in.

use whimbrel_imap::{
    command::{MessageUrl, Partial, UrlMailbox},
    encode::Code,
};
use whimbrel_mime::{HeaderFilter, Wanted};
use whimbrel_service::api::{BlobName, Call, Failure, MailboxCall, MailboxName, Reply};

use super::super::{
    blob::{Opened, Reader},
    context::Context,
    fetch::{Located, locate},
    outcome::{EndCode, Outcome},
    unwrap::Unwrap,
};

/// A URL that is being read.
pub(super) struct Source {
    /// As the client gave it.
    text: String,
    url: MessageUrl,
    name: MailboxName,
    state: State,
}

enum State {
    /// Is the UIDVALIDITY still that?
    Status,
    /// Which message?
    Row,
    /// What lies where in it?
    Content(BlobName),
    Octets {
        blob: BlobName,
        reader: Reader,
        unwrap: Option<Unwrap>,
        sieve: Option<Box<Sieve>>,
    },
}

/// HEADER.FIELDS, and what of its fields is asked for.
struct Sieve {
    filter: HeaderFilter,
    /// Octets to be left out, then those to be taken.
    skip: u64,
    left: u64,
}

/// What a source wants next.
pub(super) enum SourceStep {
    Call(Call),
    /// To go on when the octets are stored.
    Octets,
    Failed(Outcome),
}

impl Source {
    /// Begins to read `text`, and the first call.
    pub(super) fn new(cx: &Context, text: String) -> Result<(Source, Call), Outcome> {
        let Ok(url) = MessageUrl::parse(&text, &cx.limits.syntax) else {
            return Err(bad_url(text, "Not a relative URL of a message"));
        };
        let Some(name) = name_of(cx, &url.mailbox) else {
            return Err(bad_url(text, "No such mailbox"));
        };
        let mut source = Source {
            text,
            url,
            name,
            state: State::Status,
        };
        let call = match source.url.uid_validity {
            None => source.ask_row(cx),
            Some(_) => cx.call(MailboxCall::Status {
                name: source.name.clone(),
            }),
        };
        Ok((source, call))
    }

    fn ask_row(&mut self, cx: &Context) -> Call {
        self.state = State::Row;
        cx.call(MailboxCall::Rows {
            name: self.name.clone(),
            uids: vec![self.url.uid],
        })
    }

    fn bad(&mut self, why: &'static str) -> SourceStep {
        SourceStep::Failed(bad_url(std::mem::take(&mut self.text), why))
    }

    /// Goes on with the answer to its call; octets are given to `take`.
    pub(super) fn step(
        &mut self,
        cx: &Context,
        reply: Reply,
        take: &mut impl FnMut(&[u8]),
    ) -> SourceStep {
        match (&mut self.state, reply) {
            (_, Reply::Failed(Failure::NoSuchMailbox)) => self.bad("No such mailbox"),
            (State::Status, Reply::Status(status)) => {
                if self.url.uid_validity == Some(status.uid_validity) {
                    SourceStep::Call(self.ask_row(cx))
                } else {
                    self.bad("UIDVALIDITY has changed")
                }
            }
            (State::Row, Reply::Rows(rows)) => match (rows.first(), cx.account) {
                (Some(row), Some(account)) => {
                    self.state = State::Content(row.blob);
                    SourceStep::Call(Call::Contents {
                        account,
                        origins: vec![row.origin],
                    })
                }
                _ => self.bad("No such message"),
            },
            (State::Content(blob), Reply::Contents(contents)) => {
                let blob = *blob;
                match contents.first() {
                    Some(Some(row)) => match Opened::new(row, Wanted::ALL) {
                        Some(opened) => self.open(blob, &opened, take),
                        None => SourceStep::Failed(Outcome::no(
                            Code::Corruption,
                            "A message that the URL names cannot be read",
                        )),
                    },
                    // It was expunged after its row was read.
                    _ => self.bad("No such message"),
                }
            }
            (
                State::Octets {
                    reader,
                    unwrap,
                    sieve,
                    ..
                },
                Reply::Bytes(bytes),
            ) => {
                if reader.took(&bytes).is_err() {
                    return SourceStep::Failed(Outcome::no(
                        Code::Unavailable,
                        "A message that the URL names cannot be read now",
                    ));
                }
                pass(unwrap, sieve, Some(&bytes), take);
                self.end(take);
                SourceStep::Octets
            }
            (_, reply) => SourceStep::Failed(Outcome::of_reply(reply)),
        }
    }

    /// The message is known: finds the part in it, and gives what of it lies in front of the blob.
    fn open(
        &mut self,
        blob: BlobName,
        opened: &Opened,
        take: &mut impl FnMut(&[u8]),
    ) -> SourceStep {
        let Some(Located {
            span,
            within,
            fields,
        }) = locate(opened, &self.url.section)
        else {
            return self.bad("No such part");
        };
        let Partial { offset, length } = self.url.partial.unwrap_or(Partial {
            offset: 0,
            length: i64::MAX as u64,
        });
        let (span, mut sieve) = match fields {
            None => (span.partial(offset, length), None),
            Some(fields) => {
                let sieve = Sieve {
                    filter: HeaderFilter::new(&fields.names, fields.not),
                    skip: offset,
                    left: length,
                };
                (span, Some(Box::new(sieve)))
            }
        };
        let mut unwrap = within.map(|within| Unwrap::new(within, span));
        let read = within.map_or(span, |within| within.body);
        let mut reader = Reader::new(&opened.summary, read);
        if let Some(piece) = reader.prefix(&opened.prefix) {
            pass(&mut unwrap, &mut sieve, Some(&piece), take);
        }
        self.state = State::Octets {
            blob,
            reader,
            unwrap,
            sieve,
        };
        self.end(take);
        SourceStep::Octets
    }

    /// What decoder and sieve still hold, when all is read.
    fn end(&mut self, take: &mut impl FnMut(&[u8])) {
        if self.wants().is_some() {
            return;
        }
        let State::Octets { unwrap, sieve, .. } = &mut self.state else {
            return;
        };
        pass(unwrap, sieve, None, take);
        if let Some(sieve) = sieve.take() {
            let Sieve {
                filter,
                mut skip,
                mut left,
            } = *sieve;
            filter.finish(&mut |bytes| cut(&mut skip, &mut left, bytes, take));
        }
    }

    /// The next call; `None` when all is read.
    pub(super) fn wants(&self) -> Option<Call> {
        match &self.state {
            State::Octets {
                unwrap: Some(unwrap),
                ..
            } if unwrap.is_done() => None,
            State::Octets { blob, reader, .. } => reader.call(*blob),
            _ => None,
        }
    }
}

/// The next octets that were read; `None` at their end.
fn pass(
    unwrap: &mut Option<Unwrap>,
    sieve: &mut Option<Box<Sieve>>,
    bytes: Option<&[u8]>,
    take: &mut impl FnMut(&[u8]),
) {
    let mut sift = |bytes: &[u8]| match sieve.as_deref_mut() {
        None => take(bytes),
        Some(Sieve { filter, skip, left }) => {
            filter.push(bytes, &mut |bytes| cut(skip, left, bytes, take));
        }
    };
    match (unwrap, bytes) {
        (Some(unwrap), bytes) => unwrap.push(bytes, &mut sift),
        (None, Some(bytes)) => sift(bytes),
        (None, None) => {}
    }
}

/// Gives what is asked for of octets that follow each other.
fn cut(skip: &mut u64, left: &mut u64, bytes: &[u8], take: &mut impl FnMut(&[u8])) {
    let from = (bytes.len() as u64).min(*skip);
    *skip -= from;
    let len = (bytes.len() as u64 - from).min(*left);
    *left -= len;
    take(&bytes[from as usize..(from + len) as usize]);
}

/// "When in the selected state, the base URL is considered "imap://user@server/mailbox"" (RFC 4469, 3).
fn name_of(cx: &Context, mailbox: &UrlMailbox) -> Option<MailboxName> {
    match mailbox {
        UrlMailbox::Named(name) => MailboxName::new(name.as_str()).ok(),
        UrlMailbox::Selected => cx.view.as_ref().map(|view| view.name.clone()),
        UrlMailbox::Beside(name) => {
            let above = cx.view.as_ref().and_then(|view| view.name.parent());
            let name = above.map_or_else(|| name.clone(), |above| format!("{above}/{name}"));
            MailboxName::new(&name).ok()
        }
    }
}

fn bad_url(text: String, why: &'static str) -> Outcome {
    Outcome::no_code(EndCode::BadUrl(text), why)
}
