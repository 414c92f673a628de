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

/// The deepest nesting level that is indented further than the level above it.
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

/// The expanded branches of the tree. The page shows the threads in these branches, and the URL
/// contains the ids of the branches.
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

    /// Whether the URL has as many expanded branches as it can have.
    fn is_full(&self) -> bool {
        self.0.len() >= limits::WEB_OPEN_BRANCHES
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

/// Reads the rows of a tree until the page is full. `children` returns some of the threads that a
/// thread opened: skips the first ones, as many as its second argument states, and returns at most
/// as many as its third argument states.
struct BranchReader<C> {
    children: C,
    open: OpenBranches,
    rows: Vec<BranchRow>,
}

impl<C> BranchReader<C>
where
    C: FnMut(&ThreadId, u64, usize) -> Result<Vec<ThreadBranch>, index::Error>,
{
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
        for child in (self.children)(&thread, skip, limit)? {
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

    let partition = match thread::selected_partition(&query) {
        Ok(partition) => partition,
        Err(problem) => return view.failed(StatusCode::BAD_REQUEST, "No such page", &problem),
    };
    let open = OpenBranches::read(&query);
    let find = move |index: &mut IndexReader| {
        let Some(branch) = index.branch(&thread)? else { return Ok(None) };
        let children = |thread: &ThreadId, skip, limit| index.child_branches(thread, skip, limit);
        let mut reader = BranchReader { children, open: open.clone(), rows: Vec::new() };
        reader.add(branch, 0, skip)?;
        let rows = reader.rows;
        let header = ThreadHeader::find(index, &thread)?;
        Ok(header.map(|header| (header, rows)))
    };
    view.respond_found_in(partition, find, move |view, found| match found {
        Some((header, rows)) => {
            let content = content(&query, &id, skip, &rows, &header);
            let partitions = thread::partition_links(view, &query, &id, &path(&id));
            let page = html! { (header.draw(view)) (partitions) (content) };
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
                        (self::row(query, &open, id, header.opened_by(), row))
                        @if row.left > 0 && row.depth > 0 { (more(row)) }
                    }
                }
            }
        }
        (pages(query, id, skip, rows))
        p.hint {
            "Each row counts the thread with everything beneath it."
            @if open.is_full() {
                " " (open.0.len()) " branches are open, which is the most: close one to open another, or "
                a href=(query.with("open", None).link(&path(id))) { "close all" } "."
            }
        }
    }
}

/// Draws links to the first and the next page of the tree. `skip` is the number of the first
/// thread's children that come before this page. The rows of expanded branches may leave room for
/// fewer children than [`limits::WEB_PAGE_ROWS`].
fn pages(query: &UrlQuery, id: &str, skip: u64, rows: &[BranchRow]) -> Markup {
    let children = rows.first().map_or(0, |row| row.branch.children);
    let left = rows.first().map_or(0, |row| row.left);
    let next = children.saturating_sub(left).to_string();
    html! {
        nav.pages aria-label="Pages of the tree" {
            @if skip > 0 { a href=(query.with("from", None).link(&path(id))) { "First threads" } }
            @if left > 0 {
                a rel="next" href=(query.with("from", Some(&next)).link(&path(id))) {
                    (grouped(left)) " further threads"
                }
            }
        }
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

/// Draws the row of a branch. `root_opened_by` is the sender that opened the thread of the page.
fn row(
    query: &UrlQuery,
    open: &OpenBranches,
    id: &str,
    root_opened_by: &str,
    row: &BranchRow,
) -> Markup {
    let branch = &row.branch;
    let indent = format!("depth-{}", row.depth.min(INDENTS));
    let toggle = query.with("open", open.toggled(&branch.thread).as_deref()).link(&path(id));
    let can_toggle = row.is_open || !open.is_full();
    let own = branch.thread.rsplit_once('.').map_or(&*branch.thread, |(_, own)| own);
    let name = if row.depth == 0 { &*branch.thread } else { own };
    let spent = SpendingTotals { tokens: branch.tokens, money: branch.costs.clone() };
    // The index names no opener of a root thread.
    let is_unnamed = row.depth == 0 && branch.opened_by.is_empty();
    let opened_by = if is_unnamed { root_opened_by } else { &*branch.opened_by };
    html! {
        tr {
            th.(indent) scope="row" {
                @if row.depth > 0 && branch.children > 0 && can_toggle {
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
    use crate::clock::Time;
    use crate::envelope::CurrencyTotals;
    use crate::index::HoldCount;

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

    fn branch(thread: &str, children: u64) -> ThreadBranch {
        ThreadBranch {
            thread: thread.to_owned(),
            status: "completed".to_owned(),
            opened_by: "desk".to_owned(),
            opened: Time(0),
            worked: Time(0),
            children,
            beneath: children,
            messages: 1,
            refusals: 0,
            errors: 0,
            denials: 0,
            turns: 0,
            tokens: 0,
            costs: CurrencyTotals::default(),
            waits: HoldCount::default(),
        }
    }

    /// Number of threads that each thread of [`read_page`] opened, down to the second level.
    const CHILDREN: u64 = 100;

    /// Reads a page of a tree with two levels of subthreads.
    fn read_page(query: &UrlQuery, skip: u64) -> Vec<BranchRow> {
        let children = |thread: &ThreadId, skip: u64, limit: usize| {
            let beneath = if thread.is_root() { CHILDREN } else { 0 };
            let ids = (skip..CHILDREN).map(|number| format!("{thread}.c{number}"));
            Ok(ids.take(limit).map(|id| branch(&id, beneath)).collect())
        };
        let open = OpenBranches::read(query);
        let mut reader = BranchReader { children, open, rows: Vec::new() };
        reader.add(branch("sess-tree0001", CHILDREN), 0, skip).unwrap();
        reader.rows
    }

    #[test]
    fn the_pages_of_a_tree_with_open_branches_have_each_child_of_its_root() {
        let open: Vec<_> = (0..5).map(|number| format!("sess-tree0001.c{number}")).collect();
        let query = UrlQuery::default().with("open", Some(&open.join(",")));
        let mut shown = Vec::new();
        let mut skip = Some(0);
        while let Some(from) = skip {
            let rows = read_page(&query, from);
            assert!(rows.len() <= limits::WEB_ROWS_MAX, "{} rows", rows.len());
            let children = rows.iter().filter(|row| row.depth == 1);
            shown.extend(children.map(|row| row.branch.thread.clone()));
            assert!(shown.len() as u64 <= CHILDREN, "a child stands on two pages");

            let pages = pages(&query, "sess-tree0001", from, &rows).into_string();
            let link = pages.split("rel=\"next\"").nth(1);
            skip = link.map(|link| {
                let (_, from) = link.split_once("from=").unwrap();
                from.split('"').next().unwrap().parse().unwrap()
            });
        }
        let expected: Vec<_> =
            (0..CHILDREN).map(|number| format!("sess-tree0001.c{number}")).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn with_the_most_open_branches_a_page_closes_branches_and_opens_no_others() {
        let ids = (0..limits::WEB_OPEN_BRANCHES).map(|number| format!("sess-tree0001.c{number}"));
        let ids: Vec<_> = ids.collect();
        let signs = |open: &[String]| {
            let query = UrlQuery::default().with("open", Some(&open.join(",")));
            let rows = read_page(&query, 48);
            let open = OpenBranches::read(&query);
            let row = |row: &BranchRow| self::row(&query, &open, "sess-tree0001", "desk", row);
            let rows: String = rows.iter().map(|found| row(found).into_string()).collect();
            [rows.matches(">−<").count(), rows.matches(">+<").count()]
        };
        let [_, opening] = signs(&ids[1..]);
        assert!(opening > 0, "a further branch can be opened");
        let [closing, opening] = signs(&ids);
        assert!(closing > 0, "open branches can be closed");
        assert_eq!(opening, 0, "the address has no room for a further branch");
    }
}
