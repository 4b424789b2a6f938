//! What must hold, apart from what makes it happen.

pub mod uids;
