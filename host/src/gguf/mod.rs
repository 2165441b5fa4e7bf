//! Model files in the GGUF format, versions 2 and 3, read through a memory map.
//!
//! A file is not to be trusted: every length, count and offset is checked against the file's size
//! before anything is allocated or read for it. A damaged file gives one [`GgufError`] that names
//! the damage; memory taken while reading is bounded by a small multiple of the file's size.
//!
//! The format is described in ggml's `docs/gguf.md`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

mod cursor;
mod error;
mod map;
mod tensor;
mod types;
mod value;

pub mod tiny;
pub mod write;

#[cfg(test)]
mod tests;

pub use error::GgufError;
pub use tensor::TensorInfo;
pub use types::GgmlType;
pub use value::{Array, Value};

use cursor::Cursor;
use map::FileBytes;

const MAGIC: &[u8] = b"GGUF";
const DEFAULT_ALIGNMENT: u32 = 32;
/// The format's own limit for keys.
const MAX_KEY_BYTES: u64 = 65_535;
/// Fewest bytes of a key-value pair: length and one byte of key, type, one byte of value.
const MIN_PAIR_BYTES: usize = 8 + 1 + 4 + 1;

/// A model file: its metadata and where its tensors are.
#[derive(Debug)]
pub struct Gguf {
    bytes: FileBytes,
    version: u32,
    metadata: BTreeMap<Box<str>, Value>,
    tensors: Vec<TensorInfo>,
    index: BTreeMap<Box<str>, usize>,
    digest: OnceLock<blake3::Hash>,
}

impl Gguf {
    /// Maps the file at `path` and reads its head; tensor data is read when it is touched.
    ///
    /// # Errors
    /// What the system said, or the first damage found.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        Self::read(FileBytes::map(path)?)
    }

    /// The same from memory.
    ///
    /// # Errors
    /// The first damage found.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        Self::read(FileBytes::owned(bytes))
    }

    fn read(bytes: FileBytes) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(&bytes);
        let version = read_version(&mut cursor)?;
        let count_offset = cursor.offset();
        let tensor_count = cursor.u64("the tensor count")?;
        let pair_count = cursor.count(MIN_PAIR_BYTES, "metadata pairs")?;
        let fits = |cursor: &Cursor<'_>| {
            cursor.fitting(tensor_count, count_offset, TensorInfo::MIN_BYTES, "tensors")
        };
        fits(&cursor)?;
        let metadata = read_metadata(&mut cursor, pair_count)?;
        refuse_split(&metadata)?;
        let alignment = read_alignment(&metadata)?;
        let tensor_count = fits(&cursor)?;
        let (mut tensors, index) = read_tensors(&mut cursor, tensor_count)?;
        let data_start = (cursor.offset() as u64).next_multiple_of(u64::from(alignment));
        tensor::place(&mut tensors, data_start, bytes.len() as u64, alignment)?;
        let digest = OnceLock::new();
        Ok(Self {
            bytes,
            version,
            metadata,
            tensors,
            index,
            digest,
        })
    }

    /// The version of the format, 2 or 3.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// The file's size in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// All metadata, in the order of its keys.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.metadata.iter().map(|(key, value)| (&**key, value))
    }

    /// The value of `key`, of whatever type.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// The text under `key`; `None` if there is no such key.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] if it is not a text. The same holds for the accessors below.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "string", |value| match value {
            Value::String(text) => Some(&**text),
            _ => None,
        })
    }

    /// The integer under `key`, of whatever width it is stored in, if it fits.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] if it is not an integer in the range of a `u32`.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.typed(key, "u32", |value| value.to_u64()?.try_into().ok())
    }

    /// The floating-point number under `key`; one of 64 bits is rounded.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] if it is not a floating-point number.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "f32", |value| match *value {
            Value::F32(v) => Some(v),
            Value::F64(v) => Some(v as f32),
            _ => None,
        })
    }

    /// The boolean under `key`.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] if it is not a boolean.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "bool", |value| match *value {
            Value::Bool(v) => Some(v),
            _ => None,
        })
    }

    /// The array of texts under `key`.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] if it is not an array of texts.
    pub fn strings(&self, key: &str) -> Result<Option<&[Box<str>]>, GgufError> {
        self.typed(key, "array of string", |value| match value {
            Value::Array(Array::String(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// The array of `i32` under `key`.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] if it is not an array of `i32`.
    pub fn i32s(&self, key: &str) -> Result<Option<&[i32]>, GgufError> {
        self.typed(key, "array of i32", |value| match value {
            Value::Array(Array::I32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// The array of `f32` under `key`.
    ///
    /// # Errors
    /// [`GgufError::WrongType`] if it is not an array of `f32`.
    pub fn f32s(&self, key: &str) -> Result<Option<&[f32]>, GgufError> {
        self.typed(key, "array of f32", |value| match value {
            Value::Array(Array::F32(v)) => Some(v.as_slice()),
            _ => None,
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.metadata.get(key) else {
            return Ok(None);
        };
        let wrong = || GgufError::WrongType {
            key: key.into(),
            expected,
            found: value.type_name(),
        };
        convert(value).ok_or_else(wrong).map(Some)
    }

    /// All tensors, in the order of the file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(*self.index.get(name)?)
    }

    /// The data of a tensor of this file, [`TensorInfo::bytes`] long; empty for one of another
    /// file that does not fit in this one.
    pub fn tensor_data(&self, tensor: &TensorInfo) -> &[u8] {
        let range = tensor.offset() as usize..(tensor.offset() + tensor.bytes()) as usize;
        self.bytes.get(range).unwrap_or_default()
    }

    /// The BLAKE3 hash of the whole file: what names the model in journals and fingerprints.
    ///
    /// Reads every byte at the first call; later calls return what was computed.
    pub fn digest(&self) -> blake3::Hash {
        *self.digest.get_or_init(|| blake3::hash(&self.bytes))
    }
}

fn read_version(cursor: &mut Cursor<'_>) -> Result<u32, GgufError> {
    let len = cursor.remaining().min(MAGIC.len());
    let found = cursor.take(len as u64, "the magic number")?;
    if found != MAGIC {
        return Err(GgufError::BadMagic {
            found: found.to_vec(),
        });
    }
    match cursor.u32("the version")? {
        version @ (2 | 3) => Ok(version),
        found => Err(GgufError::BadVersion { found }),
    }
}

fn read_metadata(
    cursor: &mut Cursor<'_>,
    count: usize,
) -> Result<BTreeMap<Box<str>, Value>, GgufError> {
    let mut metadata = BTreeMap::new();
    for _ in 0..count {
        let key = cursor.name(MAX_KEY_BYTES, "metadata key")?;
        let value = cursor.value(key)?;
        if metadata.insert(key.into(), value).is_some() {
            return Err(GgufError::Duplicate {
                what: "metadata key",
                name: key.into(),
            });
        }
    }
    Ok(metadata)
}

fn read_alignment(metadata: &BTreeMap<Box<str>, Value>) -> Result<u32, GgufError> {
    match metadata.get("general.alignment") {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::U32(value)) if value.is_power_of_two() => Ok(*value),
        Some(Value::U32(value)) => Err(GgufError::BadAlignment { value: *value }),
        Some(other) => Err(GgufError::WrongType {
            key: "general.alignment".into(),
            expected: "u32",
            found: other.type_name(),
        }),
    }
}

fn refuse_split(metadata: &BTreeMap<Box<str>, Value>) -> Result<(), GgufError> {
    match metadata.get("split.count").and_then(Value::to_u64) {
        Some(parts) if parts > 1 => Err(GgufError::Split {
            parts: parts as u32,
        }),
        _ => Ok(()),
    }
}

type Tensors = (Vec<TensorInfo>, BTreeMap<Box<str>, usize>);

fn read_tensors(cursor: &mut Cursor<'_>, count: usize) -> Result<Tensors, GgufError> {
    let mut tensors = Vec::with_capacity(count);
    let mut index = BTreeMap::new();
    for i in 0..count {
        let tensor = TensorInfo::read(cursor)?;
        if index.insert(tensor.name().into(), i).is_some() {
            let name = tensor.name().into();
            return Err(GgufError::Duplicate {
                what: "tensor name",
                name,
            });
        }
        tensors.push(tensor);
    }
    Ok((tensors, index))
}
