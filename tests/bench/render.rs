//! `prompt_render_1000`: processor time of rendering the prompt of the next turn in a thread of
//! 1,000 messages, including the read of its records from the journal.

use super::cpu;
use super::figures::{Bench, median, median_of};
use super::story::{Plot, Story};

const PLOT: Plot = Plot { questions: 10, looks: 24 };
const _: () = assert!(PLOT.messages() == 1_000);
/// Number of prompts in a run; the result is their median.
const PROMPTS: usize = 20;

pub fn thousand(bench: &mut Bench) {
    let story = Story::recorded("render", PLOT);
    let value = median(bench.runs, || {
        let prompts = (0..PROMPTS).map(|_| {
            // An agent that has kept nothing of the thread.
            let due = story.due("provider = \"playback\"\nrecording = \"recording.toml\"\n");
            cpu::micros(|| {
                let request = due.agent.rendered(&due.delivery).unwrap();
                assert!(request.messages.len() > PLOT.messages() / 4);
            })
        });
        median_of(prompts)
    });
    bench.figures.add("prompt_render_1000", value, "us CPU", None);
}
