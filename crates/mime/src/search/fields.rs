//! A header that streams by, cut into fields.

use crate::parser::block::{NAME_BYTES_MAX, split};
use crate::parser::text::is_wsp;

/// Takes fields: a name (none if the field has none), pieces of the raw value, the end.
pub(super) trait FieldSink {
    fn name(&mut self, name: &[u8]);
    fn value(&mut self, piece: &[u8]);
    fn end(&mut self);
}

/// Cuts a header block into fields, in constant memory.
#[derive(Default)]
pub(super) struct FieldSplitter {
    /// The first line of a field, as long as its name may go on. At most [`NAME_BYTES_MAX`].
    pending: Vec<u8>,
    /// Whether the next byte is within a line.
    in_line: bool,
    /// Whether a field is open.
    in_field: bool,
}

impl FieldSplitter {
    pub(super) fn push(&mut self, mut bytes: &[u8], sink: &mut impl FieldSink) {
        while let Some(&first) = bytes.first() {
            if !self.in_line && self.pending.is_empty() && !(is_wsp(first) && self.in_field) {
                self.end_field(sink);
            }
            let taken = if self.in_field {
                self.value(bytes, sink)
            } else {
                self.pending(bytes, sink)
            };
            bytes = &bytes[taken..];
        }
    }

    pub(super) fn finish(&mut self, sink: &mut impl FieldSink) {
        if !self.pending.is_empty() {
            self.settle(sink);
        }
        self.end_field(sink);
        self.in_line = false;
    }

    fn pending(&mut self, bytes: &[u8], sink: &mut impl FieldSink) -> usize {
        let room = NAME_BYTES_MAX - self.pending.len();
        let window = &bytes[..bytes.len().min(room)];
        let stop = memchr::memchr2(b':', b'\n', window);
        let taken = stop.map_or(window.len(), |stop| stop + 1);
        self.pending.extend_from_slice(&window[..taken]);
        if stop.is_some() || self.pending.len() == NAME_BYTES_MAX {
            self.settle(sink);
        }
        taken
    }

    /// It shows what the name is.
    fn settle(&mut self, sink: &mut impl FieldSink) {
        let pending = std::mem::take(&mut self.pending);
        self.in_field = true;
        self.in_line = !pending.ends_with(b"\n");
        match split(&pending) {
            Some((name, value)) => {
                sink.name(name);
                sink.value(value);
            }
            None => sink.value(&pending),
        }
    }

    fn value(&mut self, bytes: &[u8], sink: &mut impl FieldSink) -> usize {
        let lf = memchr::memchr(b'\n', bytes);
        let taken = lf.map_or(bytes.len(), |lf| lf + 1);
        self.in_line = lf.is_none();
        sink.value(&bytes[..taken]);
        taken
    }

    fn end_field(&mut self, sink: &mut impl FieldSink) {
        if std::mem::take(&mut self.in_field) {
            sink.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Log(String);

    impl FieldSink for Log {
        fn name(&mut self, name: &[u8]) {
            self.0 += &format!("<{}>", name.escape_ascii());
        }
        fn value(&mut self, piece: &[u8]) {
            self.0 += &piece.escape_ascii().to_string();
        }
        fn end(&mut self) {
            self.0 += "|";
        }
    }

    fn check(header: &str, expected: &str) {
        for step in 1..=header.len() {
            let (mut splitter, mut log) = (FieldSplitter::default(), Log::default());
            header
                .as_bytes()
                .chunks(step)
                .for_each(|piece| splitter.push(piece, &mut log));
            splitter.finish(&mut log);
            assert_eq!(log.0, expected, "{header:?} by {step}");
        }
    }

    #[test]
    fn fields() {
        check("A: b\r\nC :d\n e\n\n", "<A> b\\r\\n|<C>d\\n e\\n|\\n|");
        check("bad\n: x\n\t:y", "bad\\n|<> x\\n\\t:y|");
        check(" a: b\nc", "< a> b\\n|c|");
        let long = "n".repeat(NAME_BYTES_MAX + 3);
        check(&format!("{long}: x\nA:b"), &format!("{long}: x\\n|<A>b|"));
    }
}
