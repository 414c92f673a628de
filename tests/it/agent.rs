//! Agents: what they remember, what they are taught, what a turn comes to, and playback.

mod demo;
mod desk;
mod plays;
mod remembers;
mod story;
mod teaches;
mod turns;
