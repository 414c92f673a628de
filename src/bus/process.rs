//! Process hosts. Placeholder.
