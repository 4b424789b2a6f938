//! Another IMAP server as a source.
//!
//! The id of a message follows from server, user, mailbox, UIDVALIDITY and UID: a message that is here already is not fetched again. Messages are
//! fetched some at a time, large ones in parts, so that no more than some MiB are held.
//!
//! The server may be broken, or hostile: whatever it sends, the import ends with an error that says why, in bounded memory ([`Bounds`], and the
//! limits below). What was imported until then stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use base64::Engine as _;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;
use whimbrel_imap::{
    CommandBody,
    client::{BadName, FetchData, ListItem, ReplyCode, Response},
    core::{DateTime, Secret, SequenceSet, utf7},
    encode::Kind,
};
use zeroize::Zeroizing;

use super::{
    Failure, Folder, Place, Report,
    body::{Body, MEMORY_BYTES_MAX},
    source_id,
    target::{Offer, Target},
    wire::{Bounds, MAILBOX_MESSAGES_MAX, Stream, Wire, WireError, quoted},
};
use crate::tls::provider;

/// Time limit for a connection and its handshake.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(30);
/// Messages of which flags, dates and sizes are asked at once.
const WINDOW_MESSAGES: usize = 500;
/// Bytes of messages fetched at once.
const FETCH_BYTES_MAX: u64 = 2 << 20;
/// Folders of an account, and names that it has subscribed to. An account here has fewer mailboxes by far.
const FOLDERS_MAX: usize = 10_000;
/// Levels of a folder's name: what is deeper is one level, which gets a shorter name.
const LEVELS_MAX: usize = 50;
/// Flags and keywords of a message that are considered.
const FLAGS_MAX: usize = 1000;
/// Gmail, and its search language.
const GMAIL: &str = "X-GM-EXT-1";
/// Finds messages that lie only in the folder of all mail: to archive a message there is to remove the label of its folder.
const ARCHIVED: &str = "X-GM-RAW \"has:nouserlabels -in:inbox -in:sent -in:drafts\"";
/// Where systems keep the certificates that they trust.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// The encryption of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte.
    Tls,
    /// STARTTLS, or nothing is sent.
    StartTls,
    /// Not at all: on this machine only.
    Clear,
}

/// Another server, and the account there.
pub struct Remote {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// TLS.
    pub security: Security,
    /// Certificates to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// Login name.
    pub user: String,
    /// Password.
    pub password: Zeroizing<Vec<u8>>,
}

pub(super) struct Connection {
    wire: Wire,
    server: String,
    user: String,
    capabilities: Vec<String>,
    utf8: bool,
}

fn trusted(ca: Option<&PathBuf>) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    let bundle = match ca {
        Some(ca) => ca.clone(),
        None => BUNDLES
            .iter()
            .map(PathBuf::from)
            .find(|path| path.is_file())
            .ok_or("no certificates of authorities are on this system: name a file with --ca")?,
    };
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", bundle.display());
    for der in CertificateDer::pem_file_iter(&bundle).map_err(|error| wrong(&error))? {
        // A certificate that cannot be used is ignored.
        let _ = roots.add(der.map_err(|error| wrong(&error))?);
    }
    Ok(roots)
}

async fn tls<S: Stream>(stream: S, remote: &Remote) -> Result<impl Stream + use<S>, Failure> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(trusted(remote.ca.as_ref())?)
        .with_no_client_auth();
    let name = ServerName::try_from(remote.host.clone())?;
    let shaken = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let shaken = timeout(CONNECT_WAIT_MAX, shaken)
        .await
        .map_err(io::Error::from)?;
    shaken.map_err(|error| format!("TLS with {}: {error}", remote.host).into())
}

impl Connection {
    pub(super) async fn open(remote: Remote) -> Result<Connection, Failure> {
        let connect = TcpStream::connect((remote.host.as_str(), remote.port));
        let stream = timeout(CONNECT_WAIT_MAX, connect)
            .await
            .map_err(io::Error::from)?;
        let stream =
            stream.map_err(|error| format!("{} port {}: {error}", remote.host, remote.port))?;
        if remote.security == Security::Clear && !is_here(stream.peer_addr()?.ip()) {
            return Err("--clear works only with a server on this machine: on the network the password could be read".into());
        }
        stream.set_nodelay(true)?;
        let mut wire = if remote.security == Security::Tls {
            greeted(Box::new(tls(stream, &remote).await?)).await?
        } else {
            greeted(Box::new(stream)).await?
        };
        if remote.security == Security::StartTls {
            wire.command("STARTTLS").await?;
            let stream = Box::new(tls(wire.into_stream(), &remote).await?);
            wire = Wire::resume(stream, Bounds::others())?;
        }
        let mut connection = Connection {
            wire,
            server: format!("{}:{}", remote.host.to_ascii_lowercase(), remote.port),
            user: remote.user,
            capabilities: Vec::new(),
            utf8: false,
        };
        connection.ask_capabilities().await?;
        connection.log_in(&remote.password).await?;
        connection.ask_capabilities().await?;
        if connection.has("UTF8=ACCEPT") || connection.has("UTF8=ONLY") {
            connection.wire.command("ENABLE UTF8=ACCEPT").await?;
            connection.wire.set_utf8();
            connection.utf8 = true;
        }
        Ok(connection)
    }

    fn has(&self, capability: &str) -> bool {
        self.capabilities
            .iter()
            .any(|of| of.eq_ignore_ascii_case(capability))
    }

    async fn ask_capabilities(&mut self) -> Result<(), Failure> {
        for response in self.wire.command("CAPABILITY").await? {
            if let Response::Capability(capabilities) = response {
                self.capabilities = capabilities;
            }
        }
        Ok(())
    }

    async fn log_in(&mut self, password: &[u8]) -> Result<(), Failure> {
        let done = if self.has("AUTH=PLAIN") {
            let message = Zeroizing::new([b"\0", self.user.as_bytes(), b"\0", password].concat());
            let message =
                Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(&message));
            self.wire.begin(b"AUTHENTICATE PLAIN").await?;
            loop {
                match self.wire.next().await? {
                    Response::Continuation { .. } => self.wire.line(message.as_bytes()).await?,
                    Response::Tagged { kind: Kind::Ok, .. } => break Ok(()),
                    Response::Tagged { text, .. } => break Err(text),
                    _ => {}
                }
            }
        } else if self.has("LOGINDISABLED") {
            Err("it accepts no password over this connection".to_owned())
        } else {
            let login = CommandBody::Login {
                user: self.user.clone(),
                password: Secret::new(password.to_vec()),
            };
            match self.wire.body(&login).await {
                Ok(_) => Ok(()),
                Err(WireError::Refused { text, .. }) => Err(text),
                Err(error) => return Err(error.into()),
            }
        };
        done.map_err(|text| {
            format!("{} refused the login of {}: {text}", self.server, self.user).into()
        })
    }

    fn quoted(&self, name: &str) -> String {
        if self.utf8 {
            return quoted(name);
        }
        let mut wire = Vec::new();
        utf7::encode(name, &mut wire);
        // It is ASCII.
        quoted(&String::from_utf8_lossy(&wire))
    }

    pub(super) async fn folders(&mut self, report: &mut Report) -> Result<Vec<Folder>, Failure> {
        let mut personal: Vec<String> = Vec::new();
        let mut foreign: Vec<String> = Vec::new();
        if self.has("NAMESPACE") {
            let take = |response| {
                if let Response::Namespace([own, others, shared]) = response {
                    personal = own.into_iter().map(|(prefix, _)| prefix).collect();
                    let more = others.into_iter().chain(shared);
                    foreign = more
                        .map(|(prefix, _)| prefix)
                        .filter(|of| !of.is_empty())
                        .collect();
                }
            };
            if let Some(why) = self.asked("NAMESPACE", take).await? {
                report.note(&format!("namespaces are not known: {why}"));
            }
        }
        let mut listed = Listed::default();
        let returns = match self.has("SPECIAL-USE") && self.has("LIST-EXTENDED") {
            true => " RETURN (SPECIAL-USE)",
            false => "",
        };
        let take = |response| match response {
            Response::List(item) => listed.add(item),
            Response::Unlisted(name) => listed.add_bad(name),
            _ => {}
        };
        self.wire
            .each(&format!("LIST \"\" \"*\"{returns}"), take)
            .await?;
        for name in std::mem::take(&mut listed.bad) {
            report.failed(&name.begin, name.why.text());
        }
        let items = listed.end("folders")?;
        let mut listed = Listed::default();
        let take = |response| match response {
            Response::Lsub(item) if !item.has("\\Noselect") => listed.add(item),
            Response::Unlisted(name) => listed.add_bad(name),
            _ => {}
        };
        // A server that has none says no.
        if let Some(why) = self.asked("LSUB \"\" \"*\"", take).await? {
            report.note(&format!("subscriptions are not known: {why}"));
        }
        for name in std::mem::take(&mut listed.bad) {
            report.failed(&format!("subscription of {}", name.begin), name.why.text());
        }
        let subscribed = listed.end("subscriptions")?;
        let subscribed: BTreeSet<String> = subscribed.into_iter().map(|item| item.name).collect();
        let levels = |name: &str, delimiter: Option<char>| {
            let prefix = personal
                .iter()
                .filter(|prefix| !prefix.is_empty() && name.len() > prefix.len())
                .find_map(|prefix| name.strip_prefix(prefix.as_str()));
            let rest = prefix.unwrap_or(name);
            match delimiter {
                Some(delimiter) => rest
                    .splitn(LEVELS_MAX, delimiter)
                    .map(str::to_owned)
                    .collect(),
                None => vec![rest.to_owned()],
            }
        };
        let mut folders: Vec<Folder> = Vec::new();
        let mut known: BTreeSet<String> = BTreeSet::new();
        let mut delimiter = None;
        for item in items {
            delimiter = delimiter.or(item.delimiter);
            if foreign
                .iter()
                .any(|prefix| item.name.starts_with(prefix.as_str()))
            {
                report.ignored(&item.name, "it belongs to others");
                known.insert(item.name);
                continue;
            }
            if item.has("\\Noselect") || item.has("\\NonExistent") {
                continue;
            }
            let uses: Vec<String> = item
                .special_uses()
                .map(|of| of.as_str().to_owned())
                .collect();
            let is = |view: &str| uses.iter().any(|of| of.eq_ignore_ascii_case(view));
            // These folders show messages of other folders. \Important may be an ordinary folder, but not with Gmail.
            if is("\\Flagged") || (self.has(GMAIL) && is("\\Important")) {
                report.ignored(&item.name, "it shows messages of other folders");
                known.insert(item.name);
                continue;
            }
            if is("\\All") {
                if self.has(GMAIL) {
                    report.note("labels that Gmail does not show in IMAP are not seen: mail that has only these does not come along (Settings, Labels, \"Show in IMAP\")");
                    folders.push(Folder {
                        levels: levels(&item.name, item.delimiter),
                        key: Vec::new(),
                        special_use: Some("\\Archive".to_owned()),
                        subscribed: subscribed.contains(&item.name),
                        weight: self.archived(&item.name).await?,
                        place: Place::Archive(item.name.clone()),
                    });
                } else if self.messages(&item.name).await? > 0 {
                    // The server does not say which messages lie in other folders, too: nothing is left out without a report.
                    report.failed(&item.name, "it shows messages of other folders; those that no other folder has do not come along");
                }
                known.insert(item.name);
                continue;
            }
            let weight = self.messages(&item.name).await?;
            folders.push(Folder {
                levels: levels(&item.name, item.delimiter),
                key: Vec::new(),
                special_use: uses.into_iter().next(),
                subscribed: subscribed.contains(&item.name),
                weight,
                place: Place::Mailbox(item.name.clone()),
            });
            known.insert(item.name);
        }
        for name in subscribed.into_iter().filter(|name| !known.contains(name)) {
            folders.push(Folder {
                levels: levels(&name, delimiter),
                key: Vec::new(),
                special_use: None,
                subscribed: true,
                weight: 0,
                place: Place::Nowhere,
            });
        }
        Ok(folders)
    }

    /// The number of messages in a folder; 0 if it is not known now.
    async fn messages(&mut self, name: &str) -> Result<u64, Failure> {
        let line = format!("STATUS {} (MESSAGES)", self.quoted(name));
        let mut count = 0;
        let take = |response| {
            if let Response::MailboxStatus { items, .. } = response {
                count = items.first().map_or(0, |(_, count)| *count);
            }
        };
        self.asked(&line, take).await?;
        Ok(count)
    }

    /// Passes on the responses to a command that the server may refuse; returns the reason. Earlier responses count: "it is permissible to return an
    /// untagged FETCH response" for each message that is there and a tagged NO for those that are not (RFC 2180, 4.1.2).
    async fn asked(
        &mut self,
        line: &str,
        take: impl FnMut(Response),
    ) -> Result<Option<String>, Failure> {
        match self.wire.each(line, take).await {
            Ok(()) => Ok(None),
            Err(WireError::Refused { text, .. }) => Ok(Some(text)),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn read(
        &mut self,
        folder: &Folder,
        target: &mut Target,
        report: &mut Report,
    ) -> Result<Result<(), String>, Failure> {
        let (name, search) = match &folder.place {
            Place::Mailbox(name) => (name, "ALL"),
            Place::Archive(name) => (name, ARCHIVED),
            _ => return Ok(Ok(())),
        };
        let (validity, uids) = match self.uids(name, search).await? {
            Ok(found) => found,
            Err(why) => return Ok(Err(why)),
        };
        for window in uids.chunks(WINDOW_MESSAGES) {
            let wanted = window
                .iter()
                .map(|uid| (*uid, self.id(name, validity, *uid)));
            let wanted: Vec<(u32, [u8; 16])> = wanted
                .filter(|(_, id)| {
                    let is_known = target.has(*id);
                    report.known += u64::from(is_known);
                    !is_known
                })
                .collect();
            self.window(name, &wanted, target, report).await?;
            report.step(window.len() as u64);
        }
        Ok(Ok(()))
    }

    /// UIDVALIDITY of a mailbox, and UIDs of the messages in it that match.
    async fn uids(
        &mut self,
        name: &str,
        search: &str,
    ) -> Result<Result<(u32, Vec<u32>), String>, Failure> {
        let (mut validity, mut exists) = (0, 0);
        let line = format!("EXAMINE {}", self.quoted(name));
        let take = |response| match response {
            Response::Exists(count) => exists = count,
            Response::Status {
                code: Some(ReplyCode::UidValidity(number)),
                ..
            } => validity = number,
            _ => {}
        };
        if let Some(why) = self.asked(&line, take).await? {
            return Ok(Err(why));
        }
        if exists == 0 {
            return Ok(Ok((validity, Vec::new())));
        }
        // Without it a later import could not tell whether a UID is that of a message which is here already (RFC 9051, section 2.3.1.1).
        if validity == 0 {
            return Ok(Err("the server does not say its UIDVALIDITY".to_owned()));
        }
        let mut uids = Vec::new();
        let mut too_many = false;
        let take = |response| {
            if let Response::Search { numbers, .. } = response {
                too_many |= uids.len() + numbers.len() > MAILBOX_MESSAGES_MAX;
                if !too_many {
                    uids.extend(numbers);
                }
            }
        };
        if let Some(why) = self.asked(&format!("UID SEARCH {search}"), take).await? {
            return Ok(Err(why));
        }
        if too_many {
            return Ok(Err(format!(
                "it has more than {MAILBOX_MESSAGES_MAX} messages"
            )));
        }
        uids.sort_unstable();
        uids.dedup();
        Ok(Ok((validity, uids)))
    }

    /// How many messages lie only in a folder of all mail; 0 if it is not known now.
    async fn archived(&mut self, name: &str) -> Result<u64, Failure> {
        let found = self.uids(name, ARCHIVED).await?;
        Ok(found.map_or(0, |(_, uids)| uids.len() as u64))
    }

    fn id(&self, name: &str, validity: u32, uid: u32) -> [u8; 16] {
        source_id(
            &[
                b"imap",
                self.server.as_bytes(),
                self.user.as_bytes(),
                name.as_bytes(),
                &validity.to_le_bytes(),
            ],
            uid,
            &[&uid.to_le_bytes()],
        )
    }

    async fn window(
        &mut self,
        name: &str,
        wanted: &[(u32, [u8; 16])],
        target: &mut Target,
        report: &mut Report,
    ) -> Result<(), Failure> {
        if wanted.is_empty() {
            return Ok(());
        }
        let id_of: BTreeMap<u32, [u8; 16]> = wanted.iter().copied().collect();
        let (found, refused) = self.described(&id_of).await?;
        let why = not_given(refused);
        for (uid, _) in wanted.iter().filter(|(uid, _)| !found.contains_key(uid)) {
            report.skip(&format!("{name}: UID {uid}"), &why);
        }
        let mut rest = found.into_values().peekable();
        while let Some(first) = rest.next() {
            let mut bytes = first.bytes;
            let mut group = vec![first];
            while let Some(next) = rest.next_if(|next| {
                bytes.saturating_add(next.bytes) <= FETCH_BYTES_MAX
                    && next.bytes <= MEMORY_BYTES_MAX as u64
            }) {
                bytes += next.bytes;
                group.push(next);
            }
            let (bodies, refused) = if group.len() == 1 && bytes > MEMORY_BYTES_MAX as u64 {
                let bytes_max = target.bytes_max();
                self.large(&group[0], bytes_max).await?
            } else {
                self.small(&group).await?
            };
            let why = not_given(refused);
            for (uid, body) in bodies {
                let at = group.iter().position(|found| found.uid == uid);
                let (Some(at), Some(id)) = (at, id_of.get(&uid).copied()) else {
                    continue;
                };
                let found = group.swap_remove(at);
                let offer = Offer {
                    id,
                    label: format!("{name}: UID {uid}"),
                    flags: found.flags,
                    date: found.date,
                    body,
                };
                target.offer(offer, report).await?;
            }
            for gone in group {
                report.skip(&format!("{name}: UID {}", gone.uid), &why);
            }
        }
        Ok(())
    }

    /// Flags, dates and sizes of these messages, before they are fetched, and the reason if some are missing.
    async fn described(
        &mut self,
        wanted: &BTreeMap<u32, [u8; 16]>,
    ) -> Result<(BTreeMap<u32, MessageInfo>, Option<String>), Failure> {
        let line = format!(
            "UID FETCH {} (UID FLAGS INTERNALDATE RFC822.SIZE)",
            set(wanted.keys().copied())
        );
        // Items that were not asked for are not kept, nor repeated ones.
        let mut found: BTreeMap<u32, MessageInfo> = BTreeMap::new();
        let take = |response| {
            // One message's items may come in several responses.
            if let Response::Fetch { items, .. } = response
                && let Some(uid) = uid_of(&items)
                && wanted.contains_key(&uid)
            {
                let of = found.entry(uid).or_default();
                of.take(items);
                of.flags.truncate(FLAGS_MAX);
            }
        };
        let refused = self.asked(&line, take).await?;
        Ok((found, refused))
    }

    async fn small(&mut self, group: &[MessageInfo]) -> Result<Given, Failure> {
        let line = format!(
            "UID FETCH {} (UID BODY.PEEK[])",
            set(group.iter().map(|found| found.uid))
        );
        let mut bodies = BTreeMap::new();
        let take = |response| {
            if let Response::Fetch { items, .. } = response {
                let (mut uid, mut body) = (None, None);
                for item in items {
                    match item {
                        FetchData::Uid(of) => uid = Some(of),
                        FetchData::Section { data, .. } => body = data,
                        _ => {}
                    }
                }
                if let (Some(uid), Some(body)) = (uid, body)
                    && group.iter().any(|found| found.uid == uid)
                {
                    bodies.entry(uid).or_insert_with(|| Body::of(body));
                }
            }
        };
        let refused = self.asked(&line, take).await?;
        Ok((bodies, refused))
    }

    /// Fetches a message in parts. It may have more bytes than the server said; fewer only if the server shows the end. A missing part means that the
    /// message is gone, and a short part may be all that the server gives at once. A message of more than `bytes_max` is not read to its end, which
    /// need not exist: it cannot be imported anyway.
    async fn large(&mut self, found: &MessageInfo, bytes_max: u64) -> Result<Given, Failure> {
        let mut body = Body::default();
        let mut parts = 0;
        loop {
            if parts > PARTS_FREE + body.len() / PART_BYTES_MIN {
                return Ok((
                    BTreeMap::new(),
                    Some("the server gives it in very small parts".to_owned()),
                ));
            }
            let line = format!(
                "UID FETCH {} (BODY.PEEK[]<{}.{MEMORY_BYTES_MAX}>)",
                found.uid,
                body.len()
            );
            parts += 1;
            let mut part = None;
            let take = |response| {
                if let Response::Fetch { items, .. } = response {
                    for item in items {
                        if let FetchData::Section { data, .. } = item {
                            // At the end some servers answer NIL, which others answer for a message that is gone.
                            part = data.or((body.len() >= found.bytes).then(Vec::new));
                        }
                    }
                }
            };
            if let Some(why) = self.asked(&line, take).await? {
                return Ok((BTreeMap::new(), Some(why)));
            }
            let Some(mut part) = part else {
                return Ok((BTreeMap::new(), None));
            };
            let (is_empty, is_short) = (part.is_empty(), part.len() < MEMORY_BYTES_MAX);
            body.push(&mut part)?;
            let is_last = is_empty || (is_short && body.len() >= found.bytes);
            if is_last || body.len() > bytes_max {
                return Ok((BTreeMap::from([(found.uid, body)]), None));
            }
        }
    }
}

/// A large message must come in parts of so many bytes on average: otherwise a server that gives one byte at a time would be asked for ever.
const PART_BYTES_MIN: u64 = 4096;
const PARTS_FREE: u64 = 16;

/// Messages by UID, and the reason if some are missing.
type Given = (BTreeMap<u32, Body>, Option<String>);

/// For a message that the server has listed and does not give: it was removed since, or never existed, or the server cannot read it.
fn not_given(refused: Option<String>) -> String {
    match refused {
        None => "the server did not give it".to_owned(),
        Some(why) => format!("the server did not give it: {why}"),
    }
}

async fn greeted(stream: Box<dyn Stream>) -> Result<Wire, Failure> {
    match Wire::open(stream, Bounds::others()).await? {
        (wire, Response::Status { kind: Kind::Ok, .. }) => Ok(wire),
        (_, Response::Status { text, .. }) => Err(format!("the server refuses: {text}").into()),
        _ => Err("the server does not greet".into()),
    }
}

/// Names that a server lists, no more of them than an import accepts.
#[derive(Default)]
struct Listed {
    items: Vec<ListItem>,
    /// Names that cannot be read: these mailboxes are left out.
    bad: Vec<BadName>,
    too_many: bool,
}

impl Listed {
    fn add(&mut self, item: ListItem) {
        if self.has_room() {
            self.items.push(item);
        }
    }

    fn add_bad(&mut self, name: BadName) {
        if self.has_room() {
            self.bad.push(name);
        }
    }

    fn has_room(&mut self) -> bool {
        self.too_many |= self.items.len() + self.bad.len() >= FOLDERS_MAX;
        !self.too_many
    }

    fn end(self, what: &str) -> Result<Vec<ListItem>, Failure> {
        if self.too_many {
            return Err(format!("the server has more than {FOLDERS_MAX} {what}").into());
        }
        Ok(self.items)
    }
}

fn is_here(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

pub(super) fn set(uids: impl Iterator<Item = u32>) -> String {
    let mut out = Vec::new();
    SequenceSet::from_numbers(uids).encode(&mut out);
    // Digits, colons and commas.
    String::from_utf8(out).unwrap_or_default()
}

fn uid_of(items: &[FetchData]) -> Option<u32> {
    items.iter().find_map(|item| match item {
        FetchData::Uid(uid) => Some(*uid),
        _ => None,
    })
}

/// Items of a message that are asked for before it is fetched.
#[derive(Default)]
pub(super) struct MessageInfo {
    pub(super) uid: u32,
    pub(super) flags: Vec<String>,
    pub(super) date: Option<DateTime>,
    pub(super) bytes: u64,
    /// Only asked of our own server.
    pub(super) email: Option<String>,
}

impl MessageInfo {
    pub(super) fn read(items: Vec<FetchData>) -> Option<MessageInfo> {
        let mut found = MessageInfo::default();
        found.take(items);
        // Flags that others change come without a UID.
        (found.uid != 0).then_some(found)
    }

    /// Adds the items of one more response.
    fn take(&mut self, items: Vec<FetchData>) {
        for item in items {
            match item {
                FetchData::Uid(uid) => self.uid = uid,
                FetchData::Flags(flags) => self.flags = flags,
                FetchData::InternalDate(date) => self.date = Some(date),
                FetchData::Size(bytes) => self.bytes = bytes,
                FetchData::EmailId(id) => self.email = Some(id.as_str().to_owned()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
