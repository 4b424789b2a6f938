//! Search in single header fields, by name: in what they say, or in the addresses that they hold.

use std::sync::Arc;

use super::{
    DECODE_WORK, Needle, PIECE_BYTES, Slice,
    fields::{FieldSink, FieldSplitter},
    matcher::Matcher,
    plain,
};
use crate::header::{HeaderDecoder, decode};
use crate::parser::address;
use std::ops::Range;

/// What of a field is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Look {
    /// All that stands behind the colon.
    Value,
    /// Its addresses, as an envelope has them: without comments, folds and what else they are written with. A field that streams by is searched
    /// as [`Look::Value`] has it: no summary has room for it.
    Addresses,
}

/// Names of header fields, and what to look for in those of each name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FieldKeys(Arc<Keys>);

#[derive(Debug)]
struct Keys {
    /// In lower case, ascending, each once with each look; and where its needles end.
    names: Vec<(Vec<u8>, Look, usize)>,
    /// By name.
    needles: Vec<Needle>,
    /// Of each key, in the order given: its name and its needle.
    keys: Vec<(u32, u32)>,
}

impl FieldKeys {
    /// For a needle in the fields of each name. An empty needle matches when there is such a field.
    pub fn new<N: AsRef<[u8]>>(wanted: &[(N, Look, Needle)]) -> FieldKeys {
        let lower = wanted
            .iter()
            .map(|(name, look, _)| (name.as_ref().to_ascii_lowercase(), *look));
        let mut lower: Vec<((Vec<u8>, Look), usize)> = lower.zip(0..).collect();
        lower.sort_unstable();
        let mut names: Vec<(Vec<u8>, Look, usize)> = Vec::new();
        let mut needles = Vec::with_capacity(wanted.len());
        let mut keys = vec![(0, 0); wanted.len()];
        for ((name, look), key) in lower {
            if names
                .last()
                .is_none_or(|last| (&last.0, last.1) != (&name, look))
            {
                names.push((name, look, 0));
            }
            keys[key] = (names.len() as u32 - 1, needles.len() as u32);
            needles.push(wanted[key].2.clone());
            if let Some(last) = names.last_mut() {
                last.2 = needles.len();
            }
        }
        FieldKeys(Arc::new(Keys {
            names,
            needles,
            keys,
        }))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.keys.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.keys.len()
    }

    /// Says of each key, in the order given, what is said of its name, which is in lower case.
    pub fn by_name<T: Copy>(&self, say: impl FnMut(&[u8]) -> T) -> Vec<T> {
        let names = self.0.names.iter().map(|(name, ..)| &**name);
        let said: Vec<T> = names.map(say).collect();
        let keys = self.0.keys.iter();
        keys.map(|(name, _)| said[*name as usize]).collect()
    }

    /// The places of a name: one for each look.
    fn places(&self, name: &[u8]) -> Range<usize> {
        let lower = || name.iter().map(u8::to_ascii_lowercase);
        let names = &self.0.names;
        // Most searches have one name, and most fields have another.
        if let [(only, ..)] = &names[..] {
            return 0..usize::from(only.eq_ignore_ascii_case(name));
        }
        let start = names.partition_point(|(of, ..)| of.iter().copied().lt(lower()));
        let is_it = |(of, ..): &&(Vec<u8>, Look, usize)| of.iter().copied().eq(lower());
        start..start + names[start..].iter().take_while(is_it).count()
    }
}

/// Searches header fields by name in a header that streams by, or in fields one by one: for SEARCH HEADER. Each field is decoded once. What is
/// held is some KiB and the length of the longest needle, however many keys there are.
pub struct FieldSearcher {
    splitter: FieldSplitter,
    wanted: WantedFields,
}

struct WantedFields {
    keys: FieldKeys,
    /// Whether a field of this name was seen.
    seen: Vec<bool>,
    /// Its groups are the names.
    matcher: Matcher,
    /// The places of the name of the present field.
    now: Range<usize>,
    decoder: HeaderDecoder,
    text: String,
}

impl FieldSearcher {
    /// A search for all keys.
    pub fn new(keys: &FieldKeys) -> FieldSearcher {
        let ends = keys.0.names.iter().map(|(.., end)| *end);
        FieldSearcher {
            splitter: FieldSplitter::default(),
            wanted: WantedFields {
                seen: vec![false; keys.0.names.len()],
                matcher: Matcher::grouped(&keys.0.needles, ends),
                keys: keys.clone(),
                now: 0..0,
                decoder: HeaderDecoder::new(),
                text: String::new(),
            },
        }
    }

    /// The next bytes of the header, as far as the slice goes: says how many were taken.
    pub fn push_slice(&mut self, bytes: &[u8], slice: &mut Slice) -> usize {
        let mut taken = 0;
        for piece in bytes.chunks(PIECE_BYTES) {
            if slice.is_used_up() || !self.make_room(slice) {
                break;
            }
            slice.take(DECODE_WORK * piece.len());
            self.splitter.push(piece, &mut self.wanted);
            taken += piece.len();
        }
        taken
    }

    /// A field that is known: its name, and what stands behind the colon, raw. All of them are held until [`FieldSearcher::settle`], and not to be
    /// mixed with a header that streams by.
    pub fn field(&mut self, name: &[u8], raw: &[u8]) {
        let wanted = &mut self.wanted;
        for group in wanted.keys.places(name) {
            wanted.seen[group] = true;
            let text = plain(raw).and_then(|text| std::str::from_utf8(text).ok());
            match (wanted.keys.0.names[group].1, text) {
                (Look::Addresses, _) => wanted.matcher.push(group, &address::text(raw)),
                (Look::Value, Some(text)) => wanted.matcher.push(group, text),
                (Look::Value, None) => wanted.matcher.push(group, &decode(raw)),
            }
            wanted.matcher.end_unit(group);
        }
    }

    /// The header is at its end.
    pub fn end(&mut self) {
        self.splitter.finish(&mut self.wanted);
    }

    /// Looks through what was pushed. False: the slice is used up before that.
    pub fn settle(&mut self, slice: &mut Slice) -> bool {
        self.wanted.matcher.search(slice)
    }

    /// After the end: which were found, in the order given.
    pub fn finish(&mut self) -> Vec<bool> {
        self.end();
        self.settle(&mut Slice::endless());
        let WantedFields {
            keys,
            seen,
            matcher,
            ..
        } = &self.wanted;
        let found = |(name, needle): &(u32, u32)| {
            seen[*name as usize] && matcher.matched()[*needle as usize]
        };
        keys.0.keys.iter().map(found).collect()
    }

    /// Ready for another header, as it was made: that is cheaper than to make one for each of many messages. After [`FieldSearcher::finish`].
    pub fn clear(&mut self) {
        self.wanted.seen.fill(false);
        self.wanted.matcher.clear();
    }

    fn make_room(&mut self, slice: &mut Slice) -> bool {
        !self.wanted.matcher.is_full() || self.wanted.matcher.search(slice)
    }

    /// Bytes of text that are held.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.wanted.matcher.held_bytes()
    }
}

impl FieldSink for WantedFields {
    fn name(&mut self, name: &[u8]) {
        self.now = self.keys.places(name);
        self.seen[self.now.clone()].fill(true);
    }

    fn value(&mut self, piece: &[u8]) {
        if !self.now.is_empty() {
            self.text.clear();
            self.decoder.push(piece, &mut self.text);
            for group in self.now.clone() {
                self.matcher.push(group, &self.text);
            }
        }
    }

    fn end(&mut self) {
        let now = std::mem::replace(&mut self.now, 0..0);
        if !now.is_empty() {
            self.text.clear();
            self.decoder.finish(&mut self.text);
            for group in now {
                self.matcher.push(group, &self.text);
                self.matcher.end_unit(group);
            }
        }
    }
}
