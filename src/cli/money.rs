//! Parses the amount of money that limits the model calls of a command.

use crate::config::Config;
use crate::envelope::Money;
use crate::organism::unpriced_model;

use super::exit::CommandFailure;

/// Returns the amount of `--money`, the maximum cost of calls to the given models. Returns `None`
/// without the option.
///
/// # Errors
///
/// Returns a usage failure if the amount is negative or not finite, or if one of the models uses
/// the network but has no price.
pub fn amount<'m>(
    given: Option<f64>,
    models: impl IntoIterator<Item = &'m str>,
    config: &'m Config,
) -> anyhow::Result<Option<Money>> {
    let Some(amount) = given else { return Ok(None) };
    let refused = |text: String| Err(CommandFailure::usage(text).into());
    if !(amount.is_finite() && amount >= 0.0) {
        return refused("--money takes an amount of 0 or more, such as 0.50".to_owned());
    }
    if let Some(model) = unpriced_model(models, &config.models) {
        return refused(format!(
            "--money cannot be kept, because the model `{model}` has no price; add price_in, price_out \
             and currency for it, or take --tokens instead"
        ));
    }
    Ok(Some(Money::of_units(amount)))
}
