//! The settings: what they are called, what they may be, and which arguments they stand behind. One table for the file, the
//! environment, `config show`, the schema and the checks.

/// What a setting may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// Where a store is. It may hold a password, and a path counts from the directory of the file.
    Store,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A span of time such as `2s`.
    Span,
    /// An address to listen on.
    Socket,
}

impl Kind {
    /// What is expected, in a few words.
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Text => "a text".to_owned(),
            Self::Store => "a text: a path, sqlite://PATH or postgres://…".to_owned(),
            Self::OneOf(words) => format!("one of {}", words.join(", ")),
            Self::Span => "a text with a span of time, such as \"2s\" or \"500ms\"".to_owned(),
            Self::Socket => "a text with an address and a port, such as \"127.0.0.1:4400\"".to_owned(),
        }
    }

    /// Whether a text is such a value.
    pub(crate) fn takes(self, text: &str) -> bool {
        match self {
            Self::Text | Self::Store => !text.is_empty(),
            Self::OneOf(words) => words.contains(&text),
            Self::Span => crate::args::every(text).is_ok(),
            Self::Socket => text.parse::<std::net::SocketAddr>().is_ok(),
        }
    }
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Its key in the file, with its table.
    pub(crate) key: &'static str,
    /// Its variable.
    pub(crate) env: &'static str,
    /// Another variable that is understood, after the first.
    pub(crate) also_env: Option<&'static str>,
    /// The id of the argument that it stands behind.
    pub(crate) arg: &'static str,
    /// The verbs that have the argument; empty for all whose argument has the variable.
    pub(crate) verbs: &'static [&'static str],
    pub(crate) kind: Kind,
    /// What it is when nobody says; `None` when it must be said, or is not there.
    pub(crate) default: Option<&'static str>,
    pub(crate) about: &'static str,
    /// The first version that knows it.
    pub(crate) since: &'static str,
}

impl Setting {
    /// The setting, without verbs of its own.
    const fn new(
        key: &'static str,
        env: &'static str,
        arg: &'static str,
        kind: Kind,
        about: &'static str,
    ) -> Self {
        Self { key, env, also_env: None, arg, verbs: &[], kind, default: None, about, since: "0.1.0" }
    }

    const fn or(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    const fn of(mut self, verbs: &'static [&'static str]) -> Self {
        self.verbs = verbs;
        self
    }

    const fn also(mut self, env: &'static str) -> Self {
        self.also_env = Some(env);
        self
    }
}

/// All of them, in the order in which they are shown.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting::new("store", "TIDELOCK_STORE", "store", Kind::Store, "The store of all verbs that have --store")
        .also("DATABASE_URL"),
    Setting::new("schema", "TIDELOCK_SCHEMA", "schema", Kind::Text, "The schema of a PostgreSQL store"),
    Setting::new(
        "durability",
        "TIDELOCK_DURABILITY",
        "durability",
        Kind::OneOf(&["full", "relaxed"]),
        "Whether a PostgreSQL server that does not flush is taken",
    )
    .or("full"),
    Setting::new(
        "output",
        "TIDELOCK_OUTPUT",
        "output",
        Kind::OneOf(&["table", "json", "jsonl"]),
        "How data is printed",
    )
    .or("table"),
    Setting::new(
        "color",
        "TIDELOCK_COLOR",
        "color",
        Kind::OneOf(&["auto", "never"]),
        "Whether a terminal gets colours",
    )
    .or("auto")
    .also("NO_COLOR"),
    Setting::new("top.every", "TIDELOCK_TOP_EVERY", "every", Kind::Span, "How often top looks")
        .or("1s")
        .of(&["top"]),
    Setting::new(
        "serve.listen",
        "TIDELOCK_LISTEN",
        "listen",
        Kind::Socket,
        "The address that serve and dev listen on",
    )
    .or("127.0.0.1:4400")
    .of(&["serve", "dev"]),
    Setting::new(
        "serve.log",
        "TIDELOCK_LOG",
        "log",
        Kind::OneOf(&["off", "error", "warn", "info", "debug", "trace"]),
        "How much serve and dev log on standard error",
    )
    .or("warn")
    .of(&["serve", "dev"]),
    Setting::new(
        "serve.log_format",
        "TIDELOCK_LOG_FORMAT",
        "log_format",
        Kind::OneOf(&["text", "json"]),
        "How serve and dev log: lines for people, or JSON",
    )
    .or("text")
    .of(&["serve", "dev"]),
];

/// The setting of this key.
pub(crate) fn named(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}
