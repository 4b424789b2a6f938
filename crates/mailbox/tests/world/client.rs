//! What a client remembers, and what it may take for granted (U1, U2). Shares no code with the crates.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub struct Known {
    pub uidvalidity: u32,
    pub uidnext: u32,
    pub modseq: u64,
    pub messages: BTreeMap<u32, ([u8; 16], u8)>,
}

#[derive(Clone, Debug, Default)]
pub struct Client {
    pub names: BTreeMap<String, Known>,
    /// Messages ever seen, under whatever UID.
    pub seen: BTreeSet<[u8; 16]>,
    /// New mail below a UIDNEXT that was told before: never seen by a client that asks from there.
    pub overlooked: BTreeSet<[u8; 16]>,
}

/// What a node shows of one name.
#[derive(Clone, Debug)]
pub struct Shown {
    pub uidvalidity: u32,
    pub uidnext: u32,
    pub modseq: u64,
    pub messages: BTreeMap<u32, ([u8; 16], u8)>,
    /// What the node says has changed since the MODSEQ that the client knows.
    pub changed: Vec<u32>,
    pub vanished: Vec<u32>,
    pub complete: bool,
}

impl Client {
    /// Looks at one name. `wanders`: the client was elsewhere before, so that neither U2 nor MODSEQ are sure.
    pub fn look(&mut self, name: &str, shown: Shown, wanders: bool) -> Result<(), String> {
        let known = self.names.entry(name.to_string()).or_default();
        if known.uidvalidity != shown.uidvalidity {
            if shown.uidvalidity < known.uidvalidity && !wanders {
                return Err(format!("UIDVALIDITY of {name} decreases"));
            }
            self.seen
                .extend(shown.messages.values().map(|(message, _)| *message));
            let uidvalidity = shown.uidvalidity;
            *known = Known {
                uidvalidity,
                uidnext: shown.uidnext,
                modseq: shown.modseq,
                messages: shown.messages,
            };
            return Ok(());
        }
        for (uid, (message, _)) in &shown.messages {
            match known.messages.get(uid) {
                Some((before, _)) if before != message => {
                    return Err(format!("U1: {name} {uid} is another message"));
                }
                None if *uid < known.uidnext && wanders => {
                    self.overlooked
                        .extend((!self.seen.contains(message)).then_some(*message));
                }
                None if *uid < known.uidnext => {
                    return Err(format!(
                        "U2: {name} shows new UID {uid} below the announced {}",
                        known.uidnext
                    ));
                }
                _ => {}
            }
        }
        if let Some(uid) = shown.messages.keys().find(|uid| **uid >= shown.uidnext) {
            return Err(format!(
                "UIDNEXT {} of {name} is not above {uid}",
                shown.uidnext
            ));
        }
        if !wanders {
            if shown.uidnext < known.uidnext {
                return Err(format!(
                    "UIDNEXT of {name} decreases from {} to {}",
                    known.uidnext, shown.uidnext
                ));
            }
            if shown.modseq < known.modseq {
                return Err(format!("HIGHESTMODSEQ of {name} decreases"));
            }
            if shown.complete {
                // What is known, corrected by the changes, must be what is shown.
                let mut corrected = known.messages.clone();
                for uid in &shown.vanished {
                    corrected.remove(uid);
                }
                for uid in &shown.changed {
                    let row = shown
                        .messages
                        .get(uid)
                        .ok_or(format!("changed UID {uid} of {name} is not shown"))?;
                    corrected.insert(*uid, *row);
                }
                if corrected != shown.messages {
                    return Err(format!(
                        "changes of {name} are wrong: {corrected:?}, shown {:?}",
                        shown.messages
                    ));
                }
            }
        }
        let new = shown
            .messages
            .iter()
            .filter(|(uid, _)| **uid >= known.uidnext);
        self.seen.extend(new.map(|(_, (message, _))| *message));
        known.uidnext = known.uidnext.max(shown.uidnext);
        known.modseq = shown.modseq;
        known.messages = shown.messages;
        Ok(())
    }
}
