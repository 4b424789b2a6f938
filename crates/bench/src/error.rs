//! What ends a benchmark: the system, or a server that answers wrongly.
//!
//! A wrong answer is never counted and passed over: a server that does less than it is asked for is fast.

use std::{fmt::Display, io};

/// Why a benchmark ended.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The system refuses.
    #[error("{what}: {cause}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        cause: io::Error,
    },
    /// An answer is not what it must be.
    #[error("{0}")]
    Wrong(String),
}

/// What everything here gives.
pub type Result<T> = std::result::Result<T, Trouble>;

/// For `map_err`: what was tried.
pub fn io_at(what: impl Display) -> impl FnOnce(io::Error) -> Trouble {
    move |cause| Trouble::Io {
        what: what.to_string(),
        cause,
    }
}

/// A wrong answer.
pub fn wrong<T>(what: impl Into<String>) -> Result<T> {
    Err(Trouble::Wrong(what.into()))
}

/// Fails unless the two are equal.
pub fn expect_equal<T: PartialEq + std::fmt::Debug>(
    what: impl Display,
    got: T,
    expected: T,
) -> Result<()> {
    if got == expected {
        Ok(())
    } else {
        wrong(format!("{what}: {got:?} instead of {expected:?}"))
    }
}
