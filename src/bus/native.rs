//! Native hosts. Placeholder.
