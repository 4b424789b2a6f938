//! OK, NO, BAD, PREAUTH, BYE and the response codes (RFC 9051, section 7.1; RFC 5530, 4315, 7162, 4959, 5182, 6154, 8474).

use super::strings::{self, flag_list, object_id};
use crate::core::set::push_decimal;
use crate::core::{Flag, ObjectId, SequenceSet, Tag};

/// Kind of a status response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It went well.
    Ok,
    /// It did not.
    No,
    /// It was not understood.
    Bad,
    /// Greeting of a client that is logged in already.
    Preauth,
    /// The connection will be closed.
    Bye,
}

impl Kind {
    /// As the protocol spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::No => "NO",
            Self::Bad => "BAD",
            Self::Preauth => "PREAUTH",
            Self::Bye => "BYE",
        }
    }
}

/// A response code. Borrowed: made where it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Code<'a> {
    /// The text must be shown to the user.
    Alert,
    /// RFC 5530.
    AlreadyExists,
    /// RFC 4315: UIDVALIDITY and the UID of the appended message.
    AppendUid(u32, &'a SequenceSet),
    /// RFC 5530.
    AuthenticationFailed,
    /// RFC 5530.
    AuthorizationFailed,
    /// The charsets that are known; may be empty.
    BadCharset(&'a [&'a str]),
    /// RFC 4469, section 4.1: the URL as the client gave it.
    BadUrl(&'a str),
    /// RFC 5530.
    Cannot,
    /// Capabilities.
    Capability(&'a [&'a str]),
    /// RFC 5530.
    ClientBug,
    /// RFC 7162: what follows is about another mailbox.
    Closed,
    /// RFC 4978: what is sent is compressed already.
    CompressionActive,
    /// RFC 5530.
    ContactAdmin,
    /// RFC 4315: UIDVALIDITY of the target, UIDs of the originals, UIDs of the copies: each to be given in the order the
    /// messages have, as texts of sets may not be sorted (see [`UidList`]).
    CopyUid(u32, UidList<'a>, UidList<'a>),
    /// RFC 5530.
    Corruption,
    /// RFC 5530.
    Expired,
    /// RFC 5530.
    ExpungeIssued,
    /// RFC 9051, section 7.1.
    HasChildren,
    /// RFC 7162.
    HighestModSeq(u64),
    /// RFC 5530.
    InUse,
    /// RFC 5530.
    Limit,
    /// RFC 8474: the mailbox's name that outlives renaming.
    MailboxId(&'a ObjectId),
    /// RFC 7162: messages that a conditional STORE did not touch.
    Modified(&'a SequenceSet),
    /// RFC 7162: the mailbox keeps no modification sequences.
    NoModSeq,
    /// RFC 5530.
    NonExistent,
    /// RFC 5530.
    NoPerm,
    /// RFC 5182.
    NotSaved,
    /// RFC 5530.
    OverQuota,
    /// The message could not be parsed.
    Parse,
    /// Flags that may be changed for good; `true` adds `\*`.
    PermanentFlags(&'a [Flag], bool),
    /// RFC 5530.
    PrivacyRequired,
    /// RFC 9051, section 7.1.
    ReadOnly,
    /// RFC 9051, section 7.1.
    ReadWrite,
    /// RFC 5530.
    ServerBug,
    /// RFC 4469, section 5; RFC 7889: the message is greater than what is accepted.
    TooBig,
    /// The mailbox may be created.
    TryCreate,
    /// The next UID.
    UidNext(u32),
    /// RFC 4315: UIDs do not last.
    UidNotSticky,
    /// UIDVALIDITY
    UidValidity(u32),
    /// RFC 5530.
    Unavailable,
    /// RFC 3516.
    UnknownCte,
    /// RFC 3501: sequence number of the first unseen message.
    Unseen(u32),
    /// RFC 6154: the special use that is asked for cannot be given.
    UseAttr,
}

/// UIDs in the order of the messages they stand for: COPYUID pairs the n-th with the n-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UidList<'a>(pub &'a [u32]);

impl UidList<'_> {
    /// Appends `1,3:5,...`, joining only what ascends by one.
    fn encode(self, out: &mut Vec<u8>) {
        let mut rest = self.0;
        let mut first = true;
        while let Some(&start) = rest.first() {
            let run = rest
                .windows(2)
                .take_while(|w| w[0].checked_add(1) == Some(w[1]))
                .count();
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            push_decimal(out, u64::from(start));
            if run > 0 {
                out.push(b':');
                push_decimal(out, u64::from(rest[run]));
            }
            rest = &rest[run + 1..];
        }
    }
}

/// Appends a tagged response. `utf8` permits UTF-8 in the text.
pub fn tagged(
    out: &mut Vec<u8>,
    tag: &Tag,
    kind: Kind,
    code: Option<Code<'_>>,
    text: &str,
    utf8: bool,
) {
    out.extend_from_slice(tag.as_str().as_bytes());
    rest(out, kind, code, text, utf8);
}

/// Appends an untagged status response.
pub fn untagged(out: &mut Vec<u8>, kind: Kind, code: Option<Code<'_>>, text: &str, utf8: bool) {
    out.push(b'*');
    rest(out, kind, code, text, utf8);
}

/// Appends the greeting with the capabilities.
pub fn greeting(out: &mut Vec<u8>, kind: Kind, capabilities: &[&str], text: &str) {
    untagged(out, kind, Some(Code::Capability(capabilities)), text, false);
}

fn rest(out: &mut Vec<u8>, kind: Kind, code: Option<Code<'_>>, text: &str, utf8: bool) {
    out.push(b' ');
    out.extend_from_slice(kind.as_str().as_bytes());
    out.push(b' ');
    if let Some(code) = code {
        out.push(b'[');
        code.encode(out);
        out.extend_from_slice(b"] ");
    } else if text.starts_with('[') {
        // It would be read as a code.
        out.extend_from_slice(b"- ");
    }
    strings::text(out, text, utf8);
    out.extend_from_slice(b"\r\n");
}

impl Code<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.name().as_bytes());
        match *self {
            Self::AppendUid(validity, uids) => {
                out.push(b' ');
                push_decimal(out, u64::from(validity));
                out.push(b' ');
                uids.encode(out);
            }
            Self::BadCharset([]) => {}
            Self::BadUrl(url) => {
                out.push(b' ');
                bad_url(out, url);
            }
            Self::BadCharset(names) => {
                out.extend_from_slice(b" (");
                for (n, name) in names.iter().enumerate() {
                    if n > 0 {
                        out.push(b' ');
                    }
                    out.extend_from_slice(name.as_bytes());
                }
                out.push(b')');
            }
            Self::Capability(names) => {
                for name in names {
                    out.push(b' ');
                    out.extend_from_slice(name.as_bytes());
                }
            }
            Self::CopyUid(validity, from, to) => {
                assert_eq!(from.0.len(), to.0.len(), "COPYUID pairs the UIDs");
                out.push(b' ');
                push_decimal(out, u64::from(validity));
                out.push(b' ');
                from.encode(out);
                out.push(b' ');
                to.encode(out);
            }
            Self::HighestModSeq(n) => {
                out.push(b' ');
                push_decimal(out, n);
            }
            Self::MailboxId(id) => {
                out.push(b' ');
                object_id(out, Some(id));
            }
            Self::Modified(set) => {
                out.push(b' ');
                set.encode(out);
            }
            Self::PermanentFlags(flags, any) => {
                out.push(b' ');
                flag_list(out, flags, any.then_some("\\*"));
            }
            Self::UidNext(n) | Self::UidValidity(n) | Self::Unseen(n) => {
                out.push(b' ');
                push_decimal(out, u64::from(n));
            }
            _ => {}
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Alert => "ALERT",
            Self::AlreadyExists => "ALREADYEXISTS",
            Self::AppendUid(..) => "APPENDUID",
            Self::AuthenticationFailed => "AUTHENTICATIONFAILED",
            Self::AuthorizationFailed => "AUTHORIZATIONFAILED",
            Self::BadCharset(_) => "BADCHARSET",
            Self::BadUrl(_) => "BADURL",
            Self::Cannot => "CANNOT",
            Self::Capability(_) => "CAPABILITY",
            Self::ClientBug => "CLIENTBUG",
            Self::Closed => "CLOSED",
            Self::CompressionActive => "COMPRESSIONACTIVE",
            Self::ContactAdmin => "CONTACTADMIN",
            Self::CopyUid(..) => "COPYUID",
            Self::Corruption => "CORRUPTION",
            Self::Expired => "EXPIRED",
            Self::ExpungeIssued => "EXPUNGEISSUED",
            Self::HasChildren => "HASCHILDREN",
            Self::HighestModSeq(_) => "HIGHESTMODSEQ",
            Self::InUse => "INUSE",
            Self::Limit => "LIMIT",
            Self::MailboxId(_) => "MAILBOXID",
            Self::Modified(_) => "MODIFIED",
            Self::NoModSeq => "NOMODSEQ",
            Self::NonExistent => "NONEXISTENT",
            Self::NoPerm => "NOPERM",
            Self::NotSaved => "NOTSAVED",
            Self::OverQuota => "OVERQUOTA",
            Self::Parse => "PARSE",
            Self::PermanentFlags(..) => "PERMANENTFLAGS",
            Self::PrivacyRequired => "PRIVACYREQUIRED",
            Self::ReadOnly => "READ-ONLY",
            Self::ReadWrite => "READ-WRITE",
            Self::ServerBug => "SERVERBUG",
            Self::TooBig => "TOOBIG",
            Self::TryCreate => "TRYCREATE",
            Self::UidNext(_) => "UIDNEXT",
            Self::UidNotSticky => "UIDNOTSTICKY",
            Self::UidValidity(_) => "UIDVALIDITY",
            Self::Unavailable => "UNAVAILABLE",
            Self::UnknownCte => "UNKNOWN-CTE",
            Self::Unseen(_) => "UNSEEN",
            Self::UseAttr => "USEATTR",
        }
    }
}

/// Appends `url-resp-text = 1*(%x01-09 / %x0B-0C / %x0E-5B / %x5D-FE)`, "Any TEXT-CHAR except "]"": what stands in no URL is written in
/// percent-encoding, and what is too long for a line is cut.
fn bad_url(out: &mut Vec<u8>, url: &str) {
    if url.is_empty() {
        out.push(b'-');
    }
    for &byte in url.as_bytes().iter().take(BAD_URL_BYTES_MAX) {
        if matches!(byte, b'!'..=b'~') && !matches!(byte, b']' | b'\\') {
            out.push(byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

/// Of a URL that is told to be bad: more than any mailbox name, three characters an octet, with section and all.
const BAD_URL_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: Code<'_>, expected: &str) {
        let mut out = Vec::new();
        let tag = Tag::new(b"a1").unwrap();
        tagged(&mut out, &tag, Kind::Ok, Some(code), "done", false);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("a1 OK [{expected}] done\r\n")
        );
    }

    #[test]
    fn codes() {
        let set = SequenceSet::from_numbers([7, 9]);
        check(Code::Alert, "ALERT");
        check(
            Code::AppendUid(38505, &SequenceSet::from_numbers([3955])),
            "APPENDUID 38505 3955",
        );
        check(Code::BadCharset(&[]), "BADCHARSET");
        check(
            Code::BadCharset(&["US-ASCII", "UTF-8"]),
            "BADCHARSET (US-ASCII UTF-8)",
        );
        check(Code::BadUrl("/a;UID=1"), "BADURL /a;UID=1");
        check(Code::BadUrl("a]\\ \r\nü"), "BADURL a%5D%5C%20%0D%0A%C3%BC");
        check(Code::BadUrl(""), "BADURL -");
        check(
            Code::Capability(&["IMAP4rev2", "IDLE"]),
            "CAPABILITY IMAP4rev2 IDLE",
        );
        // RFC 4315, section 3.
        check(
            Code::CopyUid(
                38505,
                UidList(&[304, 319, 320]),
                UidList(&[3956, 3957, 3958]),
            ),
            "COPYUID 38505 304,319:320 3956:3958",
        );
        check(
            Code::CopyUid(1, UidList(&[5, 4, 3]), UidList(&[1, 2, 3])),
            "COPYUID 1 5,4,3 1:3",
        );
        check(
            Code::HighestModSeq(u64::MAX),
            "HIGHESTMODSEQ 18446744073709551615",
        );
        let id = ObjectId::new(b"F2212ea87-6097").unwrap();
        check(Code::MailboxId(&id), "MAILBOXID (F2212ea87-6097)");
        // RFC 7162, section 3.1.3.
        check(Code::Modified(&set), "MODIFIED 7,9");
        check(Code::PermanentFlags(&[], false), "PERMANENTFLAGS ()");
        check(Code::PermanentFlags(&[], true), "PERMANENTFLAGS (\\*)");
        check(
            Code::PermanentFlags(&[Flag::Seen], true),
            "PERMANENTFLAGS (\\Seen \\*)",
        );
        check(Code::UidNext(4392), "UIDNEXT 4392");
        check(Code::ReadWrite, "READ-WRITE");
    }

    #[test]
    fn text_is_no_code() {
        let mut out = Vec::new();
        untagged(&mut out, Kind::No, None, "[ALERT] x", false);
        untagged(&mut out, Kind::No, Some(Code::Limit), "[ALERT] x", false);
        assert_eq!(out, b"* NO - [ALERT] x\r\n* NO [LIMIT] [ALERT] x\r\n");
    }

    #[test]
    #[should_panic(expected = "COPYUID pairs")]
    fn copyuid_of_different_lengths_is_refused() {
        check(Code::CopyUid(1, UidList(&[1]), UidList(&[])), "");
    }
}
