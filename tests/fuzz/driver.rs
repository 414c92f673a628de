//! Mutations of inputs, and the handling of failures.

use std::collections::HashSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::campaign::Campaign;

/// Maximum length of mutated inputs; inputs of the corpus may be longer.
const BYTES_MAX: usize = 64 * 1024;
/// Maximum number of mutated inputs that are kept for further mutation. An input is kept if its
/// outcome was new.
const POOL_MAX: usize = 500;

/// Fragments of the languages that the targets parse.
const PIECES: [&str; 48] = [
    "<",
    ">",
    "</",
    "/>",
    "&",
    ";",
    "&amp;",
    "&#0;",
    "&#x10FFFF;",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "<?xml",
    "?>",
    "<!DOCTYPE",
    "<!ENTITY",
    "xmlns=\"\"",
    "xmlns:a=\"b\"",
    "=",
    "\"",
    "'",
    "`",
    "```",
    "~~~",
    "\n",
    "\r\n",
    "\t",
    "\u{0}",
    "\u{FEFF}",
    "\u{202E}",
    "\u{1F600}",
    "<thinking>",
    "</thinking>",
    "<search>",
    "</search>",
    "<query>",
    "</query>",
    "[",
    "]",
    "[[",
    "${",
    "}",
    "xs:",
    "maxOccurs=\"99999999\"",
    "ref=\"",
    "-1",
    "9223372036854775808",
];

pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % n.max(1) as u64).unwrap()
    }
}

/// Statistics of a target.
pub struct Report {
    /// Number of different outcomes, as the target names them.
    pub outcomes: usize,
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn texts(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(target);
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Runs `target` on its corpus, then on mutations of the corpus until the time ends. A target
/// panics if its property is violated; otherwise it returns a short name of the outcome.
pub fn fuzz(name: &str, target: &mut dyn FnMut(&[u8]) -> String) -> Report {
    let mut campaign = Campaign::new(format!("fuzz: {name}"));
    let mut outcomes = HashSet::new();
    let mut pool = Vec::new();
    for (path, bytes) in texts(name) {
        println!("{}", path.display());
        outcomes.insert(target(&bytes));
        pool.push(bytes);
    }
    let corpus = pool.len();
    let seconds = number("FUZZ_SECONDS").unwrap_or(1);
    let mut dice = Dice::new(number("FUZZ_SEED").unwrap_or(1));
    let (begun, mut runs) = (Instant::now(), 0_u64);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let input = mutated(&mut dice, &pool);
        match catch_unwind(AssertUnwindSafe(|| target(&input))) {
            Ok(outcome) => {
                if outcomes.insert(outcome) && pool.len() < POOL_MAX {
                    pool.push(input);
                }
            }
            Err(panic) => {
                campaign.note(format!("kept as {}", keep(name, &input).display()));
                resume_unwind(panic);
            }
        }
        runs += 1;
    }
    campaign.note(format!("a corpus of {corpus}, {runs} mutations"));
    campaign.note(format!("{} outcomes", outcomes.len()));
    Report { outcomes: outcomes.len() }
}

fn keep(name: &str, input: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fuzz");
    std::fs::create_dir_all(&folder).unwrap();
    let digest = organism::ids::Digest::of(input).to_string();
    let path = folder.join(format!("{name}-{}", &digest[digest.len() - 12..]));
    std::fs::write(&path, input).unwrap();
    path
}

fn mutated(dice: &mut Dice, pool: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = pool[dice.below(pool.len())].clone();
    for _ in 0..=dice.below(4) {
        mutate(dice, &mut bytes, pool);
    }
    bytes
}

fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>, pool: &[Vec<u8>]) {
    let at = dice.below(bytes.len() + 1);
    let end = (at + 1 + dice.below(16)).min(bytes.len());
    match dice.below(12) {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
        2 if at < bytes.len() => bytes[at] = dice.below(256) as u8,
        3 => drop(bytes.drain(at..end)),
        4 => bytes.truncate(at),
        5 => {
            let copy = bytes[at..end].to_vec();
            let to = dice.below(bytes.len() + 1);
            bytes.splice(to..to, copy);
        }
        6 => {
            let other = &pool[dice.below(pool.len())];
            let from = dice.below(other.len() + 1);
            let to = (from + dice.below(200)).min(other.len());
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        7..=9 => {
            let other = &pool[dice.below(pool.len())];
            let (theirs, ours) = (word(dice, other), word(dice, bytes));
            bytes.splice(ours, other[theirs].iter().copied());
        }
        _ => {
            let piece = PIECES[dice.below(PIECES.len())];
            let end = if dice.below(2) == 0 { at } else { end };
            bytes.splice(at..end, piece.bytes());
        }
    }
    if bytes.len() > BYTES_MAX.max(pool.iter().map(Vec::len).max().unwrap_or(0)) {
        bytes.truncate(BYTES_MAX);
    }
}

/// Returns the range of a random name or number in `bytes`; an empty range if none is found.
fn word(dice: &mut Dice, bytes: &[u8]) -> Range<usize> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b":_.-".contains(byte);
    let at = dice.below(bytes.len() + 1);
    let start = at + bytes[at..].iter().position(is_part).unwrap_or(bytes.len() - at);
    let end = bytes[start..].iter().position(|byte| !is_part(byte));
    start..end.map_or(bytes.len(), |length| start + length)
}
