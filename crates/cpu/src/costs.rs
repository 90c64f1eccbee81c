//! What work costs on this CPU.

use std::fs;
use std::sync::OnceLock;

use tiled_kernel::Costs;
use tiled_tensor::Element;

use crate::{Isa, vector};

/// Two multiply-adds of a vector a cycle at 4.2 GHz and less: what a loop of them reaches a lane.
const FLOPS_A_LANE: f64 = 16.4e9;

/// The family of AMD's CPUs with vectors of 64 bytes that go through units of 32 bytes, half as many a cycle: Zen 4. Zen 3, of the
/// same family, has none of 64 bytes.
const FAMILY_OF_HALVES: &str = "25";

/// The costs with this instruction set.
pub(crate) fn costs<T: Element>(isa: Isa) -> Costs {
    #[expect(clippy::cast_precision_loss, reason = "at most 64 lanes")]
    let lanes = vector::lanes::<T>(isa) as f64;
    let flops = FLOPS_A_LANE * lanes * if isa == Isa::Avx512 && halves_wide_vectors() { 0.5 } else { 1.0 };
    let bytes = match isa {
        Isa::Portable => 12e9,
        Isa::Avx2 => 32e9,
        Isa::Avx512 => 40e9,
    };
    let [core_cache_bytes, cache_bytes] = cache_bytes();
    Costs { flops, bytes, core_cache_bytes, cache_bytes, ..Costs::default() }
}

/// Whether a multiply-add of 64 bytes takes this CPU as long as two of 32; not, where the system does not say which CPU it is.
fn halves_wide_vectors() -> bool {
    static HALVES: OnceLock<bool> = OnceLock::new();
    *HALVES.get_or_init(|| fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| is_of_halves(&text)))
}

/// Whether the first CPU, as the kernel of Linux lists them, is one of [`FAMILY_OF_HALVES`].
fn is_of_halves(cpus: &str) -> bool {
    let entry = |name: &str| {
        let entries = cpus.lines().filter_map(|line| line.split_once(':'));
        entries.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name)
    };
    entry("vendor_id").is_some_and(|(_, vendor)| vendor == "AuthenticAMD")
        && entry("cpu family").is_some_and(|(_, family)| family == FAMILY_OF_HALVES)
}

/// The size of the second level cache.
pub(crate) fn core_cache_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number of bytes")]
    *BYTES.get_or_init(|| cache_bytes()[0] as usize)
}

/// The sizes of the second level cache and of the last one.
fn cache_bytes() -> [f64; 2] {
    static BYTES: OnceLock<[f64; 2]> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let size = |index: usize| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
            parse_size(fs::read_to_string(path).ok()?.trim())
        };
        let default = Costs::default();
        [
            size(2).unwrap_or(default.core_cache_bytes),
            size(3).or_else(|| size(2)).unwrap_or(default.cache_bytes),
        ]
    })
}

/// A size as the kernel of Linux writes it: `32768K`.
fn parse_size(text: &str) -> Option<f64> {
    let (number, unit) = match text.strip_suffix('K') {
        Some(number) => (number, 1024.0),
        None => (text.strip_suffix('M')?, 1024.0 * 1024.0),
    };
    Some(number.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_is_read_as_linux_writes_it() {
        let cpu = |vendor: &str, family: u32| {
            format!(
                "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: 17\nflags\t\t: a: b\n"
            )
        };
        assert!(is_of_halves(&cpu("AuthenticAMD", 25)), "Zen 4");
        assert!(!is_of_halves(&cpu("AuthenticAMD", 26)), "Zen 5");
        assert!(!is_of_halves(&cpu("GenuineIntel", 6)), "Sapphire Rapids");
        assert!(!is_of_halves("processor\t: 0\nBogoMIPS\t: 50.00\n"), "another architecture");
    }

    #[test]
    fn cache_sizes_are_read_as_linux_writes_them() {
        assert_eq!(parse_size("32768K"), Some(33_554_432.0));
        assert_eq!(parse_size("8M"), Some(8_388_608.0));
        assert_eq!(parse_size("many"), None);
    }
}
