//! Finds the cases of the kit.
//!
//! Every `pub async fn <letter><number>_<promise>(env: &Env)` in `src/contract/*.rs` and `src/engines/*.rs` becomes a row of
//! `CASES` and a test: those of the contract in `contract!`, all of them in `conformance!`. A function that looks like a case but is
//! not named like one stops the build, and so does a file that its module does not declare. Either would be a promise without a check.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// The modules with cases: what a backend promises, and what the engines promise on it.
const FOLDERS: [&str; 2] = [CONTRACT, "engines"];
const CONTRACT: &str = "contract";

struct Case {
    number: String,
    name: String,
    folder: &'static str,
    section: String,
    doc: String,
    documents_only: bool,
    alone: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let mut cases = Vec::new();
    for folder in FOLDERS {
        println!("cargo::rerun-if-changed=src/{folder}");
        println!("cargo::rerun-if-changed=src/{folder}.rs");
        read(folder, &mut cases)?;
    }
    cases.sort_by_key(order);
    let out = Path::new(&env::var("OUT_DIR")?).join("cases.rs");
    fs::write(out, generate(&cases)?)?;
    Ok(())
}

/// Adds the cases of a folder.
fn read(folder: &'static str, cases: &mut Vec<Case>) -> Result<(), Box<dyn Error>> {
    let declared = fs::read_to_string(format!("src/{folder}.rs"))?;
    for entry in fs::read_dir(Path::new("src").join(folder))? {
        let path = entry?.path();
        let section = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        if path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        if !declared.contains(&format!("pub mod {section};")) {
            return Err(format!("src/{folder}.rs does not declare {section}").into());
        }
        scan(&fs::read_to_string(&path)?, folder, section, cases)?;
    }
    Ok(())
}

fn order(case: &Case) -> (String, u32, String) {
    let (letter, number) = case.number.split_at(1);
    (letter.to_owned(), number.parse().unwrap_or(0), case.name.clone())
}

fn scan(
    text: &str,
    folder: &'static str,
    section: &str,
    cases: &mut Vec<Case>,
) -> Result<(), Box<dyn Error>> {
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
            let (documents_only, alone) = (doc.ends_with(DOCUMENTS_ONLY), doc.contains(ALONE));
            cases.push(Case {
                number,
                name,
                folder,
                section: section.to_owned(),
                doc,
                documents_only,
                alone,
            });
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
    for Case { number, name, folder, section, doc, documents_only, alone } in cases {
        writeln!(
            out,
            "    Case {{ number: {number:?}, name: {name:?}, folder: {folder:?}, section: {section:?}, doc: {doc:?}, \
             documents_only: {documents_only}, alone: {alone}, run: |env| Box::pin(crate::{folder}::{section}::{name}(env)) }},"
        )?;
    }
    writeln!(out, "];\n")?;
    let (contract, engines): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.folder == CONTRACT);
    tests(&mut out, "contract_tests", &contract)?;
    tests(&mut out, "engine_tests", &engines)?;
    Ok(out)
}

/// Writes a macro with one test for each case.
fn tests(out: &mut String, name: &str, cases: &[&Case]) -> std::fmt::Result {
    writeln!(out, "#[doc(hidden)]\n#[macro_export]\nmacro_rules! {name} {{\n    ($backend:expr) => {{")?;
    for Case { name, .. } in cases {
        writeln!(out, "        #[test]\n        fn {name}() {{")?;
        writeln!(
            out,
            "            $crate::run_case({name:?}, ::std::boxed::Box::new($backend));\n        }}"
        )?;
    }
    writeln!(out, "    }};\n}}")
}

/// How the comment of a case ends that every store of documents can run.
const DOCUMENTS_ONLY: &str = "Documents only.";

/// The sentence in the comment of a case that compares rates, which other cases would disturb.
const ALONE: &str = "Runs alone.";
