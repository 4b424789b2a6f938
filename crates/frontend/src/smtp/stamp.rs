//! What is put before a message for each who receives it, and the delivery that results.

use bytes::Bytes;
use whimbrel_mime::Summary;
use whimbrel_service::{
    api::{AccountId, Delivery, MailboxName, Target, sent_target},
    content::Content,
};
use whimbrel_smtp::{
    Domain, LocalPart, Mailbox,
    session::Envelope,
    trace::{self, Received, WallTime},
};

/// What is the same in the trace header fields of all recipients.
pub(super) struct Stamp<'a> {
    pub(super) host: &'a Domain,
    pub(super) id: String,
    pub(super) time: WallTime,
    pub(super) summary_bytes_max: usize,
    pub(super) mime: &'a whimbrel_mime::Limits,
    /// The message does not end with CRLF.
    pub(super) open_end: bool,
}

impl Stamp<'_> {
    pub(super) fn delivery(
        &self,
        envelope: &Envelope,
        summary: &Summary,
        target: &Target,
        alone: bool,
    ) -> Delivery {
        let mut prefix = trace::return_path(&envelope.mail.from);
        if let Some(mailbox) = quoted(&target.address) {
            prefix.extend(trace::delivered_to(&mailbox));
        }
        // Who else received it is nobody's business (RFC 5321, 7.2).
        let recipient = if alone {
            envelope.recipients.first().and_then(|to| to.path.mailbox())
        } else {
            None
        };
        prefix.extend(trace::received(&Received {
            envelope,
            by: self.host,
            id: &self.id,
            recipient,
            time: self.time,
        }));
        let (content, size) = self.content(summary, prefix);
        let target_name = target
            .detail
            .as_deref()
            .and_then(|detail| MailboxName::new(detail).ok());
        Delivery {
            account: target.account,
            target: target_name.unwrap_or_else(MailboxName::inbox),
            content,
            size,
            open_end: self.open_end,
            sent: false,
        }
    }

    /// The sender's own copy. In front of it stand when and how it was accepted, and the fields that nobody else sees.
    pub(super) fn sent(
        &self,
        envelope: &Envelope,
        summary: &Summary,
        account: AccountId,
        blind: Vec<u8>,
    ) -> Delivery {
        let mut prefix = trace::received(&Received {
            envelope,
            by: self.host,
            id: &self.id,
            recipient: None,
            time: self.time,
        });
        prefix.extend(blind);
        let (content, size) = self.content(summary, prefix);
        Delivery {
            account,
            target: sent_target(),
            content,
            size,
            open_end: self.open_end,
            sent: true,
        }
    }

    /// The encoded content row of a message behind a prefix, and the size of both.
    fn content(&self, summary: &Summary, prefix: Vec<u8>) -> (Bytes, u32) {
        let limits = whimbrel_mime::Limits {
            summary_bytes_max: self.summary_bytes_max,
            ..self.mime.clone()
        };
        let summary = summary.clone().with_prefix(&prefix, &limits);
        let size = u32::try_from(summary.size).unwrap_or(u32::MAX);
        let content = Content {
            prefix: prefix.into(),
            summary: summary.encode().into(),
        };
        (content.encode(), size)
    }
}

/// An address of ours, whose local part has no quotes, as it is written in mail: with quotes where it needs them (`"a..b"@example.org`).
fn quoted(address: &str) -> Option<Mailbox> {
    let (local, domain) = address.rsplit_once('@')?;
    Mailbox::new(LocalPart::new(local).ok()?, Domain::new(domain).ok()?).ok()
}
