//! What must hold, apart from what makes it happen.

pub mod axioms;
pub mod modseqs;
pub mod monotonic;
pub mod uid_history;
