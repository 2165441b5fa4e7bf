//! Operands: registers, numbers, addresses and vectors, and the names they refer to.

use std::collections::BTreeMap;

use crate::fault::ParseError;
use crate::instruction::{Address, Operand, Register, Special, Type};
use crate::parse::Cursor;

/// What the names of a kernel stand for.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) registers: Vec<(String, Type)>,
    by_name: BTreeMap<String, Register>,
    pub(crate) parameters: BTreeMap<String, usize>,
    shared: BTreeMap<String, usize>,
    pub(crate) dynamic: Vec<String>,
    shared_end: usize,
    dynamic_used_at: Option<usize>,
}

impl Names {
    pub(crate) fn declare(&mut self, name: String, kind: Type) {
        // A register of an inner scope that repeats a name is a register of its own.
        self.by_name
            .insert(name.clone(), self.registers.len() as Register);
        self.registers.push((name, kind));
    }

    pub(crate) fn declare_shared(&mut self, name: String, offset: usize, end: usize) {
        self.shared.insert(name, offset);
        self.shared_end = end;
    }

    /// Whether the dynamic array was placed before the static ones were all known.
    pub(crate) fn uses_dynamic_before(&self, end: usize) -> bool {
        self.dynamic_used_at.is_some_and(|used| used != end)
    }

    fn symbol(&mut self, name: &str) -> Option<u64> {
        if let Some(offset) = self.shared.get(name).or_else(|| self.parameters.get(name)) {
            return Some(*offset as u64);
        }
        if self.dynamic.iter().any(|d| d == name) {
            self.dynamic_used_at = Some(self.shared_end);
            return Some(self.shared_end.next_multiple_of(16) as u64);
        }
        None
    }
}

/// A register that is written; `_` is none.
pub(crate) fn target(
    cursor: &mut Cursor<'_>,
    names: &Names,
) -> Result<Option<Register>, ParseError> {
    let line = cursor.line();
    let word = cursor.word()?;
    if word == "_" {
        return Ok(None);
    }
    let found = names.by_name.get(word).copied();
    found
        .map(Some)
        .ok_or_else(|| ParseError::new(line, format!("no register {word}")))
}

/// A register that is written, and has to be one.
pub(crate) fn register(cursor: &mut Cursor<'_>, names: &Names) -> Result<Register, ParseError> {
    target(cursor, names)?.ok_or_else(|| cursor.error("a register is needed"))
}

/// A value that is read.
pub(crate) fn source(cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Operand, ParseError> {
    let line = cursor.line();
    let negative = cursor.take("-");
    let word = cursor.word()?;
    if let Some(value) = number(word) {
        return Ok(Operand::Immediate(if negative {
            value.wrapping_neg()
        } else {
            value
        }));
    }
    if let Some(register) = names.by_name.get(word) {
        return Ok(Operand::Register(*register));
    }
    if let Some(special) = special(word) {
        return Ok(Operand::Special(special));
    }
    let value = names.symbol(word);
    value
        .map(Operand::Immediate)
        .ok_or_else(|| ParseError::new(line, format!("nothing is called {word}")))
}

fn special(word: &str) -> Option<Special> {
    let (name, axis) = word.split_once('.').unwrap_or((word, "x"));
    let axis = ["x", "y", "z"].iter().position(|a| *a == axis)?;
    Some(match name {
        "%tid" => Special::Thread(axis),
        "%ntid" => Special::BlockSize(axis),
        "%ctaid" => Special::Block(axis),
        "%nctaid" => Special::GridSize(axis),
        "%laneid" => Special::Lane,
        _ => return None,
    })
}

fn number(word: &str) -> Option<u64> {
    if let Some(hex) = word.strip_prefix("0f").or_else(|| word.strip_prefix("0F")) {
        return u32::from_str_radix(hex, 16)
            .ok()
            .filter(|_| hex.len() == 8)
            .map(u64::from);
    }
    if let Some(hex) = word.strip_prefix("0x") {
        return u64::from_str_radix(hex.trim_end_matches('U'), 16).ok();
    }
    word.parse().ok()
}

/// `[base+offset]`.
pub(crate) fn address(cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Address, ParseError> {
    cursor.expect("[")?;
    let base = source(cursor, names)?;
    let mut offset = 0;
    if cursor.take("+") {
        let negative = cursor.take("-");
        let value = i64::try_from(cursor.number()?)
            .map_err(|_| cursor.error("an offset is out of range"))?;
        offset = if negative { -value } else { value };
    }
    cursor.expect("]")?;
    Ok(Address { base, offset })
}

/// One or more of what `each` reads: bare, or in braces.
pub(crate) fn vector<T>(
    cursor: &mut Cursor<'_>,
    mut each: impl FnMut(&mut Cursor<'_>) -> Result<T, ParseError>,
) -> Result<Vec<T>, ParseError> {
    if !cursor.take("{") {
        return Ok(vec![each(cursor)?]);
    }
    let mut out = Vec::new();
    loop {
        out.push(each(cursor)?);
        if !cursor.take(",") {
            cursor.expect("}")?;
            return Ok(out);
        }
    }
}
