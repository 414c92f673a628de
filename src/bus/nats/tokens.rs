//! Random tokens of attempts, fetched from the operating system in advance.

use std::sync::Mutex;

use rand_core::{OsRng, RngCore as _};

use crate::locks::locked;

/// The random number in the reply subject of an attempt.
pub(super) type AttemptToken = u128;

/// Number of attempt tokens that are made at once, with one call of the operating system's random
/// number generator.
const STOCK: usize = 64;

#[derive(Debug, Default)]
pub(super) struct TokenPool(Mutex<Vec<AttemptToken>>);

impl TokenPool {
    pub fn next(&self) -> AttemptToken {
        let mut stock = locked(&self.0);
        stock.pop().unwrap_or_else(|| {
            let mut bytes = [0; STOCK * size_of::<AttemptToken>()];
            OsRng.fill_bytes(&mut bytes);
            let (tokens, _) = bytes.as_chunks();
            stock.extend(tokens.iter().map(|bytes| AttemptToken::from_le_bytes(*bytes)));
            // The stock was just filled, so it has a token.
            stock.pop().unwrap_or_default()
        })
    }
}
