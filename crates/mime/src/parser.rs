//! The streaming parser: bytes in, a summary out.

use crate::Limits;
use crate::summary::{Content, Envelope, Fields, Message, Part, Span, Summary};

/// Reads a message in chunks of any size. Memory is bounded by the limits, work is linear in the bytes pushed.
pub struct Parser {
    limits: Limits,
    offset: u64,
}

impl Parser {
    /// A parser at the start of a message. A prefix is not pushed: see [`Summary::with_prefix`].
    pub fn new(limits: &Limits) -> Parser {
        Parser {
            limits: limits.clone(),
            offset: 0,
        }
    }

    /// The next bytes of the message.
    pub fn push(&mut self, bytes: &[u8]) {
        self.offset += bytes.len() as u64;
    }

    /// The message is at its end.
    pub fn finish(self) -> Summary {
        let _ = self.limits;
        Summary {
            prefix_len: 0,
            size: self.offset,
            lines: 0,
            message: Message {
                envelope: Envelope::default(),
                body: Part {
                    media_type: "text".into(),
                    subtype: "plain".into(),
                    params: Vec::new(),
                    id: None,
                    description: None,
                    encoding: "7bit".into(),
                    md5: None,
                    disposition: None,
                    language: Vec::new(),
                    location: None,
                    header: Span::default(),
                    body: Span::default(),
                    lines: 0,
                    content: Content::Text,
                },
            },
            fields: Fields::default(),
        }
    }
}
