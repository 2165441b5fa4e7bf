//! Writing GGUF files: what tests and scripts build small models with.
//!
//! The writer writes what it is told, so that a test can also build a file that is wrong.

use super::{Array, DEFAULT_ALIGNMENT, GgmlType, MAGIC, Value};

/// A file in the making: metadata and tensors in the order they were given.
#[derive(Clone, Debug)]
pub struct Writer {
    version: u32,
    alignment: u32,
    pairs: Vec<(String, Value)>,
    tensors: Vec<Tensor>,
}

/// A tensor as it will stand in the file.
#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    dims: Vec<u64>,
    type_id: u32,
    offset: Option<u64>,
    data: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// An empty file of version 3.
    pub const fn new() -> Self {
        Self {
            version: 3,
            alignment: DEFAULT_ALIGNMENT,
            pairs: Vec::new(),
            tensors: Vec::new(),
        }
    }

    /// Writes another version number.
    pub const fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Aligns data to another power of two, and says so in `general.alignment`.
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment;
        self.metadata("general.alignment", alignment)
    }

    /// Adds a metadata pair.
    pub fn metadata(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.pairs.push((key.into(), value.into()));
        self
    }

    /// Adds a tensor; `dims` begins with the length of a row, `data` is in the type's layout.
    pub fn tensor(self, name: &str, dims: &[u64], ggml_type: GgmlType, data: Vec<u8>) -> Self {
        self.raw_tensor(name, dims, ggml_type.id(), None, data)
    }

    /// Adds a tensor of any type number, with an offset of its own if one is given; nothing about
    /// it needs to be right.
    pub fn raw_tensor(
        mut self,
        name: &str,
        dims: &[u64],
        type_id: u32,
        offset: Option<u64>,
        data: Vec<u8>,
    ) -> Self {
        let (name, dims) = (name.into(), dims.to_vec());
        self.tensors.push(Tensor {
            name,
            dims,
            type_id,
            offset,
            data,
        });
        self
    }

    /// The file.
    pub fn finish(self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            put_string(&mut out, key);
            put_value(&mut out, value);
        }
        let mut next = 0;
        for tensor in &self.tensors {
            put_info(&mut out, tensor, tensor.offset.unwrap_or(next));
            next += (tensor.data.len() as u64).next_multiple_of(self.alignment.into());
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
            out.extend(&tensor.data);
        }
        out
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_info(out: &mut Vec<u8>, tensor: &Tensor, offset: u64) {
    put_string(out, &tensor.name);
    out.extend((tensor.dims.len() as u32).to_le_bytes());
    for dim in &tensor.dims {
        out.extend(dim.to_le_bytes());
    }
    out.extend(tensor.type_id.to_le_bytes());
    out.extend(offset.to_le_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(v) => put(out, 0, &v.to_le_bytes()),
        Value::I8(v) => put(out, 1, &v.to_le_bytes()),
        Value::U16(v) => put(out, 2, &v.to_le_bytes()),
        Value::I16(v) => put(out, 3, &v.to_le_bytes()),
        Value::U32(v) => put(out, 4, &v.to_le_bytes()),
        Value::I32(v) => put(out, 5, &v.to_le_bytes()),
        Value::F32(v) => put(out, 6, &v.to_le_bytes()),
        Value::Bool(v) => put(out, 7, &[u8::from(*v)]),
        Value::String(v) => {
            put(out, 8, &[]);
            put_string(out, v);
        }
        Value::Array(v) => {
            put(out, 9, &[]);
            put_array(out, v);
        }
        Value::U64(v) => put(out, 10, &v.to_le_bytes()),
        Value::I64(v) => put(out, 11, &v.to_le_bytes()),
        Value::F64(v) => put(out, 12, &v.to_le_bytes()),
    }
}

fn put(out: &mut Vec<u8>, type_id: u32, bytes: &[u8]) {
    out.extend(type_id.to_le_bytes());
    out.extend(bytes);
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    match array {
        Array::U8(v) => put_elements(out, 0, v, |out, v| out.extend(v.to_le_bytes())),
        Array::I8(v) => put_elements(out, 1, v, |out, v| out.extend(v.to_le_bytes())),
        Array::U16(v) => put_elements(out, 2, v, |out, v| out.extend(v.to_le_bytes())),
        Array::I16(v) => put_elements(out, 3, v, |out, v| out.extend(v.to_le_bytes())),
        Array::U32(v) => put_elements(out, 4, v, |out, v| out.extend(v.to_le_bytes())),
        Array::I32(v) => put_elements(out, 5, v, |out, v| out.extend(v.to_le_bytes())),
        Array::F32(v) => put_elements(out, 6, v, |out, v| out.extend(v.to_le_bytes())),
        Array::Bool(v) => put_elements(out, 7, v, |out, v| out.push(u8::from(*v))),
        Array::String(v) => put_elements(out, 8, v, |out, v| put_string(out, v)),
        Array::Array(v) => put_elements(out, 9, v, put_array),
        Array::U64(v) => put_elements(out, 10, v, |out, v| out.extend(v.to_le_bytes())),
        Array::I64(v) => put_elements(out, 11, v, |out, v| out.extend(v.to_le_bytes())),
        Array::F64(v) => put_elements(out, 12, v, |out, v| out.extend(v.to_le_bytes())),
    }
}

fn put_elements<T>(
    out: &mut Vec<u8>,
    type_id: u32,
    elements: &[T],
    put_element: impl Fn(&mut Vec<u8>, &T),
) {
    put(out, type_id, &(elements.len() as u64).to_le_bytes());
    for element in elements {
        put_element(out, element);
    }
}
