//! The examples of the docs, carried out as they stand there: `TUTORIAL=write` writes new outputs
//! into the pages that differ by more than ids, times and the like.

pub mod blocks;
mod configs;
mod form;
mod page;
mod pages;
mod session;
mod tutorial;
