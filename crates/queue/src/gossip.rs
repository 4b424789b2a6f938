//! Who is a member, for those who keep no list: each node tells whom it knows, and tells on what is new to it.
//!
//! A node that comes greets one that it knows, and both learn the other's list; whoever has learned something greets all it knows. In the end all know
//! the same. Nobody is ever removed by this: a program that removes nodes keeps a list of its own and says [`crate::Input::Members`].

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::{
    frame::FrameError,
    types::{Node, Nodes},
};

/// Bytes of an address.
pub const ADDRESS_BYTES_MAX: usize = 255;

/// The nodes that this one knows, and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gossip {
    known: BTreeMap<Node, String>,
}

impl Gossip {
    /// A node that knows itself alone. What is longer than [`ADDRESS_BYTES_MAX`] of an address is cut off.
    #[must_use]
    pub fn new(me: Node, address: &str) -> Gossip {
        let mut end = address.len().min(ADDRESS_BYTES_MAX);
        while !address.is_char_boundary(end) {
            end -= 1;
        }
        Gossip {
            known: BTreeMap::from([(me, address[..end].to_owned())]),
        }
    }

    /// All nodes known, and their addresses.
    #[must_use]
    pub fn known(&self) -> &BTreeMap<Node, String> {
        &self.known
    }

    /// All nodes known: for [`crate::Input::Members`].
    #[must_use]
    pub fn members(&self) -> Nodes {
        self.known.keys().copied().collect()
    }

    /// What is said to a node that is met, and to all when something is new.
    #[must_use]
    pub fn greeting(&self) -> Bytes {
        let mut out = BytesMut::new();
        for (node, address) in &self.known {
            out.put_u8(node.number());
            #[allow(clippy::cast_possible_truncation)] // At most 255.
            out.put_u8(address.len() as u8);
            out.put_slice(address.as_bytes());
        }
        out.freeze()
    }

    /// Takes in what another node has said; whether anything is new, so that all are to be greeted. Of two addresses of one node the greater one stays.
    ///
    /// # Errors
    /// When it is no greeting. Nothing is taken in then.
    pub fn hear(&mut self, mut greeting: Bytes) -> Result<bool, FrameError> {
        let mut heard = Vec::new();
        while greeting.has_remaining() {
            let node = Node::new(greeting.get_u8()).ok_or(FrameError::Value)?;
            let len = usize::from(greeting.try_get_u8().map_err(|_| FrameError::Short)?);
            if greeting.remaining() < len {
                return Err(FrameError::Short);
            }
            let address = greeting.split_to(len);
            let address = std::str::from_utf8(&address).map_err(|_| FrameError::Value)?;
            heard.push((node, address.to_owned()));
        }
        let mut is_new = false;
        for (node, address) in heard {
            let known = self.known.entry(node).or_default();
            if address > *known {
                *known = address;
                is_new = true;
            }
        }
        Ok(is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gossip(number: u8) -> Gossip {
        Gossip::new(Node::new(number).unwrap(), &format!("host{number}:1"))
    }

    #[test]
    fn all_learn_of_all() {
        let mut nodes: Vec<Gossip> = (0..6).map(gossip).collect();
        // Each knows the one before.
        let mut told: Vec<(usize, Bytes)> = Vec::new();
        for at in 1..6 {
            told.push((at - 1, nodes[at].greeting()));
            told.push((at, nodes[at - 1].greeting()));
        }
        while let Some((at, greeting)) = told.pop() {
            if nodes[at].hear(greeting).unwrap() {
                let all = nodes[at].members().iter();
                told.extend(all.map(|node| (usize::from(node.number()), nodes[at].greeting())));
            }
        }
        assert!(nodes.iter().all(|node| *node == nodes[0]));
        assert_eq!(nodes[0].members().len(), 6);
    }

    #[test]
    fn what_is_no_greeting_is_refused_whole() {
        let mut one = gossip(0);
        for bytes in [&[1][..], &[1, 3, b'a'], &[64, 0], &[1, 1, 0xff]] {
            assert!(
                one.hear(Bytes::copy_from_slice(bytes)).is_err(),
                "{bytes:?}"
            );
        }
        let cut = gossip(1).greeting();
        assert!(one.hear(cut.slice(..cut.len() - 1)).is_err());
        assert_eq!(one.known().len(), 1);
        let long = Gossip::new(Node::default(), &"é".repeat(200));
        assert!(one.hear(long.greeting()).unwrap());
    }
}
