//! The pure step, through the real gate and real schemas: what section 4 to 6 of the design say.

mod calls;
mod world;
