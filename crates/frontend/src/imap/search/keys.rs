//! What SORT compares: columns of keys, one entry a message, of bounded size however long the texts are.

use std::cmp::Ordering;

use whimbrel_imap::command::{SortCriterion, SortKey};
use whimbrel_mime::{FirstAddress, SortKeys, collation, date, header, subject};
use whimbrel_service::api::Row;

/// Bytes of a text's key at most: people tell texts apart by less.
const KEY_BYTES_MAX: usize = 256;

/// The keys of the messages that are to be sorted.
pub(super) struct Keys {
    columns: Vec<Column>,
    scratch: Scratch,
}

#[derive(Default)]
struct Scratch {
    text: String,
    key: Vec<u8>,
}

struct Column {
    reverse: bool,
    key: SortKey,
    values: Values,
}

enum Values {
    Numbers(Vec<i64>),
    Texts(Texts),
}

/// Whether messages can be sorted by it without their content rows.
pub(super) fn needs_content(key: SortKey) -> bool {
    !matches!(key, SortKey::Arrival | SortKey::Size)
}

impl Keys {
    /// For so many messages, with so many bytes for all texts together.
    pub(super) fn new(criteria: &[SortCriterion], messages: usize, bytes_max: usize) -> Keys {
        let is_number = |key| matches!(key, SortKey::Arrival | SortKey::Date | SortKey::Size);
        let texts = criteria.iter().filter(|c| !is_number(c.key)).count();
        let column = |criterion: &SortCriterion| Column {
            reverse: criterion.reverse,
            key: criterion.key,
            values: if is_number(criterion.key) {
                Values::Numbers(Vec::with_capacity(messages))
            } else {
                Values::Texts(Texts::new(messages, bytes_max / texts))
            },
        };
        Keys {
            columns: criteria.iter().map(column).collect(),
            scratch: Scratch::default(),
        }
    }

    /// Whether content rows are needed.
    pub(super) fn needs_content(&self) -> bool {
        self.columns.iter().any(|column| needs_content(column.key))
    }

    /// Adds a message. "If the associated RFC-822 header for a particular criterion is absent, it is treated as the empty string" (RFC 5256,
    /// 3), and so are all of a message whose content row cannot be read.
    pub(super) fn push(&mut self, row: &Row, sort_keys: &SortKeys<'_>) {
        for column in &mut self.columns {
            match &mut column.values {
                Values::Numbers(numbers) => numbers.push(match column.key {
                    SortKey::Size => i64::from(row.size),
                    SortKey::Date => sent(row, sort_keys),
                    _ => row.date.seconds,
                }),
                Values::Texts(texts) => {
                    let Scratch { text, key } = &mut self.scratch;
                    key.clear();
                    let found = match column.key {
                        SortKey::Subject => {
                            subject::base(sort_keys.subject.unwrap_or_default(), text).text
                        }
                        SortKey::Cc => mailbox(sort_keys.cc, text),
                        SortKey::From => mailbox(sort_keys.from, text),
                        SortKey::To => mailbox(sort_keys.to, text),
                        SortKey::DisplayTo => display(sort_keys.to, text),
                        _ => display(sort_keys.from, text),
                    };
                    // No character has a key of less than a quarter of its bytes.
                    let end = found.floor_char_boundary(4 * texts.longest);
                    collation::casemap(&found[..end], key);
                    texts.push(key);
                }
            }
        }
        self.scratch.text.shrink_to(KEY_BYTES_MAX);
    }

    /// Compares two messages by their places among those pushed.
    pub(super) fn compare(&self, a: u32, b: u32) -> Ordering {
        let (a, b) = (a as usize, b as usize);
        for column in &self.columns {
            let order = match &column.values {
                Values::Numbers(numbers) => numbers[a].cmp(&numbers[b]),
                Values::Texts(texts) => texts.compare(a, b),
            };
            if order.is_ne() {
                return if column.reverse {
                    order.reverse()
                } else {
                    order
                };
            }
        }
        Ordering::Equal
    }
}

/// "If the sent date cannot be determined (a Date: header is missing or cannot be parsed), the INTERNALDATE for that message is used as
/// the sent date" (RFC 5256, 2.2).
pub(super) fn sent(row: &Row, sort_keys: &SortKeys<'_>) -> i64 {
    let sent = sort_keys.date.and_then(date::parse);
    sent.map_or(row.date.seconds, |date| date.utc_seconds)
}

/// addr-mailbox.
fn mailbox<'a>(address: Option<FirstAddress<'_>>, scratch: &'a mut String) -> &'a str {
    scratch.clear();
    append(scratch, address.and_then(|address| address.mailbox));
    scratch
}

/// What is shown of an address (RFC 5957, 3): its name, decoded, if that is not empty; else the address itself, or the name of the group.
fn display<'a>(address: Option<FirstAddress<'_>>, scratch: &'a mut String) -> &'a str {
    scratch.clear();
    let Some(address) = address else {
        return scratch;
    };
    if let Some(name) = address.name {
        *scratch = header::decode(name);
        subject::squeeze(scratch);
    }
    if scratch.is_empty() {
        append(scratch, address.mailbox);
        if address.host.is_some() {
            scratch.push('@');
            append(scratch, address.host);
        }
    }
    scratch
}

fn append(text: &mut String, bytes: Option<&[u8]>) {
    text.push_str(&String::from_utf8_lossy(bytes.unwrap_or_default()));
}

/// Keys of texts in one stretch of memory. When it is full all keys are cut to half their length: what differs only behind that is taken
/// for equal.
struct Texts {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// Where each key ends.
    ends: Vec<u32>,
    /// The first eight bytes of each key, which decide most comparisons.
    heads: Vec<u64>,
    /// How long keys may be now.
    longest: usize,
}

impl Texts {
    fn new(messages: usize, bytes_max: usize) -> Texts {
        Texts {
            bytes: Vec::new(),
            bytes_max: bytes_max.min(u32::MAX as usize),
            ends: Vec::with_capacity(messages),
            heads: Vec::with_capacity(messages),
            longest: KEY_BYTES_MAX,
        }
    }

    fn push(&mut self, key: &[u8]) {
        let mut head = [0; 8];
        let len = key.len().min(8);
        head[..len].copy_from_slice(&key[..len]);
        self.heads.push(u64::from_be_bytes(head));
        let mut key = &key[..key.len().min(self.longest)];
        while self.bytes.len() + key.len() > self.bytes_max && self.longest > 0 {
            self.cut();
            key = &key[..key.len().min(self.longest)];
        }
        if self.bytes.len() + key.len() > self.bytes.capacity() {
            // Never beyond the limit, as doubling would.
            let room = (2 * self.bytes.capacity()).max(64 * KEY_BYTES_MAX);
            let room = room.min(self.bytes_max);
            self.bytes
                .reserve_exact(room.saturating_sub(self.bytes.len()));
        }
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
    }

    fn cut(&mut self) {
        self.longest /= 2;
        let (mut start, mut at) = (0, 0);
        for end in &mut self.ends {
            let old_end = *end as usize;
            let len = (old_end - start).min(self.longest);
            self.bytes.copy_within(start..start + len, at);
            at += len;
            start = old_end;
            *end = at as u32;
        }
        self.bytes.truncate(at);
    }

    fn get(&self, at: usize) -> &[u8] {
        let start = at
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        &self.bytes[start..self.ends[at] as usize]
    }

    /// NUL is in no text, so that a key of less than eight bytes has a head of its own.
    fn compare(&self, a: usize, b: usize) -> Ordering {
        self.heads[a]
            .cmp(&self.heads[b])
            .then_with(|| self.get(a).cmp(self.get(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes_max: usize, keys: &[&str]) -> Texts {
        let mut texts = Texts::new(keys.len(), bytes_max);
        keys.iter().for_each(|key| texts.push(key.as_bytes()));
        texts
    }

    #[test]
    fn texts_compare_as_octets() {
        let keys = [
            "",
            "a",
            "ab",
            "abcdefgh",
            "abcdefghi",
            "abcdefghj",
            "b",
            "é",
        ];
        let texts = texts(1000, &keys);
        for a in 0..keys.len() {
            for b in 0..keys.len() {
                assert_eq!(texts.compare(a, b), keys[a].cmp(keys[b]), "{a} {b}");
            }
        }
    }

    /// However long the texts are, they are held to the limit, and what fits is still told apart.
    #[test]
    fn texts_are_cut_when_memory_is_full() {
        let keys: Vec<String> = (0..1000)
            .map(|n| format!("{n:06}{}{}", "x".repeat(500), n % 7))
            .collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let texts = texts(20_000, &keys);
        assert_eq!(texts.longest, 16);
        assert!(texts.bytes.capacity() <= 20_000);
        for (a, key) in keys.iter().enumerate() {
            assert_eq!(texts.get(a), &key.as_bytes()[..16]);
            assert!(a == 0 || texts.compare(a - 1, a).is_lt(), "{a}");
        }
        let none = super::tests::texts(0, &["a", "b"]);
        assert_eq!(none.compare(0, 1), Ordering::Less, "heads are left");
    }
}
