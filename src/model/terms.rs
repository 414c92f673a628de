//! Terms of a model: context window, length of answers, price. If a model has several routes, any
//! of them may answer, so the smallest window and the highest price apply.

use serde::Serialize;

use super::answer::{ModelRoute, TokenUsage};
use super::request::ModelRequest;
use super::tokens::{self, RequestSize, TokenizerFamily};
use crate::envelope::{Money, Spending};
use crate::limits;

/// Prices of a route per million tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenPrice {
    /// Price of one million prompt tokens.
    #[serde(rename = "input")]
    pub input: f64,
    /// Price of one million tokens of answers.
    #[serde(rename = "output")]
    pub output: f64,
    /// Price of one million prompt tokens that the provider read from its cache. If `None`, `input`
    /// applies.
    #[serde(rename = "cached")]
    pub cached: Option<f64>,
    /// Price of one million prompt tokens that the provider wrote to its cache. If `None`, `input`
    /// applies.
    #[serde(rename = "cache_written")]
    pub cache_written: Option<f64>,
    /// Currency of all these prices, such as `USD`.
    #[serde(rename = "currency")]
    pub currency: String,
}

impl TokenPrice {
    fn of(&self, usage: &TokenUsage) -> Money {
        let plain = usage.tokens_in.saturating_sub(usage.cached + usage.cache_written);
        let parts = [
            (plain, self.input),
            (usage.cached, self.cached.unwrap_or(self.input)),
            (usage.cache_written, self.cache_written.unwrap_or(self.input)),
            (usage.tokens_out, self.output),
        ];
        // A price for a million tokens is the price of one token in millionths of the currency's
        // unit.
        let millionths: f64 = parts.iter().map(|(tokens, price)| *tokens as f64 * price).sum();
        Money::of_units(millionths / 1e6)
    }
}

/// Price and token limits of one route of a model. A route is a provider, together with its name
/// for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteTerms {
    pub route: ModelRoute,
    /// Maximum tokens of prompt and answer together; `None` if the config states none.
    pub context_window: Option<u64>,
    /// Maximum tokens of one answer, or `None` if unbounded.
    pub max_tokens: Option<u32>,
    pub price: Option<TokenPrice>,
}

/// Prices and token limits of a model, for each route over which the model can be called.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelTerms(Vec<RouteTerms>);

impl ModelTerms {
    pub fn new(routes: Vec<RouteTerms>) -> Self {
        Self(routes)
    }

    pub fn routes(&self) -> &[RouteTerms] {
        &self.0
    }

    /// Returns the maximum tokens of prompt and answer together, or `None` if the config states no
    /// context window.
    pub fn window(&self) -> Option<u64> {
        self.0.iter().filter_map(|term| term.context_window).min()
    }

    /// Returns the maximum tokens of an answer: the highest maximum of all routes of the model. If
    /// the config sets no maximum for a route, the maximum of the route is
    /// `limits::ANSWER_TOKENS_DEFAULT` or half of the context window, whichever is smaller.
    pub fn answer(&self) -> u64 {
        let unbounded = self.unbounded();
        let longest = self.0.iter().map(|term| term.max_tokens.map_or(unbounded, u64::from));
        longest.max().unwrap_or(unbounded)
    }

    /// Returns the maximum tokens of an answer on a route for which the config sets no maximum:
    /// `limits::ANSWER_TOKENS_DEFAULT`, or half of the context window if that is smaller. Returns
    /// `None` if the config sets a maximum for every route, or states no context window.
    pub fn bound(&self) -> Option<u32> {
        self.window()?;
        let open = self.0.iter().any(|term| term.max_tokens.is_none());
        open.then(|| u32::try_from(self.unbounded()).unwrap_or(u32::MAX))
    }

    fn unbounded(&self) -> u64 {
        let longest = u64::from(limits::ANSWER_TOKENS_DEFAULT);
        self.window().map_or(longest, |window| longest.min(window / 2))
    }

    /// Returns the maximum tokens of a prompt, or `None` if the config states no context window.
    pub fn room(&self) -> Option<u64> {
        self.window().map(|window| window.saturating_sub(self.answer()))
    }

    /// Returns the size of a request in tokens. If the routes use different tokenizers, returns the
    /// largest size. `notice` is a text at the end of this request, which later requests do not
    /// repeat. The tokens of the notice count as [`RequestSize::schema`].
    pub fn size(&self, request: &ModelRequest, notice: Option<&str>) -> RequestSize {
        let sizes = self.families().into_iter().map(|family| family.size_with(request, notice));
        sizes.max_by_key(RequestSize::total).unwrap_or_else(|| TokenizerFamily::Other.size(request))
    }

    pub fn count(&self, text: &str) -> u64 {
        self.families().into_iter().map(|family| family.count(text)).max().unwrap_or_default()
    }

    fn families(&self) -> Vec<TokenizerFamily> {
        let mut families: Vec<_> =
            self.0.iter().map(|term| TokenizerFamily::of(&term.route.model)).collect();
        families.sort_by_key(|family| *family as u8);
        families.dedup();
        if families.is_empty() {
            families.push(TokenizerFamily::Other);
        }

        families
    }

    /// Returns the maximum cost of a call whose prompt has `tokens` tokens.
    pub fn most(&self, tokens: u64) -> Spending {
        let usage =
            TokenUsage { tokens_in: tokens, tokens_out: self.answer(), ..TokenUsage::default() };
        // Tokens that are written to the cache may be more expensive than others.
        let written = TokenUsage { cache_written: tokens, ..usage };
        let prices = self.0.iter().filter_map(|term| term.price.as_ref());
        let money = prices.map(|price| price.of(&usage).max(price.of(&written))).max();
        Spending { tokens: tokens.saturating_add(self.answer()), money: money.unwrap_or_default() }
    }

    /// Returns an upper bound of a call's cost, computed from the request's size in bytes without
    /// counting tokens.
    pub fn at_most(&self, request: &ModelRequest) -> Spending {
        self.most(tokens::at_most(request))
    }

    /// Returns the cost of an answer of `route`. `name` is the router's name for the route, which
    /// distinguishes routes with the same provider and model; `None` if it is unknown. If several
    /// routes may have answered, the highest price applies. Returns `None` if no route that may
    /// have answered has a price.
    pub fn cost(
        &self,
        route: &ModelRoute,
        name: Option<&str>,
        usage: &TokenUsage,
    ) -> Option<Money> {
        // Two routes may have the same provider and model but different addresses.
        let own = self.0.iter().filter(|term| term.route == *route);
        let of = |term: &RouteTerms| term.price.as_ref().map(|price| price.of(usage));
        let is_named = |place: usize| name.is_some_and(|name| route.router_name(place) == name);
        if let Some((_, named)) = own.clone().enumerate().find(|(place, _)| is_named(*place)) {
            return of(named);
        }

        match own.clone().next() {
            Some(_) => own.filter_map(of).max(),
            None => self.0.iter().filter_map(of).max(),
        }
    }

    /// Returns the currency of all routes, such as `USD`; `None` if no route has a price.
    pub fn currency(&self) -> Option<&str> {
        self.0.iter().find_map(|term| Some(term.price.as_ref()?.currency.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(model: &str, window: Option<u64>, price: Option<(f64, f64)>) -> RouteTerms {
        let price = price.map(|(input, output)| TokenPrice {
            input,
            output,
            cached: Some(input / 10.0),
            cache_written: None,
            currency: "USD".to_owned(),
        });
        let route = ModelRoute { provider: "openai".to_owned(), model: model.to_owned() };
        RouteTerms { route, context_window: window, max_tokens: Some(1_000), price }
    }

    #[test]
    fn of_several_routes_the_narrowest_and_the_dearest_count() {
        let cheap = term("gpt-4o", Some(16_000), Some((1.0, 2.0)));
        let dear = term("claude", Some(200_000), Some((3.0, 15.0)));
        let namesake = term("gpt-4o", Some(16_000), Some((0.0, 0.0)));
        let terms = ModelTerms::new(vec![namesake, cheap.clone(), dear]);
        assert_eq!((terms.window(), terms.room()), (Some(16_000), Some(15_000)));
        let most = terms.most(10_000);
        assert_eq!((most.tokens, most.money.to_string().as_str()), (11_000, "0.045"));
        let usage = TokenUsage {
            tokens_in: 10_000,
            tokens_out: 1_000,
            cached: 9_000,
            ..TokenUsage::default()
        };

        assert_eq!(terms.cost(&cheap.route, None, &usage).unwrap().to_string(), "0.0039");
        let stranger = ModelRoute { provider: "x".to_owned(), model: "y".to_owned() };
        let cost = terms.cost(&stranger, Some("x/y"), &usage);
        assert_eq!(cost.unwrap().to_string(), "0.0207", "at the dearest price");
    }

    #[test]
    fn of_routes_with_the_same_name_the_one_that_answered_sets_the_price() {
        let free = term("gpt-4o", None, Some((0.0, 0.0)));
        let unpriced = term("gpt-4o", None, None);
        let paid = term("gpt-4o", None, Some((1.0, 2.0)));
        let route = free.route.clone();
        let claude = term("claude", None, Some((3.0, 15.0)));
        let terms = ModelTerms::new(vec![free, claude, paid, unpriced]);
        let usage = TokenUsage { tokens_in: 1_000, tokens_out: 100, ..TokenUsage::default() };
        let cost = |name: &str| Some(terms.cost(&route, Some(name), &usage)?.to_string());
        assert_eq!(cost("openai/gpt-4o").as_deref(), Some("0.00"));
        assert_eq!(cost("openai/gpt-4o#2").as_deref(), Some("0.0012"));
        assert_eq!(cost("openai/gpt-4o#3"), None, "a route without a price");
    }

    #[test]
    fn a_small_window_whose_answers_nobody_bounded_is_shared() {
        let mut small = term("llama", Some(4_096), None);
        small.max_tokens = None;
        let terms = ModelTerms::new(vec![small]);
        assert_eq!((terms.answer(), terms.room()), (2_048, Some(2_048)));
        assert_eq!(terms.bound(), Some(2_048), "and the answer is bounded so");
        let wide = term("gpt-4o", Some(16_000), None);
        let terms = ModelTerms::new(vec![wide.clone(), term("b", None, None)]);
        assert_eq!((terms.answer(), terms.bound()), (1_000, None));
        let open = RouteTerms { max_tokens: None, ..term("b", None, None) };
        let terms = ModelTerms::new(vec![wide, open]);
        assert_eq!((terms.answer(), terms.bound()), (8_000, Some(8_000)), "one is unbounded");
        assert_eq!(ModelTerms::default().room(), None);
        assert_eq!(ModelTerms::default().answer(), u64::from(limits::ANSWER_TOKENS_DEFAULT));
    }
}
