//! URLs of PostgreSQL servers, which never show their password in reports, errors or process lists.

use std::fmt;

use anyhow::Result;

use crate::usage::UsageError;

/// The replacement for a password.
const HIDDEN: &str = "***";

/// The URL of a database. `Display` and `Debug` hide the password.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Returns whether a name is the URL of a PostgreSQL database.
    #[must_use]
    pub fn is_meant_by(name: &str) -> bool {
        name.starts_with("postgres://") || name.starts_with("postgresql://")
    }

    /// Checks the scheme. The driver checks the rest when it connects.
    ///
    /// # Errors
    /// [`UsageError`] for another scheme.
    pub fn parse(text: &str) -> Result<Self> {
        if Self::is_meant_by(text) {
            return Ok(Self(text.to_owned()));
        }
        // The text itself is not shown: it may be a password in the wrong place.
        let wanted = "expected postgres://USER:PASSWORD@HOST:PORT/DATABASE";
        Err(UsageError(format!("the server's address does not begin with postgres://; {wanted}")).into())
    }

    /// Splits the `schema` parameter off, so that an option can override it.
    #[must_use]
    pub fn split_schema(self) -> (Self, Option<String>) {
        let (place, Some(settings)) = split_settings(&self.0) else { return (self, None) };
        let (named, others): (Vec<&str>, Vec<&str>) =
            settings.split('&').partition(|setting| setting.starts_with("schema="));
        let schema =
            named.last().and_then(|setting| setting.split_once('=')).map(|(_, name)| name.to_owned());
        let mark = if others.is_empty() { "" } else { "?" };
        (Self(format!("{place}{mark}{}", others.join("&"))), schema)
    }

    /// Returns a parameter of the URL.
    #[must_use]
    pub fn setting(&self, wanted: &str) -> Option<&str> {
        let (_, settings) = split_settings(&self.0);
        let pairs = settings?.split('&').filter_map(|setting| setting.split_once('='));
        pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value).next_back()
    }

    /// Returns the URL with its password, for connecting only.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_password(&self.0))
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Hides the password of a URL inside a text, such as an argument. In doubt, it hides more than the password.
#[must_use]
pub fn without_password(text: &str) -> String {
    let Some((before, address)) = text.split_once("://") else { return text.to_owned() };
    let (place, settings) = split_settings(address);
    let shown = match place.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((name, _)) => format!("{name}:{HIDDEN}@{host}"),
            None => place.to_owned(),
        },
        None => place.to_owned(),
    };
    let settings: Vec<String> =
        settings.into_iter().flat_map(|all| all.split('&')).map(shown_setting).collect();
    let mark = if settings.is_empty() { "" } else { "?" };
    format!("{before}://{shown}{mark}{}", settings.join("&"))
}

/// Splits an address at the question mark before its settings. A question mark within a password does not
/// count.
fn split_settings(address: &str) -> (&str, Option<&str>) {
    match address.split_once('?') {
        Some((place, settings)) if place.contains('@') || !settings.contains('@') => (place, Some(settings)),
        _ => (address, None),
    }
}

fn shown_setting(setting: &str) -> String {
    match setting.split_once('=') {
        Some((name, _)) if name.to_ascii_lowercase().contains("password") => format!("{name}={HIDDEN}"),
        _ => setting.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_wherever_they_stand() {
        for (address, shown) in [
            ("postgres://me:secret@host:5432/db", "postgres://me:***@host:5432/db"),
            ("postgres://me:sec:ret@host/db", "postgres://me:***@host/db"),
            ("postgres://me:sec@ret@host/db", "postgres://me:***@host/db"),
            ("postgres://me:secret?@host/db", "postgres://me:***@host/db"),
            ("postgres://me:secret/@host/db", "postgres://me:***@host/db"),
            (
                "postgres://host/db?password=secret&sslmode=require",
                "postgres://host/db?password=***&sslmode=require",
            ),
            ("--url=postgresql://me:secret@host", "--url=postgresql://me:***@host"),
            ("postgres://me@host/db?application_name=a@b", "postgres://me@host/db?application_name=a@b"),
            ("postgres://host/db", "postgres://host/db"),
            ("sqlite:///var/app.db", "sqlite:///var/app.db"),
            ("app.db", "app.db"),
        ] {
            assert_eq!(without_password(address), shown);
        }
    }

    #[test]
    fn an_address_shows_no_password() {
        let url = ServerUrl::parse("postgres://me:secret@host/db").unwrap();
        assert_eq!(format!("{url} {url:?}"), "postgres://me:***@host/db postgres://me:***@host/db");
        assert!(url.secret().contains("secret"));
    }

    #[test]
    fn a_schema_is_taken_out_of_the_address() {
        for (address, rest, schema) in [
            ("postgres://host/db?schema=shop", "postgres://host/db", Some("shop")),
            ("postgres://host/db?a=1&schema=shop&b=2", "postgres://host/db?a=1&b=2", Some("shop")),
            ("postgres://me:se?schema=x@host/db", "postgres://me:se?schema=x@host/db", None),
            ("postgres://host/db?a=1", "postgres://host/db?a=1", None),
            ("postgres://host/db", "postgres://host/db", None),
        ] {
            let (url, found) = ServerUrl::parse(address).unwrap().split_schema();
            assert_eq!((url.secret(), found.as_deref()), (rest, schema));
        }
    }

    #[test]
    fn settings_are_found() {
        let url = ServerUrl::parse("postgres://host/db?sslmode=verify-full&user=me&pooler=none").unwrap();
        assert_eq!(url.setting("sslmode"), Some("verify-full"));
        assert_eq!(url.setting("schema"), None);
    }

    #[test]
    fn an_invalid_address_is_not_repeated() {
        let refused = ServerUrl::parse("secret@host").unwrap_err();
        assert!(refused.is::<UsageError>());
        assert!(!refused.to_string().contains("secret"));
    }
}
