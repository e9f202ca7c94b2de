//! The settings: their names, their valid values, and the arguments that take them as defaults. One table serves the file,
//! the environment, `config show`, the schema and the checks.

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// The location of a store. It may hold a password. A relative path is resolved against the directory of the file.
    Store,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A duration such as `2s`.
    Span,
    /// An address to listen on.
    Socket,
}

impl Kind {
    /// Returns a short description of the expected value.
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Text => "a text".to_owned(),
            Self::Store => "a text: a path, sqlite://PATH or postgres://…".to_owned(),
            Self::OneOf(words) => format!("one of {}", words.join(", ")),
            Self::Span => "a text with a span of time, such as \"2s\" or \"500ms\"".to_owned(),
            Self::Socket => "a text with an address and a port, such as \"127.0.0.1:4400\"".to_owned(),
        }
    }

    /// Returns whether a text is a valid value.
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
    /// Its environment variable.
    pub(crate) env: &'static str,
    /// An alternative variable, read after the first.
    pub(crate) also_env: Option<&'static str>,
    /// The id of the argument whose default it supplies.
    pub(crate) arg: &'static str,
    /// The verbs that have the argument; empty for all whose argument has the variable.
    pub(crate) verbs: &'static [&'static str],
    pub(crate) kind: Kind,
    /// The default value; `None` when the setting is required or may be absent.
    pub(crate) default: Option<&'static str>,
    pub(crate) about: &'static str,
    /// The first version that supports it.
    pub(crate) since: &'static str,
}

impl Setting {
    /// Creates a setting that is not restricted to verbs.
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

/// All settings, in display order.
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

/// Returns the setting with this key.
pub(crate) fn named(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}
