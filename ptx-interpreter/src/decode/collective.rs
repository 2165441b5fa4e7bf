//! Statements that the lanes of a warp, or the warps of a block, execute together; and copies.

use super::{Names, Statement};
use crate::fault::ParseError;
use crate::instruction::{Elements, Operand, Operation, Shuffle, Vote};
use crate::operand::{address, register, source, target, vector};
use crate::parse::Cursor;

impl Statement<'_> {
    pub(super) fn barrier(
        &self,
        cursor: &mut Cursor<'_>,
        names: &mut Names,
    ) -> Result<Operation, ParseError> {
        match self.modifiers {
            ["warp", "sync"] => Ok(Operation::WarpBarrier {
                mask: source(cursor, names)?,
            }),
            ["sync"] | ["sync", "aligned"] if cursor.peek() == "0" => {
                cursor.next();
                Ok(Operation::Barrier)
            }
            _ => Err(self.refuse("only barrier 0 of the whole block is supported")),
        }
    }

    pub(super) fn shuffle(
        &self,
        cursor: &mut Cursor<'_>,
        names: &mut Names,
    ) -> Result<Operation, ParseError> {
        let shuffle = match self.modifiers {
            ["sync", "up", "b32"] => Shuffle::Up,
            ["sync", "down", "b32"] => Shuffle::Down,
            ["sync", "bfly", "b32"] => Shuffle::Butterfly,
            ["sync", "idx", "b32"] => Shuffle::Index,
            _ => return Err(self.refuse("is not supported")),
        };
        let to = register(cursor, names)?;
        let valid = if cursor.take("|") {
            target(cursor, names)?
        } else {
            None
        };
        let mut sources = Vec::new();
        while cursor.take(",") {
            sources.push(source(cursor, names)?);
        }
        let [a, b, c, mask] = sources[..] else {
            return Err(self.refuse("takes four operands"));
        };
        Ok(Operation::Shuffle {
            shuffle,
            to,
            valid,
            a,
            b,
            c,
            mask,
        })
    }

    pub(super) fn vote(
        &self,
        cursor: &mut Cursor<'_>,
        names: &mut Names,
    ) -> Result<Operation, ParseError> {
        let vote = match self.modifiers {
            ["sync", "all", "pred"] => Vote::All,
            ["sync", "any", "pred"] => Vote::Any,
            ["sync", "ballot", "b32"] => Vote::Ballot,
            _ => return Err(self.refuse("is not supported")),
        };
        let to = register(cursor, names)?;
        cursor.expect(",")?;
        let a = source(cursor, names)?;
        cursor.expect(",")?;
        Ok(Operation::Vote {
            vote,
            to,
            a,
            mask: source(cursor, names)?,
        })
    }

    pub(super) fn copy(
        &self,
        cursor: &mut Cursor<'_>,
        names: &mut Names,
    ) -> Result<Operation, ParseError> {
        match self.modifiers {
            ["async", "ca" | "cg", "shared", "global"] => {
                let to = address(cursor, names)?;
                cursor.expect(",")?;
                let from = address(cursor, names)?;
                cursor.expect(",")?;
                let bytes = cursor.number()?;
                let cg = self.has("cg");
                if !(bytes == 16 || !cg && (bytes == 4 || bytes == 8)) {
                    return Err(self.refuse("copies 4, 8 or 16 bytes (.cg: 16)"));
                }
                let read = if cursor.take(",") {
                    source(cursor, names)?
                } else {
                    Operand::Immediate(bytes as u64)
                };
                Ok(Operation::CopyAsync {
                    to,
                    from,
                    bytes,
                    read,
                })
            }
            ["async", "commit_group"] => Ok(Operation::CopyCommit),
            ["async", "wait_all"] => Ok(Operation::CopyWait { newest: None }),
            ["async", "wait_group"] => Ok(Operation::CopyWait {
                newest: Some(cursor.number()? as u32),
            }),
            _ => Err(self.refuse("is not supported")),
        }
    }

    pub(super) fn matrix_multiply(
        &self,
        cursor: &mut Cursor<'_>,
        names: &mut Names,
    ) -> Result<Operation, ParseError> {
        let known = match self.modifiers {
            ["sync", "aligned", shape, "row", "col", d, a, b, c] if (d, a) == (c, b) => {
                match (*shape, *d, *a) {
                    ("m16n8k32", "s32", "s8") => Some((Elements::Bytes, (4, 2))),
                    ("m16n8k16", "s32", "s8") => Some((Elements::Bytes, (2, 1))),
                    ("m16n8k16", "f32", "f16") => Some((Elements::Halves, (4, 2))),
                    ("m16n8k16", "f32", "bf16") => Some((Elements::BrainFloats, (4, 2))),
                    _ => None,
                }
            }
            _ => None,
        };
        let (elements, sizes) = known.ok_or_else(|| {
            self.refuse("only m16n8k32 and m16n8k16 of s8, m16n8k16 of f16 and bf16 are supported")
        })?;
        let to = vector(cursor, |c| register(c, names))?;
        cursor.expect(",")?;
        let a = vector(cursor, |c| source(c, names))?;
        cursor.expect(",")?;
        let b = vector(cursor, |c| source(c, names))?;
        cursor.expect(",")?;
        let c = vector(cursor, |c| source(c, names))?;
        if (to.len(), (a.len(), b.len()), c.len()) != (4, sizes, 4) {
            return Err(self.refuse("has fragments of another size"));
        }
        Ok(Operation::MatrixMultiply {
            elements,
            to,
            a,
            b,
            c,
        })
    }

    pub(super) fn load_matrix(
        &self,
        cursor: &mut Cursor<'_>,
        names: &mut Names,
    ) -> Result<Operation, ParseError> {
        let (count, transposed) = match self.modifiers {
            ["sync", "aligned", "m8n8", count, "shared", "b16"] => (*count, false),
            ["sync", "aligned", "m8n8", count, "trans", "shared", "b16"] => (*count, true),
            _ => return Err(self.refuse("is not supported")),
        };
        let to = vector(cursor, |c| register(c, names))?;
        cursor.expect(",")?;
        let count = ["x1", "x2", "", "x4"].iter().position(|c| *c == count);
        self.count(to.len(), count.map_or(0, |index| index + 1))?;
        Ok(Operation::LoadMatrix {
            to,
            address: address(cursor, names)?,
            transposed,
        })
    }
}
