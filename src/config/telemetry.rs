//! The section `[telemetry]`: the collector of spans. If a setting is missing, its value is taken
//! from an environment variable of OpenTelemetry, such as `OTEL_SERVICE_NAME`. A mistake in such a
//! variable results in a note and not in a problem, because the variable may be meant for other
//! programs.

use std::path::Path;

use crate::model::http::{BadAddress, ProviderEndpoint};

use super::SecretValue;
use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::program::secret;
use super::read::TableReader;
use super::tree::{ExpandedText, Located};
use super::variables::named;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const SERVICE: &str = "OTEL_SERVICE_NAME";
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// Settings for exporting spans to a collector.
#[derive(Debug, Clone, PartialEq)]
pub struct TelemetryConfig {
    /// Base address of the collector, to which `/v1/traces` is appended.
    pub endpoint: ProviderEndpoint,
    /// Headers of every request to the collector.
    pub headers: Vec<(String, SecretValue)>,
    pub service: String,
    /// Share of the traces to export, from 0 to 1. The share applies to traces that begin in this
    /// process.
    pub sample: f64,
}

/// Prefix of variables that override the headers in the config.
const HEADER_OVERRIDES: &str = "ORGANISM_TELEMETRY__HEADERS__";

/// Settings of `[telemetry]` as the config declares them, before environment variables are applied.
pub(super) struct DeclaredTelemetry {
    endpoint: Option<Located<ExpandedText>>,
    insecure: bool,
    headers: Vec<(Located<String>, Located<ExpandedText>)>,
    service: Option<String>,
    sample: f64,
    /// Whether `[telemetry]` has settings for the export, but names no endpoint.
    wants_endpoint: bool,
}

pub(super) fn read(read: &mut TableReader<'_>) -> DeclaredTelemetry {
    let endpoint = read.text("endpoint");
    let others = ["insecure", "headers", "service", "sample"];
    DeclaredTelemetry {
        wants_endpoint: !read.has("endpoint") && others.iter().any(|key| read.has(key)),
        endpoint,
        insecure: read.flag("insecure").unwrap_or(false),
        headers: read.free("headers"),
        service: read.text("service").map(|text| text.value.value),
        sample: read.number("sample", 0.0, 1.0).unwrap_or(1.0),
    }
}

type SecretHeaders = Vec<(String, SecretValue)>;

impl DeclaredTelemetry {
    /// Drops the headers, whose values are secret.
    pub fn forget_headers(&mut self) {
        self.headers.clear();
    }

    /// Resolves the settings for the export of spans. Returns `None` if spans are not exported.
    pub fn telemetry(
        &self,
        directory: &Path,
        around: &ConfigEnvironment,
        notes: &mut Vec<String>,
        problems: &mut ConfigProblems,
    ) -> Option<TelemetryConfig> {
        let variable =
            |name| around.variable(name).map(str::trim).filter(|value| !value.is_empty());
        let mut headers = self.own_headers(directory, problems);
        if self.headers.is_empty()
            && let Some(text) = variable(HEADERS)
        {
            headers = listed(text).unwrap_or_else(|| {
                notes.push(format!("{HEADERS} is not name=value,name=value: it is ignored"));
                Vec::new()
            });
        }

        let endpoint = match (&self.endpoint, variable(ENDPOINT)) {
            (Some(text), _) => self.own_endpoint(text, problems),
            // A variable may name an insecure address on purpose; only keys must not be readable on
            // the way there.
            (None, Some(text)) => ProviderEndpoint::parse(text, headers.is_empty())
                .map_err(|bad| notes.push(format!("{ENDPOINT} {bad}: it is ignored")))
                .ok(),
            (None, None) => {
                if self.wants_endpoint {
                    notes.push(format!("[telemetry] has no `endpoint`, nor is {ENDPOINT} set"));
                }
                None
            }
        }?;
        if variable(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            notes.push(format!("{DISABLED} is true: nothing is exported"));
            return None;
        }

        let service =
            self.service.as_deref().or(variable(SERVICE)).unwrap_or("organism").to_owned();
        Some(TelemetryConfig { endpoint, headers, service, sample: self.sample })
    }

    /// Returns the names of environment variables that may contain keys for the collector. These
    /// variables are hidden from listeners, even if no spans are exported. A listener gets such a
    /// variable only if the config of the listener requests it.
    pub fn withheld(&self, around: &ConfigEnvironment) -> Vec<String> {
        let named = self.headers.iter().flat_map(|(_, value)| named(&value.value.written));
        let overrides = around.variables.keys().map(String::as_str);
        let overrides = overrides.filter(|name| name.starts_with(HEADER_OVERRIDES));
        named.chain([HEADERS]).chain(overrides).map(str::to_owned).collect()
    }

    fn own_endpoint(
        &self,
        text: &Located<ExpandedText>,
        problems: &mut ConfigProblems,
    ) -> Option<ProviderEndpoint> {
        let parsed = ProviderEndpoint::parse(&text.value.value, self.insecure).map_err(|bad| {
            let (message, help) = match bad {
                BadAddress::Form => (bad.to_string(), "write \"http://localhost:4318\""),
                BadAddress::Credentials => (bad.to_string(), "keys belong in `headers`"),
                BadAddress::Query => {
                    (bad.to_string(), "write the address without what follows `?` or `#`")
                }
                BadAddress::Plain => (
                    "is plain http to another machine, which every machine on the network path can read"
                        .to_owned(),
                    "write https, or insecure = true if the network is your own",
                ),
            };

            let problem = ConfigProblem::new(
                ProblemCode::BadAddress,
                &text.place,
                format!("`endpoint` {message}"),
            );
            problems.push(problem.help(help));
        });

        parsed.ok()
    }

    /// Reads the headers that the config sets: `NAME = "value"`, or `NAME_file = "path"` for the
    /// content of a file.
    fn own_headers(&self, directory: &Path, problems: &mut ConfigProblems) -> SecretHeaders {
        let mut headers = SecretHeaders::new();
        for (key, value) in &self.headers {
            let name = key.value.strip_suffix("_file").unwrap_or(&key.value).to_ascii_lowercase();
            let text = if key.value.ends_with("_file") {
                secret(value, directory, problems)
            } else {
                Some(value.value.value.clone())
            };
            let wrong = if !is_name(&name) {
                let help = "letters, digits and dashes; `host` and the like are written anyway";
                Some((ProblemCode::BadName, "cannot be a header", help))
            } else if headers.iter().any(|(known, _)| *known == name) {
                Some((ProblemCode::WrittenTwice, "is set twice", "keep one of the two"))
            } else if text.as_deref().is_some_and(|text| !is_value(text)) {
                let help = "a header holds visible ASCII and spaces, on one line";
                Some((ProblemCode::BadKey, "has a value that no header can hold", help))
            } else {
                None
            };
            if let Some((code, message, help)) = wrong {
                let message = format!("`{name}` of the section `telemetry` {message}");
                problems.push(ConfigProblem::new(code, &key.place, message).help(help));
            } else if let Some(text) = text {
                headers.push((name, SecretValue(text)));
            }
        }

        headers
    }
}

/// Whether a text is a valid header name (RFC 9110). Returns false for headers that the exporter
/// sets itself.
fn is_name(name: &str) -> bool {
    const OWN: [&str; 5] =
        ["host", "content-length", "content-type", "transfer-encoding", "connection"];
    let is_token_byte = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !name.is_empty() && name.bytes().all(is_token_byte) && !OWN.contains(&name)
}

fn is_value(text: &str) -> bool {
    text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

/// Parses headers in the form of OpenTelemetry's variable: `name=value,name=value`, with
/// percent-encoded values. Returns `None` if any part is invalid.
fn listed(text: &str) -> Option<SecretHeaders> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let headers = pairs.map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        let value = decoded(value.trim())?;
        (is_name(&name) && is_value(&value)).then_some((name, SecretValue(value)))
    });
    headers.collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? << 4 | digit()?).ok()?
            }
            byte => byte,
        };
        out.push(byte);
    }

    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_variable_are_taken_whole_or_not_at_all() {
        let read = |text| {
            let all = listed(text)?.into_iter();
            Some(all.map(|(name, value)| format!("{name}:{}", value.expose())).collect::<Vec<_>>())
        };

        let two = vec!["authorization:Basic a=b".to_owned(), "x:1".to_owned()];
        assert_eq!(read("Authorization=Basic%20a=b, x = 1,"), Some(two));
        for wrong in ["x", "=1", "x=%zz", "x=%0d%0a", "x=%", "a b=1", "host=elsewhere"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
