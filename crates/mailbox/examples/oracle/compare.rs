//! What must be the same: all that a replica of the crate shows, and what the model shows of it.
//!
//! The model says what is in the state, and of each message its greatest claim. The code shows a message under that claim unless it is late, that is
//! below the mark of its name, or of another epoch: then the message is not shown, or still under its former UID, until it is claimed again. What is
//! shown anew the oracle has judged already, by the rules of the desk.

use std::collections::BTreeMap;

use whimbrel_mailbox::*;

use crate::history::{Action, Setting, Trace, new_message, run};
use crate::model::{ModelBox, ModelView, Numbers, Oracle, flag_numbers, use_number};
use crate::seen::Seen;
use crate::shrink::{self, caught};

/// The number of `\Deleted` and `\Seen` among flags.
const DELETED: u64 = 2;
const SEEN: u64 = 3;

/// Runs a history on the code and on the model.
pub(crate) fn compare(
    oracle: &mut Oracle,
    setting: &Setting,
    actions: &[Action],
) -> Result<Trace, String> {
    let trace = caught(|| run(setting, actions))?;
    oracle.compare(&trace, judge)?;
    Ok(trace)
}

/// The shortest history found that still fails.
pub(crate) fn shrink(
    oracle: &mut Oracle,
    setting: &Setting,
    actions: &[Action],
) -> (Vec<Action>, String) {
    shrink::shrink(actions, |actions| compare(oracle, setting, actions).err())
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, code: T, model: T) -> Result<(), String> {
    if code == model {
        Ok(())
    } else {
        Err(format!(
            "{what}: the code has {code:?}, the model {model:?}"
        ))
    }
}

fn judge(seen: &Seen, model: &ModelView, numbers: &mut Numbers) -> Result<(), String> {
    judge_names(seen, model, numbers)?;
    judge_messages(seen, model, numbers)?;
    let valid = model.created.max(model.floor).max(model.epoch).max(1);
    equal("UIDVALIDITY", u64::from(seen.uidvalidity), valid)?;
    equal("epoch", u64::from(seen.epoch), model.epoch)?;
    equal("counter", u64::from(seen.counter), model.counter)?;
    let claimed = seen.claimed.iter();
    let claimed = claimed.map(|(slot, counter)| (u64::from(*slot), u64::from(*counter)));
    equal("claimed", &claimed.collect(), &model.claimed)
}

fn judge_names(seen: &Seen, model: &ModelView, numbers: &mut Numbers) -> Result<(), String> {
    let subscribed = seen
        .subscribed
        .iter()
        .map(|name| numbers.name(name.as_str()));
    equal("subscribed", &subscribed.collect(), &model.subscribed)?;
    // Of several mailboxes that bear one name the one with the latest stamp stands for it; of those that got it at once, the one with the greatest id.
    let mut first: BTreeMap<u64, &ModelBox> = BTreeMap::new();
    for mailbox in &model.boxes {
        let rank = |b: &ModelBox| (b.name.0, b.name.1, numbers.box_ids.get(&b.number).copied());
        let known = first.entry(mailbox.name.2).or_insert(mailbox);
        if rank(mailbox) > rank(known) {
            *known = mailbox;
        }
    }
    let told = |id: Option<MailboxId>, special_use: u64, next: u64| (id, special_use, next);
    let mut code = BTreeMap::new();
    for (name, (info, status)) in &seen.names {
        let next = u64::from(status.uidnext);
        let row = told(info.id, use_number(info.special_use), next);
        code.insert(numbers.name(name.as_str()), row);
    }
    let mut expected = BTreeMap::new();
    for (name, mailbox) in first {
        let id = numbers.box_ids.get(&mailbox.number).copied();
        let next = model.desk.get(&name).map_or(0, |(_, next)| *next);
        expected.insert(name, told(id, mailbox.special_use, next));
    }
    equal("names, their ids, uses and UIDNEXT", code, expected)
}

fn judge_messages(seen: &Seen, model: &ModelView, numbers: &mut Numbers) -> Result<(), String> {
    let names: BTreeMap<_, _> = model.boxes.iter().map(|b| (b.number, b.name.2)).collect();
    let mut rows = BTreeMap::new();
    for (id, (name, row)) in &seen.rows {
        rows.insert(numbers.message(*id), (numbers.name(name.as_str()), row));
    }
    // For each name: messages, unseen, \Deleted, octets.
    let mut counted: BTreeMap<u64, (u32, u32, u32, u64)> = BTreeMap::new();
    for (number, message) in &model.messages {
        let name = names.get(&message.place).copied();
        let name = name.ok_or_else(|| format!("{number:?} lies in no mailbox"))?;
        let mark = model.desk.get(&name).map_or(0, |(mark, _)| *mark);
        let late = message.uid < mark;
        let Some((shown_name, row)) = rows.remove(number) else {
            if message.uid != 0 && !late {
                return Err(format!(
                    "message {number:?} under {name} is not shown, its UID is {}, the mark {mark}",
                    message.uid
                ));
            }
            continue;
        };
        equal("name of a message", shown_name, name)?;
        if !late || message.uid == 0 {
            equal("UID of a message", u64::from(row.uid), message.uid)?;
        }
        let code_flags = flag_numbers(&row.flags);
        equal("flags of a message", &code_flags, &message.flags)?;
        judge_content(row, message.content, numbers)?;
        let counts = counted.entry(name).or_default();
        counts.0 += 1;
        counts.1 += u32::from(!message.flags.contains(&SEEN));
        counts.2 += u32::from(message.flags.contains(&DELETED));
        counts.3 += u64::from(row.size);
    }
    if let Some((number, (name, row))) = rows.first_key_value() {
        return Err(format!(
            "message {number:?} is shown under {name} with UID {}, the model has none",
            row.uid
        ));
    }
    for (name, (_, status)) in &seen.names {
        let code = (status.messages, status.unseen, status.deleted, status.size);
        let name = numbers.name(name.as_str());
        let model = counted.get(&name).copied().unwrap_or_default();
        equal("counts of a name", code, model)?;
    }
    Ok(())
}

/// What never changes about a message.
fn judge_content(row: &Row, model: Option<u64>, numbers: &Numbers) -> Result<(), String> {
    let code = crate::history::number_of(&row.blob);
    let made = numbers.contents.get(&row.message).copied().unwrap_or(0);
    equal("content of a message", code, model.unwrap_or(made))?;
    equal(
        "whether it is a copy",
        row.origin != row.message,
        model.is_none(),
    )?;
    let message = new_message(code, Flags::none());
    let expected = (message.size, message.date, message.open_end);
    equal(
        "size and date",
        (row.size, row.date, row.open_end),
        expected,
    )
}
