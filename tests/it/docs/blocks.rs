//! The code blocks of a page, and the way in which each is tested.
//!
//! A comment in the line above a block states the way. `<!-- tested by: NAME -->` names a test that
//! takes the block from the page. `<!-- part of: FILE -->` says that the lines of the block stand
//! in FILE. `<!-- not run: REASON -->` says that the block cannot be run here. Without a comment,
//! the form of the block decides:
//!
//! | block | how |
//! |---|---|
//! | begins with `$ ` | commands and their outputs, run and compared |
//! | each line begins with `organism ` | parsed as a command, in which values may be missing |
//! | `ORGANISM_NAME=value` in each line | overrides of the config |
//! | TOML with `recorded` | a recording |
//! | TOML with `case` | cases of a workflow |
//! | other TOML | a config, or a part of one |
//!
//! Any other block is an error.

use std::path::Path;

/// A code block, fenced or indented, without its indent.
#[derive(Debug)]
pub struct Block {
    /// Number of the block's first line on the page, counted from 1.
    pub line: usize,
    pub text: String,
    /// The comment in the line above the block, without `<!--` and `-->`.
    remark: String,
}

/// How a block is carried out.
#[derive(Debug, PartialEq, Eq)]
pub enum BlockKind {
    Transcript,
    Usage,
    Overrides,
    Recording,
    Cases,
    Config,
    TestedBy(String),
    PartOf(String),
    NotRun(String),
}

fn is_usage(text: &str) -> bool {
    // A long description goes on in a line of its own.
    let is_part =
        |line: &str| line.is_empty() || line.starts_with("organism ") || line.starts_with("      ");
    text.lines().all(is_part)
}

fn is_override(line: &str) -> bool {
    line.strip_prefix("ORGANISM_").is_some_and(|rest| rest.contains("__") && rest.contains('='))
}

impl Block {
    pub fn kind(&self) -> Result<BlockKind, String> {
        if let Some((how, what)) = self.remark.split_once(": ") {
            let what = what.to_owned();
            return match how {
                "tested by" => Ok(BlockKind::TestedBy(what)),
                "part of" => Ok(BlockKind::PartOf(what)),
                "not run" => Ok(BlockKind::NotRun(what)),
                _ => Err(format!("line {}: `{how}` is no way to test a block", self.line)),
            };
        }

        if self.text.starts_with("$ ") {
            return Ok(BlockKind::Transcript);
        }
        if is_usage(&self.text) {
            return Ok(BlockKind::Usage);
        }
        if self.text.lines().all(is_override) {
            return Ok(BlockKind::Overrides);
        }
        match self.text.parse::<toml::Table>() {
            Ok(table) if table.contains_key("recorded") => Ok(BlockKind::Recording),
            Ok(table) if table.contains_key("case") => Ok(BlockKind::Cases),
            Ok(_) => Ok(BlockKind::Config),
            Err(_) => Err(format!(
                "line {}: no test carries out this block; tests/it/docs/blocks.rs says how one can",
                self.line
            )),
        }
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The lines of the first block in `lines`, and the number of lines that it takes on the page.
fn body(lines: &[&str]) -> (Vec<String>, usize) {
    let first = lines[0];
    if let Some(mark) = first.trim_start().get(..3).filter(|mark| *mark == "```") {
        let inner = lines[1..].iter().take_while(|line| !line.trim_start().starts_with(mark));
        let inner: Vec<_> = inner.map(|line| (*line).to_owned()).collect();
        let length = inner.len() + 2;
        return (inner, length);
    }

    let is_inside = |line: &&&str| line.trim().is_empty() || indent(line) >= 4;
    let count = lines.iter().take_while(is_inside).count();
    let filled = lines[..count].iter().filter(|line| !line.trim().is_empty());
    let width = filled.map(|line| indent(line)).min().unwrap_or_default();
    let mut inner: Vec<_> = lines[..count]
        .iter()
        .map(|line| line.get(width..).unwrap_or_default().to_owned())
        .collect();
    while inner.last().is_some_and(String::is_empty) {
        inner.pop();
    }
    (inner, count)
}

/// The code blocks of a page, in order.
pub fn blocks(page: &str) -> Vec<Block> {
    let lines: Vec<_> = page.lines().collect();
    let mut blocks = Vec::new();
    let mut remark = String::new();
    let mut can_begin = true;
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let is_fence = line.trim_start().starts_with("```");
        if is_fence || (can_begin && line.starts_with("    ")) {
            let (inner, count) = body(&lines[at..]);
            let text: String = inner.into_iter().map(|line| line + "\n").collect();
            blocks.push(Block { line: at + 1, text, remark: std::mem::take(&mut remark) });
            at += count;
            can_begin = true;
            continue;
        }

        let comment = line.trim().strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        remark = comment.unwrap_or_default().to_owned();
        can_begin = line.trim().is_empty() || comment.is_some();
        at += 1;
    }
    blocks
}

pub fn read(page: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The only block of a page that begins with `start`.
pub fn block(page: &str, start: &str) -> String {
    let found = blocks(&read(page)).into_iter().filter(|block| block.text.starts_with(start));
    let [block] = <[Block; 1]>::try_from(found.collect::<Vec<_>>())
        .unwrap_or_else(|found| panic!("{page} has {} blocks that begin so: {start}", found.len()));
    block.text
}

#[test]
fn each_block_is_found_with_its_remark() {
    let page = "Text\n    no code, but a part of the paragraph\n\n    $ a\n\n    b\n\n- list\n\n      \
                organism send FILE\n<!-- not run: it waits -->\n    while\n\n```toml\na = 1\n```\n";
    let found: Vec<_> = blocks(page).iter().map(|b| (b.line, b.text.clone())).collect();
    let expected =
        [(4, "$ a\n\nb\n"), (10, "organism send FILE\n"), (12, "while\n"), (14, "a = 1\n")];
    assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));

    let kinds: Vec<_> = blocks(page).iter().map(|block| block.kind().unwrap()).collect();
    let waits = BlockKind::NotRun("it waits".to_owned());
    assert_eq!(kinds, [BlockKind::Transcript, BlockKind::Usage, waits, BlockKind::Config]);
}

#[test]
fn a_block_that_nobody_carries_out_is_an_error() {
    for page in ["\n    echo $SHELL\n", "```xml\n<a/>\n```\n", "<!-- runs: always -->\n    a\n"] {
        assert!(blocks(page)[0].kind().is_err(), "{page}");
    }
}
