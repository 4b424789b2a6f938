//! Two owners with their stores and the stream between them: what one does reaches the other.

use std::collections::BTreeSet;

use bytes::Bytes;
use whimbrel_crdt::{Batch, Hash, PartitionId, Section};
use whimbrel_replication::wire::{Batches, VisibleVector};
use whimbrel_service::{
    api::{
        AccountId, BlobName, Call, Date, EntryId, Flags, MailboxCall, MailboxName, NewMail, Reply,
        SessionId,
    },
    content::Content,
    machine::{AccountOrigin, AccountStatus, Input, Machine, Note, Now, Output, RequestId},
    owner::{Config, PartitionOwner},
    peers::{Entry, Frame, Page, PeerInput, PeerOutput, Stream, blobs::FEATURE_CONFIRM},
};

pub(crate) use super::node::incarnation;
use super::{
    node::Node,
    world::{ANNE, name},
};

/// A stream that stays quiet for so long has nothing more to tell.
const QUIET_MICROS: u64 = 3_000_000;

/// Owner 0 and owner 1.
pub(crate) struct Pair {
    pub(crate) nodes: [Node; 2],
    pub(crate) now: Now,
    pub(crate) linked: bool,
    /// What a node has shown it does not tell, as an older program.
    pub(crate) silent: bool,
    /// Bodies that were to go behind their batches to the other node, and that this one expects so.
    pub(crate) pushed: [Vec<BlobName>; 2],
    pub(crate) coming: [Vec<BlobName>; 2],
    /// Bodies that were to be looked for, which is answered at once.
    pub(crate) wanted: [Vec<BlobName>; 2],
    /// Whether those that come behind their batches are told of by the test itself.
    pub(crate) late: bool,
    /// No node has any body that is looked for.
    pub(crate) nowhere: bool,
    /// How often an owner wanted the streams made anew.
    pub(crate) unlinked: usize,
    /// What node 0 has sent.
    pub(crate) sent: Vec<Frame>,
    /// It says that it knows nothing of beginning anew, as an older program.
    pub(crate) old: bool,
    /// What both ends of the stream can do.
    pub(crate) features: u64,
    /// Node 1 has operations of node 0 that this one did not make: it ends for that when it is told.
    forged: bool,
    requests: u64,
}

/// APPEND of so many messages.
pub(crate) fn appending(mailbox: &str, count: usize) -> MailboxCall {
    let content = Content {
        prefix: Bytes::new(),
        summary: vec![b's'; 3].into(),
    };
    let message = NewMail {
        flags: Flags::none(),
        date: Date {
            seconds: 1,
            zone_minutes: 0,
        },
        size: 1,
        open_end: false,
        blob: BlobName {
            hash: [9; 32],
            upload: [9; 16],
        },
        content: content.encode(),
    };
    MailboxCall::Append {
        session: SessionId(1),
        name: name(mailbox),
        messages: vec![message; count],
        replaces: None,
    }
}

/// An import of one message into INBOX, from an upload of this name.
pub(crate) fn importing(entry: EntryId, upload: [u8; 16]) -> MailboxCall {
    let MailboxCall::Append { name, messages, .. } = appending("INBOX", 1) else {
        unreachable!("it appends");
    };
    let named = |mut new: NewMail| {
        new.blob.upload = upload;
        (entry, new)
    };
    MailboxCall::Import {
        name,
        messages: messages.into_iter().map(named).collect(),
    }
}

impl Pair {
    pub(crate) fn new() -> Pair {
        Pair::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Pair {
        let mut pair = Pair {
            nodes: [Node::new(0, config.clone()), Node::new(1, config)],
            now: Now {
                wall_micros: 1_700_000_000_000_000,
                mono_micros: 1,
            },
            linked: false,
            silent: false,
            forged: false,
            pushed: Default::default(),
            coming: Default::default(),
            wanted: Default::default(),
            late: false,
            nowhere: false,
            unlinked: 0,
            sent: Vec::new(),
            old: false,
            features: FEATURE_CONFIRM,
            requests: 0,
        };
        pair.link();
        pair
    }

    pub(crate) fn link(&mut self) {
        self.linked = true;
        for node in 0..2 {
            let linked = PeerInput::Linked(incarnation(1 - node), self.features);
            self.peer(node, linked);
        }
    }

    pub(crate) fn unlink(&mut self) {
        self.linked = false;
        for node in 0..2 {
            self.nodes[node].inbox.clear();
            self.peer(node, PeerInput::Unlinked(incarnation(1 - node)));
        }
    }

    /// All logs of a node are too long.
    pub(crate) fn give_up(&mut self, node: usize) {
        let logs = self.nodes[node].logs.iter();
        let last = logs.map(|(log, entries)| (*log, entries.last().map_or(0, |of| of.last)));
        let last = last.collect();
        self.peer(node, PeerInput::GiveUp(last));
    }

    pub(crate) fn peer(&mut self, node: usize, input: PeerInput) {
        self.input(node, Input::Peer(input));
    }

    /// Node 1 gets a batch that node 0 did not make, as the next one of node 0, of one operation.
    pub(crate) fn forge(&mut self, account: AccountId, ops: Vec<u8>) {
        self.forge_all([(account, ops)].into());
    }

    /// The same, of one operation for each of these accounts.
    pub(crate) fn forge_all(&mut self, all: Vec<(AccountId, Vec<u8>)>) {
        let partition = self.nodes[0].partition;
        let log = self.nodes[0].logs.get_mut(&(partition, incarnation(0)));
        let log = log.expect("a log");
        let last = log.last().expect("a batch").clone();
        let before = Batch::decode(&last.bytes).expect("a batch");
        let first = before.last() + 1;
        let mut stamp = before.stamp;
        stamp.hlc += u64::from(before.count);
        let count = all.len() as u32;
        let section = |(account, ops): (AccountId, Vec<u8>)| Section {
            subject: account.0,
            counter: before.sections[0].counter,
            count: 1,
            ops,
        };
        let sections = all.into_iter().map(section).collect();
        let batch = Batch {
            first,
            count,
            previous: Hash(*blake3::hash(&last.bytes).as_bytes()),
            stamp,
            sections,
            blobs: Vec::new(),
            ..before
        };
        let bytes = Bytes::from(batch.seal().bytes);
        let entry = bytes.clone();
        log.push(Entry {
            first,
            last: first + u64::from(count) - 1,
            bytes: entry,
        });
        let batches = Batches {
            partition,
            round: 1,
            batches: vec![bytes],
        };
        let frame = Frame::Batches(batches);
        // Its maker knows nothing of it.
        self.linked = false;
        self.forged = true;
        self.peer(1, PeerInput::Frame(incarnation(0), frame));
        self.settle();
    }

    /// Node 0 was removed, and its logs are closed: node 1 is told.
    pub(crate) fn close(&mut self) {
        self.unlink();
        let config = &mut self.nodes[1].config;
        config.in_cluster = true;
        config.peers.clear();
        config.former = [(incarnation(0), 0)].into();
        let former = config.former.clone();
        self.peer(1, PeerInput::Former(former));
        self.peer(1, PeerInput::Members([(incarnation(1), 1)].into()));
    }

    /// Node 1 is new: node 0 was removed before it came, whose logs a third one gives, and says that node 0 had shown all but so many operations.
    pub(crate) fn bring(&mut self, hidden_ops: u64) {
        let donor = incarnation(2);
        self.peer(1, PeerInput::Former([(incarnation(0), 0)].into()));
        let members = [(incarnation(1), 1), (donor, 2)];
        self.peer(1, PeerInput::Members(members.into()));
        self.peer(1, PeerInput::Linked(donor, self.features));
        let partition = self.nodes[0].partition;
        self.peer(1, PeerInput::Open(partition));
        self.settle();
        let log = &self.nodes[0].logs[&(partition, incarnation(0))];
        let last = log.last().map_or(0, |entry| entry.last);
        let told = VisibleVector {
            partition,
            member: incarnation(0),
            vector: [(incarnation(0), last - hidden_ops)].into_iter().collect(),
            except: Vec::new(),
        };
        let batches = Batches {
            partition,
            round: 1,
            batches: log.iter().map(|entry| entry.bytes.clone()).collect(),
        };
        self.peer(1, PeerInput::Frame(donor, Frame::VisibleVector(told)));
        self.peer(1, PeerInput::Frame(donor, Frame::Batches(batches)));
        self.settle();
    }

    /// A start on what was written.
    pub(crate) fn restart(&mut self, node: usize) {
        self.unlink();
        self.nodes[node].owner = PartitionOwner::new(self.nodes[node].config.clone());
        self.link();
        let partitions: BTreeSet<PartitionId> = self.nodes[node]
            .logs
            .keys()
            .map(|(partition, _)| *partition)
            .collect();
        for partition in partitions {
            self.peer(node, PeerInput::Open(partition));
        }
    }

    pub(crate) fn input(&mut self, node: usize, input: Input) {
        let now = self.now;
        self.nodes[node].owner.handle(now, input);
        while let Some(output) = self.nodes[node].owner.poll() {
            let answer = self.carry_out(node, output);
            if let Some(answer) = answer {
                self.nodes[node].owner.handle(now, answer);
            }
        }
    }

    fn carry_out(&mut self, at: usize, output: Output) -> Option<Input> {
        let node = &mut self.nodes[at];
        Some(match output {
            Output::Reply(to, reply) => {
                node.replies.insert(to, reply);
                return None;
            }
            Output::Commit(ticket, commit) if !node.takes(&commit) => {
                node.refused += 1;
                Input::CommitFailed(ticket)
            }
            Output::Commit(ticket, commit) => {
                node.commit(commit);
                if let Some(slow) = &mut node.slow {
                    slow.push_back(ticket);
                    return None;
                }
                Input::Committed(ticket)
            }
            Output::Load { ticket, from, .. } if node.cannot_read(&from) => {
                Input::LoadFailed(ticket, node.read_error())
            }
            Output::Load {
                ticket, from, to, ..
            } => {
                node.loads += 1;
                assert!(node.loads < 20_000, "it reads without end");
                let rows = node.rows.range(from..to);
                let rows = rows.map(|(k, v)| (k.clone(), v.clone())).collect();
                let done = true;
                Input::Loaded { ticket, rows, done }
            }
            Output::Build(ticket, building) => Input::Built(ticket, building.run()),
            Output::AskBirth(account) if node.removed.contains(&account) => {
                Input::AccountOrigin(account, AccountStatus::Removed)
            }
            Output::AskBirth(account) if node.unknown.contains(&account) => {
                Input::AccountOrigin(account, AccountStatus::Unknown)
            }
            Output::AskBirth(account) => {
                let birth = AccountOrigin {
                    created: 7,
                    uid_validity: 7,
                    risen: node.risen,
                };
                Input::AccountOrigin(account, AccountStatus::Living(birth))
            }
            Output::UidValidity(_, risen) => {
                node.risen = risen;
                return None;
            }
            Output::Delivered(ticket) => {
                node.delivered.push((ticket, true));
                return None;
            }
            Output::NotDelivered(ticket) | Output::NotHere(ticket) => {
                node.delivered.push((ticket, false));
                return None;
            }
            Output::Log(Note::Warning(text)) => {
                node.warnings.push(text);
                return None;
            }
            Output::Log(Note::Older(because)) => {
                assert!(self.forged && at == 0, "node {at}: {because}");
                node.warnings.push(because);
                return None;
            }
            Output::Fatal(cause) => panic!("node {at}: {cause}"),
            Output::Peer(output) => Input::Peer(match output {
                PeerOutput::LoadLogs { ticket, .. } => PeerInput::Logs(ticket, node.ends()),
                PeerOutput::ReadLog {
                    ticket,
                    partition,
                    origin,
                    from,
                    bytes_max,
                } => {
                    let log = node.logs.get(&(partition, origin));
                    let mut room = bytes_max;
                    let entries = log.into_iter().flatten().filter(|entry| entry.last >= from);
                    let take = |(index, entry): &(usize, &Entry)| {
                        let fits = *index == 0 || entry.bytes.len() <= room;
                        room = room.saturating_sub(entry.bytes.len());
                        fits
                    };
                    let entries = entries.enumerate().take_while(take);
                    PeerInput::Log(ticket, entries.map(|(_, entry)| entry.clone()).collect())
                }
                PeerOutput::Snapshot { ticket, .. } => PeerInput::Snapshot(ticket, node.fix()),
                PeerOutput::ReadRows {
                    ticket,
                    state,
                    from,
                    to,
                    bytes_max,
                    ..
                } => {
                    if node.cannot_read(&from) {
                        return Some(Input::LoadFailed(ticket, node.read_error()));
                    }
                    let rows = match state {
                        None => &node.rows,
                        Some(state) => match node.fixed.get(&state) {
                            Some(rows) => rows,
                            None => return Some(Input::LoadFailed(ticket, node.read_error())),
                        },
                    };
                    let mut bytes = 0;
                    let mut page = Page {
                        end: true,
                        ..Page::default()
                    };
                    for (key, value) in rows.range(from..to) {
                        if !page.rows.is_empty() && bytes >= bytes_max {
                            page.end = false;
                            break;
                        }
                        bytes += key.len() + value.len();
                        page.rows.push((key.clone(), value.clone()));
                    }
                    PeerInput::Rows(ticket, page)
                }
                PeerOutput::Release(state) => {
                    node.fixed.remove(&state);
                    return None;
                }
                PeerOutput::Wake(partition, peer) => {
                    PeerInput::Ready(partition, Stream::open(peer))
                }
                PeerOutput::Send(peer, frame) => {
                    let partition = frame.partition().unwrap();
                    if let Frame::StateChunk(chunk) = &frame {
                        let largest = &mut self.nodes[1 - at].largest_chunk;
                        *largest = chunk.rows.len().max(*largest);
                    }
                    let dropped = self.silent && matches!(frame, Frame::Announced(_));
                    let mut frame = frame;
                    if at == 0 {
                        if let Frame::Hello(hello) = &mut frame {
                            hello.anew = hello.anew.filter(|_| !self.old);
                        }
                        self.sent.push(frame.clone());
                    }
                    if self.linked && !dropped && peer == incarnation(1 - at) {
                        self.nodes[1 - at].inbox.push_back((incarnation(at), frame));
                    }
                    PeerInput::Ready(partition, Stream::open(peer))
                }
                PeerOutput::Request(blob) => {
                    self.wanted[at].push(blob);
                    if self.nowhere {
                        return None;
                    }
                    PeerInput::Body(blob, self.now.mono_micros)
                }
                PeerOutput::Coming(blob) => {
                    self.coming[at].push(blob);
                    if self.late || self.nowhere {
                        return None;
                    }
                    PeerInput::Body(blob, self.now.mono_micros)
                }
                PeerOutput::Push(_, blobs) => {
                    self.pushed[at].extend(blobs);
                    return None;
                }
                PeerOutput::Unlink(_) => {
                    self.unlinked += 1;
                    assert!(self.unlinked < 100, "streams are ended again and again");
                    return None;
                }
            }),
            _ => return None,
        })
    }

    /// So many frames travel, at most.
    pub(crate) fn travel_some(&mut self, frames: usize) {
        for _ in 0..frames {
            let Some(at) = (0..2).find(|at| !self.nodes[*at].inbox.is_empty()) else {
                return;
            };
            if let Some((peer, frame)) = self.nodes[at].inbox.pop_front() {
                self.peer(at, PeerInput::Frame(peer, frame));
            }
        }
    }

    /// Frames travel until none is left.
    pub(crate) fn travel(&mut self) {
        while let Some(at) = (0..2).find(|at| !self.nodes[*at].inbox.is_empty()) {
            if let Some((peer, frame)) = self.nodes[at].inbox.pop_front() {
                self.peer(at, PeerInput::Frame(peer, frame));
            }
        }
    }

    /// Both know all that the other has.
    pub(crate) fn settle(&mut self) {
        self.travel();
        let end = self.now.mono_micros + QUIET_MICROS;
        loop {
            let due = self.nodes.iter().filter_map(|node| node.owner.deadline());
            let Some(at) = due.min().filter(|at| *at <= end) else {
                break;
            };
            let later = at.max(self.now.mono_micros + 1000) - self.now.mono_micros;
            self.now.mono_micros += later;
            self.now.wall_micros += later;
            for node in 0..2 {
                self.input(node, Input::Time);
            }
            self.travel();
        }
    }

    /// `None`: no answer comes.
    pub(crate) fn try_call(
        &mut self,
        node: usize,
        account: AccountId,
        call: MailboxCall,
    ) -> Option<Reply> {
        let request = self.ask(node, account, call, 0);
        self.answer(node, request)
    }

    /// Asks for something that so many other nodes must have before it is answered.
    pub(crate) fn ask(
        &mut self,
        node: usize,
        account: AccountId,
        call: MailboxCall,
        other_nodes: usize,
    ) -> RequestId {
        self.ask_of(
            node,
            Call::Mailbox {
                account,
                call,
                uid_validity: None,
                other_nodes,
            },
        )
    }

    pub(crate) fn ask_of(&mut self, node: usize, call: Call) -> RequestId {
        self.requests += 1;
        self.now.wall_micros += 1000;
        self.now.mono_micros += 1000;
        let request = RequestId(self.requests);
        self.input(node, Input::Call(request, call));
        request
    }

    /// A call whose UIDs were told under this UIDVALIDITY.
    pub(crate) fn call_under(&mut self, node: usize, call: MailboxCall, told: u32) -> Reply {
        let call = Call::Mailbox {
            account: ANNE,
            call,
            uid_validity: Some(told),
            other_nodes: 0,
        };
        let request = self.ask_of(node, call);
        self.answer(node, request).expect("an answer")
    }

    pub(crate) fn answer(&mut self, node: usize, request: RequestId) -> Option<Reply> {
        self.nodes[node].replies.remove(&request)
    }

    /// Time passes at a node, and no frame travels.
    pub(crate) fn pass(&mut self, node: usize, seconds: u64) {
        self.now.wall_micros += seconds * 1_000_000;
        self.now.mono_micros += seconds * 1_000_000;
        self.input(node, Input::Time);
    }

    pub(crate) fn call(&mut self, node: usize, call: MailboxCall) -> Reply {
        self.try_call(node, ANNE, call).expect("an answer")
    }

    pub(crate) fn create(&mut self, node: usize, mailbox: &str) {
        let call = MailboxCall::Create {
            name: name(mailbox),
            special_use: None,
        };
        let reply = self.call(node, call);
        assert!(!matches!(reply, Reply::Failed(_)), "{reply:?}");
    }

    pub(crate) fn rename(&mut self, node: usize, from: &str, to: &str) {
        let reply = self.call(
            node,
            MailboxCall::Rename {
                from: name(from),
                to: name(to),
                rest: None,
            },
        );
        assert!(!matches!(reply, Reply::Failed(_)), "{reply:?}");
    }

    pub(crate) fn append_for(
        &mut self,
        node: usize,
        account: AccountId,
        mailbox: &str,
        count: usize,
    ) -> Reply {
        let call = appending(mailbox, count);
        self.try_call(node, account, call).expect("an answer")
    }

    pub(crate) fn append(&mut self, node: usize, mailbox: &str, count: usize) {
        let reply = self.append_for(node, ANNE, mailbox, count);
        assert!(matches!(reply, Reply::Appended { .. }), "{reply:?}");
    }

    pub(crate) fn uids_of(
        &mut self,
        node: usize,
        account: AccountId,
        mailbox: &MailboxName,
    ) -> Vec<u32> {
        self.selected(node, account, mailbox).1
    }

    /// UIDVALIDITY, and all UIDs.
    pub(crate) fn selected(
        &mut self,
        node: usize,
        account: AccountId,
        mailbox: &MailboxName,
    ) -> (u32, Vec<u32>) {
        let select = MailboxCall::Select {
            session: SessionId(2),
            name: mailbox.clone(),
            read_only: true,
        };
        match self.try_call(node, account, select) {
            Some(Reply::Selected(selected)) => {
                (selected.status.uid_validity, selected.uids.to_vec())
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn remove(&mut self, node: usize, mailbox: &str) {
        let uids = self.uids(node, mailbox);
        let name = name(mailbox);
        let reply = self.call(node, MailboxCall::Remove { name, uids });
        assert!(matches!(reply, Reply::Done), "{reply:?}");
    }

    /// How many accounts node 1 has stalled.
    pub(crate) fn stalled(&self) -> u64 {
        self.nodes[1].owner.figures(self.now).accounts_stalled
    }

    /// How many parts of batches node 1 holds.
    pub(crate) fn held_parts(&self) -> usize {
        let keys = self.nodes[1].rows.keys();
        keys.filter(|key| key.first() == Some(&b'a') && key.get(17) == Some(&0x90))
            .count()
    }

    pub(crate) fn uids(&mut self, node: usize, mailbox: &str) -> Vec<u32> {
        self.uids_of(node, ANNE, &name(mailbox))
    }
}
