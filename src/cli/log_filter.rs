//! Log levels of a command, which the variable `ORGANISM_LOG` sets.

use std::ffi::OsStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

use crate::nats::CLIENT_LOG_LEVELS;

/// Log levels if `ORGANISM_LOG` is not set. They show warnings, the standard error of listeners,
/// and each config that a reload has put in force.
const DEFAULT_LEVELS: &str = "warn,listener=info,config=info";

/// Returns the filter that the value of `ORGANISM_LOG` describes. Returns `None` if the variable is
/// not set or empty. If the value is invalid, returns an error for people.
pub fn from_variable(value: Option<&OsStr>) -> Result<Option<EnvFilter>, String> {
    let text = value.map(OsStr::to_string_lossy).unwrap_or_default();
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.collect();
    if parts.is_empty() {
        return Ok(None);
    }

    // The library takes a word that is no level for a target, and then shows nothing else.
    let is_directive =
        |part: &str| part.contains(['=', '[']) || part.parse::<LevelFilter>().is_ok();
    let wrong = parts.iter().find(|part| !is_directive(part));
    let parsed = match wrong {
        Some(wrong) => Err(format!("`{wrong}` is no level")),
        None => EnvFilter::try_new(parts.join(",")).map_err(|error| format!("`{text}`: {error}")),
    };
    parsed.map(Some).map_err(|problem| {
        format!(
            "ORGANISM_LOG: {problem}; write error, warn, info, debug or trace, or a list of \
             TARGET=LEVEL. Warnings are shown, as without the variable"
        )
    })
}

/// Returns the filter for a command whose `ORGANISM_LOG` is not set.
pub fn by_default() -> EnvFilter {
    EnvFilter::new(format!("{DEFAULT_LEVELS},{CLIENT_LOG_LEVELS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(value: &str) -> Result<Option<String>, String> {
        let filter = from_variable(Some(OsStr::new(value)))?;
        Ok(filter.map(|filter| filter.to_string()))
    }

    #[test]
    fn messages_of_the_nats_client_are_hidden_by_default() {
        let filter = by_default().to_string();
        assert!(filter.contains("async_nats=off"), "{filter}");
        assert!(filter.contains("async_nats::connector=off"), "{filter}");
    }

    #[test]
    fn the_reason_for_which_the_nats_client_leaves_a_server_is_shown_by_default() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let file = log.reopen().unwrap();
        let logs = tracing_subscriber::fmt()
            .with_env_filter(by_default())
            .with_writer(std::sync::Mutex::new(file))
            .finish();
        tracing::subscriber::with_default(logs, || {
            let error = "no header version found";
            tracing::debug!(target: "async_nats", error, "disconnected");
            tracing::info!(target: "async_nats", "event: connected");
            tracing::error!(target: "async_nats::connector", error, "server error");
        });
        let text = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("no header version found"), "{text}");
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        assert!(from_variable(None).is_ok_and(|filter| filter.is_none()));
        assert_eq!(levels(""), Ok(None));
        assert_eq!(levels(" "), Ok(None));
    }

    #[test]
    fn a_word_that_is_no_level_is_named_and_a_level_or_a_target_with_its_level_is_not() {
        for (value, named) in [
            ("warm", "`warm` is no level"),
            ("warn,organism", "`organism` is no level"),
            ("a=b=c", "`a=b=c`"),
        ] {
            let problem = levels(value).unwrap_err();
            assert!(problem.contains(named), "{problem}");
        }

        for value in ["warn", "INFO", "off", "warn,organism::nats=debug", "warn, listener=info,"] {
            assert!(levels(value).is_ok_and(|levels| levels.is_some()), "{value}");
        }
    }
}
