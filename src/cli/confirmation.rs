//! Questions that a person at the terminal answers with yes or no. Only the whole word `yes`
//! confirms, so that a key hit by accident confirms nothing.

use std::io::{self, IsTerminal as _, Write as _};

/// Whether a person can read a question on standard error, and type the answer.
pub fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question until the person answers `yes` or `no`. Returns true for `yes`. The end of the
/// input counts as `no`.
pub fn ask(question: &str) -> io::Result<bool> {
    note_part!("{question} yes or no: ");
    loop {
        io::stderr().flush()?;
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line)?;
        match line.trim() {
            "yes" => return Ok(true),
            answer if answer == "no" || read == 0 => return Ok(false),
            _ => note_part!("say yes or no: "),
        }
    }
}
