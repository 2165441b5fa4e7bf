//! One warp: groups of lanes at one instruction each; the group that is furthest behind goes first.

use crate::block::{Context, LANES};
use crate::fault::{Fault, FaultKind};
use crate::instruction::{Instruction, Operand, Operation, Register, Special};
use crate::launch::Statistics;
use crate::module::Kernel;
use crate::shadow::Access;

/// One value for each lane.
pub(crate) type Lanes = [u64; LANES];

/// What a lane did wrong.
pub(crate) type LaneFault = (usize, FaultKind);

/// Lanes that stand at one instruction.
#[derive(Clone, Copy, Debug)]
struct Group {
    at: usize,
    mask: u32,
    /// Waits there for lanes that are elsewhere.
    waiting: bool,
}

/// An asynchronous copy under way.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) to: u64,
    pub(crate) bytes: Vec<u8>,
    /// The commit that it belongs to, once committed.
    pub(crate) group: Option<u32>,
}

/// The copies that one lane has under way.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    pub(crate) pending: Vec<Copy>,
    pub(crate) commits: u32,
}

/// Why a warp does not go on.
pub(crate) enum Stop {
    Barrier,
    End,
}

/// Where the lanes of a group go after an instruction.
pub(crate) enum Flow {
    Next,
    /// These lanes jump, the others go on.
    Jump(u32, usize),
    /// These lanes end, the others go on.
    End(u32),
    /// All of the block's threads have to come here.
    Barrier,
    /// Other lanes have to come here first.
    Wait,
}

/// A warp that is running.
pub(crate) struct Warp {
    number: u32,
    /// The lanes that exist.
    lanes: u32,
    groups: Vec<Group>,
    at_barrier: bool,
    registers: Vec<Lanes>,
    defined: Vec<u32>,
    pub(crate) copies: Vec<Copies>,
    pub(crate) epoch: u32,
}

impl Warp {
    pub(crate) fn new(kernel: &Kernel, number: u32, threads: u32) -> Self {
        let count = (threads - number * LANES as u32).min(LANES as u32);
        let lanes = if count == 32 {
            u32::MAX
        } else {
            (1 << count) - 1
        };
        Self {
            number,
            lanes,
            groups: vec![Group {
                at: 0,
                mask: lanes,
                waiting: false,
            }],
            at_barrier: false,
            registers: vec![[0; LANES]; kernel.registers.len()],
            defined: vec![0; kernel.registers.len()],
            copies: (0..LANES).map(|_| Copies::default()).collect(),
            epoch: 0,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.at_barrier
    }

    /// Whether some, but not all, of its lanes have ended.
    pub(crate) fn has_exited_lanes(&self) -> bool {
        self.live() != self.lanes
    }

    pub(crate) fn first_thread(&self) -> u32 {
        self.number * LANES as u32
    }

    /// The instruction that its first group stands at.
    pub(crate) fn position(&self) -> usize {
        self.groups.first().map_or(0, |g| g.at)
    }

    /// Lets it go on behind the barrier.
    pub(crate) fn release(&mut self) {
        self.at_barrier = false;
        for group in &mut self.groups {
            group.at += 1;
            group.waiting = false;
        }
    }

    /// The lanes that have not ended.
    pub(crate) fn live(&self) -> u32 {
        self.groups.iter().fold(0, |mask, g| mask | g.mask)
    }

    /// Runs until all of its lanes are at a barrier or have ended.
    pub(crate) fn run(
        &mut self,
        context: &mut Context<'_>,
        statistics: &mut Statistics,
    ) -> Result<Stop, Fault> {
        loop {
            if self.at_barrier {
                return Ok(Stop::Barrier);
            }
            if self.groups.is_empty() {
                return Ok(Stop::End);
            }
            let behind = (0..self.groups.len())
                .filter(|i| !self.groups[*i].waiting)
                .min_by_key(|i| self.groups[*i].at);
            let Some(index) = behind else {
                return Err(self.stuck(context));
            };
            self.step(index, context, statistics)?;
        }
    }

    fn step(
        &mut self,
        index: usize,
        context: &mut Context<'_>,
        statistics: &mut Statistics,
    ) -> Result<(), Fault> {
        let Group { at, mask, .. } = self.groups[index];
        let kernel = context.kernel;
        let instruction = &kernel.instructions[at];
        let fault = |(lane, kind): LaneFault, context: &Context<'_>, warp: &Self| Fault {
            kind,
            line: instruction.line,
            opcode: instruction.opcode.clone(),
            block: context.number,
            thread: warp.first_thread() + lane as u32,
        };
        let active = self
            .guarded(instruction, mask, kernel)
            .map_err(|f| fault(f, context, self))?;
        let branches = matches!(instruction.operation, Operation::Branch { .. });
        statistics.executed[at] |= active != 0 || branches;
        statistics.warp_instructions += 1;
        statistics.thread_instructions += u64::from(active.count_ones());
        if statistics.warp_instructions > context.launch.step_limit {
            return Err(fault((0, FaultKind::StepLimit), context, self));
        }
        let partial = active != 0 && active != mask;
        if partial && matches!(instruction.operation, Operation::Barrier) {
            let kind = FaultKind::NotConverged {
                present: active,
                expected: mask,
            };
            return Err(fault(
                (active.trailing_zeros() as usize, kind),
                context,
                self,
            ));
        }
        let flow = if active == 0 {
            Flow::Next
        } else {
            self.execute(&instruction.operation, active, context)
                .map_err(|f| fault(f, context, self))?
        };
        self.advance(index, flow);
        Ok(())
    }

    fn guarded(
        &self,
        instruction: &Instruction,
        mask: u32,
        kernel: &Kernel,
    ) -> Result<u32, LaneFault> {
        let Some((register, wanted)) = instruction.guard else {
            return Ok(mask);
        };
        let values = self.read(Operand::Register(register), mask, kernel)?;
        let holds = |lane: &usize| mask >> lane & 1 == 1 && (values[*lane] != 0) == wanted;
        Ok((0..LANES).filter(holds).fold(0, |m, lane| m | 1 << lane))
    }

    fn advance(&mut self, index: usize, flow: Flow) {
        let Group { at, mask, .. } = self.groups[index];
        match flow {
            Flow::Wait => {
                self.groups[index].waiting = true;
                return;
            }
            Flow::Barrier => {
                self.groups[index].waiting = true;
                self.at_barrier = mask == self.live();
                return;
            }
            Flow::Next => self.groups[index].at = at + 1,
            Flow::Jump(lanes, target) => {
                self.groups.swap_remove(index);
                self.join(at + 1, mask & !lanes);
                self.join(target, mask & lanes);
                return;
            }
            Flow::End(lanes) => {
                self.groups.swap_remove(index);
                self.join(at + 1, mask & !lanes);
                return;
            }
        }
        if self.groups.len() > 1 {
            let group = self.groups.swap_remove(index);
            self.join(group.at, group.mask);
        }
    }

    /// Puts lanes at an instruction, together with those that are there.
    fn join(&mut self, at: usize, mask: u32) {
        if mask == 0 {
            return;
        }
        match self.groups.iter_mut().find(|g| g.at == at) {
            Some(group) => {
                group.mask |= mask;
                group.waiting = false;
            }
            None => self.groups.push(Group {
                at,
                mask,
                waiting: false,
            }),
        }
    }

    fn stuck(&self, context: &Context<'_>) -> Fault {
        let group = self.groups[0];
        let (line, opcode) = context.kernel.instruction(group.at).unwrap_or((0, ""));
        Fault {
            kind: FaultKind::NotConverged {
                present: group.mask,
                expected: self.live(),
            },
            line,
            opcode: opcode.to_owned(),
            block: context.number,
            thread: self.first_thread() + group.mask.trailing_zeros(),
        }
    }

    /// This lane's identity for race checks.
    pub(crate) fn access(&self, lane: usize, context: &Context<'_>) -> Access {
        Access {
            block: context.number,
            warp: self.number,
            thread: self.first_thread() + lane as u32,
            epoch: context.epoch,
            warp_epoch: self.epoch,
        }
    }

    /// The values of an operand; it has to be defined in each lane of `mask`.
    pub(crate) fn read(
        &self,
        operand: Operand,
        mask: u32,
        kernel: &Kernel,
    ) -> Result<Lanes, LaneFault> {
        match operand {
            Operand::Immediate(value) => Ok([value; LANES]),
            Operand::Register(register) => {
                let missing = mask & !self.defined[register as usize];
                if missing != 0 {
                    let name = kernel.registers[register as usize].0.clone();
                    let lane = missing.trailing_zeros() as usize;
                    return Err((lane, FaultKind::UndefinedRegister(name)));
                }
                Ok(self.registers[register as usize])
            }
            // Only `mov` and `cvt` read one; `special` resolves it with the block at hand.
            Operand::Special(_) => Ok([0; LANES]),
        }
    }

    /// The values of an operand that may be a special register.
    pub(crate) fn value(
        &self,
        operand: Operand,
        mask: u32,
        context: &Context<'_>,
    ) -> Result<Lanes, LaneFault> {
        match operand {
            Operand::Special(special) => Ok(self.special(special, context)),
            _ => self.read(operand, mask, context.kernel),
        }
    }

    fn special(&self, special: Special, context: &Context<'_>) -> Lanes {
        let [x, y, _] = context.launch.block;
        std::array::from_fn(|lane| {
            let thread = self.first_thread() + lane as u32;
            u64::from(match special {
                Special::Thread(0) => thread % x,
                Special::Thread(1) => thread / x % y,
                Special::Thread(_) => thread / x / y,
                Special::BlockSize(axis) => context.launch.block[axis],
                Special::Block(axis) => context.position[axis],
                Special::GridSize(axis) => context.launch.grid[axis],
                Special::Lane => lane as u32,
            })
        })
    }

    /// Writes a register in each lane of `mask`, cut to its width.
    pub(crate) fn write(&mut self, register: Register, mask: u32, values: &Lanes, kernel: &Kernel) {
        let width = kernel.registers[register as usize].1.mask();
        let to = &mut self.registers[register as usize];
        for lane in 0..LANES {
            if mask >> lane & 1 == 1 {
                to[lane] = values[lane] & width;
            }
        }
        self.defined[register as usize] |= mask;
    }

    /// What an operation does to the group's flow before anything else: a jump, an end, a wait.
    pub(crate) fn flow(&self, operation: &Operation, active: u32) -> Option<Flow> {
        match operation {
            Operation::Branch { target } => Some(Flow::Jump(active, *target)),
            Operation::Barrier => Some(Flow::Barrier),
            _ => None,
        }
    }
}
