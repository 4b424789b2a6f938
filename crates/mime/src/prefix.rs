//! The summary of a message with header lines in front of it, such as the trace fields of a delivery.

use crate::parser::block::keep;
use crate::parser::budget::{Members, Shares, Texts};
use crate::{Address, Content, Envelope, Fields, Limits, Octets, Parser, Part, Span, Summary};

impl Summary {
    /// The summary of `prefix` followed by this message, whose summary was made of the blob alone: so a message for many
    /// recipients is parsed once. `prefix` is whole header lines (its last byte is LF, or it is empty). A field never
    /// continues from the prefix into the blob, and Content-* fields of the prefix are kept but describe nothing.
    pub fn with_prefix(mut self, prefix: &[u8], limits: &Limits) -> Summary {
        assert!(self.prefix_len == 0, "a summary is given its prefix once");
        assert!(
            prefix.last().is_none_or(|&b| b == b'\n'),
            "a prefix is whole lines"
        );
        let mut parser = Parser::new(limits);
        parser.push(prefix);
        let before = parser.finish();
        assert!(
            before.message.body.body.len == 0,
            "a prefix has no empty line"
        );
        let len = prefix.len() as u64;
        self.message.body.shift(len);
        self.message.body.header = Span {
            start: 0,
            len: self.message.body.header.len + len,
        };
        self.message
            .envelope
            .precede(before.message.envelope, limits);
        self.fields.precede(before.fields, limits);
        self.prefix_len = len;
        self.size += len;
        self.lines += before.lines;
        self
    }
}

impl Envelope {
    /// Members of an envelope that stand before this one's: lists are joined as far as the share allows, of texts the last
    /// counts.
    fn precede(&mut self, before: Envelope, limits: &Limits) {
        let texts = |own: &mut Option<Octets>, before: Option<Octets>| {
            if own.is_none() {
                *own = before;
            }
        };
        texts(&mut self.date, before.date);
        texts(&mut self.subject, before.subject);
        texts(&mut self.in_reply_to, before.in_reply_to);
        texts(&mut self.message_id, before.message_id);
        let shares = Members::new(Texts::new(Shares::new(limits).envelope));
        let lists = |own: &mut Vec<Address>, before: Vec<Address>, mut share: Texts| {
            let cost: usize = own.iter().chain(&before).map(Texts::address_cost).sum();
            if !before.is_empty()
                && share.reserve(cost)
                && own.len() + before.len() <= limits.addresses_max
            {
                own.splice(0..0, before);
            }
        };
        lists(&mut self.from, before.from, shares.from);
        lists(&mut self.given_sender, before.given_sender, shares.sender);
        lists(
            &mut self.given_reply_to,
            before.given_reply_to,
            shares.reply_to,
        );
        lists(&mut self.to, before.to, shares.to);
        lists(&mut self.cc, before.cc, shares.cc);
        lists(&mut self.bcc, before.bcc, shares.bcc);
    }
}

impl Part {
    /// Moves the part and all that is in it.
    fn shift(&mut self, by: u64) {
        self.header.start += by;
        self.body.start += by;
        match &mut self.content {
            Content::Basic | Content::Text => {}
            Content::Multipart(parts) => parts.iter_mut().for_each(|part| part.shift(by)),
            Content::Message(message) => message.body.shift(by),
        }
    }
}

impl Fields {
    /// Fields that stand before these; what exceeds the share is dropped from them.
    fn precede(&mut self, before: Fields, limits: &Limits) {
        let mut left = Texts::new(Shares::new(limits).fields);
        let own = std::mem::take(&mut self.list);
        let costs = own
            .iter()
            .map(|f| f.raw.len())
            .chain(self.dropped.iter().map(|name| name.len()));
        if !left.reserve(costs.map(Texts::field_cost).sum()) {
            // Made under other limits: nothing fits beside what is there.
            left = Texts::new(0);
        }
        self.complete &= before.complete && before.dropped.is_empty();
        for field in before.list {
            keep(self, field, &mut left);
        }
        self.list.extend(own);
    }
}
