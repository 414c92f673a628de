//! The tree of a thread with totals for each branch, and the graph of a run's goals.

use super::{ViewServer, text_of};
use crate::organism::House;
use crate::organism::auditor_questions::AuditedRuns;
use crate::organism::diff::essay_house;
use crate::organism::say;

/// Cells of the table row that links to a thread.
fn row<'p>(page: &'p str, thread: &str) -> Vec<&'p str> {
    let link = format!("href=\"/threads/{thread}\"");
    let row = page.split("<tr>").skip(1).find(|row| row.contains(&link));
    let row = row.unwrap_or_else(|| panic!("no row with {link} in {page}"));
    row.split("<td").skip(1).collect()
}

#[test]
fn each_branch_of_a_tree_has_its_totals_and_opens_on_demand() {
    let house = essay_house();
    let view = ViewServer::start(&house, &[]);
    let thread = view.page("/threads/sess-essay000");
    assert!(thread.contains("href=\"/threads/sess-essay000/tree\""), "{thread}");

    let page = view.page("/threads/sess-essay000/tree");
    let compared = house.organism(&["diff", "sess-essay000", "sess-essay000", "--json"]);
    let totals = &compared.json()[0]["a"];
    let sums = row(&page, "sess-essay000");
    let sums: Vec<_> = sums.iter().map(|cell| text_of(&format!("<td{cell}"))).collect();
    for name in ["subthreads", "messages", "turns"] {
        let sum = totals[name].to_string();
        assert!(sums.contains(&sum), "{name} {sum} in {sums:?}");
    }
    let sent = house.organism(&["threads", "--json"]).json();
    let tokens = sent[0]["tokens_in"].as_u64().unwrap() + sent[0]["tokens_out"].as_u64().unwrap();
    let shown = sums.iter().map(|cell| cell.replace('\u{202f}', ""));
    assert!(shown.into_iter().any(|cell| cell == tokens.to_string()), "{tokens} in {sums:?}");

    let child = row(&page, "sess-essay000.critique_1");
    assert!(text_of(&format!("<td{}", child[1])).contains("essay"), "{child:?}");
    let beneath = view.page("/threads/sess-essay000.critique_1/tree");
    assert!(beneath.contains("href=\"/threads/sess-essay000/tree\""), "{beneath}");
    assert_eq!(view.get("/threads/sess-unknown1/tree").status, 404);
    assert_eq!(view.get("/threads/sess-essay000/tree?from=x").status, 400);
}

#[test]
fn the_graph_of_a_run_is_coloured_by_it_and_leads_to_the_subthreads() {
    let house = essay_house();
    let (result, _) = house.messages("essay-output").remove(0);
    let forked = house.organism(&["fork", &result.to_string(), "--json"]);
    let fork = forked.json()[0]["fork"].as_str().unwrap().to_owned();
    let view = ViewServer::start(&house, &[]);
    let thread = view.page("/threads/sess-essay000");
    assert!(thread.contains("href=\"/threads/sess-essay000/goals\""), "{thread}");

    let page = view.page("/threads/sess-essay000/goals");
    let drawing = page.split("aria-label=\"Goals\"").nth(1).unwrap();
    let drawing = drawing.split("</svg>").next().unwrap();
    let done = drawing.matches("data-phase=\"done\"").count();
    assert!(done >= 3, "{done} in {drawing}");
    for goal in ["outline", "draft", "critique"] {
        assert!(text_of(drawing).contains(goal), "{goal} in {drawing}");
    }
    assert!(drawing.contains("href=\"/threads/sess-essay000.critique_2\""), "{drawing}");
    assert!(page.contains("href=\"/threads/sess-essay000.critique_1\""), "{page}");
    assert!(drawing.contains("class=\"edge\""), "{drawing}");

    // The box of a goal has the time that its row in the table has.
    let row = page.split("<tr>").find(|row| row.contains("<bdi>outline</bdi>")).unwrap();
    let took = row.split("data-label=\"Took\">").nth(1).unwrap().split("</td>").next().unwrap();
    let of_goal = drawing.split(">outline</text>").nth(1).unwrap().split("</g>").next().unwrap();
    assert!(!took.is_empty() && of_goal.contains(&format!(">{took}</text>")), "{of_goal}");

    // The run is in the history of the fork.
    let page = view.page(&format!("/threads/{fork}/goals"));
    let of_fork = page.split("aria-label=\"Goals\"").nth(1).unwrap();
    let of_fork = of_fork.split("</svg>").next().unwrap();
    assert_eq!(of_fork.matches("data-phase=\"done\"").count(), done, "{of_fork}");
    assert!(of_fork.contains(&format!("href=\"/threads/{fork}.critique_2\"")), "{of_fork}");
}

/// Tokens in the row of a goal.
fn tokens_of(page: &str, goal: &str) -> u64 {
    let row = page.split("<tr>").find(|row| {
        let head = row.split("</th>").next().unwrap();
        text_of(head).trim_start_matches("· ") == goal
    });
    let row = row.unwrap_or_else(|| panic!("no row of {goal} in {page}"));
    let cell = row.split("data-label=\"Tokens\">").nth(1).unwrap().split("</td>").next().unwrap();
    cell.replace('\u{202f}', "").parse().unwrap_or_else(|_| panic!("{cell} in {row}"))
}

#[test]
fn a_loop_names_its_rounds_and_sums_what_its_members_took() {
    let house = essay_house();
    let view = ViewServer::start(&house, &[]);
    let page = view.page("/threads/sess-essay000/goals");
    let drawing = page.split("aria-label=\"Goals\"").nth(1).unwrap();
    let drawing = drawing.split("</svg>").next().unwrap();
    assert!(text_of(drawing).contains("done, 2 rounds"), "{drawing}");
    assert!(drawing.contains("class=\"edge back\""), "{drawing}");

    let members = tokens_of(&page, "draft") + tokens_of(&page, "critique");
    assert_eq!(tokens_of(&page, "improve"), members);
    let cost = page.split("data-label=\"Cost\">").nth(1).unwrap().split("</td>").next().unwrap();
    assert_eq!(cost, "no price", "{page}");
}

#[test]
fn all_pages_about_a_thread_have_the_same_head() {
    let house = essay_house();
    let view = ViewServer::start(&house, &[]);
    let head = |page: &str| {
        let facts = page.split("<dl class=\"facts\">").nth(1).unwrap();
        text_of(facts.split("</dl>").next().unwrap())
    };
    let thread = head(&view.page("/threads/sess-essay000"));
    let parts = ["Status", "completed", "Opened", "desk", "Took", "Messages", "Tokens", "no price"];
    for part in parts {
        assert!(thread.contains(part), "{part} in {thread}");
    }
    for page in ["tree", "goals"] {
        assert_eq!(head(&view.page(&format!("/threads/sess-essay000/{page}"))), thread, "{page}");
    }
    let tree = view.page("/threads/sess-essay000/tree");
    let root = row(&tree, "sess-essay000");
    assert!(root[1].contains("<bdi>desk</bdi>"), "{root:?}");

    let runs = AuditedRuns::shared();
    let view = ViewServer::start(&runs.house, &[]);
    for page in ["", "?view=timeline", "/tree"] {
        let page = view.page(&format!("/threads/sess-waiting777{page}"));
        let wait = page.split("id=\"needs-you\"").nth(1).unwrap().split("<dl").next().unwrap();
        assert!(text_of(wait).contains("Waits for an approval: writer → ledger say"), "{wait}");
        assert!(wait.contains("How to decide"), "{wait}");
        assert!(page.contains("<dt>Cost</dt>"), "{page}");
    }
    let failed = head(&view.page("/threads/sess-tired001"));
    assert!(failed.contains("failed: budget-spent: "), "{failed}");
}

#[test]
fn a_thread_without_a_run_has_no_graph() {
    let house = House::with_echo();
    let running = house.run();
    assert_eq!(house.send_text(&say("plain"), &["--new", "sess-plain001"]).code, Some(0));
    assert_eq!(running.stop(), Some(0));
    let view = ViewServer::start(&house, &[]);
    assert!(!view.page("/threads/sess-plain001").contains("/goals\""));
    let missing = view.get("/threads/sess-plain001/goals");
    assert_eq!(missing.status, 404, "{}", missing.body);
    assert!(text_of(&missing.body).contains("has no run"), "{}", missing.body);
    assert_eq!(view.get("/threads/sess-unknown1/goals").status, 404);
}
