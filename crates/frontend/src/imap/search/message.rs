//! Tries a program on what has to be read of one message: its header, then its body, then all of its text, each only as far as needed.

use bytes::{Buf as _, Bytes};
use whimbrel_mime::{
    Span,
    search::{FieldSearcher, Scope, Slice, TextSearcher},
};
use whimbrel_service::api::{BlobName, Call, Row};

use super::{
    super::blob::{Ahead, Opened, Reader},
    program::{Facts, Program, SummaryKeys},
};

/// A message whose result is not yet known.
pub(super) struct Message {
    place: u32,
    row: Row,
    opened: Opened,
    known: SummaryKeys,
    bodies: Vec<Option<bool>>,
    texts: Vec<Option<bool>>,
    stage: Stage,
    ahead: Ahead,
    /// What was read and not looked through yet.
    rest: Bytes,
}

enum Stage {
    Begin,
    Header(Box<FieldSearcher>, Reader),
    Body(TextSearcher, Option<Reader>),
    Text(TextSearcher, Option<Reader>),
}

/// How a message's search goes on.
pub(super) enum Next {
    Result(bool),
    Wants(Call),
    /// The slice is used up.
    Later,
    Failed,
}

impl Message {
    pub(super) fn new(place: u32, row: Row, opened: Opened, known: SummaryKeys) -> Message {
        Message {
            place,
            row,
            opened,
            known,
            bodies: Vec::new(),
            texts: Vec::new(),
            stage: Stage::Begin,
            ahead: Ahead::default(),
            rest: Bytes::new(),
        }
    }

    fn result(&self, program: &Program) -> Option<bool> {
        program.holds(&Facts {
            place: self.place,
            row: Some(&self.row),
            sent: self.known.sent,
            fields: &self.known.fields,
            bodies: &self.bodies,
            texts: &self.texts,
        })
    }

    /// Goes on. `bytes` is what was wanted.
    pub(super) fn go_on(
        &mut self,
        program: &Program,
        mut bytes: Option<Bytes>,
        slice: &mut Slice,
    ) -> Next {
        let blob = self.row.blob;
        loop {
            match &mut self.stage {
                Stage::Begin if self.known.fields.contains(&None) => {
                    slice.take(program.work());
                    let span = Span {
                        start: 0,
                        len: self.opened.summary.header_len(),
                    };
                    let reader = Reader::new(&self.opened.summary, span);
                    let searcher = Box::new(FieldSearcher::new(&program.fields));
                    self.stage = Stage::Header(searcher, reader);
                }
                Stage::Begin => self.begin_body(program, slice),
                Stage::Header(searcher, reader) => {
                    let taken = searcher.push_slice(&self.rest, slice);
                    self.rest.advance(taken);
                    if !self.rest.is_empty() {
                        return Next::Later;
                    }
                    match pull(reader, &self.opened, blob, bytes.take(), &mut self.ahead) {
                        Pulled::Piece(piece) => {
                            self.rest = piece;
                            continue;
                        }
                        Pulled::Wants(call) => return Next::Wants(call),
                        Pulled::Failed => return Next::Failed,
                        Pulled::End => {}
                    }
                    searcher.end();
                    if !searcher.settle(slice) {
                        return Next::Later;
                    }
                    let Stage::Header(mut searcher, _) =
                        std::mem::replace(&mut self.stage, Stage::Begin)
                    else {
                        continue;
                    };
                    // What the summary knew it knew better.
                    let found = searcher.finish();
                    for (known, found) in self.known.fields.iter_mut().zip(found) {
                        known.get_or_insert(found);
                    }
                    if let Some(result) = self.result(program) {
                        return Next::Result(result);
                    }
                    self.begin_body(program, slice);
                }
                Stage::Body(searcher, _) | Stage::Text(searcher, _) => {
                    let before = searcher.found();
                    let taken = searcher.push_slice(&self.rest, slice);
                    self.rest.advance(taken);
                    // Before more is read it is known what was found.
                    let is_settled = self.rest.is_empty() && searcher.settle(slice);
                    if searcher.found() > before {
                        slice.take(program.work());
                        let matched = searcher.matched().iter();
                        let found = matched.map(|&found| found.then_some(true)).collect();
                        if matches!(self.stage, Stage::Body(..)) {
                            self.bodies = found;
                        } else {
                            self.texts = found;
                        }
                        if let Some(result) = self.result(program) {
                            return Next::Result(result);
                        }
                    }
                    if !is_settled {
                        return Next::Later;
                    }
                    if let Some(next) = self.read_text(program, bytes.take(), slice) {
                        return next;
                    }
                }
            }
        }
    }

    /// Reads on in a body or a text of which all that was read is looked through.
    fn read_text(
        &mut self,
        program: &Program,
        bytes: Option<Bytes>,
        slice: &mut Slice,
    ) -> Option<Next> {
        let (Stage::Body(searcher, reader) | Stage::Text(searcher, reader)) = &mut self.stage
        else {
            return None;
        };
        let opened = &self.opened;
        let Some(range) = reader else {
            if let Some(span) = searcher.next_range() {
                *reader = Some(Reader::new(&opened.summary, span));
                return None;
            }
            self.end_stage(program, slice);
            return match self.result(program) {
                Some(result) => Some(Next::Result(result)),
                // All has been read; a key that is unknown still is one that no message has.
                None if matches!(self.stage, Stage::Begin) => Some(Next::Failed),
                None => None,
            };
        };
        match pull(range, opened, self.row.blob, bytes, &mut self.ahead) {
            Pulled::Piece(piece) => self.rest = piece,
            Pulled::Wants(call) => return Some(Next::Wants(call)),
            Pulled::Failed => return Some(Next::Failed),
            Pulled::End => *reader = None,
        }
        None
    }

    fn begin_body(&mut self, program: &Program, slice: &mut Slice) {
        slice.take(program.work());
        let searcher = TextSearcher::new(&self.opened.summary, Scope::Body, &program.bodies);
        self.stage = Stage::Body(searcher, None);
    }

    /// The end of a searcher's text: what it has not found is not there.
    fn end_stage(&mut self, program: &Program, slice: &mut Slice) {
        slice.take(program.work());
        match std::mem::replace(&mut self.stage, Stage::Begin) {
            Stage::Body(searcher, _) => {
                self.bodies = searcher.matched().iter().copied().map(Some).collect();
                let searcher = TextSearcher::new(&self.opened.summary, Scope::Text, &program.texts);
                self.stage = Stage::Text(searcher, None);
            }
            Stage::Text(searcher, _) => {
                self.texts = searcher.matched().iter().copied().map(Some).collect()
            }
            Stage::Begin | Stage::Header(..) => {}
        }
    }
}

enum Pulled {
    Piece(Bytes),
    Wants(Call),
    End,
    Failed,
}

/// The next bytes of a range: those of the prefix, those read already, or a read of the blob, whose answer is `bytes`.
fn pull(
    reader: &mut Reader,
    opened: &Opened,
    blob: BlobName,
    bytes: Option<Bytes>,
    ahead: &mut Ahead,
) -> Pulled {
    let answered = bytes.is_some();
    match bytes {
        Some(bytes) => *ahead = reader.ahead(bytes),
        None => {
            if let Some(piece) = reader.prefix(&opened.prefix) {
                return Pulled::Piece(piece);
            }
        }
    }
    if let Some(piece) = reader.take_ahead(ahead) {
        return Pulled::Piece(piece);
    }
    let end = opened
        .summary
        .size
        .saturating_sub(opened.summary.prefix_len);
    match reader.call_ahead(blob, end) {
        None => Pulled::End,
        // The blob ends before its summary does.
        Some(_) if answered => Pulled::Failed,
        Some(call) => Pulled::Wants(call),
    }
}
