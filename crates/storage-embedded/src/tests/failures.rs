//! Failures while running: a failed sync, a full disk, two processes, another version.
