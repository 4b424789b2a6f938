//! The protocol of the admin socket: one question and its answer, each as frames of JSON.
//!
//! A frame is its length in bytes, 4 bytes big-endian, and so much JSON. A question is one frame. An answer is one frame or, for lists, the queue and
//! the status of a cluster, several, all but the last with `"more":true`.

use std::io;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use whimbrel_directory::QuotaChange;
use whimbrel_mailbox::AccountId;
use whimbrel_service::{
    admin::{AccountLine, AdminCall, AdminReply},
    scram::from_text,
};

use super::queue::{self, Entry, Filter};
use crate::{
    cluster::{Drain, Removal, Remove, Status},
    node::random,
    password::is_verifier,
};

/// Longest question: two addresses and a verifier.
pub const QUESTION_BYTES_MAX: usize = 16 * 1024;
/// Longest frame of an answer.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Lines of a list in one frame: with the longest addresses they stay below the limit of a frame.
pub const LINES_PER_FRAME_MAX: usize = 500;

/// The queue is only shown by its machine, which delivers: a look must not do that.
pub const NO_QUEUE: &str = "no server runs here: start it, or see `whimbrel check`";

/// Questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// Adds an account.
    AccountAdd {
        /// Its address.
        address: String,
        /// argon2id, as a PHC string.
        verifier: String,
        /// Keys of SCRAM, in the form of RFC 5803.
        scram: Option<String>,
    },
    /// Sets a new password.
    AccountPasswd {
        /// Whose.
        address: String,
        /// argon2id, as a PHC string.
        verifier: String,
        /// Keys of SCRAM, in the form of RFC 5803.
        scram: Option<String>,
        /// Sessions that are logged in stay. Left out if false: a server of an earlier version does not know the field.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keep_sessions: bool,
    },
    /// Sets the quota of an account; without a limit, asks for it.
    AccountQuota {
        /// Which.
        address: String,
        /// Bytes of messages.
        storage: Option<Limit>,
        /// Messages.
        messages: Option<Limit>,
        /// Mailboxes.
        mailboxes: Option<Limit>,
    },
    /// Removes an account and its mail.
    AccountRemove {
        /// Which.
        address: String,
    },
    /// All accounts.
    AccountList {},
    /// Lets mail for one address go to another, too.
    AliasAdd {
        /// An address, or `@domain`.
        from: String,
        /// A local address.
        to: String,
        /// If `from` is an account, its mail goes there instead. Left out if false: a server of an earlier version does not know the field.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        instead: bool,
    },
    /// Removes an alias.
    AliasRemove {
        /// As added.
        from: String,
        /// As added; `None`: all.
        to: Option<String>,
    },
    /// All aliases.
    AliasList {},
    /// Entries of the queue that this node holds.
    QueueList(Filter),
    /// One entry of the queue, with all of its recipients.
    QueueShow {
        /// Its id, hexadecimal.
        id: String,
    },
    /// Asks for the status of the node's cluster.
    ClusterStatus {},
    /// Drains a node, or ends a drain; the answer is the progress.
    ClusterDrain {
        /// The node; `None`: the one that is asked.
        node: Option<String>,
        /// Ends the drain.
        cancel: bool,
        /// Only asks for the progress. Left out if false: a server of an earlier version, drained by a newer command, does not know the field.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        look: bool,
    },
    /// Removes a node from the cluster, or says what that would mean.
    ClusterRemove(Remove),
    /// Asks for an IMAP session of an account: after [`Answer::Session`] the connection carries that session, from the greeting on.
    Session {
        /// Whose.
        address: String,
    },
}

/// Answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// The change is done, and on disk.
    Done {},
    /// The question was refused.
    Refused {
        /// The reason.
        reason: String,
    },
    /// Accounts.
    Accounts {
        /// Some of them.
        accounts: Vec<Account>,
        /// Whether more frames follow.
        more: bool,
    },
    /// The quota of an account.
    Quota {
        /// Bytes of messages.
        storage: Limit,
        /// Messages.
        messages: Limit,
        /// Mailboxes.
        mailboxes: Limit,
    },
    /// The status of the cluster.
    Cluster {
        /// The status as this node sees it; further frames have more of its partitions.
        status: Status,
        /// Whether more frames follow. An earlier version has one.
        #[serde(default)]
        more: bool,
    },
    /// Entries of the queue.
    Queue {
        /// Some of them, by their ids. An entry may go on in the next frame, with further recipients.
        entries: Vec<Entry>,
        /// Where the next question goes on; `None`: there are no others.
        next: Option<String>,
        /// Whether more frames follow.
        more: bool,
    },
    /// The progress of a drain.
    Drain(Drain),
    /// What a removal means, or has done.
    Removal(Removal),
    /// The session begins.
    Session {
        /// The account's id, hexadecimal.
        account: String,
    },
    /// Aliases.
    Aliases {
        /// Some of them: from, to.
        aliases: Vec<(String, String)>,
        /// Whether more frames follow.
        more: bool,
    },
}

/// One limit of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The default of all accounts.
    Default,
    /// No limit.
    Unlimited,
    /// At most this much.
    AtMost(u64),
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Limit::Default => f.write_str("default"),
            Limit::Unlimited => f.write_str("unlimited"),
            Limit::AtMost(most) => write!(f, "{most}"),
        }
    }
}

impl Limit {
    fn into_own(self) -> Option<u64> {
        match self {
            Limit::Default => None,
            Limit::Unlimited => Some(u64::MAX),
            Limit::AtMost(most) => Some(most.min(u64::MAX - 1)),
        }
    }

    fn of_own(own: Option<u64>) -> Self {
        match own {
            None => Limit::Default,
            Some(u64::MAX) => Limit::Unlimited,
            Some(most) => Limit::AtMost(most),
        }
    }
}

/// One account of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its address.
    pub address: String,
    /// Its id, hexadecimal.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Whether another account holds the address.
    pub set_aside: bool,
}

impl From<AccountLine> for Account {
    fn from(line: AccountLine) -> Self {
        Account {
            address: line.address,
            id: line.account.to_string(),
            created: line.created,
            set_aside: line.set_aside,
        }
    }
}

impl Question {
    /// The change to accounts and aliases, for the log and for the user; `None`: nothing changes.
    #[must_use]
    pub fn change(&self) -> Option<String> {
        Some(match self {
            Question::AccountAdd { address, .. } => format!("account {address} added"),
            Question::AccountPasswd {
                address,
                keep_sessions,
                ..
            } => {
                let sessions = if *keep_sessions { "stay" } else { "end" };
                format!("account {address}: new password; its sessions {sessions}")
            }
            Question::AccountQuota {
                address,
                storage,
                messages,
                mailboxes,
            } => {
                let all = [
                    ("storage", storage),
                    ("messages", messages),
                    ("mailboxes", mailboxes),
                ];
                let set = all
                    .iter()
                    .filter_map(|(name, limit)| Some((name, (**limit)?)));
                let set: Vec<String> = set.map(|(name, to)| format!("{name} {to}")).collect();
                if set.is_empty() {
                    return None;
                }
                format!("account {address}: quota {}", set.join(", "))
            }
            Question::AccountRemove { address } => format!("account {address} removed"),
            Question::AliasAdd { from, to, .. } => format!("alias {from} -> {to} added"),
            Question::AliasRemove { from, to } => {
                let to = to.as_ref().map(|to| format!(" -> {to}"));
                format!("alias {from}{} removed", to.unwrap_or_default())
            }
            _ => return None,
        })
    }

    /// The call to the directory. A verifier that no password can match is refused here.
    pub fn into_call(self) -> Result<AdminCall, String> {
        let checked = |verifier: String| {
            if is_verifier(&verifier) {
                Ok(verifier)
            } else {
                Err("this is not an argon2id verifier".to_owned())
            }
        };
        let keys = |scram: Option<String>| {
            scram
                .map(|text| from_text(&text).ok_or_else(|| "these are not SCRAM keys".to_owned()))
                .transpose()
        };
        Ok(match self {
            Question::AccountAdd {
                address,
                verifier,
                scram,
            } => AdminCall::AddAccount {
                address,
                verifier: checked(verifier)?,
                scram: keys(scram)?,
                account: AccountId(random()),
            },
            Question::AccountPasswd {
                address,
                verifier,
                scram,
                keep_sessions,
            } => AdminCall::SetVerifier {
                address,
                verifier: checked(verifier)?,
                scram: keys(scram)?,
                keeps_sessions: keep_sessions,
            },
            Question::AccountQuota {
                address,
                storage: None,
                messages: None,
                mailboxes: None,
            } => AdminCall::ShowQuota { address },
            Question::AccountQuota {
                address,
                storage,
                messages,
                mailboxes,
            } => AdminCall::SetQuota {
                address,
                change: QuotaChange {
                    bytes: storage.map(Limit::into_own),
                    messages: messages.map(Limit::into_own),
                    mailboxes: mailboxes.map(Limit::into_own),
                },
            },
            Question::AccountRemove { address } => AdminCall::RemoveAccount { address },
            Question::AccountList {} => AdminCall::ListAccounts,
            Question::AliasAdd { from, to, instead } => AdminCall::AddAlias { from, to, instead },
            Question::AliasRemove { from, to } => AdminCall::RemoveAlias { from, to },
            Question::AliasList {} => AdminCall::ListAliases,
            Question::Session { .. } => return Err("a session wants a running server".to_owned()),
            Question::QueueList(_) | Question::QueueShow { .. } => {
                return Err(NO_QUEUE.to_owned());
            }
            Question::ClusterStatus {}
            | Question::ClusterDrain { .. }
            | Question::ClusterRemove(_) => {
                return Err(
                    "start the server: only a running one speaks for its cluster".to_owned(),
                );
            }
        })
    }
}

/// An answer in frames.
pub fn frames(reply: AdminReply) -> Vec<Answer> {
    fn parts<T>(mut lines: Vec<T>, answer: impl Fn(Vec<T>, bool) -> Answer) -> Vec<Answer> {
        let mut frames = Vec::new();
        loop {
            let rest = lines.split_off(lines.len().min(LINES_PER_FRAME_MAX));
            frames.push(answer(lines, !rest.is_empty()));
            if rest.is_empty() {
                return frames;
            }
            lines = rest;
        }
    }
    match reply {
        AdminReply::Done => vec![Answer::Done {}],
        AdminReply::Refused(reason) => vec![Answer::Refused { reason }],
        AdminReply::Quota(own) => vec![Answer::Quota {
            storage: Limit::of_own(own.bytes),
            messages: Limit::of_own(own.messages),
            mailboxes: Limit::of_own(own.mailboxes),
        }],
        AdminReply::Accounts(lines) => {
            let accounts = lines.into_iter().map(Account::from).collect();
            parts(accounts, |accounts, more| Answer::Accounts {
                accounts,
                more,
            })
        }
        AdminReply::Aliases(aliases) => {
            parts(aliases, |aliases, more| Answer::Aliases { aliases, more })
        }
    }
}

/// The status of a cluster in frames. A small cluster's status is one frame, since a command of an earlier version reads one. In a large cluster the
/// logs of all partitions take more than a frame may have.
pub fn status_frames(mut status: Status) -> Vec<Answer> {
    /// Bytes around a line, and around all lines.
    const ROOM: usize = 64;
    fn bytes(value: &impl Serialize) -> usize {
        serde_json::to_vec(value).map_or(0, |json| json.len()) + ROOM
    }
    let lines = std::mem::take(&mut status.partitions);
    let further = Status {
        cluster: status.cluster.clone(),
        nodes: Vec::new(),
        clock: None,
        here: None,
        partitions: Vec::new(),
    };
    let mut used = bytes(&status);
    let mut frames = vec![status];
    for line in lines {
        let needs = bytes(&line);
        if used + needs > ANSWER_BYTES_MAX {
            used = bytes(&further);
            frames.push(further.clone());
        }
        used += needs;
        if let Some(last) = frames.last_mut() {
            last.partitions.push(line);
        }
    }
    let count = frames.len();
    let frame = |(index, status)| Answer::Cluster {
        status,
        more: index + 1 < count,
    };
    frames.into_iter().enumerate().map(frame).collect()
}

impl Answer {
    /// Takes the next frame of the same list; whether that was the last.
    pub fn join(&mut self, next: Answer) -> io::Result<bool> {
        match (self, next) {
            (
                Answer::Accounts { accounts, more },
                Answer::Accounts {
                    accounts: further,
                    more: still,
                },
            ) => {
                accounts.extend(further);
                *more = still;
                Ok(!still)
            }
            (
                Answer::Aliases { aliases, more },
                Answer::Aliases {
                    aliases: further,
                    more: still,
                },
            ) => {
                aliases.extend(further);
                *more = still;
                Ok(!still)
            }
            (
                Answer::Cluster { status, more },
                Answer::Cluster {
                    status: further,
                    more: still,
                },
            ) => {
                status.partitions.extend(further.partitions);
                *more = still;
                Ok(!still)
            }
            (
                Answer::Queue {
                    entries,
                    next,
                    more,
                },
                Answer::Queue {
                    entries: further,
                    next: then,
                    more: still,
                },
            ) => {
                queue::join(entries, further);
                *next = then;
                *more = still;
                Ok(!still)
            }
            _ => Err(invalid("the parts of the answer do not fit together")),
        }
    }

    /// Whether more frames follow.
    pub fn more(&self) -> bool {
        matches!(
            self,
            Answer::Accounts { more: true, .. }
                | Answer::Aliases { more: true, .. }
                | Answer::Cluster { more: true, .. }
                | Answer::Queue { more: true, .. }
        )
    }
}

fn invalid(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads a frame of at most `bytes_max`: the length is checked before anything is allocated.
pub async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> io::Result<T> {
    let length = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
    if length > bytes_max {
        return Err(invalid(format!(
            "a frame of {length} bytes (at most {bytes_max})"
        )));
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame).await?;
    serde_json::from_slice(&frame).map_err(invalid)
}

/// Writes a frame.
pub async fn write<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &T,
) -> io::Result<()> {
    let frame = serde_json::to_vec(value).map_err(invalid)?;
    let length = u32::try_from(frame.len()).map_err(invalid)?;
    stream.write_u32(length).await?;
    stream.write_all(&frame).await?;
    stream.flush().await
}
