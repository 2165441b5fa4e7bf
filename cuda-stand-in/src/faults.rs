//! What the environment says of the device, and of the failures that a test wants.
//!
//! | variable | |
//! |---|---|
//! | `CUDA_STAND_IN_DEVICES` | devices; 1 if unset |
//! | `CUDA_STAND_IN_KIND` | put behind the device's name: another kind of device |
//! | `CUDA_STAND_IN_MEMORY` | bytes of memory; 256 MiB if unset |
//! | `CUDA_STAND_IN_CAPABILITY` | compute capability times ten; 90 if unset |
//! | `CUDA_STAND_IN_POOLS` | 0: no stream-ordered allocation |
//! | `CUDA_STAND_IN_FAIL_INIT` | `cuInit` gives this code |
//! | `CUDA_STAND_IN_FAIL_JIT` | 1: no text compiles, and the log says so |
//! | `CUDA_STAND_IN_FAIL_ALLOCATION` | the allocation of this number, from 1, is out of memory |
//! | `CUDA_STAND_IN_MOST_DOWN` | a copy of more bytes than these to the host is refused |
//! | `CUDA_STAND_IN_FAIL_LAUNCH` | `N:CODE`: the kernel that runs as number N, from 1, fails, and with it all that follows |

/// What the environment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Faults {
    pub(crate) kind: String,
    pub(crate) devices: i32,
    pub(crate) memory: usize,
    pub(crate) capability: i32,
    pub(crate) pools: bool,
    pub(crate) fail_init: Option<u32>,
    pub(crate) fail_jit: bool,
    pub(crate) fail_allocation: Option<u64>,
    pub(crate) most_down: Option<u64>,
    pub(crate) fail_launch: Option<(u64, u32)>,
}

impl Faults {
    pub(crate) fn from_env() -> Self {
        let text = |name: &str| std::env::var(format!("CUDA_STAND_IN_{name}")).ok();
        let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
        let launch = text("FAIL_LAUNCH").and_then(|text| {
            let (number, code) = text.split_once(':')?;
            Some((number.parse().ok()?, code.parse().ok()?))
        });
        Self {
            kind: text("KIND").map_or_else(String::new, |kind| format!(" {kind}")),
            devices: number("DEVICES").unwrap_or(1) as i32,
            memory: number("MEMORY").unwrap_or(256 << 20) as usize,
            capability: number("CAPABILITY").unwrap_or(90) as i32,
            pools: number("POOLS") != Some(0),
            fail_init: number("FAIL_INIT").map(|code| code as u32),
            fail_jit: number("FAIL_JIT") == Some(1),
            fail_allocation: number("FAIL_ALLOCATION"),
            most_down: number("MOST_DOWN"),
            fail_launch: launch,
        }
    }
}
