//! Tests of bus.
