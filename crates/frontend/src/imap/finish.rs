//! The tagged line that ends a command. Its code may be long (COPYUID and MODIFIED of a big mailbox, APPENDUID of many messages): it is written piece by piece.

use whimbrel_imap::{
    core::Tag,
    encode::{self, Code, strings},
};

use super::{
    capability,
    context::Context,
    outcome::{EndCode, Outcome},
};

/// A tagged line being written.
pub(super) struct Finish {
    outcome: Outcome,
    /// Sets of a long code: which of them, and how many of its numbers were written.
    part: usize,
    next: usize,
    text: SetText,
}

impl Finish {
    pub(super) fn new(outcome: Outcome) -> Finish {
        Finish {
            outcome,
            part: 0,
            next: 0,
            text: SetText::default(),
        }
    }

    /// Why the connection ends with it.
    pub(super) fn close(&self) -> Option<&'static str> {
        self.outcome.close
    }

    pub(super) fn is_ok(&self) -> bool {
        self.outcome.is_ok()
    }

    /// Writes what there is room for; says whether that was all.
    pub(super) fn write(&mut self, cx: &mut Context, tag: &Tag) -> bool {
        let (kind, text) = (self.outcome.kind, &*self.outcome.text);
        let short = |cx: &mut Context, code: Option<Code<'_>>| {
            encode::tagged(&mut cx.out, tag, kind, code, text, cx.utf8);
            true
        };
        match &self.outcome.code {
            EndCode::None => short(cx, None),
            EndCode::Plain(code) => short(cx, Some(*code)),
            EndCode::Capability => {
                capability::with_list(cx, |cx, names| short(cx, Some(Code::Capability(names))))
            }
            // "a UID set containing the UIDs assigned to the appended messages, in the order they were transmitted" (RFC 4315, 3).
            EndCode::AppendUid { uid_validity, uids } => {
                let uids = uids.iter().copied();
                let Some(()) = self.text.all(cx, &mut self.next, uids, |cx| {
                    begin(cx, tag, kind, &format!("APPENDUID {uid_validity} "));
                }) else {
                    return false;
                };
                end(cx, text);
                true
            }
            EndCode::BadUrl(url) => short(cx, Some(Code::BadUrl(url))),
            EndCode::HighestModSeq => {
                let code = cx
                    .view
                    .as_ref()
                    .map(|view| Code::HighestModSeq(view.known_to));
                short(cx, code)
            }
            EndCode::MailboxId(id) => short(cx, Some(Code::MailboxId(id))),
            EndCode::Modified(numbers) => {
                let Some(()) = self
                    .text
                    .all(cx, &mut self.next, numbers.iter().copied(), |cx| {
                        begin(cx, tag, kind, "MODIFIED ");
                    })
                else {
                    return false;
                };
                end(cx, text);
                true
            }
            EndCode::CopyUid { uid_validity, uids } => {
                if self.part == 0 {
                    let Some(()) =
                        self.text
                            .all(cx, &mut self.next, uids.iter().map(|pair| pair.0), |cx| {
                                begin(cx, tag, kind, &format!("COPYUID {uid_validity} "));
                            })
                    else {
                        return false;
                    };
                    (self.part, self.next) = (1, 0);
                }
                let second =
                    self.text
                        .all(cx, &mut self.next, uids.iter().map(|pair| pair.1), |cx| {
                            cx.out.push(b' ')
                        });
                if second.is_none() {
                    return false;
                }
                end(cx, text);
                true
            }
        }
    }
}

fn begin(cx: &mut Context, tag: &Tag, kind: encode::Kind, code: &str) {
    for word in [tag.as_str(), " ", kind.as_str(), " [", code] {
        cx.out.extend_from_slice(word.as_bytes());
    }
}

fn end(cx: &mut Context, text: &str) {
    cx.out.extend_from_slice(b"] ");
    strings::text(&mut cx.out, text, cx.utf8);
    cx.out.extend_from_slice(b"\r\n");
}

/// The text of a set, written number by number; numbers that follow each other become a range. The order is kept.
#[derive(Default)]
pub(super) struct SetText {
    run: Option<(u32, u32)>,
    any: bool,
}

impl SetText {
    pub(super) fn add(&mut self, out: &mut Vec<u8>, number: u32) {
        self.add_range(out, (number, number));
    }

    pub(super) fn add_range(&mut self, out: &mut Vec<u8>, (first, last): (u32, u32)) {
        match &mut self.run {
            Some(run) if run.1.checked_add(1) == Some(first) => run.1 = last,
            _ => {
                self.flush(out);
                self.run = Some((first, last));
            }
        }
    }

    /// After the last number; then it is as new.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        self.flush(out);
        self.any = false;
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        let Some((first, last)) = self.run.take() else {
            return;
        };
        if std::mem::replace(&mut self.any, true) {
            out.push(b',');
        }
        strings::number(out, u64::from(first));
        if last != first {
            out.push(b':');
            strings::number(out, u64::from(last));
        }
    }

    /// Writes `numbers` from the `next`-th on, and `head` before the first; `None` when there is no room for more.
    fn all(
        &mut self,
        cx: &mut Context,
        next: &mut usize,
        numbers: impl Iterator<Item = u32>,
        head: impl FnOnce(&mut Context),
    ) -> Option<()> {
        if *next == 0 {
            head(cx);
        }
        for number in numbers.skip(*next) {
            *next += 1;
            self.add(&mut cx.out, number);
            if cx.is_full() {
                return None;
            }
        }
        self.end(&mut cx.out);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(numbers: &[u32], expected: &str) {
        let mut out = Vec::new();
        let mut text = SetText::default();
        for &number in numbers {
            text.add(&mut out, number);
        }
        text.end(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn sets() {
        check(&[], "");
        check(&[7], "7");
        check(&[1, 2, 3, 5, 7, 8], "1:3,5,7:8");
        check(&[9, 3, 4, 4], "9,3:4,4");
        check(&[u32::MAX], "4294967295");
    }
}
