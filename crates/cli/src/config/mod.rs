//! Configuration from a flag, the environment, `tidelock.toml`, or the default, in this order.
//!
//! Values from the environment and the file become the defaults of the arguments before these are parsed. The commands
//! therefore need no knowledge of them.

mod file;
mod schema;
mod settings;
mod show;

use std::env;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};

use self::file::{File, nearest};
use self::settings::{SETTINGS, Setting};
use crate::args::Config as Verb;
use crate::exit::Exit;

pub(crate) use self::file::ConfigError;

/// The variable that names the configuration file.
const FILE: &str = "TIDELOCK_CONFIG";

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A command-line flag.
    Flag,
    /// An environment variable.
    Variable(&'static str),
    /// A line of a file.
    Line(PathBuf, usize),
    /// The built-in default.
    Default,
}

/// The configuration known before the arguments are parsed.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The configuration file, if one was found.
    file: Option<File>,
    /// The variables that are set.
    variables: Vec<(&'static str, String)>,
}

impl Config {
    /// Loads the named file, or else the nearest one, and the environment.
    pub(crate) fn load(args: &[std::ffi::OsString]) -> Result<Self, ConfigError> {
        let named =
            named_file(args).or_else(|| env::var_os(FILE).filter(|file| !file.is_empty()).map(PathBuf::from));
        let path = named.or_else(|| env::current_dir().ok().as_deref().and_then(nearest));
        let file = path.as_deref().map(File::read).transpose()?;
        let names = SETTINGS.iter().flat_map(|setting| [Some(setting.env), setting.also_env]).flatten();
        let set = |name| env::var(name).ok().filter(|value| !value.is_empty()).map(|value| (name, value));
        let mut variables: Vec<(&'static str, String)> = names.filter_map(set).collect();
        // Any value of `NO_COLOR` disables colours.
        variables
            .iter_mut()
            .filter(|(name, _)| *name == "NO_COLOR")
            .for_each(|(_, value)| *value = "never".to_owned());
        let config = Self { file, variables };
        config.check()?;
        Ok(config)
    }

    /// Checks that each variable has a valid value.
    fn check(&self) -> Result<(), ConfigError> {
        for setting in SETTINGS {
            let Some(found) = self.variable(setting.env).filter(|value| !setting.kind.takes(value)) else {
                continue;
            };
            let (expected, found) = (setting.kind.expected(), found.to_owned());
            return Err(ConfigError::Variable { name: setting.env, expected, found });
        }
        Ok(())
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(set, _)| *set == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a setting and its origin; `None` when it is set nowhere and has no default.
    pub(crate) fn value(&self, setting: &Setting) -> Option<(String, Origin)> {
        let variables = [Some(setting.env), setting.also_env].into_iter().flatten();
        let mut set =
            variables.filter_map(|name| Some((self.variable(name)?.to_owned(), Origin::Variable(name))));
        set.next()
            .or_else(|| self.in_file(setting))
            .or_else(|| Some((setting.default?.to_owned(), Origin::Default)))
    }

    fn in_file(&self, setting: &Setting) -> Option<(String, Origin)> {
        let file = self.file.as_ref()?;
        let found = file.values.get(setting.key)?;
        Some((found.value.clone(), Origin::Line(file.path.clone(), found.line)))
    }

    /// Returns whether the user has disabled colours.
    pub(crate) fn is_plain(&self) -> bool {
        let color = settings::named("color").and_then(|setting| self.value(setting));
        color.is_some_and(|(value, _)| value == "never")
    }

    /// Returns the command with the configured values as the defaults of its arguments.
    pub(crate) fn onto(&self, command: Command) -> Command {
        self.onto_verb(command, None)
    }

    fn onto_verb(&self, command: Command, verb: Option<&str>) -> Command {
        let command = command.mut_args(|arg| match self.default_of(&arg, verb) {
            Some(value) => arg.default_value(value).required(false).hide_default_value(true),
            None => arg,
        });
        // Nested subcommands count as their top-level verb.
        command.mut_subcommands(|inner| {
            let verb = verb.map_or_else(|| inner.get_name().to_owned(), str::to_owned);
            self.onto_verb(inner, Some(&verb))
        })
    }

    fn default_of(&self, arg: &Arg, verb: Option<&str>) -> Option<String> {
        let setting = SETTINGS.iter().find(|setting| is_bound(setting, arg, verb))?;
        let (value, origin) = self.value(setting)?;
        // A layout that a verb does not support leaves the verb's default in effect.
        let words = arg.get_possible_values();
        let fits = words.is_empty() || words.iter().any(|word| word.matches(&value, true));
        (origin != Origin::Default && fits).then_some(value)
    }
}

/// Returns the command with empty environment variables treated as unset.
pub(crate) fn without_empty(command: Command) -> Command {
    let command = command.mut_args(|arg| match arg.get_env().and_then(env::var_os) {
        Some(value) if value.is_empty() => arg.env(None::<&str>),
        _ => arg,
    });
    command.mut_subcommands(without_empty)
}

/// Returns whether a setting supplies the default of an argument of a verb.
fn is_bound(setting: &Setting, arg: &Arg, verb: Option<&str>) -> bool {
    let has_variable = arg.get_env().is_some_and(|env| env == setting.env);
    arg.get_id() == setting.arg
        && (has_variable
            || verb.is_some_and(|verb| setting.verbs.contains(&verb))
            || is_layout(setting, verb))
}

/// Returns whether the setting is the layout of this verb. Every verb that prints data has one; `config` excludes it
/// because it shows its origin.
fn is_layout(setting: &Setting, verb: Option<&str>) -> bool {
    setting.key == "output" && verb != Some("config")
}

/// Returns the file named in the arguments. They cannot be parsed yet, because the file supplies their defaults.
fn named_file(args: &[std::ffi::OsString]) -> Option<PathBuf> {
    let mut args = args.iter().take_while(|arg| *arg != "--");
    while let Some(arg) = args.next() {
        if arg == "--config" {
            return args.next().map(PathBuf::from);
        }
        if let Some(path) = arg.to_str().and_then(|arg| arg.strip_prefix("--config=")) {
            return Some(Path::new(path).to_owned());
        }
    }
    None
}

/// Runs a verb of `config`.
pub(crate) fn run(verb: &Verb, config: &Config, no_color: bool) -> anyhow::Result<Exit> {
    match verb {
        Verb::Show(options) => show::run(options, config, no_color),
        Verb::Schema => schema::run(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::file::Found;
    use super::*;
    use crate::args::Cli;

    fn config(variables: &[(&'static str, &str)], values: &[(&'static str, &str)]) -> Config {
        let values = values.iter().map(|(key, value)| (*key, Found { value: (*value).to_owned(), line: 3 }));
        let file = Some(File { path: "t.toml".into(), values: values.collect() });
        Config {
            file,
            variables: variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        }
    }

    #[test]
    fn the_environment_counts_more_than_the_file_and_the_file_more_than_the_default() {
        let store = settings::named("store").unwrap();
        let output = settings::named("output").unwrap();
        let file = [("store", "file.db"), ("output", "json")];
        let of =
            |variables: &[(&'static str, &str)], setting| config(variables, &file).value(setting).unwrap();
        assert_eq!(of(&[], store), ("file.db".to_owned(), Origin::Line("t.toml".into(), 3)));
        assert_eq!(of(&[("DATABASE_URL", "d")], store), ("d".to_owned(), Origin::Variable("DATABASE_URL")));
        let both = [("DATABASE_URL", "d"), ("TIDELOCK_STORE", "t")];
        assert_eq!(of(&both, store), ("t".to_owned(), Origin::Variable("TIDELOCK_STORE")));
        assert_eq!(of(&[], output).0, "json");
        assert_eq!(config(&[], &[]).value(output), Some(("table".to_owned(), Origin::Default)));
        assert_eq!(config(&[], &[]).value(store), None);
    }

    #[test]
    fn a_flag_counts_most() {
        let command = config(&[], &[("store", "file.db"), ("output", "jsonl")]).onto(Cli::command());
        let matches = |args: &[&str]| command.clone().try_get_matches_from(args).unwrap();
        let store = |args: &[&str]| {
            let matches = matches(args);
            let (_, verb) = matches.subcommand().unwrap();
            verb.subcommand().unwrap().1.get_one::<String>("store").unwrap().clone()
        };
        assert_eq!(store(&["tidelock", "runs", "list"]), "file.db");
        assert_eq!(store(&["tidelock", "runs", "list", "--store", "flag.db"]), "flag.db");
        // It prints no rows, so it keeps its own layout.
        matches(&["tidelock", "bench"]);
    }

    #[test]
    fn each_setting_is_overridden_by_an_argument_and_each_variable_is_a_setting() {
        let (mut bound, mut variables) = (BTreeSet::new(), BTreeSet::new());
        let mut verbs: Vec<(Option<String>, Command)> = vec![(None, Cli::command())];
        while let Some((verb, command)) = verbs.pop() {
            for arg in command.get_arguments() {
                let set = SETTINGS.iter().filter(|setting| is_bound(setting, arg, verb.as_deref()));
                bound.extend(set.map(|setting| setting.key));
                variables.extend(arg.get_env().map(|env| env.to_string_lossy().into_owned()));
            }
            for inner in command.get_subcommands() {
                let name = verb.clone().unwrap_or_else(|| inner.get_name().to_owned());
                verbs.push((Some(name), inner.clone()));
            }
        }
        for setting in SETTINGS {
            // `color` is behind `--no-color`, which accepts two values fewer.
            assert!(bound.contains(setting.key) || setting.key == "color", "{} does nothing", setting.key);
        }
        let known = |name: &str| {
            let others = [FILE, "DATABASE_URL", crate::address::CHILD_URL];
            others.contains(&name) || SETTINGS.iter().any(|setting| setting.env == name)
        };
        assert!(variables.iter().all(|name| known(name)), "{variables:?}");
    }

    #[test]
    fn the_file_is_named_before_the_arguments_are_read() {
        let named =
            |args: &[&str]| named_file(&args.iter().map(std::ffi::OsString::from).collect::<Vec<_>>());
        assert_eq!(named(&["tidelock", "runs", "--config", "a.toml"]), Some("a.toml".into()));
        assert_eq!(named(&["tidelock", "--config=b.toml", "runs"]), Some("b.toml".into()));
        assert_eq!(named(&["tidelock", "runs", "--", "--config", "a.toml"]), None);
    }
}
