//! Agents: what they remember, what they are taught, what a turn comes to, and playback.

mod demo;
mod desk;
mod feedback;
mod goals;
mod guard;
mod injections;
mod native;
mod plays;
mod preview;
mod remembers;
mod renderers;
mod scripted;
mod stage;
mod story;
mod structured_finals;
mod switched_off;
mod teaches;
mod text_answers;
mod turns;
mod xml_final;
