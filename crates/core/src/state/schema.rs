//! Document schema: its version, and the migrations from every older one.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::codec::Misread;

type Step = Arc<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

/// The version of a document's shape, stored in a field of the document, and the migrations from older shapes to it.
///
/// ```
/// use tidelock_core::state::Schema;
///
/// let schema = Schema::new().then(|mut version_1| {
///     version_1["tasks"] = serde_json::json!([]);
///     Ok(version_1)
/// });
/// assert_eq!(schema.version(), 2);
/// ```
#[derive(Clone)]
pub struct Schema {
    field: String,
    first: u64,
    steps: Vec<Step>,
}

impl Default for Schema {
    fn default() -> Self {
        Self::new()
    }
}

impl Schema {
    /// Creates a schema at version 1. A document without a version counts as this one.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(1)
    }

    /// Creates a schema at a version whose predecessors can no longer be read.
    #[must_use]
    pub fn starting_at(version: u64) -> Self {
        Self { field: "version".to_owned(), first: version, steps: Vec::new() }
    }

    /// Adds the next version, with the migration from the one before. The migration gets the document without its
    /// version. It runs when an old document is read, and its result is stored with the next write.
    #[must_use]
    pub fn then(mut self, step: impl Fn(Value) -> Result<Value, String> + Send + Sync + 'static) -> Self {
        self.steps.push(Arc::new(step));
        self
    }

    /// Stores the version in another field than `version`.
    #[must_use]
    pub fn field(mut self, name: &str) -> Self {
        name.clone_into(&mut self.field);
        self
    }

    /// Returns the version that is written.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.first.saturating_add(self.steps.len() as u64)
    }

    /// Returns the version of a document, and the document in the current shape, without its version.
    pub(super) fn upgrade(&self, mut document: Value) -> Result<(u64, Value), Misread> {
        let found = self.take_version(&mut document)?;
        let known = self.version();
        if found > known {
            return Err(Misread::Newer { found, known });
        }
        let Some(done) = found.checked_sub(self.first) else {
            let first = self.first;
            let reason = format!("it has schema {found}, and only {first} to {known} can be read");
            return Err(Misread::Misfit(reason));
        };
        let skipped = usize::try_from(done).unwrap_or(usize::MAX);
        for (step, from) in self.steps.iter().skip(skipped).zip(found..) {
            document = step(document).map_err(|reason| {
                Misread::Misfit(format!("the step from schema {from} to {} failed: {reason}", from + 1))
            })?;
        }
        Ok((found, document))
    }

    fn take_version(&self, document: &mut Value) -> Result<u64, Misread> {
        let field = &self.field;
        let Value::Object(fields) = document else {
            return Err(Misread::Misfit("it is no JSON object".to_owned()));
        };
        match fields.remove(field) {
            None => Ok(self.first.min(1)),
            Some(found) => found.as_u64().ok_or_else(|| {
                Misread::Misfit(format!("its field {field:?} is {found}, and no schema version"))
            }),
        }
    }

    /// Adds the version to a document.
    pub(super) fn mark(&self, document: Value) -> Result<Value, String> {
        let field = &self.field;
        let Value::Object(mut fields) = document else {
            return Err("a document must be a JSON object, to hold its schema's version".to_owned());
        };
        if fields.contains_key(field) {
            return Err(format!(
                "the field {field:?} holds the schema's version; rename the type's field, or choose another with \
                 Schema::field"
            ));
        }
        fields.insert(field.clone(), self.version().into());
        Ok(Value::Object(fields))
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("field", &self.field)
            .field("first", &self.first)
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}
