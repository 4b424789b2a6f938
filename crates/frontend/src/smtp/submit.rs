//! What a session of submission asks the service: whether the client may send as whom it says.

use bytes::Bytes;
use whimbrel_service::{
    api::{Call, Failure, Reply},
    machine::Now,
    queue::entry_id,
};
use whimbrel_smtp::{Enhanced, Refusal, ReversePath, session::DataSummary, trace::WallTime};

use super::{
    Message, Pending, SmtpSession, failed,
    mailboxes::Parts,
    submission::{Additions, Prepared},
    time,
};
use crate::session::Action;

/// A header whose senders are being asked about.
pub(super) struct Checked {
    /// What is to be stored when they are the client's own.
    bytes: Bytes,
    /// How many bytes of the client's are still unacknowledged.
    length: usize,
    /// The message has ended, too.
    end: Option<DataSummary>,
    senders: Vec<Parts>,
}

/// To a recipient elsewhere.
pub(super) fn no_relaying() -> Refusal {
    Refusal::new(
        550,
        Enhanced(7, 1),
        "This server does not send mail to other domains",
    )
}

impl SmtpSession {
    /// MAIL: the sender must be the account's own. `<>` is for notifications, which clients send, too (RFC 8098, 3).
    pub(super) fn may_send_from(&mut self, now: Now, from: &ReversePath) -> Option<Action> {
        let Some(account) = self.client.account else {
            // The machine lets nobody get here without a login.
            self.answered(now);
            self.machine
                .answer_mail(time(now), Err(Refusal::try_later()));
            return None;
        };
        let parts = from.mailbox().map(|mailbox| {
            let local = mailbox.local().as_str().to_owned();
            (local, mailbox.domain().as_str().to_owned())
        });
        let call = Call::MaySend {
            account,
            addresses: parts.into_iter().collect(),
            begins: true,
        };
        self.call(Pending::Sender, call)
    }

    pub(super) fn sender_checked(&mut self, now: Now, reply: &Reply) {
        let answer = match reply {
            Reply::Done => Ok(()),
            Reply::NotYours(_) => Err(Refusal::new(
                553,
                Enhanced(7, 1),
                "This sender address is not yours",
            )),
            Reply::Failed(Failure::Throttled) => Err(Refusal::new(
                450,
                Enhanced(7, 1),
                "You have sent too many messages, try again later",
            )),
            reply => Err(failed(reply)),
        };
        self.answered(now);
        self.machine.answer_mail(time(now), answer);
    }

    /// Part of a message whose header is not complete.
    pub(super) fn header_chunk(&mut self, now: Now, bytes: &[u8]) -> Option<Action> {
        let message = self.message.as_mut()?;
        match message.header.as_mut()?.push(bytes) {
            Ok(Some(behind)) => return self.header_complete(now, &behind, bytes.len(), None),
            Ok(None) => {}
            Err(refusal) => {
                message.header = None;
                message.failed = Some(refusal);
            }
        }
        self.machine.acknowledge(time(now), bytes.len());
        None
    }

    /// The header is there, and what came behind it: asks about those it names.
    pub(super) fn header_complete(
        &mut self,
        now: Now,
        behind: &[u8],
        length: usize,
        end: Option<DataSummary>,
    ) -> Option<Action> {
        let Some(Message {
            header,
            upload: Some(upload),
            failed,
            blind,
            resent,
            ..
        }) = &mut self.message
        else {
            return self.end_failed(now);
        };
        let additions = Additions {
            time: WallTime::new(i64::try_from(now.wall_seconds()).unwrap_or(i64::MAX), 0),
            id: &entry_id(upload).to_string(),
            host: &self.config.host,
        };
        match (header.take()?.finish(&additions), self.client.account) {
            (Ok(prepared), Some(account)) => {
                let Prepared {
                    header: mut bytes,
                    blind: fields,
                    senders,
                    is_resent,
                } = prepared;
                *blind = fields;
                *resent = is_resent;
                bytes.extend_from_slice(behind);
                let call = Call::MaySend {
                    account,
                    addresses: senders.clone(),
                    begins: false,
                };
                let checked = Checked {
                    bytes: bytes.into(),
                    length,
                    end,
                    senders,
                };
                self.call(Pending::Header(Box::new(checked)), call)
            }
            (Err(refusal), _) => {
                *failed = Some(refusal);
                self.header_refused(now, length, end)
            }
            (_, None) => {
                *failed = Some(Refusal::try_later());
                self.header_refused(now, length, end)
            }
        }
    }

    pub(super) fn header_checked(
        &mut self,
        now: Now,
        checked: Checked,
        reply: &Reply,
    ) -> Option<Action> {
        let Checked {
            bytes,
            length,
            end,
            senders,
        } = checked;
        let message = self.message.as_mut()?;
        match (reply, message.upload) {
            (Reply::Done, Some(upload)) => {
                message.parser.push(&bytes);
                self.write(upload, length, bytes, end)
            }
            (reply, _) => {
                message.failed = Some(match reply {
                    Reply::NotYours(place) => not_yours(senders.get(*place)),
                    reply => failed(reply),
                });
                self.header_refused(now, length, end)
            }
        }
    }

    fn header_refused(
        &mut self,
        now: Now,
        length: usize,
        end: Option<DataSummary>,
    ) -> Option<Action> {
        if end.is_some() {
            return self.end_failed(now);
        }
        self.machine.acknowledge(time(now), length);
        None
    }
}

fn not_yours(sender: Option<&Parts>) -> Refusal {
    let sender = sender.map_or_else(String::new, |(local, domain)| {
        format!(" <{local}@{domain}>")
    });
    Refusal::new(
        550,
        Enhanced(7, 1),
        &format!("The sender{sender} in the header is not yours"),
    )
}
