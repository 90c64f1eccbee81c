//! JSON as it stands in the text: an object keeps its keys in order, also those that stand twice.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use crate::GraphError;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object.
    Object(Vec<(String, Json)>),
}

/// Parses a text.
pub(super) fn parse(text: &str) -> Result<Json, GraphError> {
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let message = error.to_string();
        let at = format!(" at line {line} column {column}");
        let reason = message.strip_suffix(&at).unwrap_or(&message).to_owned();
        GraphError::Syntax { line, column, reason }
    })
}

impl fmt::Display for Json {
    /// As JSON in one line, cut after 40 characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 40;
        let mut text = String::new();
        self.write(&mut text);
        match text.char_indices().nth(LONGEST) {
            None => f.write_str(&text),
            Some((end, _)) => write!(f, "{}…", &text[..end]),
        }
    }
}

impl Json {
    fn write(&self, text: &mut String) {
        match self {
            Self::Null => text.push_str("null"),
            Self::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => text.push_str(&number.to_string()),
            Self::Text(value) => text.push_str(&quoted(value)),
            Self::List(items) => {
                text.push('[');
                for (position, item) in items.iter().enumerate() {
                    text.push_str(if position == 0 { "" } else { "," });
                    item.write(text);
                }
                text.push(']');
            }
            Self::Object(entries) => {
                text.push('{');
                for (position, (key, value)) in entries.iter().enumerate() {
                    text.push_str(if position == 0 { "" } else { "," });
                    text.push_str(&quoted(key));
                    text.push(':');
                    value.write(text);
                }
                text.push('}');
            }
        }
    }
}

/// A string as JSON writes it.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Build)
    }
}

struct Build;

impl<'de> Visitor<'de> for Build {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            object.push(entry);
        }
        Ok(Json::Object(object))
    }
}
