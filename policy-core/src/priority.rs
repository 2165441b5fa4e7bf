//! How urgent a caller says a request is.

use core::str::FromStr;

use crate::names::{UnknownName, named_enum};

/// The class of a request, least urgent first.
///
/// It prints as `low`, `normal` or `high` and parses from these names. It also comes from a number
/// in the convention of the field, in which a *lower* number is more urgent: negative is high, 0 is
/// normal, positive is low, whether as an integer or as its decimal text.
///
/// ```
/// use policy_core::RequestPriority;
/// assert_eq!("high".parse(), Ok(RequestPriority::High));
/// assert_eq!("-3".parse(), Ok(RequestPriority::High));
/// assert_eq!(RequestPriority::from(0), RequestPriority::Normal);
/// assert_eq!(RequestPriority::from(10).to_string(), "low");
/// assert!(RequestPriority::Low < RequestPriority::High);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestPriority {
    /// Gives way to everything else.
    Low = 0,
    /// The class of a request that names none.
    #[default]
    Normal = 1,
    /// Displaces the lower classes when there is no seat left.
    High = 2,
}

named_enum!(
    RequestPriority,
    "priority",
    accepted & ["low", "normal", "high", "an integer (lower is more urgent)"],
    Low = "low",
    Normal = "normal",
    High = "high",
);

impl RequestPriority {
    /// How many classes are more urgent: 0 for high, 1 for normal, 2 for low.
    pub const fn classes_above(self) -> u64 {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }
}

impl From<i64> for RequestPriority {
    /// Negative is high, 0 is normal, positive is low.
    fn from(number: i64) -> Self {
        match number {
            ..=-1 => Self::High,
            0 => Self::Normal,
            1.. => Self::Low,
        }
    }
}

impl FromStr for RequestPriority {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        text.parse::<i64>()
            .map(Self::from)
            .or_else(|_| Self::parse_name(text))
    }
}
