//! A message in transfer: in memory while it is small, else in a temporary file.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
};

/// The most bytes of a message in memory: larger ones go through a file.
pub(super) const MEMORY_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Body {
    memory: Vec<u8>,
    spooled: Option<File>,
    bytes: u64,
    pub(super) has_nul: bool,
}

impl Body {
    pub(super) fn len(&self) -> u64 {
        self.bytes
    }

    pub(super) fn of(bytes: Vec<u8>) -> Body {
        Body {
            bytes: bytes.len() as u64,
            has_nul: bytes.contains(&0),
            memory: bytes,
            spooled: None,
        }
    }

    /// Adds bytes; `bytes` is empty afterwards.
    pub(super) fn push(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.has_nul |= bytes.contains(&0);
        self.bytes += bytes.len() as u64;
        self.memory.append(bytes);
        if self.memory.len() > MEMORY_BYTES_MAX {
            let file = match &mut self.spooled {
                Some(file) => file,
                None => self.spooled.insert(tempfile::tempfile()?),
            };
            file.write_all(&self.memory)?;
            self.memory.clear();
        }
        Ok(())
    }

    /// Counts bytes that are not kept. The message cannot be read any more.
    pub(super) fn pass(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Goes back to the begin, to read the message.
    pub(super) fn rewind(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.spooled {
            file.write_all(&self.memory)?;
            self.memory.clear();
            file.rewind()?;
        }
        Ok(())
    }

    /// BLAKE3 of the message, which is then at its begin again. Call this after [`Body::rewind`].
    pub(super) fn hash(&mut self) -> io::Result<[u8; 32]> {
        let mut hasher = blake3::Hasher::new();
        match &mut self.spooled {
            None => _ = hasher.update(&self.memory),
            Some(file) => {
                hasher.update_reader(&*file)?;
                file.rewind()?;
            }
        }
        Ok(*hasher.finalize().as_bytes())
    }

    /// The next bytes into `buffer`; all of them at once if they are in memory. Empty at the end. After [`Body::rewind`].
    pub(super) fn chunk<'a>(&'a self, at: u64, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        match &self.spooled {
            None => Ok(&self.memory[usize::try_from(at)
                .unwrap_or(usize::MAX)
                .min(self.memory.len())..]),
            Some(file) => {
                buffer.clear();
                file.take(64 * 1024).read_to_end(buffer)?;
                Ok(buffer)
            }
        }
    }
}
