//! What SEARCH, SORT and THREAD have found (RFC 9051, sections 7.3.4 and 7.3.5; RFC 5256; RFC 9394).

use super::super::cursor::{Cursor, Result};
use super::super::response::{Response, ThreadNode};
use crate::core::{ModSeq, SequenceSet};

impl Cursor<'_> {
    /// What follows SEARCH and SORT.
    pub(super) fn found(&mut self) -> Result<(Vec<u32>, Option<ModSeq>)> {
        let mut numbers = Vec::new();
        let mut mod_seq = None;
        while mod_seq.is_none() && self.skip(b' ') {
            if self.skip(b'(') {
                self.exact(b"MODSEQ ").map_err(|_| "expected MODSEQ")?;
                mod_seq = Some(self.mod_seq()?);
                self.close()?;
            } else if numbers.len() >= self.numbers_max {
                return Err("more numbers than are taken");
            } else {
                numbers.push(self.nz_number()?);
            }
        }
        Ok((numbers, mod_seq))
    }

    /// What follows THREAD. Without recursion: the depth of threads has no limit.
    pub(super) fn threads(&mut self) -> Result<Vec<ThreadNode>> {
        let mut nodes: Vec<ThreadNode> = Vec::new();
        if !self.skip(b' ') {
            return Ok(nodes);
        }
        // What the lists that are open hang on.
        let mut open: Vec<Option<usize>> = Vec::new();
        let mut last = None;
        loop {
            // Nodes, and lists that are open.
            self.element()?;
            if self.skip(b'(') {
                open.push(last);
                let number = if self.peek() == Some(b'(') {
                    None
                } else {
                    Some(self.nz_number()?)
                };
                nodes.push(ThreadNode {
                    number,
                    parent: last,
                });
                last = Some(nodes.len() - 1);
            } else if self.skip(b')') {
                last = open.pop().ok_or("expected (")?;
                if open.is_empty() && self.peek() != Some(b'(') {
                    return Ok(nodes);
                }
            } else {
                self.space()?;
                if self.peek() == Some(b'(') {
                    continue;
                }
                nodes.push(ThreadNode {
                    number: Some(self.nz_number()?),
                    parent: last,
                });
                last = Some(nodes.len() - 1);
            }
        }
    }

    pub(super) fn esearch(&mut self) -> Result<Response> {
        let (mut tag, mut uid) = (None, false);
        let (mut min, mut max, mut count, mut all, mut found) = (None, None, None, None, None);
        let mut partial = None;
        let mut first = true;
        while self.skip(b' ') {
            if std::mem::replace(&mut first, false) && self.skip(b'(') {
                self.exact(b"TAG ").map_err(|_| "expected TAG")?;
                tag = Some(String::from_utf8(self.astring()?).map_err(|_| "tag is not text")?);
                self.close()?;
                continue;
            }
            let name = self.atom()?.to_ascii_uppercase();
            if name == "UID"
                && !uid
                && min.or(max).or(count).is_none()
                && all.is_none()
                && partial.is_none()
                && found.is_none()
            {
                uid = true;
                continue;
            }
            self.space()?;
            let once = match &*name {
                "MIN" => min.replace(self.nz_number()?).is_none(),
                "MAX" => max.replace(self.nz_number()?).is_none(),
                "COUNT" => count.replace(self.number32()?).is_none(),
                "ALL" => all.replace(self.set()?).is_none(),
                "PARTIAL" => partial.replace(self.partial()?).is_none(),
                "MODSEQ" => found.replace(self.mod_seq()?).is_none(),
                _ => return Err("unknown data of ESEARCH"),
            };
            if !once {
                return Err("data of ESEARCH twice");
            }
        }
        Ok(Response::ESearch {
            tag,
            uid,
            min,
            max,
            count,
            all,
            partial,
            mod_seq: found,
        })
    }

    /// `"(" partial-range SP (sequence-set / "NIL") ")"`
    fn partial(&mut self) -> Result<SequenceSet> {
        self.open()?;
        let range = self.run(|b| matches!(b, b'0'..=b'9' | b'-' | b':'));
        if !range.contains(&b':') {
            return Err("invalid range of PARTIAL");
        }
        self.space()?;
        let set = if self.skip_word("NIL") {
            SequenceSet::default()
        } else {
            self.set()?
        };
        self.close()?;
        Ok(set)
    }
}
