//! Totals of the tokens and the money that model calls have used. Each currency has a separate sum,
//! because a changed config can state its prices in another currency.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::spending::{Money, Spending};

/// Amounts of money, with a separate sum for each currency. Amounts are never converted.
///
/// For a failed or lost model call, and for a turn whose note was redacted, the journal states no
/// currency. If all amounts with a known currency have the same currency, the amounts without a
/// currency count as amounts in this currency.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CurrencyTotals {
    by_currency: BTreeMap<String, Money>,
    /// Sum of the amounts without a recorded currency.
    unnamed: Money,
}

/// An amount of money with its currency, if this is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct CurrencyAmount<'c> {
    /// Currency of the amount; `None` if the currency is unknown.
    #[serde(rename = "currency")]
    currency: Option<&'c str>,
    #[serde(rename = "money")]
    money: Money,
}

impl CurrencyTotals {
    /// Returns totals of a single amount. `currency` is `None` if the currency is unknown.
    pub fn of(currency: Option<&str>, amount: Money) -> Self {
        let mut totals = Self::default();
        totals.add(currency, amount);
        totals
    }

    /// Adds an amount. `currency` is `None` if the currency is unknown.
    pub fn add(&mut self, currency: Option<&str>, amount: Money) {
        let sum = match currency {
            Some(currency) => self.by_currency.entry(currency.to_owned()).or_default(),
            None => &mut self.unnamed,
        };
        *sum = sum.plus(amount);
    }

    pub fn add_all(&mut self, other: &Self) {
        for (currency, amount) in &other.by_currency {
            self.add(Some(currency), *amount);
        }
        self.add(None, other.unnamed);
    }

    pub fn is_zero(&self) -> bool {
        self.nominal_sum().is_zero()
    }

    /// Whether the amounts have several currencies, so that they have no common sum.
    pub fn is_mixed(&self) -> bool {
        self.priced().count() > 1
    }

    /// Returns the currency of all amounts; `None` if it is unknown, or if there are several.
    pub fn currency(&self) -> Option<&str> {
        let mut priced = self.priced().map(|(currency, _)| currency);
        let first = priced.next();
        if first.is_some() {
            return first.filter(|_| priced.next().is_none());
        }

        let mut all = self.by_currency.keys();
        let only = all.next()?;
        all.next().is_none().then_some(only.as_str())
    }

    /// Returns the sum of all amounts; `None` if the amounts have several currencies.
    pub fn sum(&self) -> Option<Money> {
        (!self.is_mixed()).then(|| self.nominal_sum())
    }

    /// Returns the sum of all amounts as plain numbers, whatever their currencies. Budgets add
    /// amounts in the same way.
    pub fn nominal_sum(&self) -> Money {
        self.by_currency.values().fold(self.unnamed, |sum, amount| sum.plus(*amount))
    }

    /// Returns each currency whose amount is above zero, with this amount.
    fn priced(&self) -> impl Iterator<Item = (&str, Money)> {
        let all = self.by_currency.iter().map(|(currency, amount)| (currency.as_str(), *amount));
        all.filter(|(_, amount)| !amount.is_zero())
    }

    /// Returns one amount for each currency. If there are several currencies, the amount without a
    /// known currency comes last.
    fn amounts(&self) -> Vec<CurrencyAmount<'_>> {
        if !self.is_mixed() {
            let single = CurrencyAmount { currency: self.currency(), money: self.nominal_sum() };
            let is_empty = single.currency.is_none() && single.money.is_zero();
            return if is_empty { Vec::new() } else { vec![single] };
        }

        let named = self.priced().map(|(currency, money)| (Some(currency), money));
        let unnamed = (!self.unnamed.is_zero()).then_some((None, self.unnamed));
        let all = named.chain(unnamed);
        all.map(|(currency, money)| CurrencyAmount { currency, money }).collect()
    }
}

/// Formats amounts such as `1.20 EUR + 0.40 USD`. Writes no currency if none is known.
impl std::fmt::Display for CurrencyTotals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.is_mixed() {
            write!(f, "{}", self.nominal_sum())?;
            return self.currency().map_or(Ok(()), |currency| write!(f, " {currency}"));
        }

        for (at, CurrencyAmount { currency, money }) in self.amounts().into_iter().enumerate() {
            let plus = if at == 0 { "" } else { " + " };
            write!(f, "{plus}{money} {}", currency.unwrap_or("of unknown currency"))?;
        }
        Ok(())
    }
}

/// Serializes the amounts as a list, with an entry for each currency.
impl Serialize for CurrencyTotals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.amounts())
    }
}

/// Tokens and money that several model calls used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpendingTotals {
    /// Tokens of prompts and answers together.
    pub tokens: u64,
    pub money: CurrencyTotals,
}

impl SpendingTotals {
    /// Adds the spending of one model call. `currency` is `None` if the currency is unknown.
    pub fn add(&mut self, currency: Option<&str>, spent: Spending) {
        self.tokens = self.tokens.saturating_add(spent.tokens);
        self.money.add(currency, spent.money);
    }

    pub fn add_all(&mut self, other: &Self) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.money.add_all(&other.money);
    }

    /// Returns the sum of several totals.
    pub fn sum_of<'t>(all: impl IntoIterator<Item = &'t Self>) -> Self {
        let mut sum = Self::default();
        all.into_iter().for_each(|totals| sum.add_all(totals));
        sum
    }

    /// Whether neither tokens nor money were used.
    pub fn is_zero(&self) -> bool {
        self.tokens == 0 && self.money.is_zero()
    }

    /// Returns the totals as budgets count them: amounts of money are added as plain numbers,
    /// whatever their currencies.
    pub fn nominal(&self) -> Spending {
        Spending { tokens: self.tokens, money: self.money.nominal_sum() }
    }
}

/// The JSON form of [`SpendingTotals`].
#[derive(Serialize)]
struct SpendingForm<'t> {
    #[serde(rename = "tokens")]
    tokens: u64,
    /// Sum of the money; `None` if the money is in several currencies.
    #[serde(rename = "money")]
    money: Option<Money>,
    /// The money in each currency; `None` if the money is not in several currencies.
    #[serde(rename = "costs", skip_serializing_if = "Option::is_none")]
    costs: Option<&'t CurrencyTotals>,
}

impl Serialize for SpendingTotals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let costs = self.money.is_mixed().then_some(&self.money);
        let form = SpendingForm { tokens: self.tokens, money: self.money.sum(), costs };
        form.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const EUR: Option<&str> = Some("EUR");
    const USD: Option<&str> = Some("USD");

    fn totals(amounts: &[(Option<&str>, u64)]) -> CurrencyTotals {
        let mut totals = CurrencyTotals::default();
        for (currency, cents) in amounts {
            totals.add(*currency, Money(cents * 10_000_000));
        }
        totals
    }

    #[test]
    fn amounts_in_different_currencies_are_never_added_up() {
        let check = |amounts: &[(Option<&str>, u64)], text: &str, currency: Option<&str>| {
            let totals = totals(amounts);
            assert_eq!(totals.to_string(), text);
            assert_eq!(totals.currency(), currency, "{text}");
            assert_eq!(totals.sum().is_none(), totals.is_mixed(), "{text}");
        };
        check(&[], "0.00", None);
        check(&[(None, 30)], "0.30", None);
        check(&[(EUR, 0)], "0.00 EUR", EUR);
        check(&[(EUR, 70), (EUR, 50)], "1.20 EUR", EUR);
        check(&[(EUR, 120), (None, 30)], "1.50 EUR", EUR);
        check(&[(EUR, 0), (USD, 40)], "0.40 USD", USD);
        check(&[(EUR, 0), (USD, 0)], "0.00", None);
        check(&[(USD, 40), (EUR, 120)], "1.20 EUR + 0.40 USD", None);
        let unknown = "1.20 EUR + 0.40 USD + 0.30 of unknown currency";
        check(&[(USD, 40), (None, 30), (EUR, 120)], unknown, None);
    }

    #[test]
    fn totals_of_totals_keep_each_currency() {
        let mut all = totals(&[(EUR, 120), (None, 10)]);
        all.add_all(&totals(&[(USD, 40), (EUR, 5)]));
        assert_eq!(all, totals(&[(EUR, 125), (USD, 40), (None, 10)]));
        assert_eq!(all.nominal_sum(), Money(1_750_000_000));
    }

    #[test]
    fn the_json_of_spending_has_a_list_of_costs_if_there_are_several_currencies() {
        let spent =
            |amounts: &[(Option<&str>, u64)]| SpendingTotals { tokens: 7, money: totals(amounts) };
        let json = |spent: &SpendingTotals| serde_json::to_value(spent).unwrap();
        assert_eq!(json(&spent(&[(EUR, 120)])), json!({ "tokens": 7, "money": 1_200_000_000 }));

        let mixed = spent(&[(EUR, 120), (USD, 40)]);
        let costs = json!([
            { "currency": "EUR", "money": 1_200_000_000 },
            { "currency": "USD", "money": 400_000_000 },
        ]);
        assert_eq!(json(&mixed), json!({ "tokens": 7, "money": null, "costs": costs }));
        assert_eq!(json!(totals(&[(None, 0)])), json!([]));
    }
}
