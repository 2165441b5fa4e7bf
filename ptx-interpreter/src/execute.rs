//! The execution of one instruction by the lanes of a warp.

use crate::arithmetic;
use crate::block::{Context, LANES};
use crate::collective;
use crate::fault::FaultKind;
use crate::instruction::{Address, Operand, Operation, Register, Space, Type};
use crate::memory::WIDEST;
use crate::warp::{Copy, Flow, LaneFault, Lanes, Warp};

/// The lanes of a mask, ascending.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

impl Warp {
    /// Executes `operation` in the lanes of `active`.
    pub(crate) fn execute(
        &mut self,
        operation: &Operation,
        active: u32,
        context: &mut Context<'_>,
    ) -> Result<Flow, LaneFault> {
        if let Some(flow) = self.flow(operation, active) {
            return Ok(flow);
        }
        if let Some(expected) = collective::expected(self, operation, active, context)? {
            if expected & !active != 0 {
                return wait(self, active, expected);
            }
            return collective::execute(self, operation, active, context).map(|()| Flow::Next);
        }
        match operation {
            Operation::Load {
                space,
                kind,
                to,
                address,
                non_coherent,
            } => {
                self.load(*space, *kind, to, *address, *non_coherent, active, context)?;
            }
            Operation::Store {
                space,
                kind,
                from,
                address,
            } => {
                self.store(*space, *kind, from, *address, active, context)?;
            }
            Operation::CopyAsync {
                to,
                from,
                bytes,
                read,
            } => self.copy(*to, *from, (*bytes, *read), active, context)?,
            Operation::CopyCommit => self.commit(active),
            Operation::CopyWait { newest } => self.wait_copies(*newest, active, context)?,
            Operation::Return => {
                for lane in lanes(active) {
                    if !self.copies[lane].pending.is_empty() {
                        return Err((lane, FaultKind::NeverWaited));
                    }
                }
                return Ok(Flow::End(active));
            }
            _ => self.compute(operation, active, context)?,
        }
        Ok(Flow::Next)
    }

    fn compute(
        &mut self,
        operation: &Operation,
        active: u32,
        context: &Context<'_>,
    ) -> Result<(), LaneFault> {
        match operation {
            Operation::Move { to, from } => self.map(*to, [*from], active, context, |[a]| a),
            Operation::Rebase { to, a, by } => {
                self.map(*to, [*a], active, context, |[a]| a.wrapping_add(*by))
            }
            Operation::Unary { unary, kind, to, a } => {
                self.map(*to, [*a], active, context, |[a]| {
                    arithmetic::unary(*unary, *kind, a)
                })
            }
            Operation::Binary {
                binary,
                kind,
                to,
                a,
                b,
            } => self.try_map(*to, [*a, *b], active, context, |[a, b]| {
                arithmetic::binary(*binary, *kind, a, b)
            }),
            Operation::Ternary {
                ternary,
                kind,
                to,
                a,
                b,
                c,
            } => self.map(*to, [*a, *b, *c], active, context, |[a, b, c]| {
                arithmetic::ternary(*ternary, *kind, a, b, c)
            }),
            Operation::Compare {
                comparison,
                kind,
                to,
                a,
                b,
            } => self.map(*to, [*a, *b], active, context, |[a, b]| {
                u64::from(arithmetic::compare(*comparison, *kind, a, b))
            }),
            Operation::Convert {
                to_kind,
                from_kind,
                rounding,
                to,
                a,
            } => self.map(*to, [*a], active, context, |[a]| {
                arithmetic::convert(*to_kind, *from_kind, *rounding, a)
            }),
            _ => self.rearrange(operation, active, context),
        }
    }

    fn rearrange(
        &mut self,
        operation: &Operation,
        active: u32,
        context: &Context<'_>,
    ) -> Result<(), LaneFault> {
        match operation {
            Operation::InsertBits {
                kind,
                to,
                a,
                b,
                at,
                length,
            } => self.map(
                *to,
                [*a, *b, *at, *length],
                active,
                context,
                |[a, b, at, length]| arithmetic::insert(*kind, a, b, at, length),
            ),
            Operation::Select {
                to,
                a,
                b,
                predicate,
            } => self.map(
                *to,
                [*a, *b, *predicate],
                active,
                context,
                |[a, b, predicate]| {
                    if predicate != 0 { a } else { b }
                },
            ),
            Operation::Pack { to, parts, bits } => self.pack(*to, parts, *bits, active, context),
            Operation::Unpack { to, from, bits } => self.unpack(to, *from, *bits, active, context),
            _ => Ok(()),
        }
    }

    fn map<const N: usize>(
        &mut self,
        to: Register,
        sources: [Operand; N],
        active: u32,
        context: &Context<'_>,
        each: impl Fn([u64; N]) -> u64,
    ) -> Result<(), LaneFault> {
        self.try_map(to, sources, active, context, |values| Ok(each(values)))
    }

    fn try_map<const N: usize>(
        &mut self,
        to: Register,
        sources: [Operand; N],
        active: u32,
        context: &Context<'_>,
        each: impl Fn([u64; N]) -> Result<u64, FaultKind>,
    ) -> Result<(), LaneFault> {
        let mut values = [[0; LANES]; N];
        for (values, source) in values.iter_mut().zip(sources) {
            *values = self.value(source, active, context)?;
        }
        let mut out = [0; LANES];
        for lane in lanes(active) {
            let taken = std::array::from_fn(|source| values[source][lane]);
            out[lane] = each(taken).map_err(|kind| (lane, kind))?;
        }
        self.write(to, active, &out, context.kernel);
        Ok(())
    }

    fn pack(
        &mut self,
        to: Register,
        parts: &[Operand],
        bits: u32,
        active: u32,
        context: &Context<'_>,
    ) -> Result<(), LaneFault> {
        let mut out = [0; LANES];
        for (index, part) in parts.iter().enumerate() {
            let values = self.value(*part, active, context)?;
            for lane in lanes(active) {
                out[lane] |= (values[lane] & (u64::MAX >> (64 - bits))) << (bits * index as u32);
            }
        }
        self.write(to, active, &out, context.kernel);
        Ok(())
    }

    fn unpack(
        &mut self,
        to: &[Option<Register>],
        from: Operand,
        bits: u32,
        active: u32,
        context: &Context<'_>,
    ) -> Result<(), LaneFault> {
        let values = self.value(from, active, context)?;
        for (index, to) in to.iter().enumerate() {
            if let Some(to) = to {
                let part = values.map(|value| value >> (bits * index as u32));
                let part = part.map(|value| value & (u64::MAX >> (64 - bits)));
                self.write(*to, active, &part, context.kernel);
            }
        }
        Ok(())
    }

    /// The address of each lane.
    fn addresses(
        &self,
        address: Address,
        active: u32,
        context: &Context<'_>,
    ) -> Result<Lanes, LaneFault> {
        let base = self.value(address.base, active, context)?;
        Ok(base.map(|base| base.wrapping_add_signed(address.offset)))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "they are the fields of one instruction"
    )]
    fn load(
        &mut self,
        space: Space,
        kind: Type,
        to: &[Register],
        address: Address,
        non_coherent: bool,
        active: u32,
        context: &mut Context<'_>,
    ) -> Result<(), LaneFault> {
        let addresses = self.addresses(address, active, context)?;
        let bytes = kind.bytes() * to.len();
        let mut values = [[0; LANES]; 4];
        for lane in lanes(active) {
            let now = self.access(lane, context);
            let address = addresses[lane];
            let read = match space {
                Space::Parameter => parameter(context.parameters, address, bytes),
                Space::Global => context.memory.read(address, bytes, non_coherent, &now),
                Space::Shared => context.shared.read(address, bytes, &now),
            };
            let read = read.map_err(|kind| (lane, kind))?;
            for (index, part) in read[..bytes].chunks_exact(kind.bytes()).enumerate() {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                let value = u64::from_le_bytes(word);
                values[index][lane] = if kind.is_signed() {
                    arithmetic::sign_extend(value, kind.bits) as u64
                } else {
                    value
                };
            }
        }
        for (to, values) in to.iter().zip(&values) {
            self.write(*to, active, values, context.kernel);
        }
        Ok(())
    }

    fn store(
        &mut self,
        space: Space,
        kind: Type,
        from: &[Operand],
        address: Address,
        active: u32,
        context: &mut Context<'_>,
    ) -> Result<(), LaneFault> {
        let addresses = self.addresses(address, active, context)?;
        let mut values = [[0; LANES]; 4];
        for (values, from) in values.iter_mut().zip(from) {
            *values = self.value(*from, active, context)?;
        }
        let size = kind.bytes();
        for lane in lanes(active) {
            let mut bytes = [0; WIDEST];
            for (index, values) in values.iter().take(from.len()).enumerate() {
                let word = values[lane].to_le_bytes();
                bytes[index * size..][..size].copy_from_slice(&word[..size]);
            }
            let now = self.access(lane, context);
            let bytes = &bytes[..size * from.len()];
            let done = match space {
                Space::Shared => context.shared.write(addresses[lane], bytes, &now),
                _ => context.memory.write(addresses[lane], bytes, &now),
            };
            done.map_err(|kind| (lane, kind))?;
        }
        Ok(())
    }

    fn copy(
        &mut self,
        to: Address,
        from: Address,
        (bytes, read): (usize, Operand),
        active: u32,
        context: &mut Context<'_>,
    ) -> Result<(), LaneFault> {
        let to = self.addresses(to, active, context)?;
        let from = self.addresses(from, active, context)?;
        let sizes = self.value(read, active, context)?;
        for lane in lanes(active) {
            let now = self.access(lane, context);
            let read = context
                .memory
                .read_filled(from[lane], bytes, sizes[lane] as usize, &now);
            let read = read.map_err(|kind| (lane, kind))?;
            context
                .shared
                .begin_copy(to[lane], bytes, &now)
                .map_err(|kind| (lane, kind))?;
            let copy = Copy {
                to: to[lane],
                bytes: read[..bytes].to_vec(),
                group: None,
            };
            self.copies[lane].pending.push(copy);
        }
        Ok(())
    }

    fn commit(&mut self, active: u32) {
        for lane in lanes(active) {
            let copies = &mut self.copies[lane];
            for copy in &mut copies.pending {
                copy.group.get_or_insert(copies.commits);
            }
            copies.commits += 1;
        }
    }

    fn wait_copies(
        &mut self,
        newest: Option<u32>,
        active: u32,
        context: &mut Context<'_>,
    ) -> Result<(), LaneFault> {
        for lane in lanes(active) {
            let now = self.access(lane, context);
            let copies = &mut self.copies[lane];
            let done = |copy: &Copy| match (newest, copy.group) {
                (None, _) => true,
                (Some(newest), Some(group)) => group + newest < copies.commits,
                (Some(_), None) => false,
            };
            let (ended, pending) = std::mem::take(&mut copies.pending)
                .into_iter()
                .partition(done);
            copies.pending = pending;
            let ended: Vec<Copy> = ended;
            for copy in ended {
                let end = context.shared.end_copy(copy.to, &copy.bytes, &now);
                end.map_err(|kind| (lane, kind))?;
            }
        }
        Ok(())
    }
}

fn parameter(bytes: &[u8], address: u64, length: usize) -> Result<[u8; WIDEST], FaultKind> {
    let start = address as usize;
    let mut out = [0; WIDEST];
    let found = bytes.get(start..start.saturating_add(length));
    let found = found.ok_or(FaultKind::OutOfBounds {
        address,
        bytes: length,
    })?;
    out[..length].copy_from_slice(found);
    Ok(out)
}

/// Waits for lanes that can still come.
fn wait(warp: &Warp, active: u32, expected: u32) -> Result<Flow, LaneFault> {
    if expected & !warp.live() != 0 {
        let lane = active.trailing_zeros() as usize;
        return Err((
            lane,
            FaultKind::NotConverged {
                present: active,
                expected,
            },
        ));
    }
    Ok(Flow::Wait)
}
