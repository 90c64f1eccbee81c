//! Numbers as people read them.

/// Bytes in the largest unit that leaves at least one: `11.8 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{} {unit}", three_digits(bytes as f64 / f64::from(1_u32 << shift))),
        None => format!("{bytes} B"),
    }
}

/// Bytes in MiB, to align in a column.
pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1_u32 << 20))
}

/// Arithmetic: `12.3 GFLOP`.
pub(super) fn flops(flops: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.iter().find(|(size, _)| flops >= *size) {
        Some((size, unit)) => format!("{} {unit}FLOP", three_digits(flops / size)),
        None => format!("{flops:.0} FLOP"),
    }
}

/// Seconds: `0.12 s`, `3.4 ms`.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds >= 0.1 {
        format!("{} s", three_digits(seconds))
    } else {
        format!("{} ms", three_digits(seconds * 1e3))
    }
}

/// A share in percent: `12.3 %`.
pub(super) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.1} %", 100.0 * part / whole) } else { "0.0 %".to_owned() }
}

/// A count with a thin group every three digits: `16 384`.
pub(super) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn three_digits(value: f64) -> String {
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1024), bytes(12_345_678)],
            ["0 B", "1023 B", "1.00 KiB", "11.8 MiB"]
        );
        assert_eq!(bytes(5 << 40), "5120 GiB");
        assert_eq!([flops(999.0), flops(12.34e9)], ["999 FLOP", "12.3 GFLOP"]);
        assert_eq!([seconds(0.012_34), seconds(123.4)], ["12.3 ms", "123 s"]);
        assert_eq!([percent(1.0, 8.0), percent(0.0, 0.0)], ["12.5 %", "0.0 %"]);
        assert_eq!([grouped(1), grouped(1000), grouped(1_234_567)], ["1", "1 000", "1 234 567"]);
        assert_eq!(mebibytes(1 << 19), "0.50");
    }
}
