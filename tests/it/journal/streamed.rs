//! Properties of a journal on JetStream beyond those of every journal.

mod attacks;
mod bounds;
mod death;
mod fences;
mod outages;
mod place;
mod rebuilt;
mod standby;
mod unfit;

pub use place::Place;
