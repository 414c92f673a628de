//! What model calls take: tokens, and money where the config says what tokens cost.

use serde::{Deserialize, Serialize};

/// An amount of the config's currency, in billionths of its unit, so that single tokens count.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Money(pub u64);

impl Money {
    const UNIT: f64 = 1e9;

    /// Rounded up from a thousandth of a billionth; what is less than nothing, or no number, is
    /// nothing.
    pub fn of_units(units: f64) -> Self {
        // What is left of a sum of binary fractions is no amount. A cast of a float saturates.
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

/// Such as `0.0042` or `5.00`: as many digits as it has, at least two.
impl std::fmt::Display for Money {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (units, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let digits = format!("{rest:09}");
        let (cents, fine) = digits.split_at(2);
        write!(f, "{units}.{cents}{}", fine.trim_end_matches('0'))
    }
}

/// What a model call took, or may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spending {
    /// Of prompt and answer together.
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
}

/// What a model call may take with its next request, reserved before that request leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// With everything that earlier requests of the same attempt took.
    pub spending: Spending,
    /// Whether the prompt's tokens were counted; otherwise it has fewer.
    pub counted: bool,
    /// Number of the request in its attempt, from 1: one that is reserved twice leaves once. 0 where
    /// its sender does not count.
    pub request: u32,
    /// Where the request goes, if requests to there are limited.
    pub route: Option<RouteLimit>,
}

/// How many requests one model call may make on one route, over all attempts of its call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteLimit {
    #[serde(rename = "route")]
    pub route: String,
    #[serde(rename = "most")]
    pub most: u32,
}

/// Why a request of a model call must not leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotReserved {
    /// A budget has no room for it.
    Spent(String),
    /// The model call has made as many requests on this route as it may.
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
