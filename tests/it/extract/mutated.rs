//! Mutations of the corpus. In every mutated turn, no value merges two elements, and no action is
//! taken from a draft, code, a quotation or an unknown element.
//!
//! `EXTRACT_MUTANTS` sets the number of mutants. `EXTRACT_SEED` sets the seed, which determines all
//! mutants.

use std::sync::Arc;

use organism::cli::debug::ExtractTurn;
use organism::xml::element::{Element, Node};
use organism::xml::extract::{ActionGrammar, Extraction};
use serde_json::Value as Json;

use super::chunks::{Numbers, extract};
use super::corpus::CASES;
use crate::campaign::Campaign;

const SEED: &str = "20261121";
const MUTANTS: usize = 10_000;
const TURN_BYTES_MAX: usize = 4_000;

/// A turn of the corpus, and its known actions.
struct Original {
    id: String,
    grammar: Arc<ActionGrammar>,
    text: String,
    actions: Vec<String>,
}

/// A mutated turn. `inert` is the range of its text from which no action may be taken.
struct Mutant {
    text: String,
    inert: Option<std::ops::Range<usize>>,
}

type Operator = fn(&Original, &mut Numbers) -> Option<Mutant>;

const OPERATORS: [(&str, Operator); 10] = [
    ("delete a part", delete_part),
    ("repeat a part", repeat_part),
    ("move a part", move_part),
    ("delete a tag", delete_tag),
    ("repeat a tag", repeat_tag),
    ("insert markup", insert_markup),
    ("cut the turn", cut_turn),
    // Violations of the rules of extraction.
    ("draft before a close of reasoning", draft_before_close),
    ("hide an action", hide_action),
    ("leave a value open", leave_value_open),
];

fn originals() -> Vec<Original> {
    let original = |line: &str| {
        let case: Json = serde_json::from_str(line).unwrap();
        let text = case["text"].as_str()?.to_owned();
        let turn: ExtractTurn = serde_json::from_value(case.clone()).unwrap();
        let grammar = Arc::new(turn.grammar());
        let extraction = extract(&grammar, text.as_bytes(), &[]);
        let actions = extraction.actions().map(|action| text[action.source.clone()].to_owned());
        let actions = actions.collect();
        let id = case["id"].as_str().unwrap().to_owned();
        (text.len() <= TURN_BYTES_MAX).then_some(Original { id, grammar, text, actions })
    };
    CASES.lines().filter_map(original).collect()
}

fn boundary(text: &str, numbers: &mut Numbers) -> usize {
    let mut at = numbers.below(text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn part(text: &str, numbers: &mut Numbers) -> std::ops::Range<usize> {
    let (one, other) = (boundary(text, numbers), boundary(text, numbers));
    one.min(other)..one.max(other)
}

fn tag(text: &str, numbers: &mut Numbers) -> Option<std::ops::Range<usize>> {
    let starts: Vec<usize> = text.match_indices('<').map(|(at, _)| at).collect();
    let start = *starts.get(numbers.below(starts.len().max(1)))?;
    let end = text[start..].find('>')? + start + 1;
    Some(start..end)
}

fn plain(text: String) -> Option<Mutant> {
    Some(Mutant { text, inert: None })
}

fn without(text: &str, part: std::ops::Range<usize>) -> String {
    [&text[..part.start], &text[part.end..]].concat()
}

fn with(text: &str, at: usize, inserted: &str) -> String {
    [&text[..at], inserted, &text[at..]].concat()
}

fn delete_part(original: &Original, numbers: &mut Numbers) -> Option<Mutant> {
    plain(without(&original.text, part(&original.text, numbers)))
}

fn repeat_part(original: &Original, numbers: &mut Numbers) -> Option<Mutant> {
    let part = part(&original.text, numbers);
    plain(with(&original.text, part.end, &original.text[part.clone()]))
}

fn move_part(original: &Original, numbers: &mut Numbers) -> Option<Mutant> {
    let part = part(&original.text, numbers);
    let rest = without(&original.text, part.clone());
    let at = boundary(&rest, numbers);
    plain(with(&rest, at, &original.text[part]))
}

fn delete_tag(original: &Original, numbers: &mut Numbers) -> Option<Mutant> {
    plain(without(&original.text, tag(&original.text, numbers)?))
}

fn repeat_tag(original: &Original, numbers: &mut Numbers) -> Option<Mutant> {
    let tag = tag(&original.text, numbers)?;
    let at = boundary(&original.text, numbers);
    plain(with(&original.text, at, &original.text[tag]))
}

fn insert_markup(original: &Original, numbers: &mut Numbers) -> Option<Mutant> {
    const MARKUP: [&str; 18] = [
        "<",
        ">",
        "</",
        "/>",
        "`",
        "```\n",
        "\n> ",
        "\"",
        "“",
        "<think>",
        "</think>",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "&amp;",
        "<b>",
        "</b>",
    ];
    let at = boundary(&original.text, numbers);
    plain(with(&original.text, at, MARKUP[numbers.below(MARKUP.len())]))
}

fn cut_turn(original: &Original, numbers: &mut Numbers) -> Option<Mutant> {
    plain(original.text[..boundary(&original.text, numbers)].to_owned())
}

/// Puts a draft with an action before a closing tag of reasoning, as if the prompt had opened the
/// reasoning.
fn draft_before_close(original: &Original, numbers: &mut Numbers) -> Option<Mutant> {
    let action = original.actions.get(numbers.below(original.actions.len().max(1)))?;
    let whole = [
        format!("Perhaps {action} or not."),
        format!("Perhaps {}", &action[..boundary(action, numbers)]),
        format!("{action}\n{action}"),
    ];
    let draft = &whole[numbers.below(whole.len())];
    if draft.contains(['`', '~', '"', '\'', '“']) || names_reasoning(draft) || draft.contains("<!")
    {
        return None;
    }
    let close = ["</think>", "</THINK>", "</thinking>", "</thought >", "</reasoning>"];
    let close = close[numbers.below(close.len())];
    let begun = format!("{draft}{close}");
    let quoting = format!("<think>I end with `</think>`. {draft}</think>");
    let start = if numbers.below(2) == 0 { begun } else { quoting };
    let inert = Some(0..start.len());
    Some(Mutant { text: format!("{start}\n{}", original.text), inert })
}

/// Puts an action before all other text, in a context where no action is permitted.
fn hide_action(original: &Original, numbers: &mut Numbers) -> Option<Mutant> {
    let action = original.actions.get(numbers.below(original.actions.len().max(1)))?;
    let has_code = action.contains(['`', '~']);
    if has_code || names_reasoning(&original.text) {
        return None;
    }
    let line = action.replace('\n', "\n> ");
    let around = boundary(action, numbers);
    let hidden = match numbers.below(7) {
        0 => format!("```\n{action}\n```\n"),
        1 => format!("“{action}”"),
        2 => format!("'{action} {action}'"),
        3 => format!("> {line}\n"),
        4 => format!("<no_such_thing x=\"1\">{action}</no_such_thing>"),
        5 => format!("<no_such_thing><b>{action}</b>\n{action}</no_such_thing>"),
        _ => format!("<no_such_thing>{}{action}</no_such_thing>", &action[..around]),
    };
    let inert = Some(0..hidden.len());
    Some(Mutant { text: format!("{hidden}\n{}", original.text), inert })
}

/// Removes a close tag from an action of the turn, and appends the action again, either whole or
/// without one of its other tags.
fn leave_value_open(original: &Original, numbers: &mut Numbers) -> Option<Mutant> {
    let action = original.actions.get(numbers.below(original.actions.len().max(1)))?;
    let closes: Vec<usize> = action.match_indices("</").map(|(at, _)| at).collect();
    let at = *closes.get(numbers.below(closes.len().max(1)))?;
    let end = action[at..].find('>')? + at + 1;
    let open = without(action, at..end);
    let opens: Vec<usize> = action.match_indices('<').map(|(at, _)| at).collect();
    let again = match numbers.below(2) {
        0 => action.clone(),
        _ => {
            let lost = *opens.get(numbers.below(opens.len()))?;
            let end = action[lost..].find('>')? + lost + 1;
            without(action, lost..end)
        }
    };
    plain(format!("{open}\n{again}\n{}", original.text))
}

fn names_reasoning(text: &str) -> bool {
    let text = text.to_lowercase();
    ["think", "thought", "reasoning"].iter().any(|name| text.contains(name))
}

/// Adds the values of an action to `found`, each with the names of the elements around it.
fn values<'e>(
    element: &'e Element,
    around: &mut Vec<&'e str>,
    found: &mut Vec<(Vec<&'e str>, &'e str)>,
) {
    if let [Node::Text(text)] = element.content.as_slice() {
        found.push((around.clone(), text));
        return;
    }
    around.push(element.local_name());
    element.children().for_each(|child| values(child, around, found));
    around.pop();
}

/// Whether a value contains an unmatched close tag of an enclosing element, and later an open tag
/// of an enclosing element. Computed from names alone, independently of the extractor.
fn is_merged(around: &[&str], value: &str) -> bool {
    let mut open = vec![0_usize; around.len()];
    let mut is_left = false;
    for (at, _) in value.match_indices('<') {
        let behind = &value[at + 1..];
        let (name, closes) = match behind.strip_prefix('/') {
            Some(name) => (name, true),
            None => (behind, false),
        };
        let is_end = |c: char| c.is_ascii_whitespace() || c == '>';
        let is_this =
            |known: &&str| name.strip_prefix(*known).is_some_and(|r| r.starts_with(is_end));
        let Some(index) = around.iter().position(is_this) else { continue };
        match (closes, open[index]) {
            (true, 0) => is_left = true,
            (true, _) => open[index] -= 1,
            (false, _) if is_left => return true,
            (false, _) => open[index] += 1,
        }
    }
    false
}

/// Returns the defect in the extraction of a mutant; `None` if the extraction is correct.
fn fault(mutant: &Mutant, extraction: &Extraction) -> Option<String> {
    for action in extraction.actions() {
        let inside = mutant.inert.as_ref().is_some_and(|inert| action.source.start < inert.end);
        if inside {
            return Some(format!("acted on {:?}", &mutant.text[action.source.clone()]));
        }
        let source = &mutant.text[action.source.clone()];
        let mut found = Vec::new();
        values(&action.element, &mut Vec::new(), &mut found);
        for (around, value) in found {
            // An escaped or CDATA value may contain any tags.
            if source.contains(value) && !source.contains("<![CDATA[") && is_merged(&around, value)
            {
                return Some(format!("merged elements in {value:?}"));
            }
        }
    }
    None
}

// R1 R2 R7 R9 R10 R20
#[test]
fn no_mutated_turn_acts_on_a_draft_a_quotation_or_the_inside_of_something_else() {
    let seed = std::env::var("EXTRACT_SEED").unwrap_or_else(|_| SEED.to_owned());
    let torture = std::env::var_os("ORGANISM_TORTURE").is_some();
    let wanted = match std::env::var("EXTRACT_MUTANTS") {
        Ok(number) => number.parse().unwrap(),
        Err(_) if torture => 1_000_000,
        Err(_) => MUTANTS,
    };
    let originals = originals();
    let mut numbers = Numbers::new(&seed);
    let mut tried = [0_usize; OPERATORS.len()];
    let mut made = 0;
    while made < wanted {
        let original = &originals[numbers.below(originals.len())];
        let chosen = numbers.below(OPERATORS.len());
        let (name, operator) = OPERATORS[chosen];
        let Some(mutant) = operator(original, &mut numbers) else { continue };
        made += 1;
        tried[chosen] += 1;

        let text = mutant.text.as_bytes();
        let whole = extract(&original.grammar, text, &[]);
        let cuts = [numbers.below(text.len() + 1), numbers.below(text.len() + 1)];
        let mut cuts = cuts.to_vec();
        cuts.sort_unstable();
        let context =
            format!("seed {seed}, mutant {made}: {name} of {}\n{}", original.id, mutant.text);
        let pieces = extract(&original.grammar, text, &cuts);
        assert_eq!(whole, pieces, "cut at {cuts:?}: {context}");
        if let Some(fault) = fault(&mutant, &whole) {
            panic!("{fault}: {context}");
        }
    }
    let mut campaign = Campaign::new("mutated turns");
    campaign.note(format!("seed {seed}, {made} mutants"));
    for ((name, _), tried) in OPERATORS.iter().zip(tried) {
        assert!(tried * 100 > made, "{name} made only {tried} of {made} mutants");
        campaign.note(format!("{name} {tried}"));
    }
}
