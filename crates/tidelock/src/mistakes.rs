//! Common mistakes with workflows and handlers, as documentation tests that must not compile. Each follows the correct version,
//! which differs in the relevant line only, so that the mistake cannot fail for another reason. The guide shows the
//! compiler's messages.

/// A value that is not `Send`, held over an await.
///
/// ```
/// # use std::rc::Rc;
/// # use std::sync::Arc;
/// # use tidelock::prelude::*;
/// # use tidelock::workflow::{Ctx, Failure, Worker, Workflow};
/// const COUNT: Workflow<u32, u32> = Workflow::new("count");
/// async fn count(cx: &Ctx, n: u32) -> Result<u32, Failure> {
///     let seen = Arc::new(n);
///     cx.step("one", async |_| Ok(())).await?;
///     Ok(*seen)
/// }
/// # fn worker(store: SharedStore) -> Worker {
/// Worker::new(store).register(COUNT, count)
/// # }
/// ```
///
/// The mistake:
///
/// ```compile_fail
/// # use std::rc::Rc;
/// # use std::sync::Arc;
/// # use tidelock::prelude::*;
/// # use tidelock::workflow::{Ctx, Failure, Worker, Workflow};
/// const COUNT: Workflow<u32, u32> = Workflow::new("count");
/// async fn count(cx: &Ctx, n: u32) -> Result<u32, Failure> {
///     let seen = Rc::new(n);
///     cx.step("one", async |_| Ok(())).await?;
///     Ok(*seen)
/// }
/// # fn worker(store: SharedStore) -> Worker {
/// Worker::new(store).register(COUNT, count)
/// # }
/// ```
struct NotSend;

/// A step that changes a variable of its workflow: a replay would miss the change.
///
/// ```
/// # use std::rc::Rc;
/// # use std::sync::Arc;
/// # use tidelock::prelude::*;
/// # use tidelock::workflow::{Ctx, Failure, Worker, Workflow};
/// const COUNT: Workflow<u32, u32> = Workflow::new("count");
/// async fn count(cx: &Ctx, n: u32) -> Result<u32, Failure> {
///     let mut sum = n;
///     sum += cx.step("one", async |_| Ok(1)).await?;
///     Ok(sum)
/// }
/// # fn worker(store: SharedStore) -> Worker {
/// Worker::new(store).register(COUNT, count)
/// # }
/// ```
///
/// The mistake:
///
/// ```compile_fail,E0277
/// # use std::rc::Rc;
/// # use std::sync::Arc;
/// # use tidelock::prelude::*;
/// # use tidelock::workflow::{Ctx, Failure, Worker, Workflow};
/// const COUNT: Workflow<u32, u32> = Workflow::new("count");
/// async fn count(cx: &Ctx, n: u32) -> Result<u32, Failure> {
///     let mut sum = n;
///     cx.step("one", async |_| { sum += 1; Ok(()) }).await?;
///     Ok(sum)
/// }
/// # fn worker(store: SharedStore) -> Worker {
/// Worker::new(store).register(COUNT, count)
/// # }
/// ```
struct ChangesVariable;

/// A handler that captures a value that cannot be cloned: each call gets a clone.
///
/// ```
/// # use std::sync::Arc;
/// # use std::sync::atomic::{AtomicU32, Ordering};
/// # use tidelock::prelude::*;
/// let seen = Arc::new(AtomicU32::new(0));
/// let count = Reaction::new("count").each(async move |_, _| {
///     seen.fetch_add(1, Ordering::Relaxed);
///     Ok(())
/// });
/// # drop(count);
/// ```
///
/// The mistake:
///
/// ```compile_fail,E0277
/// # use std::sync::Arc;
/// # use std::sync::atomic::{AtomicU32, Ordering};
/// # use tidelock::prelude::*;
/// let seen = AtomicU32::new(0);
/// let count = Reaction::new("count").each(async move |_, _| {
///     seen.fetch_add(1, Ordering::Relaxed);
///     Ok(())
/// });
/// # drop(count);
/// ```
struct CaptureNotClone;

/// Code with another output than its workflow.
///
/// ```
/// # use std::rc::Rc;
/// # use std::sync::Arc;
/// # use tidelock::prelude::*;
/// # use tidelock::workflow::{Ctx, Failure, Worker, Workflow};
/// const COUNT: Workflow<u32, u32> = Workflow::new("count");
/// async fn count(_: &Ctx, n: u32) -> Result<u32, Failure> {
///     Ok(n)
/// }
/// # fn worker(store: SharedStore) -> Worker {
/// Worker::new(store).register(COUNT, count)
/// # }
/// ```
///
/// The mistake:
///
/// ```compile_fail,E0271
/// # use std::rc::Rc;
/// # use std::sync::Arc;
/// # use tidelock::prelude::*;
/// # use tidelock::workflow::{Ctx, Failure, Worker, Workflow};
/// const COUNT: Workflow<u32, u32> = Workflow::new("count");
/// async fn count(_: &Ctx, n: u32) -> Result<String, Failure> {
///     Ok(n.to_string())
/// }
/// # fn worker(store: SharedStore) -> Worker {
/// Worker::new(store).register(COUNT, count)
/// # }
/// ```
struct OtherOutput;

/// Code with another input than its workflow.
///
/// ```
/// # use std::rc::Rc;
/// # use std::sync::Arc;
/// # use tidelock::prelude::*;
/// # use tidelock::workflow::{Ctx, Failure, Worker, Workflow};
/// const COUNT: Workflow<u32, u32> = Workflow::new("count");
/// async fn count(_: &Ctx, n: u32) -> Result<u32, Failure> {
///     Ok(n)
/// }
/// # fn worker(store: SharedStore) -> Worker {
/// Worker::new(store).register(COUNT, count)
/// # }
/// ```
///
/// The mistake:
///
/// ```compile_fail,E0631
/// # use std::rc::Rc;
/// # use std::sync::Arc;
/// # use tidelock::prelude::*;
/// # use tidelock::workflow::{Ctx, Failure, Worker, Workflow};
/// const COUNT: Workflow<u32, u32> = Workflow::new("count");
/// async fn count(_: &Ctx, n: String) -> Result<u32, Failure> {
///     Ok(n.len() as u32)
/// }
/// # fn worker(store: SharedStore) -> Worker {
/// Worker::new(store).register(COUNT, count)
/// # }
/// ```
struct OtherInput;
