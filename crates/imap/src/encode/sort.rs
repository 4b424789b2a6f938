//! SORT and THREAD responses (RFC 5256, section 4).

use super::strings::number;

/// Writes a THREAD response, piece by piece, from the outside to the inside. It holds no buffer and knows no depth, so that a tree of any
/// depth can be written between two flushes.
///
/// ```
/// # use whimbrel_imap::encode::ThreadWriter;
/// let mut out = Vec::new();
/// let mut thread = ThreadWriter::begin(&mut out);
/// thread.open(&mut out);
/// thread.number(&mut out, 3);
/// thread.number(&mut out, 6);
/// for children in [&[4, 23][..], &[44]] {
///     thread.open(&mut out);
///     children.iter().for_each(|&child| thread.number(&mut out, child));
///     thread.close(&mut out);
/// }
/// thread.close(&mut out);
/// thread.end(&mut out);
/// assert_eq!(out, b"* THREAD (3 6 (4 23)(44))\r\n");
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a THREAD response must be ended"]
pub struct ThreadWriter {
    /// What was written last wants a space before what follows.
    space: bool,
}

impl ThreadWriter {
    /// Begins the response.
    pub fn begin(out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(b"* THREAD");
        Self { space: true }
    }

    /// Begins a `thread-list`.
    pub fn open(&mut self, out: &mut Vec<u8>) {
        self.gap(out);
        out.push(b'(');
    }

    /// A member of the list.
    pub fn number(&mut self, out: &mut Vec<u8>, n: u32) {
        self.gap(out);
        number(out, u64::from(n));
        self.space = true;
    }

    /// Ends a `thread-list`.
    pub fn close(&mut self, out: &mut Vec<u8>) {
        self.space = false;
        out.push(b')');
    }

    /// Ends the response.
    pub fn end(self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n");
    }

    fn gap(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.space) {
            out.push(b' ');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads() {
        let check = |pieces: &str, expected: &str| {
            let mut out = Vec::new();
            let mut thread = ThreadWriter::begin(&mut out);
            for piece in pieces.split_whitespace() {
                match piece {
                    "(" => thread.open(&mut out),
                    ")" => thread.close(&mut out),
                    n => thread.number(&mut out, n.parse().unwrap()),
                }
            }
            thread.end(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{expected}\r\n"));
        };
        check("", "* THREAD");
        check(
            "( 2 ) ( 3 6 ( 4 23 ) ( 44 7 96 ) )",
            "* THREAD (2)(3 6 (4 23)(44 7 96))",
        );
        check("( ( 3 ) ( 5 ) )", "* THREAD ((3)(5))");
        check(
            "( 1 ( 2 ( 3 ) ( 4 ) ) ( 5 ) )",
            "* THREAD (1 (2 (3)(4))(5))",
        );
    }
}
