//! Crypto-shredding of sensitive data in events: sealed for a subject, and unreadable once the subject is forgotten.
//!
//! Events never change, and copies of them are everywhere: snapshots, caches, projections, backups. So data that must
//! be forgotten one day is sealed before it is written. Every subject, for example a person, has its own random key in
//! a [`Vault`]. [`Vault::forget`] destroys that key, and with it everything that was sealed for the subject, wherever
//! it is.
//!
//! [`Sealed<T>`] replaces `T` in an event and in the state. It holds ciphertext only, so a fold needs no key, and no
//! snapshot holds the sealed value. Code that needs the value opens it at the moment of use.
//!
//! ```
//! use std::sync::Arc;
//!
//! use serde::{Deserialize, Serialize};
//! use tidelock_core::events::{Aggregate, Events};
//! use tidelock_core::store::MemoryStore;
//! use tidelock_sealed::{MasterKey, Opened, AssociatedData, Sealed, Vault};
//!
//! #[derive(Clone, Default, Serialize, Deserialize)]
//! struct Customer {
//!     email: Option<Sealed<String>>,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! enum CustomerEvent {
//!     Registered { email: Sealed<String> },
//! }
//!
//! impl Aggregate for Customer {
//!     const KIND: &'static str = "customer";
//!     type Event = CustomerEvent;
//!
//!     // The fold passes the sealed value on. It could not read it if it wanted to.
//!     fn apply(&mut self, event: &CustomerEvent) {
//!         let CustomerEvent::Registered { email } = event;
//!         self.email = Some(email.clone());
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let events = Events::new(Arc::new(MemoryStore::new())).snapshots::<Customer>(1);
//! let vault = Vault::new(Arc::new(MemoryStore::new()), MasterKey::generate()?);
//!
//! let place = AssociatedData::of(&Customer::stream("c-1")?, "email");
//! let email = vault.seal("c-1", &place, &"ada@example.com".to_owned()).await?;
//! events.append::<Customer>("c-1", [CustomerEvent::Registered { email }]).await?;
//!
//! let customer = events.load::<Customer>("c-1").await?.state;
//! let email = customer.email.as_ref().ok_or("no email")?;
//! assert_eq!(vault.open(email, &place).await?.value().as_deref(), Some("ada@example.com"));
//!
//! vault.forget("c-1").await?;
//! assert!(matches!(vault.open(email, &place).await?, Opened::Forgotten { .. }));
//! # Ok(())
//! # }
//! ```
//!
//! # What is stored
//!
//! A sealed value is a JSON object: `{"v": 1, "subject": …, "nonce": …, "ciphertext": …}`. The cipher is
//! XChaCha20-Poly1305 with a random nonce. The subject and the [`AssociatedData`] are authenticated with it: a ciphertext that
//! was changed, or moved to another stream, field or subject, does not open. The subject is readable: use an id, not a
//! name.
//!
//! A subject's key is a document `subject_key(<subject>)` in the store of the vault, wrapped by the [`MasterKey`],
//! which is in no store (envelope encryption). Keep these documents in another store than the events. A restored backup
//! of the events then does not bring back a destroyed key.
//!
//! # How soon is forgotten
//!
//! The vault that forgets, and its clones, stop at once. Other vaults on the same keys cache unwrapped keys for at most
//! [`VaultOptions::cache_for`], 60 seconds by default, and may open and seal during that time. With zero they read the store
//! each time.

mod associated_data;
mod cache;
mod cipher;
mod data_keys;
mod error;
mod master_key;
mod record;
mod rotate;
mod value;
mod vault;

pub use associated_data::AssociatedData;
pub use error::SealedError;
pub use master_key::{MasterKey, MasterKeyId};
pub use rotate::Rewrapped;
pub use value::{Opened, Sealed};
pub use vault::{Vault, VaultOptions};
