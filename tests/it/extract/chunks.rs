//! Chunk plans: the ways in which one turn is cut into chunks.

use std::sync::Arc;

use organism::xml::extract::{ActionGrammar, Extraction, Extractor};

/// Texts up to this size are also pushed byte by byte.
const BYTEWISE_MAX: usize = 20_000;
/// Texts up to this size are also cut in two at every position.
const SPLIT_MAX: usize = 400;

/// A small generator of pseudo-random numbers. The numbers are the same on every platform.
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: &str) -> Self {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        Self(seed.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }
}

/// Every chunk plan for this text, each with its name and its cuts.
pub fn plans(text: &[u8], seed: &str) -> Vec<(String, Vec<usize>)> {
    let mut plans = vec![("whole".to_owned(), Vec::new())];
    if text.len() <= BYTEWISE_MAX {
        plans.push(("bytes".to_owned(), (1..text.len()).collect()));
    }
    for (low, high) in [(1, 10), (3, 17), (64, 900)] {
        let name = format!("{low}-{high}");
        let mut numbers = Numbers::new(&format!("{seed}/{name}"));
        let mut cuts = Vec::new();
        let mut at = 0;
        while at < text.len() {
            at += low + numbers.below(high - low + 1);
            cuts.push(at.min(text.len()));
        }
        plans.push((name, cuts));
    }
    if text.len() <= SPLIT_MAX {
        plans.extend((1..text.len()).map(|at| (format!("split at {at}"), vec![at])));
    }
    plans
}

/// Extracts the text with these cuts, and asserts that settled items never change.
pub fn extract(grammar: &Arc<ActionGrammar>, text: &[u8], cuts: &[usize]) -> Extraction {
    let mut extractor = Extractor::new(Arc::clone(grammar));
    let mut settled = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([text.len()]) {
        extractor.push(&text[from..to]);
        from = to;
        settled.extend_from_slice(&extractor.settled()[settled.len()..]);
    }
    let extraction = extractor.finish();
    assert_eq!(extraction.items[..settled.len()], settled, "settled items changed");
    extraction
}
