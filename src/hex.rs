//! Hexadecimal digits of bytes, in lower case. Upper case is refused, so that the same bytes have
//! one spelling.

/// Returns the bytes as hexadecimal digits.
pub fn encode(bytes: &[u8]) -> String {
    let mut digits = vec![0; bytes.len() * 2];
    write_digits(bytes, &mut digits);
    String::from_utf8(digits).expect("the digits are ASCII")
}

/// Writes the bytes as hexadecimal digits in ASCII. `digits` must be twice as long as `bytes`.
#[inline]
pub fn write_digits(bytes: &[u8], digits: &mut [u8]) {
    // Arithmetic instead of a table, which would need two look-ups for each byte.
    let digit = |nibble: u8| nibble + b'0' + if nibble > 9 { b'a' - b'0' - 10 } else { 0 };
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        if let [high, low] = pair {
            *high = digit(byte >> 4);
            *low = digit(byte & 15);
        }
    }
}

/// Parses `N` bytes, written as hexadecimal digits. Returns `None` for any other text.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }

    let mut out = [0u8; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = nibble(high)? << 4 | nibble(low)?;
    }

    Some(out)
}

/// Returns the value of a hexadecimal digit; `None` for any other byte.
fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_spelling() {
        assert_eq!(encode(&[0x00, 0x9a, 0xf1]), "009af1");
        assert_eq!(decode("009af1"), Some([0x00, 0x9a, 0xf1]));
        for other in ["009AF1", "009af", "009af10", "009ag1", "009a 1", "00+af1", ""] {
            assert_eq!(decode::<3>(other), None, "{other}");
        }
    }
}
