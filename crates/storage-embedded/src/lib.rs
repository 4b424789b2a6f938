//! The embedded storage engine: an LSM tree in the process
