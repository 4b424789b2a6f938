//! The target of an import: an account, by a session of the administrator.
//!
//! The id of a message follows from its source; the account adds each message once, however often it is offered. Messages are added in batches of one
//! commit each. A batch that is refused is tried again message by message, so that one bad message costs no other.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use whimbrel_imap::{
    Import,
    client::{FetchData, Response, append_message_head},
    core::{DateTime, Flag},
};
use whimbrel_mailbox::{AccountId, EntryId, MessageId};

use super::{
    Failure, Report,
    body::Body,
    wire::{Wire, WireError, quoted},
};

/// Messages of one commit.
const BATCH_MESSAGES_MAX: usize = 200;
/// Special uses of mailboxes that show messages of others (RFC 6154, 2): here they are ordinary mailboxes.
const VIRTUAL: [&str; 2] = ["\\All", "\\Flagged"];
/// Bytes of one commit, and thereby of messages in memory.
const BATCH_BYTES_MAX: u64 = 4 << 20;

/// A message to import.
pub(super) struct Offer {
    pub(super) id: [u8; 16],
    /// A label to find the message at its source.
    pub(super) label: String,
    pub(super) flags: Vec<String>,
    pub(super) date: Option<DateTime>,
    pub(super) body: Body,
}

pub(super) struct Target {
    wire: Wire,
    account: AccountId,
    bytes_max: u64,
    /// Names that exist, with their special uses.
    names: BTreeMap<String, Vec<String>>,
    subscribed: BTreeSet<String>,
    folder: String,
    /// The messages in the folder.
    present: HashSet<MessageId>,
    batch: Vec<(Offer, [u8; 32])>,
    batch_bytes: u64,
    /// The number of the folder's messages with keywords that IMAP cannot name, and some of these keywords.
    left_out: (u64, BTreeSet<String>),
}

/// The most keywords that are named when they are left out.
const LEFT_OUT_MAX: usize = 20;

impl Target {
    pub(super) async fn open(
        mut wire: Wire,
        account: AccountId,
        bytes_max: u64,
    ) -> Result<Target, Failure> {
        wire.command("ENABLE UTF8=ACCEPT").await?;
        wire.set_utf8();
        let (mut names, mut subscribed) = (BTreeMap::new(), BTreeSet::new());
        wire.each(
            "LIST \"\" \"*\" RETURN (SUBSCRIBED SPECIAL-USE)",
            |response| {
                if let Response::List(item) = response {
                    if item.has("\\Subscribed") {
                        subscribed.insert(item.name.clone());
                    }
                    if !item.has("\\NonExistent") {
                        let uses = item.special_uses();
                        let uses = uses.map(|of| of.as_str().to_ascii_lowercase()).collect();
                        names.insert(item.name, uses);
                    }
                }
            },
        )
        .await?;
        Ok(Target {
            wire,
            account,
            bytes_max,
            names,
            subscribed,
            folder: String::new(),
            present: HashSet::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            left_out: Default::default(),
        })
    }

    /// The size of the greatest message that the server accepts, in bytes.
    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// The mailbox for this special use.
    pub(super) fn with_use(&self, special_use: &str) -> Option<&str> {
        let special_use = special_use.to_ascii_lowercase();
        let mut names = self.names.iter();
        names
            .find(|(_, uses)| uses.contains(&special_use))
            .map(|(name, _)| name.as_str())
    }

    /// Selects a folder, and creates it if need be. The inner error: the server refuses this folder, others perhaps not.
    pub(super) async fn folder(
        &mut self,
        name: &str,
        special_use: Option<&str>,
    ) -> Result<Result<(), String>, Failure> {
        match self.go_to(name, special_use).await {
            Ok(()) => Ok(Ok(())),
            Err(WireError::Refused { text, .. }) => Ok(Err(text)),
            Err(error) => Err(error.into()),
        }
    }

    async fn go_to(&mut self, name: &str, special_use: Option<&str>) -> Result<(), WireError> {
        name.clone_into(&mut self.folder);
        self.present.clear();
        if !self.names.contains_key(name) {
            let special_use = special_use.filter(|of| {
                let is_virtual = VIRTUAL.iter().any(|name| name.eq_ignore_ascii_case(of));
                !is_virtual && self.with_use(of).is_none()
            });
            let create = match special_use {
                Some(special_use) => format!("CREATE {} (USE ({special_use}))", quoted(name)),
                None => format!("CREATE {}", quoted(name)),
            };
            self.wire.command(&create).await?;
            let uses = special_use
                .map(str::to_ascii_lowercase)
                .into_iter()
                .collect();
            self.names.insert(name.to_owned(), uses);
            return Ok(());
        }
        let mut exists = 0;
        let examine = format!("EXAMINE {}", quoted(name));
        self.wire
            .each(&examine, |response| {
                if let Response::Exists(count) = response {
                    exists = count;
                }
            })
            .await?;
        if exists > 0 {
            let present = &mut self.present;
            self.wire
                .each("UID FETCH 1:* (EMAILID)", |response| {
                    let Response::Fetch { items, .. } = response else {
                        return;
                    };
                    for item in items {
                        if let FetchData::EmailId(id) = item {
                            present.extend(
                                id_of(id.as_str().get(1..).unwrap_or_default()).map(MessageId),
                            );
                        }
                    }
                })
                .await?;
        }
        self.wire.command("UNSELECT").await?;
        Ok(())
    }

    /// Subscribes to a name. The inner error is as that of [`Target::folder`].
    pub(super) async fn subscribe(&mut self, name: &str) -> Result<Result<(), String>, Failure> {
        if !self.subscribed.insert(name.to_owned()) {
            return Ok(Ok(()));
        }
        let line = format!("SUBSCRIBE {}", quoted(name));
        match self.wire.command(&line).await {
            Ok(_) => Ok(Ok(())),
            Err(WireError::Refused { text, .. }) => Ok(Err(text)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the folder has the message already. A message that was moved or removed here does not count; to offer it again changes nothing.
    pub(super) fn has(&self, id: [u8; 16]) -> bool {
        self.present
            .contains(&MessageId::imported(EntryId(id), self.account))
    }

    /// Adds a message, now or with the next ones.
    pub(super) async fn offer(
        &mut self,
        mut offer: Offer,
        report: &mut Report,
    ) -> Result<(), Failure> {
        let bytes = offer.body.len();
        let why = match bytes {
            _ if self.has(offer.id) => {
                report.known += 1;
                return Ok(());
            }
            0 => Some("it is empty".to_owned()),
            _ if bytes > self.bytes_max => Some(format!(
                "it has {bytes} bytes (imap.append_bytes_max: {})",
                self.bytes_max
            )),
            _ if offer.body.has_nul => Some("it holds NUL, which no mail may".to_owned()),
            _ => None,
        };
        if let Some(why) = why {
            report.skip(&offer.label, &why);
            return Ok(());
        }
        let bad = offer.flags.iter();
        // `\Recent` is of a session, not of a message.
        let bad = bad.filter(|flag| {
            Flag::new(flag.as_bytes()).is_none() && !flag.eq_ignore_ascii_case("\\Recent")
        });
        let mut bad = bad.peekable();
        self.left_out.0 += u64::from(bad.peek().is_some());
        let room = LEFT_OUT_MAX - self.left_out.1.len();
        self.left_out.1.extend(bad.take(room).cloned());
        offer.body.rewind()?;
        let hash = offer.body.hash()?;
        if self.batch_bytes + bytes > BATCH_BYTES_MAX || self.batch.len() >= BATCH_MESSAGES_MAX {
            self.flush(report).await?;
        }
        self.batch_bytes += bytes;
        self.batch.push((offer, hash));
        Ok(())
    }

    /// Reports which keywords of the folder's messages were left out.
    pub(super) fn tell_left_out(&mut self, name: &str, report: &Report) {
        let (messages, keywords) = std::mem::take(&mut self.left_out);
        if messages > 0 {
            let keywords: Vec<String> = keywords.into_iter().collect();
            report.note(&format!(
                "{name}: {messages} messages have keywords that are not possible in IMAP; they are left out: {}",
                keywords.join(" ")
            ));
        }
    }

    /// Adds the messages of the present batch.
    pub(super) async fn flush(&mut self, report: &mut Report) -> Result<(), Failure> {
        self.batch_bytes = 0;
        let mut batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        match self.append(&batch, true).await {
            Ok(new) => {
                report.added(batch.len(), new);
                return Ok(());
            }
            Err(WireError::Refused { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        for of in batch.iter_mut() {
            of.0.body.rewind()?;
            let one = std::slice::from_ref(of);
            match self.append(one, true).await {
                Ok(new) => report.added(1, new),
                Err(WireError::Refused { text, .. }) => {
                    of.0.body.rewind()?;
                    // The message may have too many keywords.
                    let again = self.append(std::slice::from_ref(of), false).await;
                    let offer = &of.0;
                    match again {
                        Ok(new) => {
                            report.added(1, new);
                            report.note(&format!("{}: without its keywords: {text}", offer.label));
                        }
                        Err(WireError::Refused { text, .. }) => report.skip(&offer.label, &text),
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Adds messages in one commit; how many of them are new.
    async fn append(
        &mut self,
        batch: &[(Offer, [u8; 32])],
        keywords: bool,
    ) -> Result<usize, WireError> {
        let mut line = format!("APPEND {}", quoted(&self.folder)).into_bytes();
        let mut buffer = Vec::new();
        for (number, (offer, hash)) in batch.iter().enumerate() {
            let flags = offer
                .flags
                .iter()
                .filter_map(|flag| Flag::new(flag.as_bytes()));
            let flags: Vec<Flag> = flags
                .filter(|flag| keywords || !matches!(flag, Flag::Keyword(_)))
                .collect();
            let bytes = offer.body.len();
            let import = Import {
                id: offer.id,
                hash: *hash,
            };
            line.extend(append_message_head(&flags, offer.date, &import, bytes));
            match number {
                0 => self.wire.begin(&line).await?,
                _ => self.wire.line(&line).await?,
            }
            line.clear();
            let mut sent = 0;
            while sent < bytes {
                let chunk = offer.body.chunk(sent, &mut buffer)?;
                if chunk.is_empty() {
                    return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
                }
                self.wire.bytes(chunk).await?;
                sent += chunk.len() as u64;
            }
        }
        self.wire.line(b"").await?;
        let mut new = 0;
        self.wire
            .end(&mut |response| {
                if let Response::Status {
                    code: Some(whimbrel_imap::client::ReplyCode::AppendUid(_, uids)),
                    ..
                } = response
                {
                    let ranges = uids.ranges().iter();
                    new = ranges.map(|(from, to)| (to - from) as usize + 1).sum();
                }
            })
            .await?;
        Ok(new)
    }

    pub(super) async fn close(mut self) {
        // Everything is on disk already.
        let _ = self.wire.command("NOOP").await;
        let _ = self.wire.begin(b"LOGOUT").await;
    }
}

/// 32 hexadecimal digits.
pub(super) fn id_of(digits: &str) -> Option<[u8; 16]> {
    u128::from_str_radix(digits, 16)
        .ok()
        .filter(|_| digits.len() == 32)
        .map(u128::to_be_bytes)
}
