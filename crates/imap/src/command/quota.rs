//! GETQUOTA and GETQUOTAROOT (RFC 9208, section 4.1).

use super::CommandBody;
use crate::decode::cursor::{Cursor, Refusal};

/// `"GETQUOTA" SP quota-root-name`
pub(crate) fn get(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    c.space()?;
    c.astring().map(CommandBody::GetQuota)
}

/// `"GETQUOTAROOT" SP mailbox`
pub(crate) fn get_root(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    c.space()?;
    c.mailbox().map(CommandBody::GetQuotaRoot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::MailboxName;
    use crate::testing::{check, refuse};

    #[test]
    fn quotas() {
        check("GETQUOTA \"\"", CommandBody::GetQuota(Vec::new()));
        check("getquota !alice", CommandBody::GetQuota(b"!alice".to_vec()));
        let inbox = MailboxName::new("INBOX").unwrap();
        check("GETQUOTAROOT inbox", CommandBody::GetQuotaRoot(inbox));
        refuse("GETQUOTA", "expected a space");
        refuse("GETQUOTAROOT", "expected a space");
    }
}
