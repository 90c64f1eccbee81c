//! Names of a model as names of a network: parts between dots, each with a name, none of them twice.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;

use tiled_graph::ParamKind;

/// The names that are taken, by their hashes: one whose hash another has is numbered, as if it were the same.
#[derive(Debug, Default)]
pub(crate) struct Names {
    hasher: RandomState,
    /// The number to try next behind each.
    taken: HashMap<u64, u32>,
}

impl Names {
    /// The name of a network that is nearest to one of a model; numbered where that is taken.
    pub(crate) fn take(&mut self, given: &str) -> String {
        let name = valid(given);
        let hash = self.hasher.hash_one(&name);
        let Some(mut number) = self.taken.get(&hash).copied() else {
            self.taken.insert(hash, 2);
            return name;
        };
        let numbered = loop {
            let numbered = format!("{name}_{number}");
            number = number.saturating_add(1);
            if let Entry::Vacant(place) = self.taken.entry(self.hasher.hash_one(&numbered)) {
                place.insert(2);
                break numbered;
            }
        };
        self.taken.insert(hash, number);
        numbered
    }
}

/// Slashes part names as dots do. What the program's options take for separators and wildcards becomes `_`.
fn valid(given: &str) -> String {
    let plain = |part: &str| -> String {
        let is_plain = |character: char| !character.is_control() && !" ,*".contains(character);
        part.chars().map(|character| if is_plain(character) { character } else { '_' }).collect()
    };
    let parts: Vec<String> = given.split(['.', '/']).filter(|part| !part.is_empty()).map(plain).collect();
    let mut name = parts.join(".");
    // a name that ends as one of a parameter could be read in two ways
    const ROLES: [ParamKind; 5] = [
        ParamKind::Weight,
        ParamKind::Bias,
        ParamKind::RunningMean,
        ParamKind::RunningVar,
        ParamKind::NumBatchesTracked,
    ];
    if parts.len() > 1 && parts.last().is_some_and(|last| ROLES.iter().any(|role| role.suffix() == last)) {
        name.push('_');
    }
    if name.is_empty() { "value".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_model_where_they_can_be() {
        for (given, expected) in [
            ("stem", "stem"),
            ("/layer1/layer1.0/conv1/Conv", "layer1.layer1.0.conv1.Conv"),
            ("input.1", "input.1"),
            ("a..b/", "a.b"),
            ("", "value"),
            ("///", "value"),
            ("conv.weight", "conv.weight_"),
            ("weight", "weight"),
            ("x, y*", "x__y_"),
        ] {
            assert_eq!(Names::default().take(given), expected, "{given}");
        }
    }

    #[test]
    fn names_that_are_taken_are_numbered() {
        let mut names = Names::default();
        let given = ["a", "a_2", "a", "a", "a_2", "/a"];
        assert_eq!(given.map(|name| names.take(name)), ["a", "a_2", "a_3", "a_4", "a_2_2", "a_5"]);
    }
}
