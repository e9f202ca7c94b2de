//! Names that the project gave up for the terms of the field. They must not be defined again.

use std::fmt;

use super::super::tree::{File, Tree};

/// Stems of files, and names of module directories.
const FILES: &[&str] = &[
    "ask",
    "bare",
    "beside",
    "books",
    "broken",
    "calm",
    "careful",
    "cell",
    "claiming",
    "company",
    "crew",
    "crowd",
    "cut",
    "desk",
    "detached",
    "detour",
    "ending",
    "facts",
    "flight",
    "floor",
    "gate",
    "guard",
    "guesses",
    "hands",
    "haul",
    "holding",
    "hush",
    "hushed",
    "identity",
    "inspected",
    "kept",
    "leaving",
    "lifeline",
    "line",
    "lone",
    "loosened",
    "make",
    "measure",
    "names",
    "ours",
    "pace",
    "past",
    "patient",
    "place",
    "places",
    "play",
    "reader",
    "refuse",
    "routed",
    "screen",
    "seats",
    "settle",
    "shown",
    "sight",
    "span",
    "stalls",
    "stand",
    "survey",
    "tally",
    "ticket",
    "ticks",
    "timetable",
    "travel",
    "turn",
    "turns",
    "unit",
    "waits",
    "way",
    "when",
    "working",
    "yard",
];

/// Paths whose name is the term of the field.
const FINE: &[&str] = &["lock/guard", "lease/guard", "lock/queue"];

/// Types.
const TYPES: &[&str] = &[
    "Answer",
    "Ask",
    "Asked",
    "BadItem",
    "Books",
    "Broken",
    "Calm",
    "Closed",
    "Closing",
    "Company",
    "Consent",
    "Container",
    "Crowd",
    "Denied",
    "Doing",
    "Driving",
    "Fact",
    "Facts",
    "Fire",
    "Flow",
    "Functor",
    "Gap",
    "Hands",
    "Heard",
    "Held",
    "HeldTerm",
    "Hold",
    "Kept",
    "Known",
    "Lane",
    "Lasts",
    "Left",
    "Look",
    "Mark",
    "Meter",
    "Misfit",
    "Named",
    "News",
    "Party",
    "Past",
    "PastChange",
    "Pick",
    "Place",
    "ProjectError",
    "ReactionError",
    "Repeat",
    "Reserved",
    "Running",
    "RunningProjections",
    "Seat",
    "Sending",
    "Sight",
    "Situation",
    "States",
    "Stray",
    "Strays",
    "TaskError",
    "Term",
    "Timetable",
    "Told",
    "Turn",
    "Undelivered",
    "Unit",
    "Versions",
    "Way",
    "What",
    "When",
    "Which",
    "Whole",
];

/// Functions and methods.
const FUNCTIONS: &[&str] = &[
    "breathe",
    "carry_out",
    "clean_up",
    "distrust",
    "fair_for",
    "foresee",
    "given",
    "grace",
    "hears",
    "look",
    "look_again",
    "settle",
    "signal_within",
    "take_note",
    "tell",
    "that_are_blocked",
    "told",
    "would",
];

/// Whether a file, a type or a function has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Type,
    Function,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::File, Self::Type, Self::Function];

    /// Returns the name of the limit of this kind.
    pub(super) fn limit(self) -> &'static str {
        match self {
            Self::File => "retired-files",
            Self::Type => "retired-types",
            Self::Function => "retired-functions",
        }
    }
}

/// A definition with a retired name.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) kind: Kind,
    path: String,
    line: usize,
    name: String,
}

impl fmt::Display for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.name)
    }
}

/// Returns every definition with a retired name.
pub(super) fn find(tree: &Tree) -> Vec<Retired> {
    tree.rust().flat_map(|file| of_path(file).into_iter().chain(of_code(file))).collect()
}

fn of_path(file: &File) -> Option<Retired> {
    let stem = match file.name().strip_suffix(".rs")? {
        "mod" => file.path.rsplit('/').nth(1)?,
        stem => stem,
    };
    let is_fine = FINE.iter().any(|path| file.path.contains(path));
    (FILES.contains(&stem) && !is_fine).then(|| Retired::new(Kind::File, file, 1, stem))
}

fn of_code(file: &File) -> impl Iterator<Item = Retired> {
    file.lines().filter_map(move |(number, line)| {
        let (keyword, name) = definition(line)?;
        let (kind, retired) = match keyword {
            "fn" => (Kind::Function, FUNCTIONS),
            _ => (Kind::Type, TYPES),
        };
        retired.contains(&name).then(|| Retired::new(kind, file, number, name))
    })
}

impl Retired {
    fn new(kind: Kind, file: &File, line: usize, name: &str) -> Self {
        Self { kind, path: file.path.clone(), line, name: name.to_owned() }
    }
}

/// Returns the keyword and the name of the definition that a line opens with.
fn definition(line: &str) -> Option<(&str, &str)> {
    let mut words = line.split_whitespace();
    let mut word = words.next()?;
    while word == "pub" || word.starts_with("pub(") || matches!(word, "const" | "async" | "unsafe" | "crate)")
    {
        word = words.next()?;
    }
    if !matches!(word, "fn" | "struct" | "enum" | "trait" | "type") {
        return None;
    }
    let name = words.next()?.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    Some((word, name))
}

#[cfg(test)]
mod tests {
    use super::super::super::tree::Tree;
    use super::{definition, find};

    #[test]
    fn definitions_are_found_and_uses_are_not() {
        let text = "pub(crate) struct Kept<T>(T);\n    pub const fn told(&self) {}\nlet a = Kept(told());\n";
        let found = find(&Tree::of(&[("a.rs", text), ("core/hands/mod.rs", ""), ("core/lock/guard.rs", "")]));
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a.rs:1: Kept", "a.rs:2: told", "core/hands/mod.rs:1: hands"]);
    }

    #[test]
    fn definitions_are_read_with_their_visibility() {
        assert_eq!(definition("    pub(super) async fn tell<T>(a: T) {"), Some(("fn", "tell")));
        assert_eq!(definition("type Unit = ();"), Some(("type", "Unit")));
        assert_eq!(definition("// struct Unit"), None);
        assert_eq!(definition("let fn_name = 1;"), None);
    }
}
