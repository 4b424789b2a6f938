//! Threads against the algorithm of RFC 5256 as it is written, with recursion and walking; and what hostile mail does to them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    forest::NONE,
    links::Links,
    tree::{Builder, Messages, Tree},
};

#[derive(Clone, Debug)]
struct Mail {
    id: Option<u8>,
    references: Vec<u8>,
    /// 0: empty.
    subject: u8,
    is_reply: bool,
    sent: i64,
}

fn mail() -> impl Strategy<Value = Mail> {
    (
        prop::option::weighted(0.9, 0u8..12),
        prop::collection::vec(0u8..14, 0..5),
        0u8..4,
        any::<bool>(),
        0i64..6,
    )
        .prop_map(|(id, references, subject, is_reply, sent)| Mail {
            id,
            references,
            subject,
            is_reply,
            sent,
        })
}

fn header(ids: &[u8]) -> String {
    ids.iter().map(|id| format!("<{id}@x> ")).collect()
}

fn messages(mails: &[Mail]) -> Messages {
    Messages {
        sent: mails.iter().map(|mail| mail.sent).collect(),
        subjects: mails.iter().map(|mail| u128::from(mail.subject)).collect(),
        replies: mails.iter().map(|mail| mail.is_reply).collect(),
    }
}

fn built(mut builder: Builder) -> (Tree, usize) {
    let mut steps = 1;
    loop {
        match builder.step() {
            Some(tree) => return (tree, steps),
            None => steps += 1,
        }
    }
}

fn by_references(mails: &[Mail]) -> Tree {
    let mut links = Links::new(mails.len(), 100);
    for mail in mails {
        let id = header(mail.id.as_slice());
        links.push(id.as_bytes(), header(&mail.references).as_bytes(), b"");
    }
    let (above, message) = links.into_nodes();
    built(Builder::references(messages(mails), above, message)).0
}

/// As `(0 1 (2)(3))`; small trees only.
fn text(tree: &Tree) -> String {
    fn list(tree: &Tree, first: u32, out: &mut String) {
        let mut at = first;
        while at != NONE {
            out.push('(');
            if at < tree.messages {
                out.push_str(&at.to_string());
            }
            list(tree, tree.first_child[at as usize], out);
            out.push(')');
            at = tree.next[at as usize];
        }
    }
    let mut out = String::new();
    list(tree, tree.first, &mut out);
    out
}

/// The RFC, word by word.
struct Letter<'a> {
    mails: &'a [Mail],
    /// The message of each container.
    message: Vec<Option<usize>>,
    parent: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
}

impl Letter<'_> {
    fn container(&mut self, message: Option<usize>) -> usize {
        self.message.push(message);
        self.parent.push(None);
        self.children.push(Vec::new());
        self.message.len() - 1
    }

    fn is_below(&self, mut node: usize, over: usize) -> bool {
        loop {
            if node == over {
                return true;
            }
            match self.parent[node] {
                Some(parent) => node = parent,
                None => return false,
            }
        }
    }

    fn link(&mut self, parent: usize, child: usize) {
        if !self.is_below(parent, child) {
            self.parent[child] = Some(parent);
            self.children[parent].push(child);
        }
    }

    fn unlink(&mut self, child: usize) {
        if let Some(parent) = self.parent[child].take() {
            self.children[parent].retain(|&other| other != child);
        }
    }

    fn sent(&self, node: usize) -> (i64, usize) {
        match self.message[node] {
            Some(message) => (self.mails[message].sent, message),
            None => self.children[node]
                .iter()
                .map(|&child| self.sent(child))
                .min()
                .unwrap(),
        }
    }

    fn prune(&mut self, list: Vec<usize>, at_root: bool) -> Vec<usize> {
        let mut left = Vec::new();
        for node in list {
            let children = std::mem::take(&mut self.children[node]);
            let children = self.prune(children, false);
            if self.message[node].is_some() || (at_root && children.len() > 1) {
                self.children[node] = children;
                left.push(node);
            } else {
                left.extend(children);
            }
        }
        left
    }

    fn subject(&self, node: usize) -> u8 {
        let message = self.message[node].unwrap_or_else(|| self.sent(node).1);
        self.mails[message].subject
    }

    fn is_reply(&self, node: usize) -> bool {
        self.message[node].is_some_and(|message| self.mails[message].is_reply)
    }

    fn sorted(&self, mut list: Vec<usize>) -> Vec<usize> {
        list.sort_by_key(|&node| self.sent(node));
        list
    }

    fn text(&self, list: &[usize], out: &mut String) {
        for &node in &self.sorted(list.to_vec()) {
            out.push('(');
            if let Some(message) = self.message[node] {
                out.push_str(&message.to_string());
            }
            self.text(&self.children[node], out);
            out.push(')');
        }
    }
}

fn by_the_letter(mails: &[Mail]) -> String {
    let mut letter = Letter {
        mails,
        message: Vec::new(),
        parent: Vec::new(),
        children: Vec::new(),
    };
    let mut ids: BTreeMap<u8, usize> = BTreeMap::new();
    for (n, mail) in mails.iter().enumerate() {
        let known = mail.id.and_then(|id| ids.get(&id).copied());
        let node = match known.filter(|&node| letter.message[node].is_none()) {
            Some(node) => {
                letter.message[node] = Some(n);
                node
            }
            None => {
                let node = letter.container(Some(n));
                if let Some(id) = mail.id.filter(|_| known.is_none()) {
                    ids.insert(id, node);
                }
                node
            }
        };
        let mut last = None;
        for reference in &mail.references {
            let named = match ids.get(reference) {
                Some(&named) => named,
                None => {
                    let named = letter.container(None);
                    ids.insert(*reference, named);
                    named
                }
            };
            if let Some(last) = last
                && letter.parent[named].is_none()
            {
                letter.link(last, named);
            }
            last = Some(named);
        }
        letter.unlink(node);
        if let Some(last) = last {
            letter.link(last, node);
        }
    }
    let roots: Vec<usize> = (0..letter.message.len())
        .filter(|&node| letter.parent[node].is_none())
        .collect();
    let roots = letter.prune(roots, true);
    let mut roots = letter.sorted(roots);
    let mut table: BTreeMap<u8, usize> = BTreeMap::new();
    for &root in &roots {
        let subject = letter.subject(root);
        if subject == 0 {
            continue;
        }
        match table.get(&subject) {
            None => drop(table.insert(subject, root)),
            Some(&other) => {
                if letter.message[other].is_some()
                    && (letter.message[root].is_none()
                        || (letter.is_reply(other) && !letter.is_reply(root)))
                {
                    table.insert(subject, root);
                }
            }
        }
    }
    for root in roots.clone() {
        if !roots.contains(&root) {
            continue;
        }
        let subject = letter.subject(root);
        let other = match table.get(&subject) {
            Some(&other) if subject != 0 && other != root => other,
            _ => continue,
        };
        roots.retain(|&node| node != root);
        match (letter.message[other], letter.message[root]) {
            (None, None) => {
                let children = std::mem::take(&mut letter.children[root]);
                letter.children[other].extend(children);
            }
            (None, Some(_)) => letter.children[other].push(root),
            _ if letter.is_reply(root) && !letter.is_reply(other) => {
                letter.children[other].push(root)
            }
            _ => {
                let dummy = letter.container(None);
                letter.children[dummy] = vec![root, other];
                roots.retain(|&node| node != other);
                roots.push(dummy);
                table.insert(subject, dummy);
            }
        }
    }
    let mut out = String::new();
    letter.text(&roots, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn references_as_the_rfc_says(mails in prop::collection::vec(mail(), 0..14)) {
        prop_assert_eq!(text(&by_references(&mails)), by_the_letter(&mails));
    }

    #[test]
    fn ordered_subject_as_the_rfc_says(mails in prop::collection::vec(mail(), 0..14)) {
        let mut order: Vec<usize> = (0..mails.len()).collect();
        order.sort_by_key(|&n| (mails[n].subject, mails[n].sent, n));
        let mut threads: Vec<Vec<usize>> = Vec::new();
        for n in order {
            match threads.last_mut() {
                Some(thread) if mails[thread[0]].subject == mails[n].subject => thread.push(n),
                _ => threads.push(vec![n]),
            }
        }
        threads.sort_by_key(|thread| (mails[thread[0]].sent, thread[0]));
        let expected: String = threads
            .iter()
            .map(|thread| {
                let others: String = thread[1..].iter().map(|n| format!("({n})")).collect();
                format!("({}{others})", thread[0])
            })
            .collect();
        let (tree, _) = built(Builder::ordered_subject(messages(&mails)));
        prop_assert_eq!(text(&tree), expected);
    }
}

/// A message whose headers are these.
fn push(links: &mut Links, id: usize, references: &[usize]) {
    let named: String = references.iter().map(|id| format!("<{id}@x>")).collect();
    links.push(format!("<{id}@x>").as_bytes(), named.as_bytes(), b"");
}

fn of_hostile(count: usize, links: Links) -> (Tree, usize) {
    let messages = Messages {
        sent: vec![0; count],
        subjects: vec![0; count],
        replies: vec![false; count],
    };
    let (above, message) = links.into_nodes();
    assert!(above.len() <= 2 * count + 1024, "{} nodes", above.len());
    built(Builder::references(messages, above, message))
}

/// Everybody answers the one before: a chain as deep as the mailbox is long.
#[test]
fn a_chain_of_all_messages() {
    let count = 50_000;
    let mut links = Links::new(count, 100);
    push(&mut links, 0, &[]);
    (1..count).for_each(|n| push(&mut links, n, &[n - 1]));
    let (tree, steps) = of_hostile(count, links);
    let mut at = tree.first;
    for n in 0..count as u32 {
        assert_eq!((at, tree.next[at as usize]), (n, NONE));
        at = tree.first_child[at as usize];
    }
    assert_eq!(at, NONE);
    assert!(steps >= 40, "work is cut into slices: {steps}");
}

/// Loops of all lengths, and messages that name themselves.
#[test]
fn loops() {
    let count = 3_000;
    let mut links = Links::new(count, 100);
    for n in 0..count {
        let around: Vec<usize> = (0..60).map(|k| (n + k * k) % count).collect();
        push(&mut links, n, &around);
    }
    let (tree, _) = of_hostile(count, links);
    // Every message is somewhere, once: from the root each is come to.
    let (mut seen, mut open) = (vec![false; count], vec![tree.first]);
    while let Some(at) = open.pop() {
        if at == NONE {
            continue;
        }
        if (at as usize) < count {
            assert!(
                !std::mem::replace(&mut seen[at as usize], true),
                "{at} twice"
            );
        }
        open.extend([tree.first_child[at as usize], tree.next[at as usize]]);
    }
    assert!(seen.iter().all(|&seen| seen));
}

/// Message ids that nobody has: they make no more nodes than there are messages, and real ones still find each other.
#[test]
fn invented_ids() {
    let count = 2_000;
    let mut links = Links::new(count, 100);
    let mut invented = 1_000_000;
    for n in 0..count {
        let mut references: Vec<usize> = (0..500).map(|k| invented + k).collect();
        invented += 500;
        if n == count - 1 {
            references.push(0);
        }
        push(&mut links, n, &references);
    }
    let (tree, _) = of_hostile(count, links);
    assert_eq!(tree.first_child[0], count as u32 - 1);
}

/// Of a long References field the last ids count.
#[test]
fn long_references() {
    let mut links = Links::new(3, 4);
    push(&mut links, 0, &[]);
    push(&mut links, 1, &[0, 91, 92, 93, 94]);
    push(&mut links, 2, &[95, 96, 97, 98, 99, 0, 81, 82, 83]);
    let (tree, _) = of_hostile(3, links);
    // 1 is too far from 0 to be known as its descendant, 2 is not.
    assert_eq!(text(&tree), "(0(2))(1)");
}
