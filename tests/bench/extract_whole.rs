//! `extract_whole`: a turn pushed at once, then finished.

use std::sync::Arc;

use organism::xml::extract::Extractor;

use super::figures::{Bench, Class, median};
use super::plain;
use super::turns;

pub fn run(bench: &mut Bench) {
    let runs = bench.runs;
    let classes = turns::classes().into_iter().map(|class| {
        let read = || {
            let items = class.turns.iter().map(|(grammar, text)| {
                let mut extractor = Extractor::new(Arc::clone(grammar));
                extractor.push(text.as_bytes());
                extractor.finish().items.len()
            });
            items.sum()
        };
        Class {
            name: class.name.to_owned(),
            value: median(runs, || plain::megabytes_per_second(class.bytes(), read)),
            floor: median(runs, || class.plain()),
        }
    });
    let classes: Vec<Class> = classes.collect();
    bench.figures.add_worst("extract_whole", "MB/s", &classes, |class| -class.value);
}
