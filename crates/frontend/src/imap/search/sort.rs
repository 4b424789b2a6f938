//! SORT and UID SORT (RFC 5256; RFC 5957; RFC 5267, 3; RFC 5182).
//!
//! First the messages are found as by SEARCH. Then, when it is this session's turn, their keys are gathered and they are put in order, slice
//! by slice; the turn is over before anything is answered, since who does not read must not keep others from theirs. What is held while
//! it is answered is one number a message.

use whimbrel_imap::{
    command::{SearchReturn, Sort as Arguments, SortCriterion},
    core::Tag,
    encode::{Code, ESearch, Kind, strings},
};
use whimbrel_service::api::{Call, Reply};

use super::{
    super::{
        context::Context,
        finish::SetText,
        outcome::Outcome,
        ranges::Ranges,
        task::{Step, Task, Wake},
    },
    answer, done,
    find::{Find, Finding, Matches},
    forget,
    gather::{Gather, Gathering, Wants},
    keys::Keys,
    order::MergeSort,
};

/// SORT.
pub(in super::super) struct Sort {
    tag: Tag,
    uid: bool,
    returns: Option<SearchReturn>,
    criteria: Vec<SortCriterion>,
    found: Matches,
    /// Where the messages stand that were gathered, and their MODSEQs if these are told.
    places: Vec<u32>,
    modseqs: Vec<u64>,
    state: State,
}

enum State {
    Find(Box<Find>),
    /// Others have their turn.
    Wait,
    Gather(Box<Gather>, Box<Keys>),
    Order(MergeSort, Box<Keys>),
    /// The turn is given back, then the answer is begun, or this is told.
    Leave(Option<Outcome>),
    Answer(Answer),
}

/// What is left to be written.
struct Answer {
    begun: bool,
    next: usize,
    text: SetText,
}

impl Sort {
    pub(in super::super) fn new(
        cx: &mut Context,
        tag: Tag,
        arguments: Arguments,
    ) -> Result<Sort, Outcome> {
        let returns = arguments.returns;
        let find =
            Find::new(cx, arguments.key, Some(&arguments.charset)).inspect_err(|outcome| {
                if outcome.kind == Kind::No {
                    forget(cx, returns);
                }
            })?;
        Ok(Sort {
            tag,
            uid: arguments.uid,
            returns,
            criteria: arguments.criteria,
            found: Matches::default(),
            places: Vec::new(),
            modseqs: Vec::new(),
            state: State::Find(Box::new(find)),
        })
    }

    /// Whether the order matters for what is told.
    fn needs_order(&self) -> bool {
        self.returns.is_none_or(is_ordered) && !self.found.places.is_empty()
    }

    fn take_found(&mut self, cx: &mut Context, found: Matches) -> Step {
        self.found = found;
        if !self.needs_order() {
            return self.answer(cx);
        }
        if self.found.places.count() as usize > cx.limits.sort_messages_max {
            return Step::Done(too_many());
        }
        self.state = State::Wait;
        Step::Call(Call::TurnBegin)
    }

    fn gather(&mut self, cx: &mut Context) -> Step {
        let messages = self.found.places.count() as usize;
        let keys = Keys::new(&self.criteria, messages, cx.limits.sort_key_bytes_max);
        let wants = if keys.needs_content() {
            Wants::Envelope
        } else {
            Wants::Row
        };
        self.places.reserve_exact(messages);
        let gather = Gather::new(wants, self.found.places.clone());
        self.state = State::Gather(Box::new(gather), Box::new(keys));
        self.go_on(cx, Wake::Go)
    }

    fn go_on(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        let State::Gather(gather, keys) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        let (places, modseqs) = (&mut self.places, &mut self.modseqs);
        let with_modseq = self.found.with_modseq;
        let gathering = gather.step(cx, wake, |place, row, sort_keys| {
            places.push(place);
            keys.push(row, sort_keys);
            if with_modseq {
                modseqs.push(row.modseq);
            }
        });
        match gathering {
            Gathering::Step(step) => return step,
            Gathering::Failed(outcome) => return self.leave(Some(outcome)),
            Gathering::Done => {}
        }
        self.found.unread |= gather.unread;
        let sort = MergeSort::new(self.places.len() as u32);
        let state = std::mem::replace(&mut self.state, State::Wait);
        if let State::Gather(_, keys) = state {
            self.state = State::Order(sort, keys);
        }
        Step::Yield
    }

    fn order(&mut self) -> Step {
        let State::Order(sort, keys) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        let Some(mut order) = sort.step(|a, b| keys.compare(a, b)) else {
            return Step::Yield;
        };
        if self.found.with_modseq {
            self.modseqs = order.iter().map(|&at| self.modseqs[at as usize]).collect();
        }
        order
            .iter_mut()
            .for_each(|at| *at = self.places[*at as usize]);
        self.places = order;
        self.leave(None)
    }

    fn leave(&mut self, outcome: Option<Outcome>) -> Step {
        self.state = State::Leave(outcome);
        Step::Call(Call::TurnEnd)
    }

    fn left(&mut self, cx: &mut Context) -> Step {
        match &mut self.state {
            State::Leave(outcome) => match outcome.take() {
                Some(outcome) => Step::Done(outcome),
                None => self.answer(cx),
            },
            _ => Step::Done(Outcome::bug()),
        }
    }

    fn answer(&mut self, cx: &mut Context) -> Step {
        if let Some(returns) = self.returns.filter(|returns| returns.save)
            && let Err(outcome) = self.save(cx, returns)
        {
            return Step::Done(outcome);
        }
        self.state = State::Answer(Answer {
            begun: false,
            next: 0,
            text: SetText::default(),
        });
        self.respond(cx)
    }

    /// SAVE "tells the server to remember the result of the SEARCH or UID SEARCH command (as well as any command based on SEARCH, e.g., SORT and
    /// THREAD [SORT])" (RFC 5182, 1). What MIN, MAX and PARTIAL name they name in the order that was asked for; kept it is as a set.
    fn save(&self, cx: &mut Context, returns: SearchReturn) -> Result<(), Outcome> {
        if answer::saves_all(returns) {
            return answer::keep(cx, &self.found.places);
        }
        let count = self.places.len() as u32;
        let (from, to) = returns.partial.map_or((0, 0), |range| range.places(count));
        let part = self.places.get(from as usize..to as usize);
        let mut named = part.unwrap_or_default().to_vec();
        named.extend(self.places.first().filter(|_| returns.min));
        named.extend(self.places.last().filter(|_| returns.max));
        named.sort_unstable();
        named.dedup();
        let mut kept = Ranges::default();
        for place in named {
            kept.push(place, place + 1);
        }
        answer::keep(cx, &kept)
    }

    fn respond(&mut self, cx: &mut Context) -> Step {
        let State::Answer(answer) = &mut self.state else {
            return Step::Done(Outcome::bug());
        };
        let begun = std::mem::replace(&mut answer.begun, true);
        let list = match self.returns {
            None => {
                if !begun {
                    cx.out.extend_from_slice(b"* SORT");
                }
                true
            }
            Some(returns) if !answer::tells(returns) => false,
            Some(returns) => {
                if !begun {
                    let head = Head {
                        returns,
                        uid: self.uid,
                        found: &self.found,
                        places: &self.places,
                        modseqs: &self.modseqs,
                    };
                    head.write(cx, &self.tag);
                }
                returns.partial.is_some() || (returns.all && !self.places.is_empty())
            }
        };
        if list {
            // PARTIAL of what is sorted is in that order (RFC 5267, 4.4).
            let count = self.places.len() as u32;
            let partial = self.returns.and_then(|returns| returns.partial);
            let (from, to) = partial.map_or((0, count), |range| range.places(count));
            if partial.is_some() && from >= to {
                cx.out.extend_from_slice(b"NIL");
            }
            answer.next = answer.next.max(from as usize);
            while let Some(&place) = self.places[..to as usize].get(answer.next) {
                if cx.is_full() {
                    return Step::Again;
                }
                answer.next += 1;
                let number = if self.uid {
                    cx.view().uid(place)
                } else {
                    place + 1
                };
                if self.returns.is_some() {
                    answer.text.add(&mut cx.out, number);
                } else {
                    cx.out.push(b' ');
                    strings::number(&mut cx.out, u64::from(number));
                }
            }
            answer.text.end(&mut cx.out);
            if partial.is_some() {
                cx.out.push(b')');
            }
            // RFC 7162, 3.1.9: "the server MUST also append (to the end of the untagged SORT response) the highest mod-sequence".
            if self.returns.is_none()
                && let Some(highest) = self.modseqs.iter().max()
            {
                cx.out.extend_from_slice(b" (MODSEQ ");
                strings::number(&mut cx.out, *highest);
                cx.out.push(b')');
            }
            cx.out.extend_from_slice(b"\r\n");
        }
        Step::Done(done(&self.found))
    }
}

/// Whether the order matters for what is told.
fn is_ordered(returns: SearchReturn) -> bool {
    returns.min || returns.max || returns.all || returns.partial.is_some()
}

/// More messages than are sorted or threaded at once.
pub(super) fn too_many() -> Outcome {
    Outcome::no(Code::Limit, "Too many messages: search for fewer of them")
}

/// What an extended SORT answers before ALL.
struct Head<'a> {
    returns: SearchReturn,
    uid: bool,
    found: &'a Matches,
    places: &'a [u32],
    modseqs: &'a [u64],
}

impl Head<'_> {
    /// "MIN: Return the message number/UID of the lowest sorted message satisfying the search criteria" (RFC 5267, 3.1).
    fn write(&self, cx: &mut Context, tag: &Tag) {
        let returns = self.returns;
        let view = cx.view();
        let number = |&place: &u32| if self.uid { view.uid(place) } else { place + 1 };
        let count = if is_ordered(returns) {
            self.places.len() as u32
        } else {
            self.found.places.count()
        };
        let response = ESearch {
            min: self.places.first().filter(|_| returns.min).map(number),
            max: self.places.last().filter(|_| returns.max).map(number),
            count: returns.count.then_some(count),
            mod_seq: self.modseq().filter(|_| count > 0),
            ..ESearch::new(tag, self.uid)
        };
        response.encode(&mut cx.out);
        let before = match returns.partial {
            Some(_) => " PARTIAL (",
            None if returns.all && !self.places.is_empty() => " ALL ",
            None => return,
        };
        // The line goes on.
        let end = cx.out.len() - 2;
        cx.out.truncate(end);
        cx.out.extend_from_slice(before.as_bytes());
        if let Some(range) = returns.partial {
            range.encode(&mut cx.out);
            cx.out.push(b' ');
        }
    }

    /// As with SEARCH (RFC 7162, 3.1.10): with MIN or MAX alone that of the message named, else the highest.
    fn modseq(&self) -> Option<u64> {
        let (first, last) = (self.modseqs.first().copied(), self.modseqs.last().copied());
        let returns = self.returns;
        let all = returns.all || returns.count || returns.partial.is_some();
        match (returns.min, returns.max, all) {
            _ if !self.found.with_modseq => None,
            (true, false, false) => first,
            (false, true, false) => last,
            (true, true, false) => first.max(last),
            _ => Some(self.found.modseq),
        }
    }
}

impl Sort {
    fn advance(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        match (&mut self.state, wake) {
            (State::Find(find), wake) => match find.step(cx, wake) {
                Finding::Step(step) => step,
                Finding::Done(found) => self.take_found(cx, found),
                Finding::Failed(outcome) => Step::Done(outcome),
            },
            (State::Wait, Wake::Reply(Reply::Done)) => self.gather(cx),
            (State::Wait, Wake::Reply(reply)) => Step::Done(Outcome::of_reply(reply)),
            (State::Gather(..), wake) => self.go_on(cx, wake),
            (State::Order(..), Wake::Go) => self.order(),
            (State::Leave(_), Wake::Reply(_)) => self.left(cx),
            (State::Answer(_), Wake::Go) => self.respond(cx),
            _ => Step::Done(Outcome::bug()),
        }
    }
}

impl Task for Sort {
    fn step(&mut self, cx: &mut Context, wake: Wake<'_>) -> Step {
        let step = self.advance(cx, wake);
        if let Step::Done(outcome) = &step
            && outcome.kind == Kind::No
        {
            forget(cx, self.returns);
        }
        step
    }

    fn shed(&mut self) {
        if let State::Find(find) = &mut self.state {
            find.shed();
        }
    }

    fn abandon(&mut self) -> Option<Call> {
        let in_turn = matches!(
            self.state,
            State::Wait | State::Gather(..) | State::Order(..)
        );
        in_turn.then_some(Call::TurnEnd)
    }
}
