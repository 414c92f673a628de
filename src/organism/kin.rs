//! Who asks: a listener, or anything a listener started, must not decide in an operator's place.
//!
//! Found by following parents, and by the variable that every hosted process is given. A program
//! that detaches itself and clears its environment is not found: whoever lets a listener run
//! commands asks for an approval of them, or gives it another user.

use std::path::PathBuf;

/// Parents followed before giving up.
const GENERATIONS_MAX: usize = 64;

/// Whether the process `pid` was started by this one, however indirectly. A process that is gone
/// by now may have been.
pub fn is_hosted(pid: i32) -> bool {
    // Where processes cannot be looked at nothing is known; 0 is beyond our own namespace.
    if pid == 0 || !PathBuf::from("/proc/self/stat").exists() {
        return false;
    }
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    if environment.split(|b| *b == 0).any(|entry| entry.starts_with(b"ORGANISM_LISTENER=")) {
        return true;
    }
    let own = i64::from(std::process::id());
    let mut next = i64::from(pid);
    for _ in 0..GENERATIONS_MAX {
        match parent(next) {
            None => return true,
            Some(parent) if parent == own => return true,
            Some(0 | 1) => return false,
            Some(parent) => next = parent,
        }
    }
    true
}

/// The fourth field; the second, a name in parentheses, may hold anything.
fn parent(pid: i64) -> Option<i64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_and_their_children_are_kin_and_strangers_are_not() {
        let shell = "sleep 60 & echo $!; wait";
        let mut child = Command::new("sh")
            .args(["-c", shell])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let grandchild: i32 = line.trim().parse().unwrap();
        let kin = [i32::try_from(child.id()).unwrap(), grandchild].map(is_hosted);
        Command::new("kill").arg(grandchild.to_string()).status().unwrap();
        child.wait().unwrap();
        assert_eq!(kin, [true, true]);
        let own_parent = parent(i64::from(std::process::id())).unwrap();
        assert!(!is_hosted(i32::try_from(own_parent).unwrap()), "who started us");
        assert!(is_hosted(grandchild), "gone, and nobody can tell any more");
        assert!(!is_hosted(0));
    }
}
