//! Statements into instructions. What a shipped kernel may not contain is refused here.

mod collective;

use crate::fault::ParseError;
use crate::instruction::{
    Binary, Class, Comparison, Instruction, Operation, Rounding, Space, Ternary, Type, Unary,
};
pub(crate) use crate::operand::Names;
use crate::operand::{address, register, source, target, vector};
use crate::parse::Cursor;

/// Where generic addresses of shared memory start.
const SHARED_WINDOW: u64 = 1 << 62;

/// An instruction, and the label where it is a branch.
type Decoded<'a> = (Instruction, Option<&'a str>);

/// Decodes one statement, its semicolon included.
pub(crate) fn instruction<'a>(
    cursor: &mut Cursor<'a>,
    names: &mut Names,
) -> Result<Decoded<'a>, ParseError> {
    let guard = if cursor.take("@") {
        let negated = cursor.take("!");
        Some((register(cursor, names)?, !negated))
    } else {
        None
    };
    let line = cursor.line();
    let opcode = cursor.word()?;
    let parts: Vec<&str> = opcode.split('.').collect();
    let statement = Statement {
        head: parts[0],
        modifiers: &parts[1..],
        opcode,
        line,
    };
    let mut label = None;
    let operation = if statement.head == "bra" {
        label = Some(cursor.word()?);
        Operation::Branch { target: 0 }
    } else {
        statement.operation(cursor, names)?
    };
    cursor.expect(";")?;
    Ok((
        Instruction {
            operation,
            guard,
            line,
            opcode: opcode.to_owned(),
        },
        label,
    ))
}

/// An opcode cut at its dots.
struct Statement<'a> {
    head: &'a str,
    modifiers: &'a [&'a str],
    opcode: &'a str,
    line: usize,
}

impl Statement<'_> {
    fn refuse(&self, why: &str) -> ParseError {
        ParseError::new(self.line, format!("{}: {why}", self.opcode))
    }

    fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// The last modifier, which is the type, when all others are among `allowed`.
    fn kind(&self, allowed: &[&str]) -> Result<Type, ParseError> {
        let (last, others) = self
            .modifiers
            .split_last()
            .ok_or_else(|| self.refuse("has no type"))?;
        if let Some(other) = others.iter().find(|m| !allowed.contains(m)) {
            return Err(self.refuse(&format!("`{other}` is not supported")));
        }
        Type::parse(last).ok_or_else(|| self.refuse("has no type"))
    }

    /// The type of an arithmetic operation: rounded to nearest where it is a float's.
    fn arithmetic(&self, allowed: &[&str], rounds: bool) -> Result<Type, ParseError> {
        let float = self.modifiers.last().is_some_and(|m| m.starts_with('f'));
        if !float {
            return self.kind(allowed);
        }
        let kind = self.kind(if rounds { &["rn"] } else { &[] })?;
        if kind.bits != 32 {
            return Err(self.refuse("only f32 and f16x2 arithmetic is supported"));
        }
        let of_pairs = ["add", "sub", "mul", "fma", "neg"];
        if kind.class == Class::HalfPair && !of_pairs.contains(&self.head) {
            return Err(self.refuse("is not supported for pairs"));
        }
        if rounds && !self.has("rn") {
            return Err(self.refuse("without .rn the assembler may contract or approximate it"));
        }
        Ok(kind)
    }

    fn operation(
        &self,
        cursor: &mut Cursor<'_>,
        names: &mut Names,
    ) -> Result<Operation, ParseError> {
        if let Some(binary) = self.binary() {
            return self.two_sources(binary, cursor, names);
        }
        if let Some(unary) = self.unary() {
            let rounds = unary == Unary::SquareRoot;
            let kind = self.arithmetic(&[], rounds)?;
            let to = register(cursor, names)?;
            cursor.expect(",")?;
            return Ok(Operation::Unary {
                unary,
                kind,
                to,
                a: source(cursor, names)?,
            });
        }
        match self.head {
            "mov" => self.move_(cursor, names),
            "ld" | "st" => self.access(cursor, names),
            "cvta" => self.rebase(cursor, names),
            "mad" | "fma" | "bfe" | "prmt" | "shf" | "dp4a" | "lop3" | "bfi" => {
                self.three_sources(cursor, names)
            }
            "setp" => self.compare(cursor, names),
            "selp" => self.select(cursor, names),
            "cvt" => self.convert(cursor, names),
            "bar" | "barrier" => self.barrier(cursor, names),
            "shfl" => self.shuffle(cursor, names),
            "vote" => self.vote(cursor, names),
            "cp" => self.copy(cursor, names),
            "mma" => self.matrix_multiply(cursor, names),
            "ldmatrix" => self.load_matrix(cursor, names),
            "ret" | "exit" => Ok(Operation::Return),
            _ => Err(self.refuse("is not supported")),
        }
    }

    fn unary(&self) -> Option<Unary> {
        Some(match self.head {
            "not" => Unary::Not,
            "neg" => Unary::Negate,
            "abs" => Unary::Absolute,
            "sqrt" => Unary::SquareRoot,
            "popc" => Unary::PopulationCount,
            "clz" => Unary::LeadingZeros,
            "brev" => Unary::ReverseBits,
            _ => return None,
        })
    }

    fn binary(&self) -> Option<Binary> {
        Some(match self.head {
            "add" => Binary::Add,
            "sub" => Binary::Sub,
            "mul" if self.has("hi") => Binary::MulHigh,
            "mul" if self.has("wide") => Binary::MulWide,
            "mul" => Binary::MulLow,
            "div" => Binary::Div,
            "rem" => Binary::Rem,
            "min" => Binary::Min,
            "max" => Binary::Max,
            "and" => Binary::And,
            "or" => Binary::Or,
            "xor" => Binary::Xor,
            "shl" => Binary::ShiftLeft,
            "shr" => Binary::ShiftRight,
            _ => return None,
        })
    }

    fn two_sources(
        &self,
        binary: Binary,
        cursor: &mut Cursor<'_>,
        names: &mut Names,
    ) -> Result<Operation, ParseError> {
        let rounds = !matches!(binary, Binary::Min | Binary::Max);
        let kind = self.arithmetic(&["lo", "hi", "wide"], rounds)?;
        let to = register(cursor, names)?;
        cursor.expect(",")?;
        let a = source(cursor, names)?;
        cursor.expect(",")?;
        Ok(Operation::Binary {
            binary,
            kind,
            to,
            a,
            b: source(cursor, names)?,
        })
    }

    fn three_sources(
        &self,
        cursor: &mut Cursor<'_>,
        names: &mut Names,
    ) -> Result<Operation, ParseError> {
        let kind = match self.head {
            "fma" => self.arithmetic(&[], true)?,
            "dp4a" => self.kind(&["s32", "u32"])?,
            _ => self.kind(&["lo", "wide", "l", "r", "wrap"])?,
        };
        let to = register(cursor, names)?;
        let mut sources = Vec::new();
        while cursor.take(",") {
            sources.push(source(cursor, names)?);
        }
        if let ("bfi", [a, b, at, length]) = (self.head, sources[..].as_ref()) {
            return Ok(Operation::InsertBits {
                kind,
                to,
                a: *a,
                b: *b,
                at: *at,
                length: *length,
            });
        }
        let table = match (self.head, sources.get(3)) {
            ("lop3", Some(crate::instruction::Operand::Immediate(table))) => Some(*table as u8),
            (_, None) => None,
            _ => return Err(self.refuse("has too many operands")),
        };
        let ternary = match self.head {
            "mad" if self.has("wide") => Ternary::MadWide,
            "mad" => Ternary::MadLow,
            "fma" => Ternary::FusedMultiplyAdd,
            "bfe" => Ternary::ExtractBits,
            "prmt" => Ternary::Permute,
            "shf" if self.has("l") => Ternary::FunnelLeft,
            "shf" => Ternary::FunnelRight,
            "dp4a" => Ternary::DotProduct4 {
                a_signed: self.modifiers[0] == "s32",
                b_signed: kind.is_signed(),
            },
            _ => Ternary::Lookup(table.ok_or_else(|| self.refuse("has no table"))?),
        };
        let [a, b, c, ..] = sources[..] else {
            return Err(self.refuse("has too few operands"));
        };
        Ok(Operation::Ternary {
            ternary,
            kind,
            to,
            a,
            b,
            c,
        })
    }

    fn move_(&self, cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Operation, ParseError> {
        let kind = self.kind(&[])?;
        if cursor.peek() == "{" {
            let to = vector(cursor, |c| target(c, names))?;
            cursor.expect(",")?;
            let bits = kind.bits / to.len() as u32;
            return Ok(Operation::Unpack {
                to,
                from: source(cursor, names)?,
                bits,
            });
        }
        let to = register(cursor, names)?;
        cursor.expect(",")?;
        if cursor.peek() == "{" {
            let parts = vector(cursor, |c| source(c, names))?;
            let bits = kind.bits / parts.len() as u32;
            return Ok(Operation::Pack { to, parts, bits });
        }
        Ok(Operation::Move {
            to,
            from: source(cursor, names)?,
        })
    }

    fn access(&self, cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Operation, ParseError> {
        let kind = self.kind(&["param", "global", "shared", "nc", "v2", "v4"])?;
        let space = match self.modifiers[0] {
            "param" => Space::Parameter,
            "global" => Space::Global,
            "shared" => Space::Shared,
            _ => return Err(self.refuse("names no memory")),
        };
        let count = if self.has("v4") {
            4
        } else if self.has("v2") {
            2
        } else {
            1
        };
        if self.head == "ld" {
            let to = vector(cursor, |c| register(c, names))?;
            cursor.expect(",")?;
            let address = address(cursor, names)?;
            self.count(to.len(), count)?;
            return Ok(Operation::Load {
                space,
                kind,
                to,
                address,
                non_coherent: self.has("nc"),
            });
        }
        let address = address(cursor, names)?;
        cursor.expect(",")?;
        let from = vector(cursor, |c| source(c, names))?;
        self.count(from.len(), count)?;
        if space == Space::Parameter {
            return Err(self.refuse("parameters are not written"));
        }
        Ok(Operation::Store {
            space,
            kind,
            from,
            address,
        })
    }

    fn count(&self, found: usize, expected: usize) -> Result<(), ParseError> {
        if found == expected {
            return Ok(());
        }
        Err(self.refuse(&format!("{found} registers, {expected} expected")))
    }

    fn rebase(&self, cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Operation, ParseError> {
        let to = register(cursor, names)?;
        cursor.expect(",")?;
        let a = source(cursor, names)?;
        let by = match self.modifiers {
            ["to", "global", "u64"] | ["global", "u64"] => 0,
            ["to", "shared", "u64"] => SHARED_WINDOW.wrapping_neg(),
            ["shared", "u64"] => SHARED_WINDOW,
            _ => return Err(self.refuse("is not supported")),
        };
        Ok(Operation::Rebase { to, a, by })
    }

    fn compare(&self, cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Operation, ParseError> {
        let [comparison, kind] = self.modifiers else {
            return Err(self.refuse("is not supported"));
        };
        let kind = Type::parse(kind).ok_or_else(|| self.refuse("has no type"))?;
        use Comparison as C;
        let comparison = match *comparison {
            "eq" => C::Equal,
            "ne" => C::NotEqual,
            "lt" | "lo" => C::Less,
            "le" | "ls" => C::LessEqual,
            "gt" | "hi" => C::Greater,
            "ge" | "hs" => C::GreaterEqual,
            "equ" => C::EqualUnordered,
            "neu" => C::NotEqualUnordered,
            "ltu" => C::LessUnordered,
            "leu" => C::LessEqualUnordered,
            "gtu" => C::GreaterUnordered,
            "geu" => C::GreaterEqualUnordered,
            "num" => C::BothNumbers,
            "nan" => C::AnyNan,
            _ => return Err(self.refuse("is not supported")),
        };
        let to = register(cursor, names)?;
        cursor.expect(",")?;
        let a = source(cursor, names)?;
        cursor.expect(",")?;
        Ok(Operation::Compare {
            comparison,
            kind,
            to,
            a,
            b: source(cursor, names)?,
        })
    }

    fn select(&self, cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Operation, ParseError> {
        self.kind(&[])?;
        let to = register(cursor, names)?;
        cursor.expect(",")?;
        let a = source(cursor, names)?;
        cursor.expect(",")?;
        let b = source(cursor, names)?;
        cursor.expect(",")?;
        Ok(Operation::Select {
            to,
            a,
            b,
            predicate: source(cursor, names)?,
        })
    }

    fn convert(&self, cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Operation, ParseError> {
        if self.modifiers == ["rn", "bf16", "f32"] {
            return self.to_brain_float(cursor, names);
        }
        let (rounding, kinds) = match self.modifiers {
            ["rn", kinds @ ..] => (Rounding::Nearest, kinds),
            ["rni", kinds @ ..] => (Rounding::NearestInteger, kinds),
            ["rzi", kinds @ ..] => (Rounding::TowardsZero, kinds),
            ["rmi", kinds @ ..] => (Rounding::Down, kinds),
            ["rpi", kinds @ ..] => (Rounding::Up, kinds),
            kinds => (Rounding::None, kinds),
        };
        let kinds: Option<Vec<Type>> = kinds.iter().map(|k| Type::parse(k)).collect();
        let Some([to_kind, from_kind]) = kinds.as_deref() else {
            return Err(self.refuse("is not supported"));
        };
        let (to_kind, from_kind) = (*to_kind, *from_kind);
        let float = |kind: Type| kind.class == Class::Float;
        let narrows = float(to_kind) && (!float(from_kind) || to_kind.bits < from_kind.bits);
        let truncates = float(from_kind) && !float(to_kind);
        let fits = if narrows {
            rounding == Rounding::Nearest
        } else if truncates {
            !matches!(rounding, Rounding::None | Rounding::Nearest)
        } else {
            rounding == Rounding::None || float(to_kind) && rounding != Rounding::Nearest
        };
        let double = |kind: Type| float(kind) && kind.bits == 64;
        let half = |kind: Type| float(kind) && kind.bits == 16;
        let mixed = (half(to_kind) && !float(from_kind)) || (half(from_kind) && !float(to_kind));
        if !fits || mixed || double(to_kind) || double(from_kind) {
            return Err(self.refuse("is not a conversion that is supported"));
        }
        let to = register(cursor, names)?;
        cursor.expect(",")?;
        Ok(Operation::Convert {
            to_kind,
            from_kind,
            rounding,
            to,
            a: source(cursor, names)?,
        })
    }

    fn to_brain_float(
        &self,
        cursor: &mut Cursor<'_>,
        names: &mut Names,
    ) -> Result<Operation, ParseError> {
        let to = register(cursor, names)?;
        cursor.expect(",")?;
        Ok(Operation::Unary {
            unary: Unary::ToBrainFloat,
            kind: Type {
                class: Class::Float,
                bits: 32,
            },
            to,
            a: source(cursor, names)?,
        })
    }
}
