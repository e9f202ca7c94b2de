//! Properties of the pure decisions.
