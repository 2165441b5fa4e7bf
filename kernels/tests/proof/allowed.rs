//! The planted bugs that cannot change a result, nor make a kernel touch what it must not: each with
//! its reason.
//!
//! An allowance names the instruction that is changed, with registers as R and labels as L, and, where
//! that alone would cover others, the instructions before it. One that takes out less than it says
//! fails: the list holds nothing that is not needed.

/// Mutations that a kernel may have uncaught.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// A part of the names of the kernels.
    entries: &'static str,
    class: &'static str,
    /// The instruction, after those that come before it.
    code: &'static [&'static str],
    /// How many of them a kernel has, at most.
    pub(crate) most: usize,
    #[expect(dead_code, reason = "for readers, here and in a failure's message")]
    why: &'static str,
}

impl Allowance {
    /// Whether it is about this change to the last line of `text`.
    pub(crate) fn covers(&self, entry: &str, class: &str, text: &[&str]) -> bool {
        let mut before = text
            .iter()
            .rev()
            .map(|line| normalised(line))
            .filter(|line| !line.is_empty());
        entry.contains(self.entries)
            && class == self.class
            && self
                .code
                .iter()
                .rev()
                .all(|code| before.next().is_some_and(|line| line == *code))
    }
}

/// An instruction without its registers' numbers and its labels' names.
fn normalised(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let end = word.trim_start_matches(|c| c != ',' && c != ';');
        match word.chars().next() {
            Some('@') => "@R".to_owned(),
            Some('%') => format!("R{end}"),
            Some('$') => format!("L{end}"),
            _ => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

const fn bound(
    entries: &'static str,
    code: &'static [&'static str],
    most: usize,
    why: &'static str,
) -> Allowance {
    Allowance {
        entries,
        class: "bound",
        code,
        most,
        why,
    }
}

const fn index(
    entries: &'static str,
    code: &'static [&'static str],
    most: usize,
    why: &'static str,
) -> Allowance {
    Allowance {
        entries,
        class: "index",
        code,
        most,
        why,
    }
}

const SINGLE_STEPS: &str =
    "what the unrolled loop leaves, the loop over single steps does, in the same order";
const WHOLE_BLOCKS: &str = "a multiple of 256 is never equal to the number it is compared with";
const PAIR_OF_LANES: &str = "either lane of a pair may write their sum";
const THROWN_AWAY: &str = "what a turn more than the segment's blocks gives is thrown away";
const NO_SEGMENT: &str = "what a turn more than the segments gives is thrown away";
const WITHIN: &str = "the turns of a segment end before the greater bound too";
const TURNS: &str = "it counts turns alone, and as many of them";
const WRITES_NOTHING: &str = "a turn beyond the group's outputs writes nothing";
const EQUAL_KEYS: &str = "keys that are equal may change places";
const POWERS_OF_TWO: &str = "the size, a power of two, is never equal to the bound";
const ADDED_TO_ONE: &str = "exp(-87.33) and 0 are the same when added to 1";
const COPIES_NOTHING: &str = "a chunk more copies nothing: each copy is bounded by the elements";
const SMALL_QUOTIENT: &str =
    "the greater multiplier gives the same quotient for a number as small as a block's pieces";
const BEYOND_COLUMNS: &str = "the row that is added is beyond the columns, and is not copied";
const ONE_AFTER_THE_OTHER: &str =
    "tiles' pieces lie one after the other: whatever divides them, piece i is at 16 i";
const ADDS_ZERO: &str = "a turn more than the segments adds +0 to totals that are not -0";
const FIRST_SEGMENT: &str = "the steps that are loaded first are of a part's first segment";
const FIRST_STEPS: &str =
    "the steps that are loaded first are of one block of 256, and so are twice as many";
const EIGHT_STEPS: &str = "a block of 256 has more steps than are loaded first";
const NEVER_EMPTY: &str = "a chunk has a position";
const SHORTER_CHUNKS: &str = "chunks of fewer positions give the same chains";

/// All of them.
pub(crate) const ALLOWED: &[Allowance] = &[
    bound("linear_", &["setp.gt.u32 R, R, R;"], 1, SINGLE_STEPS),
    bound("linear_", &["setp.le.u32 R, R, R;"], 1, SINGLE_STEPS),
    index("16_x1", &["add.s32 R, R, 16;"], 1, SINGLE_STEPS),
    index("linear_f32_x1", &["add.s32 R, R, 16;"], 1, SINGLE_STEPS),
    bound("_x8", &["setp.gt.u32 R, R, 767;"], 1, WHOLE_BLOCKS),
    bound("embed_", &["setp.ge.u32 R, R, R;"], 1, WHOLE_BLOCKS),
    bound("quantise_256", &["setp.eq.b32 R, R, 1;"], 1, PAIR_OF_LANES),
    bound("quantise_256", &["@R bra L;"], 1, PAIR_OF_LANES),
    bound(
        "silu_mul",
        &["setp.gt.f32 R, R, 0f42AEA8F6;"],
        1,
        ADDED_TO_ONE,
    ),
    bound(
        "gelu_mul",
        &["setp.gt.f32 R, R, 0f42AEA8F6;"],
        1,
        ADDED_TO_ONE,
    ),
    bound("_x1", &["setp.lt.u32 R, R, 16;"], 1, THROWN_AWAY),
    bound("_x1", &["setp.lt.u32 R, R, 2;"], 1, THROWN_AWAY),
    bound("_x1", &["setp.lt.u32 R, R, R;"], 1, NO_SEGMENT),
    index("_x1", &["add.s32 R, R, 16;"], 1, WITHIN),
    index("_x1", &["add.s32 R, R, 2;"], 1, WITHIN),
    index("_x1", &["add.s32 R, R, 4;"], 1, TURNS),
    bound("_x8", &["setp.lt.u32 R, R, 128;"], 2, WRITES_NOTHING),
    bound("top_k_", &["setp.gt.u64 R, R, R;"], 1, EQUAL_KEYS),
    bound("top_k_", &["setp.lt.u64 R, R, R;"], 1, EQUAL_KEYS),
    bound("top_k_", &["setp.lt.u32 R, R, 1025;"], 1, POWERS_OF_TWO),
    index(
        "_x64",
        &["shr.u32 R, R, 5;", "add.s32 R, R, 1;"],
        1,
        COPIES_NOTHING,
    ),
    bound(
        "_x64",
        &["shr.u32 R, R, 1;", "setp.ge.u32 R, R, R;"],
        1,
        COPIES_NOTHING,
    ),
    index(
        "_x64",
        &["mul.wide.u32 R, R, -1431655765;"],
        2,
        SMALL_QUOTIENT,
    ),
    index(
        "_x64",
        &["mul.wide.u32 R, R, -858993459;"],
        2,
        SMALL_QUOTIENT,
    ),
    bound(
        "attention_split_",
        &["min.u32 R, R, R;", "setp.le.u32 R, R, R;"],
        2,
        NEVER_EMPTY,
    ),
    bound(
        "attention_split_f16",
        &["setp.gt.u32 R, R, 16384;"],
        1,
        SHORTER_CHUNKS,
    ),
    index(
        "attention_split_f16",
        &["shr.u32 R, R, 1;"],
        1,
        SHORTER_CHUNKS,
    ),
    bound("_x64", &["setp.lt.u32 R, R, 64;"], 1, BEYOND_COLUMNS),
    index(
        "linear_q3_k_x64",
        &["mul.wide.u16 R, R, -21845;", "shr.u32 R, R, 20;"],
        1,
        ONE_AFTER_THE_OTHER,
    ),
    index("_narrow", &["add.s32 R, R, 15;"], 1, ADDS_ZERO),
    bound("_narrow", &["setp.lt.u32 R, R, R;"], 1, ADDS_ZERO),
    index("_narrow", &["shr.u32 R, R, 1;"], 1, FIRST_SEGMENT),
    index("_narrow", &["shr.u32 R, R, 4;"], 1, FIRST_SEGMENT),
    index("_narrow", &["shl.b32 R, R, 12;"], 1, FIRST_SEGMENT),
    index("_narrow", &["shl.b32 R, R, 7;"], 1, FIRST_SEGMENT),
    index(
        "_k_narrow",
        &["add.s32 R, R, 32;", "add.s32 R, R, 1;"],
        1,
        FIRST_STEPS,
    ),
    bound(
        "_k_wide",
        &[".pragma \"nounroll\";", "setp.ge.u32 R, R, R;"],
        1,
        EIGHT_STEPS,
    ),
    index(
        "fast_linear_q8_0_wide",
        &["mul.wide.u32 R, R, -252645135;"],
        2,
        SMALL_QUOTIENT,
    ),
];
