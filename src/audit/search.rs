//! Searches messages and refusals. The index finds them by words and properties; then their
//! payloads are searched for a substring or with XPath.

use serde::Serialize;

use crate::index::{Error, HitCount, IndexReader, SearchFilter, SearchHit};
use crate::journal::HashedRecord;
use crate::limits;
use crate::schema::{XPathDocument, XPathError, check_expression};
use crate::thread::Fact;
use crate::xml::element::Element;

use super::views::{MessageView, RefusalView};

/// The conditions that the results of a search must meet, and the maximum number of results.
#[derive(Debug, Clone, Default)]
pub struct SearchRequest {
    pub filter: SearchFilter,
    /// Text that the payload must contain. Upper and lower case count as equal. `None` for any
    /// payload.
    pub substring: Option<String>,
    /// XPath expression that must be true for the payload; `None` for any payload. Names in the
    /// expression are local names.
    pub xpath: Option<String>,
    pub limit: usize,
    /// Whether all matches are counted. If false, the counting stops at 10,000 matches. A search
    /// for a substring or with XPath then ends after about 10,000 payloads, even if it has found
    /// fewer matches than `limit`.
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
    /// Number of payloads for which the XPath expression exceeded a bound of its evaluation. These
    /// payloads do not count as matches.
    pub unevaluated: u64,
}

/// Searches one index. If the search words are only the id of a recorded message, finds this
/// message. If the words are only the id of a recorded thread, finds the messages of this thread.
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
    Ok(SearchResult { items, total, unevaluated: 0 })
}

/// Searches the payloads of the messages and refusals that match the filter of the request. The
/// newest ones are searched first.
fn search_payloads(index: &IndexReader, request: &SearchRequest) -> Result<SearchResult, Error> {
    let substring = request.substring.as_ref().map(|text| text.to_lowercase());
    let mut items = Vec::new();
    let mut matches = 0_u64;
    let mut unevaluated = 0;
    let mut looked_at = 0;
    let mut before = None;
    let mut loader = HitLoader { index, record: None };

    loop {
        let page = index.search(&request.filter, before, limits::SEARCH_PAGE)?;
        for hit in &page {
            let Some(item) = loader.load(hit)? else { continue };
            let is_match = matches_payload(&item, substring.as_deref(), request);
            let is_match = is_match.map_err(|error| Error::Query {
                detail: format!("the XPath expression fails in record {}: {error}", hit.position),
            })?;
            match is_match {
                Some(true) => {
                    matches += 1;
                    if items.len() < request.limit {
                        items.push(item);
                    }
                }
                Some(false) => {}
                None => unevaluated += 1,
            }
        }
        looked_at += page.len();
        let is_last = page.len() < limits::SEARCH_PAGE;
        let is_bound = looked_at >= limits::SEARCH_PAYLOADS_MAX && !request.is_full_count;
        if is_last || is_bound {
            items.reverse();
            let total = if is_last { HitCount::Exact(matches) } else { HitCount::AtLeast(matches) };
            return Ok(SearchResult { items, total, unevaluated });
        }
        before = page.last().map(|hit| hit.n);
    }
}

/// Whether a payload matches. `None` if the evaluation of the XPath expression exceeds a bound for
/// this payload.
fn matches_payload(
    item: &SearchedItem,
    substring: Option<&str>,
    request: &SearchRequest,
) -> Result<Option<bool>, XPathError> {
    let payload = match item {
        SearchedItem::Message(message) => message.payload.as_deref(),
        SearchedItem::Refusal(refusal) => Some(refusal.head.as_str()),
    };
    let Some(payload) = payload else { return Ok(Some(false)) };
    let is_contained = substring.is_none_or(|text| payload.to_lowercase().contains(text));
    match &request.xpath {
        Some(expression) if is_contained => evaluate_for(expression, payload),
        _ => Ok(Some(is_contained)),
    }
}

/// Whether an XPath expression is true for a payload. False if the payload is not XML. `None` if
/// the evaluation exceeds a bound. This is no error, because the expression may still match other
/// payloads.
fn evaluate_for(expression: &str, payload: &str) -> Result<Option<bool>, XPathError> {
    use XPathError::{TooManyNodes, TooManyOperations, TooMuchText};

    let document = Element::read(payload).map(|element| XPathDocument::of_payload(&element));
    let Some(Ok(document)) = document else { return Ok(Some(false)) };
    match document.evaluate_flag(expression) {
        Err(TooManyNodes | TooManyOperations | TooMuchText) => Ok(None),
        result => result.map(Some),
    }
}

/// Checks an XPath expression for a search: its syntax, and its evaluation for an empty payload.
/// The evaluation finds unknown functions, prefixes and variables in the parts that it reaches.
///
/// # Errors
///
/// Returns an error if the expression cannot be evaluated, so that no payload can match it.
pub fn check_xpath(expression: &str) -> Result<(), XPathError> {
    check_expression(expression)?;
    let empty = XPathDocument::of_payload(&Element::local("payload"))?;
    empty.evaluate_flag(expression).map(drop)
}

/// Reader of search hits from the journal. Keeps the record that was read last, because the next
/// hit is often in the same record.
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

#[cfg(test)]
mod tests {
    use super::evaluate_for;

    #[test]
    fn a_payload_that_is_too_large_for_an_expression_hides_no_other_match() {
        let wide = format!("<r>{}</r>", "<i>1</i>".repeat(5_000));
        let expression = "//i[following::i = '7']";
        assert_eq!(evaluate_for(expression, &wide), Ok(None));
        assert_eq!(evaluate_for(expression, "<r><i>1</i><i>7</i></r>"), Ok(Some(true)));
        assert_eq!(evaluate_for(expression, "<r><i>7</i></r>"), Ok(Some(false)));
        assert!(evaluate_for("//i[nosuch()]", "<r><i>1</i></r>").is_err());
    }
}
