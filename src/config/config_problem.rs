//! Problems of a config. Each problem has its location in the file. All problems of a config are
//! reported together.

use std::fmt;

use serde::Serialize;

use crate::word_enum::word_enum;

use super::source_text::SourceRange;

word_enum! {
    /// Kind of a problem, from a closed list. Each kind has a line in `docs/CONFIG.md`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ProblemCode {
        // Codes about the file.
        FileMissing = "file-missing",
        FileIsDirectory = "file-is-directory",
        FileUnreadable = "file-unreadable",
        FileNotUtf8 = "file-not-utf8",
        FileEmpty = "file-empty",
        Syntax = "syntax",
        // Codes about keys and values.
        DuplicateKey = "duplicate-key",
        UnknownSection = "unknown-section",
        UnknownKey = "unknown-key",
        MissingKey = "missing-key",
        WrongType = "wrong-type",
        EmptyValue = "empty-value",
        BadType = "bad-type",
        BadDuration = "bad-duration",
        OutOfRange = "out-of-range",
        UnknownChoice = "unknown-choice",
        UnsetVariable = "unset-variable",
        BadVariable = "bad-variable",
        UnknownOverride = "unknown-override",
        // Codes about names.
        BadName = "bad-name",
        ReservedName = "reserved-name",
        DuplicateName = "duplicate-name",
        DuplicateEntry = "duplicate-entry",
        UnknownPeer = "unknown-peer",
        ClientAsPeer = "client-as-peer",
        UnknownClient = "unknown-client",
        SelfAsPeer = "self-as-peer",
        UnknownModel = "unknown-model",
        NoClient = "no-client",
        NoListener = "no-listener",
        // Codes about payloads.
        SchemaMissing = "schema-missing",
        SchemaBroken = "schema-broken",
        BadPayloadName = "bad-payload-name",
        ReservedPayload = "reserved-payload",
        UndeclaredPayload = "undeclared-payload",
        AmbiguousPayload = "ambiguous-payload",
        DuplicatePayload = "duplicate-payload",
        CallOrReply = "call-or-reply",
        ForwardCycle = "forward-cycle",
        // Workflows.
        GoalCycle = "goal-cycle",
        GoalUnreachable = "goal-unreachable",
        UnknownGoal = "unknown-goal",
        GoalInTwoLists = "goal-in-two-lists",
        GoalSetting = "goal-setting",
        InputUnused = "input-unused",
        BadExpression = "bad-expression",
        ExpressionNeverMatches = "expression-never-matches",
        LabelTooLong = "label-too-long",
        BudgetTooLarge = "budget-too-large",
        // Cases.
        CaseFailed = "case-failed",
        AnswerMissing = "answer-missing",
        AnswerUnused = "answer-unused",
        AnswerRefused = "answer-refused",
        // Schedules.
        BadTime = "bad-time",
        UnknownZone = "unknown-zone",
        SendMissing = "send-missing",
        SendRefused = "send-refused",
        // Codes about directories and files that a config names.
        HomeMissing = "home-missing",
        DirectoryShared = "directory-shared",
        DirectoryIsFile = "directory-is-file",
        CommandMissing = "command-missing",
        CommandNotExecutable = "command-not-executable",
        PromptMissing = "prompt-missing",
        WrittenTwice = "written-twice",
        SecretMissing = "secret-missing",
        SecretWeak = "secret-weak",
        SecretReadable = "secret-readable",
        CertificateMissing = "certificate-missing",
        OperatorKey = "operator-key",
        CheckpointsInside = "checkpoints-inside",
        RecordingMissing = "recording-missing",
        RecordingUnreadable = "recording-unreadable",
        // Codes about transports.
        ToolChoice = "tool-choice",
        ReportSchema = "report-schema",
        FinalByText = "final-by-text",
        NotNative = "not-native",
        // Codes about models.
        UnknownRoute = "unknown-route",
        BadAddress = "bad-address",
        KeyMissing = "key-missing",
        BadKey = "bad-key",
        PriceMissing = "price-missing",
        TwoCurrencies = "two-currencies",
        PromptTooLarge = "prompt-too-large",
    }
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One problem of a config, with advice on how to correct it. Neither the message nor the advice
/// quotes a private value of the config.
#[derive(Debug, Clone)]
pub struct ConfigProblem {
    pub code: ProblemCode,
    pub place: SourceRange,
    pub message: String,
    /// Suggested correction; `None` if there is no suggestion.
    pub help: Option<String>,
}

impl ConfigProblem {
    pub fn new(code: ProblemCode, place: &SourceRange, message: impl Into<String>) -> Self {
        Self { code, place: place.clone(), message: message.into(), help: None }
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the suggested correction to `help`. If `help` is `None`, keeps the earlier suggestion.
    pub fn maybe(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }
}

impl ConfigProblem {
    /// Returns the problem and its suggested correction on one line, for a note that does not show
    /// the source text.
    pub fn on_one_line(&self) -> String {
        match &self.help {
            Some(help) => format!("{self}; {help}"),
            None => self.to_string(),
        }
    }
}

/// Formats the problem as `file:line:column: code: message`.
impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.place.line_and_column();
        let name = self.place.source.name();
        write!(f, "{name}:{line}:{column}: {}: {}", self.code, self.message)
    }
}

impl std::error::Error for ConfigProblem {}

impl Serialize for ConfigProblem {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let (line, column) = self.place.line_and_column();
        let mut out = s.serialize_struct("Problem", 8)?;
        out.serialize_field("code", self.code.as_str())?;
        out.serialize_field("file", self.place.source.name())?;
        out.serialize_field("line", &line)?;
        out.serialize_field("column", &column)?;
        out.serialize_field("offset", &self.place.span.start)?;
        out.serialize_field("length", &self.place.span.len())?;
        out.serialize_field("message", &self.message)?;
        out.serialize_field("help", &self.help)?;
        out.end()
    }
}

/// All problems of a config.
#[derive(Debug, Clone, Default)]
pub struct ConfigProblems(Vec<ConfigProblem>);

impl ConfigProblems {
    pub fn push(&mut self, problem: ConfigProblem) {
        self.0.push(problem);
    }

    pub fn also(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfigProblem> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes and returns the problems with this code.
    pub(super) fn take_code(&mut self, code: ProblemCode) -> Self {
        Self(self.0.extract_if(.., |problem| problem.code == code).collect())
    }

    /// Sorts the problems by their locations in the file.
    pub fn sort(&mut self) {
        self.0.sort_by(|a, b| {
            let key =
                |p: &ConfigProblem| (p.place.source.name().to_owned(), p.place.span.start, p.code);
            key(a).cmp(&key(b))
        });
    }
}

impl IntoIterator for ConfigProblems {
    type Item = ConfigProblem;
    type IntoIter = std::vec::IntoIter<ConfigProblem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<ConfigProblem> for ConfigProblems {
    fn from_iter<I: IntoIterator<Item = ConfigProblem>>(problems: I) -> Self {
        Self(problems.into_iter().collect())
    }
}

impl From<ConfigProblem> for ConfigProblems {
    fn from(problem: ConfigProblem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|problem| writeln!(f, "{problem}"))
    }
}

impl std::error::Error for ConfigProblems {}
