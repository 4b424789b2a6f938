//! What must hold, apart from what makes it happen.

pub mod axioms;
pub mod modseqs;
pub mod rising;
pub mod uids;
