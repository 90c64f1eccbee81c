//! What the process takes of memory.

/// The most memory that the process has had resident, in bytes, since it began or [`reset_peak_rss`].
///
/// `None` where the system does not say (it is read from `/proc/self/status`).
#[must_use]
pub fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    parse_peak_bytes(&status)
}

/// Begins the peak anew from what is resident now; whether the system can.
pub fn reset_peak_rss() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// `VmHWM:     1234 kB`, where kB means 1024 bytes.
fn parse_peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_the_line_vmhwm_in_kibibytes() {
        assert_eq!(parse_peak_bytes("Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t 1 kB\n"), Some(1234 * 1024));
        assert_eq!(parse_peak_bytes("Name:\tx\n"), None);
        assert_eq!(parse_peak_bytes("VmHWM:\tmany kB\n"), None);
        assert_eq!(parse_peak_bytes("VmHWM:\t18446744073709551615 kB\n"), None);
    }
}
