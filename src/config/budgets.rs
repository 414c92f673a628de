//! Whether budgets of money can be kept: whoever may spend must know what a token costs.

use super::members::Declared;
use super::models::Model;
use super::problem::{Code, Problem, Problems};
use super::sections::Sections;
use super::source::Place;

pub(super) fn check(sections: &Sections, problems: &mut Problems) {
    one_currency(&sections.models, problems);
    for member in &sections.members {
        if let Some(budget) = member.money_place.as_ref().or(sections.money.as_ref()) {
            priced(member, budget, sections, problems);
        }
    }
}

/// Amounts are compared, and nobody knows the rate of the day.
fn one_currency(models: &[Model], problems: &mut Problems) {
    let mut priced = models.iter().filter_map(|model| Some((model, model.price()?)));
    let Some((first, price)) = priced.next() else { return };
    for (model, other) in priced.filter(|(_, other)| other.currency != price.currency) {
        let message = format!(
            "`{}` is priced in {}, and `{}` in {}",
            model.name.value, other.currency, first.name.value, price.currency
        );
        let problem = Problem::new(Code::TwoCurrencies, &model.name.place, message);
        problems.push(problem.help("write all prices in one currency"));
    }
}

fn priced(member: &Declared, budget: &Place, sections: &Sections, problems: &mut Problems) {
    let Some(model) = member.agent.as_ref().and_then(|agent| agent.model.as_ref()) else { return };
    let named = |name: &str| sections.models.iter().find(|model| model.name.value == name);
    let Some(model) = named(&model.value.value) else { return };
    let routes = model.routes().iter().filter_map(|route| named(&route.value.value));
    let all = std::iter::once(model).filter(|model| model.routes().is_empty()).chain(routes);
    for model in all.filter(|model| !model.has_price()) {
        let (line, _) = budget.line_and_column();
        let message = format!(
            "`{}` has no price, so the budget of money in line {line} cannot be kept",
            model.name.value
        );
        let problem = Problem::new(Code::PriceMissing, &model.name.place, message);
        problems.push(problem.help(
            "add price_in, price_out and currency; what costs nothing has price_in = 0, say",
        ));
    }
}
