//! Size limits of files and functions, in lines of code. Blank lines and comments do not count, so
//! that dense code gains nothing.

use crate::nothing;
use crate::source::functions;
use crate::tree::{File, files, product, rust};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const README_LINES_MAX: usize = 150;

/// Files that may exceed the size limit, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

/// Functions that may exceed the size limit, as `path::function`, each with the reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Lines of code, without test modules.
fn lines(file: &File) -> usize {
    let product = match file.text.find("#[cfg(test)]\nmod ") {
        Some(at) => &file.text[..at],
        None => &file.text,
    };
    let comment = if file.path.ends_with(".py") { "#" } else { "//" };
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with(comment);
    product.lines().map(str::trim).filter(is_code).count()
}

#[test]
fn no_file_is_longer_than_its_ceiling() {
    let scripts = files()
        .iter()
        .filter(|file| file.path.ends_with(".py") && (file.path.starts_with("listeners/")));
    let wrong = product()
        .chain(scripts)
        .filter(|file| LONG_FILES.iter().all(|(path, _)| *path != file.path))
        .filter(|file| lines(file) > FILE_LINES_MAX)
        .map(|file| format!("{}: {} lines", file.path, lines(file)));
    nothing(wrong.collect(), "split these into well-named files");
}

#[test]
fn no_function_is_longer_than_its_ceiling() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in product() {
        for function in functions(&file.code) {
            seen += 1;
            let place = format!("{}::{}", file.path, function.name);
            let is_listed = LONG_FUNCTIONS.iter().any(|(listed, _)| *listed == place);
            if function.lines > FUNCTION_LINES_MAX && !is_listed {
                wrong.push(format!("{place}, line {}: {} lines", function.line, function.lines));
            }
        }
    }
    assert!(seen > 500, "only {seen} functions were found");
    nothing(wrong, "take these apart");
}

#[test]
fn the_readme_is_short() {
    let lines = crate::tree::read("README.md").lines().count();
    assert!(lines <= README_LINES_MAX, "README.md has {lines} lines");
}

#[test]
fn every_exception_is_still_needed() {
    let mut stale = Vec::new();
    for (path, _) in LONG_FILES {
        if !rust().any(|file| file.path == *path && lines(file) > FILE_LINES_MAX) {
            stale.push((*path).to_owned());
        }
    }
    for (place, _) in LONG_FUNCTIONS {
        let is_long = |file: &File| {
            functions(&file.code).iter().any(|function| {
                format!("{}::{}", file.path, function.name) == *place
                    && function.lines > FUNCTION_LINES_MAX
            })
        };
        if !rust().any(is_long) {
            stale.push((*place).to_owned());
        }
    }
    nothing(stale, "exceptions that except nothing");
}
