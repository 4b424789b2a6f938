//! A production session at a node, as `server`'s driver runs it, with virtual time for its clock and the node for its service and store.
//!
//! What it sends is on its way at once; what the client sends lies before it until it wants that. Its uploads end with it.

use std::collections::{BTreeSet, VecDeque};

use whimbrel_frontend::session::{Action, Session};
use whimbrel_service::{
    api::{AccountId, Call, Event, Failure, MailboxCall, Reply, Row, SessionId, UploadId},
    machine::RequestId,
};

use super::{
    super::{Uids, World, losses::Acked},
    Happening,
};

/// One connection. Its number is never used again.
pub(in super::super) struct Connection {
    pub(super) protocol_client: usize,
    /// Where the session is.
    pub(super) node: usize,
    /// The node that the client has connected to, if that is another one.
    pub(super) via: Option<usize>,
    /// Whoever logs in is brought elsewhere.
    pub(super) relays: bool,
    pub(super) session: Box<dyn Session>,
    pub(super) id: SessionId,
    /// One way, at most.
    pub(super) latency_micros: u64,
    /// What has come and is not wanted yet.
    pub(super) inbox: VecDeque<Vec<u8>>,
    /// The client has closed its side; the session knows.
    at_end: bool,
    knows_end: bool,
    call: Option<Asked>,
    timer: Option<u64>,
    /// When the last bytes arrive: there, and at the client.
    pub(super) there_at: u64,
    pub(super) back_at: u64,
    uploads: BTreeSet<UploadId>,
    /// The mailbox that its session looks at, as it was told by the node.
    watches: Option<(String, Uids)>,
}

/// A call under way.
struct Asked {
    request: RequestId,
    at: u64,
    what: What,
    /// Whether it is there to change something.
    writes: bool,
}

/// What of a call has to be known when it is answered.
enum What {
    Select(String),
    Changes,
    Append,
    Expunge,
    Other,
}

impl Connection {
    pub(super) fn new(
        protocol_client: usize,
        node: usize,
        session: Box<dyn Session>,
        id: SessionId,
        latency_micros: u64,
    ) -> Connection {
        Connection {
            protocol_client,
            node,
            via: None,
            relays: false,
            session,
            id,
            latency_micros,
            inbox: VecDeque::new(),
            at_end: false,
            knows_end: false,
            call: None,
            timer: None,
            there_at: 0,
            back_at: 0,
            uploads: BTreeSet::new(),
            watches: None,
        }
    }

    /// Whether something is asked of the node.
    pub(super) fn calls(&self) -> bool {
        self.call.is_some()
    }
}

impl World {
    /// Bytes are on their way to the client, in their order.
    pub(super) fn protocol_client_sends_back(
        &mut self,
        number: u64,
        connection: &mut Connection,
        bytes: Vec<u8>,
    ) {
        let latency = connection.latency_micros;
        let latency = self.protocol_clients.rng.between(latency / 4, latency);
        connection.back_at = (self.now + latency).max(connection.back_at + 1);
        let at = connection.back_at;
        self.network
            .at(at, super::event(Happening::Back(number, bytes)));
    }

    /// The client has sent these, which come in pieces.
    pub(super) fn protocol_client_sends(&mut self, number: u64, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = match self.protocol_clients.rng.one_in(3) {
                true => self.protocol_clients.rng.between(1, rest.len() as u64),
                false => rest.len() as u64,
            };
            let (piece, more) = rest.split_at(usize::try_from(len).unwrap_or(rest.len()));
            let Some(connection) = self.protocol_clients.connections.get_mut(&number) else {
                return;
            };
            let latency = connection.latency_micros;
            let latency = self.protocol_clients.rng.between(latency / 4, latency);
            connection.there_at = (self.now + latency).max(connection.there_at + 1);
            let at = connection.there_at;
            let there = Happening::There(number, piece.to_vec());
            self.network.at(at, super::event(there));
            rest = more;
        }
    }

    /// Something has happened to a session, which goes on until it waits.
    pub(super) fn with_session(
        &mut self,
        number: u64,
        what: impl FnOnce(&mut World, &mut Connection) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(mut connection) = self.protocol_clients.connections.remove(&number) else {
            return Ok(());
        };
        self.bring(connection.node);
        what(self, &mut connection)?;
        if self.protocol_client_goes_on(number, &mut connection)? {
            let at = connection.back_at.max(self.now) + connection.latency_micros;
            self.network.at(at, super::event(Happening::Ended(number)));
            self.protocol_client_hangs_up(connection);
        } else {
            self.protocol_clients.connections.insert(number, connection);
        }
        Ok(())
    }

    pub(super) fn protocol_client_arrived(
        &mut self,
        number: u64,
        bytes: Vec<u8>,
    ) -> Result<(), String> {
        self.with_session(number, |_, connection| {
            connection.inbox.push_back(bytes);
            Ok(())
        })
    }

    pub(super) fn protocol_client_closed(&mut self, number: u64) -> Result<(), String> {
        self.with_session(number, |_, connection| {
            connection.at_end = true;
            Ok(())
        })
    }

    pub(super) fn protocol_client_rings(&mut self, number: u64) -> Result<(), String> {
        self.with_session(number, |world, connection| {
            connection.timer = None;
            let now = world.members[connection.node].node.now();
            let deadline = connection.session.deadline();
            if deadline.is_some_and(|deadline| deadline <= now.mono_micros) {
                connection.session.on_time(now);
            }
            Ok(())
        })
    }

    /// A node tells a session that something has changed; whether there is such a session.
    pub(in super::super) fn protocol_client_notified(
        &mut self,
        session: SessionId,
        event: Event,
    ) -> Result<(), String> {
        let all = self.protocol_clients.connections.iter();
        let mut of = all.filter(|(_, connection)| connection.id == session);
        let Some(number) = of.next().map(|(number, _)| *number) else {
            return Ok(());
        };
        self.with_session(number, |world, connection| {
            let now = world.members[connection.node].node.now();
            connection.session.on_event(now, event);
            Ok(())
        })
    }

    /// A node has answered a session.
    pub(in super::super) fn protocol_client_answered(
        &mut self,
        request: RequestId,
        reply: Reply,
    ) -> Result<(), String> {
        let Some(number) = self.protocol_clients.calls.remove(&request) else {
            return Ok(());
        };
        self.with_session(number, |world, connection| {
            let Some(asked) = connection.call.take_if(|asked| asked.request == request) else {
                return Ok(());
            };
            world.protocol_client_heard(connection, &asked, &reply)?;
            let now = world.members[connection.node].node.now();
            if connection.relays && matches!(reply, Reply::Authenticated { .. }) {
                connection.session.relay();
            }
            connection.session.on_reply(now, reply);
            Ok(())
        })
    }

    /// Carries out what a session wants; `true`: it wants to close.
    fn protocol_client_goes_on(
        &mut self,
        number: u64,
        connection: &mut Connection,
    ) -> Result<bool, String> {
        loop {
            let now = self.members[connection.node].node.now();
            match connection.session.poll(now) {
                Some(Action::Send(bytes)) => {
                    self.protocol_client_sends_back(number, connection, bytes)
                }
                Some(Action::Call(call)) => self.protocol_client_calls(number, connection, call)?,
                Some(Action::Yield | Action::LoggedOut | Action::Note(_)) => {}
                Some(Action::Close) => return Ok(true),
                Some(Action::HandOver(handover)) => {
                    return Ok(!self.protocol_client_hands_over(number, connection, *handover));
                }
                Some(other) => return Err(format!("a session wants {other:?}")),
                None if connection.call.is_none() && connection.session.wants_input() => {
                    if let Some(bytes) = connection.inbox.pop_front() {
                        connection.session.on_bytes(now, &bytes);
                    } else if connection.at_end && !connection.knows_end {
                        connection.knows_end = true;
                        connection.session.on_eof(now);
                    } else {
                        break;
                    }
                }
                None => break,
            }
        }
        let deadline = connection.session.deadline();
        if let Some(deadline) = deadline
            && connection.timer.is_none_or(|set| deadline < set)
        {
            connection.timer = Some(deadline);
            let at = deadline.max(self.now);
            self.network.at(at, super::event(Happening::Rings(number)));
        }
        Ok(false)
    }

    fn protocol_client_calls(
        &mut self,
        number: u64,
        connection: &mut Connection,
        call: Call,
    ) -> Result<(), String> {
        if connection.call.is_some() {
            return Err("a session has one call under way".into());
        }
        let request = self.request();
        let writes = matches!(&call, Call::Mailbox { call, .. } if call.writes());
        let what = match &call {
            Call::Mailbox { account, call, .. } => {
                let node = connection.node;
                self.removals
                    .asked(request, node, *account, call, &self.looks);
                match call {
                    MailboxCall::Select { name, .. } => What::Select(name.as_str().to_owned()),
                    MailboxCall::Changes { .. } => What::Changes,
                    MailboxCall::Append { .. } => What::Append,
                    MailboxCall::Expunge { .. } => What::Expunge,
                    MailboxCall::Unselect { .. } => {
                        connection.watches = None;
                        What::Other
                    }
                    _ => What::Other,
                }
            }
            _ => What::Other,
        };
        if let Call::BlobAbort { upload } = &call {
            connection.uploads.remove(upload);
        }
        self.protocol_clients.calls.insert(request, number);
        connection.call = Some(Asked {
            request,
            at: self.now,
            what,
            writes,
        });
        self.members[connection.node].node.call(request, call);
        Ok(())
    }

    /// What clients of the service are told is held against what they know, whoever they are.
    fn protocol_client_heard(
        &mut self,
        connection: &mut Connection,
        asked: &Asked,
        reply: &Reply,
    ) -> Result<(), String> {
        let (node, account) = (
            connection.node,
            self.protocol_clients.protocol_clients[connection.protocol_client].account,
        );
        self.removals.refused(asked.request, reply);
        let writes = asked.writes && !matches!(reply, Reply::Failed(_));
        if writes && self.must_refuse(node, asked.at) {
            return Err(format!(
                "node {node} writes though its clock is far from all others"
            ));
        }
        match (&asked.what, reply) {
            (_, Reply::Upload(upload)) => _ = connection.uploads.insert(*upload),
            (What::Append, Reply::Appended { .. }) => connection.uploads.clear(),
            (What::Append, Reply::Failed(Failure::NotConfirmed)) => {
                if let Some(body) =
                    self.protocol_clients.protocol_clients[connection.protocol_client].sends
                {
                    self.note("cluster: not confirmed");
                    self.kept.refused(body);
                }
            }
            (What::Expunge, reply) if !self.members[node].doubtful => {
                let gone = self.removals.answered(node, account, reply, &self.looks);
                for id in gone {
                    self.acked(node, account, Acked::Expunged(id));
                }
            }
            (What::Select(name), Reply::Selected(selected)) => {
                let uids: Uids = selected.uids.iter().collect();
                let status = &selected.status;
                self.looks.validity(account, status.uid_validity)?;
                self.looks
                    .looked(node, account, name, &uids, status.uid_next)?;
                connection.watches = Some((name.clone(), uids));
            }
            (What::Changes, Reply::Changes(changes)) => {
                self.protocol_client_rows(node, account, &changes.changed)?;
                let Some((name, uids)) = &mut connection.watches else {
                    return Ok(());
                };
                uids.retain(|uid| !changes.vanished.contains(uid));
                if let Some(present) = &changes.present {
                    uids.retain(|uid| present.contains(uid));
                    uids.extend(present);
                }
                uids.extend(&changes.arrived);
                if changes.id.is_some() && !changes.more && changes.held_back.is_none() {
                    self.looks
                        .looked(node, account, name, uids, changes.uid_next)?;
                }
            }
            (_, Reply::Rows(rows)) => {
                self.protocol_client_rows(node, account, rows)?;
                for row in rows {
                    self.holds(node, account, row)?;
                }
            }
            (_, Reply::Stored { rows, .. } | Reply::Flagged { rows, .. }) => {
                self.protocol_client_rows(node, account, rows)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn protocol_client_rows(
        &mut self,
        node: usize,
        account: AccountId,
        rows: &[Row],
    ) -> Result<(), String> {
        for row in rows {
            self.row_seen(account, row)
                .map_err(|cause| format!("{cause}, at {node}"))?;
            self.removals.shown(row);
        }
        Ok(())
    }

    /// A session has ended: its owner and its uploads are let go.
    pub(super) fn protocol_client_hangs_up(&mut self, connection: Connection) {
        let Connection {
            node,
            id,
            call,
            uploads,
            ..
        } = connection;
        let names = matches!(
            call,
            Some(Asked {
                what: What::Append,
                ..
            })
        );
        if let Some(asked) = call {
            // Whatever is answered, nobody listens.
            self.protocol_clients.calls.insert(asked.request, 0);
        }
        self.members[node].node.hangup(id);
        // What a commit under way may name stays.
        for upload in uploads.into_iter().filter(|_| !names) {
            let request = self.request();
            self.protocol_clients.calls.insert(request, 0);
            self.members[node]
                .node
                .call(request, Call::BlobAbort { upload });
        }
    }

    /// Connections to a node end with it; what it has sent may arrive still.
    pub(in super::super) fn lose_protocol_clients_of(&mut self, node: usize) {
        let all = self.protocol_clients.connections.iter();
        let gone = all.filter(|(_, of)| of.node == node || of.via == Some(node));
        let gone: Vec<u64> = gone.map(|(number, _)| *number).collect();
        for number in gone {
            let Some(connection) = self.protocol_clients.connections.remove(&number) else {
                continue;
            };
            if connection.node != node {
                // The node that the client came to is dead, and the one that served it hears of it.
                self.protocol_client_relay_ends(number, connection);
                continue;
            }
            if let Some(asked) = connection.call {
                self.protocol_clients.calls.remove(&asked.request);
            }
            let arrives = self.protocol_clients.rng.one_in(2);
            let at = match arrives {
                true => connection.back_at.max(self.now) + connection.latency_micros,
                false => self.now + 1,
            };
            self.network.at(at, super::event(Happening::Ended(number)));
        }
    }
}
