//! Runs the examples of the docs as the pages show them. With `TUTORIAL=write`, new outputs are
//! written into the pages if they differ by more than values such as ids and times.

pub mod blocks;
mod configs;
mod form;
mod page;
mod pages;
mod session;
mod tutorial;
