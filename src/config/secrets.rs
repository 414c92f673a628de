//! Secrets of clients. They are read once, from a variable or a file, and never shown.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::ids::{Digest, ListenerName};
use crate::limits;

use super::config_problem::{ConfigProblem, ConfigProblems, ProblemCode};
use super::environment::ConfigEnvironment;
use super::load::KeyRequirement;
use super::mask::is_variable;
use super::members::{DeclaredMember, DeclaredSecret};
use super::tree::{ExpandedText, Located};
use super::{Config, SecretValue, file};

/// A client and the secret by which the client can prove its identity.
#[derive(Debug, Clone)]
pub struct ClientSecret {
    pub client: ListenerName,
    /// Name of the environment variable with the secret; `None` if the secret is in a file.
    pub variable: Option<String>,
    /// The secret. `None` if this process reads no secrets of clients, or if the secret could not
    /// be read and this process may run without it.
    secret: Option<SecretValue>,
}

impl ClientSecret {
    pub fn secret(&self) -> Option<&SecretValue> {
        self.secret.as_ref()
    }

    /// Returns the digest that a secret must have to prove the identity of this client. Returns
    /// `None` if this process did not read the secret.
    pub fn digest(&self) -> Option<Digest> {
        self.secret.as_ref().map(|secret| Digest::of(secret.expose().as_bytes()))
    }
}

impl Config {
    /// Returns the secret of this client; `None` if the client has no secret or this process could
    /// not read it.
    pub fn secret_of(&self, client: &ListenerName) -> Option<SecretValue> {
        let found = self.client_secrets.iter().find(|known| known.client == *client);
        found.and_then(ClientSecret::secret).cloned()
    }
}

/// Reads the secrets of all clients. `keys` selects whether the secrets are read at all, and
/// whether a missing secret is reported.
pub(super) fn read(
    members: &[DeclaredMember],
    directory: &Path,
    around: &ConfigEnvironment,
    keys: KeyRequirement,
    problems: &mut ConfigProblems,
) -> Vec<ClientSecret> {
    let mut secrets = Vec::new();
    for member in members {
        let Some(declared) = &member.secret else { continue };
        let secret = match keys {
            KeyRequirement::Needed | KeyRequirement::Noted | KeyRequirement::Optional => {
                read_secret(declared, directory, around, keys, problems)
            }
            KeyRequirement::Host
            | KeyRequirement::Own
            | KeyRequirement::Unwritten
            | KeyRequirement::Stored => None,
        };
        let variable = match declared {
            DeclaredSecret::Variable(name) => Some(name.value.value.clone()),
            DeclaredSecret::File(_) => None,
        };
        secrets.push(ClientSecret { client: member.name.value.clone(), variable, secret });
    }

    secrets
}

fn read_secret(
    declared: &DeclaredSecret,
    directory: &Path,
    around: &ConfigEnvironment,
    keys: KeyRequirement,
    problems: &mut ConfigProblems,
) -> Option<SecretValue> {
    let (named, text) = match declared {
        DeclaredSecret::Variable(named) => {
            let value = around.variable(&named.value.value).filter(|value| !value.is_empty());
            // What is not certainly a name may be the secret itself, written in the wrong place.
            let missing = || match named.value.written.as_str() {
                written if is_variable(written) => format!("the variable `{written}` is not set"),
                _ => "the variable of `secret_env` is not set".to_owned(),
            };
            (named, value.map(str::to_owned).ok_or_else(missing))
        }
        DeclaredSecret::File(named) => {
            let path = directory.join(&named.value.value);
            refuse_readable(named, &path, problems);
            let missing =
                |why| format!("the secret in `{}` cannot be read: {why}", named.value.written);
            (named, file::text(&path).map_err(missing))
        }
    };

    let text = match text {
        Ok(text) => text,
        Err(_) if keys == KeyRequirement::Optional => return None,
        Err(message) => {
            let help = "`organism secret new` makes one; give it to the organism and to the client";
            problems.push(
                ConfigProblem::new(ProblemCode::SecretMissing, &named.place, message).help(help),
            );
            return None;
        }
    };

    let text = text.trim_end_matches(['\r', '\n']);
    if bits(text) < limits::SECRET_BITS_MIN {
        let least = limits::SECRET_BITS_MIN;
        let message = format!("the secret in `{}` has less than {least} bits", named.value.written);
        let help = "take one that `organism secret new` makes";
        problems
            .push(ConfigProblem::new(ProblemCode::SecretWeak, &named.place, message).help(help));
        return None;
    }

    Some(SecretValue(text.to_owned()))
}

fn refuse_readable(named: &Located<ExpandedText>, path: &Path, problems: &mut ConfigProblems) {
    const OTHERS_READ: u32 = 0o044;
    let Ok(metadata) = std::fs::metadata(path) else { return };
    if metadata.permissions().mode() & OTHERS_READ == 0 {
        return;
    }

    let written = &named.value.written;
    let message = format!("other users can read the secret in `{written}`");
    let problem = ConfigProblem::new(ProblemCode::SecretReadable, &named.place, message);
    problems.push(problem.help(format!("run `chmod 600 {written}`")));
}

/// Estimates the entropy of a text in bits. Assumes random characters from the smallest usual
/// alphabet that contains all of them, such as the hexadecimal digits. Returns 0 for a text of few
/// distinct characters.
fn bits(text: &str) -> u32 {
    let distinct: std::collections::BTreeSet<_> = text.chars().collect();
    if distinct.len() < limits::SECRET_CHARS_MIN {
        return 0;
    }

    let all = |fits: fn(char) -> bool| text.chars().all(fits);
    let hundredths = match () {
        () if all(|c| c.is_ascii_digit()) => 332,
        () if all(|c| c.is_ascii_digit() || matches!(c, 'a'..='f')) => 400,
        () if all(|c| c.is_ascii_digit() || matches!(c, 'A'..='F')) => 400,
        () if all(|c| c.is_ascii_lowercase()) || all(|c| c.is_ascii_uppercase()) => 470,
        () if all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) => 500,
        () => 595,
    };

    let length = u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    length.saturating_mul(hundredths) / 100
}

#[cfg(test)]
mod tests {
    use super::bits;

    #[test]
    fn a_secret_of_128_bits_passes_in_every_usual_form_and_a_word_does_not() {
        let enough = [
            "0123456789abcdef0123456789abcdef",
            "AbCdEfGhIjKlMnOpQrStUv",
            "abcdefghijklmnopqrstuvwxyzab",
            "b2VyZ2Fuc2Vjcm-0X3Rlc3Qx",
        ];
        for secret in enough {
            assert!(bits(secret) >= 128, "{secret}: {}", bits(secret));
        }

        for secret in ["", "hunter2", "0123456789abcdef", &"ab".repeat(100), &"0".repeat(1000)] {
            assert!(bits(secret) < 128, "{secret}: {}", bits(secret));
        }
    }
}
