//! Steps 2 to 6 of REFERENCES, and all of ORDEREDSUBJECT: from parents to threads in their order, slice by slice.
//!
//! Entries are the messages, by their place among those gathered, and behind them the dummies that are left. All sets of siblings get
//! their order from one sort of all messages by sent date: whoever goes through them in that order and puts each at the end of its parent's
//! children has sorted children before he knows of them; a dummy stands where its first child would.

use std::collections::BTreeMap;

use super::{
    super::order::{MergeSort, SLICE},
    forest::NONE,
};

/// What is known of the messages.
#[derive(Default)]
pub(super) struct Messages {
    /// When they were sent, in seconds since 1970.
    pub(super) sent: Vec<i64>,
    /// What their base subjects are known by; 0: the base subject is empty.
    pub(super) subjects: Vec<u128>,
    /// Whether they are replies or forwards.
    pub(super) replies: Vec<bool>,
}

/// The threads.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Entries below this are messages, the others are dummies.
    pub(super) messages: u32,
    /// The first of the children of the root.
    pub(super) first: u32,
    /// The first child of each entry.
    pub(super) first_child: Vec<u32>,
    /// The next sibling of each entry.
    pub(super) next: Vec<u32>,
}

/// Threads that are being made.
pub(super) struct Builder {
    messages: Messages,
    /// The parent of each entry: a message, a dummy, or `NONE`.
    up: Vec<u32>,
    /// The first child of a dummy, in the order of the messages' dates; by entry less the number of messages.
    first_of_dummy: Vec<u32>,
    /// The dummy that has taken over the children of this one; likewise.
    merged: Vec<u32>,
    order: Vec<u32>,
    /// Children of the root, in order.
    roots: Vec<u32>,
    /// One entry a base subject: the subject table, or the first message of each thread.
    table: BTreeMap<u128, u32>,
    tree: Tree,
    last_child: Vec<u32>,
    stage: Stage,
    /// How far the stage has come.
    at: usize,
}

enum Stage {
    Prune(Prune),
    Sort(MergeSort, bool),
    BySubject,
    Roots,
    Fill,
    Merge,
    Children,
}

/// Step 3: dummies are taken out.
struct Prune {
    above: Vec<u32>,
    message: Vec<u32>,
    /// The nearest message above each node and including it; if there is none, the topmost dummy. `NONE`: not known yet.
    nearest: Vec<u32>,
    /// Children of a topmost dummy.
    children: Vec<u32>,
    /// The node of each message.
    nodes: Vec<u32>,
}

impl Builder {
    /// REFERENCES, from the parent and the message of each node.
    pub(super) fn references(messages: Messages, above: Vec<u32>, message: Vec<u32>) -> Builder {
        let count = messages.sent.len();
        let mut nodes = vec![NONE; count];
        for (node, &message) in message.iter().enumerate() {
            if message != NONE {
                nodes[message as usize] = node as u32;
            }
        }
        let prune = Prune {
            nearest: vec![NONE; above.len()],
            children: vec![0; above.len()],
            above,
            message,
            nodes,
        };
        Builder::new(messages, Stage::Prune(prune))
    }

    /// ORDEREDSUBJECT.
    pub(super) fn ordered_subject(messages: Messages) -> Builder {
        let sort = MergeSort::new(messages.sent.len() as u32);
        Builder::new(messages, Stage::Sort(sort, true))
    }

    fn new(messages: Messages, stage: Stage) -> Builder {
        let count = messages.sent.len();
        Builder {
            up: vec![NONE; count],
            first_of_dummy: Vec::new(),
            merged: Vec::new(),
            order: Vec::new(),
            roots: Vec::new(),
            table: BTreeMap::new(),
            tree: Tree {
                messages: count as u32,
                first: NONE,
                ..Tree::default()
            },
            last_child: Vec::new(),
            messages,
            stage,
            at: 0,
        }
    }

    /// Goes on; gives the threads when they are made.
    pub(super) fn step(&mut self) -> Option<Tree> {
        let stage = std::mem::replace(&mut self.stage, Stage::Children);
        self.stage = match stage {
            Stage::Prune(mut prune) => {
                if self.prune(&mut prune) {
                    Stage::Prune(prune)
                } else {
                    Stage::Sort(MergeSort::new(self.tree.messages), false)
                }
            }
            Stage::Sort(mut sort, by_subject) => {
                let sent = &self.messages.sent;
                // "When comparing two sent dates that match exactly, the order in which the two messages appear in the mailbox is used".
                match sort.step(|a, b| sent[a as usize].cmp(&sent[b as usize])) {
                    None => Stage::Sort(sort, by_subject),
                    Some(order) => {
                        self.order = order;
                        if by_subject {
                            Stage::BySubject
                        } else {
                            Stage::Roots
                        }
                    }
                }
            }
            Stage::BySubject => {
                self.go_through(Stage::BySubject, Stage::Children, Builder::by_subject)
            }
            Stage::Roots => self.go_through(Stage::Roots, Stage::Fill, Builder::root),
            Stage::Fill => self.go_through(Stage::Fill, Stage::Merge, Builder::fill),
            Stage::Merge => self.go_through(Stage::Merge, Stage::Children, Builder::merge),
            Stage::Children => {
                if self.at == 0 {
                    self.table = BTreeMap::new();
                    let entries = self.up.len();
                    self.tree.first_child = vec![NONE; entries];
                    self.tree.next = vec![NONE; entries];
                    self.last_child = vec![NONE; entries + 1];
                }
                let end = (self.at + SLICE).min(self.order.len());
                (self.at..end).for_each(|at| self.child(self.order[at]));
                self.at = end;
                if end == self.order.len() {
                    return Some(std::mem::take(&mut self.tree));
                }
                Stage::Children
            }
        };
        None
    }

    /// Does something with the next messages in the order of their dates, or the next children of the root.
    fn go_through(&mut self, same: Stage, next: Stage, deed: fn(&mut Builder, u32)) -> Stage {
        let roots = matches!(same, Stage::Fill | Stage::Merge);
        let list = if roots { &self.roots } else { &self.order };
        let len = list.len();
        let end = (self.at + SLICE).min(len);
        for at in self.at..end {
            let entry = if roots {
                self.roots[at]
            } else {
                self.order[at]
            };
            deed(self, entry);
        }
        if end == len {
            self.at = 0;
            next
        } else {
            self.at = end;
            same
        }
    }

    fn is_dummy(&self, entry: u32) -> bool {
        entry >= self.tree.messages
    }

    fn add_dummy(&mut self, first: u32) -> u32 {
        let dummy = self.up.len() as u32;
        self.up.push(NONE);
        self.first_of_dummy.push(first);
        self.merged.push(NONE);
        dummy
    }

    fn dummy(&self, entry: u32) -> usize {
        (entry - self.tree.messages) as usize
    }

    /// Finds the parents of the next messages; says whether more are to come. Of a tree without messages nothing is left, dummies
    /// within a tree give their children to what is above them, and one at the top is left if it has several ("Do not promote the
    /// children if doing so would make them children of the root, unless there is only one child").
    fn prune(&mut self, prune: &mut Prune) -> bool {
        let count = prune.nodes.len();
        // First the nearest ones, then what became of the topmost dummies.
        let second = self.at >= count;
        let end = (self.at + SLICE).min(if second { 2 * count } else { count });
        for at in self.at..end {
            if !second {
                let above = prune.above[prune.nodes[at] as usize];
                if above == NONE {
                    continue;
                }
                let nearest = prune.nearest(above);
                match prune.message[nearest as usize] {
                    NONE => {
                        prune.children[nearest as usize] += 1;
                        // For now the node.
                        self.up[at] = nearest;
                    }
                    message => self.up[at] = message,
                }
                continue;
            }
            let at = at - count;
            let above = prune.above[prune.nodes[at] as usize];
            if above == NONE {
                continue;
            }
            let nearest = prune.nearest(above) as usize;
            if prune.message[nearest] != NONE {
                continue;
            }
            self.up[at] = if prune.children[nearest] < 2 {
                NONE
            } else {
                // The node is a dummy that is left: `above` is not needed any more where it was a root, so that its entry stands there.
                if prune.above[nearest] == NONE {
                    prune.above[nearest] = self.add_dummy(NONE);
                }
                prune.above[nearest]
            };
        }
        self.at = end;
        if end == 2 * count {
            self.at = 0;
            return false;
        }
        true
    }

    /// ORDEREDSUBJECT: "The second message of a thread is the child of the first message, and subsequent messages of the thread are
    /// siblings of the second message".
    fn by_subject(&mut self, message: u32) {
        let subject = self.messages.subjects[message as usize];
        let first = *self.table.entry(subject).or_insert(message);
        if first != message {
            self.up[message as usize] = first;
        }
    }

    /// Steps 2 and 4: the children of the root, in the order of their dates.
    fn root(&mut self, message: u32) {
        match self.up[message as usize] {
            NONE => self.roots.push(message),
            up if self.is_dummy(up) => {
                let dummy = self.dummy(up);
                if self.first_of_dummy[dummy] == NONE {
                    self.first_of_dummy[dummy] = message;
                    self.roots.push(up);
                }
            }
            _ => {}
        }
    }

    /// "by using the base subject from either the current message or its first child if the current message is a dummy"; `None` if it
    /// is empty.
    fn thread_subject(&self, root: u32) -> Option<u128> {
        let message = if self.is_dummy(root) {
            self.first_of_dummy[self.dummy(root)]
        } else {
            root
        };
        Some(self.messages.subjects[message as usize]).filter(|&subject| subject != 0)
    }

    fn is_reply(&self, root: u32) -> bool {
        !self.is_dummy(root) && self.messages.replies[root as usize]
    }

    /// Step 5 (B): the subject table.
    fn fill(&mut self, root: u32) {
        let Some(subject) = self.thread_subject(root) else {
            return;
        };
        match self.table.get(&subject) {
            None => drop(self.table.insert(subject, root)),
            Some(&other) => {
                let replaces =
                    self.is_dummy(root) || (self.is_reply(other) && !self.is_reply(root));
                if !self.is_dummy(other) && replaces {
                    self.table.insert(subject, root);
                }
            }
        }
    }

    /// Step 5 (C): threads of one subject become one.
    fn merge(&mut self, root: u32) {
        // By now it may hang on a dummy that was made here.
        if self.up[root as usize] != NONE {
            return;
        }
        let Some(subject) = self.thread_subject(root) else {
            return;
        };
        let other = match self.table.get(&subject) {
            Some(&other) if other != root => other,
            _ => return,
        };
        match (self.is_dummy(other), self.is_dummy(root)) {
            (true, true) => {
                let dummy = self.dummy(root);
                self.merged[dummy] = other;
            }
            (true, false) => self.up[root as usize] = other,
            (false, false) if self.is_reply(root) && !self.is_reply(other) => {
                self.up[root as usize] = other;
            }
            (false, true) => debug_assert!(false, "a dummy goes before a message in the table"),
            (false, false) => {
                // Its first child does not matter: no subject is looked at twice.
                let dummy = self.add_dummy(root);
                self.up[root as usize] = dummy;
                self.up[other as usize] = dummy;
                self.table.insert(subject, dummy);
            }
        }
    }

    /// Step 6: puts a message at the end of its parent's children; messages come in the order of their dates.
    fn child(&mut self, message: u32) {
        let mut up = self.up[message as usize];
        if up != NONE && self.is_dummy(up) {
            let merged = self.merged[self.dummy(up)];
            if merged != NONE {
                up = merged;
            }
            if self.tree.first_child[up as usize] == NONE {
                self.append(NONE, up);
            }
        }
        self.append(up, message);
    }

    fn append(&mut self, parent: u32, entry: u32) {
        let (parent, slot) = match parent {
            NONE => (None, self.up.len()),
            parent => (Some(parent as usize), parent as usize),
        };
        let last = std::mem::replace(&mut self.last_child[slot], entry);
        match (last, parent) {
            (NONE, None) => self.tree.first = entry,
            (NONE, Some(parent)) => self.tree.first_child[parent] = entry,
            (last, _) => self.tree.next[last as usize] = entry,
        }
    }
}

impl Prune {
    /// The nearest message from `node` up, or the topmost dummy. What was walked over once is not walked over again.
    fn nearest(&mut self, node: u32) -> u32 {
        let mut at = node;
        let found = loop {
            let known = self.nearest[at as usize];
            if known != NONE {
                break known;
            }
            if self.message[at as usize] != NONE || self.above[at as usize] == NONE {
                break at;
            }
            at = self.above[at as usize];
        };
        let mut at = node;
        while self.nearest[at as usize] == NONE {
            self.nearest[at as usize] = found;
            if at == found {
                break;
            }
            at = self.above[at as usize];
        }
        found
    }
}
