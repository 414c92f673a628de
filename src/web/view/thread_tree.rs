//! The page with a thread and the threads beneath it, with totals for each branch. The URL contains
//! the ids of the expanded branches.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::ViewState;
use super::layout::{grouped, inline, took, unless_zero};
use super::thread::{self, ThreadHeader, path as thread_path};
use super::thread_status;
use super::thread_view::ThreadView;
use super::url_query::UrlQuery;
use crate::audit::is_open_phase;
use crate::envelope::SpendingTotals;
use crate::ids::ThreadId;
use crate::index::{self, IndexReader, ThreadBranch};
use crate::limits;

/// Maximum number of nesting levels with an indent of their own.
const INDENTS: usize = 12;

/// Returns the path of the page with the tree of a thread.
pub(super) fn path(thread: &str) -> String {
    format!("{}/tree", thread_path(thread))
}

/// Draws links to the views and the other pages of a thread. `current` is the page that shows these
/// links.
pub(super) fn tabs(id: &str, current: &str, has_run: bool) -> Markup {
    let mut others = vec![("Tree", path(id))];
    if has_run {
        others.push(("Goals", super::goal_graph::path(id)));
    }
    ThreadView::links_from(&thread_path(id), current, &others)
}

/// A row of the page that shows a tree of threads.
struct BranchRow {
    branch: ThreadBranch,
    depth: usize,
    is_open: bool,
    /// Number of this row's children that follow on further pages.
    left: u64,
}

/// The expanded branches of the tree, whose threads the page shows. The URL contains their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OpenBranches(BTreeSet<String>);

impl OpenBranches {
    fn read(query: &UrlQuery) -> Self {
        let named = query.get("open").unwrap_or_default().split(',').filter(|id| !id.is_empty());
        Self(named.take(limits::WEB_OPEN_BRANCHES).map(str::to_owned).collect())
    }

    fn has(&self, thread: &str) -> bool {
        self.0.contains(thread)
    }

    /// Returns the value of the URL parameter after a click on a branch. The click expands a
    /// collapsed branch, and collapses an expanded one. Returns `None` if no branch is expanded
    /// after the click.
    fn toggled(&self, thread: &str) -> Option<String> {
        let mut open = self.0.clone();
        if !open.remove(thread) {
            open.insert(thread.to_owned());
        }
        let open: Vec<_> = open.into_iter().collect();
        (!open.is_empty()).then(|| open.join(","))
    }
}

/// Reads the rows of a tree until the page is full.
struct BranchReader<'i> {
    index: &'i IndexReader,
    open: OpenBranches,
    rows: Vec<BranchRow>,
}

impl BranchReader<'_> {
    /// Adds a branch and, if it is expanded, the branches beneath it. The recursion is bounded by
    /// the maximum depth of threads.
    fn add(&mut self, branch: ThreadBranch, depth: usize, skip: u64) -> Result<(), index::Error> {
        let is_open = branch.children > 0 && (depth == 0 || self.open.has(&branch.thread));
        let thread = ThreadId::parse(&branch.thread).ok().filter(|_| is_open);
        let children = branch.children;
        let at = self.rows.len();
        self.rows.push(BranchRow { branch, depth, is_open, left: 0 });
        let Some(thread) = thread else { return Ok(()) };

        let room = limits::WEB_ROWS_MAX.saturating_sub(self.rows.len());
        let limit = room.min(limits::WEB_PAGE_ROWS);
        let mut shown = 0;
        for child in self.index.child_branches(&thread, skip, limit)? {
            if self.rows.len() >= limits::WEB_ROWS_MAX {
                break;
            }
            self.add(child, depth + 1, 0)?;
            shown += 1;
        }
        if let Some(row) = self.rows.get_mut(at) {
            row.left = children.saturating_sub(skip).saturating_sub(shown);
        }
        Ok(())
    }
}

pub(super) async fn show(
    State(view): State<Arc<ViewState>>,
    Path(id): Path<String>,
    query: UrlQuery,
) -> Response {
    let Ok(thread) = ThreadId::parse(&id) else { return thread::missing(&view, &id) };
    let skip = match query.get("from").map(str::parse::<u64>).transpose() {
        Ok(skip) => skip.unwrap_or_default(),
        Err(_) => {
            let text = "`from` is no number of threads to skip";
            return view.failed(StatusCode::BAD_REQUEST, "No such page", text);
        }
    };

    let open = OpenBranches::read(&query);
    let find = move |index: &mut IndexReader| {
        let Some(branch) = index.branch(&thread)? else { return Ok(None) };
        let mut reader = BranchReader { index, open: open.clone(), rows: Vec::new() };
        reader.add(branch, 0, skip)?;
        let rows = reader.rows;
        let header = ThreadHeader::find(index, &thread)?;
        Ok(header.map(|header| (header, rows)))
    };
    view.respond_found(find, move |view, found| match found {
        Some((header, rows)) => {
            let content = content(&query, &id, skip, &rows, &header);
            let page = html! { (header.draw(view)) (content) };
            view.page(&id, "/threads", &page)
        }
        None => thread::missing(view, &id),
    })
    .await
}

fn content(
    query: &UrlQuery,
    id: &str,
    skip: u64,
    rows: &[BranchRow],
    header: &ThreadHeader,
) -> Markup {
    let open = OpenBranches::read(query);
    let parent = ThreadId::parse(id).ok().and_then(|thread| thread.parent());
    let left = rows.first().map_or(0, |row| row.left);
    let next = skip.saturating_add(limits::WEB_PAGE_ROWS as u64);
    html! {
        (tabs(id, "Tree", header.has_run))
        p {
            @if let Some(parent) = parent {
                "Beneath " a href=(path(parent.as_str())) { (inline(parent.as_str())) }
            }
        }
        div.scroll tabindex="0" role="region" aria-label="Tree of threads" {
            table.tree.cards {
                caption.unseen { "Threads with the sums of their branches" }
                thead {
                    tr {
                        th scope="col" { "Thread" }
                        th scope="col" { "Status" }
                        th scope="col" { "Opened by" }
                        th.number scope="col" { "Took" }
                        th.number scope="col" { "Threads" }
                        th.number scope="col" { "Messages" }
                        th.number scope="col" { "Turns" }
                        th.number scope="col" { "Gate refusals" }
                        th.number scope="col" { "Errors" }
                        th.number scope="col" { "Tokens" }
                        th.number scope="col" { "Cost" }
                    }
                }
                tbody {
                    @for row in rows {
                        (self::row(query, &open, id, header, row))
                        @if row.left > 0 && row.depth > 0 { (more(row)) }
                    }
                }
            }
        }
        nav.pages aria-label="Pages of the tree" {
            @if skip > 0 { a href=(query.with("from", None).link(&path(id))) { "First threads" } }
            @if left > 0 {
                a rel="next" href=(query.with("from", Some(&next.to_string())).link(&path(id))) {
                    (grouped(left)) " further threads"
                }
            }
        }
        p.hint { "Each row counts the thread with everything beneath it." }
    }
}

/// Draws the status of a branch. A branch whose own thread has ended may still have waiting calls
/// beneath it.
fn status(branch: &ThreadBranch) -> Markup {
    html! {
        (thread_status::status(&branch.status, branch.waits))
        (thread_status::denials(branch.denials))
    }
}

fn row(
    query: &UrlQuery,
    open: &OpenBranches,
    id: &str,
    header: &ThreadHeader,
    row: &BranchRow,
) -> Markup {
    let branch = &row.branch;
    let indent = format!("depth-{}", row.depth.min(INDENTS));
    let toggle = query.with("open", open.toggled(&branch.thread).as_deref()).link(&path(id));
    let own = branch.thread.rsplit_once('.').map_or(&*branch.thread, |(_, own)| own);
    let name = if row.depth == 0 { &*branch.thread } else { own };
    let spent = SpendingTotals { tokens: branch.tokens, money: branch.costs.clone() };
    // The index names no opener of a root thread.
    let is_unnamed = row.depth == 0 && branch.opened_by.is_empty();
    let opened_by = if is_unnamed { header.opened_by() } else { &*branch.opened_by };
    html! {
        tr {
            th.(indent) scope="row" {
                @if row.depth > 0 && branch.children > 0 {
                    a.toggle href=(toggle) {
                        (if row.is_open { "−" } else { "+" })
                        span.unseen { (if row.is_open { " close " } else { " open " }) (inline(own)) }
                    }
                } @else { span.toggle {} }
                a data-entry href=(thread_path(&branch.thread)) { (inline(name)) }
            }
            td { (status(branch)) }
            td data-label="Opened by" { (inline(opened_by)) }
            td.number data-label="Took" { (took(branch.opened, branch.worked, is_open_phase(&branch.status))) }
            td.number data-label="Threads" { (unless_zero(branch.beneath)) }
            td.number data-label="Messages" { (grouped(branch.messages)) }
            td.number data-label="Turns" { (unless_zero(branch.turns)) }
            td.number data-label="Gate refusals" { (unless_zero(branch.refusals)) }
            td.number.errors data-label="Errors" { (unless_zero(branch.errors.saturating_sub(branch.denials))) }
            td.number data-label="Tokens" { (unless_zero(branch.tokens)) }
            td.number data-label="Cost" { (thread::cost(&spent)) }
        }
    }
}

fn more(row: &BranchRow) -> Markup {
    html! {
        tr {
            td.(format!("depth-{}", (row.depth + 1).min(INDENTS))) colspan="11" {
                a href=(path(&row.branch.thread)) { "… " (grouped(row.left)) " more" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_or_closes_one_branch_and_keeps_the_others() {
        let query = UrlQuery::parse("open=sess-a.b,sess-a.c");
        let open = OpenBranches::read(&query);
        assert_eq!(open.toggled("sess-a.d").as_deref(), Some("sess-a.b,sess-a.c,sess-a.d"));
        assert_eq!(open.toggled("sess-a.b").as_deref(), Some("sess-a.c"));
        assert_eq!(OpenBranches::default().toggled("x").as_deref(), Some("x"));
        assert_eq!(OpenBranches(["x".to_owned()].into()).toggled("x"), None);

        let many: Vec<_> = (0..1_000).map(|n| format!("sess-a.{n}")).collect();
        let many = UrlQuery::default().with("open", Some(&many.join(",")));
        assert_eq!(OpenBranches::read(&many).0.len(), limits::WEB_OPEN_BRANCHES);
    }
}
