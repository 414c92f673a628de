//! Tests of extract.
