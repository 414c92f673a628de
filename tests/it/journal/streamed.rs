//! Properties of a journal on JetStream that other journals do not have.

pub mod attacks;
mod bounds;
mod death;
mod fences;
mod outages;
mod place;
mod rebuilt;
mod standby;
mod unfit;

pub use place::{Place, options};
