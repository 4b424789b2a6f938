//! The answer to SEARCH: SEARCH (RFC 3501) or ESEARCH (RFC 4731, RFC 9051), and what SAVE keeps (RFC 5182). Written piece by piece.

use whimbrel_imap::{
    command::SearchReturn,
    core::Tag,
    encode::{ESearch, strings},
};

use super::{
    super::{context::Context, finish::SetText, ranges::Cursor},
    find::Found,
};

/// An answer that is being written.
pub(super) struct Answer {
    /// `None`: the SEARCH response of rev1.
    returns: Option<SearchReturn>,
    begun: bool,
    cursor: Cursor,
    text: SetText,
}

/// Numbers that are written before it is asked whether there is room for more.
const NUMBERS: u32 = 1024;

impl Answer {
    pub(super) fn new(cx: &Context, returns: Option<SearchReturn>) -> Answer {
        // "SEARCH command now requires to return the ESEARCH response" (RFC 9051, E, 4) to who has enabled IMAP4rev2.
        let rev2 = || SearchReturn {
            all: true,
            ..SearchReturn::default()
        };
        Answer {
            returns: returns.or_else(|| cx.rev2.then(rev2)),
            begun: false,
            cursor: Cursor::default(),
            text: SetText::default(),
        }
    }

    /// Writes what there is room for; says whether that was all.
    pub(super) fn write(&mut self, cx: &mut Context, tag: &Tag, uid: bool, found: &Found) -> bool {
        let modseq = found.with_modseq;
        let begun = std::mem::replace(&mut self.begun, true);
        match self.returns {
            None => {
                if !begun {
                    cx.out.extend_from_slice(b"* SEARCH");
                }
                let all = self.numbers(cx, uid, found, |_, out, number| {
                    out.push(b' ');
                    strings::number(out, u64::from(number));
                });
                if !all {
                    return false;
                }
                if modseq && !found.places.is_empty() {
                    cx.out.extend_from_slice(b" (MODSEQ ");
                    strings::number(&mut cx.out, found.modseq);
                    cx.out.push(b')');
                }
                cx.out.extend_from_slice(b"\r\n");
                true
            }
            Some(returns) if !(returns.min || returns.max || returns.all || returns.count) => true,
            Some(returns) => {
                if !begun {
                    head(
                        cx,
                        tag,
                        uid,
                        modseq.then(|| modseq_of(returns, found)),
                        returns,
                        found,
                    );
                }
                if !returns.all || found.places.is_empty() {
                    return true;
                }
                if !begun {
                    // The line goes on: ALL is written last, because it may be long.
                    let end = cx.out.len() - 2;
                    cx.out.truncate(end);
                    cx.out.extend_from_slice(b" ALL ");
                }
                if !self.numbers(cx, uid, found, |text, out, number| text.add(out, number)) {
                    return false;
                }
                self.text.end(&mut cx.out);
                cx.out.extend_from_slice(b"\r\n");
                true
            }
        }
    }

    fn numbers(
        &mut self,
        cx: &mut Context,
        uid: bool,
        found: &Found,
        mut write: impl FnMut(&mut SetText, &mut Vec<u8>, u32),
    ) -> bool {
        while !cx.is_full() {
            let Some((from, to)) = self.cursor.run(&found.places, NUMBERS) else {
                return true;
            };
            for place in from..to {
                let number = if uid { cx.view().uid(place) } else { place + 1 };
                write(&mut self.text, &mut cx.out, number);
            }
        }
        false
    }
}

fn head(
    cx: &mut Context,
    tag: &Tag,
    uid: bool,
    modseq: Option<u64>,
    returns: SearchReturn,
    found: &Found,
) {
    let view = cx.view();
    let number = |place: u32| if uid { view.uid(place) } else { place + 1 };
    let response = ESearch {
        min: found.places.first().filter(|_| returns.min).map(number),
        max: found.places.last().filter(|_| returns.max).map(number),
        count: returns.count.then(|| found.places.count()),
        mod_seq: modseq.filter(|_| !found.places.is_empty()),
        ..ESearch::new(tag, uid)
    };
    response.encode(&mut cx.out);
}

/// The MODSEQ that goes with MIN or MAX alone is that of the message named (RFC 4731, 3.2).
fn modseq_of(returns: SearchReturn, found: &Found) -> u64 {
    match (returns.min, returns.max, returns.all || returns.count) {
        (true, false, false) => found.first_modseq,
        (false, true, false) => found.last_modseq,
        (true, true, false) => found.first_modseq.max(found.last_modseq),
        _ => found.modseq,
    }
}

/// Keeps the result as `$` (RFC 9051, 6.4.4.1, table 4).
pub(super) fn save(cx: &mut Context, found: &Found, returns: SearchReturn) {
    let view = cx.view_mut();
    let places = &found.places;
    let one = |place: Option<u32>| place.map(|place| (place, place + 1));
    let ranges: Vec<(u32, u32)> = match (returns.min, returns.max, returns.all || returns.count) {
        (false, false, _) | (_, _, true) => places.as_slice().to_vec(),
        (min, max, false) => {
            let min = one(places.first().filter(|_| min));
            let max = one(places.last().filter(|_| max));
            min.into_iter().chain(max.filter(|_| min != max)).collect()
        }
    };
    view.saved = ranges
        .into_iter()
        .map(|(start, end)| (view.uid(start), view.uid(end - 1)))
        .collect();
}
