//! Who comes to a node in whose place another was: nothing has changed for him.
//!
//! When a disk was lost all nodes had the same, and nobody asked for anything. So whatever the node that came for it answers must be what any node
//! would have answered before; until it can, it says that it cannot.

use whimbrel_service::api::{AccountId, Asker, Call, Failure, MailboxCall, Reply, Resolution};

use super::{MS, SECOND, World, checks::Picture};

/// In other seeds clients go on at once, at any node.
fn looks(seed: u64) -> bool {
    seed % 4 == 3
}

/// A new node has all within this virtual time.
const GROWING_MICROS_MAX: u64 = 120 * SECOND;

/// To a new node, one in a millisecond.
const MAILS: usize = 40;

impl World {
    /// What the node shows of each account.
    pub(super) fn before_the_loss(
        &mut self,
        node: usize,
    ) -> Result<Vec<(AccountId, Picture)>, String> {
        if !looks(self.plan.seed) {
            return Ok(Vec::new());
        }
        let accounts = self.accounts.clone().into_iter();
        let pictures = accounts.map(|account| Ok((account, self.picture(node, account)?)));
        pictures.collect()
    }

    /// Clients of all accounts come to the new node at once, and come again until they are served.
    pub(super) fn as_before_the_loss(
        &mut self,
        node: usize,
        before: Vec<(AccountId, Picture)>,
    ) -> Result<(), String> {
        if !looks(self.plan.seed) {
            return self.mail_for_a_new_node(node);
        }
        let end = self.now + GROWING_MICROS_MAX;
        for (number, (account, before)) in before.into_iter().enumerate() {
            loop {
                self.run_until(self.now + MS)?;
                if self.now > end {
                    return Err(format!("node {node} is new for ever"));
                }
                if self.members[node].down.is_some() {
                    continue;
                }
                let (local, domain) = (format!("user{number}"), Some("example.org".to_owned()));
                match self.ask_node(
                    node,
                    Call::Resolve {
                        local,
                        domain,
                        asker: Asker::Front,
                    },
                )? {
                    Reply::Failed(Failure::Temporary) | Reply::Resolved(Resolution::Local(_)) => {}
                    other => {
                        return Err(format!(
                            "node {node} is new, and an address leads to {other:?}"
                        ));
                    }
                }
                match self.ask_and_wait(node, account, MailboxCall::list())? {
                    Reply::Failed(Failure::Temporary) => {
                        self.note("cluster: turned away by a new node");
                        continue;
                    }
                    _ => break,
                }
            }
            let now = self.picture(node, account)?;
            if now != before {
                return Err(format!(
                    "node {node}, which came for a lost disk, shows of {account}\n  {now:?}\nthere was\n  {before:?}"
                ));
            }
        }
        Ok(())
    }

    /// Senders come to it at once: others make its deliveries.
    fn mail_for_a_new_node(&mut self, node: usize) -> Result<(), String> {
        let (mut left, end) = (MAILS, self.now + GROWING_MICROS_MAX);
        while left > 0 && self.now < end {
            self.run_until(self.now + MS)?;
            if self.members[node].down.is_none() {
                self.deliver_at(node);
                left -= 1;
            }
        }
        Ok(())
    }
}
