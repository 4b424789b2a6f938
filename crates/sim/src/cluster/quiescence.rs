//! When all is healed, one node after the other writes to each account, and nobody else: what must be so in a whole network.
//!
//! U2 over all nodes: what is new has a UID of at least the UIDNEXT that any of them told. U4: nothing changes its UID, since nobody writes at once,
//! nobody comes from elsewhere, and nothing is renamed; what a node told for a new message is its UID everywhere. Bounded logs:
//! all that was written is stable, and each log is cut to what is kept of it. Bounded memory: nothing waits anywhere, for a peer, an acknowledgement or a disk.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use whimbrel_crdt::PartitionId;
use whimbrel_service::{
    api::{AccountId, Failure, MailboxCall, Reply, SessionId},
    figures::Figures,
    log::store_partition,
    owner::keys,
};

use super::{SECOND, World, checks::Picture, clients::mailbox};

/// Between two writes: longer than any reader is waited for, and a stable batch is known to be.
const PAUSE_MICROS: u64 = 3 * SECOND;

/// A node acknowledges a write within this time: its clock was set a moment ago, perhaps.
const TIMEOUT_MICROS: u64 = 300 * SECOND;

/// Times that each node writes to each account. The second one takes along what the first one's acknowledgements allow to be cut.
const ROUNDS: usize = 2;

/// What waits, and must not when nothing happens.
type Figure = fn(&Figures) -> u64;
const WAITING: [(&str, Figure); 4] = [
    ("answers wait for other nodes", |all| all.answers_confirming),
    ("states wait", |all| all.snapshots_waiting),
    ("accounts are stalled", |all| all.accounts_stalled),
    ("entries are queued", |all| all.queue_entries),
];

impl World {
    /// All nodes are alike, and clients have gone.
    pub(super) fn goes_on_quietly(&mut self) -> Result<(), String> {
        // What waits for a member that is gone and was not removed waits for ever.
        let waits = |index: &usize| self.members[*index].node.queue_len() > 0;
        let there = self.there();
        if there.iter().any(waits) {
            return Ok(());
        }
        self.note_if(
            self.plan.protocol_clients > 0,
            "cluster: quiescent protocol clients",
        );
        self.protocol_clients_go();
        for index in 0..self.clients.len() {
            let (node, session) = (self.clients[index].node, self.clients[index].session);
            if self.members[node].out {
                continue;
            }
            self.bring(node);
            self.members[node].node.hangup(session);
        }
        // The clients came once more a moment ago, and what they named is an operation, too (docs/design.md#rule-6): all nodes have it then.
        self.run_until(self.now + PAUSE_MICROS)?;
        self.all_apply()?;
        let accounts = self.accounts.clone();
        let mut before = BTreeMap::new();
        for account in &accounts {
            before.insert(*account, self.picture(there[0], *account)?);
        }
        // Where disks were lost or nodes removed there are bodies that nobody has any more.
        let may_lack = self.nodes_were_let_in() || self.nodes_were_removed();
        let missing_blobs = there.iter().map(|node| match may_lack {
            true => (*node, self.blobs_missing(*node)),
            false => (*node, 0),
        });
        let missing_blobs: BTreeMap<usize, u64> = missing_blobs.collect();
        let mut told = Vec::new();
        for _ in 0..ROUNDS {
            for node in &there {
                for account in &accounts {
                    told.push((*account, self.write_quietly(*node, *account)?));
                }
                self.all_have_the_bodies(&missing_blobs)?;
            }
        }
        self.note("cluster: written quietly");
        for account in &accounts {
            for node in &there {
                let now = self.picture(*node, *account)?;
                let told = told.iter().filter(|(of, _)| of == account);
                let told = told.map(|(_, told)| *told);
                stays(&before[account], &now, told)
                    .map_err(|cause| format!("U4: account {account} at node {node}: {cause}"))?;
            }
        }
        self.directory_and_queue_go_on()?;
        // A slow disk is at it a while longer.
        self.comes_to(|world| world.nothing_waits().err())?;
        self.logs_are_short()
    }

    /// Those are written to as well, by each node in turn, so that what all have is cut.
    fn directory_and_queue_go_on(&mut self) -> Result<(), String> {
        let account = self.accounts[0];
        for node in vec![self.there(); ROUNDS].concat() {
            let end = self.now + TIMEOUT_MICROS;
            while !self.changes_the_directory(node)? {
                if self.now > end {
                    return Err(format!("node {node} does not change the directory"));
                }
                self.run_until(self.now + SECOND)?;
            }
            loop {
                self.accept(node, vec![account]);
                let mut is_done = false;
                while !is_done && self.now <= end {
                    self.run_until(self.now + PAUSE_MICROS)?;
                    let there = self.there().into_iter();
                    let mut queues = there.map(|index| self.members[index].node.queue_len());
                    is_done = self.asked.is_empty() && queues.all(|len| len == 0);
                }
                // Of who stayed after all, for he who removed it is gone, it was said that nothing counts.
                let counts = !self.members[node].doubtful;
                if is_done && (!counts || self.kept.is_acknowledged(account, self.next_body)) {
                    break;
                }
                if self.now > end {
                    let there = self.there().into_iter();
                    let queues: Vec<_> = there
                        .map(|index| (index, self.members[index].node.queue_len()))
                        .collect();
                    return Err(format!(
                        "node {node} does not deliver when all is quiet: queues {queues:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A log of which a node has more than it has applied: nodes may be alike all the same, and a disk that hung when all was healed lets go of what
    /// it was asked to read later.
    pub(super) fn unapplied(&self) -> Option<String> {
        self.there().into_iter().find_map(|index| {
            let reports = self.members[index].node.reports().into_iter();
            let mut logs = reports.flat_map(|report| {
                let logs = report.open.unwrap_or_default().logs.into_iter();
                logs.map(move |(of, log)| (report.partition, of, log))
            });
            let (partition, of, log) =
                logs.find(|(_, of, log)| self.is_there(*of) && log.applied < log.stored)?;
            Some(format!(
                "node {index} has not applied what it has of {of:?} in {partition:?}: {log:?}"
            ))
        })
    }

    /// What a node whose clock was ahead has written is applied when the others' clocks come there.
    fn all_apply(&mut self) -> Result<(), String> {
        self.comes_to(|world| {
            let cause = world.unapplied()?;
            Some(format!("when all is quiet {cause}"))
        })
    }

    /// After some time nothing is wrong any more.
    fn comes_to(&mut self, wrong: impl Fn(&World) -> Option<String>) -> Result<(), String> {
        let end = self.now + TIMEOUT_MICROS;
        while let Some(cause) = wrong(self) {
            if self.now > end {
                return Err(cause);
            }
            self.run_until(self.now + SECOND)?;
        }
        Ok(())
    }

    /// Who lacks a body shows its message later, and under another UID if it has told of later ones (docs/design.md#rule-4).
    fn all_have_the_bodies(&mut self, missing_blobs: &BTreeMap<usize, u64>) -> Result<(), String> {
        let end = self.now + TIMEOUT_MICROS;
        self.run_until(self.now + PAUSE_MICROS)?;
        self.all_apply()?;
        let mut watched: BTreeMap<usize, Vec<SessionId>> = BTreeMap::new();
        loop {
            let lacks = |(node, count): &(&usize, &u64)| self.blobs_missing(**node) > **count;
            let Some((&node, _)) = missing_blobs.iter().find(lacks) else {
                // A message whose body has just come is looked at as if it had come then, and waits for other nodes (docs/design.md#rule-5).
                if !watched.is_empty() {
                    self.run_until(self.now + PAUSE_MICROS)?;
                }
                for (node, sessions) in watched {
                    let node = &mut self.members[node].node;
                    sessions
                        .into_iter()
                        .for_each(|session| node.hangup(session));
                }
                return Ok(());
            };
            if let Entry::Vacant(unwatched) = watched.entry(node) {
                unwatched.insert(self.watch_all(node)?);
            }
            if self.now > end {
                let stand = |account: &AccountId| self.stands(node, *account);
                let stand: Vec<String> = self.accounts.iter().map(stand).collect();
                return Err(format!(
                    "node {node} lacks a body when all is quiet: {stand:?}"
                ));
            }
            self.run_until(self.now + SECOND)?;
        }
    }

    /// Somebody looks at each account of a node. What was removed before its body came goes when it is collected, and for that its account must be in
    /// memory so long, for which there is not always room here.
    fn watch_all(&mut self, node: usize) -> Result<Vec<SessionId>, String> {
        let mut sessions = Vec::new();
        for account in self.accounts.clone() {
            let session = self.session();
            let select = MailboxCall::Select {
                session,
                name: mailbox("INBOX"),
                read_only: true,
            };
            self.ask_and_wait(node, account, select)?;
            sessions.push(session);
        }
        Ok(sessions)
    }

    fn blobs_missing(&self, node: usize) -> u64 {
        let reports = self.members[node].node.reports().into_iter();
        reports.map(|of| of.blobs_missing).sum()
    }

    /// A message is appended; its body, and the UID that is told.
    fn write_quietly(&mut self, node: usize, account: AccountId) -> Result<(u32, u32), String> {
        let end = self.now + TIMEOUT_MICROS;
        let least = self.told_anywhere(account)?;
        loop {
            let session = self.session();
            self.bring(node);
            let Some((call, body)) = self.appended(node, account, session, "INBOX") else {
                return Err(format!("node {node} has no room"));
            };
            match self.ask_and_wait(node, account, call)? {
                Reply::Appended { uids, .. } if uids.len() == 1 => {
                    self.kept.acknowledged(account, body);
                    if uids[0] < least {
                        return Err(format!(
                            "U2: message {body} of {account} at {node} has UID {}, UIDNEXT {least} was told somewhere, and the network is whole",
                            uids[0]
                        ));
                    }
                    self.say(|| format!("message {body} at {node} has UID {}", uids[0]));
                    return Ok((body, uids[0]));
                }
                Reply::Failed(Failure::Clock | Failure::Temporary) if self.now < end => {
                    self.run_until(self.now + SECOND)?;
                }
                other => return Err(format!("node {node} answers {other:?} when all is quiet")),
            }
        }
    }

    /// The greatest UIDNEXT of INBOX that any node tells: in a whole network what is new is not below it, wherever a client goes.
    fn told_anywhere(&mut self, account: AccountId) -> Result<u32, String> {
        let mut most = 0;
        for node in self.there() {
            let (name, asked) = (mailbox("INBOX"), self.now);
            match self.ask_and_wait(node, account, MailboxCall::Status { name })? {
                Reply::Status(status) => {
                    self.status_told((node, account, "INBOX"), &status, asked)?;
                    most = most.max(status.uid_next);
                }
                other => return Err(format!("STATUS at {node} is answered by {other:?}")),
            }
        }
        Ok(most)
    }

    fn nothing_waits(&self) -> Result<(), String> {
        for index in self.there() {
            let node = &self.members[index].node;
            let figures = node.figures();
            let waits = WAITING.iter();
            let mut waits = waits.map(|(what, figure)| (*what, figure(&figures)));
            if let Some((what, count)) = waits.find(|(_, count)| *count > 0) {
                return Err(format!("at node {index} {count} {what} when all is quiet"));
            }
            for report in node.reports() {
                let open = report.open.unwrap_or_default();
                let mut peers = open.peers.iter().filter(|(id, _)| self.is_there(**id));
                let waits =
                    peers.find(|(_, peer)| peer.queued_bytes + peer.lacks + peer.has_more > 0);
                if let Some((id, peer)) = waits {
                    let partition = report.partition;
                    return Err(format!(
                        "node {index} has not done with {id:?} in {partition:?} when all is quiet: {peer:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Members that are gone for good and were not removed hold what they have not got: of the logs nothing is said then.
    fn logs_are_short(&mut self) -> Result<(), String> {
        let there = self.there();
        let living: BTreeSet<_> = there.iter().map(|index| self.members[*index].id).collect();
        let members = self.members[there[0]].roster.slots().into_keys();
        if members.collect::<BTreeSet<_>>() != living {
            return Ok(());
        }
        self.note("cluster: logs are short");
        let accounts = self.accounts.clone();
        let accounts = accounts.iter().map(|account| keys::partition_of(*account));
        let all: BTreeSet<PartitionId> = accounts.chain([PartitionId::DIRECTORY]).collect();
        for index in there {
            for partition in all.iter().copied() {
                let disk = &self.members[index].node.disk;
                for (of, log) in disk.log_positions(store_partition(partition)) {
                    let long = log.next - log.low;
                    if living.iter().any(|id| id.get() == of.0) && long > self.log_numbers_max() {
                        return Err(format!(
                            "node {index} keeps {long} numbers of the log of {of:?} in {partition:?} when all is quiet"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// What is kept of a log, a cut that is not worth while, and what its node has written since the last one.
    fn log_numbers_max(&self) -> u64 {
        let shipping = &self.config.shipping;
        let writes = ROUNDS * self.accounts.len();
        shipping.kept + shipping.cut_step + writes as u64 * NUMBERS_PER_WRITE
    }
}

/// Operations of an APPEND, and of what is told of it, at most.
const NUMBERS_PER_WRITE: u64 = 8;

/// What was there is there under its UID, and what was told of what is new holds.
fn stays(
    before: &Picture,
    now: &Picture,
    told: impl Iterator<Item = (u32, u32)>,
) -> Result<(), String> {
    let uids = now.uids();
    for (place, uid) in before.uids() {
        match uids.get(&place) {
            Some(now) if *now == uid => {}
            other => return Err(format!("{place:?} had UID {uid} and has {other:?}")),
        }
    }
    let bodies = now.bodies();
    for (body, uid) in told {
        if bodies.get(&body) != Some(&uid) {
            return Err(format!(
                "message {body} was told to have UID {uid}, and has {:?}",
                bodies.get(&body)
            ));
        }
    }
    Ok(())
}
