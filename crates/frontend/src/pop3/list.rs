//! STAT, LIST and UIDL (RFC 1939, 5 and 7): what is known of messages without their octets.
//!
//! A session holds no sizes and no ids: they are asked for, so many at a time, and written as the client takes them. A message that
//! another session has removed meanwhile is left out, as one that is marked as deleted would be.

use whimbrel_pop3::encode;
use whimbrel_service::api::{ROWS_PER_CALL_MAX, Reply, Row};

use super::{
    context::Context,
    maildrop::octets,
    step::{Step, failed, gone},
};

/// What is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// LIST
    Sizes,
    /// UIDL: the message's id, which it keeps for ever, in whatever mailbox.
    Ids,
}

impl What {
    fn write(self, out: &mut Vec<u8>, place: u32, row: &Row) {
        let number = u64::from(place) + 1;
        match self {
            What::Sizes => encode::numbers(out, number, octets(row)),
            What::Ids => encode::unique_id(out, number, &row.id.0),
        }
    }
}

/// LIST or UIDL of all messages.
pub(super) struct Listing {
    what: What,
    /// The next place to be asked for.
    next: u32,
    /// Places that were asked for, and their rows as far as they are not written.
    places: std::vec::IntoIter<u32>,
    rows: std::vec::IntoIter<Row>,
    began: bool,
}

impl Listing {
    pub(super) fn new(what: What) -> Listing {
        Listing {
            what,
            next: 0,
            places: Vec::new().into_iter(),
            rows: Vec::new().into_iter(),
            began: false,
        }
    }

    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        match reply {
            Some(Reply::Rows(rows)) => {
                if !std::mem::replace(&mut self.began, true) {
                    encode::ok(&mut cx.out, "The list follows");
                }
                self.rows = rows.into_iter();
            }
            // Nothing was said yet, or the list ends here and the client would take it for all.
            Some(_) if self.began => return Step::Abort("a list could not be read"),
            Some(reply) => return failed(cx, &reply),
            None => {}
        }
        for row in self.rows.by_ref() {
            let maildrop = cx.maildrop();
            let Some(place) = self
                .places
                .by_ref()
                .find(|place| maildrop.uid(*place) == row.uid)
            else {
                return Step::Abort("a row that was not asked for");
            };
            self.what.write(&mut cx.out, place, &row);
            if cx.is_full() {
                return Step::Again;
            }
        }
        let (places, next) = cx.maildrop().places(self.next, false, ROWS_PER_CALL_MAX);
        if places.is_empty() {
            if !self.began {
                encode::ok(&mut cx.out, "The list follows");
            }
            encode::end(&mut cx.out);
            return Step::Done;
        }
        let call = cx.maildrop().rows(&places);
        self.places = places.into_iter();
        self.next = next;
        Step::Call(cx.call(call))
    }
}

/// LIST or UIDL of one message.
pub(super) struct One {
    pub(super) what: What,
    pub(super) place: u32,
}

impl One {
    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        match reply {
            None => {
                let call = cx.maildrop().rows(&[self.place]);
                Step::Call(cx.call(call))
            }
            Some(Reply::Rows(rows)) => match rows.first() {
                Some(row) => {
                    encode::ok_begin(&mut cx.out);
                    self.what.write(&mut cx.out, self.place, row);
                    Step::Done
                }
                None => gone(cx),
            },
            Some(reply) => failed(cx, &reply),
        }
    }
}

/// STAT. "Note that messages marked as deleted are not counted in either total" (RFC 1939, 5): their sizes are asked for and taken off.
#[derive(Default)]
pub(super) struct Stat {
    next: u32,
    deleted_octets: u64,
}

impl Stat {
    pub(super) fn step(&mut self, cx: &mut Context, reply: Option<Reply>) -> Step {
        match reply {
            None => {}
            Some(Reply::Rows(rows)) => {
                self.deleted_octets += rows.iter().map(octets).sum::<u64>();
            }
            Some(reply) => return failed(cx, &reply),
        }
        let maildrop = cx.maildrop();
        let (places, next) = maildrop.places(self.next, true, ROWS_PER_CALL_MAX);
        if places.is_empty() {
            let octets = maildrop.octets().saturating_sub(self.deleted_octets);
            let count = u64::from(maildrop.count());
            encode::ok_begin(&mut cx.out);
            encode::numbers(&mut cx.out, count, octets);
            return Step::Done;
        }
        let call = maildrop.rows(&places);
        self.next = next;
        Step::Call(cx.call(call))
    }
}
