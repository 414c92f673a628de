//! The cost of model calls: tokens and, if the config has prices, money.

use serde::{Deserialize, Serialize};

use crate::limits;

/// An amount of money, in billionths of the unit of the config's currency. A billionth is fine
/// enough for the price of a single token.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Money(pub u64);

impl Money {
    const UNIT: f64 = 1e9;

    /// Converts an amount in currency units, rounded up. Negative amounts and NaN become zero.
    pub fn of_units(units: f64) -> Self {
        // The subtraction absorbs the rounding error of binary fractions. The cast saturates.
        Self((units * Self::UNIT - 1e-3).ceil() as u64)
    }

    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Formats the amount with all significant decimals and at least two, such as `0.0042` or `5.00`.
impl std::fmt::Display for Money {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = self.0 / 1_000_000_000;
        let rest = self.0 % 1_000_000_000;
        let digits = format!("{rest:09}");
        let (cents, fine) = digits.split_at(2);
        write!(f, "{units}.{cents}{}", fine.trim_end_matches('0'))
    }
}

/// Tokens and money that a model call used, or may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spending {
    /// Tokens of prompt and answer together.
    #[serde(rename = "tokens")]
    pub tokens: u64,
    #[serde(rename = "money")]
    pub money: Money,
}

impl Spending {
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        let tokens = self.tokens.saturating_add(other.tokens);
        Self { tokens, money: self.money.plus(other.money) }
    }

    /// Whether one attempt can use this amount. Hosts on other machines report amounts, and the sums
    /// of larger ones would overflow.
    pub const fn is_possible(self) -> bool {
        self.tokens <= limits::ATTEMPT_TOKENS_MAX && self.money.0 <= limits::ATTEMPT_MONEY_NANO_MAX
    }
}

/// A reservation of the maximum cost of the next request to a model. The pump records the
/// reservation before the request is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Maximum tokens and money that the attempt will have used after this request: the actual use
    /// of its earlier requests, plus the maximum cost of this request.
    pub spending: Spending,
    /// Whether the tokens of the prompt were counted exactly. If false, their number is an upper
    /// estimate.
    pub counted: bool,
    /// Number of this request in its attempt, counted from 1; 0 if the sender does not number its
    /// requests. The pump uses the number to recognize a reservation that arrives twice.
    pub request: u32,
    /// Limit for the number of requests on the route of this request; `None` if the config sets no
    /// such limit.
    pub route: Option<RouteLimit>,
}

/// Maximum number of requests that one model call may send on one route, over all attempts of the
/// call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteLimit {
    #[serde(rename = "route")]
    pub route: String,
    #[serde(rename = "most")]
    pub most: u32,
}

/// Why a request of a model call must not be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotReserved {
    /// A budget has too little left for the request.
    Spent(String),
    /// The model call has used up its requests on this route.
    Exhausted(String),
}

impl NotReserved {
    pub fn detail(&self) -> &str {
        match self {
            Self::Spent(detail) | Self::Exhausted(detail) => detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_counted_in_billionths_and_shown_in_units() {
        let shown = |units: f64| Money::of_units(units).to_string();
        assert_eq!(shown(5.0), "5.00");
        assert_eq!(shown(0.004_2), "0.0042");
        assert_eq!(shown(1e-10), "0.000000001", "never for nothing");
        assert_eq!(shown(1_000.0 * 3e-6 + 100.0 * 15e-6), "0.0045");
        assert_eq!(shown(0.0145), "0.0145");
        assert_eq!((shown(-1.0), shown(f64::NAN)), ("0.00".to_owned(), "0.00".to_owned()));
        assert_eq!(Money::of_units(f64::MAX).plus(Money(1)), Money(u64::MAX));
    }
}
