//! SQLite journal. Placeholder.
