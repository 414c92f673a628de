//! The envelope as XML text. Placeholder.
