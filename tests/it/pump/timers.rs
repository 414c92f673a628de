//! timers
