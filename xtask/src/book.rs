//! The book beyond mdBook: a preprocessor that adds the decisions and draws the diagrams, a check of
//! links to the API, and the texts for language models.

mod api_links;
mod llms;
mod preprocess;
mod summary;

use anyhow::Result;

use crate::run;

/// Serves mdBook's protocol of preprocessors: the book on standard input, the changed book on standard output. mdBook first asks which
/// renderers are supported, with arguments; every one is.
pub(crate) fn preprocess(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        return Ok(());
    }
    let input = std::io::read_to_string(std::io::stdin())?;
    println!("{}", preprocess::run(&input, &run::root().join("docs"))?);
    Ok(())
}

/// Checks the book's links to the API documentation that was just built.
pub(crate) fn check_api_links() -> Result<()> {
    let root = run::root();
    api_links::check(&summary::pages(&root.join("docs"))?, &root.join("target").join("doc"))
}

/// Writes `llms.txt` and `llms-full.txt` next to the pages of the book.
pub(crate) fn write_llms() -> Result<()> {
    let root = run::root();
    let pages = summary::pages(&root.join("docs"))?;
    let book = root.join("target").join("book");
    std::fs::write(book.join("llms.txt"), llms::index(&pages))?;
    std::fs::write(book.join("llms-full.txt"), llms::full(&pages))?;
    println!("{} pages are in target/book/llms.txt and llms-full.txt", pages.len());
    Ok(())
}
