//! Sizes in bytes as people write them.

use tiled_graph::UNLIMITED;

/// Parses `256MiB`, `1.5GB`, `4096`: binary units KiB, MiB, GiB, TiB and decimal ones kB, MB, GB, TB.
///
/// # Errors
/// Where the text is no size above 0, in words.
pub fn parse(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("unit `{}` is not one of KiB, MiB, GiB, TiB, kB, MB, GB, TB", unit.trim())),
    };
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(scale),
        Err(_) => number.parse::<f64>().ok().and_then(|part| scaled(part, scale)),
    };
    match bytes {
        None | Some(0) => Err("wants a size above 0 such as 256MiB or 1.5GB".to_owned()),
        Some(bytes) => Ok(bytes),
    }
}

/// Parses a size as [`parse`] does, or `unlimited`, which is [`UNLIMITED`].
///
/// # Errors
/// As [`parse`].
pub fn parse_budget(text: &str) -> Result<u64, String> {
    if text.trim().eq_ignore_ascii_case("unlimited") { Ok(UNLIMITED) } else { parse(text) }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a fraction of a unit is rounded down; the range is checked before"
)]
fn scaled(number: f64, scale: u64) -> Option<u64> {
    let bytes = number * scale as f64;
    (bytes.is_finite() && (0.0..9e18).contains(&bytes)).then_some(bytes as u64)
}

/// Writes a size in the largest binary unit of which there is at least one.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
pub fn show(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64 / 1024.0;
    if value < 1.0 {
        return format!("{bytes} B");
    }
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use tiled_graph::UNLIMITED;

    use super::{parse, parse_budget, show};

    #[test]
    fn r01_a_budget_is_a_size_or_unlimited() {
        assert_eq!(parse_budget("unlimited"), Ok(UNLIMITED));
        assert_eq!(parse_budget("1KiB"), Ok(1024));
        assert!(parse_budget("limitless").is_err() && parse("unlimited").is_err());
    }

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("256MiB"), Ok(256 << 20));
        assert_eq!(parse("256 mib"), Ok(256 << 20));
        assert_eq!(parse("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse("2GB"), Ok(2_000_000_000));
        assert_eq!(parse("1k"), Ok(1024));
    }

    #[test]
    fn sizes_of_no_sense_are_refused() {
        for text in ["", "MiB", "-1", "0", "0.0001", "12parsecs", "1e400", "99999999TiB", "1.2.3MiB", "nan"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_fits() {
        assert_eq!(show(512), "512 B");
        assert_eq!(show(256 << 20), "256.0 MiB");
        assert_eq!(show(3 << 29), "1.5 GiB");
        assert_eq!(show(1 << 52), "4096.0 TiB");
    }
}
