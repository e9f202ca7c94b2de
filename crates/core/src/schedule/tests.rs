//! Records as they are stored, and how they change.
