//! Tidelock's locks.

use tidelock_core::lock::{Functor, Guard, Locks, OwnedGuard, Term};

use super::{Failed, HoldAll, KIND, Keyed};

static FUNCTOR: Functor = Functor::new(KIND);

/// A table of Tidelock's locks.
#[derive(Clone, Debug, Default)]
pub struct Ours(Locks);

fn terms(count: u32) -> Result<Vec<Term>, Failed> {
    (0..count).map(|number| Ok(FUNCTOR.term([number])?)).collect()
}

impl Keyed for Ours {
    type Key = Term;
    type Guard<'a> = Guard<'a>;

    fn with_keys(count: u32) -> Result<(Self, Vec<Term>), Failed> {
        Ok((Self::default(), terms(count)?))
    }

    async fn lock<'a>(&'a self, key: &'a Term) -> Result<Guard<'a>, Failed> {
        Ok(self.0.lock(key).await?)
    }
}

impl HoldAll for Ours {
    type Owned = OwnedGuard;

    async fn hold(&self, key: &Term) -> Result<OwnedGuard, Failed> {
        Ok(self.0.lock_owned(key).await?)
    }
}
