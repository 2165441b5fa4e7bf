//! GPT-2's alphabet: each of the 256 bytes as one printable character.

/// The character that stands for `byte` in the vocabulary of a byte-level tokenizer.
///
/// Printable bytes of Latin-1 stand for themselves; the 68 others, in ascending order, for the
/// characters from U+0100.
pub fn symbol(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        0x00..=0x20 => shifted(u32::from(byte)),
        0x7f..=0xa0 => shifted(u32::from(byte) - 0x7f + 0x21),
        0xad => shifted(0x43),
    }
}

fn shifted(rank: u32) -> char {
    char::from_u32(0x100 + rank).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte that `symbol` stands for, if it is one of the alphabet.
pub fn byte(symbol: char) -> Option<u8> {
    match u32::from(symbol) {
        rank @ 0x100..=0x120 => Some((rank - 0x100) as u8),
        rank @ 0x121..=0x142 => Some((rank - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        code => u8::try_from(code)
            .ok()
            .filter(|byte| self::symbol(*byte) == symbol),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_byte_has_a_symbol_of_its_own_and_comes_back_from_it() {
        let symbols: BTreeSet<char> = (0..=255).map(symbol).collect();
        assert_eq!(symbols.len(), 256);
        assert!(
            symbols
                .iter()
                .all(|s| !s.is_whitespace() && !s.is_control())
        );
        for expected in 0..=255 {
            assert_eq!(byte(symbol(expected)), Some(expected));
        }
    }

    #[test]
    fn known_symbols_of_gpt2() {
        assert_eq!((symbol(b' '), symbol(b'\n'), symbol(b'A')), ('Ġ', 'Ċ', 'A'));
        assert_eq!((byte(' '), byte('€')), (None, None));
    }
}
