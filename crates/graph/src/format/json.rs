//! JSON as it stands in the text: an object keeps its keys in order, also those that stand twice.

use std::cell::Cell;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use tiled_tensor::{OutOfMemory, push};

use crate::GraphError;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
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
    let refused = Cell::new(None);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let parsed = Build { refused: &refused }.deserialize(&mut deserializer);
    parsed.and_then(|json| deserializer.end().map(|()| json)).map_err(|error| {
        if let Some(refused) = refused.get() {
            return OutOfMemory::into(refused);
        }
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
        let mut cut = Cut { text: String::new(), left: LONGEST };
        let is_whole = self.write(&mut cut).is_ok();
        write!(f, "{}{}", cut.text, if is_whole { "" } else { "…" })
    }
}

/// The beginning of a text; writing more is an error, so that nobody writes a network for a message.
struct Cut {
    text: String,
    /// The characters that still have room.
    left: usize,
}

impl fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.char_indices().nth(self.left).map_or(text.len(), |(end, _)| end);
        self.text.push_str(&text[..end]);
        self.left -= text[..end].chars().count();
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

impl Json {
    fn write(&self, text: &mut Cut) -> fmt::Result {
        match self {
            Self::Null => text.write_str("null"),
            Self::Bool(value) => write!(text, "{value}"),
            Self::Number(number) => write!(text, "{number}"),
            Self::Text(value) => text.write_str(&quoted(value)),
            Self::List(items) => {
                text.write_str("[")?;
                for (position, item) in items.iter().enumerate() {
                    text.write_str(if position == 0 { "" } else { "," })?;
                    item.write(text)?;
                }
                text.write_str("]")
            }
            Self::Object(entries) => {
                text.write_str("{")?;
                for (position, (key, value)) in entries.iter().enumerate() {
                    text.write_str(if position == 0 { "" } else { "," })?;
                    text.write_str(&quoted(key))?;
                    text.write_str(":")?;
                    value.write(text)?;
                }
                text.write_str("}")
            }
        }
    }
}

/// A string as JSON writes it.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Builds a value; notes where memory for a list is refused, which an error of the parser could not hold.
#[derive(Clone, Copy)]
struct Build<'r> {
    refused: &'r Cell<Option<OutOfMemory>>,
}

impl Build<'_> {
    fn push<V, E: Error>(self, list: &mut Vec<V>, value: V) -> Result<(), E> {
        push(list, value).map_err(|error| {
            self.refused.set(Some(error));
            E::custom(error)
        })
    }
}

impl<'de> DeserializeSeed<'de> for Build<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Build<'_> {
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
        while let Some(item) = items.next_element_seed(self)? {
            self.push(&mut list, item)?;
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(key) = entries.next_key()? {
            let value = entries.next_value_seed(self)?;
            self.push(&mut object, (key, value))?;
        }
        Ok(Json::Object(object))
    }
}
