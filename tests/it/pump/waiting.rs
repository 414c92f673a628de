//! waiting
