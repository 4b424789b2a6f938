//! Search in single header fields, by name.

use std::sync::Arc;

use super::{
    DECODE_WORK, Needle, PIECE_BYTES, Slice,
    fields::{FieldSink, FieldSplitter},
    matcher::Matcher,
    plain,
};
use crate::header::{HeaderDecoder, decode};

/// Names of header fields, and what to look for in those of each name. Cheap to clone.
#[derive(Clone, Debug)]
pub struct FieldKeys(Arc<Keys>);

#[derive(Debug)]
struct Keys {
    /// In lower case, ascending, each once; and where its needles end.
    names: Vec<(Vec<u8>, usize)>,
    /// By name.
    needles: Vec<Needle>,
    /// Of each key, in the order given: its name and its needle.
    keys: Vec<(u32, u32)>,
}

impl FieldKeys {
    /// For a needle in the fields of each name. An empty needle matches when there is such a field.
    pub fn new<N: AsRef<[u8]>>(wanted: &[(N, Needle)]) -> FieldKeys {
        let lower = wanted
            .iter()
            .map(|(name, _)| name.as_ref().to_ascii_lowercase());
        let mut lower: Vec<(Vec<u8>, usize)> = lower.zip(0..).collect();
        lower.sort_unstable();
        let mut names: Vec<(Vec<u8>, usize)> = Vec::new();
        let mut needles = Vec::with_capacity(wanted.len());
        let mut keys = vec![(0, 0); wanted.len()];
        for (name, key) in lower {
            if names.last().is_none_or(|last| last.0 != name) {
                names.push((name, 0));
            }
            keys[key] = (names.len() as u32 - 1, needles.len() as u32);
            needles.push(wanted[key].1.clone());
            if let Some(last) = names.last_mut() {
                last.1 = needles.len();
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
        let names = self.0.names.iter().map(|(name, _)| &**name);
        let said: Vec<T> = names.map(say).collect();
        let keys = self.0.keys.iter();
        keys.map(|(name, _)| said[*name as usize]).collect()
    }

    fn place(&self, name: &[u8]) -> Option<usize> {
        let lower = || name.iter().map(u8::to_ascii_lowercase);
        let names = &self.0.names;
        // Most searches have one name, and most fields have another.
        if let [(only, _)] = &names[..] {
            return only.eq_ignore_ascii_case(name).then_some(0);
        }
        names
            .binary_search_by(|(of, _)| of.iter().copied().cmp(lower()))
            .ok()
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
    /// The name of the present field, if that is wanted.
    now: Option<usize>,
    decoder: HeaderDecoder,
    text: String,
}

impl FieldSearcher {
    /// A search for all keys.
    pub fn new(keys: &FieldKeys) -> FieldSearcher {
        let ends = keys.0.names.iter().map(|(_, end)| *end);
        FieldSearcher {
            splitter: FieldSplitter::default(),
            wanted: WantedFields {
                seen: vec![false; keys.0.names.len()],
                matcher: Matcher::grouped(&keys.0.needles, ends),
                keys: keys.clone(),
                now: None,
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
        let Some(group) = wanted.keys.place(name) else {
            return;
        };
        wanted.seen[group] = true;
        match plain(raw).and_then(|text| std::str::from_utf8(text).ok()) {
            Some(text) => wanted.matcher.push(group, text),
            None => wanted.matcher.push(group, &decode(raw)),
        }
        wanted.matcher.end_unit(group);
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
        self.now = self.keys.place(name);
        if let Some(group) = self.now {
            self.seen[group] = true;
        }
    }

    fn value(&mut self, piece: &[u8]) {
        if let Some(group) = self.now {
            self.text.clear();
            self.decoder.push(piece, &mut self.text);
            self.matcher.push(group, &self.text);
        }
    }

    fn end(&mut self) {
        if let Some(group) = self.now.take() {
            self.text.clear();
            self.decoder.finish(&mut self.text);
            self.matcher.push(group, &self.text);
            self.matcher.end_unit(group);
        }
    }
}
