//! `extract_whole` and `extract_bytewise`: speed of the extractor for turns that arrive as one
//! chunk, and for turns that arrive character by character.

use std::sync::Arc;

use organism::xml::extract::Extractor;

use super::figures::{Bench, Class, median};
use super::plain;
use super::turns;

pub fn whole(bench: &mut Bench) {
    run(bench, "extract_whole", |extractor, text| extractor.push(text.as_bytes()));
}

pub fn bytewise(bench: &mut Bench) {
    run(bench, "extract_bytewise", |extractor, text| {
        for c in text.chars() {
            extractor.push(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    });
}

fn run(bench: &mut Bench, name: &str, push: fn(&mut Extractor, &str)) {
    let runs = bench.runs;
    let classes = turns::classes().into_iter().map(|class| {
        let read = || {
            let items = class.turns.iter().map(|(grammar, text)| {
                let mut extractor = Extractor::new(Arc::clone(grammar));
                push(&mut extractor, text);
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
    bench.figures.add_worst(name, "MB/s", &classes, |class| -class.value);
}
