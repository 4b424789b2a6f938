//! Goes through the messages found and shows what their rows, and if needed their content rows, say: what SORT and THREAD collect from.

use whimbrel_mime::SortKeys;
use whimbrel_service::{
    api::{CONTENTS_PER_CALL_MAX, Call, MailboxCall, ROWS_PER_CALL_MAX, Reply, Row},
    content::Content,
};

use super::super::{
    context::Context,
    outcome::Outcome,
    ranges::{Cursor, Ranges},
    task::{Step, Wake},
};

/// How much of a message is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// What stands in its row.
    Row,
    /// The envelope.
    Envelope,
    /// The envelope and References.
    References,
}

/// A walk.
pub(super) struct Gather {
    wants: Wants,
    places: Ranges,
    cursor: Cursor,
    /// Places of the present chunk.
    chunk: Vec<u32>,
    rows: Vec<(u32, Row)>,
    /// The next of `rows` whose content row is asked for.
    at: usize,
    /// Content rows that cannot be read.
    pub(super) unread: bool,
}

/// How the walk goes on.
pub(super) enum Gathering {
    Step(Step),
    Done,
    Failed(Outcome),
}

impl Gather {
    pub(super) fn new(wants: Wants, places: Ranges) -> Gather {
        Gather {
            wants,
            places,
            cursor: Cursor::default(),
            chunk: Vec::new(),
            rows: Vec::new(),
            at: 0,
            unread: false,
        }
    }

    /// Goes on; `take` is given each message that is still there, in the order of the mailbox.
    pub(super) fn step(
        &mut self,
        cx: &mut Context,
        wake: Wake<'_>,
        mut take: impl FnMut(u32, &Row, &SortKeys<'_>),
    ) -> Gathering {
        match wake {
            Wake::Go => self.next_chunk(cx),
            Wake::Reply(Reply::Rows(rows)) => {
                let view = cx.view();
                let mut places = self.chunk.iter().copied();
                self.rows.clear();
                self.at = 0;
                for row in rows {
                    let Some(place) = places.find(|&place| view.uid(place) == row.uid) else {
                        return Gathering::Failed(Outcome::bug());
                    };
                    if self.wants == Wants::Row {
                        take(place, &row, &SortKeys::default());
                    } else {
                        self.rows.push((place, row));
                    }
                }
                self.contents(cx)
            }
            Wake::Reply(Reply::Contents(contents)) => {
                let rows = &self.rows[self.at..];
                for ((place, row), content) in rows.iter().zip(&contents) {
                    // Without one it was expunged after its row was read.
                    let Some(content) = content else { continue };
                    let content = Content::decode(content).ok();
                    let references = self.wants == Wants::References;
                    let sort_keys = content
                        .as_ref()
                        .and_then(|content| SortKeys::new(&content.summary, references).ok());
                    self.unread |= sort_keys.is_none();
                    take(*place, row, &sort_keys.unwrap_or_default());
                }
                self.at += contents.len().max(1);
                self.contents(cx)
            }
            Wake::Reply(reply) => Gathering::Failed(Outcome::of_reply(reply)),
            _ => Gathering::Failed(Outcome::bug()),
        }
    }

    fn next_chunk(&mut self, cx: &mut Context) -> Gathering {
        self.cursor
            .fill(&self.places, ROWS_PER_CALL_MAX, &mut self.chunk);
        if self.chunk.is_empty() {
            return Gathering::Done;
        }
        let view = cx.view();
        let uids = self.chunk.iter().map(|&place| view.uid(place)).collect();
        Gathering::Step(Step::Call(cx.call(MailboxCall::Rows {
            name: view.name.clone(),
            uids,
        })))
    }

    /// Asks for the next content rows, if there are any.
    fn contents(&mut self, cx: &mut Context) -> Gathering {
        let end = self.rows.len().min(self.at + CONTENTS_PER_CALL_MAX);
        let Some(rows) = self.rows.get(self.at..end).filter(|rows| !rows.is_empty()) else {
            return self.next_chunk(cx);
        };
        let Some(account) = cx.account else {
            return Gathering::Failed(Outcome::bug());
        };
        let origins = rows.iter().map(|(_, row)| row.origin).collect();
        Gathering::Step(Step::Call(Call::Contents { account, origins }))
    }
}
