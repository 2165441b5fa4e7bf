//! The driver's error codes that can occur, with their names and messages.

use std::ffi::CStr;

/// A driver's error, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const INVALID_PTX: Self = Self(218);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const LAUNCH_FAILED: Self = Self(719);
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: Self = Self(900);
    pub(crate) const UNKNOWN: Self = Self(999);
}

/// Code, name and message.
const TEXTS: &[(u32, &CStr, &CStr)] = &[
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (
        100,
        c"CUDA_ERROR_NO_DEVICE",
        c"no CUDA-capable device is detected",
    ),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (
        201,
        c"CUDA_ERROR_INVALID_CONTEXT",
        c"invalid device context",
    ),
    (
        214,
        c"CUDA_ERROR_ECC_UNCORRECTABLE",
        c"uncorrectable ECC error encountered",
    ),
    (
        218,
        c"CUDA_ERROR_INVALID_PTX",
        c"a PTX JIT compilation failed",
    ),
    (
        400,
        c"CUDA_ERROR_INVALID_HANDLE",
        c"invalid resource handle",
    ),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (
        700,
        c"CUDA_ERROR_ILLEGAL_ADDRESS",
        c"an illegal memory access was encountered",
    ),
    (
        719,
        c"CUDA_ERROR_LAUNCH_FAILED",
        c"unspecified launch failure",
    ),
    (
        803,
        c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        c"system has unsupported display driver / cuda driver combination",
    ),
    (
        900,
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"operation not permitted when stream is capturing",
    ),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

/// Name and message of a code.
pub(crate) fn text(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    let found = TEXTS.iter().find(|(known, ..)| *known == code);
    found.map(|(_, name, message)| (*name, *message))
}
