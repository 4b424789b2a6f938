//! QUOTA and QUOTAROOT (RFC 9208, section 4.2).

use super::strings::{mailbox, quoted};
use crate::core::set::push_decimal;

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Bytes of messages; told in units of 1,024.
    Storage,
    /// Messages.
    Message,
    /// Mailboxes.
    Mailbox,
}

/// Usage and limit of a resource, in the units that [`Resource`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceUse {
    /// Which.
    pub resource: Resource,
    /// How much is used.
    pub used: u64,
    /// How much may be.
    pub limit: u64,
}

/// `* QUOTA root (resource usage limit ...)`.
pub fn quota(out: &mut Vec<u8>, root: &str, uses: &[ResourceUse]) {
    out.extend_from_slice(b"* QUOTA ");
    quoted(out, root.as_bytes());
    out.extend_from_slice(b" (");
    for (n, of) in uses.iter().enumerate() {
        if n > 0 {
            out.push(b' ');
        }
        let (name, unit) = match of.resource {
            Resource::Storage => ("STORAGE ", 1024),
            Resource::Message => ("MESSAGE ", 1),
            Resource::Mailbox => ("MAILBOX ", 1),
        };
        out.extend_from_slice(name.as_bytes());
        push_decimal(out, of.used.div_ceil(unit));
        out.push(b' ');
        push_decimal(out, of.limit / unit);
    }
    out.extend_from_slice(b")\r\n");
}

/// `* QUOTAROOT mailbox root`.
pub fn quota_root(out: &mut Vec<u8>, name: &str, root: &str, utf8: bool) {
    out.extend_from_slice(b"* QUOTAROOT ");
    mailbox(out, name, utf8);
    out.push(b' ');
    quoted(out, root.as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas() {
        let mut out = Vec::new();
        quota_root(&mut out, "comp/mail", "", false);
        quota(&mut out, "", &[]);
        let of = |resource, used, limit| ResourceUse {
            resource,
            used,
            limit,
        };
        quota(
            &mut out,
            "#user",
            &[
                of(Resource::Storage, 1025, 4096),
                of(Resource::Message, 3, 4),
                of(Resource::Mailbox, 0, 9),
            ],
        );
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "* QUOTAROOT \"comp/mail\" \"\"\r\n* QUOTA \"\" ()\r\n* QUOTA \"#user\" (STORAGE 2 4 MESSAGE 3 4 MAILBOX 0 9)\r\n"
        );
    }
}
