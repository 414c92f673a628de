//! The docs agree with the code: every error code has its page, every core payload is described,
//! and every link has a target.

use std::collections::BTreeSet;

use organism::envelope::RefusalRule;
use organism::system::ErrorCode;

use crate::nothing;
use crate::tree::{File, files, read, root};

fn documents() -> impl Iterator<Item = &'static File> {
    files().iter().filter(|file| file.path.ends_with(".md") && !file.path.contains("tests/data/"))
}

fn codes() -> BTreeSet<&'static str> {
    let rules = RefusalRule::ALL.iter().map(|rule| rule.as_str());
    rules.chain(ErrorCode::ALL.iter().map(|error| error.as_str())).collect()
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let mut wrong = Vec::new();
    let index = read("docs/errors/README.md");
    for code in codes() {
        let path = format!("docs/errors/{code}.md");
        let Ok(page) = std::fs::read_to_string(root().join(&path)) else {
            wrong.push(format!("{path} is missing"));
            continue;
        };
        for part in [format!("# {code}\n"), "**What happened.**".into(), "**What to do.**".into()] {
            if !page.contains(&part) {
                wrong.push(format!("{path} does not say `{}`", part.trim()));
            }
        }
        if !index.contains(&format!("({code}.md)")) {
            wrong.push(format!("docs/errors/README.md does not list {code}"));
        }
    }
    for file in documents() {
        let page = file.path.strip_prefix("docs/errors/").and_then(|p| p.strip_suffix(".md"));
        let known = ["README", "findings", "stream-shorter", "stream-forked"];
        if page.is_some_and(|page| !codes().contains(page) && !known.contains(&page)) {
            wrong.push(format!("{} is about no code", file.path));
        }
    }
    nothing(wrong, "pages of docs/errors");
}

#[test]
fn a_page_says_whether_to_try_again_as_the_code_does() {
    let mut wrong = Vec::new();
    for error in ErrorCode::ALL {
        let page = read(&format!("docs/errors/{}.md", error.as_str()));
        let said = format!("`retry_allowed=\"{}\"`", error.retry_allowed());
        if !page.contains(&said) {
            wrong.push(format!("{}: {said}", error.as_str()));
        }
    }
    nothing(wrong, "pages that do not say");
}

/// The codes of schemas and of their payloads that a file writes as literals.
fn schema_codes(text: &str) -> BTreeSet<String> {
    let literals = text.match_indices("\"schema-").filter_map(|(at, _)| {
        let (word, _) = text[at + 1..].split_once('"')?;
        let is_code = word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let is_beginning_of_codes = text[..at].ends_with("starts_with(");
        (is_code && !is_beginning_of_codes).then(|| word.to_owned())
    });
    literals.collect()
}

#[test]
fn every_code_of_a_finding_is_explained() {
    let page = read("docs/errors/findings.md");
    // Records and feedback write the codes of extraction with hyphens.
    let extracted = organism::xml::extract::ExtractCode::ALL.iter();
    let extracted = extracted.map(|code| code.as_str().replace('_', "-"));
    let files = files().iter().filter(|file| file.path.starts_with("src/schema/"));
    let validated: BTreeSet<_> = files.flat_map(|file| schema_codes(&file.text)).collect();
    assert!(validated.len() > 35, "the codes were found");
    let codes: BTreeSet<_> = extracted.chain(validated).collect();
    let missing = codes.into_iter().filter(|code| !page.contains(&format!("| `{code}` |")));
    nothing(missing.collect(), "codes that docs/errors/findings.md does not explain");
}

#[test]
fn a_code_of_a_schema_is_found_in_a_file() {
    let text =
        "new(\"a \\\" b\", \"schema-doctype\", c.starts_with(\"schema-import\"), \"schema-a.xsd\")";
    assert_eq!(schema_codes(text), BTreeSet::from(["schema-doctype".to_owned()]));
}

#[test]
fn every_exit_code_is_explained() {
    let page = read("docs/OPERATIONS.md");
    let section = page.split("\n## Exit codes\n").nth(1).expect("the section of exit codes");
    let section = section.split("\n## ").next().unwrap_or_default();
    let explained: BTreeSet<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" |"))
        .flat_map(|(codes, _)| codes.split(", "))
        .collect();

    let code = read("src/cli/exit.rs");
    let (_, members) = code.split_once("pub enum CommandExit {").expect("the enum of exit codes");
    let (members, _) = members.split_once("\n}").expect("the end of the enum");
    let codes = members.lines().filter_map(|line| line.split_once(" = ")?.1.strip_suffix(','));
    let codes: Vec<&str> = codes.collect();
    assert!(codes.len() > 10, "the codes were found");
    let missing = codes.into_iter().filter(|code| !explained.contains(code));
    nothing(missing.map(str::to_owned).collect(), "exit codes that docs/OPERATIONS.md lacks");
}

#[test]
fn every_config_problem_is_explained() {
    let page = read("docs/CONFIG.md");
    let missing = organism::config::ProblemCode::ALL
        .iter()
        .filter(|code| !page.contains(&format!("`{}`", code.as_str())))
        .map(|code| code.as_str().to_owned());
    nothing(missing.collect(), "problems that docs/CONFIG.md does not explain");
}

/// The views of the index, each with its columns.
fn views() -> Vec<(String, Vec<String>)> {
    let schema = read("src/index/views.sql");
    let views = schema.split("CREATE VIEW ").skip(1).filter_map(|view| {
        let (name, rest) = view.split_once('(')?;
        let (columns, _) = rest.split_once(") AS")?;
        let columns = columns.split(',').map(|column| column.trim().to_owned());
        Some((name.to_owned(), columns.collect()))
    });
    views.collect()
}

#[test]
fn every_column_of_a_view_is_explained() {
    let page = read("docs/AUDIT.md");
    let (_, reference) = page.split_once("\n## SQL\n").unwrap();
    let sections: Vec<&str> = reference.split("\n### ").collect();
    // The section before the first view is about all of them, and about `about`.
    let explained = |view: &str| -> String {
        let is_about = |section: &&&str| {
            let heading = section.lines().next().unwrap_or_default();
            heading.contains(&format!("`{view}`"))
        };
        match view {
            "about" => sections[0].to_owned(),
            _ => sections.iter().filter(is_about).copied().collect(),
        }
    };

    let views = views();
    assert!(views.len() > 15, "the views were found");
    let mut missing = Vec::new();
    for (view, columns) in views {
        // The section of `thread` names only what differs from `tree`.
        let shared = if view == "thread" { explained("tree") } else { String::new() };
        let text = explained(&view) + &shared;
        let unnamed = columns.iter().filter(|column| !text.contains(&format!("`{column}`")));
        missing.extend(unnamed.map(|column| format!("{view}.{column}")));
    }
    nothing(missing, "columns that docs/AUDIT.md does not explain");
}

#[test]
fn every_core_word_is_in_the_protocol() {
    let schema = read("schemas/core.xsd");
    let words: Vec<_> = schema
        .lines()
        .filter_map(|line| line.strip_prefix("  <xs:element name=\""))
        .filter_map(|line| line.split('"').next())
        .collect();
    assert!(words.len() > 20, "the words were found");
    let protocol = read("docs/PROTOCOL.md");
    let missing = words.into_iter().filter(|word| !protocol.contains(&format!("`{word}")));
    nothing(missing.map(str::to_owned).collect(), "words that docs/PROTOCOL.md does not describe");
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for file in documents() {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (at, _) in file.text.match_indices("](") {
            let target = file.text[at + 2..].split(')').next().unwrap_or_default();
            let path = target.split('#').next().unwrap_or_default();
            let is_local = !path.is_empty() && !path.contains("://") && !path.contains(' ');
            if is_local && !root().join(folder).join(path).exists() {
                wrong.push(format!("{}: {target}", file.path));
            }
        }
    }
    nothing(wrong, "links that lead nowhere");
}

/// Anchors of the headings of a page, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        let slug: String = kept.flat_map(char::to_lowercase).collect();
        let slug = slug.replace(' ', "-");
        let count = (1..).find(|n| !found.contains(&format!("{slug}-{n}"))).unwrap_or(1);
        let is_new = found.insert(slug.clone());
        if !is_new {
            found.insert(format!("{slug}-{count}"));
        }
    }
    found
}

/// Links of a page to headings that do not exist on the linked page.
fn broken_anchors(path: &str, text: &str, page: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut wrong = Vec::new();
    for (at, _) in text.match_indices("](") {
        let target = text[at + 2..].split(')').next().unwrap_or_default();
        let Some((other, anchor)) = target.split_once('#') else { continue };
        if other.contains("://") || target.contains(' ') {
            continue;
        }
        let linked = match other {
            "" => Some(text.to_owned()),
            _ => page(&format!("{folder}/{other}")),
        };
        if linked.is_some_and(|linked| !anchors(&linked).contains(anchor)) {
            wrong.push(format!("{path}: {target}"));
        }
    }
    wrong
}

#[test]
fn every_anchor_of_a_link_is_a_heading() {
    let page = |path: &str| std::fs::read_to_string(root().join(path)).ok();
    let wrong = documents().flat_map(|file| broken_anchors(&file.path, &file.text, page));
    nothing(wrong.collect(), "links to anchors that no heading has");
}

#[test]
fn a_link_to_a_heading_that_is_gone_is_found() {
    let page =
        |path: &str| (path == "docs/./b.md").then(|| "# Scale out: `two` pumps\n".to_owned());
    let text =
        "## Here\n[a](#here) [b](#there) [c](./b.md#scale-out-two-pumps) [d](./b.md#scale-out)\n";
    let broken = broken_anchors("docs/a.md", text, page);
    assert_eq!(broken, ["docs/a.md: #there", "docs/a.md: ./b.md#scale-out"]);
}

#[test]
fn every_path_the_docs_name_exists() {
    let tops = ["src/", "tests/", "docs/", "schemas/", "config/", "listeners/", ".ci/"];
    let mut wrong = Vec::new();
    for file in documents().filter(|file| !file.path.starts_with("listeners/")) {
        for span in file.text.split('`').skip(1).step_by(2) {
            let is_path = tops.iter().any(|top| span.starts_with(top))
                && !span.contains(['<', '{', '*', ' ', '…', '\n'])
                && !span.contains("NNNN");
            let path = span.split("::").next().unwrap_or_default();
            if is_path && !root().join(path).exists() {
                wrong.push(format!("{}: {span}", file.path));
            }
        }
    }
    nothing(wrong, "paths that are not there");
}

#[test]
fn decisions_are_numbered_without_a_gap_and_say_what_they_cost() {
    let mut paths: Vec<_> =
        documents().filter(|file| file.path.starts_with("docs/decisions/")).collect();
    paths.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(paths.len() >= 6, "the decisions were found");
    let mut wrong = Vec::new();
    for (index, file) in paths.iter().enumerate() {
        let numbered = format!("docs/decisions/{:04}-", index + 1);
        let is_whole = ["## Context", "## Choice", "## Cost"].iter().all(|p| file.text.contains(p));
        if !file.path.starts_with(&numbered) || !is_whole {
            wrong.push(file.path.clone());
        }
    }
    nothing(wrong, "decisions");
}

#[test]
fn the_buttons_of_live_pages_have_the_names_in_the_docs() {
    let page = read("docs/AUDIT.md");
    let section = page.split("### Live pages\n").nth(1).unwrap().split("\n### ").next().unwrap();
    // The name of the button `N new` begins with a number.
    let names = section.split('`').skip(1).step_by(2).filter(|name| *name != "N new");
    let names: BTreeSet<_> =
        names.filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase())).collect();
    assert!(names.len() > 1, "the names were found");
    let shown = read("src/web/view/view.js") + &read("src/web/view/layout.rs");
    let missing = names.into_iter().filter(|name| !shown.contains(&format!("\"{name}\"")));
    let missing = missing.map(str::to_owned).collect();
    nothing(missing, "buttons and pages that the section Live pages names, and no page has");
}
