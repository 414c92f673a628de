//! Compares the results that clients got from two threads. Two results are equal if both texts have
//! the same value according to their schema, even in different notations.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value as Json;

use super::event_content::{ContentReader, is_decision_note, is_lineage};
use super::timeline::{ThreadTimeline, TimelineEvent};
use super::views::MessageView;
use crate::envelope::MessageKind;
use crate::ids::ListenerName;
use crate::schema::Schemas;
use crate::xml::element::{Element, ElementOrigin, Node};

/// Whether clients of the two threads got the same results in the same order. Results are compared
/// by the values that the schema gives them. Differences in white space between elements, in the
/// order of attributes, in prefixes, and in notations of numbers are ignored.
pub fn has_equal_finals(left: &ThreadTimeline, right: &ThreadTimeline, schemas: &Schemas) -> bool {
    let left_ids = ContentReader::beside(left, right);
    let right_ids = ContentReader::beside(right, left);
    let before = finals(left);
    let after = finals(right);
    let mut pairs = before.iter().zip(&after);
    before.len() == after.len()
        && pairs
            .all(|(before, after)| is_same_final(schemas, (before, &left_ids), (after, &right_ids)))
}

/// Whether two results went to the same client and have the same values according to their schema.
pub(super) fn is_same_final(
    schemas: &Schemas,
    (left, left_ids): (&MessageView, &ContentReader),
    (right, right_ids): (&MessageView, &ContentReader),
) -> bool {
    let same_kind = left.kind == right.kind && left.name == right.name && left.to == right.to;
    same_kind && has_same_content(schemas, (left, left_ids), (right, right_ids))
}

/// Returns the messages of the thread itself, without those of its subthreads.
pub(super) fn messages_of(timeline: &ThreadTimeline) -> impl Iterator<Item = &MessageView> {
    timeline.items.iter().filter_map(|item| match &item.what {
        TimelineEvent::Message(message) => Some(message),
        _ => None,
    })
}

/// Returns the results of a request that a thread got from outside: of the latest request that has
/// a result. Each result is a pair: the message to a peer, and the reply or fault with which this
/// peer's call ended. If the request went to several peers, returns the results of all peers, in
/// the order of the messages to them. If the first reply of any peer is the result of the request,
/// and a peer has replied, leaves out the faults.
pub(super) fn last_results(timeline: &ThreadTimeline) -> Vec<(&MessageView, &MessageView)> {
    let requests = messages_of(timeline).filter(|message| message.kind == MessageKind::Call);
    let requests: HashMap<_, _> = requests.map(|request| (request.id, request)).collect();

    let results = messages_of(timeline).filter_map(|message| {
        let is_result = matches!(message.kind, MessageKind::Reply | MessageKind::System)
            && message.call.is_none();
        let request = requests.get(&message.cause.filter(|_| is_result)?)?;
        Some((*request, message))
    });
    let mut results: Vec<(&MessageView, &MessageView)> = results.collect();
    // The messages of one request to several peers are in one record.
    let latest = results.iter().map(|(request, _)| request.position).max();
    results.retain(|(request, _)| Some(request.position) == latest);

    let is_reply = |message: &MessageView| message.kind == MessageKind::Reply;
    let is_won = results.iter().any(|(request, message)| {
        is_reply(message) && timeline.first_requests.contains(&request.id)
    });
    results.retain(|(_, message)| !is_won || is_reply(message));
    results.sort_by_key(|(request, _)| request.seq);
    results
}

/// Returns the replies and faults that a thread sent to clients, in the order of the requests. The
/// results of a request to several peers are in the order of the messages to these peers.
pub(super) fn finals(timeline: &ThreadTimeline) -> Vec<&MessageView> {
    let messages: Vec<_> = messages_of(timeline).filter(|message| !is_lineage(message)).collect();
    // A client only sends requests.
    let requests = || messages.iter().filter(|message| message.kind == MessageKind::Call);
    let called: BTreeSet<&ListenerName> = requests().map(|request| &request.to).collect();
    let clients: BTreeSet<&ListenerName> =
        requests().map(|request| &request.from).filter(|from| !called.contains(from)).collect();
    let is_final = |message: &&MessageView| {
        let is_result = matches!(message.kind, MessageKind::Reply | MessageKind::System);
        is_result && clients.contains(&message.to) && !is_decision_note(message)
    };
    let orders: HashMap<_, _> = requests().map(|request| (request.id, request.seq)).collect();
    let mut finals: Vec<_> = messages.iter().copied().filter(is_final).collect();
    finals.sort_by_key(|message| message.cause.and_then(|cause| orders.get(&cause).copied()));
    finals
}

fn has_same_content(
    schemas: &Schemas,
    (left, left_ids): (&MessageView, &ContentReader),
    (right, right_ids): (&MessageView, &ContentReader),
) -> bool {
    if left.digest == right.digest {
        return true;
    }
    // A redacted result can only be compared by its digest.
    let (Some(_), Some(_)) = (&left.payload, &right.payload) else { return false };
    let left_text = left_ids.message(left).text;
    let right_text = right_ids.message(right).text;
    left_text == right_text || has_same_values(schemas, left, &left_text, &right_text)
}

fn has_same_values(schemas: &Schemas, message: &MessageView, left: &str, right: &str) -> bool {
    let json = |text: &str| schemas.to_json(&message.name, text).ok();
    if let (Some(left), Some(right)) = (json(left), json(right)) {
        return is_same_json(&left, &right);
    }
    // JSON cannot express this schema, so the elements are compared.
    match (Element::read_document(left), Element::read_document(right)) {
        (Some(left), Some(right)) => canonical(&left) == canonical(&right),
        _ => false,
    }
}

/// Whether two JSON values, converted from XML with the same schema, are equal. A string also
/// equals a number or flag with the same value. The reason: if the notation of a number or flag in
/// XML is not valid in JSON, the conversion writes a string.
fn is_same_json(left: &Json, right: &Json) -> bool {
    match (left, right) {
        (Json::Object(left), Json::Object(right)) => {
            let same = |(key, value): (&String, &Json)| {
                right.get(key).is_some_and(|other| is_same_json(value, other))
            };
            left.len() == right.len() && left.iter().all(same)
        }
        (Json::Array(left), Json::Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| is_same_json(left, right))
        }
        (Json::Number(number), Json::String(text)) | (Json::String(text), Json::Number(number)) => {
            let number = number.as_f64();
            number.is_some() && text.trim().parse::<f64>().ok() == number
        }
        (Json::Bool(flag), Json::String(text)) | (Json::String(text), Json::Bool(flag)) => {
            matches!((flag, text.trim()), (true, "1" | "true") | (false, "0" | "false"))
        }
        _ => left == right,
    }
}

/// Returns an element in a form that can be compared: with sorted attributes, and without locations
/// and white space between elements.
fn canonical(element: &Element) -> Element {
    let mut own = Element { origin: ElementOrigin::default(), ..element.clone() };
    own.attributes.sort_by(|(one, _), (other, _)| {
        (one.namespace(), &one.local).cmp(&(other.namespace(), &other.local))
    });
    let is_blank = |node: &Node| matches!(node, Node::Text(text) if text.trim().is_empty());
    let is_mixed =
        element.content.iter().any(|node| matches!(node, Node::Text(_)) && !is_blank(node));
    let has_elements = element.children().next().is_some();
    own.content = element
        .content
        .iter()
        .filter(|node| is_mixed || !has_elements || !is_blank(node))
        .map(|node| match node {
            // The recursion is bounded, because the gate bounds the depth of payloads.
            Node::Element(child) => Node::Element(canonical(child)),
            Node::Text(text) => Node::Text(text.clone()),
        })
        .collect();
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn notations_of_one_value_are_the_same() {
        let same = [
            (json!({"n": 1, "f": true}), json!({"f": "1", "n": "+1.0"})),
            (json!([1.5]), json!(["1.50"])),
        ];
        for (left, right) in same {
            assert!(is_same_json(&left, &right), "{left} {right}");
            assert!(is_same_json(&right, &left), "{right} {left}");
        }
        let different = [
            (json!({"n": 1}), json!({"n": 1, "m": 2})),
            (json!("1"), json!("1.0")),
            (json!([1, 2]), json!([2, 1])),
            (json!(true), json!("0")),
        ];
        for (left, right) in different {
            assert!(!is_same_json(&left, &right), "{left} {right}");
            assert!(!is_same_json(&right, &left), "{right} {left}");
        }
    }

    #[test]
    fn white_space_between_elements_and_the_order_of_attributes_do_not_count() {
        let read = |text: &str| canonical(&Element::read_document(text).unwrap());
        let plain = read(r#"<a x="1" y="2"><b>t</b></a>"#);
        assert_eq!(plain, read("<a y=\"2\" x=\"1\">\n  <b>t</b>\n</a>"));
        assert_ne!(plain, read(r#"<a x="1" y="2"><b> t</b></a>"#));
        assert_ne!(plain, read(r#"<a x="1" y="2">!<b>t</b></a>"#));
    }
}
