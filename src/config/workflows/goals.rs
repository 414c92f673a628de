//! Reads the goals of a workflow. The form of a goal, such as a loop or a question, determines
//! which settings the goal may have.

use crate::contract::Budget;
use crate::limits;
use crate::schema::ShortType;
use crate::workflow::{
    AskForm, ChooseBranch, DelegatedRoles, EachItem, GoalCondition, GoalDefinition, GoalForm,
    GoalId, GoalOutput, GoalTarget, ItemFailure, ItemVerification, LoopEnd, Placed, Supervision,
};

use super::super::config_problem::{ConfigProblem, ProblemCode};
use super::super::keys::{self, KnownSection};
use super::super::members::token;
use super::super::payloads::KnownPayloads;
use super::super::read::TableReader;
use super::super::short_types;
use super::super::source_text::SourceRange;
use super::super::tree::{Located, TomlNode, TomlValue};
use super::{WorkflowReader, table_of};

/// The forms of a goal, such as a loop. The form of a question is in `ASK`. Each entry contains the
/// key by which the form is recognised, and the other keys that this form permits. If a goal has
/// the keys of several entries, the first of these entries determines its form.
const FORMS: [(&str, &[&str]); 8] = [
    // `each` is matched first, because it may also have the keys of its target.
    (
        "each",
        &[
            "agent",
            "listener",
            "workflow",
            "prompt",
            "prompt_file",
            "payload",
            "with",
            "max_items",
            "concurrency",
            "on_item_failure",
            "verify",
            "accept",
            "role",
        ],
    ),
    ("agent", &["prompt", "prompt_file"]),
    ("listener", &["payload", "with"]),
    ("workflow", &["with"]),
    ("all", &["prompt", "prompt_file", "vote"]),
    ("first", &["prompt", "prompt_file"]),
    ("loop", &["until", "max", "at_max"]),
    ("choose", &[]),
];
const ASK: (&str, &[&str]) = ("ask", &["prompt", "prompt_file", "form", "about"]);

/// Keys that are permitted in goals of every form, except `role`, which only the form `each`
/// permits.
const SETTINGS: [&str; 13] = [
    "needs",
    "context",
    "output",
    "retry",
    "on_failure",
    "timeout",
    "tokens",
    "money",
    "supervisor",
    "supervise",
    "corrections",
    "roles",
    "role",
];

impl WorkflowReader<'_> {
    /// Reads the goals in the order of the file. Leaves out each goal that has a problem, and adds
    /// the names of these goals to `unread`.
    pub(super) fn goals(
        &mut self,
        known: &KnownPayloads,
        read: &mut TableReader<'_>,
        unread: &mut Vec<String>,
    ) -> Vec<GoalDefinition> {
        read.required("goals", "{ draft = { agent = \"writer\", prompt = \"…\" } }");
        let Some(node) = read.node("goals") else { return Vec::new() };
        let Some(table) = table_of(node) else {
            read.wrong_kind("goals", node, "a table");
            return Vec::new();
        };
        if table.entries.is_empty() {
            read.empty("goals", &node.place);
        }

        let mut goals = Vec::new();
        for entry in &table.entries {
            let name = &entry.key;
            let Some(table) = table_of(&entry.node) else {
                read.wrong_kind(&format!("goals.{}", name.value), &entry.node, "a table");
                unread.push(name.value.clone());
                continue;
            };

            let what = format!("goal `{}`", name.value);
            let place = name.place.clone();
            let mut read = TableReader::new(&keys::GOALS, table, what, place, read.problems);
            let goal = self.goal(known, name, &mut read);
            if goal.is_none() {
                unread.push(name.value.clone());
            }
            goals.extend(goal);
        }

        goals
    }

    fn goal(
        &mut self,
        known: &KnownPayloads,
        name: &Located<String>,
        read: &mut TableReader<'_>,
    ) -> Option<GoalDefinition> {
        let id = self.new_goal_id(name, read);
        let form = self.form(known, read);
        let needs = read.has("needs").then(|| read.list("needs"));
        let needs = needs.map(|texts| self.goal_ids(texts, read.problems));
        let context = read.has("context").then(|| read.list("context"));
        let context = context.map(|texts| self.goal_ids(texts, read.problems));

        let output = self.goal_output(known, read);
        let retry = read.count32_or_zero("retry", limits::ATTEMPTS_CEILING);
        let on_failure = self.policy("on_failure", read);
        let timeout = read.duration("timeout", limits::WALL_TIME_CEILING);

        let budget = Budget {
            tokens: read.count("tokens", limits::TOKENS_CEILING),
            money: read.money("money"),
        };
        let budget_key = if budget.tokens.is_some() { "tokens" } else { "money" };
        let budget_place = self.places.add(&read.place_of(budget_key));
        self.note_money(Some(name.value.as_str()), budget, read);
        let supervision = self.supervision(read);
        let roles = self.roles(read);

        Some(GoalDefinition {
            id: id?,
            form: form?,
            needs,
            context,
            output: output?,
            retry,
            on_failure,
            timeout,
            budget,
            budget_place,
            supervision,
            roles,
        })
    }

    fn new_goal_id(
        &mut self,
        name: &Located<String>,
        read: &mut TableReader<'_>,
    ) -> Option<Placed<GoalId>> {
        if GoalId::RESERVED.contains(&name.value.as_str()) {
            let message = format!("`{}` means something else in a workflow", name.value);
            let problem = ConfigProblem::new(ProblemCode::ReservedName, &name.place, message);
            read.problem(problem.help("choose another name for the goal"));
            return None;
        }

        let token = token(name, read.problems)?;
        let id = GoalId::parse(token.value.as_str())?;
        Some(Placed::new(id, self.places.add(&token.place)))
    }

    fn form(&mut self, known: &KnownPayloads, read: &mut TableReader<'_>) -> Option<GoalForm> {
        let forms = FORMS.into_iter().chain([ASK]);
        let Some((key, own)) = forms.clone().find(|(key, _)| read.has(key)) else {
            let all: Vec<_> = forms.map(|(key, _)| format!("`{key}`")).collect();
            read.required_with("agent", &format!("a goal has one of {}", all.join(", ")));
            return None;
        };

        let mut allowed = vec![key];
        allowed.extend(own.iter().copied());
        allowed.extend(SETTINGS.iter().copied().filter(|setting| *setting != "role"));
        read.only(&allowed, &format!("a goal with `{key}`"));
        match key {
            "each" => self.each(read).map(|each| GoalForm::Each(Box::new(each))),
            "agent" | "listener" | "workflow" => self.target(known, read).map(GoalForm::Run),
            "all" | "first" => self.several(key, read),
            "loop" => self.repeated(read),
            "choose" => self.choose(read).map(GoalForm::Choose),
            _ => self.ask(read),
        }
    }

    fn target(&mut self, known: &KnownPayloads, read: &mut TableReader<'_>) -> Option<GoalTarget> {
        if read.has("agent") {
            let agent = self.name("agent", read);
            let prompt = self.prompt(read);
            return Some(GoalTarget::Agent { agent: agent?, prompt: prompt? });
        }

        if read.has("listener") {
            let listener = self.name("listener", read);
            let payload = read.text("payload");
            let payload = payload.map(|text| self.listener_payload(known, &text, read));
            read.required("with", "{ child = \"XPath\" }");
            let with = self.mapping(read);
            let payload = match payload {
                Some(payload) => Some(payload?),
                None => None,
            };
            return Some(GoalTarget::Listener { listener: listener?, payload, with: with? });
        }

        let workflow = self.name("workflow", read);
        read.required("with", "{ input = \"XPath\" }");
        let with = self.mapping(read);
        Some(GoalTarget::Workflow { workflow: workflow?, payload: None, with: with? })
    }

    /// Reads the payload name of a goal that calls a listener. If the name has no namespace, a
    /// later step adds the namespace from the payload names that the listener accepts. If the text
    /// is not a valid payload name, reports this and returns `None`.
    fn listener_payload(
        &mut self,
        _: &KnownPayloads,
        text: &Located<super::ExpandedText>,
        read: &mut TableReader<'_>,
    ) -> Option<Placed<crate::ids::PayloadName>> {
        match crate::ids::PayloadName::parse(&text.value.value) {
            Ok(name) => Some(Placed::new(name, self.places.add(&text.place))),
            Err(_) => {
                let message = format!("`{}` is not a payload name", text.value.written);
                let problem = ConfigProblem::new(ProblemCode::BadPayloadName, &text.place, message);
                read.problem(problem.help("write the local name, or \"{namespace}local\""));
                None
            }
        }
    }

    fn each(&mut self, read: &mut TableReader<'_>) -> Option<EachItem> {
        let items = self.expression("each", read);
        let target = if ["agent", "listener", "workflow"].iter().any(|key| read.has(key)) {
            self.target(&KnownPayloads::default(), read)
        } else {
            read.required_with("agent", "add agent, listener or workflow for the items");
            None
        };

        let max_items = read.count32("max_items", limits::EACH_ITEMS_CEILING);
        let concurrency = read.count32("concurrency", limits::CONCURRENCY_CEILING);
        let on_item_failure = read.choice("on_item_failure", &ItemFailure::WORDS);
        let verify = self.item_check(read);
        let role = self.expression("role", read);

        Some(EachItem {
            items: items?,
            target: target?,
            max_items: max_items.unwrap_or(limits::EACH_ITEMS_DEFAULT),
            concurrency: concurrency.unwrap_or(limits::EACH_CONCURRENCY_DEFAULT),
            on_item_failure: on_item_failure.unwrap_or_default(),
            verify,
            role,
        })
    }

    fn item_check(&mut self, read: &mut TableReader<'_>) -> Option<ItemVerification> {
        if !read.has("verify") {
            if read.has("accept") {
                read.required("verify", "\"the goal that judges each output\"");
            }
            return None;
        }

        read.required("accept", "\"last-line(GOAL) = 'sound'\"");
        let goal = read.text("verify").and_then(|text| self.goal_id(text, read.problems));
        let accept = self.expression("accept", read);
        Some(ItemVerification { goal: goal?, accept: accept? })
    }

    fn several(&mut self, key: &str, read: &mut TableReader<'_>) -> Option<GoalForm> {
        let agents = self.names(read.list(key), read.problems);
        if read.is_empty_list(key) {
            let place = read.place_of(key);
            read.empty(key, &place);
        }

        let prompt = self.prompt(read);
        let vote = self.vote(read);
        let prompt = prompt?;
        Some(match key {
            "all" => GoalForm::All { agents, prompt, vote },
            _ => GoalForm::First { agents, prompt },
        })
    }

    fn vote(&mut self, read: &mut TableReader<'_>) -> Option<Placed<String>> {
        let node = read.node("vote")?;
        let mut inner = self.inner("vote", node, &keys::VOTE, read)?;
        inner.required("by", "\"last-line\", or an XPath");
        inner.choice("keep", &[("majority", ())]);
        let by = inner.text("by")?;
        let mut by = self.placed(by);
        if by.value == "last-line" {
            by.value = "last-line(.)".to_owned();
        }
        Some(by)
    }

    fn repeated(&mut self, read: &mut TableReader<'_>) -> Option<GoalForm> {
        let members = self.goal_ids(read.list("loop"), read.problems);
        if read.is_empty_list("loop") {
            let place = read.place_of("loop");
            read.empty("loop", &place);
        }

        read.required("until", "\"last-line(GOAL) = 'accept'\"");
        read.required("max", "4");
        let until = read.node("until").and_then(|node| self.condition("until", node, read));
        let max = read.count32("max", limits::LOOP_PASSES_CEILING);
        let at_max = read.choice("at_max", &LoopEnd::WORDS).unwrap_or_default();
        Some(GoalForm::Loop { members, until: until?, max: max?, at_max })
    }

    fn choose(&mut self, read: &mut TableReader<'_>) -> Option<Vec<ChooseBranch>> {
        let node = read.node("choose")?;
        let TomlValue::List(items) = &node.value else {
            read.wrong_kind("choose", node, "a list of tables");
            return None;
        };
        if items.is_empty() {
            read.empty("choose", &node.place);
            return None;
        }

        let mut branches = Vec::new();
        for item in items {
            let Some(mut inner) = self.inner("an entry of `choose`", item, &keys::BRANCH, read)
            else {
                continue;
            };
            inner.required("run", "[\"a goal\"]");
            let run = inner.list("run");
            let when = inner.node("when");
            let run = self.goal_ids(run, inner.problems);
            let condition = when.map(|node| self.condition("when", node, &mut inner));
            let when = match condition {
                Some(condition) => Some(condition?),
                None => None,
            };
            branches.push(ChooseBranch { when, run, place: self.places.add(&item.place) });
        }

        Some(branches)
    }

    fn condition(
        &mut self,
        key: &str,
        node: &TomlNode,
        read: &mut TableReader<'_>,
    ) -> Option<GoalCondition> {
        if table_of(node).is_none() {
            return self.expression(key, read).map(GoalCondition::XPath);
        }

        let mut inner = self.inner(key, node, &keys::JUDGE, read)?;
        inner.required("judge", "\"an agent\"");
        let agent = self.name("judge", &mut inner);
        let prompt = self.prompt(&mut inner);
        Some(GoalCondition::Judge { agent: agent?, prompt: prompt? })
    }

    fn ask(&mut self, read: &mut TableReader<'_>) -> Option<GoalForm> {
        let human = self.name("ask", read);
        let prompt = self.prompt(read);
        let about = read.text("about").and_then(|text| self.goal_id(text, read.problems));
        if let (true, Some(about)) = (read.has("form"), &about) {
            let message = "a form holds no verdict about a goal";
            let place = self.places.range(about.place);
            let problem = ConfigProblem::new(ProblemCode::GoalSetting, &place, message);
            read.problem(problem.help("keep one of form and about"));
        }
        let form = if read.has("form") { AskForm::Output } else { AskForm::Verdict { about } };
        Some(GoalForm::Ask { human: human?, prompt: prompt?, form })
    }

    /// Reads the type of a goal's output from the key `form`, which only questions may have. If
    /// this key is missing, reads it from the key `output`. If both keys are missing, the type is
    /// text. If the type is invalid, reports this and returns `None`.
    fn goal_output(
        &mut self,
        known: &KnownPayloads,
        read: &mut TableReader<'_>,
    ) -> Option<GoalOutput> {
        let key = if read.has("form") { "form" } else { "output" };
        let Some(node) = read.node(key) else { return Some(GoalOutput::Text) };
        match &node.value {
            TomlValue::Text(_) => {
                let text = read.text(key)?;
                self.payload(known, &text, read).map(GoalOutput::Payload)
            }
            _ => {
                let types: Option<ShortType> =
                    short_types::of_table(node, "the output", self.is_stored, read.problems);
                types.map(GoalOutput::Types)
            }
        }
    }

    fn supervision(&mut self, read: &mut TableReader<'_>) -> Option<Supervision> {
        if !read.has("supervisor") {
            for key in ["supervise", "corrections"] {
                if read.has(key) {
                    read.required("supervisor", "\"an agent or a human\"");
                }
            }
            return None;
        }

        let supervise = read.text("supervise").map(|text| text.value.value).unwrap_or_default();
        let corrections = read.count32("corrections", limits::CORRECTIONS_CEILING);
        let supervisor = self.name("supervisor", read)?;
        let corrections = corrections.unwrap_or(limits::CORRECTIONS_DEFAULT);
        // A reference to a section that could not be read is reported with that section.
        let is_human = self.humans.contains(&supervisor.value);
        Some(Supervision { supervisor, is_human, supervise, corrections })
    }

    fn roles(&mut self, read: &mut TableReader<'_>) -> Option<DelegatedRoles> {
        let node = read.node("roles")?;
        let mut inner = self.inner("roles", node, &keys::ROLES, read)?;
        inner.required("agent", "\"the agent that takes the roles\"");
        inner.required("max", "3");
        let agent = self.name("agent", &mut inner);
        let max = inner.count32("max", limits::CHILDREN_CEILING);
        let depth = inner.count32("depth", limits::ROLES_DEPTH_CEILING);
        let names = inner.list("names").into_iter().map(|text| text.value.value).collect();
        Some(DelegatedRoles { agent: agent?, max: max?, depth: depth.unwrap_or(1), names })
    }

    /// Makes a reader for the table that is the value of `key` in a goal. If the value is not a
    /// table, reports a problem and returns `None`.
    fn inner<'t>(
        &self,
        key: &str,
        node: &'t TomlNode,
        section: &KnownSection,
        read: &'t mut TableReader<'_>,
    ) -> Option<TableReader<'t>> {
        let Some(table) = table_of(node) else {
            read.wrong_kind(key, node, "a table");
            return None;
        };
        let place: SourceRange = node.place.clone();
        let what = read.what_within(key);
        Some(TableReader::new(section, table, what, place, read.problems))
    }
}
