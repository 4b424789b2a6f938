//! STORE, COPY, MOVE, UID EXPUNGE (RFC 9051, sections 6.4.6 to 6.4.9).

use super::CommandBody;
use crate::core::{Flag, MailboxName, MessageSet, ModSeq, StoreOperation};
use crate::decode::cursor::{Cursor, Refusal};

/// STORE and UID STORE (RFC 9051, section 6.4.6; RFC 7162, section 3.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Numbers are UIDs.
    pub uid: bool,
    /// Which messages.
    pub set: MessageSet,
    /// `(UNCHANGEDSINCE n)`; 0 is permitted and means that all fail.
    pub unchanged_since: Option<ModSeq>,
    /// What is done with the flags.
    pub operation: StoreOperation,
    /// `.SILENT`
    pub silent: bool,
    /// Without repetitions, may be empty. `\Recent` is left out: no client can set it (RFC 3501, section 2.3.2).
    pub flags: Vec<Flag>,
}

/// `SP sequence-set SP [store-modifiers SP] store-att-flags`
pub(crate) fn store(c: &mut Cursor<'_>, uid: bool) -> Result<Store, Refusal> {
    c.space()?;
    let set = c.message_set()?;
    c.space()?;
    let unchanged_since = if c.skip(b'(') {
        if !c.skip_word(b"UNCHANGEDSINCE") {
            return Err("unknown STORE modifier");
        }
        c.space()?;
        let mod_seq = c.mod_seq(true)?;
        c.close()?;
        c.space()?;
        Some(mod_seq)
    } else {
        None
    };
    let operation = match c.skip_any(b"+-") {
        Some(b'+') => StoreOperation::Add,
        Some(_) => StoreOperation::Remove,
        None => StoreOperation::Replace,
    };
    let word = c.atom()?;
    let silent = word.eq_ignore_ascii_case(b"FLAGS.SILENT");
    if !silent && !word.eq_ignore_ascii_case(b"FLAGS") {
        return Err("unknown STORE item");
    }
    c.space()?;
    let flags = c.flags(true)?;
    Ok(Store {
        uid,
        set,
        unchanged_since,
        operation,
        silent,
        flags,
    })
}

/// `SP sequence-set SP mailbox`
pub(crate) fn set_and_mailbox(c: &mut Cursor<'_>) -> Result<(MessageSet, MailboxName), Refusal> {
    c.space()?;
    let set = c.message_set()?;
    c.space()?;
    Ok((set, c.mailbox()?))
}

/// `SP sequence-set`
pub(crate) fn uid_expunge(c: &mut Cursor<'_>) -> Result<CommandBody, Refusal> {
    c.space()?;
    Ok(CommandBody::Expunge {
        uids: Some(c.message_set()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::SequenceSet;
    use crate::testing::{check, refuse};

    fn numbers(text: &str) -> MessageSet {
        MessageSet::Numbers(SequenceSet::parse(text.as_bytes(), 99).unwrap())
    }

    #[test]
    fn stores() {
        let base = Store {
            uid: false,
            set: numbers("2:4"),
            unchanged_since: None,
            operation: StoreOperation::Add,
            silent: false,
            flags: vec![Flag::Deleted],
        };
        let store = |store: Store| CommandBody::Store(store);
        check("STORE 2:4 +FLAGS (\\Deleted)", store(base.clone()));
        check("STORE 2:4 +FLAGS \\Deleted", store(base.clone()));
        check(
            "UID STORE 2:4 +flags.silent (\\deleted \\DELETED)",
            store(Store {
                uid: true,
                silent: true,
                ..base.clone()
            }),
        );
        check(
            "STORE 2:4 -FLAGS \\Deleted",
            store(Store {
                operation: StoreOperation::Remove,
                ..base.clone()
            }),
        );
        check(
            "STORE 2:4 FLAGS \\Seen $Forwarded",
            store(Store {
                operation: StoreOperation::Replace,
                flags: vec![Flag::Seen, Flag::new(b"$Forwarded").unwrap()],
                ..base.clone()
            }),
        );
        check(
            "STORE 2:4 FLAGS ()",
            store(Store {
                operation: StoreOperation::Replace,
                flags: vec![],
                ..base.clone()
            }),
        );
        check("STORE 2:4 +FLAGS (\\Recent \\Deleted)", store(base.clone()));
        check(
            "STORE $ +FLAGS \\Deleted",
            store(Store {
                set: MessageSet::Saved,
                ..base.clone()
            }),
        );
        // RFC 7162, section 3.1.3.
        check(
            "STORE 2:4 (UNCHANGEDSINCE 0) +FLAGS (\\Deleted)",
            store(Store {
                unchanged_since: Some(0),
                ..base.clone()
            }),
        );
        refuse("STORE 2:4 (UNCHANGEDSINCE) +FLAGS ()", "expected a space");
        refuse("STORE 2:4 (FOO 1) +FLAGS ()", "unknown STORE modifier");
        refuse("STORE 2:4 *FLAGS ()", "expected an atom");
        refuse("STORE 2:4 ++FLAGS ()", "unknown STORE item");
        refuse("STORE 2:4 FLAG ()", "unknown STORE item");
        refuse("STORE 2:4 FLAGS", "expected a space");
        refuse("STORE 2:4 FLAGS ", "expected an atom");
        refuse(
            "STORE 2:4 FLAGS (\\Foo)",
            "unknown system flag or too long keyword",
        );
        refuse("STORE 2:4 FLAGS (a", "expected )");
        refuse("STORE 2:4 FLAGS (a))", "unexpected text after the command");
        refuse("STORE 0 FLAGS ()", "number in sequence set is out of range");
        refuse("STORE a FLAGS ()", "invalid sequence set");
        refuse("STORE 1:$ FLAGS ()", "invalid sequence set");
        let many: Vec<_> = (0..257).map(|n| format!("k{n}")).collect();
        refuse(
            &format!("STORE 1 FLAGS ({})", many.join(" ")),
            "too many flags",
        );
    }

    #[test]
    fn copies_and_moves() {
        let mailbox = MailboxName::new("MEETING").unwrap();
        check(
            "COPY 2:4 MEETING",
            CommandBody::Copy {
                uid: false,
                set: numbers("2:4"),
                mailbox: mailbox.clone(),
            },
        );
        check(
            "uid copy 2:4 MEETING",
            CommandBody::Copy {
                uid: true,
                set: numbers("2:4"),
                mailbox: mailbox.clone(),
            },
        );
        check(
            "MOVE $ {7}\r\nMEETING",
            CommandBody::Move {
                uid: false,
                set: MessageSet::Saved,
                mailbox: mailbox.clone(),
            },
        );
        let beside = |text: &str| SequenceSet::parse(text.as_bytes(), 9999).unwrap();
        let long: Vec<_> = (0..300).map(|n| (2 * n + 1).to_string()).collect();
        let long = long.join(",");
        for (text, numbers) in [
            ("2:4,$", "2:4"),
            ("$,2:4", "2:4"),
            (&*format!("{long},$"), &*long),
        ] {
            check(
                &format!("COPY {text} MEETING"),
                CommandBody::Copy {
                    uid: false,
                    set: MessageSet::NumbersAndSaved(beside(numbers)),
                    mailbox: mailbox.clone(),
                },
            );
        }
        check(
            "UID MOVE * \"MEETING\"",
            CommandBody::Move {
                uid: true,
                set: numbers("*"),
                mailbox,
            },
        );
        refuse("COPY 2:4", "expected a space");
        refuse("COPY 2:4 \"\"", "mailbox name is empty");
        refuse("COPY 2:4 a%b", "unexpected text after the command");
        refuse("COPY 2:4, x", "invalid sequence set");
    }

    #[test]
    fn expunges() {
        check(
            "UID EXPUNGE 3000:3002",
            CommandBody::Expunge {
                uids: Some(numbers("3000:3002")),
            },
        );
        refuse("UID EXPUNGE", "expected a space");
        refuse("EXPUNGE 1", "unexpected text after the command");
    }
}
