//! Decoded instructions: what the parser makes and the warps execute.

use std::fmt;

/// An index into a warp's register file.
pub(crate) type Register = u32;

/// The class of a type: how its bits are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Untyped bits.
    Bits,
    Unsigned,
    Signed,
    Float,
    /// Two halves of one register, each an f16.
    HalfPair,
    Predicate,
}

/// A PTX scalar type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Type {
    pub(crate) class: Class,
    pub(crate) bits: u32,
}

impl Type {
    /// Reads a suffix such as `u32`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "pred" {
            return Some(Self {
                class: Class::Predicate,
                bits: 1,
            });
        }
        if text == "f16x2" {
            return Some(Self {
                class: Class::HalfPair,
                bits: 32,
            });
        }
        let (class, bits) = text.split_at_checked(1)?;
        let class = match class {
            "b" => Class::Bits,
            "u" => Class::Unsigned,
            "s" => Class::Signed,
            "f" => Class::Float,
            _ => return None,
        };
        let bits = bits.parse().ok().filter(|b| [8, 16, 32, 64].contains(b))?;
        Some(Self { class, bits })
    }

    pub(crate) fn bytes(self) -> usize {
        self.bits as usize / 8
    }

    /// The low bits that a value of this type has.
    pub(crate) fn mask(self) -> u64 {
        if self.bits == 64 {
            u64::MAX
        } else {
            (1 << self.bits) - 1
        }
    }

    pub(crate) fn is_signed(self) -> bool {
        self.class == Class::Signed
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = match self.class {
            Class::Bits => "b",
            Class::Unsigned => "u",
            Class::Signed => "s",
            Class::Float => "f",
            Class::HalfPair => return write!(f, "f16x2"),
            Class::Predicate => return write!(f, "pred"),
        };
        write!(f, "{class}{}", self.bits)
    }
}

/// A read-only register that the hardware fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Thread(usize),
    BlockSize(usize),
    Block(usize),
    GridSize(usize),
    Lane,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Register(Register),
    Immediate(u64),
    Special(Special),
}

/// An address: a base and a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) base: Operand,
    pub(crate) offset: i64,
}

/// A memory that an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Parameter,
    Global,
    Shared,
}

/// Operations of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Not,
    Negate,
    Absolute,
    SquareRoot,
    PopulationCount,
    LeadingZeros,
    ReverseBits,
    /// From f32 to the nearest bf16, ties to even.
    ToBrainFloat,
}

/// What the elements of a matrix product are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elements {
    /// Signed bytes, 32 to a sum, into 32-bit integers.
    Bytes,
    /// f16, 16 to a sum, into f32.
    Halves,
    /// bf16, 16 to a sum, into f32.
    BrainFloats,
}

/// Operations of two sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    MulLow,
    MulHigh,
    MulWide,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// Operations of three sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ternary {
    MadLow,
    MadWide,
    FusedMultiplyAdd,
    ExtractBits,
    Permute,
    FunnelLeft,
    FunnelRight,
    /// Four-way dot product; whether each side is signed.
    DotProduct4 {
        a_signed: bool,
        b_signed: bool,
    },
    /// The truth table of `lop3`.
    Lookup(u8),
}

/// Comparisons; the `Unordered` ones hold where an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    EqualUnordered,
    NotEqualUnordered,
    LessUnordered,
    LessEqualUnordered,
    GreaterUnordered,
    GreaterEqualUnordered,
    BothNumbers,
    AnyNan,
}

/// How a conversion rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    None,
    /// To the nearest float, ties to even.
    Nearest,
    /// To the nearest integer, ties to even.
    NearestInteger,
    /// To the integer towards zero.
    TowardsZero,
    /// To the integer below.
    Down,
    /// To the integer above.
    Up,
}

/// Which lane a shuffle reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// What a vote gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Ballot,
}

/// One operation with its operands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    Move {
        to: Register,
        from: Operand,
    },
    /// Concatenates equal parts, the first lowest.
    Pack {
        to: Register,
        parts: Vec<Operand>,
        bits: u32,
    },
    /// Cuts into equal parts, the first lowest.
    Unpack {
        to: Vec<Option<Register>>,
        from: Operand,
        bits: u32,
    },
    Load {
        space: Space,
        kind: Type,
        to: Vec<Register>,
        address: Address,
        non_coherent: bool,
    },
    Store {
        space: Space,
        kind: Type,
        from: Vec<Operand>,
        address: Address,
    },
    Unary {
        unary: Unary,
        kind: Type,
        to: Register,
        a: Operand,
    },
    Binary {
        binary: Binary,
        kind: Type,
        to: Register,
        a: Operand,
        b: Operand,
    },
    Ternary {
        ternary: Ternary,
        kind: Type,
        to: Register,
        a: Operand,
        b: Operand,
        c: Operand,
    },
    InsertBits {
        kind: Type,
        to: Register,
        a: Operand,
        b: Operand,
        at: Operand,
        length: Operand,
    },
    Compare {
        comparison: Comparison,
        kind: Type,
        to: Register,
        a: Operand,
        b: Operand,
    },
    Select {
        to: Register,
        a: Operand,
        b: Operand,
        predicate: Operand,
    },
    Convert {
        to_kind: Type,
        from_kind: Type,
        rounding: Rounding,
        to: Register,
        a: Operand,
    },
    /// Adds a constant to an address: between generic addresses and those of a space.
    Rebase {
        to: Register,
        a: Operand,
        by: u64,
    },
    Branch {
        target: usize,
    },
    Barrier,
    WarpBarrier {
        mask: Operand,
    },
    Shuffle {
        shuffle: Shuffle,
        to: Register,
        valid: Option<Register>,
        a: Operand,
        b: Operand,
        c: Operand,
        mask: Operand,
    },
    Vote {
        vote: Vote,
        to: Register,
        a: Operand,
        mask: Operand,
    },
    CopyAsync {
        to: Address,
        from: Address,
        bytes: usize,
        /// How many of them are read; zeros stand in for the others.
        read: Operand,
    },
    CopyCommit,
    CopyWait {
        newest: Option<u32>,
    },
    /// 16x8 product, added to 16x8 sums.
    MatrixMultiply {
        elements: Elements,
        to: Vec<Register>,
        a: Vec<Operand>,
        b: Vec<Operand>,
        c: Vec<Operand>,
    },
    /// 8x8 matrices of 16-bit elements from shared memory, one for each register.
    LoadMatrix {
        to: Vec<Register>,
        address: Address,
        transposed: bool,
    },
    Return,
}

/// An operation with its guard and its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instruction {
    pub(crate) operation: Operation,
    /// The predicate register that guards it, and the value that lets it run.
    pub(crate) guard: Option<(Register, bool)>,
    pub(crate) line: usize,
    pub(crate) opcode: String,
}
