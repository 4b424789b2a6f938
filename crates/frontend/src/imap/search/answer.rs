//! The answer to SEARCH: SEARCH (RFC 3501) or ESEARCH (RFC 4731, RFC 9051, RFC 9394), and what SAVE keeps (RFC 5182). Written piece by piece.

use whimbrel_imap::{
    command::SearchReturn,
    core::{PartialRange, Tag},
    encode::{Code, ESearch, strings},
};

use super::{
    super::{
        context::Context,
        finish::SetText,
        outcome::Outcome,
        ranges::{Cursor, Ranges},
    },
    find::Matches,
};

/// An answer that is being written.
pub(super) struct Answer {
    /// `None`: the SEARCH response of rev1.
    returns: Option<SearchReturn>,
    begun: bool,
    /// Of what was found the part that was asked for.
    partial: Option<Ranges>,
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
            partial: None,
            cursor: Cursor::default(),
            text: SetText::default(),
        }
    }

    /// Writes what there is room for; says whether that was all.
    pub(super) fn write(
        &mut self,
        cx: &mut Context,
        tag: &Tag,
        uid: bool,
        found: &Matches,
    ) -> bool {
        let modseq = found.with_modseq;
        let begun = std::mem::replace(&mut self.begun, true);
        match self.returns {
            None => {
                if !begun {
                    cx.out.extend_from_slice(b"* SEARCH");
                }
                let all = self.numbers(cx, uid, &found.places, |_, out, number| {
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
            Some(returns) if !tells(returns) => true,
            Some(returns) => {
                let modseq = modseq.then(|| modseq_of(returns, found));
                // MODSEQ stands behind ALL, as in the examples of RFC 7162, 3.1.10: some clients read it in this order only.
                let tells_all = returns.all && returns.partial.is_none();
                let (before, behind) = match tells_all && !found.places.is_empty() {
                    true => (None, modseq),
                    false => (modseq, None),
                };
                if !begun {
                    head(cx, tag, uid, before, returns, found);
                }
                if let Some(range) = returns.partial {
                    return self.write_partial(cx, uid, range, found);
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
                if !self.numbers(cx, uid, &found.places, |text, out, n| text.add(out, n)) {
                    return false;
                }
                self.text.end(&mut cx.out);
                if let Some(modseq) = behind {
                    cx.out.extend_from_slice(b" MODSEQ ");
                    strings::number(&mut cx.out, modseq);
                }
                cx.out.extend_from_slice(b"\r\n");
                true
            }
        }
    }

    /// `PARTIAL (range results)`, the last of the line: "a PARTIAL return data item that has, as payload, the original range and a potentially
    /// missing set of results" (RFC 9394, 3.1).
    fn write_partial(
        &mut self,
        cx: &mut Context,
        uid: bool,
        range: PartialRange,
        found: &Matches,
    ) -> bool {
        let partial = match self.partial.take() {
            Some(partial) => partial,
            None => {
                let end = cx.out.len() - 2;
                cx.out.truncate(end);
                cx.out.extend_from_slice(b" PARTIAL (");
                range.encode(&mut cx.out);
                cx.out.push(b' ');
                part_of(found, range)
            }
        };
        if partial.is_empty() {
            cx.out.extend_from_slice(b"NIL");
        } else if !self.numbers(cx, uid, &partial, |text, out, n| text.add(out, n)) {
            self.partial = Some(partial);
            return false;
        }
        self.text.end(&mut cx.out);
        cx.out.extend_from_slice(b")\r\n");
        true
    }

    fn numbers(
        &mut self,
        cx: &mut Context,
        uid: bool,
        places: &Ranges,
        mut write: impl FnMut(&mut SetText, &mut Vec<u8>, u32),
    ) -> bool {
        while !cx.is_full() {
            let Some((from, to)) = self.cursor.run(places, NUMBERS) else {
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

fn part_of(found: &Matches, range: PartialRange) -> Ranges {
    let (from, to) = range.places(found.places.count());
    found.places.slice(from, to)
}

/// Whether there is an answer: SAVE by itself has none.
pub(super) fn tells(returns: SearchReturn) -> bool {
    returns.min || returns.max || returns.all || returns.count || returns.partial.is_some()
}

fn head(
    cx: &mut Context,
    tag: &Tag,
    uid: bool,
    modseq: Option<u64>,
    returns: SearchReturn,
    found: &Matches,
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
fn modseq_of(returns: SearchReturn, found: &Matches) -> u64 {
    let others = returns.all || returns.count || returns.partial.is_some();
    match (returns.min, returns.max, others) {
        (true, false, false) => found.first_modseq,
        (false, true, false) => found.last_modseq,
        (true, true, false) => found.first_modseq.max(found.last_modseq),
        _ => found.modseq,
    }
}

/// Keeps the result as `$` (RFC 9051, 6.4.4.1, table 4; RFC 9394, 3.2, table 1).
pub(super) fn save(
    cx: &mut Context,
    found: &Matches,
    returns: SearchReturn,
) -> Result<(), Outcome> {
    let places = &found.places;
    let kept = if saves_all(returns) {
        places.clone()
    } else {
        let mut kept = Ranges::default();
        let mut keep = |(start, end)| kept.push(start, end);
        let one = |place| (place, place + 1);
        places
            .first()
            .filter(|_| returns.min)
            .map(one)
            .map(&mut keep);
        if let Some(range) = returns.partial {
            part_of(found, range)
                .as_slice()
                .iter()
                .copied()
                .for_each(&mut keep);
        }
        places
            .last()
            .filter(|_| returns.max)
            .map(one)
            .map(&mut keep);
        kept
    };
    keep(cx, &kept)
}

/// Whether all that was found is kept, not just what MIN, MAX and PARTIAL name.
pub(super) fn saves_all(returns: SearchReturn) -> bool {
    let some = returns.min || returns.max || returns.partial.is_some();
    returns.all || returns.count || !some
}

/// Keeps these as `$`. "The server MAY refuse to save a SEARCH (SAVE) result, for example, if an internal limit on the number of saved results is
/// reached. In this case, the server MUST return a tagged NO response containing the NOTSAVED response code and set the search result variable to
/// the empty sequence" (RFC 9051, 6.4.4.4).
pub(super) fn keep(cx: &mut Context, kept: &Ranges) -> Result<(), Outcome> {
    let ranges_max = cx.limits.saved_ranges_max;
    let view = cx.view_mut();
    if kept.as_slice().len() > ranges_max {
        view.saved = Vec::new();
        let text = "The result is too scattered to be saved";
        return Err(Outcome::no(Code::NotSaved, text));
    }
    view.saved = kept
        .as_slice()
        .iter()
        .map(|&(start, end)| (view.uid(start), view.uid(end - 1)))
        .collect();
    Ok(())
}
