//! Bytes that must not be shown or left behind in memory.

use std::fmt;
use zeroize::Zeroizing;

/// A password or a SASL message: overwritten when dropped, never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes. Not to be copied to where they are not overwritten.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_neither_bytes_nor_length() {
        let shown = format!("{:?}", Secret::new(b"hunter2".to_vec()));
        assert_eq!(shown, "Secret(..)");
    }
}
