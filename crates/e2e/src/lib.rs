//! End-to-end tests: real processes, real clients, protocol scripts
