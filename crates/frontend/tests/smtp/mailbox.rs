//! What has arrived in an account, read back by calls.

use whimbrel_mime::{Limits, Parser, Summary};
use whimbrel_service::{
    api::{AccountId, Call, MailboxCall, MailboxName, Reply, SessionId},
    content::Content,
};

use super::world::World;

/// A delivered message.
#[derive(Debug)]
pub(crate) struct Arrived {
    /// Trace header fields, unfolded.
    pub(crate) prefix: String,
    pub(crate) body: Vec<u8>,
}

impl Arrived {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl World {
    /// The messages of a mailbox. Sizes and summaries are compared with the bytes that are there.
    pub(crate) fn arrived(&mut self, account: AccountId, mailbox: &str) -> Vec<Arrived> {
        let name = MailboxName::new(mailbox).unwrap();
        let select = MailboxCall::Select {
            session: SessionId(1 << 40),
            name: name.clone(),
            read_only: true,
        };
        let Reply::Selected(selected) = self.mailbox(account, select) else {
            panic!("{mailbox}");
        };
        let uids = selected.uids.to_vec();
        let Reply::Rows(rows) = self.mailbox(account, MailboxCall::Rows { name, uids }) else {
            panic!("{mailbox}");
        };
        let mut all = Vec::new();
        for row in rows {
            let origins = vec![row.origin];
            let Reply::Contents(contents) = self.call(Call::Contents { account, origins }) else {
                panic!("no contents");
            };
            let content = Content::decode(contents[0].as_ref().unwrap()).unwrap();
            let body = self.blob(row.blob);
            let whole = [&content.prefix[..], &body].concat();
            assert_eq!(row.size as usize, whole.len(), "RFC822.SIZE");
            assert_eq!(row.open_end, !whole.ends_with(b"\r\n"));
            let mut parser = Parser::new(&Limits::default());
            parser.push(&whole);
            let fresh = Summary {
                prefix_len: content.prefix.len() as u64,
                ..parser.finish()
            };
            assert_eq!(Summary::decode(&content.summary).unwrap(), fresh);
            let prefix = String::from_utf8(content.prefix.to_vec()).unwrap();
            all.push(Arrived {
                prefix: prefix.replace("\r\n ", " "),
                body,
            });
        }
        all
    }

    /// The bodies in a mailbox as text.
    pub(crate) fn bodies(&mut self, account: AccountId, mailbox: &str) -> Vec<String> {
        let arrived = self.arrived(account, mailbox);
        arrived.iter().map(|one| one.text().to_owned()).collect()
    }
}
