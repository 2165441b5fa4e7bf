//! What the file says of each tensor, checked against the file's size.

use super::cursor::Cursor;
use super::{GgmlType, GgufError};

/// The longest name that ggml can hold is 63 bytes and a zero; the format document allows 64.
const MAX_NAME_BYTES: u64 = 64;
const MAX_RANK: u32 = 4;

/// A tensor's name, shape, type and place in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    name: Box<str>,
    dims: [u64; MAX_RANK as usize],
    rank: u32,
    ggml_type: GgmlType,
    /// From the start of the data section at first, of the file after [`place`].
    offset: u64,
    bytes: u64,
}

impl TensorInfo {
    /// Fewest bytes that an info can take: name, rank, one dimension, type, offset.
    pub(super) const MIN_BYTES: usize = 8 + 1 + 4 + 8 + 4 + 8;

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its dimensions, 1 to 4, none zero; the first is the one whose elements are adjacent (the
    /// length of a row).
    pub fn dims(&self) -> &[u64] {
        &self.dims[..self.rank as usize]
    }

    /// The length of a row: elements of its first dimension, a whole number of blocks.
    pub const fn row_len(&self) -> u64 {
        self.dims[0]
    }

    /// Its number of rows: the product of its other dimensions.
    pub fn rows(&self) -> u64 {
        self.dims[1..].iter().product()
    }

    /// How many elements it has.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// The type of its elements.
    pub const fn ggml_type(&self) -> GgmlType {
        self.ggml_type
    }

    /// Where its data begins, in bytes from the start of the file.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of its data.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, GgufError> {
        let name = cursor.name(MAX_NAME_BYTES, "tensor name")?;
        let rank = cursor.u32("the rank of a tensor")?;
        if rank == 0 || rank > MAX_RANK {
            return Err(GgufError::BadRank {
                name: name.into(),
                rank,
            });
        }
        let mut dims = [1; MAX_RANK as usize];
        for dim in dims.iter_mut().take(rank as usize) {
            *dim = cursor.u64("a dimension of a tensor")?;
        }
        let type_id = cursor.u32("the type of a tensor")?;
        let offset = cursor.u64("the offset of a tensor")?;
        let ggml_type = GgmlType::from_id(type_id).ok_or_else(|| GgufError::UnsupportedType {
            name: name.into(),
            type_id,
        })?;
        let bytes = size(name, &dims, ggml_type)?;
        Ok(Self {
            name: name.into(),
            dims,
            rank,
            ggml_type,
            offset,
            bytes,
        })
    }
}

/// Bytes of a tensor of this shape.
fn size(name: &str, dims: &[u64], ggml_type: GgmlType) -> Result<u64, GgufError> {
    if dims.contains(&0) {
        return Err(GgufError::ZeroDimension { name: name.into() });
    }
    let overflow = || GgufError::DimensionOverflow {
        name: name.into(),
        dims: dims.to_vec(),
    };
    let block = ggml_type.block_len() as u64;
    let row = dims.first().copied().unwrap_or(1);
    if row % block != 0 {
        return Err(GgufError::PartialBlock {
            name: name.into(),
            row,
            block,
        });
    }
    dims.iter()
        .try_fold(1_u64, |product, dim| product.checked_mul(*dim))
        .map(|elements| elements / block)
        .and_then(|blocks| blocks.checked_mul(ggml_type.block_bytes() as u64))
        .ok_or_else(overflow)
}

/// Makes every offset one from the start of the file; `data_start..file_len` is the data section.
pub(super) fn place(
    tensors: &mut [TensorInfo],
    data_start: u64,
    file_len: u64,
    alignment: u32,
) -> Result<(), GgufError> {
    let available = file_len.saturating_sub(data_start);
    for tensor in tensors.iter_mut() {
        let TensorInfo {
            offset,
            bytes: length,
            ..
        } = *tensor;
        if offset % u64::from(alignment) != 0 {
            let name = tensor.name().into();
            return Err(GgufError::Misaligned {
                name,
                offset,
                alignment,
            });
        }
        if offset.checked_add(length).is_none_or(|end| end > available) {
            let name = tensor.name().into();
            return Err(GgufError::OutOfFile {
                name,
                offset,
                length,
                available,
            });
        }
        tensor.offset += data_start;
    }
    refuse_overlap(tensors)
}

fn refuse_overlap(tensors: &[TensorInfo]) -> Result<(), GgufError> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|tensor| (tensor.offset, &tensor.name));
    for pair in order.windows(2) {
        if let [first, second] = pair
            && first.offset + first.bytes > second.offset
        {
            let (first, second) = (first.name().into(), second.name().into());
            return Err(GgufError::Overlap { first, second });
        }
    }
    Ok(())
}
