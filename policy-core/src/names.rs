//! Printing the crate's enums by name, and parsing them back.

use core::fmt::{self, Write};

/// How many bytes of a refused value its error keeps.
const KEPT: usize = 32;

/// A text that names none of an enum's values.
///
/// It keeps the first 32 bytes of the text, cut at a character, since it owns no heap.
///
/// ```
/// use policy_core::PreemptionPolicy;
/// let error = "shortest".parse::<PreemptionPolicy>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     r#"unknown preemption policy "shortest": expected one of longest-first, lowest-priority"#
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    kind: &'static str,
    value: heapless::String<KEPT>,
    cut: bool,
    accepted: &'static [&'static str],
}

impl UnknownName {
    pub(crate) fn new(kind: &'static str, value: &str, accepted: &'static [&'static str]) -> Self {
        let kept = value.get(..value.floor_char_boundary(KEPT));
        let cut = value.len() > KEPT;
        let value = heapless::String::try_from(kept.unwrap_or_default()).unwrap_or_default();
        Self {
            kind,
            value,
            cut,
            accepted,
        }
    }

    /// The value that was refused, or its beginning.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What would have been accepted.
    pub const fn accepted(&self) -> &'static [&'static str] {
        self.accepted
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} \"", self.kind)?;
        // Not `{:?}`: what core writes to escape a string, the optimizer cannot prove free of panics.
        for char in self.value.chars() {
            match char {
                '"' | '\\' | '\0'..='\x1f' | '\x7f'..='\u{9f}' => {
                    write!(f, "{}", char.escape_default())?
                }
                _ => f.write_char(char)?,
            }
        }
        let dots = if self.cut { "…" } else { "" };
        write!(f, "\"{dots}: expected one of ")?;
        let mut comma = "";
        for name in self.accepted {
            write!(f, "{comma}{name}")?;
            comma = ", ";
        }
        Ok(())
    }
}

impl core::error::Error for UnknownName {}

/// Gives an enum its names: `ALL`, `name`, `Display` and `FromStr`, from one list.
macro_rules! named_enum {
    ($type:ident, $kind:literal, accepted $accepted:expr, $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name that it prints as and parses from.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            fn parse_name(text: &str) -> Result<Self, $crate::names::UnknownName> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err($crate::names::UnknownName::new($kind, text, $accepted)),
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
    ($type:ident, $kind:literal, $($variant:ident = $name:literal),+ $(,)?) => {
        $crate::names::named_enum!($type, $kind, accepted &[$($name),+], $($variant = $name),+);

        impl core::str::FromStr for $type {
            type Err = $crate::names::UnknownName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse_name(text)
            }
        }
    };
}
pub(crate) use named_enum;
