//! The tuples in memory: rows in the order of ids, in blocks, 56 bytes a row and little more.
//!
//! A map would take half as much again: its nodes are half full when ids come in order, as they do here.

use std::collections::BTreeMap;

use crate::types::{Id, Node, Nodes, Owners, Ownership, Version};

/// Rows of a block.
const BLOCK_ROWS: usize = 512;

/// A block below this is joined with the next one.
const BLOCK_ROWS_MIN: usize = BLOCK_ROWS / 8;

/// What memory holds of a tuple.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) id: Id,
    pub(crate) owners: Owners,
    /// All that may hold a copy, this node among them.
    pub(crate) holders: Nodes,
    /// To whom this node ever sent the tuple.
    pub(crate) sent: Nodes,
    /// Microseconds since 1970.
    pub(crate) not_before: u64,
    pub(crate) term: u32,
    /// Which owners have said that they hold the present version: one bit for each place of the list.
    pub(crate) stored: u8,
    pub(crate) priority: u8,
    flags: u8,
}

/// One bit of a row.
#[derive(Clone, Copy)]
pub(crate) struct Flag(u8);

impl Flag {
    /// It came from an older disk: nobody has said yet that it is still needed.
    pub(crate) const DOUBT: Flag = Flag(1);
    /// There is a row on the disk.
    pub(crate) const ON_DISK: Flag = Flag(2);
    /// Put here and not accepted yet.
    pub(crate) const WAITING: Flag = Flag(4);
    /// The application has it.
    pub(crate) const HANDED: Flag = Flag(8);
    /// It has a progress, beside the table.
    pub(crate) const PROGRESS: Flag = Flag(16);
    /// The first owner has said that it holds no copy.
    pub(crate) const FIRST_GONE: Flag = Flag(32);
    /// It was in doubt and stays so: the operator decides.
    pub(crate) const STALE: Flag = Flag(64);
}

impl Row {
    pub(crate) fn new(id: Id, of: &Ownership) -> Row {
        Row {
            id,
            owners: of.owners,
            holders: of.holders,
            sent: Nodes::NONE,
            not_before: of.not_before,
            term: of.term,
            stored: 0,
            priority: of.priority,
            flags: 0,
        }
    }

    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.flags & flag.0 != 0
    }

    pub(crate) fn set(&mut self, flag: Flag, on: bool) {
        if on {
            self.flags |= flag.0;
        } else {
            self.flags &= !flag.0;
        }
    }

    pub(crate) fn version(&self) -> Version {
        Version {
            term: self.term,
            first: self.owners.first(),
        }
    }

    /// Notes that an owner has said that it holds the present version.
    pub(crate) fn confirm(&mut self, node: Node) {
        if let Some(place) = self.owners.place(node) {
            self.stored |= 1 << place;
        }
    }

    pub(crate) fn is_confirmed(&self, node: Node) -> bool {
        let place = self.owners.place(node);
        place.is_some_and(|place| self.stored & 1 << place != 0)
    }

    /// Whether all owners but this node have said that they hold the present version.
    pub(crate) fn all_confirmed(&self, me: Node) -> bool {
        let mut owners = self.owners.as_slice().iter();
        owners.all(|owner| *owner == me || self.is_confirmed(*owner))
    }
}

/// Rows by id. No block is empty; each is named by an id that is not above its first row's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    blocks: BTreeMap<Id, Vec<Row>>,
    len: usize,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn block(&self, id: Id) -> Option<&Vec<Row>> {
        self.blocks.range(..=id).next_back().map(|(_, block)| block)
    }

    pub(crate) fn get(&self, id: Id) -> Option<&Row> {
        let block = self.block(id)?;
        let at = block.binary_search_by_key(&id, |row| row.id).ok()?;
        block.get(at)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut Row> {
        let (_, block) = self.blocks.range_mut(..=id).next_back()?;
        let at = block.binary_search_by_key(&id, |row| row.id).ok()?;
        block.get_mut(at)
    }

    /// Adds a row, or takes the place of the one with this id.
    pub(crate) fn insert(&mut self, row: Row) {
        let id = row.id;
        let key = match self.blocks.range(..=id).next_back() {
            Some((key, _)) => *key,
            None => match self.blocks.pop_first() {
                // It becomes the first row of the first block.
                Some((_, block)) => {
                    self.blocks.insert(id, block);
                    id
                }
                None => {
                    self.blocks.insert(id, vec![row]);
                    self.len += 1;
                    return;
                }
            },
        };
        let is_last = self
            .blocks
            .last_key_value()
            .is_some_and(|(last, _)| *last == key);
        let Some(block) = self.blocks.get_mut(&key) else {
            return;
        };
        let at = match block.binary_search_by_key(&id, |row| row.id) {
            Ok(at) => {
                block[at] = row;
                return;
            }
            Err(at) => at,
        };
        self.len += 1;
        if block.len() < BLOCK_ROWS {
            if block.len() == block.capacity() {
                let more = (block.len() / 2).max(8);
                block.reserve_exact(more.min(BLOCK_ROWS - block.len()));
            }
            block.insert(at, row);
        } else if at == block.len() && is_last {
            // Ids come in order: the block stays full.
            self.blocks.insert(id, vec![row]);
        } else {
            let mut upper = block.split_off(BLOCK_ROWS / 2);
            block.shrink_to_fit();
            let from = upper[0].id;
            match at.checked_sub(BLOCK_ROWS / 2) {
                Some(at) => upper.insert(at, row),
                None => block.insert(at, row),
            }
            self.blocks.insert(from.min(upper[0].id), upper);
        }
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<Row> {
        let (key, block) = self.blocks.range_mut(..=id).next_back()?;
        let key = *key;
        let at = block.binary_search_by_key(&id, |row| row.id).ok()?;
        let row = block.remove(at);
        self.len -= 1;
        if block.len() < BLOCK_ROWS_MIN {
            self.join(key);
        }
        Some(row)
    }

    /// Joins a small block with one beside it, if both fit into one.
    fn join(&mut self, key: Id) {
        let Some(block) = self.blocks.get_mut(&key) else {
            return;
        };
        if block.is_empty() {
            self.blocks.remove(&key);
            return;
        }
        if block.capacity() > 2 * BLOCK_ROWS_MIN {
            block.shrink_to(BLOCK_ROWS_MIN);
        }
        let before = self.blocks.range(..key).next_back().map(|(key, _)| *key);
        let after = (std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded);
        let after = self.blocks.range(after).next().map(|(key, _)| *key);
        for (lower, upper) in [(Some(key), after), (before, Some(key))] {
            if let (Some(lower), Some(upper)) = (lower, upper) {
                self.join_two(lower, upper);
            }
        }
    }

    /// Moves the rows of a block to the one before it, if both fit into half a block.
    fn join_two(&mut self, lower: Id, upper: Id) {
        let len = |key: Id| self.blocks.get(&key).map(Vec::len);
        if let (Some(first), Some(second)) = (len(lower), len(upper))
            && first + second <= BLOCK_ROWS / 2
            && let Some(rows) = self.blocks.remove(&upper)
            && let Some(block) = self.blocks.get_mut(&lower)
        {
            block.extend(rows);
        }
    }

    /// The first row.
    pub(crate) fn first(&self) -> Option<&Row> {
        self.blocks.first_key_value()?.1.first()
    }

    /// The rows from this id on, by id.
    pub(crate) fn from(&self, id: Id) -> impl Iterator<Item = &Row> {
        let begin = self.blocks.range(..=id).next_back();
        let begin = begin.map_or(id, |(key, _)| *key);
        let rows = self.blocks.range(begin..).flat_map(|(_, block)| block);
        rows.skip_while(move |row| row.id < id)
    }

    /// The rows of a range, both ends included.
    pub(crate) fn range(&self, from: Id, to: Id) -> impl Iterator<Item = &Row> {
        self.from(from).take_while(move |row| row.id <= to)
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let rows = |block: &Vec<Row>| block.capacity() * size_of::<Row>();
        let blocks = self.blocks.len() * (size_of::<Id>() + size_of::<Vec<Row>>()) * 2;
        self.blocks.values().map(rows).sum::<usize>() + blocks
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_testkit::Rng;

    use super::*;

    fn row(number: u64) -> Row {
        Row {
            id: Id::new(number, 1),
            ..Row::default()
        }
    }

    #[test]
    fn a_row_is_small() {
        assert_eq!(size_of::<Row>(), 56);
    }

    #[test]
    fn it_is_a_map() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut table, mut model) = (Table::default(), BTreeMap::new());
            for step in 0..6000 {
                let number = rng.below(3000);
                let grows = step < 3000;
                if rng.one_in(4) == grows {
                    let removed = table.remove(Id::new(number, 1));
                    assert_eq!(removed.map(|row| row.id), model.remove(&number));
                } else {
                    table.insert(row(number));
                    model.insert(number, Id::new(number, 1));
                }
                let found = table.get(Id::new(number, 1)).map(|row| row.id);
                assert_eq!(found.as_ref(), model.get(&number));
            }
            assert_eq!(table.len(), model.len());
            let from = rng.below(3000);
            let rows: Vec<Id> = table.from(Id::new(from, 0)).map(|row| row.id).collect();
            let expected: Vec<Id> = model.range(from..).map(|(_, id)| *id).collect();
            assert_eq!(rows, expected);
            assert_eq!(
                table.first().map(|row| row.id),
                model.values().next().copied()
            );
        }
    }

    #[test]
    fn rows_that_come_in_order_fill_their_blocks() {
        let mut table = Table::default();
        (0..100_000).for_each(|number| table.insert(row(number)));
        assert!(table.bytes() < 60 * table.len());
        (0..100_000)
            .filter(|number| number % 50 != 0)
            .for_each(|number| {
                table.remove(Id::new(number, 1));
            });
        assert_eq!(table.len(), 2000);
        assert!(table.bytes() < 200 * table.len(), "{}", table.bytes());
    }
}
