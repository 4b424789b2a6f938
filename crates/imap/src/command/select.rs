//! SELECT and EXAMINE (RFC 9051, sections 6.3.2 and 6.3.3; RFC 7162, sections 3.1.8 and 3.2.5).

use crate::core::{MailboxName, ModSeq, SequenceSet};
use crate::decode::cursor::{Cursor, Refusal};

/// Arguments of SELECT and EXAMINE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Select {
    /// Which mailbox.
    pub mailbox: MailboxName,
    /// `(CONDSTORE)`
    pub condstore: bool,
    /// `(QRESYNC (...))`
    pub qresync: Option<Qresync>,
}

/// What a client knows of a mailbox (RFC 7162, section 3.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qresync {
    /// The last known UIDVALIDITY, at least 1.
    pub uid_validity: u32,
    /// The last known modification sequence, at least 1.
    pub mod_seq: ModSeq,
    /// The known UIDs, without `*`.
    pub known_uids: Option<SequenceSet>,
    /// Sequence numbers and the UIDs they have, both without `*` and ascending.
    pub sequence_match: Option<(SequenceSet, SequenceSet)>,
}

/// `SP mailbox [SP "(" select-param *(SP select-param) ")"]`
pub(crate) fn parse(c: &mut Cursor<'_>) -> Result<Select, Refusal> {
    c.space()?;
    let mut select = Select {
        mailbox: c.mailbox()?,
        condstore: false,
        qresync: None,
    };
    if c.skip(b' ') {
        c.open()?;
        loop {
            if c.skip_word(b"CONDSTORE") {
                select.condstore = true;
            } else if select.qresync.is_none() && c.skip_word(b"QRESYNC") {
                c.space()?;
                select.qresync = Some(qresync(c)?);
            } else {
                return Err("unknown SELECT parameter");
            }
            if !c.more()? {
                break;
            }
        }
    }
    Ok(select)
}

/// `"(" uidvalidity SP mod-sequence-value [SP known-uids] [SP seq-match-data] ")"`
fn qresync(c: &mut Cursor<'_>) -> Result<Qresync, Refusal> {
    c.open()?;
    let uid_validity = c.nz_number()?;
    c.space()?;
    let mut qresync = Qresync {
        uid_validity,
        mod_seq: c.mod_seq(false)?,
        known_uids: None,
        sequence_match: None,
    };
    let mut more = c.more()?;
    if more && c.peek() != Some(b'(') {
        qresync.known_uids = Some(known(c)?);
        more = c.more()?;
    }
    if more {
        c.open()?;
        let sequences = known(c)?;
        c.space()?;
        let uids = known(c)?;
        c.close()?;
        let count = |set: &SequenceSet| {
            set.ranges()
                .iter()
                .map(|r| u64::from(r.1 - r.0) + 1)
                .sum::<u64>()
        };
        if count(&sequences) != count(&uids) {
            return Err("QRESYNC pairs as many sequence numbers as UIDs");
        }
        qresync.sequence_match = Some((sequences, uids));
        c.close()?;
    }
    Ok(qresync)
}

/// A set where "* is not allowed".
fn known(c: &mut Cursor<'_>) -> Result<SequenceSet, Refusal> {
    let set = c.numbers()?;
    if set.star().is_some() {
        Err("* is not allowed in QRESYNC")
    } else {
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandBody;
    use crate::testing::{check, refuse};

    fn select() -> Select {
        Select {
            mailbox: MailboxName::new("INBOX").unwrap(),
            condstore: false,
            qresync: None,
        }
    }

    fn set(text: &str) -> SequenceSet {
        SequenceSet::parse(text.as_bytes(), 99).unwrap()
    }

    #[track_caller]
    fn check_qresync(input: &str, uids: Option<&str>, pairs: Option<(&str, &str)>) {
        let qresync = Some(Qresync {
            uid_validity: 67_890_007,
            mod_seq: 20_050_715_194_045_000,
            known_uids: uids.map(set),
            sequence_match: pairs.map(|(a, b)| (set(a), set(b))),
        });
        let input = format!("SELECT INBOX (QRESYNC (67890007 20050715194045000{input}))");
        check(
            &input,
            CommandBody::Select(Select {
                qresync,
                ..select()
            }),
        );
    }

    #[test]
    fn selects() {
        check("SELECT INBOX", CommandBody::Select(select()));
        check("EXAMINE inbox", CommandBody::Examine(select()));
        check(
            "SELECT INBOX (condstore)",
            CommandBody::Select(Select {
                condstore: true,
                ..select()
            }),
        );
        // RFC 7162, sections 3.2.5.1 and 3.2.5.2.
        check_qresync("", None, None);
        check_qresync(" 41,43:211,214:541", Some("41,43:211,214:541"), None);
        check_qresync(
            " 1:29997 (5000,7500,9000,9990:9999 15000,22500,27000,29970,29973,29976,29979,29982,29985,29988,29991,29994,29997)",
            Some("1:29997"),
            Some((
                "5000,7500,9000,9990:9999",
                "15000,22500,27000,29970,29973,29976,29979,29982,29985,29988,29991,29994,29997",
            )),
        );
        check_qresync(" (1 5)", None, Some(("1", "5")));
        refuse("SELECT INBOX ()", "unknown SELECT parameter");
        refuse("SELECT INBOX (FOO)", "unknown SELECT parameter");
        refuse("SELECT INBOX (QRESYNC)", "expected a space");
        refuse("SELECT INBOX (QRESYNC (0 1))", "number must not be zero");
        refuse(
            "SELECT INBOX (QRESYNC (1 0))",
            "modification sequence must not be zero",
        );
        refuse(
            "SELECT INBOX (QRESYNC (1 1 1:*))",
            "* is not allowed in QRESYNC",
        );
        refuse(
            "SELECT INBOX (QRESYNC (1 1 (1:2 5)))",
            "QRESYNC pairs as many sequence numbers as UIDs",
        );
        refuse(
            "SELECT INBOX (QRESYNC (1 1) QRESYNC (1 1))",
            "unknown SELECT parameter",
        );
        refuse("SELECT", "expected a space");
        refuse("SELECT \"\"", "mailbox name is empty");
    }
}
