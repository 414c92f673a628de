//! Agents: memory, prompts, outcomes of turns, and playback.

mod demo;
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
mod setup;
mod stage;
mod stopped;
mod story;
mod structured_finals;
mod switched_off;
mod teaches;
mod text_answers;
mod turns;
mod unseen;
mod xml_final;
