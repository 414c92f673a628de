//! Writes a long journal with plausible contents through the journal's own writer. The journal
//! contains threads of an agent that searches, with turns, refusals, subthreads and open approvals.
//! Some of the threads are very long.

use std::path::PathBuf;
use std::sync::Arc;

use organism::clock::Time;
use organism::envelope::{Disposition, MessageKind, Money, RefusalRule, Turn};
use organism::ids::{Attempt, CallId, MessageId, ThreadId};
use organism::journal::Journal as _;
use organism::journal::sqlite::SqliteJournal;
use organism::thread::{Closing, Fact, Hold, Input, Opener, Record, Verdict};

use super::script::{CORE, NAMESPACE, Script, name, thread};
use crate::floor::directory;

/// Records in each commit.
const COMMIT: usize = 1_024;
/// Number of trees that are written at the same time. Their records alternate in the journal.
const ACTIVE: usize = 64;
/// Number of different words.
const WORDS: usize = 100_000;
/// Number of messages of the longest thread, if the journal is large enough for it.
pub const LONG: usize = 50_000;
/// Time between two records, in microseconds.
const MICROS: i64 = 1_000_000;
const LISTENERS: [&str; 5] = ["code-search", "web-search", "calculator", "mailer", "archive"];
const AGENTS: [&str; 4] = ["researcher", "reviewer", "planner", "writer"];

/// A long journal for benches: its directory, its size, the words of its messages, and two sample
/// trees.
pub struct LargeJournal {
    pub place: PathBuf,
    pub messages: usize,
    pub records: usize,
    pub trees: usize,
    /// Words that occur in the messages, most frequent first.
    pub words: Vec<String>,
    /// Root ids of a tree of common size and of the longest tree.
    pub samples: [ThreadId; 2],
}

impl LargeJournal {
    pub fn data(&self) -> PathBuf {
        self.place.join("data")
    }

    pub fn state(&self) -> PathBuf {
        self.place.join("state")
    }

    /// Writes a journal of about this number of messages.
    pub fn write(messages: usize) -> Self {
        let place = directory("large");
        let (data, state) = (place.join("data"), place.join("state"));
        let mut journal = SqliteJournal::open(&data, &state, &mut |_| Ok(())).unwrap();
        let mut trees = Trees::new(messages);
        let mut active = Vec::new();
        let mut batch = vec![trees.script.boot(1)];
        let mut now = batch[0].time;
        let mut records = 0;

        loop {
            while active.len() < ACTIVE && trees.messages < messages {
                active.push(trees.tree().into_iter());
            }
            if active.is_empty() {
                break;
            }
            active.retain_mut(|tree| {
                batch.extend(tree.next());
                tree.len() > 0
            });
            if batch.len() >= COMMIT || active.is_empty() {
                for record in &mut batch {
                    now = Time(now.0 + MICROS);
                    set_time(record, now);
                }
                records += batch.len();
                journal.append(&mut batch).unwrap();
                batch.clear();
            }
        }
        if !batch.is_empty() {
            journal.append(&mut batch).unwrap();
        }
        Box::new(journal).close(now).unwrap();

        let words = trees.frequent_words();
        let samples = [trees.id(trees.trees / 2), trees.id(1)];
        let Trees { messages, trees, .. } = trees;
        Self { place, messages, records, trees, words, samples }
    }
}

struct Trees {
    script: Script,
    random: Random,
    wanted: usize,
    messages: usize,
    trees: usize,
    vocabulary: Vec<String>,
    counts: Vec<u32>,
}

impl Trees {
    fn new(wanted: usize) -> Self {
        Self {
            script: Script::default(),
            random: Random(7),
            wanted,
            messages: 0,
            trees: 0,
            vocabulary: (0..WORDS).map(word).collect(),
            counts: vec![0; WORDS],
        }
    }

    fn id(&self, number: usize) -> ThreadId {
        thread(&format!("sess-large{number:07}"))
    }

    fn frequent_words(&self) -> Vec<String> {
        let mut words: Vec<usize> = (0..WORDS).filter(|word| self.counts[*word] > 0).collect();
        words.sort_by_key(|word| std::cmp::Reverse(self.counts[*word]));
        words.into_iter().map(|word| self.vocabulary[word].clone()).collect()
    }

    /// Returns about 250 bytes of words. Few words are frequent, as in a language.
    fn text(&mut self) -> String {
        let length = 10 + self.random.below(60);
        let mut text = String::new();
        for _ in 0..length {
            let word = self.random.rank(WORDS);
            self.counts[word] += 1;
            text.push_str(&self.vocabulary[word]);
            text.push(' ');
        }
        text
    }

    /// Returns the records of the next tree.
    fn tree(&mut self) -> Vec<Record> {
        self.trees += 1;
        let number = self.trees;
        let tree = self.id(number);
        let turns = match number {
            1 => LONG.min(self.wanted / 20) / 3,
            _ if number.is_multiple_of(10_000) => 300,
            _ => 1 + self.random.below(4),
        };

        let text = self.text();
        let (asked, mut first) = self.script.question(&tree, &text);
        self.messages += 1;
        let call = CallId(asked);
        if number.is_multiple_of(997) {
            let until = Some(Time(first.time.0 + 3_600_000_000));
            first.facts.push(Fact::Held { call, hold: Hold::Approval, until });
            return vec![first];
        }

        first.facts.push(handed_over(asked, 1));
        let mut records = vec![first];
        let agent = AGENTS[number % AGENTS.len()];
        let mut unread = asked;
        for turn in 1..=turns {
            unread = self.turn(&mut records, &tree, agent, [asked, unread], turn);
        }
        // Some never end.
        if !number.is_multiple_of(50) {
            self.answer(&mut records, &tree, agent, [asked, unread], turns + 1);
        }
        records
    }

    /// Adds the record of a turn that calls a listener, and the record of the listener's reply. The
    /// turn handles the message `unread` of the call `asked`. Some turns also contain a refusal.
    /// Returns the id of the reply.
    fn turn(
        &mut self,
        records: &mut Vec<Record>,
        tree: &ThreadId,
        agent: &str,
        [asked, unread]: [MessageId; 2],
        turn: usize,
    ) -> MessageId {
        let listener = LISTENERS[self.random.below(LISTENERS.len())];
        let text = self.text();
        let mut step = self.script.outcome(tree, agent, asked);
        step.dispose(unread, Disposition::Handled);
        let note = note(agent, asked, turn);
        let note = step.say(MessageKind::Note, "core", agent, "model-turn", &note, Some(asked));
        step.dispose(note, Disposition::Recorded);
        let is_refused = self.random.below(10) == 0;
        if is_refused {
            step.refuse(agent, RefusalRule::SchemaInvalid, "`sum` is not an expression", &text);
            let huh = format!("<huh xmlns=\"{CORE}\" code=\"schema-invalid\">not this</huh>");
            let huh = step.say(MessageKind::System, "core", agent, "huh", &huh, Some(asked));
            step.dispose(huh, Disposition::Handled);
            self.messages += 1;
        }
        let query = format!("<search xmlns=\"{NAMESPACE}\"><query>{text}</query></search>");
        let search = step.say(MessageKind::Call, agent, listener, "search", &query, None);
        let mut record = as_of_pump(step.end(), agent);
        record.facts.push(handed_over(search, 1));
        records.push(with_attempt(record, turn));

        let found = self.text();
        let mut step = self.script.outcome(tree, listener, search);
        step.dispose(search, Disposition::Handled);
        let found = format!(
            "<results xmlns=\"{NAMESPACE}\"><hit file=\"src/auth.rs\" line=\"42\">{found}</hit></results>"
        );
        let found = step.say(MessageKind::Reply, listener, agent, "results", &found, Some(asked));
        step.close(search, Closing::Completed);
        let mut record = as_of_pump(step.end(), listener);
        record.facts.push(handed_over(asked, turn + 1));
        records.push(record);
        self.messages += 3;
        found
    }

    fn answer(
        &mut self,
        records: &mut Vec<Record>,
        tree: &ThreadId,
        agent: &str,
        [asked, unread]: [MessageId; 2],
        turn: usize,
    ) {
        let text = self.text();
        let mut step = self.script.outcome(tree, agent, asked);
        step.dispose(unread, Disposition::Handled);
        let answer = format!("<answer xmlns=\"{NAMESPACE}\">{text}</answer>");
        let answer =
            step.say(MessageKind::Reply, agent, "operator", "answer", &answer, Some(asked));
        step.dispose(answer, Disposition::Recorded);
        step.close(asked, Closing::Completed);
        self.messages += 1;
        let record = as_of_pump(step.end(), agent);
        records.push(with_attempt(record, turn));
    }
}

fn attempt(n: usize) -> Attempt {
    Attempt { epoch: 1, n: n as u32 }
}

fn handed_over(call: MessageId, n: usize) -> Fact {
    Fact::HandedOver { call: CallId(call), attempt: attempt(n) }
}

/// Sets the time of a record and of its messages. A pump accepts messages at the time of their
/// record.
fn set_time(record: &mut Record, time: Time) {
    record.time = time;
    for fact in &mut record.facts {
        if let Fact::Accepted { message, .. } = fact {
            Arc::make_mut(message).time = time;
        }
    }
}

/// Adds to the record of an outcome of `listener` everything that a pump adds: verdicts, causes,
/// openers, and the use of a model turn.
fn as_of_pump(mut record: Record, listener: &str) -> Record {
    let Input::Outcome { call, verdicts, turn, .. } = &mut record.input else {
        panic!("a record of an outcome");
    };

    let call = *call;
    let mut used = None;
    for fact in &mut record.facts {
        match fact {
            Fact::Refused { refusal, .. } => verdicts.push(Verdict::Refused(refusal.digest)),
            Fact::Accepted { message, opening, .. } => {
                let message = Arc::make_mut(message);
                if message.name.local.as_ref() == "model-turn" {
                    used = Some(model_use(call, listener));
                } else if message.from.as_str() == listener {
                    verdicts.push(Verdict::Passed(message.payload.digest));
                }
                if message.kind == MessageKind::Reply && message.call == Some(call) {
                    message.call = None;
                }
                if message.kind != MessageKind::System {
                    message.cause = Some(call.0);
                }
                if let Some(opening) = opening {
                    let (name, thread) = (message.from.clone(), message.thread.clone());
                    opening.opener = Opener::Call { name, call, thread };
                }
            }
            _ => {}
        }
    }

    if let Some((spent, used)) = used {
        *turn = Some(spent);
        record.facts.push(used);
    }
    record
}

/// Returns a turn of a model, and the fact that records its use.
fn model_use(call: CallId, agent: &str) -> (Turn, Fact) {
    let (tokens_in, tokens_out, money) = (1_200, 70, Money(4_200_000));
    let agent = Some(name(agent));
    let used = Fact::Used { call, agent, tokens_in, tokens_out, money, attempt: None };
    (Turn { tokens_in, tokens_out, money, ..Turn::default() }, used)
}

/// Sets the attempt number of an outcome in a record to `n`, and returns the record.
fn with_attempt(mut record: Record, n: usize) -> Record {
    if let Input::Outcome { attempt: own, .. } = &mut record.input {
        *own = attempt(n);
    }
    for fact in &mut record.facts {
        if let Fact::OutcomeReceived { attempt: own, .. } = fact {
            *own = attempt(n);
        }
    }
    record
}

fn note(agent: &str, call: MessageId, turn: usize) -> String {
    format!(
        "<model-turn xmlns=\"{CORE}\" agent=\"{agent}\" call=\"{call}\" turn=\"{turn}\" \
         iteration=\"{turn}\" position=\"1\" transport=\"xml\" provider=\"anthropic\" \
         model=\"haiku\" renderer=\"1\" stop=\"end\" tokens_in=\"1200\" tokens_out=\"70\" \
         latency_ms=\"1500\" prompt=\"{}\" cost=\"0.0042\" currency=\"EUR\" \
         answered_by=\"haiku-4\"><environment/></model-turn>",
        "ab".repeat(32)
    )
}

/// Returns a pronounceable word for this number. A higher number gives a longer word.
fn word(number: usize) -> String {
    const SYLLABLES: [&str; 16] = [
        "ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "wu",
        "za",
    ];
    let mut rest = number + 16;
    let mut word = String::new();
    while rest > 0 {
        word.push_str(SYLLABLES[rest % 16]);
        rest /= 16;
    }
    word
}

/// A generator of pseudo-random numbers, which are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Returns a random rank below `bound`. The frequency of a rank is about the reciprocal of the
    /// rank.
    fn rank(&mut self, bound: usize) -> usize {
        let share = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((bound as f64).powf(share) as usize - 1).min(bound - 1)
    }
}
