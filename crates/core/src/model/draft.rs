//! JSON text that deltas edit in place. Only containers on the path of a delta are parsed. All other text is copied unchanged,
//! so that no number is rounded. The cost of a merge depends on the length of the document, not on the number of deltas.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use foldhash::HashMap;

use super::delta::{Delta, DeltaError};
use super::limits;
use crate::payload::{Payload, decimal, parts};

/// A value under edit.
#[derive(Debug)]
pub struct Draft {
    root: Node,
    /// The length of the text.
    bytes: usize,
    /// An upper bound of the nesting depth.
    depth: usize,
}

/// A part of the value.
#[derive(Debug)]
enum Node {
    /// Unparsed text that no delta has entered.
    Text(Slice),
    Array(Vec<Node>),
    Object(Object),
}

/// A part of a shared text.
#[derive(Clone, Debug)]
struct Slice {
    text: Arc<str>,
    range: Range<usize>,
}

#[derive(Debug, Default)]
struct Object {
    /// Fields in the order of the text. A removed field is `None`.
    fields: Vec<Option<(Slice, Node)>>,
    places: HashMap<String, usize>,
}

impl Draft {
    /// Creates a draft from a value.
    #[must_use]
    pub fn of(value: &Payload) -> Self {
        let text = Slice::whole(value.shared());
        Self { bytes: text.range.len(), depth: limits::depth(value.as_str()), root: Node::Text(text) }
    }

    /// Applies a delta.
    ///
    /// # Errors
    /// [`DeltaError`] when the value at the path, or on the path to it, is of another kind, or a sum cannot be exact. The draft may
    /// then be changed in part.
    pub fn apply(&mut self, delta: &Delta) -> Result<(), DeltaError> {
        let path = tokens(delta.path())?;
        if let Delta::Remove { .. } = delta {
            return self.remove(&path);
        }
        let brought = match delta.value() {
            Some(value) => Slice::of(value)?,
            None => Slice::whole("".into()),
        };
        let mut at = &mut self.root;
        for token in &path {
            at = step(at, token, &mut self.bytes)?;
        }
        let mut depth = path.len() + limits::depth(brought.as_str());
        match delta {
            Delta::Inc { by, .. } => {
                let sum = match at.scalar()? {
                    "null" => by.to_string(),
                    number => decimal::add(number, &by.to_string()).ok_or_else(|| DeltaError {
                        needed: "a sum that is exact",
                        found: format!("the number {number}"),
                    })?,
                };
                put(at, Node::Text(Slice::whole(sum.into())), &mut self.bytes);
            }
            Delta::Push { .. } => {
                depth += 1;
                push(at, brought, &mut self.bytes)?;
            }
            Delta::Set { .. } | Delta::Remove { .. } => put(at, Node::Text(brought), &mut self.bytes),
        }
        self.depth = self.depth.max(depth);
        Ok(())
    }

    /// Returns the length of the value's text in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns an upper bound of the nesting depth. It is recomputed only when it exceeds `enough`.
    pub(super) fn depth(&mut self, enough: usize) -> usize {
        if self.depth > enough {
            // A deep part may have been replaced.
            self.depth = limits::depth(&self.text());
        }
        self.depth
    }

    /// Returns the current value.
    #[must_use]
    pub fn payload(&self) -> Payload {
        Payload::trusted(self.text())
    }

    fn text(&self) -> String {
        let mut text = String::with_capacity(self.bytes);
        self.root.write(&mut text);
        text
    }

    fn remove(&mut self, path: &[String]) -> Result<(), DeltaError> {
        let Some((last, way)) = path.split_last() else {
            put(&mut self.root, Node::null(), &mut self.bytes);
            return Ok(());
        };
        let mut at = &mut self.root;
        for token in way {
            at.open(&mut self.bytes)?;
            at = match at {
                // There is no field to remove, and a removal must not create the path to it.
                Node::Text(_) if at.is_null() => return Ok(()),
                Node::Object(object) => match object.find(token) {
                    Some(node) => node,
                    None => return Ok(()),
                },
                other => step(other, token, &mut self.bytes)?,
            };
        }
        at.open(&mut self.bytes)?;
        let gone = match at {
            Node::Object(object) => object.take(last),
            Node::Array(items) => {
                let found = last.parse::<usize>().ok().filter(|i| *i < items.len());
                found.map(|i| items.remove(i).length())
            }
            Node::Text(_) if at.is_null() => None,
            Node::Text(_) => return Err(at.misfit("an object or an array")),
        };
        if let Some(length) = gone {
            // The comma is removed with it, unless it was the last part.
            self.bytes -= length + usize::from(at.parts() > 0);
        }
        Ok(())
    }
}

/// Returns the node that a path step selects. Creates a missing field.
fn step<'a>(at: &'a mut Node, token: &str, bytes: &mut usize) -> Result<&'a mut Node, DeltaError> {
    if at.is_null() {
        put(at, Node::Object(Object::default()), bytes);
    }
    at.open(bytes)?;
    match at {
        Node::Object(object) => Ok(object.find_or_add(token, bytes)?),
        Node::Array(items) => {
            let length = items.len();
            let element = token.parse::<usize>().ok().and_then(|i| items.get_mut(i));
            element.ok_or(DeltaError {
                needed: "an element that exists",
                found: format!("an array of {length}"),
            })
        }
        Node::Text(_) => Err(at.misfit("an object on the way")),
    }
}

/// Replaces a node with another.
fn put(at: &mut Node, node: Node, bytes: &mut usize) {
    *bytes += node.length();
    *bytes -= mem::replace(at, node).length();
}

fn push(at: &mut Node, element: Slice, bytes: &mut usize) -> Result<(), DeltaError> {
    if at.is_null() {
        put(at, Node::Array(Vec::new()), bytes);
    }
    at.open(bytes)?;
    let Node::Array(items) = at else { return Err(at.misfit("an array")) };
    *bytes += element.range.len() + usize::from(!items.is_empty());
    items.push(Node::Text(element));
    Ok(())
}

impl Node {
    fn null() -> Self {
        Self::Text(Slice::whole("null".into()))
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Text(text) if text.as_str() == "null")
    }

    /// Parses a container into its parts. Whitespace between the parts is dropped. Of fields with the same name, the last one
    /// counts.
    fn open(&mut self, bytes: &mut usize) -> Result<(), DeltaError> {
        let Self::Text(text) = self else { return Ok(()) };
        let is_object = match text.as_str().as_bytes().first() {
            Some(b'{') => true,
            Some(b'[') => false,
            _ => return Ok(()),
        };
        let broken = || DeltaError { needed: "JSON", found: "a text that is none".to_owned() };
        let found = parts::split(text.as_str()).ok_or_else(broken)?;
        let node = if is_object {
            let mut object = Object::default();
            for part in found {
                object.insert(text.part(part.name), Self::Text(text.part(part.value))).ok_or_else(broken)?;
            }
            Self::Object(object)
        } else {
            Self::Array(found.into_iter().map(|part| Self::Text(text.part(part.value))).collect())
        };
        put(self, node, bytes);
        Ok(())
    }

    /// Returns the text of a number or of null.
    fn scalar(&self) -> Result<&str, DeltaError> {
        match self {
            Self::Text(text) if self.is_null() || text.is_number() => Ok(text.as_str()),
            _ => Err(self.misfit("a number")),
        }
    }

    /// Returns the number of parts of a container.
    fn parts(&self) -> usize {
        match self {
            Self::Text(text) => parts::split(text.as_str()).map_or(0, |parts| parts.len()),
            Self::Array(items) => items.len(),
            Self::Object(object) => object.places.len(),
        }
    }

    /// Returns the length of the text.
    fn length(&self) -> usize {
        match self {
            Self::Text(text) => text.range.len(),
            Self::Array(items) => items.iter().map(|item| item.length() + 1).sum::<usize>().max(1) + 1,
            Self::Object(object) => {
                let fields = object.fields.iter().flatten();
                fields.map(|(name, node)| name.range.len() + node.length() + 2).sum::<usize>().max(1) + 1
            }
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(text.as_str()),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(object) => {
                out.push('{');
                for (i, (name, node)) in object.fields.iter().flatten().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    out.push_str(name.as_str());
                    out.push(':');
                    node.write(out);
                }
                out.push('}');
            }
        }
    }

    fn misfit(&self, needed: &'static str) -> DeltaError {
        let found = match self {
            Self::Array(_) => format!("an array of {}", self.parts()),
            Self::Object(_) => "an object".to_owned(),
            Self::Text(text) => match text.as_str().as_bytes().first() {
                Some(b'[') => format!("an array of {}", self.parts()),
                Some(b'{') => "an object".to_owned(),
                Some(b'"') => "a text".to_owned(),
                Some(b't' | b'f') => "a boolean".to_owned(),
                _ if text.is_number() => {
                    format!("the number {}", text.as_str().chars().take(80).collect::<String>())
                }
                _ => "null".to_owned(),
            },
        };
        DeltaError { needed, found }
    }
}

impl Object {
    fn insert(&mut self, name: Slice, node: Node) -> Option<()> {
        let plain = plain_name(name.as_str())?;
        match self.places.get(&plain).and_then(|place| self.fields.get_mut(*place)) {
            Some(field) => *field = Some((name, node)),
            None => {
                self.places.insert(plain, self.fields.len());
                self.fields.push(Some((name, node)));
            }
        }
        Some(())
    }

    fn find(&mut self, name: &str) -> Option<&mut Node> {
        let place = *self.places.get(name)?;
        self.fields.get_mut(place)?.as_mut().map(|(_, node)| node)
    }

    fn find_or_add(&mut self, name: &str, bytes: &mut usize) -> Result<&mut Node, DeltaError> {
        let place = match self.places.get(name) {
            Some(place) => *place,
            None => {
                let (written, node) = (Slice::of(name)?, Node::null());
                let comma = usize::from(!self.places.is_empty());
                *bytes += written.range.len() + node.length() + 1 + comma;
                self.places.insert(name.to_owned(), self.fields.len());
                self.fields.push(Some((written, node)));
                self.fields.len() - 1
            }
        };
        let missing = || DeltaError { needed: "a field", found: format!("none of the name {name:?}") };
        self.fields.get_mut(place).and_then(Option::as_mut).map(|(_, node)| node).ok_or_else(missing)
    }

    /// Removes a field and returns the length of its text, without a comma.
    fn take(&mut self, name: &str) -> Option<usize> {
        let place = self.places.remove(name)?;
        let (name, node) = self.fields.get_mut(place)?.take()?;
        Some(name.range.len() + node.length() + 1)
    }
}

impl Slice {
    fn whole(text: Arc<str>) -> Self {
        let trimmed = text.trim_ascii();
        let from = text.len() - text.trim_ascii_start().len();
        let range = from..from + trimmed.len();
        Self { text, range }
    }

    /// Serialises a value as text.
    fn of(value: &(impl serde::Serialize + ?Sized)) -> Result<Self, DeltaError> {
        let text = serde_json::to_string(value).map_err(|error| DeltaError {
            needed: "a value that can be written",
            found: error.to_string(),
        })?;
        Ok(Self::whole(text.into()))
    }

    /// Returns a part of this text.
    fn part(&self, range: Range<usize>) -> Self {
        let from = self.range.start;
        Self { text: Arc::clone(&self.text), range: from + range.start..from + range.end }
    }

    fn as_str(&self) -> &str {
        self.text.get(self.range.clone()).unwrap_or_default()
    }

    fn is_number(&self) -> bool {
        self.as_str().starts_with(|c: char| c == '-' || c.is_ascii_digit())
    }
}

/// Returns the name of a field without quotes and escapes.
fn plain_name(written: &str) -> Option<String> {
    if written.contains('\\') {
        return serde_json::from_str(written).ok();
    }
    Some(written.strip_prefix('"')?.strip_suffix('"')?.to_owned())
}

fn tokens(path: &str) -> Result<Vec<String>, DeltaError> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let Some(rest) = path.strip_prefix('/') else {
        return Err(DeltaError { needed: "a path that begins with /", found: format!("{path:?}") });
    };
    if rest.matches('/').count() >= limits::PATH_STEPS {
        return Err(DeltaError { needed: "a path of at most 64 steps", found: "a longer one".to_owned() });
    }
    Ok(rest.split('/').map(|t| t.replace("~1", "/").replace("~0", "~")).collect())
}
