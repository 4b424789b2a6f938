//! Bytes that must not be shown or left behind in memory.

use std::fmt;
use zeroize::Zeroizing;

/// A password or a SASL message: overwritten when dropped, never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes. Not to be copied to where they are not overwritten.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Gives the bytes on, to be overwritten there.
    #[must_use]
    pub fn into_inner(self) -> Zeroizing<Vec<u8>> {
        self.0
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
