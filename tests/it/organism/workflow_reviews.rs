//! Runs in a whole organism whose outputs are reviewed before they count.

use serde_json::Value as Json;

use super::kill::start;
use super::workflow::messages;
use super::{House, Said, until};

const CONFIG: &str = include_str!("../../data/organism/survey.toml");

fn house(config: &str) -> House {
    let house = House::with(config);
    house.copy("survey-recording.toml");
    house
}

/// Sends a survey of three questions, the last of which has no answer.
fn survey(house: &House, more: &[&str]) -> Said {
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

/// The document of the goal in this thread.
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

/// Kills the organism at the `nth` step, starts it again, and asserts that the run ends as an
/// undisturbed one. Returns whether it died before the run was over.
fn dies_and_ends_alike(nth: u32) -> bool {
    let house = house(CONFIG);
    let mut running = start(&house, Some(&format!("stepped:{nth}")));
    until("the organism is ready or gone", || {
        let is_gone = running.child.try_wait().unwrap().is_some();
        (is_gone || house.log().contains("is ready")).then_some(())
    });
    let first = survey(&house, &["--key", "once", "--no-wait"]);
    let died = first.code != Some(0)
        || until("it dies, or the run ends", || {
            let is_gone = running.child.try_wait().unwrap().is_some();
            let is_over = || !messages(&house, "survey-output").is_empty();
            if is_gone { Some(true) } else { is_over().then_some(false) }
        });
    drop(running);
    let again = house.run();
    let sent = survey(&house, &["--key", "once"]);
    assert_eq!(sent.out, OUTPUT, "stepped:{nth}: {sent:?}");
    assert_eq!(again.stop(), Some(0));
    // No goal ran in a second thread, whatever had an answer when it died.
    assert_eq!(messages(&house, "goal").len(), 10, "stepped:{nth}");
    house.verified();
    died
}

#[test]
fn a_killed_run_resumes_in_the_middle_of_its_reviews() {
    let deaths = [5, 10, 15, 20, 25].into_iter().filter(|nth| dies_and_ends_alike(*nth)).count();
    assert!(deaths >= 3, "it died {deaths} times before the run was over");
}
