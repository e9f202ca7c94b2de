//! Webhooks: messages of an outbox that are sent as signed requests, and a layer for their receivers.
//!
//! A webhook is a POST with JSON. Its `Idempotency-Key` is the key of the message, the same at every attempt. Its
//! `Webhook-Signature` is `t=SECONDS,v1=HEX`: an HMAC-SHA256, with the shared secret, of the timestamp, the key and the
//! body, with a line feed after each of the first two. The signature covers the key, so that an attacker cannot send a
//! copy under another one.
//!
//! [`IdempotencyLayer::webhooks`](crate::IdempotencyLayer::webhooks) is the receiving side: it verifies the signature
//! and its time, and runs each key once.

#[cfg(feature = "send")]
mod addresses;
#[cfg(feature = "send")]
mod send;
mod signature;

#[cfg(feature = "send")]
pub use send::{WebhookOptions, WebhookSender};
pub use signature::{SIGNATURE, Secret, Verifier, sign};
