//! Tests of the listener over a small directory tree. `tests/data/tree` has the files that most
//! tests read. Temporary directories have the files that must not be committed.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what is wanted")]

use std::fs;
use std::path::{Path, PathBuf};

use code_search::payload::{Extract, Search, SearchResults};
use code_search::tree::SearchTree;
use code_search::{ToolError, ToolErrorCode};
use expect_test::{Expect, expect};

#[path = "code_search/process.rs"]
mod process;

fn tree_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tree")
}

fn tree() -> SearchTree {
    SearchTree::open(&tree_path()).unwrap()
}

fn query(query: &str) -> Search {
    Search { query: query.to_owned(), ..Search::default() }
}

fn found(search: &Search) -> String {
    listed(&code_search::search(&tree(), search).unwrap())
}

fn listed(results: &SearchResults) -> String {
    let notes = results.notes.iter().map(|note| format!("note: {note}\n"));
    let each = |m: &code_search::payload::LineMatch| {
        format!("{}:{}:{}: {}\n", m.file, m.line, m.column, m.text.trim())
    };
    notes.chain(results.matches.iter().map(each)).collect()
}

fn extract(file_path: &str) -> Result<String, ToolError> {
    extract_lines(file_path, None, None)
}

fn extract_lines(
    file_path: &str,
    line: Option<usize>,
    end_line: Option<usize>,
) -> Result<String, ToolError> {
    let request = Extract { file_path: file_path.to_owned(), line, end_line };
    let result = code_search::extract(&tree(), &request)?;
    let notes: String = result.notes.iter().map(|note| format!("note: {note}\n")).collect();
    Ok(format!("{notes}{}-{}\n{}", result.line, result.end_line, result.text))
}

fn check(file_path: &str, expected: Expect) {
    expected.assert_eq(&extract(file_path).unwrap());
}

/// Extracts `file_path`, and returns the beginning of the answer: first its notes, then the line
/// that states which lines of the file were extracted.
fn span(file_path: &str) -> String {
    let text = extract(file_path).unwrap_or_else(|error| error.message);
    let notes = text.lines().filter(|line| line.starts_with("note: "));
    let lines = text.lines().find(|line| !line.starts_with("note: ")).unwrap();
    notes.chain([lines]).collect::<Vec<_>>().join(" | ")
}

fn failure(file_path: &str) -> ToolErrorCode {
    extract(file_path).unwrap_err().code
}

// T3
#[test]
fn matches_come_in_the_order_of_their_places_and_tests_are_left_out() {
    expect![[r#"
        note: 1 file was not searched: tests; set allow_tests to true to include them
        docs/guide.md:5:16: ## Set up: the login
        src/app.py:6:6: "login": 3,
        src/app.py:12:11: async def login(
        src/pool.rs:29:18: pub async fn login(&self) {}
        src/view.ts:15:20: private title = "login";
    "#]]
    .assert_eq(&found(&query("login")));
}

// T3
#[test]
fn tests_are_searched_on_request_by_flag_or_by_path() {
    let with_tests = Search { allow_tests: Some(true), ..query("assert") };
    let by_path = Search { path: Some("tests".into()), ..query("assert") };
    let expected = "tests/login_test.py:2:5: assert login(\"a\", \"b\")\n";
    assert_eq!(found(&with_tests), expected);
    assert_eq!(found(&by_path), expected);
}

// T3
#[test]
fn a_path_narrows_the_search_to_a_directory_or_a_file() {
    let within = |path: &str| found(&Search { path: Some(path.into()), ..query("Start") });
    assert_eq!(within("docs"), "");
    assert_eq!(within("./src").lines().count(), 3);
    assert_eq!(within("src/server.go"), within("src"));
}

#[test]
fn a_query_is_case_sensitive_only_with_a_capital() {
    assert_eq!(found(&query("kept_max")).lines().count(), 2);
    assert_eq!(found(&query("Kept_max")).lines().filter(|l| !l.starts_with("note")).count(), 0);
}

#[test]
fn a_query_that_is_no_expression_is_searched_as_written_and_a_note_says_so() {
    let text = found(&query("list_max(n"));
    assert!(text.contains("src/list.c:21:12"), "{text}");
    assert!(text.starts_with("note: searched literally"), "{text}");
}

#[test]
fn a_query_of_several_lines_is_an_error_of_the_tool() {
    let error = code_search::search(&tree(), &query("a\nb")).unwrap_err();
    assert_eq!(error.code, ToolErrorCode::BadQuery);
}

#[test]
fn more_matches_than_are_shown_are_counted() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.txt"), "x\n".repeat(250)).unwrap();
    let tree = SearchTree::open(place.path()).unwrap();
    let results = code_search::search(&tree, &query("x")).unwrap();
    assert_eq!((results.matches.len(), results.total, results.truncated), (200, 250, true));
}

#[test]
fn ignored_hidden_and_binary_files_are_neither_found_nor_read() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    write(".gitignore", b"/out\n*.log\n");
    write("out/a.txt", b"needle");
    write("sub/b.log", b"needle");
    write(".env", b"needle");
    write("c.bin", b"needle\n\0");
    write("d.txt", b"needle");
    let tree = SearchTree::open(place.path()).unwrap();
    let results = code_search::search(&tree, &query("needle")).unwrap();
    assert_eq!(listed(&results), "d.txt:1:1: needle\n");

    let code = |path: &str| {
        let request = Extract { file_path: path.into(), ..Extract::default() };
        code_search::extract(&tree, &request).map(|_| ()).map_err(|error| error.code)
    };
    for hidden in ["out/a.txt", "sub/b.log", ".env", ".gitignore"] {
        assert_eq!(code(hidden), Err(ToolErrorCode::NotFound), "{hidden}");
    }
    assert_eq!(code("c.bin"), Err(ToolErrorCode::NotText));
    assert_eq!(code("sub"), Err(ToolErrorCode::NotAFile));
    assert_eq!(code("d.txt"), Ok(()));

    // Ignore files decide about ignored files, and never show hidden ones.
    write(".git/config", b"needle");
    write(".gitignore", b"*.log\n!.env\n!.git\n!.git/**\n!/e\n!/e/.f\n");
    write(".ignore", b"!sub/b.log\n!.env\n");
    write("e/.f/g.txt", b"needle");
    let results = code_search::search(&tree, &query("needle")).unwrap();
    assert_eq!(
        listed(&results),
        "d.txt:1:1: needle\nout/a.txt:1:1: needle\nsub/b.log:1:1: needle\n"
    );
    for hidden in [".env", ".git/config", "e/.f/g.txt", ".ignore"] {
        assert_eq!(code(hidden), Err(ToolErrorCode::NotFound), "{hidden}");
    }
}

#[test]
fn no_path_leads_out_of_the_root() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(place.path().join("secret.txt"), "secret").unwrap();
    fs::write(root.join("inside.txt"), "plain").unwrap();
    fs::write(root.join(".hidden"), "secret").unwrap();
    let link = std::os::unix::fs::symlink::<PathBuf, PathBuf>;
    link(place.path().join("secret.txt"), root.join("link.txt")).unwrap();
    link(place.path().to_owned(), root.join("up")).unwrap();
    link(root.join(".hidden"), root.join("shown.txt")).unwrap();
    link(root.join("inside.txt"), root.join("alias.txt")).unwrap();
    let tree = SearchTree::open(&root).unwrap();
    let code = |path: &str| tree.resolve(path).map_err(|error| error.code);

    for path in ["../secret.txt", "a/../../secret.txt", "/etc/passwd", "link.txt", "up/secret.txt"]
    {
        assert_eq!(code(path), Err(ToolErrorCode::OutsideRoot), "{path}");
    }
    assert_eq!(code("shown.txt"), Err(ToolErrorCode::NotFound));
    assert_eq!(code("alias.txt"), Ok(PathBuf::from("inside.txt")));
    let results = code_search::search(&tree, &query("secret")).unwrap();
    assert_eq!(results.total, 0);
}

// T3
#[test]
fn a_symbol_is_its_whole_definition_with_what_stands_above_it() {
    check(
        "src/pool.rs#Pool::take",
        expect![[r#"
            20-27
                /// Takes an idle connection.
                pub fn take(&mut self) -> Option<&'a str> {
                    let brace = '{';
                    if self.idle.is_empty() && brace != '}' {
                        return None;
                    }
                    self.idle.pop_front()
                }
        "#]],
    );
    check(
        "docs/guide.md#set-up-the-login",
        expect![[r#"
            5-16
            ## Set up: the login

            Do this.

            ```sh
            # Not a heading
            make
            ```

            ### Details

            More.
        "#]],
    );
}

// T3
#[test]
fn symbols_are_found_in_every_language_that_is_understood() {
    let cases = [
        ("src/pool.rs#KEPT_MAX", "5-6"),
        ("src/pool.rs#NAMES", "8-11"),
        ("src/pool.rs#Pool", "13-17"),
        ("src/pool.rs#take", "note: `take` is also defined from line 35 | 20-27"),
        ("src/pool.rs#Other::take", "35-38"),
        ("src/pool.rs#login", "29-29"),
        ("src/pool.rs#twice", "41-45"),
        ("src/pool.rs#free", "47-49"),
        ("src/pool.rs#Other::new", "52-54"),
        ("src/app.py#LIMITS", "5-7"),
        ("src/app.py#login", "10-22"),
        ("src/app.py#Session", "25-32"),
        ("src/app.py#Session.close", "28-29"),
        ("src/view.ts#Props", "1-1"),
        ("src/view.ts#render", "3-6"),
        ("src/view.ts#Size", "8-10"),
        ("src/view.ts#limit", "12-12"),
        ("src/view.ts#View.draw", "17-21"),
        ("src/view.ts#View.delete", "22-26"),
        ("src/server.go#Server", "3-6"),
        ("src/server.go#Server.Start", "8-11"),
        ("src/server.go#Client.Start", "13-15"),
        ("src/list.c#LIST_MAX", "2-3"),
        ("src/list.c#list", "7-9"),
        ("src/list.c#sizes", "11-11"),
        ("src/list.c#list_length", "17-22"),
        ("docs/guide.md#Next steps", "18-20"),
    ];

    let wrong: Vec<_> = cases
        .iter()
        .map(|(path, expected)| (path, span(path), expected))
        .filter(|(_, got, expected)| got != *expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Extracts definitions from files that define one name on thousands of lines. All requests
/// together must end within 20 s. Each request would take minutes if the search computed the end of
/// every definition, and of every block around definitions. The reason is that a definition without
/// an end reaches to the end of the file.
#[test]
fn a_file_that_defines_one_name_on_every_line_is_read_once() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.rs"), "fn a\n".repeat(20_000)).unwrap();
    fs::write(place.path().join("b.rs"), "impl B fn\nfn a\n".repeat(10_000)).unwrap();
    fs::write(place.path().join("c.rs"), "impl C {}\nfn a();\n".repeat(10_000)).unwrap();
    fs::write(place.path().join("d.md"), "# v1\n\n## 2\n".repeat(7_000)).unwrap();
    let tree = SearchTree::open(place.path()).unwrap();
    let begun = std::time::Instant::now();
    let extract = |path: &str| {
        let request = Extract { file_path: path.to_owned(), ..Extract::default() };
        code_search::extract(&tree, &request)
    };

    let first = extract("a.rs#a").unwrap();
    let others: Vec<_> = (2..=21).map(|line| line.to_string()).collect();
    let note = format!("`a` is also defined from line {}, and 19979 times more", others.join(", "));
    assert_eq!(first.notes.first(), Some(&note));
    assert_eq!(first.line, 1);
    assert_eq!(extract("b.rs#B::a").unwrap().line, 2);
    assert_eq!(extract("c.rs#C::a").unwrap_err().code, ToolErrorCode::SymbolNotFound);
    assert_eq!(extract("d.md#v1.2").unwrap().line, 3);
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn an_unknown_symbol_is_answered_with_the_names_there_are() {
    let error = extract("src/server.go#Stop").unwrap_err();
    assert_eq!(error.code, ToolErrorCode::SymbolNotFound);
    assert_eq!(error.message, "`src/server.go` does not define `Stop`; it defines Server, Start");
}

// T3
#[test]
fn a_line_is_shown_with_its_context_and_a_range_exactly() {
    assert_eq!(span("src/pool.rs:25"), "15-35");
    assert_eq!(span("src/pool.rs:2"), "1-12");
    assert_eq!(span("src/pool.rs:13-14"), "13-14");
    let range = extract_lines("src/pool.rs", Some(5), Some(6)).unwrap();
    assert_eq!(range, "5-6\n/// How many connections are kept.\npub const KEPT_MAX: usize = 8;\n");
    // The elements take precedence over the line in the path.
    assert!(extract_lines("src/pool.rs:40", Some(5), Some(5)).unwrap().starts_with("5-5\n"));
    // A range may extend beyond the end of the file.
    assert!(extract_lines("docs/guide.md", Some(20), Some(99)).unwrap().starts_with("20-20\n"));
}

// T14
#[test]
fn what_cannot_be_extracted_is_a_result_with_its_code() {
    assert_eq!(failure("src/none.rs"), ToolErrorCode::NotFound);
    assert_eq!(failure("src/pool.rs:999"), ToolErrorCode::BadRange);
    assert_eq!(failure("src/pool.rs:0"), ToolErrorCode::BadRange);
    assert_eq!(failure("src"), ToolErrorCode::NotAFile);
    assert_eq!(failure("../Cargo.toml"), ToolErrorCode::OutsideRoot);
    let backwards = extract_lines("src/pool.rs", Some(9), Some(3)).unwrap_err();
    assert_eq!(backwards.code, ToolErrorCode::BadRange);
}

#[test]
fn a_long_file_is_cut_after_whole_lines_and_says_where_it_goes_on() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("long.txt"), "line\n".repeat(1000)).unwrap();
    let tree = SearchTree::open(place.path()).unwrap();
    let request = Extract { file_path: "long.txt".into(), ..Extract::default() };
    let result = code_search::extract(&tree, &request).unwrap();
    assert_eq!((result.line, result.end_line, result.text.lines().count()), (1, 600, 600));
    assert_eq!(result.notes, ["cut: lines 601 to 1000 follow; ask for them by line and end_line"]);
}

#[test]
fn a_symbol_in_the_first_line_is_found_behind_a_byte_order_mark() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a.rs"), "\u{FEFF}fn first() {\n}\n").unwrap();
    let tree = SearchTree::open(place.path()).unwrap();
    let request = Extract { file_path: "a.rs#first".into(), ..Extract::default() };
    assert_eq!(code_search::extract(&tree, &request).unwrap().text, "fn first() {\n}\n");
}

#[test]
fn a_socket_is_not_called_a_directory() {
    let place = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.path().join("socket")).unwrap();
    let tree = SearchTree::open(place.path()).unwrap();
    let request = Extract { file_path: "socket".into(), ..Extract::default() };
    let error = code_search::extract(&tree, &request).unwrap_err();
    assert_eq!(error.code, ToolErrorCode::NotAFile);
    assert!(error.message.contains("neither a file nor a directory"), "{}", error.message);
}

#[test]
fn a_file_whose_name_looks_like_a_place_is_still_a_file() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("a#b:7"), "odd").unwrap();
    let tree = SearchTree::open(place.path()).unwrap();
    let request = Extract { file_path: "a#b:7".into(), ..Extract::default() };
    assert_eq!(code_search::extract(&tree, &request).unwrap().text, "odd\n");
}
