//! The pure step, through the real gate and real schemas: what section 4 to 6 of the design say.

mod absent;
mod approvals;
mod budgets;
mod calls;
mod cancel;
mod clients;
mod clock;
mod context;
mod driver;
mod durable;
mod failures;
mod fairness;
mod forward;
mod full_disk;
mod groups;
mod humans;
mod limits;
mod lost;
mod operator;
mod replay;
mod restart;
mod simulation;
mod threads;
mod timers;
mod traces;
mod waiting;
pub mod world;
