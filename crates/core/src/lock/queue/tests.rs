//! The queue against a plain list, by random operations.
