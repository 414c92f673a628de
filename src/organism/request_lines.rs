//! Splits the bytes that arrive on a connection into lines.

/// Bytes that have arrived on a connection and were not returned as lines yet.
/// [`LineBuffer::take_line`] does not move the remaining bytes to the front of the buffer, because
/// this would be slow if a client sends many requests at once.
#[derive(Default)]
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    /// Number of bytes at the beginning of the buffer that were already returned as lines.
    taken: usize,
    /// Number of bytes at the beginning of the buffer that were already searched for the end of the
    /// next line. The next search skips them.
    searched: usize,
}

impl LineBuffer {
    /// Returns the number of bytes in the buffer that were not returned yet.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub fn clear(&mut self) {
        *self = Self { bytes: std::mem::take(&mut self.bytes), ..Self::default() };
        self.bytes.clear();
    }

    /// Returns the buffer, with room for at least `bytes` more bytes. The caller appends the bytes
    /// that arrive.
    pub fn room(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.bytes.reserve(bytes);
        &mut self.bytes
    }

    /// Removes and returns the next line, including its line feed. Returns `None` if the end of the
    /// line has not arrived.
    pub fn take_line(&mut self) -> Option<Vec<u8>> {
        let unsearched = self.bytes.get(self.searched..).unwrap_or_default();
        let Some(end) = memchr::memchr(b'\n', unsearched) else {
            self.searched = self.bytes.len();
            return None;
        };

        let end = self.searched + end + 1;
        let line = self.bytes.get(self.taken..end).unwrap_or_default().to_vec();
        self.taken = end;
        self.searched = end;
        // The rest is moved only when half of the buffer was taken, so the total cost stays linear.
        if self.taken >= self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
            self.searched = 0;
        }
        Some(line)
    }

    /// Removes and returns all bytes in the buffer.
    pub fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.bytes.split_off(self.taken);
        self.clear();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> LineBuffer {
        let mut lines = LineBuffer::default();
        lines.room(text.len()).extend_from_slice(text.as_bytes());
        lines
    }

    #[test]
    fn lines_come_in_order_however_they_arrive() {
        let mut lines = filled("one\ntw");
        assert_eq!(lines.take_line().as_deref(), Some(&b"one\n"[..]));
        assert_eq!(lines.take_line(), None);
        lines.room(3).extend_from_slice(b"o\n\nend");
        assert_eq!(lines.take_line().as_deref(), Some(&b"two\n"[..]));
        assert_eq!(lines.take_line().as_deref(), Some(&b"\n"[..]));
        assert_eq!(lines.take_line(), None);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines.take_rest(), b"end");
        assert_eq!(lines.len(), 0);
        lines.room(2).extend_from_slice(b"x\n");
        assert_eq!(lines.take_line().as_deref(), Some(&b"x\n"[..]));
    }

    #[test]
    fn a_line_is_taken_without_a_move_of_those_behind_it() {
        let count = 10_000;
        let mut lines = filled(&"request\n".repeat(count));
        let mut moves = 0;
        for left in (0..count).rev() {
            let before = lines.bytes.len();
            assert!(lines.take_line().is_some());
            moves += usize::from(lines.bytes.len() != before);
            assert_eq!(lines.len(), left * "request\n".len());
        }
        assert!(moves < 20, "{moves} moves");
    }
}
