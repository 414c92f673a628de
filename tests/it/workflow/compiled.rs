//! Compiled forms of workflows. A compiled form that is read back gives the original definition.

use std::time::Duration;

use organism::contract::Budget;
use organism::envelope::Money;
use organism::ids::PayloadName;
use organism::schema::{FieldCount, ShortField, ShortType};
use organism::workflow::*;

use super::script::{agent, goal, id, name, placed, played, text, workflow};
use super::{definition, loaded};
use crate::organism::kill::torture;

/// Generates random definitions from a seed.
struct DefinitionGenerator(u64);

impl DefinitionGenerator {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    fn number(&mut self) -> u32 {
        1 + u32::try_from(self.below(4)).unwrap()
    }

    /// A text with characters that XML treats specially.
    fn text(&mut self) -> Placed<String> {
        let texts = [
            "",
            "draft",
            "  two\n lines\t\n",
            "\r\n",
            "a & b < c > \"d\" 'e' ]]> <!-- f -->",
            "</prompt><goal id=\"x\"/>",
            "caf\u{e9} \u{1f600} \u{2028} \u{1} \u{ffff}",
            "{{input/topic}}",
        ];
        let at = usize::try_from(self.below(texts.len() as u64)).unwrap();
        text(texts[at])
    }

    fn expression(&mut self) -> Placed<String> {
        let expressions = ["true()", "false()", "input/topic = 'x'", "count(input/*) > 1"];
        let at = usize::try_from(self.below(expressions.len() as u64)).unwrap();
        text(expressions[at])
    }

    fn budget(&mut self) -> Budget {
        Budget {
            tokens: self.maybe(|all| all.below(9)),
            money: self.maybe(|all| Money(all.below(7))),
        }
    }

    fn timeout(&mut self) -> Option<Duration> {
        self.maybe(|all| Duration::from_millis(all.below(100_000)))
    }

    fn types(&mut self, depth: u32) -> ShortType {
        match self.below(if depth == 0 { 5 } else { 7 }) {
            0 => ShortType::Text,
            1 => ShortType::Integer,
            2 => ShortType::Decimal,
            3 => ShortType::Boolean,
            4 => ShortType::Date,
            5 => ShortType::Words(vec!["ship".to_owned(), "a < b".to_owned()]),
            _ => {
                let occurs = [FieldCount::Once, FieldCount::AtMostOnce, FieldCount::AnyNumber];
                let fields = occurs.into_iter().enumerate().map(|(number, occurs)| ShortField {
                    name: format!("field{number}"),
                    occurs,
                    short_type: self.types(depth - 1),
                });
                ShortType::Fields(fields.collect())
            }
        }
    }

    fn payload(&mut self) -> Placed<PayloadName> {
        let namespace = if self.below(2) == 0 { "" } else { "urn:a&b" };
        placed(PayloadName::new(namespace, "order"))
    }

    fn mapping(&mut self) -> Mapping {
        match self.below(3) {
            0 => Mapping::Element(text("input")),
            1 => Mapping::Fields(Vec::new()),
            _ => Mapping::Fields(vec![
                ("topic".to_owned(), self.expression()),
                ("@kind".to_owned(), self.expression()),
            ]),
        }
    }

    fn target(&mut self) -> GoalTarget {
        match self.below(3) {
            0 => GoalTarget::Agent { agent: name("writer"), prompt: self.text() },
            1 => GoalTarget::Listener {
                listener: name("hotel"),
                payload: self.maybe(Self::payload),
                with: self.mapping(),
            },
            _ => GoalTarget::Workflow {
                workflow: name("essay"),
                payload: self.maybe(Self::payload),
                with: self.mapping(),
            },
        }
    }

    fn condition(&mut self) -> GoalCondition {
        match self.below(3) {
            0 => GoalCondition::Judge { agent: name("critic"), prompt: self.text() },
            _ => GoalCondition::XPath(self.expression()),
        }
    }

    fn agents(&mut self) -> Vec<Placed<organism::ids::ListenerName>> {
        let agents = ["writer", "critic", "writer"];
        agents.iter().take(self.number() as usize).map(|agent| name(agent)).collect()
    }

    /// A random goal form that contains no other goals.
    fn form(&mut self) -> GoalForm {
        match self.below(5) {
            0 => GoalForm::Run(self.target()),
            1 => GoalForm::All {
                agents: self.agents(),
                prompt: self.text(),
                vote: self.maybe(Self::text),
            },
            2 => GoalForm::First { agents: self.agents(), prompt: self.text() },
            3 => GoalForm::Each(Box::new(EachItem {
                items: text("input/topic"),
                target: self.target(),
                max_items: self.number(),
                concurrency: self.number(),
                on_item_failure: ItemFailure::WORDS[usize::try_from(self.below(3)).unwrap()].1,
                verify: None,
                role: self.maybe(Self::text),
            })),
            _ => {
                let form = match self.below(3) {
                    0 => AskForm::Output,
                    1 => AskForm::Verdict { about: None },
                    _ => AskForm::Verdict { about: Some(id("first")) },
                };
                GoalForm::Ask { human: name("owner"), prompt: self.text(), form }
            }
        }
    }

    fn policy(&mut self) -> FailurePolicy {
        match self.below(3) {
            0 => FailurePolicy::Stop,
            1 => FailurePolicy::Skip,
            _ => FailurePolicy::Undo,
        }
    }

    fn goal(&mut self, goal_id: &str, form: GoalForm) -> GoalDefinition {
        GoalDefinition {
            output: match self.below(3) {
                0 => GoalOutput::Text,
                1 => GoalOutput::Types(self.types(2)),
                _ => GoalOutput::Payload(self.payload()),
            },
            retry: self.number(),
            on_failure: self.maybe(Self::policy),
            timeout: self.timeout(),
            budget: self.budget(),
            supervision: self.maybe(|all| Supervision {
                supervisor: name("owner"),
                is_human: all.below(2) == 0,
                supervise: all.text().value,
                corrections: all.number(),
            }),
            roles: self.maybe(|all| DelegatedRoles {
                agent: name("critic"),
                max: all.number(),
                depth: all.number(),
                names: vec!["reader".to_owned(), all.text().value],
            }),
            ..goal(goal_id, form)
        }
    }

    /// A definition of random goals, which may include a loop, a choice, an `each` with a judge,
    /// and a fallback.
    fn definition(&mut self) -> WorkflowDefinition {
        let mut goals = Vec::new();
        for number in 0..self.number() {
            let form = self.form();
            let goal_id = if number == 0 { "first".to_owned() } else { format!("goal{number}") };
            let mut one = self.goal(&goal_id, form);
            one.needs =
                self.maybe(|all| if all.below(2) == 0 { Vec::new() } else { vec![id("first")] });
            one.needs = one.needs.filter(|_| number > 0);
            one.context = self.maybe(|_| vec![id("first")]).filter(|_| number > 0);
            goals.push(one);
        }

        let members = GoalForm::Loop {
            members: vec![id("draft"), id("critique")],
            until: self.condition(),
            max: self.number(),
            at_max: LoopEnd::WORDS[usize::try_from(self.below(2)).unwrap()].1,
        };
        goals.push(goal("improve", members));
        for member in ["draft", "critique"] {
            let form = self.form();
            goals.push(self.goal(member, form));
        }
        let branches = vec![
            ChooseBranch {
                when: Some(self.condition()),
                run: vec![id("many")],
                place: PlaceId::default(),
            },
            ChooseBranch { when: None, run: vec![id("one")], place: PlaceId::default() },
        ];
        goals.push(goal("remark", GoalForm::Choose(branches)));
        goals.push(agent("many", "x"));
        let mut one = agent("one", "x");
        one.on_failure = Some(FailurePolicy::Goal(id("by-hand")));
        goals.push(one);
        goals.push(agent("by-hand", "x"));
        goals.push(goal(
            "study",
            GoalForm::Each(Box::new(EachItem {
                items: text("input/topic"),
                target: self.target(),
                max_items: 3,
                concurrency: 2,
                on_item_failure: ItemFailure::Collect,
                verify: Some(ItemVerification { goal: id("check"), accept: self.expression() }),
                role: None,
            })),
        ));
        goals.push(agent("check", "x"));

        WorkflowDefinition {
            description: self.text().value,
            input: match self.below(2) {
                0 => WorkflowInput::Types(self.types(2)),
                _ => WorkflowInput::Payload(self.payload()),
            },
            output: match self.below(4) {
                0 => WorkflowOutput::LastGoal,
                1 => WorkflowOutput::One(self.text()),
                2 => WorkflowOutput::Table(Vec::new()),
                _ => WorkflowOutput::Table(vec![("text".to_owned(), self.expression())]),
            },
            peers: self.maybe(|_| vec![name("ledger"), name("writer")]).unwrap_or_default(),
            on_failure: self.policy(),
            report_to: self.maybe(|_| name("owner")),
            timeout: self.timeout(),
            budget: self.budget(),
            ..workflow(goals)
        }
    }
}

fn read_back(definition: &WorkflowDefinition) -> WorkflowDefinition {
    let compiled = compile(definition);
    let read = read_compiled(&compiled.text);
    let read = read.unwrap_or_else(|error| panic!("{error}\n{}", compiled.text));
    assert_eq!(compile(&read), compiled);
    read
}

#[test]
fn a_compiled_form_is_read_back_and_compiles_to_the_same_text() {
    for seed in 0..500 {
        read_back(&DefinitionGenerator(seed).definition());
    }
}

#[test]
fn a_run_on_the_definition_read_back_takes_the_same_steps() {
    let scripts: [&[&str]; 4] = [
        &[],
        &["first!timeout", "first!timeout", "draft_1=x", "critique_1=PUBLISH"],
        &["one!timeout", "goal1!timeout", "goal1!timeout", "goal1!timeout"],
        &["first=<plan><task/></plan>", "study_1!timeout", "remark!timeout"],
    ];
    for seed in 0..if torture() { 200 } else { 80 } {
        let definition = DefinitionGenerator(seed).definition();
        let read = read_back(&definition);
        for script in scripts {
            assert_eq!(played(&read, script), played(&definition, script), "seed {seed}");
        }
    }
}

#[test]
fn the_seven_definitions_give_the_same_documents_when_read_back() {
    for name in ["crew", "essay", "code-review", "decision", "research", "intake", "trip"] {
        let (schemas, definition) = loaded(name);
        let read = read_back(&definition);
        let input = input_payload(&schemas, &definition, &[], true).unwrap();
        let documents = |of: &WorkflowDefinition| -> Vec<_> {
            dry_run(of, &input).into_iter().map(|one| (one.title, one.text)).collect()
        };
        assert_eq!(documents(&read), documents(&definition), "{name}");
    }
}

#[test]
fn a_text_with_something_unknown_or_missing_is_no_compiled_form() {
    let text = compile(&definition("essay")).text;
    let read = |from: &str, to: &str| {
        assert!(text.contains(from), "{text} has no {from}");
        read_compiled(&text.replacen(from, to, 1)).unwrap_err()
    };
    let unknown = CompiledFormError::NotCanonical;
    assert_eq!(read("<goal id=", "<goal colour=\"red\" id="), unknown);
    assert_eq!(read("</workflow>", "<later/></workflow>"), unknown);
    assert_eq!(read("<workflow ", "<workflow  "), unknown);
    assert_eq!(read(" retry=\"0\"", "").to_string(), "<goal> has no retry that this program reads");
    assert_eq!(read("workflow/v1", "workflow/v2"), CompiledFormError::NotAnElement);
    assert_eq!(read("</workflow>", ""), CompiledFormError::NotAnElement);
}
