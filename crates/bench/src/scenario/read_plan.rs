//! The order in which the commands of real clients are sent: their proportions exactly, and always in a state that allows them.
//!
//! All 4,619 commands are shuffled like cards and dealt to as many sessions as there were logins. Within a session they are put in an
//! order that makes sense; what a hand cannot use (FETCH without SELECT) goes to the next session.

use std::collections::VecDeque;

use crate::{facts::COMMANDS, random::Random};

/// Commands that need a selected mailbox.
const SELECTED: &[&str] = &[
    "CHECK", "EXPUNGE", "FETCH", "IDLE", "MOVE", "NOOP", "SEARCH", "STORE",
];

/// Sessions, each a list of commands; LOGIN and LOGOUT are around them.
pub(super) fn sessions(random: &mut Random) -> Vec<Vec<&'static str>> {
    let mut deck: Vec<&'static str> = Vec::new();
    let mut count = 0;
    for (name, times) in COMMANDS {
        match *name {
            "LOGIN" => count = *times as usize,
            "LOGOUT" => {}
            name => deck.extend(std::iter::repeat_n(name, *times as usize)),
        }
    }
    random.shuffle(&mut deck);
    let mut left: VecDeque<&'static str> = VecDeque::new();
    let mut sessions = Vec::with_capacity(count);
    for at in 0..count {
        let hand = deck.len() * at / count..deck.len() * (at + 1) / count;
        left.extend(&deck[hand]);
        sessions.push(play(&mut left, at + 1 == count));
    }
    sessions
}

/// Takes out of `hand` what one session can do, in an order it can do it.
fn play(hand: &mut VecDeque<&'static str>, last: bool) -> Vec<&'static str> {
    let (mut opens, mut closes, mut inside, mut outside) = (vec![], vec![], vec![], vec![]);
    for name in hand.drain(..) {
        match name {
            "SELECT" | "EXAMINE" => opens.push(name),
            "CLOSE" | "UNSELECT" => closes.push(name),
            name if SELECTED.contains(&name) => inside.push(name),
            name => outside.push(name),
        }
    }
    if last && opens.is_empty() {
        opens.push("SELECT");
    }
    let mut played = outside;
    if opens.is_empty() {
        hand.extend(inside);
        hand.extend(closes);
        return played;
    }
    let blocks = opens.len();
    let mut inside = inside.into_iter();
    let share = inside.len().div_ceil(blocks);
    let mut closes = closes.into_iter();
    for open in opens {
        played.push(open);
        // Through EXAMINE nothing is written.
        for name in inside.by_ref().take(share) {
            if open == "EXAMINE" && matches!(name, "STORE" | "EXPUNGE" | "MOVE") {
                hand.push_back(name);
            } else {
                played.push(name);
            }
        }
        played.extend(closes.next());
    }
    if !last {
        hand.extend(closes);
    }
    played
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_comes_as_often_as_it_was_seen_and_where_it_may() {
        for seed in 0..5 {
            let sessions = sessions(&mut Random::new(seed));
            assert_eq!(sessions.len(), 244);
            let mut wrong = 0;
            for (name, expected) in COMMANDS {
                let got = sessions
                    .iter()
                    .flatten()
                    .filter(|played| *played == name)
                    .count();
                if !["LOGIN", "LOGOUT"].contains(name) {
                    wrong += got.abs_diff(*expected as usize);
                }
            }
            // Of the last hand a few may be left.
            assert!(wrong <= 10, "{wrong}");
            for session in &sessions {
                let mut open = None;
                for name in session {
                    match *name {
                        "SELECT" | "EXAMINE" => open = Some(*name),
                        "CLOSE" | "UNSELECT" => {
                            assert!(open.take().is_some());
                        }
                        name if SELECTED.contains(&name) => assert!(open.is_some(), "{session:?}"),
                        _ => {}
                    }
                }
            }
        }
    }
}
