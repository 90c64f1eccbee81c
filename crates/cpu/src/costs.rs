//! What work costs on this CPU.

use std::fs;
use std::sync::OnceLock;

use tiled_kernel::Costs;
use tiled_tensor::Element;

use crate::{Isa, vector};

/// Two multiply-adds of a vector a cycle at 4.2 GHz and less: what a loop of them reaches a lane.
const FLOPS_A_LANE: f64 = 16.4e9;

/// The family of CPUs of AMD (25: Zen 3 and 4) whose vectors of 64 bytes go through units of 32 bytes, half as many a cycle.
const FAMILY_OF_HALVES: u32 = 0x19;

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

/// Whether a multiply-add of 64 bytes takes this CPU as long as two of 32.
#[cfg(target_arch = "x86_64")]
fn halves_wide_vectors() -> bool {
    use std::arch::x86_64::__cpuid;
    static HALVES: OnceLock<bool> = OnceLock::new();
    *HALVES.get_or_init(|| {
        let (vendor, version) = (__cpuid(0), __cpuid(1));
        let is_amd =
            [vendor.ebx, vendor.edx, vendor.ecx] == [*b"Auth", *b"enti", *b"cAMD"].map(u32::from_le_bytes);
        is_amd && family(version.eax) == FAMILY_OF_HALVES
    })
}

#[cfg(not(target_arch = "x86_64"))]
const fn halves_wide_vectors() -> bool {
    false
}

/// The family of a CPU, from what leaf 1 of `cpuid` has in `eax`.
const fn family(signature: u32) -> u32 {
    let base = signature >> 8 & 0xf;
    if base == 0xf { base + (signature >> 20 & 0xff) } else { base }
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
    fn families_beyond_fifteen_are_sums() {
        assert_eq!(family(0x00a1_0f11), 0x19, "Zen 4");
        assert_eq!(family(0x00b0_0f21), 0x1a, "Zen 5");
        assert_eq!(family(0x0008_06f8), 6, "Sapphire Rapids");
    }

    #[test]
    fn cache_sizes_are_read_as_linux_writes_them() {
        assert_eq!(parse_size("32768K"), Some(33_554_432.0));
        assert_eq!(parse_size("8M"), Some(8_388_608.0));
        assert_eq!(parse_size("many"), None);
    }
}
