//! Names: which are close to one that is unknown, and which belong to operators that cannot be tiled.

/// Why an operator of PyTorch cannot be tiled; `None` where it is not known to be one of those.
pub(super) fn cannot_tile(op: &str) -> Option<&'static str> {
    const ALL_PAIRS: &str = "every pixel reads every other";
    const POSITIONS: &str = "which pixels it reads is known from the data alone";
    const RECURRENCE: &str = "every position reads all before it";
    const FORGETS: &str =
        "it makes one row of the whole image; use a global pooling, which `linear` reads without it";
    const REORDERS: &str = "it moves pixels across the whole image";
    Some(match plain(op).as_str() {
        "attention"
        | "multiheadattention"
        | "scaleddotproductattention"
        | "selfattention"
        | "transformer"
        | "transformerencoder"
        | "transformerencoderlayer"
        | "transformerdecoder"
        | "transformerdecoderlayer" => ALL_PAIRS,
        "flatten" | "view" | "reshape" | "unflatten" => FORGETS,
        "permute" | "transpose" | "roll" | "flip" | "rot90" => REORDERS,
        "gridsample" | "maxunpool2d" | "gather" | "scatter" | "sort" | "topk" => POSITIONS,
        "rnn" | "lstm" | "gru" | "cumsum" | "cumprod" => RECURRENCE,
        "fft" | "fft2" | "rfft2" | "ifft2" => "every output reads every pixel",
        _ => return None,
    })
}

/// The most names that an error offers.
const OFFERED: usize = 3;

/// The names among `known` that are closest to `name`, best first, none where none is close.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted = plain(name);
    let reach = 2.max(wanted.chars().count() / 2);
    // the first ones of what is close: a network may have very many names
    let mut close: Vec<(usize, &str)> = Vec::with_capacity(OFFERED + 1);
    for candidate in known {
        let edits = distance(&wanted, &plain(candidate));
        if edits <= reach {
            close.insert(close.partition_point(|(other, _)| *other <= edits), (edits, candidate));
            close.truncate(OFFERED);
        }
    }
    let best = close.first().map_or(0, |(edits, _)| *edits);
    close.retain(|(edits, _)| *edits <= best + 1);
    close.into_iter().map(|(_, candidate)| candidate.to_owned()).collect()
}

/// Lowercase without underscores, so that `ConvTranspose2d` is `conv_transpose2d`.
fn plain(name: &str) -> String {
    name.chars().filter(|letter| *letter != '_').flat_map(char::to_lowercase).collect()
}

/// The insertions, deletions and substitutions from one text to the other (Levenshtein, 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn names_of_classes_are_close_to_names_of_functions() {
        assert_eq!(nearest("Conv2d", ["relu", "concat", "conv2d"].into_iter()), ["conv2d"]);
        assert!(nearest("zzzzzz", ["relu", "conv2d"].into_iter()).is_empty());
    }
}
