//! STATUS (RFC 9051, section 6.3.11; RFC 7162, 7889, 8438, 8474, 9208).

use super::CommandBody;
use crate::decode::cursor::{Cursor, Refusal};

/// What STATUS asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusItem {
    /// `MESSAGES`
    Messages,
    /// `RECENT` (rev1)
    Recent,
    /// `UIDNEXT`
    UidNext,
    /// `UIDVALIDITY`
    UidValidity,
    /// `UNSEEN`
    Unseen,
    /// `DELETED`
    Deleted,
    /// `SIZE` (RFC 8438)
    Size,
    /// `HIGHESTMODSEQ` (RFC 7162)
    HighestModSeq,
    /// `MAILBOXID` (RFC 8474)
    MailboxId,
    /// `APPENDLIMIT` (RFC 7889)
    AppendLimit,
    /// `DELETED-STORAGE` (RFC 9208)
    DeletedStorage,
}

impl StatusItem {
    /// All there are.
    pub const ALL: [Self; 11] = [
        Self::Messages,
        Self::Recent,
        Self::UidNext,
        Self::UidValidity,
        Self::Unseen,
        Self::Deleted,
        Self::Size,
        Self::HighestModSeq,
        Self::MailboxId,
        Self::AppendLimit,
        Self::DeletedStorage,
    ];

    /// As the protocol spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "MESSAGES",
            Self::Recent => "RECENT",
            Self::UidNext => "UIDNEXT",
            Self::UidValidity => "UIDVALIDITY",
            Self::Unseen => "UNSEEN",
            Self::Deleted => "DELETED",
            Self::Size => "SIZE",
            Self::HighestModSeq => "HIGHESTMODSEQ",
            Self::MailboxId => "MAILBOXID",
            Self::AppendLimit => "APPENDLIMIT",
            Self::DeletedStorage => "DELETED-STORAGE",
        }
    }
}

/// `"STATUS" SP mailbox SP "(" status-att *(SP status-att) ")"`
pub(crate) fn parse(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    c.space()?;
    let mailbox = c.mailbox()?;
    c.space()?;
    Ok(CommandBody::Status {
        mailbox,
        items: items(c)?,
    })
}

/// `"(" status-att *(SP status-att) ")"`
pub(crate) fn items(c: &mut Cursor<'_>) -> Result<Vec<StatusItem>, Refusal> {
    c.open()?;
    let mut items = Vec::new();
    loop {
        let found = StatusItem::ALL
            .into_iter()
            .find(|item| c.skip_word(item.as_str().as_bytes()));
        let item = found.ok_or("unknown STATUS item")?;
        if !items.contains(&item) {
            items.push(item);
        }
        if !c.more()? {
            return Ok(items);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::MailboxName;
    use crate::testing::{check, refuse};

    #[test]
    fn statuses() {
        let status = |items: &[StatusItem]| CommandBody::Status {
            mailbox: MailboxName::new("blurdybloop").unwrap(),
            items: items.to_vec(),
        };
        check(
            "STATUS blurdybloop (UIDNEXT MESSAGES)",
            status(&[StatusItem::UidNext, StatusItem::Messages]),
        );
        check(
            "STATUS blurdybloop (size Size)",
            status(&[StatusItem::Size]),
        );
        let all = "(MESSAGES RECENT UIDNEXT UIDVALIDITY UNSEEN DELETED SIZE HIGHESTMODSEQ MAILBOXID APPENDLIMIT DELETED-STORAGE)";
        check(
            &format!("STATUS blurdybloop {all}"),
            status(&StatusItem::ALL),
        );
        refuse("STATUS blurdybloop ()", "unknown STATUS item");
        refuse("STATUS blurdybloop (FOO)", "unknown STATUS item");
        refuse("STATUS blurdybloop UIDNEXT", "expected (");
        refuse("STATUS blurdybloop (UIDNEXT", "expected )");
        refuse("STATUS blurdybloop", "expected a space");
    }
}
