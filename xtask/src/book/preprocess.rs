//! The preprocessor of the book.
//!
//! - The records of decisions become chapters below the page that lists them. The table of contents folds them into one entry.
//! - An image of `diagrams/` becomes part of the page, so that its lines have the colour of the text in every theme.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Returns the changed book for the context and the book that mdBook wrote.
pub(super) fn run(input: &str, docs: &Path) -> Result<String> {
    let [_context, mut book]: [Value; 2] =
        serde_json::from_str(input).context("this is not mdBook's protocol")?;
    let list = if book.get("items").is_some() { "items" } else { "sections" };
    let items = book.get_mut(list).and_then(Value::as_array_mut).context("the book has no chapters")?;
    for item in items {
        if let Some(chapter) = item.get_mut("Chapter") {
            change(chapter, docs)?;
        }
    }
    Ok(book.to_string())
}

fn change(chapter: &mut Value, docs: &Path) -> Result<()> {
    let text = |chapter: &Value, field: &str| {
        chapter.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let source = text(chapter, "source_path").replace('\\', "/");
    if source == "decisions/README.md" {
        let records = records(chapter, docs)?;
        set(chapter, "sub_items", Value::Array(records));
    }
    let content = text(chapter, "content");
    let drawn = draw(&content, &docs.join(&source))?;
    set(chapter, "content", Value::String(drawn));
    if let Some(below) = chapter.get_mut("sub_items").and_then(Value::as_array_mut) {
        for item in below {
            if let Some(chapter) = item.get_mut("Chapter") {
                change(chapter, docs)?;
            }
        }
    }
    Ok(())
}

fn set(chapter: &mut Value, field: &str, value: Value) {
    if let Some(fields) = chapter.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

/// Returns a chapter for each record of a decision.
fn records(list: &Value, docs: &Path) -> Result<Vec<Value>> {
    let folder = docs.join("decisions");
    let names =
        std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<String>>>()?;
    names.retain(|name| name.ends_with(".md") && name != "README.md");
    names.sort();
    let number: Vec<Value> = list.get("number").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut chapters = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let content = std::fs::read_to_string(folder.join(name))?;
        let title = content.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']).to_owned();
        let mut number = number.clone();
        number.push(json!(at + 1));
        let path = format!("decisions/{name}");
        chapters.push(json!({"Chapter": {
            "name": title, "content": content, "number": number, "sub_items": [],
            "path": path, "source_path": path, "parent_names": [list.get("name")],
        }}));
    }
    Ok(chapters)
}

/// Replaces each image of `diagrams/` by its drawing.
fn draw(content: &str, page: &Path) -> Result<String> {
    let mut drawn = Vec::new();
    for line in content.lines() {
        drawn.push(match diagram(line) {
            Some((label, path)) => {
                let file = page.parent().unwrap_or(page).join(path);
                let svg = std::fs::read_to_string(&file)
                    .with_context(|| format!("cannot read the diagram {path}"))?;
                inline(label, &svg)
            }
            None => line.to_owned(),
        });
    }
    Ok(drawn.join("\n") + "\n")
}

/// Returns the label and the path of a line that is an image of a diagram.
fn diagram(line: &str) -> Option<(&str, &str)> {
    let (label, path) = line.strip_prefix("![")?.split_once("](")?;
    let path = path.strip_suffix(')')?;
    (path.contains("diagrams/") && path.ends_with(".svg")).then_some((label, path))
}

/// Returns a drawing as part of a page. Its style sheet serves readers of the file alone, and would apply to the whole page.
fn inline(label: &str, svg: &str) -> String {
    let mut lines = Vec::new();
    let mut in_style = false;
    for line in svg.lines().map(str::trim).filter(|line| !line.is_empty()) {
        in_style |= line.starts_with("<style");
        if !in_style {
            lines.push(line);
        }
        in_style &= !line.contains("</style>");
    }
    let label = label.replace('"', "&quot;");
    format!(
        "<figure role=\"img\" style=\"margin: 1.5em 0\" aria-label=\"{label}\">\n{}\n</figure>",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]
    use serde_json::{Value, json};

    use super::run;

    fn chapter(source: &str, content: &str) -> Value {
        json!({"Chapter": {
            "name": "A", "content": content, "number": [4], "sub_items": [], "path": source, "source_path": source,
            "parent_names": [],
        }})
    }

    #[test]
    fn records_become_chapters_below_their_list() {
        let docs = tempfile::tempdir().unwrap();
        std::fs::create_dir(docs.path().join("decisions")).unwrap();
        for (name, text) in
            [("README.md", "# Decisions"), ("0002-b.md", "# 0002 B"), ("0001-a.md", "# 0001 A")]
        {
            std::fs::write(docs.path().join("decisions").join(name), text).unwrap();
        }
        let input = json!([{}, {"items": [chapter("decisions/README.md", "")]}]).to_string();
        let book: Value = serde_json::from_str(&run(&input, docs.path()).unwrap()).unwrap();
        let below = &book["items"][0]["Chapter"]["sub_items"];
        assert_eq!(
            (&below[0]["Chapter"]["name"], &below[0]["Chapter"]["number"]),
            (&json!("0001 A"), &json!([4, 1]))
        );
        assert_eq!(below[1]["Chapter"]["path"], "decisions/0002-b.md");
    }

    #[test]
    fn diagrams_are_drawn_into_the_page() {
        let docs = tempfile::tempdir().unwrap();
        std::fs::create_dir(docs.path().join("diagrams")).unwrap();
        let svg = "<svg>\n<style>\nsvg { color: black }\n</style>\n\n<path/>\n</svg>\n";
        std::fs::write(docs.path().join("diagrams").join("a.svg"), svg).unwrap();
        let page = chapter("b/c.md", "# C\n![a \"b\"](../diagrams/a.svg)\n![d](../screens/d.png)");
        std::fs::create_dir(docs.path().join("b")).unwrap();
        let book = run(&json!([{}, {"sections": [page]}]).to_string(), docs.path()).unwrap();
        let book: Value = serde_json::from_str(&book).unwrap();
        let expected = "# C\n<figure role=\"img\" style=\"margin: 1.5em 0\" aria-label=\"a &quot;b&quot;\">\n<svg>\n<path/>\n</svg>\n</figure>\n![d](../screens/d.png)\n";
        assert_eq!(book["sections"][0]["Chapter"]["content"], expected);
    }
}
