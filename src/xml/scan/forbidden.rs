//! Refuses markup that no payload may contain: DOCTYPE, entity declarations and processing
//! instructions.
//!
//! Such markup begins with `<!` or `<?`. In a well-formed text, these characters are data only
//! inside comments and CDATA sections. So the check skips comments and CDATA sections, and need not
//! parse tags.

use memchr::memmem;

use super::markup::section;
use super::{BrokenRule, ScanViolation};

pub(super) fn check(text: &str, start: usize) -> Result<(), ScanViolation> {
    let bytes = text.as_bytes();
    let body = bytes.get(start..).unwrap_or_default();
    if memmem::find(body, b"<!").is_none() && memmem::find(body, b"<?").is_none() {
        return Ok(());
    }

    let mut at = start;
    while let Some(found) = memchr::memchr(b'<', bytes.get(at..).unwrap_or_default()) {
        let open = at + found;
        let rest = bytes.get(open..).unwrap_or_default();
        at = match skip(rest, open)? {
            Some(length) => open + length,
            None => return Ok(()),
        };
    }

    Ok(())
}

/// Returns the number of bytes to skip in `rest`, which begins with `<`: a whole comment or CDATA
/// section, or only the `<` of other markup. Returns `None` for a comment or CDATA section without
/// an end, which a later stage of the scan reports. Fails if `rest` begins with forbidden markup.
fn skip(rest: &[u8], offset: usize) -> Result<Option<usize>, ScanViolation> {
    let forbidden = |what: &str| {
        let message = format!("{what}; payloads have elements, text, comments and CDATA only");
        Err(ScanViolation::new(BrokenRule::Forbidden, offset, message))
    };

    match rest {
        [_, b'!', b'-', b'-', ..] => Ok(section(rest, b"<!--", b"-->")),
        [_, b'!', b'[', ..] => Ok(section(rest, b"<![", b"]]>")),
        [_, b'!', after @ ..] if after.first().is_some_and(u8::is_ascii_alphabetic) => {
            forbidden(if after.starts_with(b"DOCTYPE") { "a DOCTYPE" } else { "a declaration" })
        }
        [_, b'?', ..] => forbidden("a processing instruction"),
        _ => Ok(Some(1)),
    }
}
