//! How urgent a caller says a request is.

/// The class of a request, least urgent first.
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
