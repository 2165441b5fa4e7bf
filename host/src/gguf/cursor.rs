//! Reading the head of a file front to back, with every length checked before it is used.

use super::GgufError;
use super::value::{Array, Value};

/// How deep arrays may nest; the format's users nest none at all.
const MAX_ARRAY_DEPTH: usize = 4;

/// A place in the file's bytes, moving forward.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(super) const fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    pub(super) fn take(&mut self, len: u64, what: &'static str) -> Result<&'a [u8], GgufError> {
        let taken = usize::try_from(len)
            .ok()
            .and_then(|len| self.offset.checked_add(len))
            .and_then(|end| self.bytes.get(self.offset..end));
        let taken = taken.ok_or(GgufError::Truncated {
            what,
            offset: self.offset,
            needed: len,
            available: self.remaining(),
        })?;
        self.offset += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of things of at least `min_bytes` each: refused if they cannot fit in the rest.
    pub(super) fn count(
        &mut self,
        min_bytes: usize,
        what: &'static str,
    ) -> Result<usize, GgufError> {
        let offset = self.offset;
        let count = self.u64(what)?;
        self.fitting(count, offset, min_bytes, what)
    }

    /// `count`, read at `offset`, if that many things of `min_bytes` each can still follow.
    pub(super) fn fitting(
        &self,
        count: u64,
        offset: usize,
        min_bytes: usize,
        what: &'static str,
    ) -> Result<usize, GgufError> {
        let limit = self.remaining() / min_bytes;
        match usize::try_from(count) {
            Ok(count) if count <= limit => Ok(count),
            _ => Err(GgufError::CountTooLarge {
                what,
                offset,
                count,
                limit: limit as u64,
            }),
        }
    }

    pub(super) fn string(&mut self, what: &'static str) -> Result<&'a str, GgufError> {
        let len = self.u64(what)?;
        let offset = self.offset;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|_| GgufError::BadUtf8 { what, offset })
    }

    /// A string of 1 to `limit` bytes.
    pub(super) fn name(&mut self, limit: u64, what: &'static str) -> Result<&'a str, GgufError> {
        let offset = self.offset;
        let mut ahead = Cursor { ..*self };
        match ahead.u64(what)? {
            length if length == 0 || length > limit => Err(GgufError::BadNameLength {
                what,
                offset,
                length,
                limit,
            }),
            _ => self.string(what),
        }
    }

    fn bool(&mut self) -> Result<bool, GgufError> {
        let offset = self.offset;
        match self.array("a boolean")? {
            [0] => Ok(false),
            [1] => Ok(true),
            [value] => Err(GgufError::BadBool { offset, value }),
        }
    }

    /// The value of `key`: its type, then itself.
    pub(super) fn value(&mut self, key: &str) -> Result<Value, GgufError> {
        let offset = self.offset;
        let what = "a metadata value";
        Ok(match self.u32("the type of a metadata value")? {
            0 => Value::U8(u8::from_le_bytes(self.array(what)?)),
            1 => Value::I8(i8::from_le_bytes(self.array(what)?)),
            2 => Value::U16(u16::from_le_bytes(self.array(what)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(what)?)),
            4 => Value::U32(u32::from_le_bytes(self.array(what)?)),
            5 => Value::I32(i32::from_le_bytes(self.array(what)?)),
            6 => Value::F32(f32::from_le_bytes(self.array(what)?)),
            7 => Value::Bool(self.bool()?),
            8 => Value::String(self.string(what)?.into()),
            9 => Value::Array(self.elements(key, 1)?),
            10 => Value::U64(u64::from_le_bytes(self.array(what)?)),
            11 => Value::I64(i64::from_le_bytes(self.array(what)?)),
            12 => Value::F64(f64::from_le_bytes(self.array(what)?)),
            type_id => {
                return Err(GgufError::BadValueType {
                    key: key.into(),
                    offset,
                    type_id,
                });
            }
        })
    }

    /// An array: the type of its elements, their count, and they themselves.
    fn elements(&mut self, key: &str, depth: usize) -> Result<Array, GgufError> {
        let offset = self.offset;
        Ok(match self.u32("the type of an array's elements")? {
            0 => Array::U8(self.numbers(u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(f32::from_le_bytes)?),
            7 => Array::Bool(self.repeat(1, Self::bool)?),
            8 => {
                Array::String(self.repeat(8, |c| c.string("a string in an array").map(Into::into))?)
            }
            9 if depth == MAX_ARRAY_DEPTH => {
                let (key, limit) = (key.into(), MAX_ARRAY_DEPTH);
                return Err(GgufError::NestedTooDeep { key, offset, limit });
            }
            9 => Array::Array(self.repeat(12, |c| c.elements(key, depth + 1))?),
            10 => Array::U64(self.numbers(u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(f64::from_le_bytes)?),
            type_id => {
                return Err(GgufError::BadValueType {
                    key: key.into(),
                    offset,
                    type_id,
                });
            }
        })
    }

    fn numbers<T, const N: usize>(
        &mut self,
        from_le_bytes: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, GgufError> {
        self.repeat(N, |c| c.array("an array").map(&from_le_bytes))
    }

    fn repeat<T>(
        &mut self,
        min_bytes: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, GgufError>,
    ) -> Result<Vec<T>, GgufError> {
        let count = self.count(min_bytes, "array elements")?;
        let mut elements = Vec::with_capacity(count);
        for _ in 0..count {
            elements.push(read(self)?);
        }
        Ok(elements)
    }
}
