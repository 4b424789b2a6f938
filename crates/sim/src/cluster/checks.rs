//! What must hold in a cluster.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_service::{
    api::{
        AccountId, BlobName, Date, Failure, Keyword, MailboxCall, MailboxName, MessageId,
        ROWS_PER_CALL_MAX, Reply, Row,
    },
    log::{missing_blob_of_key, store_partition},
    owner::{self, keys},
    verify,
};
use whimbrel_storage::{KeyRange, ScanLimit};

use super::{
    Uids, World,
    blobs::{first, other},
    is_keeping,
    response_uids::Given,
};
use crate::{checkers::modseqs::When, client, stored};

/// What was told, by all nodes.
#[derive(Default)]
pub(super) struct Looks {
    validity: BTreeMap<AccountId, u32>,
    /// U1, stronger than it is promised: in an account a UID is one message's, whatever the name.
    owners: BTreeMap<(AccountId, u32), MessageId>,
    /// By node and name: what was shown when it was looked at last, and the greatest UIDNEXT told by then.
    told: BTreeMap<(usize, AccountId, String), (Uids, u32)>,
    /// Likewise: the greatest UIDNEXT that was told and nothing shown, as by STATUS.
    nexts: BTreeMap<(usize, AccountId, String), u32>,
    /// By node: messages on an older disk that was put back.
    back: BTreeMap<usize, BTreeSet<(AccountId, MessageId)>>,
    /// Mailboxes that were looked at since there: nothing is shown again any more.
    back_looked: BTreeSet<(usize, AccountId, String)>,
    /// What is shown again, it seems, at a node with an older disk, of which it is not known yet which message it is.
    back_unproved: BTreeMap<(AccountId, u32), usize>,
    /// By node: what was ever shown in INBOX.
    in_inbox: BTreeMap<(usize, AccountId), Uids>,
    pub(super) given: Given,
}

impl Looks {
    pub(super) fn validity(&mut self, account: AccountId, told: u32) -> Result<(), String> {
        if self.given.risen.contains(&account) {
            return Ok(());
        }
        match self.validity.insert(account, told) {
            Some(before) if before != told => Err(format!(
                "UIDVALIDITY of {account} was {before} and is {told}"
            )),
            _ => Ok(()),
        }
    }

    /// A node lost its disk: another one is there in its place, which has told nothing.
    pub(super) fn forget(&mut self, node: usize) {
        self.told.retain(|(of, ..), _| *of != node);
        self.nexts.retain(|(of, ..), _| *of != node);
        self.in_inbox.retain(|(of, _), _| *of != node);
        self.given.forget(node);
    }

    /// An older disk with these messages was put back at a node. They are there again as they were: what left a mailbox since, or got another UID,
    /// under its old UID, which denotes the same message (`docs/decisions/0011`).
    pub(super) fn put_back(&mut self, node: usize, held: BTreeSet<(AccountId, MessageId)>) {
        self.back.insert(node, held);
        self.back_looked.retain(|(of, ..)| *of != node);
    }

    /// A node has left an account's partition: when it comes back it has told nothing. What had left INBOX there has left it for those who come then, too.
    pub(super) fn forget_account(&mut self, node: usize, account: AccountId) {
        self.forget_unless(node, |of| of != account);
    }

    /// The same of all accounts that are not on an older disk of the node: guests' too.
    pub(super) fn forget_unless(&mut self, node: usize, mut has: impl FnMut(AccountId) -> bool) {
        self.told.retain(|(at, of, _), _| *at != node || has(*of));
        self.nexts.retain(|(at, of, _), _| *at != node || has(*of));
        self.given.forget_unless(node, has);
    }

    /// What a node has shown in INBOX, and shows no more to whom it shows these and tells this UIDNEXT.
    pub(super) fn left(&self, node: usize, of: AccountId, uids: &Uids, uid_next: u32) -> Uids {
        let shown = self.in_inbox.get(&(node, of)).into_iter().flatten();
        let shown = shown.filter(|uid| **uid < uid_next && !uids.contains(uid));
        shown.copied().collect()
    }

    /// A UIDNEXT was told, and nothing shown.
    pub(super) fn told(
        &mut self,
        node: usize,
        account: AccountId,
        name: &str,
        uid_next: u32,
    ) -> Result<(), String> {
        let key = (node, account, name.to_owned());
        let shown = self.told.get(&key).map_or(0, |(_, told)| *told);
        let told = self.nexts.entry(key).or_default();
        *told = shown.max(*told);
        if uid_next < *told && !self.given.risen.contains(&account) {
            return Err(format!(
                "U2: node {node} tells UIDNEXT {uid_next} of {name}, told was {told}"
            ));
        }
        *told = uid_next;
        Ok(())
    }

    /// U1
    pub(super) fn seen(
        &mut self,
        account: AccountId,
        uid: u32,
        id: MessageId,
    ) -> Result<(), String> {
        if self.given.risen.contains(&account) {
            return Ok(());
        }
        match self.owners.insert((account, uid), id) {
            Some(before) if before != id => {
                return Err(format!(
                    "U1: UID {uid} of {account} denoted {before}, and now {id}"
                ));
            }
            _ => {}
        }
        match self.back_unproved.remove(&(account, uid)) {
            Some(node) if !self.back[&node].contains(&(account, id)) => Err(format!(
                "U2: node {node} has shown the new UID {uid} of {account}, below a UIDNEXT that it told, and {id} was not on its older disk"
            )),
            _ => Ok(()),
        }
    }

    /// The message that this UID denotes, if it was told.
    pub(super) fn owner(&self, account: AccountId, uid: u32) -> Option<MessageId> {
        self.owners.get(&(account, uid)).copied()
    }

    /// U2, by node: what is shown and was not before has a UID of at least the UIDNEXT told before.
    pub(super) fn looked(
        &mut self,
        node: usize,
        account: AccountId,
        name: &str,
        uids: &Uids,
        uid_next: u32,
    ) -> Result<(), String> {
        if self.given.risen.contains(&account) {
            return Ok(());
        }
        if name == "INBOX" {
            let all = self.in_inbox.entry((node, account)).or_default();
            all.extend(uids);
        }
        let key = (node, account, name.to_owned());
        let back = self.back.get(&node);
        let back = back.filter(|_| self.back_looked.insert(key.clone()));
        let (known, told) = self.told.entry(key).or_default();
        for low in uids.difference(known).filter(|uid| *uid < told) {
            match (back, self.owners.get(&(account, *low))) {
                (Some(back), Some(id)) if back.contains(&(account, *id)) => {}
                (Some(_), None) => _ = self.back_unproved.insert((account, *low), node),
                _ => {
                    return Err(format!(
                        "U2: node {node} shows the new UID {low} in {name} of {account}, its UIDNEXT was told to be {told}"
                    ));
                }
            }
        }
        let least = self.nexts.get(&(node, account, name.to_owned()));
        let least = least.copied().unwrap_or(0).max(*told);
        if uid_next < least || uids.last().is_some_and(|last| *last >= uid_next) {
            return Err(format!(
                "U2: node {node} tells UIDNEXT {uid_next} of {name}, told was {least}, shown is {:?}",
                uids.last()
            ));
        }
        (*known, *told) = (uids.clone(), uid_next);
        Ok(())
    }
}

/// What accounts in which nothing is removed must hold in the end.
#[derive(Default)]
pub(super) struct Kept {
    /// Bodies by account, and whether their message was acknowledged.
    bodies: BTreeMap<(AccountId, u32), bool>,
    /// Bodies that are there all or none.
    at_once: Vec<(AccountId, Vec<u32>)>,
    /// Bodies whose senders were told that too few nodes have them.
    refused: BTreeSet<u32>,
    /// Bodies whose senders were refused before anything was written.
    unwritten: BTreeSet<u32>,
    /// Flags that were set, and acknowledged.
    flags: BTreeMap<(AccountId, MessageId), BTreeSet<u8>>,
}

impl Kept {
    pub(super) fn made(&mut self, account: AccountId, body: u32) {
        self.bodies.insert((account, body), false);
    }

    /// By one APPEND.
    pub(super) fn made_at_once(&mut self, account: AccountId, bodies: &[u32]) {
        bodies.iter().for_each(|body| self.made(account, *body));
        if bodies.len() > 1 {
            self.at_once.push((account, bodies.to_vec()));
        }
    }

    pub(super) fn acknowledged(&mut self, account: AccountId, body: u32) {
        self.bodies.insert((account, body), true);
    }

    /// Bodies of this account's messages that were acknowledged.
    pub(super) fn acknowledged_of(&self, account: AccountId) -> Vec<u32> {
        let all = self.bodies.range((account, 0)..=(account, u32::MAX));
        all.filter(|(_, acknowledged)| **acknowledged)
            .map(|((_, body), _)| *body)
            .collect()
    }

    pub(super) fn is_acknowledged(&self, account: AccountId, body: u32) -> bool {
        self.bodies.get(&(account, body)).copied().unwrap_or(false)
    }

    pub(super) fn refused(&mut self, body: u32) {
        self.refused.insert(body);
    }

    pub(super) fn unwritten(&mut self, body: u32) {
        self.unwritten.insert(body);
    }

    pub(super) fn was_refused(&self, body: u32) -> bool {
        self.refused.contains(&body)
    }

    pub(super) fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// The body of the last message whose sender was told that too few nodes have it.
    pub(super) fn last_refused(&self) -> Option<u32> {
        self.refused.last().copied()
    }

    /// How many messages were acknowledged, and flags that were set.
    pub(super) fn count(&self) -> usize {
        let acknowledged = self.bodies.values().filter(|of| **of);
        let flags = self.flags.values().map(BTreeSet::len);
        acknowledged.count() + flags.sum::<usize>()
    }

    /// What was set on it may be gone.
    pub(super) fn unflagged(&mut self, account: AccountId, id: MessageId) {
        self.flags.remove(&(account, id));
    }

    pub(super) fn flagged(&mut self, account: AccountId, id: MessageId, set: &BTreeSet<u8>) {
        self.flags.entry((account, id)).or_default().extend(set);
    }
}

/// One message as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    uid: u32,
    id: MessageId,
    flags: BTreeSet<u8>,
    /// As they are spelled.
    keywords: Vec<Keyword>,
    body: u32,
    blob: BlobName,
    date: Date,
    origin: MessageId,
    saved: i64,
    open_end: bool,
}

/// What a node shows of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Picture {
    boxes: BTreeMap<String, Vec<Shown>>,
    subscribed: BTreeSet<String>,
    special: BTreeMap<String, String>,
}

impl Picture {
    /// UIDs, flags and sizes of a mailbox, if there is such a one.
    pub(super) fn flags_of(&self, name: &str) -> Option<Vec<(u32, BTreeSet<u8>, u64)>> {
        let shown = self.boxes.get(name)?.iter();
        let told = |of: &Shown| (of.uid, of.flags.clone(), u64::from(of.body));
        Some(shown.map(told).collect())
    }

    /// By mailbox: messages, those that were not seen, those that are marked, and their size.
    pub(super) fn figures(&self) -> BTreeMap<String, (u32, u32, u32, u64)> {
        let count = |shown: &[Shown], of: &dyn Fn(&Shown) -> bool| {
            let count = shown.iter().filter(|shown| of(shown)).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let figures = |shown: &[Shown]| {
            (
                count(shown, &|_| true),
                count(shown, &|shown| !shown.flags.contains(&client::SEEN)),
                count(shown, &|shown| shown.flags.contains(&client::DELETED)),
                shown.iter().map(|shown| u64::from(shown.body)).sum(),
            )
        };
        let boxes = self.boxes.iter();
        boxes
            .map(|(name, shown)| (name.clone(), figures(shown)))
            .collect()
    }

    pub(super) fn is_subscribed(&self, name: &str) -> bool {
        self.subscribed.contains(name)
    }

    /// Of each message in each mailbox.
    pub(super) fn uids(&self) -> BTreeMap<(String, MessageId), u32> {
        let boxes = self.boxes.iter();
        let all = boxes.flat_map(|(name, shown)| {
            shown
                .iter()
                .map(move |shown| ((name.clone(), shown.id), shown.uid))
        });
        all.collect()
    }

    /// The UID of the message with this body in INBOX.
    pub(super) fn bodies(&self) -> BTreeMap<u32, u32> {
        let inbox = self.boxes.get("INBOX").into_iter().flatten();
        inbox.map(|shown| (shown.body, shown.uid)).collect()
    }
}

impl World {
    /// What a node has written is what the proofs assume of it.
    pub(super) fn wrote(&mut self, node: usize) -> Result<(), String> {
        let mut wrote = self.members[node].node.wrote.drain(..);
        wrote.try_for_each(|wrote| self.axioms.wrote(node, &wrote))?;
        let batches = self.axioms.batches();
        self.report.coverage.insert("cluster: batches", batches);
        Ok(())
    }

    /// U3: what is not alike, if anything.
    pub(super) fn differences(&mut self) -> Result<Option<String>, String> {
        let there = self.there();
        if there.is_empty() {
            return Err("no node is left".into());
        }
        if let Some(node) = there.iter().find(|node| self.is_syncing(**node)) {
            return Ok(Some(format!("node {node} has not all that the others had")));
        }
        let opens = |node: &&usize| {
            let reports = self.members[**node].node.reports();
            let mut held = reports.iter().filter(|of| of.left.is_none());
            held.any(|of| of.open.is_none())
        };
        if let Some(node) = there.iter().find(opens) {
            return Ok(Some(format!(
                "node {node} has not opened all that it holds"
            )));
        }
        if let Some(node) = self.not_back() {
            return Ok(Some(node));
        }
        for account in self.accounts.clone() {
            there
                .iter()
                .try_for_each(|node| self.missing_are_named(*node, account))?;
            // One that has just come with another disk refuses until it has what another had.
            for node in &there {
                let reply = self.ask_and_wait(*node, account, MailboxCall::list())?;
                if matches!(reply, Reply::Failed(Failure::Temporary)) {
                    return Ok(Some(format!("node {node} refuses account {account}")));
                }
            }
            let difference = self.difference_of(account)?;
            if difference.is_some() {
                return Ok(difference);
            }
        }
        Ok(None)
    }

    /// What nodes do not show alike of an account, if anything.
    pub(super) fn difference_of(&mut self, account: AccountId) -> Result<Option<String>, String> {
        let there = self.there();
        let low = there[0];
        let first = self.picture(low, account)?;
        for &node in &there[1..] {
            let other = self.picture(node, account)?;
            if other != first {
                let (at0, at) = (self.stands(low, account), self.stands(node, account));
                return Ok(Some(format!(
                    "account {account}: node {low} shows\n  {first:?}\n  {at0}\nnode {node} shows\n  {other:?}\n  {at}"
                )));
            }
        }
        Ok(None)
    }

    /// Where the logs of the account's partition stand at a node, and which bodies it lacks.
    pub(super) fn stands(&self, node: usize, account: AccountId) -> String {
        let partition = store_partition(keys::partition_of(account));
        let disk = &self.members[node].node.disk;
        let logs = disk.log_positions(partition).into_iter();
        let logs: Vec<_> = logs.map(|(of, log)| (of.0, log.next)).collect();
        let all = disk.scan(partition, &KeyRange::prefix(vec![0]), ScanLimit::default());
        let missing_blobs = all
            .rows
            .iter()
            .filter_map(|(key, _)| missing_blob_of_key(key));
        let has = |blob: &BlobName, at: &usize| {
            let disk = &self.members[*at].node.disk;
            disk.blob_read(owner::blob_name(blob), 0, 1).is_ok()
        };
        let there = self.there();
        let missing_blobs: Vec<_> = missing_blobs
            .map(|blob| {
                let at = there.iter().filter(|at| has(&blob, at));
                (blob.upload, at.collect::<Vec<_>>())
            })
            .collect();
        format!("logs go on at {logs:?}, bodies missing, and who has them {missing_blobs:x?}")
    }

    /// A body that a row of the account's partition says is missing is one that a message names, or a part of a batch that is held.
    fn missing_are_named(&self, node: usize, account: AccountId) -> Result<(), String> {
        let partition = store_partition(keys::partition_of(account));
        let disk = &self.members[node].node.disk;
        let (mut missing_blobs, mut named) = (BTreeSet::new(), BTreeSet::new());
        let mut next = Some(KeyRange::all());
        while let Some(range) = next {
            let page = disk.scan(partition, &range, ScanLimit::default());
            missing_blobs.extend(
                page.rows
                    .iter()
                    .filter_map(|(key, _)| missing_blob_of_key(key)),
            );
            let rows = page.rows.iter();
            named.extend(rows.flat_map(|(key, row)| verify::named(key, row)));
            next = page.next.map(|start| KeyRange { start, ..range });
        }
        match missing_blobs.difference(&named).next() {
            Some(blob) => Err(format!(
                "node {node} misses body {:x?}, which nothing names",
                blob.upload
            )),
            None => Ok(()),
        }
    }

    /// What was asked then, and is answered now.
    fn when(&self, asked: u64) -> When {
        When {
            asked,
            answered: self.now,
        }
    }

    /// MODSEQs are a node's own, and those of a life of it.
    pub(super) fn modseq_looked(
        &mut self,
        node: usize,
        account: AccountId,
        name: &str,
        uids: &Uids,
        highest: u64,
        asked: u64,
    ) -> Result<(), String> {
        let when = self.when(asked);
        let at = (self.members[node].id, account);
        let all = uids.iter().copied();
        let looked = self.modseqs.looked(at, name, all, highest, when);
        looked.map_err(|cause| format!("MODSEQ at node {node}, account {account}: {cause}"))
    }

    pub(super) fn modseq_seen(
        &mut self,
        node: usize,
        account: AccountId,
        row: &Row,
        asked: u64,
    ) -> Result<(), String> {
        let when = self.when(asked);
        let at = (self.members[node].id, account);
        let seen = self.modseqs.seen(at, row, when);
        seen.map_err(|cause| format!("MODSEQ at node {node}, account {account}: {cause}"))
    }

    pub(super) fn picture(&mut self, node: usize, account: AccountId) -> Result<Picture, String> {
        let mut picture = Picture::default();
        let reply = self.ask_and_wait(node, account, MailboxCall::list())?;
        let Reply::Mailboxes {
            names: mailboxes, ..
        } = reply
        else {
            return Err(format!("LIST was answered by {reply:?}"));
        };
        let session = self.session();
        for mailbox in mailboxes {
            let name = mailbox.name.as_str().to_owned();
            if mailbox.subscribed {
                picture.subscribed.insert(name.clone());
            }
            if let Some(special) = mailbox.special_use {
                picture.special.insert(name.clone(), format!("{special:?}"));
            }
            if mailbox.exists {
                let shown = self.shown(node, account, session, mailbox.name)?;
                picture.boxes.insert(name, shown);
            }
        }
        self.members[node].node.hangup(session);
        Ok(picture)
    }

    fn shown(
        &mut self,
        node: usize,
        account: AccountId,
        session: whimbrel_service::api::SessionId,
        name: MailboxName,
    ) -> Result<Vec<Shown>, String> {
        let asked = self.now;
        let call = MailboxCall::Select {
            session,
            name: name.clone(),
            read_only: true,
        };
        let reply = self.ask_and_wait(node, account, call)?;
        let Reply::Selected(selected) = reply else {
            // It may go while it is looked at, as long as nodes are not alike.
            return Ok(Vec::new());
        };
        let uids: Uids = selected.uids.iter().collect();
        let next = selected.status.uid_next;
        self.looks.validity(account, selected.status.uid_validity)?;
        self.looks
            .looked(node, account, name.as_str(), &uids, next)?;
        self.next_told((node, account, name.as_str()), next, asked)?;
        let highest = selected.status.highest_modseq;
        self.modseq_looked(node, account, name.as_str(), &uids, highest, asked)?;
        let mut rows = Vec::new();
        for uids in selected.uids.to_vec().chunks(ROWS_PER_CALL_MAX) {
            let (name, uids) = (name.clone(), uids.to_vec());
            let reply = self.ask_and_wait(node, account, MailboxCall::Rows { name, uids })?;
            let Reply::Rows(some) = reply else {
                return Err(format!("rows were answered by {reply:?}"));
            };
            rows.extend(some);
        }
        let mut shown = Vec::new();
        for row in rows {
            self.row_seen(account, &row)?;
            self.removals.shown(&row);
            self.holds(node, account, &row)?;
            self.modseq_seen(node, account, &row, asked)?;
            shown.push(Shown {
                uid: row.uid,
                id: row.id,
                flags: client::numbers(&row.flags),
                keywords: row.flags.keywords().to_vec(),
                body: row.size,
                blob: row.blob,
                date: row.date,
                origin: row.origin,
                saved: row.saved,
                open_end: row.open_end,
            });
        }
        Ok(shown)
    }

    /// What is shown can be read.
    pub(super) fn holds(&self, node: usize, account: AccountId, row: &Row) -> Result<(), String> {
        let is_again = self.queries.came_otherwise(account, row.size);
        if is_again && !self.calm {
            // Which of the two it is may have changed since the answer was made.
            return Ok(());
        }
        let other = Some(other(row.size)).filter(|of| is_again && of.1 == row.date);
        let (text, date, content) = other.unwrap_or_else(|| first(row.size));
        if row.date != date {
            return Err(format!(
                "node {node} shows another INTERNALDATE of message {}: {:?}",
                row.size, row.date
            ));
        }
        if self.members[node].node.holds(account, row, &text, &content) {
            Ok(())
        } else {
            Err(format!(
                "D1: node {node} shows message {} without its body or content row",
                row.size
            ))
        }
    }

    /// The messages of an account, and their bodies, at the first node.
    pub(super) fn all_visible(
        &mut self,
        account: AccountId,
    ) -> Result<Vec<(MessageId, u32)>, String> {
        let picture = self.picture(self.first_there(), account)?;
        let all = picture.boxes.values().flatten();
        Ok(all.map(|shown| (shown.id, shown.body)).collect())
    }

    /// What was given up is not shown.
    pub(super) fn nothing_refused(&mut self, node: usize) -> Result<(), String> {
        for account in self.accounts.clone() {
            let picture = self.picture(node, account)?;
            let mut all = picture.boxes.values().flatten();
            if let Some(shown) = all.find(|shown| self.kept.was_refused(shown.body)) {
                return Err(format!(
                    "node {node} shows message {}, whose sender was told to come back",
                    shown.body
                ));
            }
        }
        Ok(())
    }

    /// What was acknowledged of an account in which nothing is removed is there, and once; what was refused before it was written is not.
    pub(super) fn all_there_once(&mut self, account: AccountId) -> Result<Picture, String> {
        let low = self.there()[0];
        let picture = self.picture(low, account)?;
        let all: Vec<&Shown> = picture.boxes.values().flatten().collect();
        for ((of, body), acknowledged) in &self.kept.bodies {
            if *of != account {
                continue;
            }
            let found = all.iter().filter(|shown| shown.body == *body).count();
            if found > 1 || (found == 0 && *acknowledged) {
                return Err(format!(
                    "D1/D2: message {body} of {account} (acknowledged: {acknowledged}) is there {found} times"
                ));
            }
        }
        // What nobody has the body of any more is not shown.
        let may_lack = self.nodes_were_renewed() || self.nodes_were_removed();
        let at_once = self.kept.at_once.iter();
        for (_, bodies) in at_once.filter(|(of, _)| *of == account && !may_lack) {
            let found = || all.iter().filter(|shown| bodies.contains(&shown.body));
            // What too few nodes have goes again; what another client has moved meanwhile is that one's.
            let was_moved = |shown: &&&Shown| self.removals.was_moved(account, shown.id);
            let stays = self.plan.other_nodes > 0 && found().any(|shown| was_moved(&shown));
            let found = found().count();
            if !stays && (1..bodies.len()).contains(&found) {
                return Err(format!(
                    "messages {bodies:?} of {account} came by one APPEND, and {found} of them are there"
                ));
            }
        }
        if let Some(shown) = all
            .iter()
            .find(|shown| self.kept.unwritten.contains(&shown.body))
        {
            return Err(format!(
                "message {} of {account} is there, and was refused before it was written",
                shown.body
            ));
        }
        Ok(picture)
    }

    /// What each node has stored is what its logs say.
    pub(super) fn stored_holds(&mut self) -> Result<(), String> {
        for node in self.there() {
            for account in self.accounts.clone() {
                let checked = stored::account(&self.members[node].node.disk, account);
                let checked = checked.map_err(|cause| format!("node {node}: {cause}"))?;
                self.note_if(checked, "cluster: checked against whole logs");
            }
        }
        Ok(())
    }

    /// D1 and D2, when nodes are alike: what was acknowledged is there, and once.
    pub(super) fn nothing_lost(&mut self) -> Result<(), String> {
        for account in self.accounts.clone() {
            if !is_keeping(account) {
                continue;
            }
            let picture = self.all_there_once(account)?;
            for shown in picture.boxes.values().flatten() {
                let place = (account, shown.id);
                let set = self.kept.flags.get(&place).into_iter().flatten();
                let mut set = set.filter(|flag| !self.flagging.may_be_cleared(place, **flag));
                if let Some(flag) = set.find(|flag| !shown.flags.contains(flag)) {
                    return Err(format!(
                        "D1: flag {flag} was set on message {}, it has {:?}",
                        shown.body, shown.flags
                    ));
                }
                let wrong = self.flagging.wrong(place, &shown.flags);
                if let Some((flag, is_set)) = wrong {
                    return Err(format!(
                        "D1: flag {flag} of message {} ({}) is to be set: {is_set}, it has {:?}",
                        shown.body, shown.id, shown.flags
                    ));
                }
            }
            let cleared = self.flagging.cleared_of(account);
            let what = "cluster: flags cleared";
            *self.report.coverage.entry(what).or_default() += cleared;
        }
        Ok(())
    }
}
