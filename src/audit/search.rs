//! Searches messages and refusals in two steps. First, the index finds them by words and
//! properties. Then their payloads are searched for a substring or with XPath.

use serde::Serialize;

use crate::index::{Error, HitCount, IndexReader, SearchFilter, SearchHit};
use crate::journal::HashedRecord;
use crate::limits;
use crate::schema::XPathDocument;
use crate::thread::Fact;
use crate::xml::element::Element;

use super::views::{MessageView, RefusalView};

/// The conditions that the results of a search must meet, and the maximum number of results.
#[derive(Debug, Clone, Default)]
pub struct SearchRequest {
    pub filter: SearchFilter,
    /// Text that the payload must contain, ignoring case; `None` for any payload.
    pub substring: Option<String>,
    /// XPath expression that must be true for the payload; `None` for any payload. Names in the
    /// expression are local names.
    pub xpath: Option<String>,
    pub limit: usize,
    /// Whether all matches are counted. If false, the counting stops at 10,000 matches.
    pub is_full_count: bool,
}

/// A message or a refusal that a search has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum SearchedItem {
    Message(MessageView),
    Refusal(RefusalView),
}

impl SearchedItem {
    /// Returns the time of the message or of the refusal, in RFC 3339.
    pub fn time(&self) -> String {
        match self {
            Self::Message(message) => message.time.clone(),
            Self::Refusal(refusal) => refusal.time.clone(),
        }
    }
}

/// The newest matches of a search, and the number of all its matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchResult {
    /// The newest matches, sorted from oldest to newest.
    pub items: Vec<SearchedItem>,
    pub total: HitCount,
}

/// Searches one index. If the words of the request are only the id of a message or of a thread on
/// record, finds this message, or the messages of this thread.
///
/// # Errors
///
/// Returns errors of the index and of its journal.
pub fn search(index: &IndexReader, request: &SearchRequest) -> Result<SearchResult, Error> {
    let filter = index.resolve_id(&request.filter)?;
    let request = &SearchRequest { filter, ..request.clone() };
    if request.substring.is_some() || request.xpath.is_some() {
        return search_payloads(index, request);
    }

    let most = (!request.is_full_count).then_some(limits::SEARCH_COUNT_MAX);
    let (hits, total) = index.search_and_count(&request.filter, request.limit, most)?;
    let mut items = Vec::new();
    let mut loader = HitLoader { index, record: None };
    for hit in &hits {
        items.extend(loader.load(hit)?);
    }
    items.reverse();
    Ok(SearchResult { items, total })
}

/// Searches the payloads of the messages and refusals that the index finds by the request's filter.
/// Reads them newest first.
fn search_payloads(index: &IndexReader, request: &SearchRequest) -> Result<SearchResult, Error> {
    let substring = request.substring.as_ref().map(|text| text.to_lowercase());
    let mut items = Vec::new();
    let mut matches = 0_u64;
    let mut looked_at = 0;
    let mut before = None;
    let mut loader = HitLoader { index, record: None };

    loop {
        let page = index.search(&request.filter, before, limits::SEARCH_PAGE)?;
        for hit in &page {
            let item = loader.load(hit)?;
            let item = item.filter(|item| matches_payload(item, substring.as_deref(), request));
            if let Some(item) = item {
                matches += 1;
                if items.len() < request.limit {
                    items.push(item);
                }
            }
        }
        looked_at += page.len();
        let is_last = page.len() < limits::SEARCH_PAGE;
        let is_bound = looked_at >= limits::SEARCH_PAYLOADS_MAX && !request.is_full_count;
        if is_last || is_bound {
            items.reverse();
            let total = if is_last { HitCount::Exact(matches) } else { HitCount::AtLeast(matches) };
            return Ok(SearchResult { items, total });
        }
        before = page.last().map(|hit| hit.n);
    }
}

fn matches_payload(item: &SearchedItem, substring: Option<&str>, request: &SearchRequest) -> bool {
    let payload = match item {
        SearchedItem::Message(message) => message.payload.as_deref(),
        SearchedItem::Refusal(refusal) => Some(refusal.head.as_str()),
    };
    let Some(payload) = payload else { return false };
    let is_contained = substring.is_none_or(|text| payload.to_lowercase().contains(text));
    is_contained
        && request.xpath.as_deref().is_none_or(|expression| is_true_for(expression, payload))
}

/// Whether an XPath expression is true for a payload. False if the payload is not XML.
fn is_true_for(expression: &str, payload: &str) -> bool {
    let document = Element::read(payload).map(|element| XPathDocument::of_payload(&element));
    let flag = document.and_then(Result::ok).map(|document| document.evaluate_flag(expression));
    flag.and_then(Result::ok).unwrap_or(false)
}

/// Reader of search hits from the journal. The record that was read last stays in memory, because
/// several hits in a row are often in the same record.
struct HitLoader<'i> {
    index: &'i IndexReader,
    record: Option<HashedRecord>,
}

impl HitLoader<'_> {
    fn load(&mut self, hit: &SearchHit) -> Result<Option<SearchedItem>, Error> {
        let is_kept =
            self.record.as_ref().is_some_and(|sealed| sealed.record.position == hit.position);
        if !is_kept {
            self.record = Some(self.index.journal().existing_record(hit.position)?);
        }
        let Some(sealed) = &self.record else { return Ok(None) };
        let record = &sealed.record;

        let mut refusals = 0;
        let item = record.facts.iter().find_map(|fact| match fact {
            Fact::Accepted { message, .. } if Some(message.id) == hit.message => {
                Some(SearchedItem::Message(MessageView::new(record.position, message)))
            }
            Fact::Refused { sender, thread, refusal, .. } if hit.message.is_none() => {
                refusals += 1;
                let thread = thread.as_ref();
                let view =
                    || RefusalView::new(record.position, record.time, sender, thread, refusal);
                (refusals == hit.refusal + 1).then(|| SearchedItem::Refusal(view()))
            }
            _ => None,
        });
        Ok(item)
    }
}
