//! Step 1 of REFERENCES: who is whose parent, by the message ids that messages have and name.

use std::collections::BTreeMap;

use whimbrel_mime::message_id::Ids;

use super::forest::{Forest, NONE};

/// What a message id is known by: the first half of its BLAKE3 hash. Of fixed size, and nobody makes two alike.
type Key = u128;

/// Messages and what they name, as nodes of a forest.
#[derive(Default)]
pub(super) struct Links {
    forest: Forest,
    /// The parent of each node.
    above: Vec<u32>,
    /// The message of each node; `NONE`: only its id is known ("create a dummy message").
    message: Vec<u32>,
    ids: BTreeMap<Key, u32>,
    messages: u32,
    /// Dummies that may still be made.
    dummies_left: usize,
    /// Of one message's references so many are heeded, the last ones.
    references_max: usize,
    /// What a message names.
    keys: Vec<Key>,
    named: Vec<u32>,
}

impl Links {
    /// For so many messages.
    pub(super) fn new(messages: usize, references_max: usize) -> Links {
        Links {
            // One a message is what missing parents of real mail come to; more are made only by who makes them up.
            dummies_left: messages + 1024,
            references_max: references_max.max(1),
            ..Links::default()
        }
    }

    /// Adds the next message: the raw values of its Message-ID, References and In-Reply-To.
    pub(super) fn push(&mut self, id: &[u8], references: &[u8], in_reply_to: &[u8]) {
        let node = self.node_of_message(id);
        self.name(references, in_reply_to);
        // (1) (A): "Make the first reference the parent of the second".
        let named = std::mem::take(&mut self.named);
        for pair in named.windows(2) {
            let (parent, child) = (pair[0], pair[1]);
            // "If a message already has a parent, don't change the existing link."
            if self.above[child as usize] == NONE {
                self.link(child, parent);
            }
        }
        // (1) (B): "Create a parent/child link between the last reference (or NIL if there are no references) and the current message.
        // If the current message already has a parent, ... break the current parent/child link before creating the new correct one."
        let parent = named.last().copied().unwrap_or(NONE);
        self.named = named;
        let present = self.above[node as usize];
        if present != parent {
            if present != NONE {
                self.forest.cut(node);
                self.above[node as usize] = NONE;
            }
            if parent != NONE {
                self.link(node, parent);
            }
        }
    }

    /// Puts a root below another node. "Do not create a parent/child link if creating that link would introduce a loop."
    fn link(&mut self, child: u32, parent: u32) {
        if self.forest.root(parent) != child {
            self.forest.link(child, parent);
            self.above[child as usize] = parent;
        }
    }

    /// "If a message does not contain a Message-ID header line, or the Message-ID header line does not contain a valid Message ID, then
    /// assign a unique Message ID to this message. If two or more messages have the same Message ID, then only use that Message ID in the
    /// first (lowest sequence number) message, and assign a unique Message ID to each of the subsequent messages".
    fn node_of_message(&mut self, id: &[u8]) -> u32 {
        let message = self.messages;
        self.messages += 1;
        let key = Ids::new(id).next().map(|id| key(&id));
        if let Some(&node) = key.and_then(|key| self.ids.get(&key))
            && self.message[node as usize] == NONE
        {
            self.message[node as usize] = message;
            self.dummies_left += 1;
            return node;
        }
        let node = self.add(message);
        if let Some(key) = key {
            self.ids.entry(key).or_insert(node);
        }
        node
    }

    fn add(&mut self, message: u32) -> u32 {
        self.above.push(NONE);
        self.message.push(message);
        self.forest.add()
    }

    /// The nodes of the message ids that a message names.
    fn name(&mut self, references: &[u8], in_reply_to: &[u8]) {
        self.keys.clear();
        for id in Ids::new(references) {
            // The last ones count; twice as many are held at the most.
            if self.keys.len() == 2 * self.references_max {
                self.keys.drain(..self.references_max);
            }
            self.keys.push(key(&id));
        }
        let too_many = self.keys.len().saturating_sub(self.references_max);
        self.keys.drain(..too_many);
        if self.keys.is_empty() {
            // "then use the first (if any) valid Message ID found in the In-Reply-To header line as the only reference".
            self.keys
                .extend(Ids::new(in_reply_to).next().map(|id| key(&id)));
        }
        self.named.clear();
        for at in 0..self.keys.len() {
            let key = self.keys[at];
            let node = match self.ids.get(&key) {
                Some(&node) => node,
                // As if the header had been truncated.
                None if self.dummies_left == 0 => continue,
                None => {
                    self.dummies_left -= 1;
                    let node = self.add(NONE);
                    self.ids.insert(key, node);
                    node
                }
            };
            self.named.push(node);
        }
    }

    /// The parent of each node, and the message of each node.
    pub(super) fn into_nodes(self) -> (Vec<u32>, Vec<u32>) {
        (self.above, self.message)
    }
}

pub(super) fn key(id: &[u8]) -> Key {
    let hash = blake3::hash(id);
    let (half, _) = hash
        .as_bytes()
        .split_first_chunk::<16>()
        .expect("a hash has 32 bytes");
    Key::from_be_bytes(*half)
}
