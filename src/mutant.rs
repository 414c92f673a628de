//! Deliberate breaks, one for each safety rule, which prove that the rule's tests can fail.
//!
//! `ORGANISM_MUTANT=name` breaks the rule of that name in the whole process. Only debug builds have
//! the switch; in a release build, no mutant is ever active. Knows nothing of other modules.

/// All mutants, each with the rule it breaks.
pub const MUTANTS: &[(&str, &str)] = &[
    ("skip-the-fsync", "a record is on disk before anything follows from it"),
    ("no-lock", "one pump at a time writes a journal"),
    ("no-fence", "a pump that lost its journal to another appends nothing more"),
    ("trust-the-tail", "what was acknowledged and is gone is a broken journal"),
    ("trust-any-journal", "a journal in the place of an acknowledged one is refused"),
    ("trust-no-copy", "a start refuses a record that copies of checkpoints elsewhere contradict"),
    (
        "trust-the-state",
        "a holder of the key cannot have a rewritten record proved by its own copies",
    ),
    ("know-every-key", "a checkpoint of a key that this host does not know proves nothing to it"),
    ("trust-blank-payloads", "a start refuses a blanked payload that no operator recorded"),
    ("miss-no-checkpoint", "a start refuses a journal without its last checkpoint outside"),
    ("miss-no-blob", "a blob that a boot lists and the journal does not hold is found"),
    ("trust-the-hash", "a record that was changed is found"),
    ("trust-the-mac", "records that no MAC of a pump covers are found"),
    ("deliver-unverified", "a pump that was frozen and replaced delivers nothing"),
    ("deliver-before-durable", "record first, then deliver"),
    ("trust-from", "an answer counts only from the listener that was asked"),
    ("record-the-claimed-name", "an answer in another's name is on record under its true sender"),
    ("trust-any-attempt", "an answer to an outdated attempt is refused"),
    ("remember-for-another", "a process that does not remember a call gets all its messages"),
    ("publish-anywhere", "on NATS, a listener has deliveries published to no inbox but its own"),
    ("take-any-token", "on NATS, an answer counts only under the token of its own attempt"),
    ("grant-too-much", "on NATS, a listener's key opens what is its own and nothing else"),
    ("remember-for-strangers", "an agent's host reads the thread of a turn it has, and no other"),
    ("tell-the-whole-tree", "an agent's host is told of its thread, and nothing beside it"),
    ("tell-anybody", "what an agent's host asks is answered in the agent's inbox"),
    ("believe-the-note", "nobody notes a turn in another agent's name"),
    ("reuse-the-attempt", "no two attempts at a call have the same number"),
    ("take-while-full", "what is sent while the disk is full hears so at once"),
    ("turn-back-the-clock", "record time never runs backwards"),
    ("count-every-time", "time without a pump, or by which a clock was set, is of no time-out"),
    ("count-what-nobody-took", "a delivery that no listener took was no attempt"),
    ("probe-for-ever", "when a listener joins, its calls are handed over at once"),
    ("forget-a-probe", "calls behind a probe are handed over after a standstill, too"),
    ("forget-the-hand-over", "a call that was handed over when its pump died had its attempt"),
    ("deliver-what-was-lost", "a call is delivered no more often than it has attempts"),
    ("forget-a-disposition", "every message ends in one recorded disposition"),
    ("forget-the-key", "the same key again gets the recorded answer"),
    ("repeat-what-led-there", "a repeated key gets the result and nothing on the way to it"),
    ("forget-a-timer", "a timer survives a restart"),
    ("leave-calls-open", "a call that ends takes what is beneath it along"),
    ("record-every-busy", "refusals as `busy` are counted, and have no record each"),
    ("drop-a-refusal", "a refusal is recorded too"),
    ("answer-a-fault", "a fault never answers a fault"),
    ("skip-the-cycle-check", "an agent never waits for itself"),
    ("skip-the-reservation", "model calls made side by side cannot spend the same twice"),
    ("forget-a-reservation", "a model call whose pump died is charged its whole reservation"),
    ("forget-a-closed-stream", "what a closed stream took is charged, and not what it reserved"),
    ("charge-a-stream-twice", "what a model call took is charged once"),
    ("retry-in-every-layer", "a model call makes only so many requests on each route"),
    ("let-the-stream-run", "a model call whose caller is gone closes its stream at once"),
    ("forget-the-arrival", "an answer that came in time wins over its deadline"),
    ("cut-a-live-stream", "an agent's time-out is time without progress"),
    ("notify-the-thread-alone", "a waiting client is notified of every hold in its tree"),
    ("renew-for-anybody", "no listener renews the budgets that it spends"),
    ("renew-while-it-runs", "a request while an earlier one runs renews no budget"),
    ("skip-the-budget", "a tree spends what it was given and no more"),
    ("skip-the-vocabulary", "a sender writes its own vocabulary and nothing else"),
    ("skip-the-reserved-names", "only the core writes the core's words"),
    ("skip-the-xsd", "what is delivered is valid by its schema"),
    ("first-close-extraction", "a value may hold what looks like its own close tag"),
    ("accept-a-cut-answer", "an answer without its terminator is an error"),
    ("mix-two-answers", "what was heard of a broken answer is void before the next begins"),
    ("show-the-key", "a key is hidden wherever a server echoes it"),
    ("leave-memory-open", "no other process of the user looks into one that may hold keys"),
    ("trust-the-process", "a process that the organism hosts sends and decides nothing"),
    ("hide-the-caller", "a caller whose process is seen needs no secret"),
    ("take-any-secret", "a client proves itself with its own secret and no other"),
    ("take-any-sender-over-nats", "over NATS, a client that has a secret needs it"),
    ("trust-the-name", "who decided is on record as the system names them, not the request"),
    ("let-unknown-callers-decide", "a caller that nothing shows decides with a signature alone"),
    ("take-unsigned-decisions", "where there are operators, an unsigned decision changes nothing"),
    ("take-any-signature", "an operator's signature holds for what was signed"),
    ("take-signatures-of-other-threads", "a signature holds in one journal and one thread"),
    ("take-old-signatures", "an operator's signature holds for 5 minutes"),
    ("use-a-signature-twice", "an operator's signature is used once"),
    ("leave-orphans", "a process that detaches from its listener is hosted all the same"),
    ("keep-leftovers", "what a killed pump left running ends before the next pump delivers"),
    ("export-what-was-said", "a span has names, ids and numbers, and nothing that was said"),
    ("accept-a-wrong-hash", "an approval holds for the bytes that were looked at"),
    ("hand-over-the-held", "what has to be approved reaches nobody before"),
    ("approve-twice", "an approval is used once"),
    ("count-the-held", "calls that wait for people leave the others their room"),
    ("wave-old-calls-through", "what a config wants approved is not begun without, however old"),
    ("merge-two-elements", "a value takes in no close and new open tag of an element around it"),
    ("act-on-drafts", "what stands before the first close of reasoning is reasoning"),
    ("end-reasoning-in-code", "a close tag in inline code does not end reasoning"),
    ("act-on-quotations", "nothing in quotation marks or on quote lines is acted on"),
    ("act-inside-unknown-elements", "nothing inside an unknown element is acted on"),
    ("dispatch-the-incomplete", "nothing incomplete is acted on"),
    ("one-nonce-for-all", "a final report counts only in the slot of its own turn"),
    ("take-xml-beside-calls", "where tools are native calls, XML of a tool is no action"),
    ("forget-the-inputs", "what a turn was sent besides its thread is kept, and shown as sent"),
    ("let-a-result-close", "a result is one element, whatever it says"),
    (
        "answer-anywhere",
        "what is asked over NATS is answered in the asker's inbox and nowhere else",
    ),
    ("trust-the-config", "full durability is taken from what the servers say, not from a config"),
    ("drain-too-early", "a host is drained when its last answer is with the pump"),
    ("leave-what-is-out", "a partition is handed over when what is out has ended"),
    ("trust-any-project", "a journal answers the project that it belongs to and no other"),
    (
        "adopt-from-anybody",
        "a journal is taken from a project that is still there only by its name",
    ),
    ("cancel-what-ended", "a cancellation adds nothing to a thread in which nothing is open"),
    ("take-any-service-version", "a command or pump of another version is refused"),
    ("send-under-any-config", "new work is done under the config that its sender checked"),
    ("trust-the-socket", "a command talks to the holder of its journal and to no other process"),
    ("trust-any-stream", "on JetStream, a stream that another project began is refused"),
    ("ignore-the-announced", "no command starts a pump where an organism is about to"),
    ("end-with-the-reader", "a closed pipe ends the output of a command, never its work"),
    ("ignore-the-projection", "no pump leads a stream that is shorter than its own projection"),
    ("ignore-the-state", "no pump leads a stream that is shorter than its host's state shows"),
    ("ignore-the-lease", "no pump leads a stream that is shorter than its lease shows"),
    ("ignore-the-members", "no pump leads a stream that is shorter than another host's projection"),
    ("forget-the-repair", "a repair of a stream that was killed goes on, and is on record"),
    ("lead-a-fork", "no pump leads a stream that holds another record than was acknowledged"),
    ("trust-the-count", "a journal is never opened as one of another number of partitions"),
    ("watch-only-the-pipe", "the end of a listener's process is noticed at once"),
    ("free-the-thread-early", "a serial listener has one handler at work in a thread"),
    ("trust-the-order", "an answer that names its call answers no other"),
    ("forget-failed-rounds", "a listener that answers failures with other tries is stopped"),
    ("guess-the-format", "a final report is taken in its one format and in no other"),
];

/// The mutants of this process, separated by commas, if any.
#[cfg(debug_assertions)]
pub fn active() -> Option<&'static str> {
    static ACTIVE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("ORGANISM_MUTANT").ok()).as_deref()
}

/// Mutants of a release build: none.
#[cfg(not(debug_assertions))]
pub const fn active() -> Option<&'static str> {
    None
}

/// Whether this mutant is active, so that its rule must be broken.
pub fn mutant(name: &str) -> bool {
    debug_assert!(MUTANTS.iter().any(|(known, _)| *known == name), "{name} is not listed");
    active().is_some_and(|active| active.split(',').any(|active| active == name))
}
