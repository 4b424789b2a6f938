//! A whole server in one thread on virtual time from one seed, with checkers
