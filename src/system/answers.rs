//! What only the core writes. Placeholder.

/// A system payload.
pub struct Answer;
pub struct Huh;
pub struct ErrorCode;
pub struct ThreadStatus;
