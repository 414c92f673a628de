//! Judges the results of the attacks by the journal records and by the requests on the wire.

use std::collections::{BTreeMap, HashMap, HashSet};

use organism::agent::history::{self, Viewpoint};
use organism::agent::protocol::render;
use organism::agent::{MemoryScope, PastTurn, RendererVersion};
use organism::envelope::{AttemptFailure, Message, MessageKind, Refusal, RefusalRule};
use organism::ids::{ListenerName, MessageId, Position, ThreadId};
use organism::system::{self, Primitive};
use organism::thread::{Fact, Hold, Input, Opener, Record};
use organism::xml::element::Element;
use organism::xml::scan::attributes;

use super::super::judge;
use super::super::stage::name;
use super::script::{ERROR, VICTIM, WORDS};
use super::wire::{Played, PromptMessage};

/// Maximum number of model calls of a tree, as the config states it.
const MODEL_CALLS: u64 = 24;
const THREADS: usize = 6;
const CHILDREN: usize = 3;
const DEPTH: usize = 2;
const MESSAGES: u64 = 90;
const TOKENS: u64 = 1_000_000_000;

pub struct Evidence {
    pub records: Vec<Record>,
    pub played: Vec<Played>,
    pub approved: HashSet<MessageId>,
    pub delivered: Vec<(ListenerName, MessageId, String)>,
}

#[derive(Default)]
pub struct Found {
    pub wrong: Vec<String>,
    pub transcript: String,
}

impl Found {
    pub fn shown(&self) -> String {
        let short = |line: &String| line.chars().take(1_500).collect::<String>();
        self.wrong.iter().take(12).map(short).collect::<Vec<_>>().join("\n")
    }
}

/// A recorded turn.
struct Turn<'a> {
    number: usize,
    record: &'a Record,
    past: PastTurn,
    thread: ThreadId,
}

impl Evidence {
    pub fn judge(&self) -> Found {
        let mut found = Found::default();
        let turns = self.turns();
        for record in &self.records {
            one_sender(record, &mut found.wrong);
        }
        let openers = openers(&self.records);
        for message in judge::messages(&self.records) {
            self.within_its_rights(message, &openers, &mut found.wrong);
        }
        self.approvals(&mut found.wrong);
        self.limits(&turns, &mut found.wrong);
        self.nobody_is_lost(&turns, &mut found.wrong);
        self.prompts(&mut found.wrong);
        let heard = self.hears(&turns, &mut found.wrong);
        let done = self.comes_of_it(&turns, &mut found.wrong);
        let refused = self.refusals().count();
        found.transcript = format!(
            "{} turns, {} on record, {refused} refusals, {heard} told over the wire, {done} good \
             deeds, {} approved",
            self.played.len(),
            turns.len(),
            self.approved.len()
        );
        let rules: HashSet<RefusalRule> = self.refusals().map(|refusal| refusal.rule).collect();
        let some =
            [RefusalRule::ReservedName, RefusalRule::NotInVocabulary, RefusalRule::ExcessAction];
        let others =
            [RefusalRule::BadLabel, RefusalRule::MalformedAction, RefusalRule::BudgetSpent];
        for rule in some.iter().chain(&others).filter(|rule| !rules.contains(rule)) {
            found.wrong.push(format!("nothing was refused as {rule}: the attack is too tame"));
        }
        if self.approved.is_empty() || done < self.played.len() / 10 {
            found.wrong.push(format!("too little was done at all: {}", found.transcript));
        }
        found
    }

    fn refusals(&self) -> impl Iterator<Item = &Refusal> {
        let facts = self.records.iter().flat_map(|record| &record.facts);
        facts.filter_map(|fact| match fact {
            Fact::Refused { sender, refusal, .. } if *sender == name("mind") => Some(refusal),
            _ => None,
        })
    }

    /// Returns the recorded turns in the order of the journal. The provider reports the number of a
    /// turn, counted from 1, as the input tokens of the turn. So the record of the turn contains
    /// this number.
    fn turns(&self) -> Vec<Turn<'_>> {
        let turn = |record: &'_ Record| {
            let number = record.facts.iter().find_map(|fact| match fact {
                Fact::Used { tokens_in, .. } => usize::try_from(*tokens_in).ok()?.checked_sub(1),
                _ => None,
            })?;
            let note = messages(record).find(|m| &*m.name.local == "model-turn")?;
            let past = PastTurn::read(note.payload.as_str())?;
            Some((number, past, note.thread.clone()))
        };
        let all = self.records.iter().filter_map(|record| {
            let (number, past, thread) = turn(record)?;
            Some(Turn { number, record, past, thread })
        });
        all.collect()
    }

    /// Checks that the attacker's payloads go only to its peers, to itself, to the core, or back to
    /// its caller.
    fn within_its_rights(
        &self,
        message: &Message,
        openers: &HashMap<MessageId, ListenerName>,
        wrong: &mut Vec<String>,
    ) {
        let (mind, local) = (name("mind"), &*message.name.local);
        let theirs = message.thread.root().as_str() == VICTIM;
        if theirs && !["other", "stranger", "core"].contains(&message.from.as_str()) {
            wrong.push(format!("in a thread of others: {}", message.payload.as_str()));
        }
        if message.from != mind {
            return;
        }
        let words = &*message.name.namespace == WORDS;
        let core = &*message.name.namespace == system::NAMESPACE;
        let right = match (message.kind, message.to.as_str()) {
            (MessageKind::Call, "tool") => words && local == "look",
            (MessageKind::Call, "vault") => words && local == "secret",
            (MessageKind::Call, "shell") => words && local == "run",
            (MessageKind::Call | MessageKind::Own, "mind") => words && local == "plan",
            (MessageKind::Call, "core") => core && Primitive::WORDS.contains(&local),
            (MessageKind::Note, "mind") => core && system::NOTES.contains(&local),
            (MessageKind::Reply, to) => {
                let asked = message.cause.and_then(|cause| openers.get(&cause));
                words && local == "answer" && asked.is_some_and(|opener| opener.as_str() == to)
            }
            _ => false,
        };
        if !right {
            let (kind, to) = (message.kind.as_str(), &message.to);
            wrong.push(format!("a {kind} to {to}: {}", message.payload.as_str()));
        }
    }

    /// Checks that every call that needs an approval was approved before it reached its listener.
    fn approvals(&self, wrong: &mut Vec<String>) {
        let mut held = HashSet::new();
        for fact in self.records.iter().flat_map(|record| &record.facts) {
            if let Fact::Held { call, hold: Hold::Approval, .. } = fact {
                held.insert(call.0);
            }
        }
        for (listener, message, text) in &self.delivered {
            let harmless = match listener.as_str() {
                "vault" => false,
                "shell" => attributes(text).iter().any(|(name, value)| {
                    *name == "is_dangerous" && matches!(value, std::borrow::Cow::Borrowed("false"))
                }),
                _ => true,
            };
            if (!harmless || held.contains(message)) && !self.approved.contains(message) {
                wrong.push(format!("{listener} got what nobody had approved: {text}"));
            }
            if listener.as_str() == "stranger" && !text.contains("mine") {
                wrong.push(format!("the stranger got {text}"));
            }
        }
        if held.len() <= self.approved.len() {
            wrong.push("nothing was held for good".to_owned());
        }
    }

    fn limits(&self, turns: &[Turn<'_>], wrong: &mut Vec<String>) {
        let mut trees: BTreeMap<ThreadId, Spent> = BTreeMap::new();
        for record in &self.records {
            let spent = trees.entry(record.tree.clone()).or_default();
            record.facts.iter().for_each(|fact| spent.take(fact, wrong));
            if spent.tokens >= TOKENS {
                spent.broke.get_or_insert(record.position);
            }
        }
        for turn in turns {
            // A turn that was in progress runs to its end.
            let broke = trees.get(&turn.record.tree).and_then(|spent| spent.broke);
            if broke.is_some_and(|broke| turn.past.position > broke) {
                wrong.push(format!("turn {} was begun without a token left", turn.number));
            }
        }
        for (tree, spent) in trees {
            let most = spent.children.values().max().copied().unwrap_or_default();
            if spent.threads > THREADS || most > CHILDREN || spent.depth > DEPTH {
                wrong.push(format!("{tree} has {} threads, {most} beneath one", spent.threads));
            }
            if spent.model_calls > MODEL_CALLS {
                wrong.push(format!("{tree} made {} model calls", spent.model_calls));
            }
        }
    }

    /// Checks that the journal contains a turn or a failed attempt for each request that the
    /// provider received.
    fn nobody_is_lost(&self, turns: &[Turn<'_>], wrong: &mut Vec<String>) {
        let numbers: HashSet<usize> = turns.iter().map(|turn| turn.number).collect();
        let facts = self.records.iter().flat_map(|record| &record.facts);
        // Without budget, the model gets no request.
        let failed = facts.filter(|fact| match fact {
            Fact::AttemptFailed { failure, .. } => !matches!(failure, AttemptFailure::Spent { .. }),
            _ => false,
        });
        let failed: Vec<&Fact> = failed.collect();
        let lost = self.played.len() - numbers.len();
        if numbers.len() != turns.len() || failed.len() != lost {
            wrong.push(format!("{lost} turns are not on record; these failed: {failed:#?}"));
        }
    }

    /// Checks that a strict provider would accept each prompt.
    fn prompts(&self, wrong: &mut Vec<String>) {
        for (number, played) in self.played.iter().enumerate() {
            let bad = played.bad.iter().map(|bad| format!("the prompt of turn {number}: {bad}"));
            wrong.extend(bad);
        }
    }

    /// Checks that the core answers each refusal, and that the next prompt contains the answer.
    /// Returns the number of texts that prompts had to contain.
    fn hears(&self, turns: &[Turn<'_>], wrong: &mut Vec<String>) -> usize {
        let mut heard = 0;
        for (at, turn) in turns.iter().enumerate() {
            let played = &self.played[turn.number];
            let mut told = self.answers(turn, wrong);
            // Without budget, the attacker receives the budget error instead.
            let spent = turn.record.facts.iter().any(is_about_a_budget);
            let expected = played.attack.prompt_texts.iter();
            told.extend(expected.map(|told| if spent { ERROR } else { told }.to_owned()));
            let same = |other: &&Turn<'_>| {
                other.thread == turn.thread && other.past.call == turn.past.call
            };
            let next = turns[at + 1..].iter().find(same);
            let prompt = match next {
                Some(next) => {
                    heard += told.len();
                    since(&self.played[next.number].prompt)
                }
                // The call has ended, or the next answer never was valid.
                None => self.would_hear(turn),
            };
            for told in told.iter().filter(|told| !says(&prompt, told)) {
                // A payload that ends the call needs no feedback in that call.
                let over = next.is_none()
                    && (told == ERROR || played.attack.prompt_texts.contains(&told.as_str()));
                if !over {
                    let (kind, number) = (played.attack.kind, turn.number);
                    wrong.push(format!("{kind} (turn {number}) was not told `{told}`: {prompt}"));
                }
            }
        }
        heard
    }

    /// Returns the core's answers to the refusals of a turn. Each refusal must have an answer.
    fn answers(&self, turn: &Turn<'_>, wrong: &mut Vec<String>) -> Vec<String> {
        let (mut told, mut open) = (Vec::new(), 0);
        let call = Some(turn.past.call);
        let is_its =
            |message: &Message| message.kind == MessageKind::System && message.call == call;
        for fact in &turn.record.facts {
            match fact {
                Fact::Refused { sender, .. } if *sender == name("mind") => open += 1,
                Fact::Accepted { message, .. } if is_its(message) => {
                    let text = Element::read(message.payload.as_str()).unwrap();
                    match &*message.name.local {
                        "huh" => {
                            let reasons =
                                text.children().filter(|child| child.local_name() == "reason");
                            told.extend(reasons.map(|reason| reason.text().trim().to_owned()));
                        }
                        "system-error" => told.push(text.text().trim().to_owned()),
                        "system-thread-error" => told.push("unknown_thread".to_owned()),
                        _ => continue,
                    }
                    open -= i32::from(open > 0);
                }
                _ => {}
            }
        }
        if open > 0 {
            let kind = self.played[turn.number].attack.kind;
            wrong.push(format!("{kind}: {open} refusals of turn {} have no answer", turn.number));
        }
        told
    }

    /// Returns the feedback that the attacker would get on a turn, if another prompt of the same
    /// call followed.
    fn would_hear(&self, turn: &Turn<'_>) -> String {
        let (agent, thread) = (name("mind"), &turn.thread);
        let tree = thread.root();
        let records: Vec<Record> =
            self.records.iter().filter(|record| record.tree == tree).cloned().collect();
        let position = records.last().unwrap().position;
        let (call, memory) = (turn.past.call, MemoryScope::Thread);
        let version = RendererVersion::CURRENT;
        let view = Viewpoint { agent: &agent, thread, call, position, memory, version };
        let items = history::of(&records, &view).items;
        let said = render::conversation(&items, &agent, Some("openai-compatible"), version);
        let user = said.iter().filter(|said| said.role == organism::model::ChatRole::User);
        user.flat_map(|said| said.texts()).collect::<Vec<_>>().join("\n\n")
    }

    /// Checks that no forbidden effect occurred, and that every permitted effect occurred. Returns
    /// the number of permitted effects.
    fn comes_of_it(&self, turns: &[Turn<'_>], wrong: &mut Vec<String>) -> usize {
        // A request to the core is done when the core's own message reports it.
        let deeds = judge::messages(&self.records).filter(|message| {
            message.from == name("mind")
                && message.kind != MessageKind::Note
                && !message.to.is_core()
        });
        let done = deeds.map(|deed| deed.payload.as_str());
        let done: String =
            done.chain(self.delivered.iter().map(|(.., text)| text.as_str())).collect();
        let done = marks(&done);
        let mut good = 0;
        for turn in turns {
            let attack = &self.played[turn.number].attack;
            let spent = turn.record.facts.iter().any(is_about_a_budget);
            for mark in &attack.good {
                match done.contains(mark.as_str()) {
                    true => good += 1,
                    false if spent || is_late(turn) => {}
                    false => wrong.push(format!(
                        "{} (turn {}): {mark} was not done: {:?}",
                        attack.kind, turn.number, attack.says
                    )),
                }
            }
        }
        for played in &self.played {
            for mark in played.attack.evil.iter().filter(|mark| done.contains(mark.as_str())) {
                wrong.push(format!("{}: {mark} was done", played.attack.kind));
            }
        }
        good
    }
}

fn is_about_a_budget(fact: &Fact) -> bool {
    match fact {
        Fact::Refused { refusal, .. } => refusal.rule == RefusalRule::BudgetSpent,
        Fact::Accepted { message, .. } if message.kind == MessageKind::System => {
            let text = message.payload.as_str();
            text.contains("code=\"budget-spent\"") || text.contains("code=\"limit-reached\"")
        }
        _ => false,
    }
}

/// Whether the answer with this turn arrived after the answered call had its result.
fn is_late(turn: &Turn<'_>) -> bool {
    turn.record.facts.iter().any(
        |fact| matches!(fact, Fact::Refused { refusal, .. } if refusal.rule == RefusalRule::CallClosed),
    )
}

/// Amounts that a tree has used of its budgets and limits.
#[derive(Default)]
struct Spent {
    threads: usize,
    depth: usize,
    children: HashMap<ThreadId, usize>,
    model_calls: u64,
    tokens: u64,
    /// Position of the record with which the tree ran out of tokens.
    broke: Option<Position>,
    messages: u64,
}

impl Spent {
    fn take(&mut self, fact: &Fact, wrong: &mut Vec<String>) {
        match fact {
            Fact::ThreadOpened { thread, .. } => {
                self.threads += 1;
                self.depth = self.depth.max(thread.depth());
                if let Some(parent) = thread.parent() {
                    *self.children.entry(parent).or_default() += 1;
                }
            }
            Fact::Used { tokens_in, tokens_out, .. } => {
                self.model_calls += 1;
                self.tokens = self.tokens.saturating_add(tokens_in + tokens_out);
            }
            Fact::Accepted { message, opening, .. } => {
                self.messages += 1;
                if opening.is_some() && message.from == name("mind") && self.messages > MESSAGES {
                    wrong.push(format!("call {} of its tree", self.messages));
                }
            }
            _ => {}
        }
    }
}

fn messages(record: &Record) -> impl Iterator<Item = &Message> {
    record.facts.iter().filter_map(|fact| match fact {
        Fact::Accepted { message, .. } => Some(&**message),
        _ => None,
    })
}

/// Checks that all messages of a step come from the sender of its input, or from the core.
fn one_sender(record: &Record, wrong: &mut Vec<String>) {
    let who = match &record.input {
        Input::Outcome { listener, .. } => Some(listener.clone()),
        Input::Submitted { client, .. } => Some(client.clone()),
        _ => None,
    };
    for message in messages(record) {
        if !message.from.is_core() && Some(&message.from) != who.as_ref() {
            wrong.push(format!("from {}, by {:?}: {:?}", message.from, record.input, message.name));
        }
    }
}

/// The listener that opened each call.
fn openers(records: &[Record]) -> HashMap<MessageId, ListenerName> {
    let facts = records.iter().flat_map(|record| &record.facts);
    let openings = facts.filter_map(|fact| match fact {
        Fact::Accepted { message, opening: Some(opening), .. } => {
            let (Opener::Client { name } | Opener::Call { name, .. }) = &opening.opener;
            Some((message.id, name.clone()))
        }
        _ => None,
    });
    openings.collect()
}

/// The part of a prompt after the model's own last turn.
fn since(heard: &[PromptMessage]) -> String {
    let last = heard.iter().rposition(|heard| heard.role == "assistant");
    let new = &heard[last.map_or(0, |at| at + 1)..];
    new.iter().map(|heard| heard.text.as_str()).collect::<Vec<_>>().join("\n\n")
}

/// Whether the prompt contains the text `what`, either as written or escaped for XML.
fn says(prompt: &str, what: &str) -> bool {
    let escaped = what.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    prompt.contains(what) || prompt.contains(&escaped)
}

/// All texts of the form `evil-…-` and `good-…-` with which the attacks mark their payloads.
fn marks(text: &str) -> HashSet<&str> {
    let mut found = HashSet::new();
    for kind in ["evil-", "good-"] {
        for (at, _) in text.match_indices(kind) {
            let rest = &text[at..];
            let end = rest.match_indices('-').nth(2).map(|(at, _)| at + 1);
            found.extend(end.map(|end| &rest[..end]));
        }
    }
    found
}
