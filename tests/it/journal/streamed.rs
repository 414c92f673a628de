//! What a journal on JetStream promises beyond what every journal does.

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
