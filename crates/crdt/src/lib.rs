//! Dots, version vectors, clocks, replicated sets and registers, and the batch envelope: pure, no I/O
