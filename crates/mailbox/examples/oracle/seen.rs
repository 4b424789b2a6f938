//! All that a replica shows at one moment.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_mailbox::*;

/// What a replica shows.
pub(crate) struct Seen {
    pub(crate) names: BTreeMap<MailboxName, (NameInfo, Status)>,
    pub(crate) subscribed: BTreeSet<MailboxName>,
    pub(crate) rows: BTreeMap<MessageId, (MailboxName, Row)>,
    pub(crate) uidvalidity: u32,
    pub(crate) epoch: u32,
    pub(crate) counter: u32,
    pub(crate) claimed: Vec<(u8, u32)>,
}

impl Seen {
    /// What a replica shows now.
    pub(crate) fn of(replica: &Replica) -> Result<Seen, String> {
        let mut seen = Seen {
            names: BTreeMap::new(),
            subscribed: BTreeSet::new(),
            rows: BTreeMap::new(),
            uidvalidity: replica.uidvalidity(),
            epoch: replica.epoch(),
            counter: replica.counter(),
            claimed: replica.claimed(),
        };
        for info in replica.names() {
            if info.subscribed {
                seen.subscribed.insert(info.name.clone());
            }
            if info.id.is_none() {
                continue;
            }
            for row in replica.rows(&info.name, 1..=u32::MAX) {
                let again = seen.rows.insert(row.message, (info.name.clone(), row));
                if let Some((_, row)) = again {
                    return Err(format!("{} is shown twice", row.message));
                }
            }
            let status = replica.status(&info.name).ok_or("no status")?;
            seen.names.insert(info.name.clone(), (info, status));
        }
        Ok(seen)
    }
}
