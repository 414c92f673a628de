//! Conditions that are valid expressions but can never match, and notes about settings without an
//! effect.

use super::{described, load_text};

/// A config with a workflow `inner`, and a workflow `outer` with the goal `pick`. The goal has this
/// condition and these further settings.
fn config(condition: &str, settings: &str) -> String {
    format!(
        r#"
organism.name = "test"
clients.desk.peers = ["outer"]
agents.writer.model = "voice"
agents.critic.model = "voice"
models.voice = {{ provider = "playback", recording = "voice.toml" }}
[workflows.inner]
input = {{ k = "text" }}
output = {{ lines = "count(rows/row)", first = "rows/row", all = "rows" }}
[workflows.inner.goals]
rows = {{ agent = "writer", prompt = "{{{{input/k}}}}", output = {{ row = ["text"] }} }}
[workflows.outer]
input = {{ k = "text", urgent = "boolean?" }}
[workflows.outer.goals]
review = {{ agent = "critic", prompt = "{{{{input/k}}}} {{{{input/urgent}}}}", output = {{ accept = "boolean", grade = "good | bad" }} }}
views = {{ all = ["writer", "critic"], prompt = "Judge it." }}
call = {{ workflow = "inner", with = {{ k = "input/k" }} }}
pick = {{ choose = [{{ when = "{condition}", run = ["answer"] }}]{settings} }}
answer = {{ agent = "writer", prompt = "Answer." }}
"#
    )
}

fn notes(text: &str) -> Vec<String> {
    load_text(text).unwrap_or_else(|problems| panic!("{problems}")).notes
}

#[test]
fn a_literal_that_a_boolean_or_a_choice_never_has_is_reported() {
    for (condition, message, help) in [
        ("review/grade = 'Bad'", "`review/grade` is never 'Bad'", "did you mean `bad`?"),
        ("'fair' != review/grade", "it is one of good, bad", "there are good, bad"),
        ("not(review/accept = 'yes')", "`review/accept` is never 'yes'", "there are true, false"),
    ] {
        let found = described(load_text(&config(condition, "")));
        assert_eq!(found.lines().count(), 1, "{condition}: {found}");
        assert!(found.starts_with("expression-never-matches: "), "{condition}: {found}");
        assert!(found.contains(message), "{condition}: {found}");
        assert!(found.contains(help), "{condition}: {found}");
    }
    for condition in [
        "review/grade = 'bad' or review/grade != ''",
        "review/accept = 'true' or review/accept = '1' or review/accept != ' false '",
        "normalize-space(review/accept) = 'true'",
    ] {
        assert_eq!(notes(&config(condition, "")), [""; 0], "{condition}");
    }
}

#[test]
fn a_name_that_the_output_of_another_workflow_does_not_have_is_reported() {
    for (condition, message) in [
        ("call/count > 0", "`call` never holds `count`"),
        ("call/first/row", "`call/first` never holds `row`"),
    ] {
        let found = described(load_text(&config(condition, "")));
        assert_eq!(found.lines().count(), 1, "{condition}: {found}");
        assert!(found.contains(message), "{condition}: {found}");
    }
    for condition in ["call/lines > 0", "call/all/rows/row", "call/first = 'x'"] {
        assert_eq!(notes(&config(condition, "")), [""; 0], "{condition}");
    }
}

#[test]
fn a_condition_that_may_not_decide_what_it_seems_to_decide_is_noted() {
    for (condition, note) in [
        ("review/accept", "the condition `review/accept` in goal `pick` of workflow `outer` holds"),
        ("not(input/urgent)", "compare it, as in input/urgent = 'true'"),
        ("last-line(views) = 'revise'", "as in views/*[last-line(.) = 'revise']"),
        ("last-line(views/*) = 'revise'", "although `views` has several outputs"),
    ] {
        let found = notes(&config(condition, ""));
        assert_eq!(found.len(), 1, "{condition}: {found:?}");
        assert!(found[0].contains(note), "{condition}: {found:?}");
    }
    for condition in ["has-word(views, 'REVISE')", "views/*[last-line(.) = 'revise']"] {
        assert_eq!(notes(&config(condition, "")), [""; 0], "{condition}");
    }
}

#[test]
fn a_retry_without_a_call_and_runs_beneath_beyond_a_limit_are_noted() {
    let text = config("call/lines > 0", ", retry = 2");
    let found = notes(&text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("`retry` of goal `pick` of workflow `outer`"), "{found:?}");

    let text = config("call/lines > 0", "");
    assert_eq!(notes(&format!("{text}[limits]\nthreads = 6\ndepth = 2\n")), [""; 0]);
    let found = notes(&format!("{text}[limits]\nthreads = 5\ndepth = 1\n"));
    let [threads, depth] = found.as_slice() else { panic!("{found:?}") };
    assert!(threads.contains("can open threads up to 6; goal `call` alone 2"), "{threads}");
    assert!(depth.contains("`outer` can have threads 2 levels beneath it"), "{depth}");
}
