//! The parser of responses: one whole response, literals in place, into its type. It is strict, but for what [`lenient`] takes.
//!
//! size: one short function for each kind of response.

mod found;
mod lenient;

use super::Limits;
use super::cursor::{Cursor, Result};
use super::response::{BadName, FetchData, ListItem, ReplyCode, Response};
use super::structure;
use crate::command::{HeaderFields, Section, SectionText, StatusItem};
use crate::core::{DateTime, ObjectId, Tag, mailbox};
use crate::encode::Kind;

/// What is wrong, and where.
type Fault = (&'static str, usize);

/// Size of the literal that follows the line at the end of `input`, if one does. Lines of free text have none.
pub(super) fn literal_at_end(input: &[u8]) -> Option<u64> {
    let line = input.strip_suffix(b"\r\n")?.strip_suffix(b"}")?;
    let start = memchr::memrchr(b'{', &line[line.len().saturating_sub(21)..])?
        + line.len().saturating_sub(21);
    let digits = std::str::from_utf8(&line[start + 1..]).ok()?;
    let free_text = !input.starts_with(b"* ")
        || [&b"OK "[..], b"NO ", b"BAD ", b"BYE ", b"PREAUTH "]
            .iter()
            .any(|kind| {
                input[2..]
                    .get(..kind.len())
                    .is_some_and(|word| word.eq_ignore_ascii_case(kind))
            });
    if free_text || digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // More digits than a number has are a literal that nobody takes.
    Some(digits.parse().unwrap_or(u64::MAX))
}

/// Parses one whole response, CRLF included.
pub(super) fn response(
    input: &[u8],
    utf8: bool,
    greeted: bool,
    limits: &Limits,
) -> std::result::Result<Response, Fault> {
    let mut p = Cursor::new(input, utf8, limits);
    let response = p.response(greeted).map_err(|what| (what, p.at))?;
    p.exact(b"\r\n")
        .map_err(|_| ("expected the end of the response", p.at))?;
    if p.at == input.len() {
        Ok(response)
    } else {
        Err(("text after the response", p.at))
    }
}

impl Cursor<'_> {
    fn response(&mut self, greeted: bool) -> Result<Response> {
        if self.skip(b'+') {
            self.space_if_more()?;
            return Ok(Response::Continuation {
                text: self.run(|b| b != b'\r' && b != b'\n').to_vec(),
            });
        }
        if self.skip(b'*') {
            self.space()?;
            return self.untagged(greeted);
        }
        let tag = Tag::new(self.run(|b| b != b' ' && b != b'\r')).ok_or("expected a tag")?;
        self.space()?;
        let word = self.atom()?;
        let kind = kind(&word)
            .filter(|k| matches!(k, Kind::Ok | Kind::No | Kind::Bad))
            .ok_or("expected OK, NO or BAD")?;
        let (code, text) = self.code_and_text()?;
        Ok(Response::Tagged {
            tag,
            kind,
            code,
            text,
        })
    }

    fn untagged(&mut self, greeted: bool) -> Result<Response> {
        if matches!(self.peek(), Some(b'0'..=b'9')) {
            let number = self.number32()?;
            self.space()?;
            return self.numbered(number);
        }
        let word = self.atom()?.to_ascii_uppercase();
        if let Some(kind) = kind(&word) {
            let in_place = if greeted {
                kind != Kind::Preauth
            } else {
                !matches!(kind, Kind::No | Kind::Bad)
            };
            if !in_place {
                return Err("status that has no place here");
            }
            let (code, text) = self.code_and_text()?;
            return Ok(Response::Status { kind, code, text });
        }
        Ok(match &*word {
            "CAPABILITY" => Response::Capability(capabilities(self.words()?)?),
            "ENABLED" => Response::Enabled(self.words()?),
            "SEARCH" => {
                let (numbers, mod_seq) = self.found()?;
                Response::Search { numbers, mod_seq }
            }
            "SORT" => {
                let (numbers, mod_seq) = self.found()?;
                Response::Sort { numbers, mod_seq }
            }
            "THREAD" => Response::Thread(self.threads()?),
            "ESEARCH" => self.esearch()?,
            word => {
                self.space_if_more()?;
                match word {
                    "FLAGS" => Response::Flags(self.list(Self::flag)?),
                    "ID" => Response::Id(self.id()?),
                    "LIST" => match self.list_item(true)? {
                        Ok(item) => Response::List(item),
                        Err(name) => Response::Unlisted(name),
                    },
                    "LSUB" => match self.list_item(false)? {
                        Ok(item) => Response::Lsub(item),
                        Err(name) => Response::Unlisted(name),
                    },
                    "NAMESPACE" => {
                        let personal = self.namespace()?;
                        self.space()?;
                        let others = self.namespace()?;
                        self.space()?;
                        Response::Namespace([personal, others, self.namespace()?])
                    }
                    "STATUS" => {
                        let mailbox = self.mailbox()?;
                        self.space()?;
                        let mut mailbox_id = None;
                        let items = self.list(|p| p.status_item(&mut mailbox_id))?;
                        Response::MailboxStatus {
                            mailbox,
                            items: items.into_iter().flatten().collect(),
                            mailbox_id,
                        }
                    }
                    "VANISHED" => {
                        let earlier = self.skip(b'(');
                        if earlier {
                            self.exact(b"EARLIER) ").map_err(|_| "expected (EARLIER)")?;
                        }
                        Response::Vanished {
                            earlier,
                            uids: self.set()?,
                        }
                    }
                    _ => self.unknown()?,
                }
            }
        })
    }

    fn numbered(&mut self, number: u32) -> Result<Response> {
        let word = self.atom()?.to_ascii_uppercase();
        if number == 0 && !matches!(&*word, "EXISTS" | "RECENT") {
            return Err("number must not be zero");
        }
        Ok(match &*word {
            "EXISTS" => Response::Exists(number),
            "RECENT" => Response::Recent(number),
            "EXPUNGE" => Response::Expunge(number),
            "FETCH" => {
                self.space()?;
                let items = self.list(|p| match p.is_unreadable_date()? {
                    true => Ok(None),
                    false => p.fetch_item().map(Some),
                })?;
                if items.is_empty() {
                    return Err("FETCH of nothing");
                }
                Response::Fetch {
                    sequence: number,
                    items: items.into_iter().flatten().collect(),
                }
            }
            _ => self.unknown()?,
        })
    }

    fn code_and_text(&mut self) -> Result<(Option<ReplyCode>, String)> {
        if self.lenient {
            return self.lenient_code_and_text();
        }
        self.space()?;
        let code = if self.skip(b'[') {
            let code = self.code()?;
            self.exact(b"] ").map_err(|_| "expected ] and a space")?;
            Some(code)
        } else {
            None
        };
        let text = self.run(|b| !matches!(b, b'\r' | b'\n' | 0));
        if text.is_empty() || !(self.utf8 || text.is_ascii()) {
            return Err("bad text for humans");
        }
        Ok((
            code,
            String::from_utf8(text.to_vec()).map_err(|_| "bad text for humans")?,
        ))
    }

    fn code(&mut self) -> Result<ReplyCode> {
        let name = self.atom()?.to_ascii_uppercase();
        if PLAIN_CODES.contains(&&*name) {
            return Ok(ReplyCode::Plain(name));
        }
        if name == "CAPABILITY" {
            return Ok(ReplyCode::Capability(capabilities(self.words()?)?));
        }
        if name == "BADCHARSET" && self.peek() == Some(b']') {
            return Ok(ReplyCode::BadCharset(Vec::new()));
        }
        self.space()?;
        Ok(match &*name {
            "APPENDUID" => {
                let validity = self.nz_number()?;
                self.space()?;
                ReplyCode::AppendUid(validity, self.set()?)
            }
            "BADCHARSET" => ReplyCode::BadCharset(self.list(|p| {
                let name = p.astring()?;
                String::from_utf8(name).map_err(|_| "charset is not text")
            })?),
            "BADURL" => ReplyCode::BadUrl(self.url()?),
            "COPYUID" => {
                let validity = self.nz_number()?;
                self.space()?;
                let from = self.uid_list()?;
                self.space()?;
                let to = self.uid_list()?;
                if from.len() != to.len() {
                    return Err("COPYUID of different lengths");
                }
                ReplyCode::CopyUid(validity, from.into_iter().zip(to).collect())
            }
            "HIGHESTMODSEQ" => ReplyCode::HighestModSeq(self.mod_seq()?),
            "MAILBOXID" => ReplyCode::MailboxId(self.object_id()?),
            "MODIFIED" => ReplyCode::Modified(self.set()?),
            "PERMANENTFLAGS" => ReplyCode::PermanentFlags(self.list(Self::flag)?),
            "UIDNEXT" => ReplyCode::UidNext(self.nz_number()?),
            "UIDVALIDITY" => ReplyCode::UidValidity(self.nz_number()?),
            "UNSEEN" => ReplyCode::Unseen(self.nz_number()?),
            _ => return Err("unknown response code"),
        })
    }

    /// `url-resp-text`: up to the bracket.
    fn url(&mut self) -> Result<String> {
        let url = self.run(|b| b != b']').to_vec();
        String::from_utf8(url).map_err(|_| "URL is not text")
    }

    fn id(&mut self) -> Result<Vec<(String, Option<String>)>> {
        if self.skip_word("NIL") {
            return Ok(Vec::new());
        }
        self.list(|p| {
            let name = p.text_string()?;
            p.space()?;
            let value = p
                .nstring()?
                .map(String::from_utf8)
                .transpose()
                .map_err(|_| "string is not UTF-8")?;
            Ok((name, value))
        })
    }

    fn namespace(&mut self) -> Result<Vec<(String, Option<char>)>> {
        if self.skip_word("NIL") {
            return Ok(Vec::new());
        }
        self.open()?;
        let mut entries = Vec::new();
        while self.skip(b'(') {
            self.element()?;
            let prefix = self.string()?;
            let prefix = mailbox::decode_text(&prefix, self.utf8).map_err(|e| e.text())?;
            self.space()?;
            entries.push((prefix, self.delimiter()?));
            self.close()?;
        }
        self.close()?;
        if entries.is_empty() {
            Err("empty namespace")
        } else {
            Ok(entries)
        }
    }

    fn list_item(&mut self, extended: bool) -> Result<std::result::Result<ListItem, BadName>> {
        let attributes = self.list(|p| match p.peek() {
            Some(b'\\') => p.flag(),
            _ => Err("expected a mailbox attribute"),
        })?;
        self.space()?;
        let delimiter = self.delimiter()?;
        self.space()?;
        let name = self.listed_name()?;
        let mut item = ListItem {
            attributes,
            delimiter,
            name: String::new(),
            child_info: Vec::new(),
            old_name: None,
        };
        if extended && self.skip(b' ') {
            self.open()?;
            loop {
                let tag = self.astring()?.to_ascii_uppercase();
                self.space()?;
                match &*tag {
                    b"CHILDINFO" => item.child_info = self.list(Self::text_string)?,
                    b"OLDNAME" => {
                        self.open()?;
                        item.old_name = Some(self.mailbox()?);
                        self.close()?;
                    }
                    _ => return Err("unknown extended data of LIST"),
                }
                if !self.skip(b' ') {
                    break;
                }
            }
            self.close()?;
        }
        Ok(name.map(|name| ListItem { name, ..item }))
    }

    /// An item with its number, or MAILBOXID, which goes to its own place.
    fn status_item(
        &mut self,
        mailbox_id: &mut Option<ObjectId>,
    ) -> Result<Option<(StatusItem, u64)>> {
        let item = StatusItem::ALL
            .into_iter()
            .find(|item| self.skip_word(item.as_str()))
            .ok_or("unknown STATUS item")?;
        self.space()?;
        if item == StatusItem::MailboxId {
            *mailbox_id = Some(self.object_id()?);
            return Ok(None);
        }
        let value = match item {
            StatusItem::UidNext | StatusItem::UidValidity => u64::from(self.nz_number()?),
            StatusItem::Size | StatusItem::HighestModSeq => self.mod_seq()?,
            _ => u64::from(self.number32()?),
        };
        Ok(Some((item, value)))
    }

    fn fetch_item(&mut self) -> Result<FetchData> {
        let name = self
            .run(|b| b.is_ascii_alphanumeric() || b == b'.')
            .to_ascii_uppercase();
        if matches!(&*name, b"BINARY" | b"BINARY.SIZE") {
            return self.binary_item(&name);
        }
        if name == b"BODY" && self.skip(b'[') {
            let section = self.section()?;
            let origin = self.origin()?;
            self.space()?;
            return Ok(FetchData::Section {
                section,
                origin,
                data: self.nstring()?,
            });
        }
        self.space()?;
        Ok(match &*name {
            b"BODY" => FetchData::Body(structure::body(self, false)?),
            b"BODYSTRUCTURE" => FetchData::BodyStructure(structure::body(self, true)?),
            b"EMAILID" => FetchData::EmailId(self.object_id()?),
            b"ENVELOPE" => FetchData::Envelope(structure::envelope(self)?),
            b"FLAGS" => FetchData::Flags(self.list(Self::flag)?),
            b"INTERNALDATE" => {
                let text = self.string()?;
                FetchData::InternalDate(DateTime::parse(&text).ok_or("invalid date-time")?)
            }
            b"MODSEQ" => {
                self.open()?;
                let mod_seq = self.mod_seq()?;
                self.close()?;
                FetchData::ModSeq(mod_seq)
            }
            b"PREVIEW" => {
                let text = self.nstring()?.map(String::from_utf8);
                FetchData::Preview(text.transpose().map_err(|_| "preview is not text")?)
            }
            b"RFC822" | b"RFC822.HEADER" | b"RFC822.TEXT" => {
                FetchData::Rfc822(String::from_utf8_lossy(&name).into_owned(), self.nstring()?)
            }
            b"SAVEDATE" if self.skip_word("NIL") => FetchData::SaveDate(None),
            b"SAVEDATE" => {
                let text = self.string()?;
                FetchData::SaveDate(Some(DateTime::parse(&text).ok_or("invalid date-time")?))
            }
            b"THREADID" if self.skip_word("NIL") => FetchData::ThreadId(None),
            b"THREADID" => FetchData::ThreadId(Some(self.object_id()?)),
            b"RFC822.SIZE" => FetchData::Size(self.number()?),
            b"UID" => FetchData::Uid(self.nz_number()?),
            _ => return Err("unknown FETCH data"),
        })
    }

    /// `"BINARY" section-binary SP (nstring / literal8) / "BINARY.SIZE" section-binary SP number`
    fn binary_item(&mut self, name: &[u8]) -> Result<FetchData> {
        self.exact(b"[").map_err(|_| "expected [")?;
        let section = self.section()?;
        if section.text.is_some() {
            return Err("BINARY has numbers of a part only");
        }
        let part = section.part;
        if name == b"BINARY.SIZE" {
            self.space()?;
            let size = self.mod_seq()?;
            return Ok(FetchData::BinarySize { part, size });
        }
        let origin = self.origin()?;
        self.space()?;
        let literal8 = self.skip(b'~');
        let data = if literal8 {
            self.exact(b"{").map_err(|_| "malformed literal")?;
            Some(self.literal()?.to_vec())
        } else {
            self.nstring()?
        };
        Ok(FetchData::Binary {
            part,
            origin,
            data,
            literal8,
        })
    }

    fn origin(&mut self) -> Result<Option<u64>> {
        if !self.skip(b'<') {
            return Ok(None);
        }
        let origin = self.number()?;
        self.exact(b">").map_err(|_| "expected >")?;
        Ok(Some(origin))
    }

    fn section(&mut self) -> Result<Section> {
        let mut section = Section::default();
        let mut word_follows = true;
        while word_follows && matches!(self.peek(), Some(b'1'..=b'9')) {
            section.part.push(self.nz_number()?);
            word_follows = self.skip(b'.');
        }
        if word_follows && (self.peek() != Some(b']') || !section.part.is_empty()) {
            let word = self
                .run(|b| b.is_ascii_alphabetic() || b == b'.')
                .to_ascii_uppercase();
            section.text = Some(match &*word {
                b"HEADER" => SectionText::Header,
                b"TEXT" => SectionText::Text,
                b"MIME" if !section.part.is_empty() => SectionText::Mime,
                b"HEADER.FIELDS" | b"HEADER.FIELDS.NOT" => {
                    self.space()?;
                    let names = self
                        .list(|p| String::from_utf8(p.astring()?).map_err(|_| "bad field name"))?;
                    if names.is_empty() {
                        return Err("no field names");
                    }
                    SectionText::HeaderFields(HeaderFields {
                        not: word.ends_with(b"NOT"),
                        names,
                    })
                }
                _ => return Err("invalid section"),
            });
        }
        self.exact(b"]").map_err(|_| "expected ]")?;
        Ok(section)
    }
}

fn kind(word: &str) -> Option<Kind> {
    [Kind::Ok, Kind::No, Kind::Bad, Kind::Preauth, Kind::Bye]
        .into_iter()
        .find(|k| k.as_str().eq_ignore_ascii_case(word))
}

/// "capability-data = "CAPABILITY" *(SP capability) SP "IMAP4rev2" *(SP capability)"; rev1 servers have IMAP4rev1 there.
fn capabilities(names: Vec<String>) -> Result<Vec<String>> {
    let good = names
        .iter()
        .any(|n| n.eq_ignore_ascii_case("IMAP4rev2") || n.eq_ignore_ascii_case("IMAP4rev1"));
    if good {
        Ok(names)
    } else {
        Err("capabilities without IMAP4rev1 or IMAP4rev2")
    }
}

/// Codes without arguments.
const PLAIN_CODES: [&str; 33] = [
    "ALERT",
    "ALREADYEXISTS",
    "AUTHENTICATIONFAILED",
    "AUTHORIZATIONFAILED",
    "CANNOT",
    "CLIENTBUG",
    "CLOSED",
    "CONTACTADMIN",
    "CORRUPTION",
    "EXPIRED",
    "EXPUNGEISSUED",
    "HASCHILDREN",
    "INUSE",
    "LIMIT",
    "NOMODSEQ",
    "NONEXISTENT",
    "NOPERM",
    "NOTSAVED",
    "OVERQUOTA",
    "PARSE",
    "PRIVACYREQUIRED",
    "READ-ONLY",
    "READ-WRITE",
    "SERVERBUG",
    "TOOBIG",
    "TRYCREATE",
    "UIDNOTSTICKY",
    "UNAVAILABLE",
    "UNKNOWN-CTE",
    "USEATTR",
    "COMPRESSIONACTIVE",
    "NOUPDATE",
    "TOOMANY",
];
