//! Checks that money budgets can be enforced. If the calls of an agent count towards a money
//! budget, the agent may use only models that have a price.

use std::collections::{BTreeSet, HashSet};

use crate::envelope::Money;
use crate::ids::ListenerName;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::members::DeclaredMember;
use super::models::DeclaredModel;
use super::sections::DeclaredSections;
use super::source_text::SourceRange;

pub(super) fn check(sections: &DeclaredSections, problems: &mut ConfigProblems) {
    check_currency(&sections.models, problems);
    for model in &sections.models {
        windows(model, sections, problems);
    }

    check_members(sections, problems);
}

/// Returns one note for each money budget of zero, in the section `[limits]` or in the settings of
/// an agent, and one for each model of which only some routes have a price.
pub(super) fn notes(sections: &DeclaredSections) -> Vec<String> {
    let limits = [
        ("[limits]: `money`".to_owned(), sections.limits.money),
        ("[limits]: `per_request_money`".to_owned(), sections.limits.per_request_money),
    ];
    let members = sections.members.iter();
    let members =
        members.map(|member| (format!("{}: `money`", member.name.value), member.budget.money));
    let budgets = limits.into_iter().chain(members);
    let zeros = budgets.filter_map(|(key, money)| note_of_zero(&key, money));
    zeros.chain(sections.models.iter().filter_map(|model| partly_priced(model, sections))).collect()
}

/// Returns a note if some routes of `model` have a price and others have none, because the sums of
/// costs then lack the calls that the others answer.
fn partly_priced(model: &DeclaredModel, sections: &DeclaredSections) -> Option<String> {
    let named = |name: &str| sections.models.iter().find(|model| model.name.value == name);
    let routes = model.routes().iter().filter_map(|route| named(&route.value.value));
    let (priced, unpriced): (Vec<_>, Vec<_>) = routes.partition(|route| route.has_price());
    if priced.is_empty() {
        return None;
    }

    let unpriced = unpriced.first()?;
    Some(format!(
        "{}: its route `{}` has no price, and others have one, so the costs of its calls are not \
         complete; what costs nothing has price_in = 0, say",
        model.name.value, unpriced.name.value
    ))
}

/// Returns a note if a budget of money is zero, because such a budget permits only calls that cost
/// nothing. `key` names the budget.
pub(super) fn note_of_zero(key: &str, money: Option<Money>) -> Option<String> {
    let is_zero = money == Some(Money(0));
    is_zero.then(|| format!("{key} is 0, so only models whose prices are 0 can be called"))
}

/// The money budget of a workflow, or of a goal of a workflow.
pub(super) struct WorkflowBudget<'a> {
    pub place: &'a SourceRange,
    /// The listeners that can be called beneath the workflow or the goal.
    pub beneath: BTreeSet<&'a ListenerName>,
}

/// Checks the money budgets of workflows and goals. Does not report a model that [`check`] already
/// reports.
pub(super) fn check_workflows(
    budgets: &[WorkflowBudget<'_>],
    sections: &DeclaredSections,
    problems: &mut ConfigProblems,
) {
    let mut reported = check_members(sections, &mut ConfigProblems::default());
    for budget in budgets {
        let is_beneath = |member: &&DeclaredMember| budget.beneath.contains(&member.name.value);
        for member in sections.members.iter().filter(is_beneath) {
            priced(member, budget.place, sections, &mut reported, problems);
        }
    }
}

/// Checks the money budgets of the organism and of its agents. Returns the names of the reported
/// models.
fn check_members<'s>(
    sections: &'s DeclaredSections,
    problems: &mut ConfigProblems,
) -> HashSet<&'s str> {
    let mut reported = HashSet::new();
    for member in &sections.members {
        if let Some(budget) = member.money_place.as_ref().or(sections.money.as_ref()) {
            priced(member, budget, sections, &mut reported, problems);
        }
    }
    reported
}

/// Reports `model` if its longest answer would fill its context window and leave no room for a
/// prompt. If `model` is a router, which passes calls on to other models, also reports each of the
/// other models whose longest answer would fill the router's window.
fn windows(model: &DeclaredModel, sections: &DeclaredSections, problems: &mut ConfigProblems) {
    let Some((window, place)) = model.window() else { return };
    let named = |name: &str| sections.models.iter().find(|model| model.name.value == name);
    let routes = model.routes().iter().filter_map(|route| named(&route.value.value));

    for route in std::iter::once(model).chain(routes) {
        let Some(answer) = route.answer().filter(|answer| *answer >= window) else { continue };
        let whose = &route.name.value;
        let message =
            format!("answers of `{whose}`, of {answer} tokens, leave no room for a prompt");
        let problem = ConfigProblem::new(ProblemCode::OutOfRange, place, message);
        problems.push(
            problem.help(format!("context_window is {window}: write more, or less max_tokens")),
        );
    }
}

/// Checks that all prices have the same currency, because amounts in different currencies cannot be
/// compared.
fn check_currency(models: &[DeclaredModel], problems: &mut ConfigProblems) {
    let mut priced = models.iter().filter_map(|model| Some((model, model.price()?)));
    let Some((first, price)) = priced.next() else { return };
    for (model, other) in priced.filter(|(_, other)| other.currency != price.currency) {
        let message = format!(
            "`{}` is priced in {}, and `{}` in {}",
            model.name.value, other.currency, first.name.value, price.currency
        );
        let problem = ConfigProblem::new(ProblemCode::TwoCurrencies, &model.name.place, message);
        problems.push(problem.help("write all prices in one currency"));
    }
}

/// Returns the models without a price that the agent `member` may use. Returns an empty list if
/// `member` is no agent.
pub(super) fn unpriced_models<'s>(
    member: &DeclaredMember,
    sections: &'s DeclaredSections,
) -> Vec<&'s DeclaredModel> {
    let named = |name: &str| sections.models.iter().find(|model| model.name.value == name);
    let model = member.agent.as_ref().and_then(|agent| agent.model.as_ref());
    let Some(model) = model.and_then(|model| named(&model.value.value)) else {
        return Vec::new();
    };
    let routes = model.routes().iter().filter_map(|route| named(&route.value.value));
    let all = std::iter::once(model).filter(|model| model.routes().is_empty()).chain(routes);
    all.filter(|model| !model.has_price()).collect()
}

/// Reports each model that the agent `member` may use and that has no price, because a budget of
/// money cannot be enforced for this model. Skips the models in `reported`, and adds the newly
/// reported ones to `reported`.
fn priced<'s>(
    member: &DeclaredMember,
    budget: &SourceRange,
    sections: &'s DeclaredSections,
    reported: &mut HashSet<&'s str>,
    problems: &mut ConfigProblems,
) {
    for model in unpriced_models(member, sections) {
        if !reported.insert(&model.name.value) {
            continue;
        }
        let (line, _) = budget.line_and_column();
        let place = if model.name.place.source.name() == budget.source.name() {
            format!("line {line}")
        } else {
            format!("`{}`", budget.source.name())
        };
        let message = format!(
            "`{}` has no price, so the budget of money in {place} cannot be kept",
            model.name.value
        );
        let problem = ConfigProblem::new(ProblemCode::PriceMissing, &model.name.place, message);
        problems.push(problem.help(
            "add price_in, price_out and currency; what costs nothing has price_in = 0, say",
        ));
    }
}
