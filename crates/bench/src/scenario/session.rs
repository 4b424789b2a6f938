//! A session of pluto's benchmark: which commands come, and what each must do.
//!
//! A session works only in mailboxes it made itself, so what every answer must say is known, whoever else uses the account.

use crate::{mail, random::Random};

/// The flags that are set, as bits in this order.
pub const FLAGS: [&str; 5] = ["\\Seen", "\\Answered", "\\Flagged", "\\Deleted", "\\Draft"];

/// `\Deleted` among them.
const DELETED: u8 = 1 << 3;

/// A command, and what it must bring.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// CREATE of this mailbox.
    Create(String),
    /// DELETE of this mailbox.
    Delete(String),
    /// APPEND; `exists`: it is selected, and so many it has then.
    Append {
        /// Into this mailbox.
        mailbox: String,
        /// This message.
        message: Vec<u8>,
        /// What EXISTS must say, if it is the selected one.
        exists: Option<u32>,
    },
    /// SELECT; it has so many messages.
    Select {
        /// This mailbox.
        mailbox: String,
        /// So many messages.
        exists: u32,
    },
    /// STORE FLAGS on a message of the selected mailbox.
    Store {
        /// Its number.
        number: usize,
        /// Its flags from now on, bits of [`FLAGS`].
        flags: u8,
        /// Whether they were others before: of a STORE that changes nothing Dovecot tells nothing.
        changed: bool,
    },
    /// EXPUNGE; so many go.
    Expunge(u32),
}

/// Names of the kinds, in the order of [`Step::kind`].
pub const KINDS: [&str; 6] = ["CREATE", "DELETE", "APPEND", "SELECT", "STORE", "EXPUNGE"];

impl Step {
    /// Its place in [`KINDS`].
    #[must_use]
    pub fn kind(&self) -> usize {
        match self {
            Step::Create(_) => 0,
            Step::Delete(_) => 1,
            Step::Append { .. } => 2,
            Step::Select { .. } => 3,
            Step::Store { .. } => 4,
            Step::Expunge(_) => 5,
        }
    }
}

/// `(\Seen \Draft)`
#[must_use]
pub fn flag_list(flags: u8) -> String {
    let names: Vec<&str> = FLAGS
        .iter()
        .enumerate()
        .filter(|(bit, _)| flags & (1 << bit) != 0)
        .map(|(_, name)| *name)
        .collect();
    format!("({})", names.join(" "))
}

struct Folder {
    name: String,
    /// Flags of each message.
    messages: Vec<u8>,
}

/// What the account holds, as far as this session made it.
pub struct Session {
    random: Random,
    thread: usize,
    folders: Vec<Folder>,
    selected: Option<usize>,
    left: usize,
}

impl Session {
    /// A session of 15 to 39 commands.
    #[must_use]
    pub fn new(thread: usize, mut random: Random) -> Session {
        let left = random.between(15, 39);
        Session {
            random,
            thread,
            folders: Vec::new(),
            selected: None,
            left,
        }
    }

    /// What it leaves behind: mailboxes and how many messages each has.
    #[must_use]
    pub fn remains(&self) -> Vec<(String, u32)> {
        self.folders
            .iter()
            .map(|folder| (folder.name.clone(), folder.messages.len() as u32))
            .collect()
    }

    fn weights(&self) -> [f64; 6] {
        let with_mail = self
            .selected
            .is_some_and(|at| !self.folders[at].messages.is_empty());
        // CREATE, DELETE, APPEND, SELECT, STORE, EXPUNGE.
        match (self.folders.len(), self.selected, with_mail) {
            (0, ..) => [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            (_, None, _) => [0.25, 0.25, 0.25, 0.25, 0.0, 0.0],
            (1, Some(_), false) => [0.3, 0.0, 0.6, 0.0, 0.0, 0.1],
            (1, Some(_), true) => [0.25, 0.0, 0.25, 0.0, 0.25, 0.25],
            (_, Some(_), false) => [0.15, 0.15, 0.3, 0.3, 0.0, 0.1],
            (_, Some(_), true) => [0.15, 0.15, 0.2, 0.15, 0.25, 0.1],
        }
    }

    fn new_name(&mut self) -> String {
        const CHARACTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let random: String = (0..8)
            .map(|_| char::from(*self.random.pick(CHARACTERS)))
            .collect();
        format!("{}X{random}", self.thread)
    }

    /// Any but the selected one.
    fn other(&mut self) -> usize {
        let others = self.folders.len() - usize::from(self.selected.is_some());
        let at = self.random.below(others);
        match self.selected {
            Some(selected) if at >= selected => at + 1,
            _ => at,
        }
    }
}

impl Iterator for Session {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.left = self.left.checked_sub(1)?;
        let step = match self.random.weighted(&self.weights()) {
            0 => {
                let name = self.new_name();
                self.folders.push(Folder {
                    name: name.clone(),
                    messages: Vec::new(),
                });
                Step::Create(name)
            }
            1 => {
                let at = self.other();
                self.selected = self
                    .selected
                    .map(|selected| selected - usize::from(selected > at));
                Step::Delete(self.folders.remove(at).name)
            }
            2 => {
                let at = self.random.below(self.folders.len());
                let message = mail::of_pluto(&mut self.random);
                let folder = &mut self.folders[at];
                folder.messages.push(0);
                Step::Append {
                    mailbox: folder.name.clone(),
                    message,
                    exists: (self.selected == Some(at)).then_some(folder.messages.len() as u32),
                }
            }
            3 => {
                let at = self.random.below(self.folders.len());
                self.selected = Some(at);
                Step::Select {
                    mailbox: self.folders[at].name.clone(),
                    exists: self.folders[at].messages.len() as u32,
                }
            }
            4 => {
                // One to five draws; the same flag may come twice.
                let flags = (0..self.random.between(1, 5))
                    .fold(0, |flags, _| flags | 1 << self.random.below(FLAGS.len()));
                let at = self.selected.unwrap_or(0);
                let number = self.random.below(self.folders[at].messages.len());
                let before = std::mem::replace(&mut self.folders[at].messages[number], flags);
                Step::Store {
                    number: number + 1,
                    flags,
                    changed: before != flags,
                }
            }
            _ => {
                let at = self.selected.unwrap_or(0);
                let messages = &mut self.folders[at].messages;
                let before = messages.len();
                messages.retain(|flags| flags & DELETED == 0);
                Step::Expunge((before - messages.len()) as u32)
            }
        };
        Some(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_that_of_pluto() {
        let mut counts = [0u32; 6];
        for part in 0..2_000 {
            let session = Session::new(1, Random::part(0, part));
            for step in session {
                counts[step.kind()] += 1;
            }
            // Each ends with SELECT INBOX.
            counts[3] += 1;
        }
        let sum: u32 = counts.iter().sum();
        let percent = counts.map(|count| count * 100 / sum);
        // CREATE, DELETE, APPEND, SELECT, STORE, EXPUNGE.
        for (got, expected) in percent.into_iter().zip([23u32, 13, 23, 18, 13, 10]) {
            assert!(got.abs_diff(expected) <= 3, "{percent:?}");
        }
    }

    #[test]
    fn what_is_deleted_is_never_selected() {
        for part in 0..500 {
            let mut selected = String::new();
            for step in Session::new(3, Random::part(1, part)) {
                match step {
                    Step::Select { mailbox, .. } => selected = mailbox,
                    Step::Delete(mailbox) => assert_ne!(mailbox, selected),
                    Step::Create(mailbox) => assert!(mailbox.starts_with("3X")),
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn flags_as_a_list() {
        assert_eq!(flag_list(0), "()");
        assert_eq!(flag_list(0b10001), "(\\Seen \\Draft)");
    }
}
