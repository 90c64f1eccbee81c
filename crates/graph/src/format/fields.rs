//! The keys of an object, each read with the type that it must have.

use tiled_tensor::with_room;

use super::json::Json;
use super::names::nearest;
use crate::error::{GraphError, Place};
use crate::index::ValueId;

/// Finds the value of a name that stands before the node.
pub(crate) type Find<'a> = &'a dyn Fn(&str) -> Result<ValueId, GraphError>;

/// An object of the file, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    place: Place,
    entries: &'a [(String, Json)],
}

impl<'a> Fields<'a> {
    /// The keys of an object, none of which stands twice.
    pub(crate) fn new(place: Place, json: &'a Json) -> Result<Self, GraphError> {
        let Json::Object(entries) = json else {
            let (list, index) = match &place {
                Place::Entry { list, index } => (*list, *index),
                _ => ("network", 0),
            };
            let key = if list == "network" { list.to_owned() } else { format!("{list}[{index}]") };
            let place = Place::Network;
            return Err(GraphError::WrongValue { place, key, expected: "an object", got: json.to_string() });
        };
        let fields = Self { place, entries };
        for (position, (key, _)) in entries.iter().enumerate() {
            if entries[..position].iter().any(|(other, _)| other == key) {
                let place = fields.place.clone();
                return Err(GraphError::DuplicateKey { place, key: key.clone() });
            }
        }
        Ok(fields)
    }

    /// The same keys, at a place that is known better.
    pub(crate) fn at(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// Where the object stands.
    pub(crate) const fn place(&self) -> &Place {
        &self.place
    }

    /// Checks that there are no keys but these.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), GraphError> {
        match self.entries.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => Err(GraphError::UnknownKey {
                place: self.place.clone(),
                key: key.clone(),
                nearest: nearest(key, known.iter().copied()),
            }),
        }
    }

    /// The value of a key, if it is there.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Json> {
        self.entries.iter().find(|(other, _)| other == key).map(|(_, value)| value)
    }

    /// The value of a key that must be there.
    pub(crate) fn require(&self, key: &'static str) -> Result<&'a Json, GraphError> {
        self.get(key).ok_or_else(|| self.missing(key))
    }

    /// A string that must be there.
    pub(crate) fn text(&self, key: &'static str) -> Result<&'a str, GraphError> {
        match self.require(key)? {
            Json::Text(text) => Ok(text),
            other => Err(self.wrong(key, "a string", other)),
        }
    }

    /// A list that must be there.
    pub(crate) fn list(&self, key: &'static str) -> Result<&'a [Json], GraphError> {
        match self.require(key)? {
            Json::List(items) => Ok(items),
            other => Err(self.wrong(key, "a list", other)),
        }
    }

    /// A list of strings that must be there.
    pub(crate) fn texts(&self, key: &'static str) -> Result<Vec<&'a str>, GraphError> {
        let items = self.list(key)?;
        let mut texts = with_room(items.len())?;
        for item in items {
            match item {
                Json::Text(text) => texts.push(text.as_str()),
                other => return Err(self.wrong(key, "a list of strings", other)),
            }
        }
        Ok(texts)
    }

    /// One of a few strings, or the default.
    pub(crate) fn choice<V: Copy>(
        &self,
        key: &'static str,
        expected: &'static str,
        choices: &[(&str, V)],
        default: V,
    ) -> Result<V, GraphError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let chosen = choices.iter().find(|(name, _)| matches!(value, Json::Text(text) if text == name));
        chosen.map(|(_, choice)| *choice).ok_or_else(|| self.wrong(key, expected, value))
    }

    /// A truth value, or the default.
    pub(crate) fn flag(&self, key: &'static str, default: bool) -> Result<bool, GraphError> {
        match self.get(key) {
            None => Ok(default),
            Some(Json::Bool(value)) => Ok(*value),
            Some(other) => Err(self.wrong(key, "true or false", other)),
        }
    }

    /// Whether there is a bias, which the name of one says as well.
    pub(crate) fn bias(&self, default: bool) -> Result<bool, GraphError> {
        match self.get("bias") {
            None => Ok(default),
            Some(Json::Bool(value)) => Ok(*value),
            Some(Json::Text(_)) => Ok(true),
            Some(other) => Err(self.wrong("bias", "true, false or the name of a parameter", other)),
        }
    }

    /// A number, or the default.
    pub(crate) fn number(&self, key: &'static str, default: f64) -> Result<f64, GraphError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let number = if let Json::Number(number) = value { number.as_f64() } else { None };
        number.ok_or_else(|| self.wrong(key, "a number", value))
    }

    /// A number, nothing where it is null, or the default.
    pub(crate) fn number_or_null(
        &self,
        key: &'static str,
        default: Option<f64>,
    ) -> Result<Option<f64>, GraphError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let number = match value {
            Json::Null => return Ok(None),
            Json::Number(number) => number.as_f64(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| self.wrong(key, "a number or null", value))
    }

    /// A number of channels, features or groups, if it is there.
    pub(crate) fn count(&self, key: &'static str) -> Result<Option<usize>, GraphError> {
        self.get(key).map(|value| self.count_of(key, value)).transpose()
    }

    /// The number of channels, features or groups that a key has somewhere in its value.
    pub(crate) fn count_of(&self, key: &'static str, value: &Json) -> Result<usize, GraphError> {
        let expected = "a whole number of at least 1";
        let count = whole(value).and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| self.wrong(key, expected, value))
    }

    /// A number of channels or features that must be there.
    pub(crate) fn required_count(&self, key: &'static str) -> Result<usize, GraphError> {
        self.count(key)?.ok_or_else(|| self.missing(key))
    }

    /// A whole number for both axes, or a pair of height and width, if it is there.
    pub(crate) fn pair(&self, key: &'static str) -> Result<Option<[i64; 2]>, GraphError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let expected = "a whole number or a pair [height, width] of them";
        pair(value).map(Some).ok_or_else(|| self.wrong(key, expected, value))
    }

    /// A pair that must be there.
    pub(crate) fn required_pair(&self, key: &'static str) -> Result<[i64; 2], GraphError> {
        self.pair(key)?.ok_or_else(|| self.missing(key))
    }

    /// The error of a value that is not as expected.
    pub(crate) fn wrong(&self, key: &str, expected: &'static str, got: &Json) -> GraphError {
        let (place, key) = (self.place.clone(), key.to_owned());
        GraphError::WrongValue { place, key, expected, got: got.to_string() }
    }

    fn missing(&self, key: &'static str) -> GraphError {
        GraphError::MissingKey { place: self.place.clone(), key }
    }
}

/// A whole number.
pub(crate) fn whole(json: &Json) -> Option<i64> {
    if let Json::Number(number) = json { number.as_i64() } else { None }
}

/// A whole number for both axes, or a pair of height and width.
pub(crate) fn pair(json: &Json) -> Option<[i64; 2]> {
    match json {
        Json::List(items) => both(items),
        _ => whole(json).map(|value| [value, value]),
    }
}

/// A list of two whole numbers.
pub(crate) fn both(items: &[Json]) -> Option<[i64; 2]> {
    match items {
        [first, second] => Some([whole(first)?, whole(second)?]),
        _ => None,
    }
}
