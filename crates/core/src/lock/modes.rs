//! Lock modes and their compatibility, as data.

use std::fmt;

/// The maximum number of modes of a functor.
pub const MOST_MODES: usize = 8;

/// The only mode of a plain mutex, and the first of every other table.
pub const EXCLUSIVE: Mode = Mode::new(0);
/// The mode of [`Modes::READ_WRITE`] that excludes all other holders.
pub const WRITE: Mode = Mode::new(0);
/// The mode of [`Modes::READ_WRITE`] that readers share.
pub const READ: Mode = Mode::new(1);

/// A mode of holding a lock: an index into the functor's [`Modes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode(u8);

impl Mode {
    /// Returns the mode at that index of the names.
    ///
    /// # Panics
    /// When the index is not below [`MOST_MODES`]; at compile time where it is a constant.
    #[must_use]
    pub const fn new(place: u8) -> Self {
        assert!((place as usize) < MOST_MODES, "a functor has at most 8 modes");
        Self(place)
    }

    /// Returns the index among the names.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }

    pub(super) const fn bit(self) -> u8 {
        1 << self.0
    }
}

/// The names of the modes and their compatible pairs. The modes of every other pair exclude each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    names: &'static [&'static str],
    /// For each mode, the bits of its compatible modes.
    together: [u8; MOST_MODES],
}

impl Modes {
    /// A plain mutex: one mode that excludes itself.
    pub const EXCLUSIVE: Self = Self::new(&["exclusive"], &[]);
    /// A reader-writer lock with [`WRITE`] and [`READ`]: readers share it, and a writer holds it alone.
    pub const READ_WRITE: Self = Self::new(&["write", "read"], &[(READ, READ)]);

    /// Creates a table of modes. A pair counts in both directions. A request without a mode uses the first one.
    ///
    /// # Panics
    /// When there is no name, more than [`MOST_MODES`] names, or a pair with an unnamed mode; at compile time in a
    /// `static`.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "checked by the assertions, and done by the compiler in a static"
    )]
    pub const fn new(names: &'static [&'static str], together: &[(Mode, Mode)]) -> Self {
        assert!(!names.is_empty() && names.len() <= MOST_MODES, "a functor has 1 to 8 modes");
        let mut table = [0; MOST_MODES];
        let mut i = 0;
        while i < together.len() {
            let (a, b) = together[i];
            assert!(
                a.place() < names.len() && b.place() < names.len(),
                "a pair names a mode that has no name"
            );
            table[a.place()] |= b.bit();
            table[b.place()] |= a.bit();
            i += 1;
        }
        Self { names, together: table }
    }

    /// Returns whether two holders may have these modes at the same time.
    #[must_use]
    pub fn compatible(&self, a: Mode, b: Mode) -> bool {
        self.together_with(a) & b.bit() != 0
    }

    /// Returns the name of a mode; `None` when the table has no such mode.
    #[must_use]
    pub fn name(&self, mode: Mode) -> Option<&'static str> {
        self.names.get(mode.place()).copied()
    }

    /// Returns whether a holder may downgrade from `from` to `to`: every mode compatible with `from` must be compatible
    /// with `to`.
    #[must_use]
    pub fn steps_down(&self, from: Mode, to: Mode) -> bool {
        self.name(to).is_some() && self.together_with(from) & !self.together_with(to) == 0
    }

    /// Returns the bits of the modes that are compatible with the mode.
    pub(super) fn together_with(&self, mode: Mode) -> u8 {
        self.together.get(mode.place()).copied().unwrap_or(0)
    }

    pub(super) fn names(&self) -> &'static [&'static str] {
        self.names
    }
}

impl fmt::Debug for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names).finish()
    }
}
