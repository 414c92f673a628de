//! Workflows: definitions that are checked, drawn, and run without models.
//!
//! `tests/data/workflow/NAME.toml` is a definition without the sections that every config needs;
//! `NAME.documents` holds the documents of its agents.

mod asks;
mod compiled;
mod conditions;
mod documents;
mod lists;
mod parts;
mod reviews;
mod runs;
mod script;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::{Expect, expect};
use organism::config::{Config, ConfigEnvironment, ConfigProblems, load_for_servers};
use organism::schema::Schemas;
use organism::workflow::{
    GoalForm, GoalTarget, Mapping, WorkflowDefinition, drawing, dry_run, input_payload, mermaid,
    with_stand_ins,
};

use crate::json_schemas::assert_described;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A project directory with the folders and files that the configs name. Relative paths of
/// listeners and schemas are the same as in the repository.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["listeners", "schemas"] {
        std::os::unix::fs::symlink(repository().join(name), directory.path().join(name)).unwrap();
    }
    std::fs::create_dir(directory.path().join("config")).unwrap();
    for (from, to) in [
        ("config/research-desk/recording.toml", "config/voice.toml"),
        ("tests/data/workflow/travel.xsd", "config/travel.xsd"),
    ] {
        std::fs::copy(repository().join(from), directory.path().join(to)).unwrap();
    }
    directory
}

fn write(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("config/organism.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// The definition of this name, as a complete config.
fn definition_text(name: &str) -> String {
    let path = repository().join("tests/data/workflow").join(format!("{name}.toml"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut head = String::new();
    for (key, line) in [
        ("organism.name", "organism.name = \"test\"\n".to_owned()),
        ("clients.desk", format!("clients.desk.peers = [\"{name}\"]\n")),
        (
            "models.voice",
            "models.voice = { provider = \"playback\", recording = \"voice.toml\" }\n".to_owned(),
        ),
    ] {
        if !text.contains(key) {
            head.push_str(&line);
        }
    }
    let search = "\n[listeners.search]\ncommand = [\"sh\"]\nschema = \
                  \"../listeners/code-search/schema/code-search.xsd\"\naccepts = [\"search\"]\n\
                  replies = [\"search-results\", \"tool-error\"]\n";
    let tail = if text.contains("[listeners.search]") { "" } else { search };
    let text = text.replace("crew/recording.toml", "voice.toml").replace("${WORKSPACE}", ".");
    let text = text.replace("../listeners/travel/schema/travel.xsd", "travel.xsd");
    format!("{head}{text}{tail}")
}

fn load_text(text: &str) -> Result<Config, ConfigProblems> {
    load_in(&directory(), text)
}

fn load_in(directory: &tempfile::TempDir, text: &str) -> Result<Config, ConfigProblems> {
    let path = write(directory.path(), text);
    let around = ConfigEnvironment {
        variables: std::collections::BTreeMap::new(),
        directory: directory.path().to_owned(),
        home: Some(directory.path().to_owned()),
        program_directory: None,
    };
    load_for_servers(&path, &around)
}

fn definition(name: &str) -> WorkflowDefinition {
    loaded(name).1
}

/// The definition of this name, with the schemas of its config.
fn loaded(name: &str) -> (Schemas, WorkflowDefinition) {
    let config = load_text(&definition_text(name));
    let config = config.unwrap_or_else(|problems| panic!("{name}: {problems}"));
    let mut definitions = config.workflows.into_iter().map(|one| one.definition);
    (config.schemas, definitions.find(|one| one.name.value.as_str() == name).unwrap())
}

/// Describes each problem of a changed definition: see [`described`].
fn problems(name: &str, changes: &[(&str, &str)]) -> String {
    let mut text = definition_text(name);
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no `{from}`");
        text = text.replacen(from, to, 1);
    }
    described(load_text(&text))
}

/// Describes each problem of a config as `code: message | part | help`.
fn described(loaded: Result<Config, ConfigProblems>) -> String {
    let Err(problems) = loaded else { return String::new() };
    let lines = problems.iter().map(|problem| {
        let slice = problem.place.source.shown().inner().get(problem.place.span.clone());
        let part = slice.unwrap_or_default();
        let help = problem.help.as_deref().unwrap_or_default();
        format!("{}: {} | {part} | {help}\n", problem.code, problem.message)
    });
    lines.collect()
}

#[test]
fn the_seven_definitions_have_no_problem() {
    for name in ["crew", "essay", "code-review", "decision", "research", "intake", "trip"] {
        let definition = definition(name);
        assert!(!definition.goals.is_empty(), "{name}");
    }
}

#[test]
fn a_drawing_shows_forms_lists_and_branches() {
    let check = |name: &str, expected: Expect| expected.assert_eq(&drawing(&definition(name)));
    check(
        "crew",
        expect![[r#"
        crew
          plan  agent planner
          clarify  choose
            last-line(plan) != 'none'
              question  ask owner
          work  loop until last-line(review) = 'accept', at most 4 times
            build  agent coder
            review  agent reviewer
    "#]],
    );
    check(
        "intake",
        expect![[r#"
        intake
          sort  agent reader
          invoice  choose
            sort/kind = 'invoice'
              read  all of reader, reader, reader, majority
                on failure
                  by-hand  ask accounts
              release  choose
                (read | by-hand)/payable >= 5000
                  approve  ask accounts
              book  listener ledger
          answer  choose
            not(book/entry)
              letter  agent correspondent
    "#]],
    );
    check(
        "research",
        expect![[r#"
        research
          plan  agent lead
          study  each plan/task: agent specialist, at most 6, 8 at once, retry 1
            check  agent checker
          report  agent lead, delegates to specialist at most 3 times
    "#]],
    );
}

#[test]
fn a_flowchart_shows_goals_and_their_needs() {
    expect![[r#"
        flowchart TD
          g0["outline<br>agent writer"]
          subgraph g1["improve<br>loop until last-line(critique) = 'publish', at most 4 times"]
            g2["draft<br>agent writer"]
            g3["critique<br>agent critic"]
          end
          g0 --> g1
          g2 --> g3
          g3 -. again .-> g2
    "#]]
    .assert_eq(&mermaid(&definition("essay")));
    expect![[r#"
        flowchart TD
          g0["flight<br>listener flights"]
          g1["hotel<br>listener hotels"]
          g2["confirm<br>ask traveller"]
          g3["pay<br>listener payments"]
          g0 --> g2
          g1 --> g2
          g2 --> g3
    "#]]
    .assert_eq(&mermaid(&definition("trip")));
}

fn documents(name: &str, inputs: &[(&str, &str)]) -> String {
    let (schemas, definition) = loaded(name);
    let inputs: Vec<_> =
        inputs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let input = input_payload(&schemas, &definition, &inputs, true).unwrap();
    let documents = dry_run(&definition, &input);
    documents.iter().map(|one| format!("== {}\n{}\n", one.title, one.text)).collect()
}

/// A dry run prints the documents of the golden file, with placeholders for outputs.
#[test]
fn a_dry_run_prints_the_golden_documents_of_the_essay() {
    let inputs = [("topic", "city parking"), ("readers", "town councillors"), ("words", "800")];
    let printed = documents("essay", &inputs);
    let golden =
        std::fs::read_to_string(repository().join("tests/data/workflow/essay.documents")).unwrap();
    let golden = golden.split("== draft, pass 2").next().unwrap();
    let outline =
        "Claim: a street without parking gains shops. 1. What a space earns. 2. Who loses.";
    let draft =
        "# The Price of a Parking Space\nA space takes 12 m² &amp; earns less than a café table…";
    let golden = golden.replace(outline, "[output of outline]").replace(draft, "[output of draft]");
    assert_eq!(printed, golden);
}

#[test]
fn a_dry_run_shows_items_agents_supervisors_and_questions() {
    let check = |name: &str, inputs: &[(&str, &str)], expected: Expect| {
        expected.assert_eq(&documents(name, inputs));
    };
    check(
        "decision",
        &[("question", "Move?")],
        expect![[r#"
        == frame
        <workflow name="decision">

        <current-goal id="frame">
        Frame this decision: the options (at most four), the criteria with their weight, what is unknown.
        Move?
        [input/facts]
        </current-goal>

        </workflow>
        == frame, supervisor, question to owner
        Frame this decision: the options (at most four), the criteria with their weight, what is unknown.
        Move?
        [input/facts]
        == evaluate, optimist
        <workflow name="decision">

        <context>
          <goal id="frame">
        [output of frame]
          </goal>
        </context>

        <current-goal id="evaluate">
        Evaluate each option by each criterion, from your side. Mark what you know and what you assume.
        </current-goal>

        </workflow>
        == evaluate, critic
        <workflow name="decision">

        <context>
          <goal id="frame">
        [output of frame]
          </goal>
        </context>

        <current-goal id="evaluate">
        Evaluate each option by each criterion, from your side. Mark what you know and what you assume.
        </current-goal>

        </workflow>
        == answer, optimist
        <workflow name="decision">

        <context>
          <goal id="frame">
        [output of frame]
          </goal>

          <goal id="evaluate[optimist]">
        [output of evaluate[optimist]]
          </goal>

          <goal id="evaluate[critic]">
        [output of evaluate[critic]]
          </goal>
        </context>

        <current-goal id="answer">
        Read the other side. Withdraw what it refuted, and refute what you still can. At most ten lines.
        </current-goal>

        </workflow>
        == answer, critic
        <workflow name="decision">

        <context>
          <goal id="frame">
        [output of frame]
          </goal>

          <goal id="evaluate[optimist]">
        [output of evaluate[optimist]]
          </goal>

          <goal id="evaluate[critic]">
        [output of evaluate[critic]]
          </goal>
        </context>

        <current-goal id="answer">
        Read the other side. Withdraw what it refuted, and refute what you still can. At most ten lines.
        </current-goal>

        </workflow>
        == recommend
        <workflow name="decision">

        <context>
          <goal id="frame">
        [output of frame]
          </goal>

          <goal id="evaluate[optimist]">
        [output of evaluate[optimist]]
          </goal>

          <goal id="evaluate[critic]">
        [output of evaluate[critic]]
          </goal>

          <goal id="answer[optimist]">
        [output of answer[optimist]]
          </goal>

          <goal id="answer[critic]">
        [output of answer[critic]]
          </goal>
        </context>

        <current-goal id="recommend">
        Recommend one option. Give the two strongest reasons, the strongest objection, and
        the first sign that would show the choice to be wrong.
        </current-goal>

        </workflow>
    "#]],
    );
    check(
        "research",
        &[("question", "May a client forge a sender?")],
        expect![[r#"
        == plan
        <workflow name="research">

        <current-goal id="plan">
        Which specialists does this question need, and what does each have to find out? At most six.
        May a client forge a sender?
        </current-goal>

        </workflow>
        == study, item 1
        <task role="[item/role]" parent-goal="study">
        [item/find]
        Give the file and line of each claim, and say what you did not find.
        </task>
        == check, item 1
        <workflow name="research">

        <context>
          <goal id="study[1]">
        [output of study[1]]
          </goal>
        </context>

        <current-goal id="check">
        The task was: [item/find]
        Open each place that the finding names. End with a line SOUND or UNSOUND.
        </current-goal>

        </workflow>
        == report
        <workflow name="research">

        <context>
          <goal id="plan">
        [output of plan]
          </goal>

          <goal id="study[1]">
        [output of study[1]]
          </goal>
        </context>

        <current-goal id="report">
        Answer from the findings, with their places: May a client forge a sender?
        Delegate what they leave open. Name what stays unanswered.
        </current-goal>

        </workflow>
        == report, delegated to specialist
        <task role="[role]" parent-goal="report">
        [task of report]
        </task>
    "#]],
    );
}

#[test]
fn a_dry_run_shows_each_item_of_a_list_in_the_input() {
    let text = r#"
organism.name = "test"
clients.desk.peers = ["menu"]
agents.writer.model = "voice"
models.voice = { provider = "playback", recording = "voice.toml" }
[workflows.menu]
input = { tea = ["text"] }
[workflows.menu.goals]
line = { each = "input/tea", agent = "writer", prompt = "Describe {{item}}.", verify = "judge", accept = "last-line(judge) = 'sound'" }
judge = { agent = "writer", context = [], prompt = "Judge {{item}}." }
end = { agent = "writer", prompt = "Join the lines." }
"#;
    let config = load_text(text).unwrap_or_else(|problems| panic!("{problems}"));
    let definition = &config.workflows[0].definition;
    let inputs = ["green", "mint"].map(|tea| ("tea".to_owned(), tea.to_owned()));
    let input = input_payload(&config.schemas, definition, &inputs, true).unwrap();
    let documents = dry_run(definition, &input);
    let expected: [(&str, &[&str]); 5] = [
        ("line, item 1", &["Describe green."]),
        ("judge, item 1", &["Judge green.", "[output of line[1]]"]),
        ("line, item 2", &["Describe mint."]),
        ("judge, item 2", &["Judge mint.", "[output of line[2]]"]),
        ("end", &["[output of line[1]]", "[output of line[2]]"]),
    ];
    let titles: Vec<_> = documents.iter().map(|document| document.title.as_str()).collect();
    assert_eq!(titles, expected.map(|(title, _)| title));
    for (document, (title, parts)) in documents.iter().zip(expected) {
        for part in parts {
            assert!(document.text.contains(part), "{title}: {}", document.text);
        }
    }
}

#[test]
fn a_dry_run_shows_no_item_of_a_list_that_its_predicate_leaves_empty() {
    let text = r#"
organism.name = "test"
clients.desk.peers = ["menu"]
agents.writer.model = "voice"
models.voice = { provider = "playback", recording = "voice.toml" }
[workflows.menu]
input = { tea = ["text"] }
[workflows.menu.goals]
line = { each = "input/tea[. != ']' and . != 'mint']", agent = "writer", prompt = "Describe {{item}}." }
end = { agent = "writer", prompt = "Join the lines." }
"#;
    let config = load_text(text).unwrap_or_else(|problems| panic!("{problems}"));
    let definition = &config.workflows[0].definition;
    let titles_of = |teas: &[&str]| {
        let inputs: Vec<_> = teas.iter().map(|tea| ("tea".to_owned(), (*tea).to_owned())).collect();
        let input = input_payload(&config.schemas, definition, &inputs, true).unwrap();
        let documents = dry_run(definition, &with_stand_ins(&config.schemas, input));
        let end = documents.last().unwrap().text.clone();
        let titles: Vec<_> = documents.into_iter().map(|document| document.title).collect();
        (titles, end.contains("[output of line[1]]"))
    };
    let titles = |line: &str| vec![line.to_owned(), "end".to_owned()];
    assert_eq!(titles_of(&["mint"]), (titles("line, no item"), false));
    assert_eq!(titles_of(&["mint", "green"]), (titles("line, item 1"), true));
    assert_eq!(titles_of(&[]), (titles("line, item 1"), true), "the input is not given");
}

#[test]
fn a_dry_run_shows_the_paths_into_an_input_with_children() {
    let text = r#"
organism.name = "test"
clients.desk.peers = ["menu"]
agents.writer.model = "voice"
models.voice = { provider = "playback", recording = "voice.toml" }
[workflows.menu]
input = { tea = [{ name = "text" }], who = { name = "text" }, k = "text" }
[workflows.menu.goals]
line = { each = "input/tea", agent = "writer", prompt = "Describe {{item/name}} for {{input/who/name}} and {{input/k}}." }
"#;
    let config = load_text(text).unwrap_or_else(|problems| panic!("{problems}"));
    let definition = &config.workflows[0].definition;
    let given = [("k".to_owned(), "K".to_owned())];
    let input = input_payload(&config.schemas, definition, &given, true).unwrap();
    let documents = dry_run(definition, &with_stand_ins(&config.schemas, input));
    let [line] = documents.as_slice() else { panic!("{documents:?}") };
    let prompt = "Describe [input/tea/name] for [input/who/name] and K.";
    assert!(line.text.contains(prompt), "{}", line.text);
}

#[test]
fn names_that_are_not_there_are_reported_with_what_was_meant() {
    let found = problems(
        "essay",
        &[
            ("agent = \"critic\"", "agent = \"critik\""),
            ("loop = [\"draft\", \"critique\"]", "loop = [\"draft\", \"critic\"]"),
            (
                "until = \"last-line(critique) = 'publish'\"",
                "until = \"last-lines(draft) = 'publish'\"",
            ),
            ("{{input/words}} words on", "{{input/word}} words on"),
        ],
    );
    expect![[r#"
        expression-never-matches: `input` never holds `word` | input/word | did you mean `words`?
        unknown-goal: workflow `essay` has no goal `critic` | "critic" | there are outline, improve, draft, critique
        bad-expression: there is no function `last-lines` | last-lines | did you mean `last-line`?
        unknown-peer: there is no agent `critik` | "critik" | did you mean `critic`?
    "#]].assert_eq(&found);
}

#[test]
fn a_key_of_an_output_that_is_no_name_is_reported_at_its_place() {
    let output = "output = { \"a b\" = \"draft\", 2x = \"draft\", \"größe\" = \"draft\" }";
    let found = problems("essay", &[("output = \"draft\"", output)]);
    let messages: Vec<_> = found.lines().filter_map(|line| line.split(" | ").next()).collect();
    let message = |name: &str| format!("bad-name: `{name}` cannot be the name of an output");
    assert_eq!(messages, [message("a b"), message("2x")]);
    assert!(found.contains(" | 2x | names become elements: "), "{found}");
}

#[test]
fn a_workflow_is_meant_by_a_misspelled_peer_too() {
    let found = problems("essay", &[("desk.peers = [\"essay\"]", "desk.peers = [\"esay\"]")]);
    assert!(found.contains("`esay` | \"esay\" | did you mean `essay`?\n"), "{found}");
}

#[test]
fn a_comparison_that_can_never_differ_is_reported_with_the_right_spelling() {
    let last_line = "`last-line` never equals";
    let value = "its value is one line in lower case, without white space, marks and punctuation \
                 at its ends";
    let always = "; so this is always true";
    for (name, right, wrong, part, consequence, help) in [
        ("essay", "critique) = 'publish'", "critique) = 'Publish'", "'Publish'", "", "'publish'"),
        ("crew", "plan) != 'none'", "plan) != 'None.'", "'None.'", always, "'none'"),
        ("research", "check) = 'sound'", "check) = ' sound '", "' sound '", "", "'sound'"),
        (
            "intake",
            "concat(supplier, ' ', number, ' ', currency, ' ', payable)",
            "last-line(supplier) = 'A & B'",
            "'A & B'",
            "",
            "'a & b'",
        ),
    ] {
        let found = problems(name, &[(right, wrong)]);
        let line = format!(
            "expression-never-matches: {last_line} {part}: {value}{consequence} | {part} | write \
             {help}"
        );
        assert!(found.contains(&line), "{found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
}

#[test]
fn an_order_that_cannot_be_is_reported() {
    let found = problems(
        "trip",
        &[
            ("hotel.needs = []", "hotel.needs = [\"pay\"]"),
            ("name = \"text\", from", "name = \"text\", spare = \"text\", from"),
            ("amount = \"flight/price | hotel/price\"", "amount = \"flight/prize\""),
        ],
    );
    expect![[r#"
        input-unused: nothing in workflow `trip` uses the input `spare` | spare | insert {{input/spare}} in a prompt, or take it out
        goal-cycle: these goals wait for each other: hotel -> pay -> confirm -> hotel | hotel | take one of them out of `needs`, or out of its list
        expression-never-matches: `flight` never holds `prize` | flight/prize | did you mean `price`?
    "#]].assert_eq(&found);
}

#[test]
fn a_member_that_needs_a_later_one_of_its_list_is_reported() {
    let needs = |goal: &str| format!("draft = {{ needs = [\"{goal}\"], agent");
    let found = problems("essay", &[("draft = { agent", &needs("critique"))]);
    expect![[r#"
        goal-cycle: `draft` needs `critique`, which runs after it | "critique" | put `critique` before `draft` in their list
    "#]].assert_eq(&found);

    // An earlier pass may have ended, and the document shows it.
    let context = "draft = { context = [\"outline\", \"critique\"], agent";
    assert_eq!(problems("essay", &[("draft = { agent", context)]), "");
}

#[test]
fn a_role_without_an_agent_is_reported() {
    let each = "hotel.each = \"input/name\"\nhotel.role = \"'guest'\"\nhotel.needs = []";
    let found = problems("trip", &[("hotel.needs = []", each)]);
    let line = "goal-setting: no agent works on the items of `hotel`, so it has no role | hotel | \
                take `role` out, or name an `agent`\n";
    assert!(found.contains(line), "{found}");
}

#[test]
fn a_form_that_lacks_a_key_is_reported() {
    let found = problems(
        "essay",
        &[
            (", max = 4, at_max = \"continue\"", ""),
            (
                "outline = { agent = \"writer\", prompt = \"\"\"",
                "outline = { agent = \"writer\", unused = \"\"\"",
            ),
            ("critique = { agent = \"critic\",", "critique = {"),
        ],
    );
    expect![[r#"
        missing-key: goal `outline` needs `prompt` | outline | add prompt = "the task", or prompt_file = "prompt.md"
        unknown-key: goal `outline` has no key `unused` | unused | its keys are agent, prompt, prompt_file, listener, payload, with, workflow, all, first, vote, each, max_items, concurrency, on_item_failure, verify, accept, role, loop, until, max, at_max, choose, ask, form, about, needs, context, output, retry, on_failure, timeout, tokens, money, supervisor, supervise, corrections, roles
        missing-key: goal `improve` needs `max` | improve | add max = 4
        missing-key: goal `critique` needs `agent` | critique | a goal has one of `each`, `agent`, `listener`, `workflow`, `all`, `first`, `loop`, `choose`, `ask`
    "#]].assert_eq(&found);
}

#[test]
fn a_mistake_in_a_prompt_file_is_shown_at_its_place_in_this_file() {
    let directory = directory();
    let config = write(directory.path(), "");
    let prompt = "Write a bad( about {{input/topic}}\nfor {{input/raeders}}.\n{{bad(}}\n";
    std::fs::write(config.with_file_name("draft.txt"), prompt).unwrap();
    let text = definition_text("essay");
    let draft = text.find("draft = {").unwrap();
    let critique = text.find("critique = {").unwrap();
    let file = "draft = { agent = \"writer\", prompt_file = \"draft.txt\" }\n";
    let text = format!("{}{file}{}", &text[..draft], &text[critique..]);

    let problems = load_in(&directory, &text).err().unwrap();
    let places = problems.iter().map(|problem| {
        let place = &problem.place;
        let before = &prompt[..place.span.start];
        format!("{} {} {}", problem.code, place.source.name(), before.lines().count())
    });
    assert_eq!(
        places.collect::<Vec<_>>(),
        ["expression-never-matches draft.txt 2", "bad-expression draft.txt 3"]
    );
}

#[test]
fn goals_in_two_lists_and_branches_behind_an_open_one_are_reported() {
    let found = problems(
        "intake",
        &[
            (
                "answer = { choose = [{ when = \"not(book/entry)\", run = [\"letter\"] }] }",
                "answer = { choose = [{ run = [\"letter\"] }, { when = \"1\", run = [\"book\"] }] }",
            ),
            (
                "read.all = [\"reader\", \"reader\", \"reader\"]",
                "read.needs = [\"approve\"]\nread.all = [\"reader\", \"desk\"]",
            ),
        ],
    );
    expect![[r#"
        goal-unreachable: this entry can never be reached: one without `when` stands before it | { when = "1", run = ["book"] } | put the entry without `when` last
        goal-in-two-lists: `book` already runs in `invoice`; a goal stands in one list only | "book" | give this list a goal of its own
        goal-in-two-lists: `approve` runs only in `release`, so nothing else can need it | "approve" | write needs = ["release"]
        unknown-peer: `desk` is a client, not agent | "desk" | there are reader, correspondent
    "#]].assert_eq(&found);
}

#[test]
fn budgets_that_cannot_hold_are_reported() {
    let found = problems(
        "essay",
        &[
            ("tokens = 300_000", "tokens = 300_000_000\ntimeout = \"1h\""),
            ("draft = { agent", "draft = { timeout = \"2h\", tokens = 400_000_000, agent"),
        ],
    );
    expect![[r#"
        budget-too-large: `essay` may use 300000000 tokens, and a tree 10000000 | essay | lower `tokens` of the workflow, or raise it in [limits]
        budget-too-large: `draft` may take longer than its run | draft | lower `timeout` of the goal, or raise that of the workflow
        budget-too-large: `draft` may use 400000000 tokens, and its run 10000000 | tokens | lower it, or raise `tokens` of the workflow and of [limits]
    "#]].assert_eq(&found);
}

#[test]
fn a_definition_that_can_exceed_the_limits_of_a_tree_is_noted() {
    let notes = |name: &str, changes: &[(&str, &str)]| {
        let mut text = definition_text(name);
        for (from, to) in changes {
            assert!(text.contains(from), "{name} has no `{from}`");
            text = text.replacen(from, to, 1);
        }
        load_text(&text).unwrap().notes
    };
    assert_eq!(notes("research", &[]), [""; 0]);
    expect![[r#"
        [
            "a run of workflow `research` can open threads up to 402; goal `study` alone 400, and `children` in [limits] is 64: a run that needs more fails with that limit's name",
        ]
    "#]]
    .assert_debug_eq(&notes("research", &[("study.max_items = 6\n", "")]));
    expect![[r#"
        [
            "a run of workflow `code-review` can open threads up to 482; goal `inspect` alone 480, and `children` in [limits] is 64: a run that needs more fails with that limit's name",
        ]
    "#]]
    .assert_debug_eq(&notes("code-review", &[("inspect.max_items = 40", "inspect.max_items = 40\ninspect.retry = 1")]));
    expect![[r#"
        []
    "#]]
    .assert_debug_eq(&notes(
        "research",
        &[
            ("study.max_items = 6\n", ""),
            ("[workflows.research]", "[limits]\nchildren = 500\n[workflows.research]"),
        ],
    ));
    expect![[r#"
        [
            "`timeout` of workflow `research` is longer than `wall_time` in [limits]: a run at work ends after `wall_time`, as `budget-spent`",
        ]
    "#]]
    .assert_debug_eq(&notes(
        "research",
        &[(
            "[workflows.research]",
            "[limits]\nwall_time = \"1m\"\n[workflows.research]\ntimeout = \"5m\"",
        )],
    ));
}

#[test]
fn keys_of_a_payload_that_its_schema_does_not_have_are_reported() {
    let found = problems("trip", &[("town = \"input/to\"", "twon = \"input/to\"")]);
    expect![[r#"
        goal-setting: `reserve-room` of `hotels` needs `town`, and `with` has none | "hotels" | add `town` to with
        goal-setting: `reserve-room` of `hotels` has no `twon` | "input/to" | did you mean `town`?
    "#]].assert_eq(&found);
}

#[test]
fn children_stand_in_the_order_of_their_schema() {
    let text = definition_text("trip");
    let (from, to) = (
        "name = \"input/name\", town = \"input/to\"",
        "town = \"input/to\", name = \"input/name\"",
    );
    assert!(text.contains(from));
    let config = load_text(&text.replace(from, to)).unwrap();
    let goals = &config.workflows.first().unwrap().definition.goals;
    let hotel = goals.iter().find(|goal| goal.id.value.as_str() == "hotel").unwrap();
    let GoalForm::Run(GoalTarget::Listener { with: Mapping::Fields(fields), .. }) = &hotel.form
    else {
        panic!("{hotel:?}")
    };
    let keys: Vec<_> = fields.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["name", "town", "from", "to"]);
}

/// A config with a listener `svc`, a workflow `inner`, and a workflow `outer` with these goals.
fn outer_text(goals: &str) -> String {
    format!(
        r#"
organism.name = "test"
clients.desk.peers = ["outer", "inner"]
agents.writer.model = "voice"
models.voice = {{ provider = "playback", recording = "voice.toml" }}
[payloads]
job = {{ what = "text" }}
done = {{ number = "text" }}
[listeners.svc]
command = ["sh"]
accepts = ["job"]
replies = ["done"]
[workflows.inner]
input = {{ k = "text", row = [{{ what = "text" }}] }}
[workflows.inner.goals]
a = {{ agent = "writer", prompt = "{{{{input/k}}}} {{{{input/row}}}}" }}
[workflows.outer]
input = {{ k = "text" }}
[workflows.outer.goals]
{goals}"#
    )
}

#[test]
fn an_element_that_cannot_be_the_payload_of_its_call_is_reported() {
    let found = described(load_text(&outer_text(
        r#"
draft = { agent = "writer", prompt = "{{input/k}}" }
plan = { agent = "writer", prompt = "x", output = { job = [{ what = "text" }] } }
made = { agent = "writer", prompt = "x", output = "job" }
one = { each = "plan/job[what]", listener = "svc", with = "item" }
two = { listener = "svc", with = "input" }
three = { listener = "svc", with = "draft" }
four = { workflow = "inner", with = "input" }
five = { listener = "svc", with = "made | plan/job" }
six = { listener = "svc", with = "one/item" }
child = { listener = "svc", with = "three/number" }
seven = { listener = "svc", with = "plan/*" }
eight = { workflow = "inner", with = { k = "input/k", row = "plan/job" } }
nine = { each = "plan/job", agent = "writer", prompt = "{{item}}", output = "job", verify = "ten", accept = "string(ten) = 'x'" }
ten = { listener = "svc", with = "nine" }
"#,
    )));
    let of_workflow = |rest: &str| format!("`{{https://xml-pipeline.org/ns/workflow/v1/{rest}`");
    let job = "`{https://xml-pipeline.org/ns/payloads/v1}job`";
    let inner = of_workflow("inner}inner");
    let replies = "`{}item` or `{https://xml-pipeline.org/ns/payloads/v1}done`";
    let cases = [
        ("item", of_workflow("outer/goals}job"), "svc", job),
        ("input", of_workflow("outer}outer"), "svc", job),
        ("draft", "`{}draft`".to_owned(), "svc", job),
        ("input", of_workflow("outer}outer"), "inner", inner.as_str()),
        ("one/item", replies.to_owned(), "svc", job),
        ("three/number", job.replace("job", "number"), "svc", job),
    ];
    for (expression, selected, listener, taken) in &cases {
        let message = format!(
            "undeclared-payload: `{expression}` selects {selected}, and a call to `{listener}` \
             takes {taken} | \"{expression}\" | write with = {{ NAME = EXPRESSION, … }} with an \
             expression for each child of"
        );
        assert!(found.contains(&message), "{message}\n{found}");
    }
    assert_eq!(found.matches("undeclared-payload").count(), cases.len(), "{found}");
    let help = "declare the input of `inner` as a payload of `schema`, or as texts";
    assert!(found.contains(help), "{found}");
}

#[test]
fn a_member_of_a_wrong_kind_and_each_cycle_are_reported_with_advice_that_fits() {
    let found = described(load_text(&outer_text(
        r#"
a = { agent = "inner", prompt = "{{input/k}}" }
b = { listener = "writer", payload = "job", with = { what = "input/k" } }
c = { listener = "svc", with = { what = "input/k" }, output = { a = "text" } }
d = { agent = "writer", prompt = "x", needs = ["d"] }
e = { agent = "writer", prompt = "x", needs = ["f"] }
f = { agent = "writer", prompt = "x", needs = ["e"] }
"#,
    )));
    for line in [
        "unknown-peer: `inner` is a workflow, not agent | \"inner\" | a goal calls it with \
         workflow = \"inner\"\n",
        "unknown-peer: `writer` is an agent, not listener | \"writer\" | there are svc\n",
        "goal-setting: `c` is a `listener` and has no setting `output`: its output is the reply to \
         its call | c | take it out\n",
        "goal-cycle: these goals wait for each other: d -> d | d | ",
        "goal-cycle: these goals wait for each other: e -> f -> e | e | ",
    ] {
        assert!(found.contains(line), "{line}\n{found}");
    }
    assert!(!found.contains("does not accept"), "{found}");
}

#[test]
fn labels_count_passes_of_branches_and_further_runs() {
    let long = "q".repeat(63);
    let found = problems(
        "crew",
        &[
            ("loop = [\"build\", \"review\"]", "loop = [\"build\", \"review\", \"more\"]"),
            (
                "build = { agent",
                &format!(
                    "more = {{ choose = [{{ when = \"false()\", run = [\"{long}\"] }}] }}\n{long} = {{ agent = \"coder\", prompt = \"x\" }}\nbuild = {{ agent"
                ),
            ),
        ],
    );
    assert!(found.contains("label-too-long"), "{found}");
    let found = problems(
        "crew",
        &[(
            "build = { agent",
            &format!(
                "{long} = {{ agent = \"coder\", prompt = \"x\", retry = 1 }}\nbuild = {{ agent"
            ),
        )],
    );
    assert!(found.contains("label-too-long"), "{found}");
}

fn organism(directory: &Path, arguments: &[&str]) -> Output {
    let config = directory.join("config/organism.toml");
    Command::new(env!("CARGO_BIN_EXE_organism"))
        .arg("workflow")
        .args(arguments)
        .arg("--config")
        .arg(config)
        .env("HOME", directory)
        .output()
        .unwrap()
}

#[test]
fn the_command_shows_a_workflow_and_runs_it_dry() {
    let directory = directory();
    write(directory.path(), &definition_text("essay"));
    let shown = organism(directory.path(), &["show", "essay"]);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    assert!(
        text(&shown.stdout).starts_with("essay\n  outline  agent writer\n"),
        "{}",
        text(&shown.stdout)
    );

    let run = organism(directory.path(), &["run", "essay", "--dry-run", "--input", "topic=a < b"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(
        text(&run.stdout).contains(" on a &lt; b, for [input/readers]."),
        "{}",
        text(&run.stdout)
    );

    let dry = ["run", "essay", "--dry-run", "--json", "--input", "topic=a < b"];
    let run = organism(directory.path(), &dry);
    let lines = text(&run.stdout);
    assert_described(&[&["workflow"], &dry[..]].concat(), &lines);
    let is_document = |line: &str| {
        let document: serde_json::Value = serde_json::from_str(line).unwrap();
        document["title"].is_string()
    };
    assert!(lines.lines().all(is_document), "{lines}");
    assert!(lines.contains(" on a &lt; b, for "), "{lines}");

    let run = organism(directory.path(), &["run", "essay", "--dry-run", "--input", "topic=@@me"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(text(&run.stdout).contains(" on @me, for "), "{}", text(&run.stdout));

    for (arguments, expected) in [
        (vec!["show", "esay"], "did you mean `essay`?"),
        (
            vec!["run", "essay", "--dry-run", "--input", "tpic=x"],
            "the workflow has no input `tpic`; it has topic, readers, words",
        ),
        (vec!["run", "essay", "--dry-run", "--input", "topic"], "write `--input topic=VALUE`"),
    ] {
        let refused = organism(directory.path(), &arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(text(&refused.stderr).contains(expected), "{}", text(&refused.stderr));
    }
}

#[test]
fn the_names_and_the_text_of_a_payload_that_begins_a_run_are_checked() {
    let text = r#"
organism.name = "test"
clients.desk.peers = ["texts", "orders", "parcels"]
agents.writer.model = "voice"
models.voice = { provider = "playback", recording = "voice.toml" }
[payloads]
note = "text"
order = { tea = ["text"], boxes = "integer", by = "text?" }
parcel = { to = { town = "text" } }
[workflows.texts]
input = "note"
goals.a = { agent = "writer", prompt = "{{input}}" }
[workflows.orders]
input = "order"
goals.a = { agent = "writer", prompt = "{{input}}" }
[workflows.parcels]
input = "parcel"
goals.a = { agent = "writer", prompt = "{{input}}" }
"#;
    let directory = directory();
    let config = load_in(&directory, text).unwrap_or_else(|problems| panic!("{problems}"));
    let built = |workflow: &str, given: &[&str]| {
        let mut definitions = config.workflows.iter().map(|one| &one.definition);
        let definition = definitions.find(|one| one.name.value.as_str() == workflow).unwrap();
        let values = given.iter().map(|given| given.split_once('=').unwrap());
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
        match input_payload(&config.schemas, definition, &values.collect::<Vec<_>>(), false) {
            Ok(payload) => payload.to_xml().replace(" xmlns=\"https://xml-pipeline.org/ns", ""),
            Err(error) => error.to_string(),
        }
    };
    let of_orders =
        |name: &str| format!("the workflow has no input `{name}`; it has tea, boxes, by");
    for (workflow, given, expected) in [
        ("texts", &["note=a < b"][..], "<note/payloads/v1\">a &lt; b</note>".to_owned()),
        ("texts", &[], "the input `note` is missing; add --input note=VALUE".to_owned()),
        ("texts", &["note=a", "note=b"], "the input `note` is given twice".to_owned()),
        ("texts", &["=hi"], "the workflow has no input ``; it has note".to_owned()),
        (
            "orders",
            &["boxes=2", "tea=a", "tea=b"],
            "<order/payloads/v1\"><tea>a</tea><tea>b</tea><boxes>2</boxes></order>".to_owned(),
        ),
        ("orders", &["tea=a"], "the input `boxes` is missing; add --input boxes=VALUE".to_owned()),
        ("orders", &["boxes=1", "boxes=2"], "the input `boxes` is given twice".to_owned()),
        ("orders", &["boxs=2"], of_orders("boxs")),
        ("orders", &["boxes=2", "x/><y=hi"], of_orders("x/><y")),
        (
            "parcels",
            &["to=Rome"],
            "the input `to` has children or attributes: send the whole payload with \
             `organism send`"
                .to_owned(),
        ),
    ] {
        assert_eq!(built(workflow, given), expected, "{given:?}");
    }

    // The command refuses such a name before it sends anything.
    let refused = organism(directory.path(), &["run", "orders", "--input", "boxs=2"]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0), "{error}");
    assert!(error.contains(&of_orders("boxs")), "{error}");
}

/// A text can be selected as a whole payload only. Each error and note names this, so that none
/// leads to another one.
#[test]
fn a_mapping_for_a_payload_that_is_a_text_is_reported_with_advice_that_fits() {
    let text = |with: &str| {
        let goal = format!(
            "y = {{ agent = \"writer\", prompt = \"{{{{input/k}}}}\" }}\n\
             x = {{ listener = \"svc\", payload = \"note\", with = {with} }}"
        );
        let text = outer_text(&goal).replace("[payloads]\n", "[payloads]\nnote = \"text\"\n");
        text.replace("accepts = [\"job\"]", "accepts = [\"job\", \"note\"]")
    };
    let help = "`note` is a text, which no table gives: select a whole `note` from an input or an \
                output of this name, or declare it with a child, as in note = { text = \"text\" }";
    let found = described(load_text(&text("{ text = \"input/k\" }")));
    let missing = format!("goal-setting: `note` of `svc` has no `text` | \"input/k\" | {help}\n");
    assert_eq!(found, missing);
    let found = described(load_text(&text("\"input/k\"")));
    assert!(found.starts_with("undeclared-payload: `input/k` selects"), "{found}");
    assert!(found.ends_with(&format!("| \"input/k\" | {help}\n")), "{found}");
    let notes = load_text(&text("{}")).unwrap_or_else(|problems| panic!("{problems}")).notes;
    let note = format!("goal `x` of workflow `outer` sends an empty `note`; {help}");
    assert!(notes.contains(&note), "{notes:?}");
}

#[test]
fn questions_that_cannot_be_put_are_reported() {
    let found = problems(
        "trip",
        &[
            (
                "ask = \"traveller\",",
                "ask = \"traveller\", about = \"flight\", output = { x = \"text\" },",
            ),
            (
                "pay = {",
                "more = { ask = \"traveller\", about = \"pay\", form = { x = \"text\" }, prompt = \"?\" }\nlast = { ask = \"traveller\", about = \"later\", prompt = \"?\" }\nlater = { ask = \"traveller\", prompt = \"?\" }\npay = {",
            ),
        ],
    );
    expect![[r#"
        goal-setting: `confirm` asks a person, who answers with a form | confirm | write `form` in place of `output`
        goal-setting: `flight` takes no correction: no agent carries it out | "flight" | name a goal of an agent
        goal-setting: a form holds no verdict about a goal | "pay" | keep one of form and about
        goal-setting: `later` cannot run again for `last`: it does not run before it in the same list | "later" | name a goal that this one needs, of the same list
    "#]].assert_eq(&found);
}

#[test]
fn only_the_type_itself_is_reported_where_the_input_has_a_wrong_one() {
    let found = problems("essay", &[("topic = \"text\"", "topic = \"txt\"")]);
    assert_eq!(found.lines().count(), 1, "{found}");
    assert!(found.starts_with("bad-type: `txt` is not a type"), "{found}");
}

#[test]
fn an_operator_of_another_language_is_named_with_xpaths_own() {
    for (operator, help) in [
        ("==", "XPath has no `==`, write `=`"),
        ("= 'a' && 'b' =", "XPath has no `&&`, write `and`"),
        ("= 'a' || 'b' =", "XPath has no `||`, write `or`"),
    ] {
        let until = format!("until = \"last-line(critique) {operator} 'publish'\"");
        let found = problems("essay", &[("until = \"last-line(critique) = 'publish'\"", &until)]);
        assert!(found.contains(help), "{operator}: {found}");
    }
    let quoted = "until = \"last-line(critique) = 'a == b'\"";
    let found = problems("essay", &[("until = \"last-line(critique) = 'publish'\"", quoted)]);
    assert!(!found.contains("XPath has no"), "{found}");
}

#[test]
fn a_placeholder_with_single_braces_is_noted() {
    let notes = |prompt: &str| {
        let text = definition_text("essay");
        assert!(text.contains("{{input/words}} words on"));
        load_text(&text.replacen("{{input/words}} words on", prompt, 1)).unwrap().notes
    };
    let note = "the prompt of goal `draft` of workflow `essay` holds `{input/readers}`, which is text: \
                write `{{input/readers}}` to insert the value";
    let found = notes("{{input/words}} words for {input/readers} on");
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with(&note[note.find("holds").unwrap()..]), "{found:?}");
    assert_eq!(notes("{{input/words}} words {as/json} {x} { input } on"), [""; 0]);

    let text = definition_text("essay");
    let end = "with its argument.";
    assert!(text.contains(end));
    let found = load_text(&text.replacen(end, "with its {{input/words.", 1)).unwrap().notes;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("holds `{{` without `}}`"), "{found:?}");
}

#[test]
fn a_placeholder_for_a_supervisor_is_noted() {
    let text = definition_text("essay");
    let supervised = "supervisor = \"critic\", supervise = \"Look for {{input/words}}.\", agent";
    let text = text.replacen("draft = { agent", &format!("draft = {{ {supervised}"), 1);
    let found = load_text(&text).unwrap().notes;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("`supervise` of goal `draft`"), "{found:?}");
    assert!(found[0].contains("holds `{{input/words}}`, which is text there"), "{found:?}");
}

#[test]
fn a_goal_that_cannot_be_read_leads_to_no_further_problem() {
    let found = problems("essay", &[("outline = { agent", "outline = { agnet")]);
    expect![[r#"
        unknown-key: goal `outline` has no key `agnet` | agnet | did you mean `agent`?
    "#]]
    .assert_eq(&found);
}

#[test]
fn a_name_without_an_output_gets_advice_that_fits_its_goal() {
    let prompt = "{{outline}} {{improve}} {{critique}} Outline an essay";
    let found = problems("essay", &[("Outline an essay", prompt)]);
    expect![[r#"
        expression-never-matches: `outline` has no output before it has ended | outline | name a goal that ends before it
        expression-never-matches: `improve` has no output: only the goals in it have one | improve | name a goal in it
        expression-never-matches: `critique` has no output here: it may not have ended | critique | add "critique" to needs
    "#]].assert_eq(&found);

    let found = problems("essay", &[("max = 4", "max = 0")]);
    assert!(found.ends_with("| 0 | a whole number from 1 to 10000\n"), "{found}");
}

#[test]
fn a_decimal_number_that_xpath_computes_is_noted() {
    let notes = |amount: &str| {
        let text = definition_text("trip");
        let selected = "flight/price | hotel/price";
        assert!(text.contains(selected));
        load_text(&text.replacen(selected, amount, 1)).unwrap().notes
    };
    for computed in ["flight/price + hotel/price", "sum(flight/price)", "flight/price * 2"] {
        let found = notes(computed);
        assert_eq!(found.len(), 1, "{found:?}");
        let note = "`amount` in goal `pay` of workflow `trip` is a decimal number that";
        assert!(found[0].starts_with(note), "{found:?}");
    }
    for selected in ["flight/price | hotel/price", "flight/*[2]", "flight/price[. + 1 > 2]"] {
        assert_eq!(notes(selected), [""; 0], "{selected}");
    }
}

/// Each call that can be undone may be undone in a separate thread. These threads count among the
/// threads of a run.
#[test]
fn threads_that_undo_count_among_the_threads_of_a_run() {
    let notes = |children: u32| {
        let text = definition_text("trip") + &format!("\n[limits]\nchildren = {children}\n");
        load_text(&text).unwrap().notes
    };
    let undoing = definition_text("trip").contains("on_failure = \"undo\"");
    assert!(undoing, "the trip undoes what was booked");
    // Flight, hotel, question and payment; then an undo for the flight and one for the hotel, and the
    // list for a person.
    assert_eq!(notes(7), [""; 0]);

    expect![[r#"
        a run of `trip` can open 7 threads with those of its undo, and `children` in [limits] is 6: a run that has used them up is not undone; raise `children` in [limits], or lower `max_items`, `max` or `retry` of its goals"#]]
    .assert_eq(&notes(6).join("\n"));
}
