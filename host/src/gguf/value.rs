//! Metadata values: what a key of the file can hold.

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// 8 bits, unsigned.
    U8(u8),
    /// 8 bits, signed.
    I8(i8),
    /// 16 bits, unsigned.
    U16(u16),
    /// 16 bits, signed.
    I16(i16),
    /// 32 bits, unsigned.
    U32(u32),
    /// 32 bits, signed.
    I32(i32),
    /// 64 bits, unsigned.
    U64(u64),
    /// 64 bits, signed.
    I64(i64),
    /// 32-bit IEEE 754.
    F32(f32),
    /// 64-bit IEEE 754.
    F64(f64),
    /// True or false.
    Bool(bool),
    /// UTF-8 text.
    String(Box<str>),
    /// Values of one type.
    Array(Array),
}

/// An array of values of one type, each stored at its own size.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Of `u8`.
    U8(Vec<u8>),
    /// Of `i8`.
    I8(Vec<i8>),
    /// Of `u16`.
    U16(Vec<u16>),
    /// Of `i16`.
    I16(Vec<i16>),
    /// Of `u32`.
    U32(Vec<u32>),
    /// Of `i32`.
    I32(Vec<i32>),
    /// Of `u64`.
    U64(Vec<u64>),
    /// Of `i64`.
    I64(Vec<i64>),
    /// Of `f32`.
    F32(Vec<f32>),
    /// Of `f64`.
    F64(Vec<f64>),
    /// Of booleans.
    Bool(Vec<bool>),
    /// Of texts.
    String(Vec<Box<str>>),
    /// Of arrays, which may differ in type.
    Array(Vec<Array>),
}

impl Value {
    /// The value as an unsigned integer, if it is an integer that is not negative.
    pub fn to_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(v) => v.try_into().ok(),
            Self::I16(v) => v.try_into().ok(),
            Self::I32(v) => v.try_into().ok(),
            Self::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// The name of its type, for messages.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F32(_) => "f32",
            Self::F64(_) => "f64",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::Array(array) => array.type_name(),
        }
    }
}

impl Array {
    /// How many elements it has.
    pub const fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
            Self::Array(v) => v.len(),
        }
    }

    /// Whether it has no element.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    const fn type_name(&self) -> &'static str {
        match self {
            Self::U8(_) => "array of u8",
            Self::I8(_) => "array of i8",
            Self::U16(_) => "array of u16",
            Self::I16(_) => "array of i16",
            Self::U32(_) => "array of u32",
            Self::I32(_) => "array of i32",
            Self::U64(_) => "array of u64",
            Self::I64(_) => "array of i64",
            Self::F32(_) => "array of f32",
            Self::F64(_) => "array of f64",
            Self::Bool(_) => "array of bool",
            Self::String(_) => "array of string",
            Self::Array(_) => "array of array",
        }
    }
}

macro_rules! from {
    ($($source:ty => $variant:ident),*) => {$(
        impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

from!(u32 => U32, i32 => I32, u64 => U64, f32 => F32, bool => Bool, &str => String, Array => Array);

impl From<Vec<Box<str>>> for Value {
    fn from(value: Vec<Box<str>>) -> Self {
        Self::Array(Array::String(value))
    }
}

impl From<Vec<i32>> for Value {
    fn from(value: Vec<i32>) -> Self {
        Self::Array(Array::I32(value))
    }
}

impl From<Vec<f32>> for Value {
    fn from(value: Vec<f32>) -> Self {
        Self::Array(Array::F32(value))
    }
}
