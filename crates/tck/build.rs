//! Finds the cases of the kit, so that nobody keeps a list by hand.
//!
//! Every `pub async fn <letter><number>_<promise>(env: &Env)` in `src/cases/*.rs` becomes a row of `CASES` and a test
//! of `conformance!`. A function that looks like a case but is not named like one stops the build, and so does a file
//! that `src/cases/mod.rs` does not declare: either would be a promise that nobody checks.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

struct Case {
    number: String,
    name: String,
    section: String,
    doc: String,
    documents_only: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=src/cases");
    println!("cargo::rerun-if-changed=build.rs");
    let folder = Path::new("src/cases");
    let declared = fs::read_to_string(folder.join("mod.rs"))?;
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let section = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_owned();
        if section == "mod" || path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        if !declared.contains(&format!("pub mod {section};")) {
            return Err(format!("src/cases/mod.rs does not declare {section}").into());
        }
        scan(&fs::read_to_string(&path)?, &section, &mut cases)?;
    }
    cases.sort_by_key(order);
    let out = Path::new(&env::var("OUT_DIR")?).join("cases.rs");
    fs::write(out, generate(&cases)?)?;
    Ok(())
}

fn order(case: &Case) -> (String, u32, String) {
    let (letter, number) = case.number.split_at(1);
    (letter.to_owned(), number.parse().unwrap_or(0), case.name.clone())
}

fn scan(text: &str, section: &str, cases: &mut Vec<Case>) -> Result<(), Box<dyn Error>> {
    let mut doc = Vec::new();
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("///") {
            doc.push(said.trim().to_owned());
        } else if let Some(rest) = line.strip_prefix("pub async fn ") {
            let name = rest.strip_suffix("(env: &Env) {");
            let found = name.and_then(|name| Some((name, number(name)?)));
            let (name, number) =
                found.ok_or_else(|| format!("{section}: {rest:?} is not named like a case"))?;
            if doc.is_empty() {
                return Err(format!("{section}: {name} does not say what it promises").into());
            }
            let (name, doc) = (name.to_owned(), doc.join(" "));
            let documents_only = doc.ends_with(DOCUMENTS_ONLY);
            cases.push(Case { number, name, section: section.to_owned(), doc, documents_only });
        } else if !line.starts_with("#[") {
            doc.clear();
        }
        if !line.starts_with("///") && !line.starts_with("#[") {
            doc.clear();
        }
    }
    Ok(())
}

/// `t10_same_ids` is a case of T10.
fn number(name: &str) -> Option<String> {
    let (head, promise) = name.split_once('_')?;
    let mut chars = head.chars();
    let letter = chars.next().filter(char::is_ascii_lowercase)?;
    let digits = chars.as_str();
    let numbered = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
    (numbered && !promise.is_empty()).then(|| format!("{}{digits}", letter.to_ascii_uppercase()))
}

fn generate(cases: &[Case]) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    writeln!(out, "/// Every case of the kit, in the order of the numbers.\npub const CASES: &[Case] = &[")?;
    for Case { number, name, section, doc, documents_only } in cases {
        writeln!(
            out,
            "    Case {{ number: {number:?}, name: {name:?}, section: {section:?}, doc: {doc:?}, \
             documents_only: {documents_only}, run: |env| Box::pin(crate::cases::{section}::{name}(env)) }},"
        )?;
    }
    writeln!(out, "];\n")?;
    writeln!(out, "{MACRO_HEAD}")?;
    for Case { name, .. } in cases {
        writeln!(out, "        #[test]\n        fn {name}() {{")?;
        writeln!(
            out,
            "            $crate::run_case({name:?}, ::std::boxed::Box::new($backend));\n        }}"
        )?;
    }
    writeln!(out, "    }};\n}}")?;
    Ok(out)
}

/// How the comment of a case ends that every store of documents can run.
const DOCUMENTS_ONLY: &str = "Documents only.";

const MACRO_HEAD: &str = r#"/// Runs the whole kit on a backend: one `#[test]` for each case, named with its number.
///
/// The argument is an expression that makes a [`Backend`](crate::Backend); every test makes its own.
///
/// Two more tests come with them: `tidelock_tck_summary`, which prints how many cases there are, and
/// `tidelock_tck_child`, which does nothing unless another test starts it in a process of its own.
#[macro_export]
macro_rules! conformance {
    ($backend:expr) => {
        $crate::child!($backend);
        #[test]
        fn tidelock_tck_summary() {
            $crate::print_summary(&$backend);
        }"#;
