//! Links of the book to the API documentation: each must lead to a page that rustdoc has just written.

use std::path::Path;

use anyhow::{Result, bail};

use super::summary::Page;

/// The beginning of a link to the documentation of a crate of this project.
const DOCS_RS: &str = "https://docs.rs/tidelock";

/// Checks the links of all pages against the documentation in a folder.
pub(super) fn check(pages: &[Page], api: &Path) -> Result<()> {
    let links = pages.iter().flat_map(|page| links(&page.text).map(move |link| (page, link)));
    let broken: Vec<String> = links
        .filter(|(_, link)| !exists(link, api))
        .map(|(page, link)| format!("docs/{}: {DOCS_RS}{link} does not exist: correct the link", page.path))
        .collect();
    if !broken.is_empty() {
        bail!("the book links to missing pages of the API:\n{}", broken.join("\n"));
    }
    Ok(())
}

/// Returns the rest of each link, after [`DOCS_RS`].
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split(DOCS_RS).skip(1).map(|rest| rest.split([')', ' ', '\n', '>', '"']).next().unwrap_or_default())
}

/// Returns whether a link such as `-sqlite/latest/tidelock_sqlite/struct.Options.html#method.x` leads to a page with that anchor.
fn exists(link: &str, api: &Path) -> bool {
    let Some((_, path)) = link.split_once("/latest/") else {
        return true; // a crate as a whole
    };
    let (path, anchor) = path.split_once('#').map_or((path, None), |(path, anchor)| (path, Some(anchor)));
    let Ok(page) = std::fs::read_to_string(api.join(path)) else { return false };
    anchor.is_none_or(|anchor| page.contains(&format!("id=\"{anchor}\"")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::super::summary::Page;
    use super::check;

    fn broken(text: &str) -> usize {
        let api = tempfile::tempdir().unwrap();
        std::fs::create_dir(api.path().join("tidelock")).unwrap();
        std::fs::write(api.path().join("tidelock").join("struct.A.html"), "<a id=\"method.b\">").unwrap();
        let own = |text: &str| text.to_owned();
        let page = Page { part: own("A"), title: own("A"), path: own("a.md"), text: own(text) };
        check(&[page], api.path()).map_or_else(|error| error.to_string().lines().count() - 1, |()| 0)
    }

    #[test]
    fn links_to_missing_pages_and_anchors_are_found() {
        let docs = "https://docs.rs/tidelock";
        assert_eq!(broken(&format!("[A]({docs}/latest/tidelock/struct.A.html) [crate]({docs}-sqlite)")), 0);
        assert_eq!(broken(&format!("[A]({docs}/latest/tidelock/struct.A.html#method.b)")), 0);
        assert_eq!(broken(&format!("[A]({docs}/latest/tidelock/struct.A.html#method.c)")), 1);
        assert_eq!(
            broken(&format!("[B]({docs}/latest/tidelock/struct.B.html)\n[C]({docs}/latest/c.html)")),
            2
        );
    }
}
