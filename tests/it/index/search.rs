//! `organism search`: by words and by properties of messages, with the total number of matches.

use organism::envelope::{Disposition, MessageKind, Refusal, RefusalRule};
use organism::limits;
use organism::thread::{Fact, Record};

use super::damage::redact;
use super::{organism, rows, text};
use crate::journal::Place;
use crate::journal::script::{NAMESPACE, Script, name, research, thread};

/// A journal with one thread for each of these questions.
fn journal_of(questions: &[&str]) -> Place {
    let mut script = Script::default();
    let mut records: Vec<Record> = Vec::new();
    for (number, question) in questions.iter().enumerate() {
        let tree = thread(&format!("sess-question{number}"));
        records.push(script.question(&tree, question).1);
    }
    Place::with(&mut records)
}

/// Threads in which a search finds something, without the common prefix of their ids.
fn found(place: &Place, args: &[&str]) -> String {
    let output = organism(place, &[&["search", "--json"], args].concat());
    let lines = text(&output.stdout);
    let number = |line: &str| {
        let item: serde_json::Value = serde_json::from_str(line).unwrap();
        item["thread"].as_str().unwrap().trim_start_matches("sess-question").to_owned()
    };
    lines.lines().map(number).collect::<Vec<_>>().join(" ")
}

/// Issue 17, 3.3: a search finds words, prefixes, words such as `INV-777`, and text in scripts
/// without spaces.
#[test]
fn words_prefixes_and_runs_without_spaces_are_found() {
    let place = journal_of(&[
        "Is INV-777 paid?",
        "Is INV-7770 paid, and 777?",
        "Ist die Rechnung für Müller bezahlt?",
        "請求書番号を教えてください",
        "ขอใบแจ้งหนี้ของลูกค้า",
        "R&amp;D of caf&#xe9; --flag snake_case -x-",
    ]);
    for (words, expected) in [
        ("INV-777", "0"),
        ("inv-777", "0"),
        ("inv-77*", "0 1"),
        ("777", "1"),
        ("paid is", "0 1"),
        ("\"is inv-777 paid\"", "0"),
        ("\"paid is\"", ""),
        ("mull*", "2"),
        ("MÜLLER", "2"),
        ("rechnung", "2"),
        ("echnung", ""),
        ("請求書番号", "3"),
        ("求書番", "3"),
        ("番号", "3"),
        ("号", "3"),
        ("さい", "3"),
        ("番請", ""),
        ("แจ้งหนี้", "4"),
        ("ลูกค้า", "4"),
        ("ค้า", "4"),
        ("café", "5"),
        ("flag", "5"),
        ("snake_case", "5"),
        ("snake", ""),
        ("researcher rechnung", "2"),
        ("amp", ""),
        ("xmlns", ""),
    ] {
        assert_eq!(found(&place, &[words]), expected, "{words}");
    }
}

/// Issue 17, 4.2: each filter selects the messages and refusals that have its property. A filter
/// works with and without words to search for.
#[test]
fn filters_leave_what_has_the_property() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    let count = |args: &[&str]| {
        let output = organism(&place, &[&["search", "--count"], args].concat());
        text(&output.stdout).trim().to_owned()
    };
    let qualified = format!("{{{NAMESPACE}}}search");
    for (args, expected) in [
        (&["--payload", "search"][..], "1"),
        (&["--payload", &qualified], "1"),
        (&["--payload", "{urn:other}search"], "0"),
        (&["--from", "code-search"], "1"),
        (&["--to", "code-search"], "1"),
        (&["--kind", "call"], "3"),
        (&["--kind", "refusal"], "1"),
        (&["--rule", "schema-invalid"], "1"),
        (&["--rule", "too-large"], "0"),
        (&["--disposition", "recorded"], "3"),
        (&["--thread", "sess-abcdefgh.depth"], "2"),
        (&["--thread", "sess-abcdefgh"], "11"),
        (&["--since", "2026-11-20T10:00:00.600Z"], "5"),
        (&["--until", "2026-11-20T10:00:00.200Z"], "1"),
        (&["--until", "2026-11-20"], "0"),
        (&["--xpath", "path = 'src'"], "1"),
        (&["--xpath", "hit/@line > 41"], "1"),
        (&["login", "--kind", "reply"], "1"),
        (&["login", "--xpath", "true()"], "4"),
        (&["expression"], "2"),
        (&["--thread", "sess-abcdefgh", "--substring", "<QUERY>lo"], "1"),
    ] {
        assert_eq!(count(args), expected, "{args:?}");
    }

    let id = rows(&place.data(), "SELECT id FROM message WHERE seq = 3").join("");
    assert_eq!(count(&[&id]), "1");
    assert_eq!(count(&["sess-abcdefgh.depth"]), "2");
}

/// Issue 17, 4.2: wrong values of options are refused. A search for a substring is also refused,
/// except with another option that limits the search.
#[test]
fn wrong_options_are_refused() {
    let place = journal_of(&["Who?"]);
    for args in [
        &["--kind", "letter"][..],
        &["--disposition", "lost"],
        &["--since", "yesterday"],
        &["--xpath", "total["],
        &["--xpath", "nosuch()"],
        &["--xpath", "a:total > 3"],
        &["--xpath", "$x = 1"],
        &["--xpath", "count(1)"],
        // An empty payload has no `question`, so the function is first met in a payload on record.
        &["--xpath", "self::question[nosuch()]"],
        &["--substring", "x"],
        &["?!"],
    ] {
        let output = organism(&place, &[&["search"], args].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        // libxml2 prints nothing by itself.
        assert!(!error.contains("xmlXPath"), "{args:?}: {error}");
    }
}

/// Issue 17, 4.2: the total is exact up to 10,000. If a search in payloads has not read all of them,
/// the output states it, and a search without a match still ends with the exit code for no match.
#[test]
fn the_output_states_the_total_and_whether_payloads_were_not_read() {
    let mut script = Script::default();
    let tree = thread("sess-abcdefgh");
    let (asked, first) = script.question(&tree, "Count?");
    let mut records = vec![first];
    for batch in 0..11 {
        let mut step = script.outcome(&tree, "researcher", asked);
        for number in 0..1_000 {
            let note = format!("<fact xmlns=\"{NAMESPACE}\">sheep b{batch} n{number}</fact>");
            let id =
                step.say(MessageKind::Note, "researcher", "researcher", "fact", &note, Some(asked));
            step.dispose(id, Disposition::Recorded);
        }
        step.refuse("researcher", RefusalRule::TooLarge, "sheep", "sheep");
        records.push(step.end());
    }
    let place = Place::with(&mut records);

    let last = |args: &[&str]| {
        let output = organism(&place, &[&["search"], args].concat());
        text(&output.stdout).lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(last(&["sheep", "b3"]), "50 of 1,000");
    assert_eq!(last(&["b3", "n17", "--limit", "7"]), "1 of 1");
    assert_eq!(last(&["sheep", "--limit", "2"]), "2 of more than 10,000");
    assert_eq!(last(&["sheep", "--count"]), "11011");
    assert_eq!(last(&["nowhere"]), "");

    let since = ["--since", "2026-11-20"];
    let unread = |args: &[&str]| {
        let output = organism(&place, &[&["search"], &since[..], args].concat());
        let lines = text(&output.stdout).lines().count();
        (output.status.code(), lines, text(&output.stderr).contains("the newest 10,000 messages"))
    };
    // The question is the oldest message, and is not read.
    assert_eq!(unread(&["--substring", "Count?"]), (Some(1), 0, true));
    assert_eq!(unread(&["--substring", "Count?", "--json"]), (Some(1), 0, true));
    assert_eq!(unread(&["--substring", "Count?", "--count"]), (Some(0), 1, false));
    assert_eq!(unread(&["--substring", "b9 n17<", "--json"]), (Some(0), 1, true));
    assert_eq!(last(&[&since[..], &["--substring", "b9 n17<"]].concat()), "1 of 1 or more");
    assert_eq!(unread(&["--substring", "Count?", "--kind", "call"]), (Some(0), 3, false));
}

/// Issue 17, 4.2: a search within a tree that has more matches than are counted shows the newest
/// matches, however far they lie apart.
#[test]
fn a_search_within_a_tree_of_many_matches_shows_the_newest() {
    let mut script = Script::default();
    let tree = thread("sess-abcdefgh");
    let (asked, first) = script.question(&tree, "Count?");
    let mut records = vec![first];
    let mut add = |word: &str, numbers: std::ops::Range<usize>| {
        let mut step = script.outcome(&tree, "researcher", asked);
        for number in numbers {
            let note = format!("<fact xmlns=\"{NAMESPACE}\">{word} n{number}</fact>");
            let id =
                step.say(MessageKind::Note, "researcher", "researcher", "fact", &note, Some(asked));
            step.dispose(id, Disposition::Recorded);
        }
        records.push(step.end());
    };
    // The two newest matches lie on both sides of a gap that is wider than the window in which the
    // search looks first.
    add("sheep", 0..10_000);
    add("goat", 0..limits::SEARCH_WINDOW as usize);
    add("sheep", 10_000..10_001);
    add("goat", 0..10);
    let (_, later) = script.question(&thread("sess-abcdefgi"), "sheep");
    records.push(later);
    let place = Place::with(&mut records);

    let shown = |limit: &str| {
        let args = ["search", "sheep", "--thread", "sess-abcdefgh", "--limit", limit];
        text(&organism(&place, &args).stdout)
    };
    let three = shown("3");
    let matches: Vec<&str> = three.lines().filter(|line| line.contains("sheep")).collect();
    assert_eq!(matches.len(), 3, "{three}");
    for (line, number) in matches.iter().zip(["n9998", "n9999", "n10000"]) {
        assert!(line.ends_with(number), "{three}");
    }
    assert!(three.ends_with("3 of more than 10,000\n"), "{three}");
    let one = shown("1");
    assert!(one.contains("n10000\n") && !one.contains("n9999"), "{one}");
    assert!(one.ends_with("1 of more than 10,000\n"), "{one}");
    let all = shown("20000");
    assert_eq!(all.matches("sheep").count(), 10_001);
    // A list that is shorter than its limit is complete, and so its length is the total.
    assert!(all.ends_with("\n10,001 of 10,001\n"), "{all}");
    let full = shown("10001");
    assert!(full.ends_with("\n10,001 of 10,001 or more\n"), "{full}");
}

/// A search within a tree finds only matches in this tree, and the total counts only these matches.
/// Other texts may contain the characters with which the index marks trees, but are still not
/// found.
#[test]
fn a_search_within_a_tree_finds_nothing_of_other_trees() {
    let mut script = Script::default();
    let mut records = Vec::new();
    for number in 0..4 {
        let tree = thread(&format!("sess-question{number}"));
        // The marks of trees, as the index writes them.
        let marks: String = (1..9).map(|tree| format!(" \u{f8f0}{tree} &#xf8f0;{tree}")).collect();
        let (asked, first) = script.question(&tree, &format!("login {number}{marks}"));
        records.push(first);
        let child = tree.child("depth");
        let mut step = script.outcome(&tree, "researcher", asked);
        step.open(&child, "researcher").within(&child);
        let inner = format!("<question xmlns=\"{NAMESPACE}\">login beneath</question>");
        step.say(MessageKind::Call, "researcher", "researcher", "question", &inner, None);
        step.refuse("researcher", RefusalRule::SchemaInvalid, "login is wrong", "<login/>");
        records.push(step.end());
    }
    let place = Place::with(&mut records);

    for number in 0..4 {
        let tree = format!("sess-question{number}");
        let all = format!("{number} {number}.depth {number}.depth");
        assert_eq!(found(&place, &["login", "--thread", &tree]), all);
        assert_eq!(found(&place, &["login", "--thread", &tree, "--limit", "1"]), all[10..]);
        let beneath = format!("{tree}.depth");
        assert_eq!(found(&place, &["login", "--thread", &beneath]), all[2..]);
        let args = ["search", "login", "--thread", &tree, "--count"];
        assert_eq!(text(&organism(&place, &args).stdout), "3\n");
        let refused = ["login", "--thread", &tree, "--kind", "refusal"];
        assert_eq!(found(&place, &refused), format!("{number}.depth"));
    }
    assert_eq!(found(&place, &["login", "--thread", "sess-questionnone"]), "");
    for word in ["\u{f8f0}1", "\u{f8f0}1*"] {
        // The mark separates words, so this is the word `1`.
        assert_eq!(found(&place, &[word, "--thread", "sess-question1"]), "1");
    }
}

/// Symbols of every version of Unicode separate words, and so do characters of scripts without
/// spaces. Combining marks belong to the letters before them.
#[test]
fn words_beside_symbols_and_scripts_without_spaces_are_found() {
    let separators = [
        "\u{2068}",
        "🤖",
        "&#x1F916;",
        "₿",
        "🫠",
        "😀",
        "\u{2bff}",
        "\u{2e4f}",
        "\u{20c0}",
        "\u{f09b}",
        "❤\u{fe0f}",
        "⚠\u{fe0f}-",
        " 1\u{fe0f}\u{20e3}-",
        " a\u{20dd}-",
        "\u{3164}",
        "請求",
        "請求-",
        "-請求-",
        "_請_",
        "&#35531;",
        "-🤖-",
        "請\u{301}",
    ];
    let texts = separators.iter().enumerate();
    let texts = texts.map(|(number, mark)| format!("bill{mark}INV-{number}{mark}paid"));
    let texts: Vec<String> = texts.collect();
    let place = journal_of(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    for (number, mark) in separators.iter().enumerate() {
        let expected = number.to_string();
        let query = format!("INV-{number}{mark}paid");
        for words in [format!("INV-{number}"), format!("paid bill inv-{number}"), query] {
            assert_eq!(found(&place, &[&words]), expected, "{mark}: {words}");
        }
    }
    assert_eq!(found(&place, &["🤖INV-1🤖"]), "1");

    let place = journal_of(&[
        "cafe\u{301}-bar",
        "हिन्दी",
        "\u{1e900}\u{1e944}\u{1e901}",
        "INV-7\u{fe0f}\u{20e3}",
        "葛\u{e0100}城",
    ]);
    for (words, expected) in [
        ("café-bar", "0"),
        ("हिन्दी", "1"),
        ("हिन", ""),
        ("\u{1e900}\u{1e944}\u{1e901}", "2"),
        ("\u{1e900}", ""),
        ("INV-7", "3"),
        ("葛城", "4"),
    ] {
        assert_eq!(found(&place, &[words]), expected, "{words}");
    }
}

/// A `*` after a hyphen or an underscore finds only words that go on after this character.
#[test]
fn a_beginning_that_ends_with_a_hyphen_finds_only_words_with_the_hyphen() {
    let place = journal_of(&["INV-777", "INVOICE", "INV 7", "snake_case", "snakes"]);
    for (words, expected) in [
        ("INV-*", "0"),
        ("inv-7*", "0"),
        ("inv*", "0 1 2"),
        ("snake_*", "3"),
        ("snake*", "3 4"),
        // No word has two hyphens in a row, so these separate words.
        ("INV--*", "2"),
    ] {
        assert_eq!(found(&place, &[words]), expected, "{words}");
    }
}

/// A search for an id finds the message or thread with this id. If the record has none, the search
/// finds texts that contain the id.
#[test]
fn an_id_that_is_not_on_record_is_found_as_a_word() {
    let id = "5f0c1a52-7d3e-4b58-9a44-0c6f2f6f9d11";
    let digits = "5f0c1a527d3e4b589a440c6f2f6f9d11";
    let place = journal_of(&["Who?", id, digits, "sess-other000"]);
    for (words, expected) in
        [(id, "1"), (digits, "2"), ("sess-other000", "3"), ("sess-question0", "0")]
    {
        assert_eq!(found(&place, &[words]), expected, "{words}");
    }

    let sql = "SELECT id FROM message WHERE thread = 'sess-question0'";
    let recorded = rows(&place.data(), sql).remove(0);
    assert_eq!(found(&place, &[&recorded]), "0");
    assert_eq!(found(&place, &[&recorded, "--thread", "sess-question1"]), "");
}

/// A search shows the refusal that matches, however many refusals its record has.
#[test]
fn each_of_many_refusals_in_a_record_is_found() {
    let mut script = Script::default();
    let tree = thread("sess-abcdefgh");
    let (asked, first) = script.question(&tree, "Which items?");
    let mut records = vec![first];
    let mut expected = Vec::new();
    for batch in ["early", "late"] {
        let mut step = script.outcome(&tree, "researcher", asked);
        for number in 0..250 {
            let payload = format!("<item>{batch}{number}</item>");
            step.refuse("researcher", RefusalRule::SchemaInvalid, "no such item", &payload);
            expected.push(payload);
        }
        records.push(step.end());
    }
    let place = Place::with(&mut records);

    let heads = |args: &[&str]| {
        let output = organism(&place, &[&["search", "--json"], args].concat());
        let head = |line: &str| {
            let item: serde_json::Value = serde_json::from_str(line).unwrap();
            item["head"].as_str().unwrap().to_owned()
        };
        text(&output.stdout).lines().map(head).collect::<Vec<_>>()
    };
    assert_eq!(heads(&["--kind", "refusal", "--limit", "1000"]), expected);
    assert_eq!(heads(&["such", "--limit", "1000"]), expected);
    assert_eq!(heads(&["late200"]), ["<item>late200</item>"]);
    let within = ["--substring", "early200", "--thread", "sess-abcdefgh"];
    assert_eq!(heads(&within), ["<item>early200</item>"]);
}

/// A refusal of a submission that opens no thread names none.
#[test]
fn a_refusal_without_a_thread_is_found_in_the_tree_of_its_record() {
    let refused = |text: &str| Fact::Refused {
        sender: name("operator"),
        thread: None,
        call: None,
        refusal: Refusal::new(RefusalRule::SchemaInvalid, "no such item", text.as_bytes()),
    };
    let mut script = Script::default();
    let mut boot = script.boot(1);
    boot.facts.push(refused("<early/>"));
    let (_, mut question) = script.question(&thread("sess-question0"), "Which items?");
    question.facts.push(refused("<late/>"));
    let place = Place::with(&mut [boot, question]);

    let heads = |args: &[&str]| {
        let output = organism(&place, &[&["search", "--json"], args].concat());
        let item: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        item["head"].as_str().unwrap().to_owned()
    };
    for (root, head) in [("sess-organism", "<early/>"), ("sess-question0", "<late/>")] {
        assert_eq!(heads(&["such", "--thread", root]), head);
        assert_eq!(heads(&["--kind", "refusal", "--thread", root]), head);
        assert_eq!(heads(&["such", "--from", "operator", "--thread", root]), head);
    }
}

/// A message whose payload was redacted is still found by its names, and is shown as redacted.
#[test]
fn a_search_shows_the_redacted_messages_that_it_counts() {
    let place = Place::with(&mut research(&mut Script::default(), "sess-abcdefgh"));
    redact(&place, 3);
    let shown = organism(&place, &["search", "results", "--thread", "sess-abcdefgh"]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("[redacted]"), "{shown}");
    assert!(shown.ends_with("1 of 1\n"), "{shown}");
}
