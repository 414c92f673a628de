//! The protocol of `transport = "xml"`: tools, notes and the final answer as XML in the model's
//! text. What is taught, what is read and what is said back live here together, so that they
//! cannot drift apart.

pub mod feedback;
mod grammar;
pub mod read;
pub mod show;
pub mod teach;
mod vocabulary;

pub use read::{Action, Reading};
pub use teach::Taught;
pub use vocabulary::{Lexicon, Word};
