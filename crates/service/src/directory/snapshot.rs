//! The directory's state in place of its logs (docs/replication.md, "State in place of a log").
//!
//! What comes is kept beside the own rows, and in memory as a second directory. When the last row is here a small commit takes position and logs over
//! and says that the two are to be joined; the rows that the join changes are handed out behind it at once, before anything else is done to the
//! directory. So after a crash the join is made again, with the same vectors and of the same two sides, and nothing that came later has seen only
//! half of it.

use std::collections::BTreeSet;

use bytes::Bytes;
use whimbrel_crdt::mutants::broken;
use whimbrel_directory::Directory;
use whimbrel_mailbox::AccountId;
use whimbrel_storage::{Commit, Mutation, Room};

use super::{DirectoryOwner, Phase, Running, remote_batches::removed};
use crate::{
    api::Ended,
    log::{self, Log},
    machine::{Note, Now, Output, Ticket},
    peers::{
        OnDurable, SnapshotProgress, StateWork,
        log_retention::GivenUp,
        singleton_snapshot::{may_travel, pages},
        snapshot::{Joined, decode_rows},
        taking::{Takes, joining_row, take},
    },
};

impl DirectoryOwner {
    /// Logs are too long. What is cut for it goes now: perhaps nothing else is written for long.
    pub(super) fn give_up_logs(&mut self, now: Now, logs: &GivenUp) {
        let ticket = self.ticket();
        let Phase::Running(running) = &mut self.state else {
            return;
        };
        running.shipping.give_up_logs(now, logs);
        self.ship(now);
        let Phase::Running(running) = &mut self.state else {
            return;
        };
        if running.log.cuts() && !running.failed {
            let mut commit = running.log.commit();
            commit.room = Room::Frees;
            self.hand_out(ticket, commit, None);
        }
    }

    /// Does a piece of work that is of a state.
    pub(super) fn work_on_state(&mut self, ticket: Ticket, work: StateWork) {
        let Phase::Running(running) = &mut self.state else {
            return;
        };
        let mut taking = Taking {
            running,
            gone: Vec::new(),
        };
        let taken = match take(&mut taking, ticket, work) {
            Ok(Some(taken)) => taken,
            Ok(None) => return,
            Err(cause) => {
                let text = format!("rows of a state of the directory cannot be kept: {cause}");
                return self.out.push_back(Output::Log(Note::Warning(text)));
            }
        };
        let gone = taking.gone;
        self.hand_out(ticket, taken.commit, taken.then);
        if let Some(joined) = taken.joined {
            // Position, clock and logs are those of both from now on, and then the rows.
            self.snapshots_received += 1;
            self.join_rows(&joined);
        }
        self.hand_out_pages(gone);
    }

    /// The directory becomes the join of what is here and what came. All of it is handed out before anything else is.
    pub(super) fn join_rows(&mut self, joined: &Joined) {
        let Phase::Running(running) = &mut self.state else {
            return;
        };
        let theirs = std::mem::take(&mut running.theirs);
        let before = running.directory.clone();
        if broken("directory-replaced-by-state") {
            running.directory = theirs;
        } else {
            let directory = &mut running.directory;
            directory.join(&joined.mine, &theirs, &joined.theirs);
        }
        let after = &running.directory;
        let rows: BTreeSet<_> = before.rows().chain(after.rows()).collect();
        let changed = rows.into_iter().filter_map(|row| {
            let value = after.row(&row);
            let differs = value != before.row(&row) && !broken("joined-rows-not-written");
            let key = row.key().into();
            differs.then_some(match value {
                Some(value) => Mutation::Put {
                    key,
                    value: value.into(),
                },
                None => Mutation::Delete { key },
            })
        });
        let is_new = |account: &_| !before.was_removed(account);
        let gone = after.removed().filter(is_new).map(AccountId);
        let mut follows: Vec<Output> = gone.flat_map(removed).collect();
        // Whether sessions were to stay is said in logs alone.
        let renewed = after.accounts().filter(|(key, entry, _)| {
            let before = before.account(key);
            before.is_some_and(|before| before.credential.stamp != entry.credential.stamp)
        });
        follows.extend(
            renewed.map(|(key, ..)| Output::EndSessions(AccountId(key), Ended::PasswordChanged)),
        );
        follows.extend(running.quotas());
        let mut pages = pages(changed);
        let done = Mutation::Delete {
            key: log::JOINING_KEY.into(),
        };
        // The last one says that it is done.
        if let Some(page) = pages.last_mut() {
            page.push(done);
        }
        let gone = running.coming.joined(joined.state);
        let last = self.hand_out_pages_of(pages);
        if let (Some(last), Phase::Running(running)) = (last, &mut self.state)
            && !follows.is_empty()
        {
            running.follows.insert(last, follows);
        }
        // Whose removals came is not known.
        self.share_out_all(None);
        self.hand_out_pages(gone);
    }

    fn hand_out(&mut self, ticket: Ticket, commit: Commit, then: Option<OnDurable>) {
        if let Phase::Running(running) = &mut self.state {
            running.gate.submitted(ticket);
            running.shipping.committing(ticket, then);
            self.out.push_back(Output::Commit(ticket, commit));
        }
    }

    /// Removes rows that are of no use.
    pub(super) fn hand_out_pages(&mut self, gone: Vec<Mutation>) {
        if !gone.is_empty() {
            self.hand_out_pages_of(pages(gone));
        }
    }

    /// Gives the ticket of the last commit.
    fn hand_out_pages_of(&mut self, pages: Vec<Vec<Mutation>>) -> Option<Ticket> {
        let mut last = None;
        for page in pages {
            let ticket = self.ticket();
            let Phase::Running(running) = &mut self.state else {
                return None;
            };
            let mut commit = running.log.commit();
            if page.iter().all(|of| matches!(of, Mutation::Delete { .. })) {
                commit.room = Room::Frees;
            }
            commit.mutations.extend(page);
            self.hand_out(ticket, commit, None);
            last = Some(ticket);
        }
        last
    }
}

/// The directory takes a state.
struct Taking<'a> {
    running: &'a mut Running,
    /// Rows that are of no use, and go behind the commit.
    gone: Vec<Mutation>,
}

impl Takes for Taking<'_> {
    fn log(&mut self) -> &mut Log {
        &mut self.running.log
    }

    fn is_taking(&self) -> bool {
        self.running.coming.held().is_some()
    }

    fn begin(&mut self, held: SnapshotProgress, _: Ticket, commit: &mut Commit) {
        self.gone = self.running.coming.begin(held, commit);
        self.running.theirs = Directory::default();
    }

    fn keep(&mut self, last: Vec<u8>, rows: &Bytes) -> Result<Vec<Mutation>, String> {
        let rows = decode_rows(rows)?;
        for (key, value) in &rows {
            if !may_travel(key) {
                return Err("a row that is not the directory's".into());
            }
            let loaded = self.running.theirs.load(key, value);
            loaded.map_err(|error| error.to_string())?;
        }
        self.running.coming.keep(&last, rows)
    }

    fn forget(&mut self, _: Ticket, commit: &mut Commit) {
        self.gone = self.running.coming.end(commit);
        self.running.theirs = Directory::default();
    }

    fn take_over(&mut self, _: &SnapshotProgress, joined: Joined, _: Ticket, commit: &mut Commit) {
        self.gone = self.running.coming.end(commit);
        commit.mutations.push(joining_row(&joined));
    }
}
