//! `tidelock config schema`: a JSON Schema of `tidelock.toml`, for editors.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::settings::{Kind, SETTINGS, Setting};
use crate::exit::Exit;
use crate::output;

/// Prints the schema.
pub(super) fn run() -> Result<Exit> {
    output::json(&schema())?;
    Ok(Exit::Well)
}

fn schema() -> Value {
    let mut properties = Map::new();
    for setting in SETTINGS {
        let (table, name) = match setting.key.split_once('.') {
            Some((table, name)) => (Some(table), name),
            None => (None, setting.key),
        };
        let members = match table {
            None => Some(&mut properties),
            Some(table) => {
                let table = properties.entry(table).or_insert_with(
                    || json!({"type": "object", "additionalProperties": false, "properties": {}}),
                );
                table.get_mut("properties").and_then(Value::as_object_mut)
            }
        };
        if let Some(members) = members {
            members.insert(name.to_owned(), property(setting));
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tidelock.toml",
        "description": "Settings of the command line of Tidelock. Flags and the environment count more.",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    })
}

fn property(setting: &Setting) -> Value {
    let description = format!("{}. Variable: {}. Since {}.", setting.about, setting.env, setting.since);
    let mut property = json!({"type": "string", "description": description});
    let Some(members) = property.as_object_mut() else { return property };
    if let Kind::OneOf(words) = setting.kind {
        members.insert("enum".to_owned(), json!(words));
    }
    if let Some(default) = setting.default {
        members.insert("default".to_owned(), json!(default));
    }
    property
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_in_the_schema() {
        let schema = schema();
        for setting in SETTINGS {
            let place = format!("/properties/{}", setting.key.replace('.', "/properties/"));
            let property = schema.pointer(&place).unwrap();
            assert_eq!(property["type"], "string", "{}", setting.key);
        }
        assert_eq!(schema["properties"]["output"]["enum"], json!(["table", "json", "jsonl"]));
        assert_eq!(schema["properties"]["serve"]["additionalProperties"], false);
    }
}
