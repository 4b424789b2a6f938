//! MODSEQs (RFC 7162), which the model does not have, held against the sequence of what a replica has shown: what a client that was told of one moment
//! must be told of another one follows from the two views alone.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_mailbox::*;

use crate::seen::Seen;

/// Older moments are looked back at every so many steps: each of them is held against each later one more often than is needed.
const LOOK_BACK_EVERY: u64 = 8;

/// What there was under a name: HIGHESTMODSEQ, and of each UID the message and its flags.
struct View {
    highest: u64,
    messages: BTreeMap<u32, (MessageId, Flags)>,
    /// The mailbox that stands for it.
    id: MailboxId,
    /// The name was not there at some moment since, or another mailbox stood for it.
    left: bool,
}

/// A moment at which a client was told everything.
struct Told {
    uidvalidity: u32,
    names: BTreeMap<MailboxName, View>,
}

/// What one replica has shown so far.
#[derive(Default)]
pub(crate) struct Watch {
    steps: u64,
    /// The moment before this one, and some older ones.
    last: Option<Told>,
    older: Vec<Told>,
    /// UIDs that were ever shown. A client may be told that one has vanished of which it was never told under that name: what has a new name and a new
    /// UID at once.
    ever: BTreeSet<u32>,
}

type Rows<'a> = BTreeMap<&'a MailboxName, BTreeMap<u32, &'a Row>>;

impl Watch {
    /// Holds what is shown now against what was shown before.
    pub(crate) fn look(&mut self, replica: &Replica, seen: &Seen) -> Result<(), String> {
        let mut rows: Rows<'_> = seen
            .names
            .keys()
            .map(|name| (name, BTreeMap::new()))
            .collect();
        for (name, row) in seen.rows.values() {
            rows.entry(name).or_default().insert(row.uid, row);
        }
        self.ever.extend(rows.values().flat_map(BTreeMap::keys));
        self.steps += 1;
        let back = self.steps.is_multiple_of(LOOK_BACK_EVERY);
        let older = self.older.iter_mut().map(|told| (told, back));
        for (told, judged) in older.chain(self.last.as_mut().map(|told| (told, true))) {
            // Under another UIDVALIDITY a client knows nothing.
            if told.uidvalidity != seen.uidvalidity {
                told.names.clear();
            }
            for (name, view) in &mut told.names {
                let now = rows.get(name);
                let id = seen.names.get(name).map(|(_, status)| status.id);
                view.left |= id != Some(view.id);
                if let (true, Some(rows)) = (judged, now) {
                    let judged = judge(replica, seen, name, view, rows, &self.ever);
                    judged.map_err(|why| format!("{name} since {}: {why}", view.highest))?;
                }
            }
        }
        let now = Told::of(seen, &rows);
        // Moments 1, 2, 4, 8, ...
        if self.steps.is_power_of_two() {
            self.older.extend(self.last.replace(now));
        } else {
            self.last = Some(now);
        }
        Ok(())
    }
}

impl Told {
    fn of(seen: &Seen, rows: &Rows<'_>) -> Self {
        let names = seen.names.iter().map(|(name, (_, status))| {
            let rows = rows[name].iter();
            let view = View {
                highest: status.highestmodseq,
                messages: rows
                    .map(|(uid, row)| (*uid, (row.message, row.flags.clone())))
                    .collect(),
                id: status.id,
                left: false,
            };
            (name.clone(), view)
        });
        Self {
            uidvalidity: seen.uidvalidity,
            names: names.collect(),
        }
    }
}

fn judge(
    replica: &Replica,
    seen: &Seen,
    name: &MailboxName,
    view: &View,
    rows: &BTreeMap<u32, &Row>,
    ever: &BTreeSet<u32>,
) -> Result<(), String> {
    let (info, status) = &seen.names[name];
    let highest = status.highestmodseq;
    if highest < view.highest {
        return Err(format!("HIGHESTMODSEQ falls to {highest}"));
    }
    let mut unlike = Vec::new();
    for (uid, row) in rows {
        if row.modseq > highest {
            return Err(format!(
                "UID {uid} has {}, HIGHESTMODSEQ is {highest}",
                row.modseq
            ));
        }
        let known = view.messages.get(uid);
        if known.is_some_and(|(id, flags)| *id == row.message && *flags == row.flags) {
            continue;
        }
        if row.modseq <= view.highest {
            return Err(format!("UID {uid} has changed, and has {}", row.modseq));
        }
        unlike.push(*uid);
    }
    let went: Vec<u32> = view
        .messages
        .keys()
        .copied()
        .filter(|uid| !rows.contains_key(uid))
        .collect();
    if highest == view.highest && !(unlike.is_empty() && went.is_empty()) {
        return Err(format!(
            "UIDs {unlike:?} have changed, {went:?} are gone, HIGHESTMODSEQ has not risen"
        ));
    }
    let changed = replica.changed_since(&info.name, view.highest);
    let later = rows.values().filter(|row| row.modseq > view.highest);
    let later: Vec<u32> = later.map(|row| row.uid).collect();
    if changed != later {
        return Err(format!(
            "told as changed are {changed:?}, by their MODSEQs {later:?} have"
        ));
    }
    match replica.vanished_since(&info.name, view.highest) {
        // An epoch ends the history, which begins anew with a MODSEQ above those before. Else nothing here is as long as what is kept of it.
        None if view.left || seen.epoch > 0 => {}
        None => return Err("what vanished is not known any more".to_owned()),
        Some(vanished) => {
            if let Some(uid) = vanished.iter().find(|uid| rows.contains_key(uid)) {
                return Err(format!("UID {uid} is there, and told as vanished"));
            }
            if let Some(uid) = vanished.iter().find(|uid| !ever.contains(uid)) {
                return Err(format!(
                    "UID {uid} was never there, and is told as vanished"
                ));
            }
            if let Some(uid) = went.iter().find(|uid| !vanished.contains(uid)) {
                return Err(format!("UID {uid} has vanished, and is not told"));
            }
        }
    }
    Ok(())
}
