//! Reasons of failed input and output, in texts for people.

use std::io::{Error, ErrorKind};

/// Describes why an operation on a file or a connection failed, without the number of the system's
/// error.
pub fn io_reason(error: &Error) -> String {
    if error.raw_os_error().is_none() {
        return error.to_string();
    }
    match error.kind() {
        ErrorKind::NotFound => "there is no such file or directory".to_owned(),
        ErrorKind::IsADirectory => "it is a directory".to_owned(),
        ErrorKind::NotADirectory => "it, or a part of its path, is not a directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::StorageFull => "the file system is full".to_owned(),
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only".to_owned(),
        _ => {
            let text = error.to_string();
            let (reason, _) = text.rsplit_once(" (os error ").unwrap_or((&text, ""));
            reason.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_sentence_without_the_number_of_the_error() {
        for (number, expected) in [
            (2, "there is no such file or directory"),
            (20, "it, or a part of its path, is not a directory"),
            (21, "it is a directory"),
            (28, "the file system is full"),
            (24, "Too many open files"),
        ] {
            assert_eq!(io_reason(&Error::from_raw_os_error(number)), expected);
        }
        let own = Error::new(ErrorKind::NotFound, "its directory is gone");
        assert_eq!(io_reason(&own), "its directory is gone");
    }
}
