//! Tests of listeners.
