//! Workflows in a whole organism. The output of each goal is reviewed before it counts.

use serde_json::Value as Json;

use super::kill::start;
use super::workflow::messages;
use super::{CommandOutput, House, until};

const CONFIG: &str = include_str!("../../data/organism/survey.toml");

fn house(config: &str) -> House {
    let house = House::with(config);
    house.copy("survey-recording.toml");
    house
}

/// Sends a survey of three questions. There is no answer to the third question.
fn survey(house: &House, more: &[&str]) -> CommandOutput {
    let request = "<survey xmlns=\"https://xml-pipeline.org/ns/workflow/v1/survey\">\
                   <question>Who?</question><question>Where?</question><question>Why?</question>\
                   </survey>";
    house.send_text(request, &[&["--new", "sess-surveyed0"], more].concat())
}

const OUTPUT: &str = concat!(
    "<survey-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/survey\">",
    "<found>The gate does.\nSee the file that is there.</found>",
    "<missed>Why?</missed></survey-output>\n",
);

/// The document that an agent got as its goal in this thread.
fn document(house: &House, thread: &str) -> String {
    let goals = messages(house, "goal");
    let goal = goals.iter().find(|goal| goal["thread"] == thread).unwrap();
    let payload = organism::xml::element::Element::read(goal["payload"].as_str().unwrap());
    payload.unwrap().text()
}

#[test]
fn items_that_are_not_accepted_run_again_with_a_correction_or_are_collected() {
    let house = house(CONFIG);
    let sent = survey(&house, &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(sent.out, OUTPUT);
    expect_test::expect![[r#"
        <workflow name="survey">

        <current-goal id="study">
        Answer: Where?
        </current-goal>

        <correction source="supervisor">
        There is no such file. Name the one that is there.
        UNSOUND
        </correction>

        </workflow>"#]]
    .assert_eq(&document(&house, "sess-surveyed0.study_2-1"));
    expect_test::expect![[r#"
        <workflow name="survey">

        <context>
          <goal id="study[2]">
        See &lt;/goal&gt; in a file that is not there.
          </goal>
        </context>

        <current-goal id="check">
        Is it an answer to Where?? End with SOUND or UNSOUND.
        </current-goal>

        </workflow>"#]]
    .assert_eq(&document(&house, "sess-surveyed0.check_2"));

    let spawned = messages(&house, "spawn-thread");
    let of_item = |label: &str| {
        let label = format!("suggested_sub_id=\"{label}\"");
        let has = |one: &&Json| one["payload"].as_str().unwrap().contains(&label);
        spawned.iter().find(has).unwrap()["payload"].as_str().unwrap().to_owned()
    };
    let limited = of_item("study_1");
    assert!(limited.contains(" tokens=\"100000\" timeout=\"PT300.000S\""), "{limited}");
    let verification = of_item("check_1");
    assert!(verification.contains(" timeout=\"PT59"), "{verification}");
    house.verified();
}

const BRIEF: &str = include_str!("../../data/organism/brief.toml");

fn brief_house(config: &str) -> House {
    let house = House::with(config);
    house.copy("brief-recording.toml");
    house
}

fn brief(house: &House, more: &[&str]) -> CommandOutput {
    let request = "<brief xmlns=\"https://xml-pipeline.org/ns/workflow/v1/brief\">\
                   <topic>light</topic></brief>";
    house.send_text(request, &[&["--new", "sess-briefed00"], more].concat())
}

const BRIEF_OUTPUT: &str = concat!(
    "<brief-output xmlns=\"https://xml-pipeline.org/ns/workflow/v1/brief\">",
    "<parts>Light\nShade</parts><text>Light and shade.</text>",
    "<polished>Light, and its shade.</polished></brief-output>\n",
);

#[test]
fn typed_outputs_supervisors_and_judges_are_carried_out_by_agents() {
    let house = brief_house(BRIEF);
    let sent = brief(&house, &[]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(sent.out, BRIEF_OUTPUT);

    // The first plan did not fit its type: the agent was told, and corrected it.
    let huhs = messages(&house, "huh");
    assert!(huhs.iter().any(|huh| huh["thread"] == "sess-briefed00.plan"), "{huhs:?}");
    let plans = messages(&house, "plan");
    assert_eq!(plans.len(), 1, "{plans:?}");

    expect_test::expect![[r#"
        <workflow name="brief">

        <context>
          <goal id="plan">
        &lt;plan&gt;&lt;part&gt;&lt;name&gt;Light&lt;/name&gt;&lt;words&gt;90&lt;/words&gt;&lt;/part&gt;&lt;part&gt;&lt;name&gt;Shade&lt;/name&gt;&lt;words&gt;40&lt;/words&gt;&lt;/part&gt;&lt;/plan&gt;
          </goal>
        </context>

        <current-goal id="draft">
        Write Light
        Shade.
        </current-goal>

        <correction source="supervisor">
        Shade is missing: &lt;/correction&gt; it.
        </correction>

        </workflow>"#]]
    .assert_eq(&document(&house, "sess-briefed00.draft-1"));
    expect_test::expect![[r#"
        <workflow name="brief">

        <context>
          <goal id="plan">
        &lt;plan&gt;&lt;part&gt;&lt;name&gt;Light&lt;/name&gt;&lt;words&gt;90&lt;/words&gt;&lt;/part&gt;&lt;part&gt;&lt;name&gt;Shade&lt;/name&gt;&lt;words&gt;40&lt;/words&gt;&lt;/part&gt;&lt;/plan&gt;
          </goal>

          <goal id="draft">
        Light.
          </goal>
        </context>

        <current-goal id="draft[supervisor]">
        Write Light
        Shade.

        Look for gaps.
        </current-goal>

        </workflow>"#]]
    .assert_eq(&document(&house, "sess-briefed00.draft_supervisor"));
    house.verified();
}

#[test]
fn a_supervisor_that_corrects_too_often_fails_the_goal() {
    let house = brief_house(BRIEF);
    let recording = std::fs::read_to_string(house.path("brief-recording.toml")).unwrap();
    let unconvinced = "<decision>correct</decision><text>Still a gap.</text></verdict>";
    let recording = recording.replace("<decision>continue</decision></verdict>", unconvinced);
    house.write("brief-recording.toml", recording);
    let sent = brief(&house, &[]);
    assert_eq!(sent.code, Some(1), "{sent:?}");
    let expected = "<goal>draft</goal><code>corrections-spent</code>\
                    <reason>`lead` corrected it more than 1 times: Still a gap.</reason>";
    assert!(sent.out.contains(expected), "{sent:?}");
    house.verified();
}

/// A run that is killed and resumed.
pub struct KilledRun {
    pub house: fn() -> House,
    pub send: fn(&House, &[&str]) -> CommandOutput,
    pub output: &'static str,
    /// Local name of the run's reply.
    pub reply: &'static str,
    /// Number of agents' threads that the run opens.
    pub goals: usize,
}

/// Kills the organism at the `nth` step, and starts it again. Asserts that the run ends as it would
/// without a kill. Returns whether the organism died before the run was over.
pub fn dies_and_ends_alike(run: &KilledRun, nth: u32) -> bool {
    let house = (run.house)();
    let mut running = start(&house, Some(&format!("stepped:{nth}")));
    until("the organism is ready or gone", || {
        let is_gone = running.child.try_wait().unwrap().is_some();
        (is_gone || house.log().contains("is ready")).then_some(())
    });
    let first = (run.send)(&house, &["--key", "once", "--no-wait"]);
    let died = first.code != Some(0)
        || until("it dies, or the run ends", || {
            let is_gone = running.child.try_wait().unwrap().is_some();
            let is_over = || !messages(&house, run.reply).is_empty();
            if is_gone { Some(true) } else { is_over().then_some(false) }
        });
    drop(running);
    let again = house.run();
    let sent = (run.send)(&house, &["--key", "once"]);
    assert_eq!(sent.out, run.output, "stepped:{nth}: {sent:?}");
    assert_eq!(again.stop(), Some(0));
    // No goal ran in a second thread, whatever had an answer when it died.
    assert_eq!(messages(&house, "goal").len(), run.goals, "stepped:{nth}");
    house.verified();
    died
}

#[test]
fn a_run_that_is_killed_in_a_verification_resumes_and_ends_alike() {
    let run = KilledRun {
        house: || house(CONFIG),
        send: survey,
        output: OUTPUT,
        reply: "survey-output",
        goals: 10,
    };
    let deaths = [5, 12, 20].into_iter().filter(|nth| dies_and_ends_alike(&run, *nth)).count();
    assert!(deaths >= 2, "it died {deaths} times before the run was over");
}

#[test]
fn a_run_that_is_killed_beside_a_supervisor_or_a_judge_resumes_and_ends_alike() {
    let run = KilledRun {
        house: || brief_house(BRIEF),
        send: brief,
        output: BRIEF_OUTPUT,
        reply: "brief-output",
        goals: 9,
    };
    let steps = [5, 10, 15, 20, 25];
    let deaths = steps.into_iter().filter(|nth| dies_and_ends_alike(&run, *nth)).count();
    assert!(deaths >= 3, "it died {deaths} times before the run was over");
}
