//! Trees whose nodes are linked and cut, and which know the root of a node in logarithmic time, however deep they are.
//!
//! A link-cut tree (Sleator and Tarjan, A data structure for dynamic trees, 1983, in the form with splay trees): each tree is cut into paths,
//! each path is a splay tree ordered by depth. "Do not create a parent/child link if creating that link would introduce a loop" (RFC
//! 5256) asks for the root at every link; to walk up to it would be quadratic work for who sends long chains.

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// The trees.
#[derive(Default)]
pub(super) struct Forest {
    /// The parent in the splay tree, or, of a splay tree's root, what its path hangs on.
    up: Vec<u32>,
    /// What is nearer to the root of the tree.
    left: Vec<u32>,
    /// What is deeper.
    right: Vec<u32>,
}

impl Forest {
    /// Adds a node that is a tree by itself.
    pub(super) fn add(&mut self) -> u32 {
        self.up.push(NONE);
        self.left.push(NONE);
        self.right.push(NONE);
        self.up.len() as u32 - 1
    }

    /// The root of the tree that a node is in.
    pub(super) fn root(&mut self, node: u32) -> u32 {
        self.access(node);
        let mut root = node;
        while self.left[root as usize] != NONE {
            root = self.left[root as usize];
        }
        // So that a long way was not gone for nothing.
        self.splay(root);
        root
    }

    /// Makes `child`, which is a root, a child of `parent`, which is in another tree.
    pub(super) fn link(&mut self, child: u32, parent: u32) {
        self.access(child);
        debug_assert!(
            self.left[child as usize] == NONE,
            "a root has nothing above it"
        );
        self.access(parent);
        self.up[child as usize] = parent;
    }

    /// Makes a node that is no root the root of a tree of its own.
    pub(super) fn cut(&mut self, node: u32) {
        self.access(node);
        let above = std::mem::replace(&mut self.left[node as usize], NONE);
        debug_assert!(above != NONE, "what is cut hangs on something");
        self.up[above as usize] = NONE;
    }

    /// Makes the way from the root to `node` one path, and `node` the root of its splay tree.
    fn access(&mut self, node: u32) {
        let mut below = NONE;
        let mut at = node;
        while at != NONE {
            self.splay(at);
            self.right[at as usize] = below;
            below = at;
            at = self.up[at as usize];
        }
        self.splay(node);
    }

    fn is_splay_root(&self, node: u32) -> bool {
        let up = self.up[node as usize];
        up == NONE || (self.left[up as usize] != node && self.right[up as usize] != node)
    }

    fn splay(&mut self, node: u32) {
        while !self.is_splay_root(node) {
            let up = self.up[node as usize];
            if !self.is_splay_root(up) {
                let over = self.up[up as usize];
                let same_side =
                    (self.left[up as usize] == node) == (self.left[over as usize] == up);
                self.rotate(if same_side { up } else { node });
            }
            self.rotate(node);
        }
    }

    /// Puts a node in the place of its parent.
    fn rotate(&mut self, node: u32) {
        let up = self.up[node as usize];
        let over = self.up[up as usize];
        if !self.is_splay_root(up) {
            let side = if self.left[over as usize] == up {
                &mut self.left
            } else {
                &mut self.right
            };
            side[over as usize] = node;
        }
        let moved = if self.left[up as usize] == node {
            let moved = std::mem::replace(&mut self.right[node as usize], up);
            self.left[up as usize] = moved;
            moved
        } else {
            let moved = std::mem::replace(&mut self.left[node as usize], up);
            self.right[up as usize] = moved;
            moved
        };
        if moved != NONE {
            self.up[moved as usize] = up;
        }
        self.up[up as usize] = node;
        self.up[node as usize] = over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive_root(above: &[u32], mut node: u32) -> u32 {
        while above[node as usize] != NONE {
            node = above[node as usize];
        }
        node
    }

    proptest! {
        #[test]
        fn like_walking_up(
            nodes in 2u32..24,
            deeds in proptest::collection::vec((0u32..24, 0u32..24, 0u8..4), 0..200),
        ) {
            let mut forest = Forest::default();
            let mut above = vec![NONE; nodes as usize];
            (0..nodes).for_each(|node| assert_eq!(forest.add(), node));
            for (a, b, deed) in deeds {
                let (a, b) = (a % nodes, b % nodes);
                match deed {
                    0 if above[a as usize] != NONE => {
                        forest.cut(a);
                        above[a as usize] = NONE;
                    }
                    1 | 2 if above[a as usize] == NONE && naive_root(&above, b) != a => {
                        forest.link(a, b);
                        above[a as usize] = b;
                    }
                    _ => prop_assert_eq!(forest.root(a), naive_root(&above, a)),
                }
            }
            for node in 0..nodes {
                prop_assert_eq!(forest.root(node), naive_root(&above, node));
            }
        }
    }

    /// A hundred thousand questions about a chain of a hundred thousand: by walking, ten thousand million steps.
    #[test]
    fn long_chains_cost_little() {
        let mut forest = Forest::default();
        let nodes = 100_000;
        (0..nodes).for_each(|node| assert_eq!(forest.add(), node));
        for node in 1..nodes {
            assert_eq!(forest.root(node - 1), 0);
            forest.link(node, node - 1);
        }
        for node in (0..nodes).step_by(7) {
            assert_eq!(forest.root(node), 0);
        }
        forest.cut(50_000);
        assert_eq!((forest.root(49_999), forest.root(99_999)), (0, 50_000));
    }
}
