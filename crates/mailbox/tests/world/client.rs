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
    /// New mail below a UIDNEXT that was announced before: never seen by a client that asks from there.
    pub overlooked: BTreeSet<[u8; 16]>,
}

/// What a node shows of one name.
#[derive(Clone, Debug)]
pub struct Look {
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
    pub fn look(&mut self, name: &str, look: Look, wanders: bool) -> Result<(), String> {
        let known = self.names.entry(name.to_string()).or_default();
        if known.uidvalidity != look.uidvalidity {
            if look.uidvalidity < known.uidvalidity && !wanders {
                return Err(format!("UIDVALIDITY of {name} decreases"));
            }
            self.seen
                .extend(look.messages.values().map(|(message, _)| *message));
            let uidvalidity = look.uidvalidity;
            *known = Known {
                uidvalidity,
                uidnext: look.uidnext,
                modseq: look.modseq,
                messages: look.messages,
            };
            return Ok(());
        }
        for (uid, (message, _)) in &look.messages {
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
        if let Some(uid) = look.messages.keys().find(|uid| **uid >= look.uidnext) {
            return Err(format!(
                "UIDNEXT {} of {name} is not above {uid}",
                look.uidnext
            ));
        }
        if !wanders {
            if look.uidnext < known.uidnext {
                return Err(format!(
                    "UIDNEXT of {name} decreases from {} to {}",
                    known.uidnext, look.uidnext
                ));
            }
            if look.modseq < known.modseq {
                return Err(format!("HIGHESTMODSEQ of {name} decreases"));
            }
            if look.complete {
                // What is known, corrected by the changes, must be what is visible.
                let mut corrected = known.messages.clone();
                for uid in &look.vanished {
                    corrected.remove(uid);
                }
                for uid in &look.changed {
                    let row = look
                        .messages
                        .get(uid)
                        .ok_or(format!("changed UID {uid} of {name} is not visible"))?;
                    corrected.insert(*uid, *row);
                }
                if corrected != look.messages {
                    return Err(format!(
                        "changes of {name} are wrong: {corrected:?}, visible are {:?}",
                        look.messages
                    ));
                }
            }
        }
        let new = look
            .messages
            .iter()
            .filter(|(uid, _)| **uid >= known.uidnext);
        self.seen.extend(new.map(|(_, (message, _))| *message));
        known.uidnext = known.uidnext.max(look.uidnext);
        known.modseq = look.modseq;
        known.messages = look.messages;
        Ok(())
    }
}
