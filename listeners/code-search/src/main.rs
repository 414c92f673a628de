//! `code-search ROOT`: a listener that searches one directory tree.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use code_search::limits;
use code_search::payload::{Extract, Query, Search, ToolFailure};
use code_search::tree::SearchTree;
use organism::listener::{Listener, Reply, Request, TypedPayload};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(root), None) = (arguments.next(), arguments.next()) else {
        return fail("usage: code-search ROOT, where ROOT is the directory to search");
    };

    if root == "--version" {
        return version();
    }

    let tree = match SearchTree::open(Path::new(&root)) {
        Ok(tree) => tree,
        Err(error) => return fail(&format!("cannot search {}: {error}", root.display())),
    };

    let searched = tree.clone();
    let queried = tree.clone();
    Listener::new()
        .on(move |search: Search, request: &Request| {
            let _alive = request.keep_alive_for(limits::HEARTBEAT_TIME_MAX);
            reply(code_search::search(&searched, &search))
        })
        .on(move |query: Query, request: &Request| {
            let _alive = request.keep_alive_for(limits::HEARTBEAT_TIME_MAX);
            reply(code_search::query(&queried, &query))
        })
        .on(move |extract: Extract, _: &Request| reply(code_search::extract(&tree, &extract)))
        .serve()
}

/// Makes the listener's answer from the result of a request. A tool error becomes a payload, too.
fn reply<P: TypedPayload>(result: Result<P, code_search::ToolError>) -> Result<Reply, String> {
    match result {
        Ok(payload) => Reply::of(&payload),
        Err(error) => Reply::of(&ToolFailure::from(error)),
    }
}

fn version() -> ExitCode {
    let written = writeln!(std::io::stdout(), "code-search {}", env!("CARGO_PKG_VERSION"));
    ExitCode::from(u8::from(written.is_err()))
}

fn fail(reason: &str) -> ExitCode {
    // Standard error may be closed. The exit code still shows the failure.
    let _ = writeln!(std::io::stderr(), "{reason}");
    ExitCode::from(2)
}
