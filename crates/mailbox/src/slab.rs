//! Records by number: stable numbers, no copying on growth, at most one chunk of slack.

/// Records in one chunk: a small account pays for few, a large one has little bookkeeping.
const CHUNK: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            free: Vec::new(),
            len: 0,
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if let Some(index) = self.free.pop() {
            let place = &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK];
            assert!(place.is_none(), "a free index is empty");
            *place = Some(value);
            return index;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks
                .push(Vec::with_capacity(if self.chunks.is_empty() {
                    4
                } else {
                    CHUNK
                }));
        }
        let last = self.chunks.len() - 1;
        self.chunks[last].push(Some(value));
        u32::try_from(last * CHUNK + self.chunks[last].len() - 1)
            .expect("fewer than 2^32 records fit into memory")
    }

    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self
            .chunks
            .get_mut(index as usize / CHUNK)?
            .get_mut(index as usize % CHUNK)?
            .take()?;
        self.free.push(index);
        self.len -= 1;
        Some(value)
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.chunks
            .get(index as usize / CHUNK)?
            .get(index as usize % CHUNK)?
            .as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.chunks
            .get_mut(index as usize / CHUNK)?
            .get_mut(index as usize % CHUNK)?
            .as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// In the order of the numbers, which is an order of this replica's history.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let chunks = self.chunks.iter().enumerate();
        chunks.flat_map(|(c, chunk)| {
            chunk
                .iter()
                .enumerate()
                .filter_map(move |(i, place)| Some(((c * CHUNK + i) as u32, place.as_ref()?)))
        })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.chunks
            .iter()
            .map(|chunk| chunk.capacity() * size_of::<Option<T>>())
            .sum::<usize>()
            + self.chunks.capacity() * size_of::<Vec<Option<T>>>()
            + self.free.capacity() * 4
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        self.get(slot)
            .expect("indexes hold only numbers of present records")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index)
            .expect("indexes hold only numbers of present records")
    }
}
