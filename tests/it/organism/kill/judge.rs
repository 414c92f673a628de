//! Compares the clients' ledgers, the records and the effects of the listeners.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use serde_json::Value as Json;

use super::House;
use super::clients::Ledger;

#[derive(Clone)]
pub struct Evidence {
    ledger: Ledger,
    /// Keys and threads of accepted submissions, as the clients wrote them to the disk.
    noted: Vec<[String; 2]>,
    /// Refused texts on record.
    refused: Vec<String>,
    /// Messages in the form of `organism export`.
    messages: Vec<Json>,
    /// Listener, message and attempt of every effect.
    effects: Vec<[String; 3]>,
    /// Whether `solo` connects over NATS. If so, a delivery can wait in a frozen server while the
    /// next attempt goes to another replica.
    solo_is_remote: bool,
}

fn text<'a>(message: &'a Json, field: &str) -> &'a str {
    message[field].as_str().unwrap_or_default()
}

fn words<const COUNT: usize>(line: &str) -> [String; COUNT] {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    words.try_into().unwrap()
}

/// Returns the listener, the message and the attempt of the last effect in `line`.
///
/// A listener that is killed while it writes across a page may leave the beginning of its line in
/// the file, although it has not acknowledged the effect. The next listener then continues that
/// line.
fn effect(line: &str, listeners: &BTreeSet<&str>) -> [String; 3] {
    let mut words: Vec<_> = line.rsplitn(4, ' ').take(3).collect();
    words.reverse();
    let [first, message, attempt] = words[..] else { panic!("{line}") };
    let ends = |listener: &&&str| first.ends_with(**listener);
    let listener = listeners.iter().filter(ends).max_by_key(|listener| listener.len());
    [listener.unwrap_or_else(|| panic!("{line}")), message, attempt].map(str::to_owned)
}

/// Value of `n` in the payload.
fn number(message: &Json) -> &str {
    let payload = text(message, "payload");
    let (_, rest) = payload.split_once("<n>").unwrap_or_default();
    rest.split_once("</n>").unwrap_or_default().0
}

/// Shows the numbers of submissions, messages and effects.
impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ledger, messages, effects, .. } = self;
        let sent = ledger.values().map(|seen| seen.sent).sum::<u32>();
        write!(f, "{} submissions sent {sent} times, ", ledger.len())?;
        let mut attempts: HashMap<&str, usize> = HashMap::new();
        effects.iter().for_each(|[_, id, _]| *attempts.entry(id).or_default() += 1);
        let most = attempts.values().max().copied().unwrap_or_default();
        write!(f, "{} messages, {} effects", messages.len(), effects.len())?;
        write!(f, " (at most {most} of one message)")
    }
}

impl Evidence {
    pub fn gather(house: &House, ledger: Ledger) -> Self {
        let exported = house.organism(&["export", "--format", "jsonl"]).json();
        let (messages, refusals): (Vec<_>, Vec<_>) =
            exported.into_iter().partition(|line| line["type"] == "message");
        let refused = refusals.iter().map(|refusal| text(refusal, "head").to_owned()).collect();
        let read = |name: &str| std::fs::read_to_string(house.path(name)).unwrap();
        let listeners: BTreeSet<_> = messages.iter().map(|message| text(message, "to")).collect();
        let effects = read("effects").lines().map(|line| effect(line, &listeners)).collect();
        let accepted = read("ledger");
        let accepted = accepted.lines().filter_map(|line| line.strip_prefix("accepted "));
        let noted = accepted.map(words).collect();
        let solo_is_remote = read("organism.toml").contains("[listeners.solo]\nnats = true");
        Self { ledger, noted, refused, messages, effects, solo_is_remote }
    }

    /// All violations.
    pub fn defects(&self) -> Vec<String> {
        let mut defects = Vec::new();
        self.submissions(&mut defects);
        self.dispositions(&mut defects);
        self.results(&mut defects);
        self.sequences(&mut defects);
        self.threads(&mut defects);
        self.orders(&mut defects);
        self.effects(&mut defects);
        defects
    }

    /// Checks that each accepted key has one record, and that the client got the result which is on
    /// record.
    fn submissions(&self, defects: &mut Vec<String>) {
        let mut recorded: HashMap<&str, Vec<&Json>> = HashMap::new();
        let mut results: HashMap<&str, &str> = HashMap::new();
        for message in &self.messages {
            match (text(message, "from"), text(message, "to")) {
                ("desk", _) => recorded.entry(number(message)).or_default().push(message),
                (_, "desk") => drop(results.insert(number(message), text(message, "payload"))),
                _ => {}
            }
        }
        for (key, seen) in &self.ledger {
            let records = recorded.remove(key.as_str()).unwrap_or_default();
            let due = usize::from(!seen.refused);
            if records.len() != due {
                defects.push(format!("{} records of {key}, {due} due: {seen:?}", records.len()));
            }
            if records.iter().any(|record| Some(text(record, "thread")) != seen.thread.as_deref()) {
                defects.push(format!("{key} is not in the thread that was said: {seen:?}"));
            }
            let refusals = self.refused.iter().filter(|head| head.contains(&format!(">{key}<")));
            if seen.refused && refusals.count() == 0 {
                defects.push(format!("the refusal of {key} is not on record"));
            }
            if seen.result.as_deref() != results.get(key.as_str()).copied() {
                defects.push(format!("{key} was told another result than is recorded: {seen:?}"));
            }
        }
        defects.extend(recorded.keys().map(|key| format!("nobody sent {key}")));
        for [key, thread] in &self.noted {
            let seen = self.ledger.get(key).and_then(|seen| seen.thread.as_ref());
            if seen != Some(thread) {
                defects.push(format!("{key} was noted as accepted in {thread}, known in {seen:?}"));
            }
        }
    }

    fn dispositions(&self, defects: &mut Vec<String>) {
        let open = self.messages.iter().filter(|message| message["disposition"].is_null());
        defects.extend(open.map(|message| format!("no disposition: {message}")));
    }

    /// Checks that every call has one result, that each call to `front` has opened one call, and
    /// that no other call has opened one.
    fn results(&self, defects: &mut Vec<String>) {
        // By call and recipient, because a failed call also owes its caller a payload.
        let mut answers: HashMap<[&str; 2], usize> = HashMap::new();
        let mut beneath: HashMap<&str, usize> = HashMap::new();
        for message in &self.messages {
            match text(message, "kind") {
                "reply" | "system" => {
                    let told = [text(message, "cause"), text(message, "to")];
                    *answers.entry(told).or_default() += 1;
                }
                "call" => *beneath.entry(text(message, "cause")).or_default() += 1,
                _ => {}
            }
        }
        for call in self.messages.iter().filter(|message| message["kind"] == "call") {
            let id = text(call, "id");
            let answered = answers.get(&[id, text(call, "from")]).copied().unwrap_or_default();
            if answered != 1 {
                defects.push(format!("{answered} results of {call}"));
            }
            let opened = beneath.get(id).copied().unwrap_or_default();
            let due = usize::from(call["to"] == "front");
            if opened != due {
                defects.push(format!("{opened} calls beneath {call}, {due} due"));
            }
        }
    }

    fn sequences(&self, defects: &mut Vec<String>) {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        let mut ids: HashSet<&str> = HashSet::new();
        for message in &self.messages {
            if !ids.insert(text(message, "id")) {
                defects.push(format!("a second record of one id: {message}"));
            }
            let last = last.entry(text(message, "thread")).or_default();
            *last += 1;
            if message["seq"].as_u64() != Some(*last) {
                defects.push(format!("seq {last} was due: {message}"));
            }
        }
    }

    /// Checks for each thread that a client opened the thread or one of its ancestors.
    fn threads(&self, defects: &mut Vec<String>) {
        let sent = self.messages.iter().filter(|message| message["from"] == "desk");
        let opened: HashSet<&str> = sent.map(|message| text(message, "thread")).collect();
        let threads: HashSet<&str> = self.messages.iter().map(|m| text(m, "thread")).collect();
        for thread in &threads {
            let is_known = match thread.rsplit_once('.') {
                Some((parent, _)) => threads.contains(parent),
                None => *thread == "sess-organism" || opened.contains(thread),
            };
            if !is_known {
                defects.push(format!("nobody opened {thread}"));
            }
        }
    }

    /// Checks that the messages of one sender to a thread have the order in which they were sent,
    /// and that their times never decrease.
    fn orders(&self, defects: &mut Vec<String>) {
        let mut last: HashMap<[&str; 2], (&str, u64)> = HashMap::new();
        for message in &self.messages {
            let sender = [text(message, "thread"), text(message, "from")];
            let count = number(message).split_once('-').map_or("", |(_, count)| count);
            let place = (text(message, "time"), count.parse().unwrap_or(0));
            let before = last.insert(sender, place).unwrap_or_default();
            if before.0 > place.0 || before.1 > place.1 {
                defects.push(format!("{before:?} stands before {place:?}: {message}"));
            }
        }
    }

    /// Checks that each effect belongs to a recorded message and that no attempt has two effects.
    /// If a message has several effects in one run of a pump, each further effect has a higher
    /// attempt. A listener on NATS is exempt from this. Effects of different runs may have any
    /// order, because a listener that outlives its pump may finish later than a listener of the
    /// next pump.
    fn effects(&self, defects: &mut Vec<String>) {
        let handled = ["call", "reply"];
        let due = self
            .messages
            .iter()
            .filter(|message| handled.contains(&text(message, "kind")) && message["to"] != "desk");
        let due: HashSet<&str> = due.map(|message| text(message, "id")).collect();
        let mut attempts: HashSet<(&str, &str)> = HashSet::new();
        let mut done: HashMap<(&str, &str), u32> = HashMap::new();
        for [listener, message, attempt] in &self.effects {
            if !due.contains(message.as_str()) {
                defects.push(format!("{listener} did what nobody recorded: {message}"));
            }
            let is_ordered = !(self.solo_is_remote && listener == "solo");
            let (epoch, n) = attempt.split_once('.').unwrap();
            let before = done.insert((message, epoch), n.parse().unwrap());
            if !attempts.insert((message, attempt))
                || is_ordered && before >= Some(n.parse().unwrap())
            {
                defects.push(format!("{listener} did {message} in {attempt} after {before:?}"));
            }
        }
        let touched: HashSet<&str> = done.keys().map(|(message, _)| *message).collect();
        defects.extend(due.difference(&touched).map(|id| format!("nobody ever did {id}")));
    }
}

/// One way to falsify the evidence.
type Break<'a> = (&'a str, &'a dyn Fn(&mut Evidence));

/// Tests the judge: falsifies the evidence in one way after another, and asserts that the judge
/// finds a defect each time.
pub fn assert_each_defect_would_show(evidence: &Evidence) {
    let first = |kind: &str, to: &str| {
        let found = |message: &Json| message["kind"] == kind && message["to"] == to;
        evidence.messages.iter().position(found).unwrap()
    };
    let (asked, replied) = (first("call", "front"), first("reply", "front"));
    let continued = |message: &&Json| message["from"] == "desk" && message["seq"] != 1;
    let continued = evidence.messages.iter().find(continued).unwrap();
    let thread = text(continued, "thread");
    let in_thread = |message: &Json| message["from"] == "desk" && text(message, "thread") == thread;
    let sent: Vec<usize> =
        (0..evidence.messages.len()).filter(|at| in_thread(&evidence.messages[*at])).collect();
    let breaks: [Break<'_>; 14] = [
        ("an inversion", &|e| {
            let [a, b] = [sent[0], sent[1]].map(|at| e.messages[at]["payload"].clone());
            (e.messages[sent[0]]["payload"], e.messages[sent[1]]["payload"]) = (b, a);
            // Only the order is wrong.
            let mut defects = Vec::new();
            e.submissions(&mut defects);
            assert!(defects.is_empty(), "{defects:?}");
        }),
        ("an orphan thread", &|e| {
            let mut orphan = e.messages[replied].clone();
            orphan["thread"] = "sess-orphan00.child".into();
            orphan["seq"] = 1.into();
            e.messages.push(orphan);
        }),
        ("a failure that somebody else is told", &|e| {
            e.messages[replied]["to"] = "back".into();
        }),
        ("a lost submission", &|e| drop(e.messages.remove(asked))),
        ("a lost reply", &|e| drop(e.messages.remove(replied))),
        ("a doubled submission", &|e| e.messages.push(e.messages[asked].clone())),
        ("a doubled reply", &|e| e.messages.push(e.messages[replied].clone())),
        ("a missing disposition", &|e| e.messages[replied]["disposition"] = Json::Null),
        ("another result", &|e| {
            let told = e.ledger.values_mut().find_map(|seen| seen.result.as_mut());
            told.unwrap().push('x');
        }),
        ("another thread than was noted", &|e| {
            e.noted[0][1].push('x');
        }),
        ("a lost refusal", &|e| e.refused.clear()),
        ("an effect of an attempt that is over", &|e| {
            let ordered = e.effects.iter().find(|[listener, ..]| listener != "solo");
            let mut again = ordered.unwrap().clone();
            let (epoch, _) = again[2].split_once('.').unwrap();
            again[2] = format!("{epoch}.0");
            e.effects.push(again);
        }),
        ("a doubled effect", &|e| e.effects.push(e.effects[0].clone())),
        ("a lost effect", &|e| {
            let [_, message, _] = e.effects[0].clone();
            e.effects.retain(|[_, other, _]| *other != message);
        }),
    ];
    for (what, break_it) in breaks {
        let mut broken = evidence.clone();
        break_it(&mut broken);
        assert!(!broken.defects().is_empty(), "{what} was not noticed");
    }
}

#[test]
fn a_line_that_a_killed_listener_began_is_no_effect() {
    let listeners = BTreeSet::from(["front", "solo"]);
    let whole = ["front", "01a2", "20.1"].map(str::to_owned);
    for line in ["front 01a2 20.1", "ffront 01a2 20.1", "solo fafront 01a2 20.1"] {
        assert_eq!(effect(line, &listeners), whole, "{line}");
    }
    assert_eq!(effect("front fa 2front 01a2 20.1", &listeners), whole);
}
