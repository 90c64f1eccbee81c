//! What Linux says about the memory that a process can have, read from the texts below `/proc` and `/sys`.

use std::path::{Path, PathBuf};

use super::{Budget, BudgetSource};

impl Budget {
    /// What can be had now by a process that runs on so many threads, less a reserve: an eighth, 16 MiB for what a plan does
    /// not count, and 1 MiB for each thread.
    ///
    /// On Linux it is the least of the memory that is free or can be freed, of what the control groups of the process (version
    /// 1 and 2, up to the root) have left, and of what `ulimit -v` and `ulimit -d` leave; where the machine promises no more
    /// than it has, of what it may still promise too. A limit of addresses has to hold the addresses that each thread takes for
    /// its stack and its part of the heap as well, though hardly any memory lies there: they go off too, up to a half. On
    /// other systems it is 4 GiB.
    ///
    /// ```
    /// use tiled_graph::Budget;
    /// assert!(Budget::available(1).bytes < 1 << 60);
    /// ```
    #[must_use]
    pub fn available(threads: usize) -> Self {
        available(&|path| std::fs::read_to_string(path).ok(), threads)
            .unwrap_or(Self { bytes: ASSUMED_BYTES, source: BudgetSource::Assumed })
    }
}

/// The budget where the system does not say what is free: what hardly any machine for images lacks.
const ASSUMED_BYTES: u64 = 4 << 30;

/// How a file is read; `None` where it cannot be.
type Read<'a> = &'a dyn Fn(&Path) -> Option<String>;

/// The least of what the system's limits leave, less a reserve; `None` where the system says nothing.
fn available(read: Read<'_>, threads: usize) -> Option<Budget> {
    let threads = threads.max(1) as u64;
    let usable = |(left, source): (u64, BudgetSource)| {
        let mut reserve = left / 8 + FIXED_RESERVE_BYTES + threads * THREAD_RESERVE_BYTES;
        if source == BudgetSource::AddressSpace {
            reserve += (threads * THREAD_ADDRESS_BYTES).min(left / 2);
        }
        Budget { bytes: left.saturating_sub(reserve), source }
    };
    let said =
        [free_memory(read), commitment(read), address_space(read), data_size(read), control_groups(read)];
    said.into_iter().flatten().map(usable).min_by_key(|budget| budget.bytes)
}

/// `MemAvailable` counts what the system can free without swapping; kernels before 3.14 say only what is free.
fn free_memory(read: Read<'_>) -> Option<(u64, BudgetSource)> {
    let text = read(Path::new("/proc/meminfo"))?;
    let left = kibibytes(&text, "MemAvailable:").or_else(|| kibibytes(&text, "MemFree:"))?;
    Some((left, BudgetSource::FreeMemory))
}

/// What may still be promised where `vm.overcommit_memory` is 2.
fn commitment(read: Read<'_>) -> Option<(u64, BudgetSource)> {
    if read(Path::new("/proc/sys/vm/overcommit_memory"))?.trim() != "2" {
        return None;
    }
    let text = read(Path::new("/proc/meminfo"))?;
    let left = kibibytes(&text, "CommitLimit:")?.saturating_sub(kibibytes(&text, "Committed_AS:")?);
    Some((left, BudgetSource::Commitment))
}

fn address_space(read: Read<'_>) -> Option<(u64, BudgetSource)> {
    process_limit(read, "Max address space", "VmSize:", BudgetSource::AddressSpace)
}

fn data_size(read: Read<'_>) -> Option<(u64, BudgetSource)> {
    process_limit(read, "Max data size", "VmData:", BudgetSource::DataSize)
}

/// What a limit of the process, in bytes, leaves beside what it has.
fn process_limit(
    read: Read<'_>,
    limit: &str,
    taken: &str,
    source: BudgetSource,
) -> Option<(u64, BudgetSource)> {
    let limits = read(Path::new("/proc/self/limits"))?;
    let soft = limits.lines().find_map(|line| line.strip_prefix(limit))?.split_whitespace().next()?;
    let soft: u64 = soft.parse().ok()?; // `unlimited` is no number
    let taken = kibibytes(&read(Path::new("/proc/self/status"))?, taken)?;
    Some((soft.saturating_sub(taken), source))
}

/// The least that the process's control groups have left, from its own to the root of each hierarchy that counts memory.
fn control_groups(read: Read<'_>) -> Option<(u64, BudgetSource)> {
    let groups = read(Path::new("/proc/self/cgroup"))?;
    let mounts = read(Path::new("/proc/self/mountinfo"))?;
    let left = groups
        .lines()
        .filter_map(Group::parse)
        .filter_map(|group| {
            let mount =
                mounts.lines().filter_map(Mount::parse).find(|mount| mount.version == group.version)?;
            left_up_the_tree(read, &group, &mount)
        })
        .min()?;
    Some((left, BudgetSource::ControlGroup))
}

fn left_up_the_tree(read: Read<'_>, group: &Group<'_>, mount: &Mount) -> Option<u64> {
    // where the process sees only its own part of the tree, the mount begins there
    let below =
        Path::new(group.path).strip_prefix(&mount.root).or_else(|_| Path::new(group.path).strip_prefix("/"));
    let below = below.ok()?;
    below.ancestors().filter_map(|folder| left_in(read, &mount.point.join(folder), group.version)).min()
}

/// What one group has left: its limit less what it has, of which the files that nobody has used lately can be freed.
fn left_in(read: Read<'_>, folder: &Path, version: Version) -> Option<u64> {
    let number = |name: &str| read(&folder.join(name))?.trim().parse::<u64>().ok();
    let (limit, taken, idle) = match version {
        Version::One => {
            (number("memory.limit_in_bytes")?, number("memory.usage_in_bytes")?, "total_inactive_file ")
        }
        Version::Two => {
            // beyond the high mark a group is slowed down to a crawl; `max` is no number
            let limit = [number("memory.max"), number("memory.high")].into_iter().flatten().min()?;
            (limit, number("memory.current")?, "inactive_file ")
        }
    };
    let stat = read(&folder.join("memory.stat")).unwrap_or_default();
    let idle: u64 = stat
        .lines()
        .find_map(|line| line.strip_prefix(idle))
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0);
    Some(limit.saturating_sub(taken.saturating_sub(idle)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A line of `/proc/self/cgroup` about a hierarchy that counts memory: `4:memory:/a/b` or `0::/a/b`.
struct Group<'a> {
    version: Version,
    path: &'a str,
}

impl<'a> Group<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let version = match controllers {
            "" if number == "0" => Version::Two,
            list if list.split(',').any(|controller| controller == "memory") => Version::One,
            _ => return None,
        };
        Some(Self { version, path })
    }
}

/// A line of `/proc/self/mountinfo` about a hierarchy that counts memory.
struct Mount {
    version: Version,
    /// The group that lies at `point`.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// `35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory`: fields before the dash vary in number.
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
        let version = match kind {
            "cgroup2" => Version::Two,
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        let mut before = before.split(' ').skip(3).map(|path| PathBuf::from(unescape(path)));
        Some(Self { version, root: before.next()?, point: before.next()? })
    }
}

/// Spaces and backslashes in paths are written as octal numbers.
fn unescape(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\134", "\\")]
        .into_iter()
        .fold(path.to_owned(), |path, (written, meant)| path.replace(written, meant))
}

/// The number behind a name in lines like `MemAvailable:   1234 kB`, where kB means 1024 bytes, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = rest.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// The program's own growth that no plan counts.
const FIXED_RESERVE_BYTES: u64 = 16 << 20;

/// The part of a thread's stack and heap that is touched, generously.
const THREAD_RESERVE_BYTES: u64 = 1 << 20;

/// The addresses that a thread takes: 2 MiB of stack and 64 MiB for a heap of its own.
const THREAD_ADDRESS_BYTES: u64 = 66 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Files of a machine; 64 GiB are free where nothing else is said.
    fn machine(files: &[(&str, &str)], threads: usize) -> Option<Budget> {
        let mut all: BTreeMap<PathBuf, String> = BTreeMap::new();
        all.insert("/proc/meminfo".into(), MEMINFO.into());
        all.extend(files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())));
        available(&|path| all.get(path).cloned(), threads)
    }

    fn less_reserve(left: u64, threads: u64) -> u64 {
        left - left / 8 - FIXED_RESERVE_BYTES - threads * THREAD_RESERVE_BYTES
    }

    #[test]
    fn r01_free_memory_is_what_the_machine_can_free_less_a_reserve() {
        let budget = machine(&[], 4).expect("the machine says it");
        assert_eq!(budget, Budget { bytes: less_reserve(64 << 30, 4), source: BudgetSource::FreeMemory });
        let old = machine(&[("/proc/meminfo", "MemTotal: 9 kB\nMemFree:  2097152 kB\n")], 1);
        assert_eq!(old.map(|budget| budget.bytes), Some(less_reserve(2 << 30, 1)));
    }

    #[test]
    fn r01_a_system_that_says_nothing_is_told_apart() {
        assert_eq!(available(&|_| None, 1), None);
        assert_eq!(machine(&[("/proc/meminfo", "nothing of the kind")], 1), None);
    }

    #[test]
    fn r01_a_group_of_version_two_leaves_what_its_narrowest_ancestor_has() {
        let files = [
            ("/proc/self/cgroup", "0::/user.slice/job\n"),
            (
                "/proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            ),
            ("/sys/fs/cgroup/user.slice/job/memory.max", "max\n"),
            ("/sys/fs/cgroup/user.slice/job/memory.high", "max\n"),
            ("/sys/fs/cgroup/user.slice/job/memory.current", "1000\n"),
            ("/sys/fs/cgroup/user.slice/memory.max", "4294967296\n"),
            ("/sys/fs/cgroup/user.slice/memory.high", "max\n"),
            ("/sys/fs/cgroup/user.slice/memory.current", "1342177280\n"),
            ("/sys/fs/cgroup/user.slice/memory.stat", "anon 7\ninactive_file 268435456\nactive_file 9\n"),
        ];
        // 4 GiB less 1.25 GiB taken, of which 0.25 GiB are idle files
        let budget = machine(&files, 1).expect("the machine says it");
        assert_eq!(budget, Budget { bytes: less_reserve(3 << 30, 1), source: BudgetSource::ControlGroup });
        let high = [("/sys/fs/cgroup/user.slice/memory.high", "2147483648\n")];
        let budget = machine(&[&files[..], &high].concat(), 1).expect("the machine says it");
        assert_eq!(budget.bytes, less_reserve(1 << 30, 1), "the high mark counts");
    }

    #[test]
    fn r01_a_group_of_version_one_is_found_in_a_container_that_sees_its_own_part() {
        let files = [
            ("/proc/self/cgroup", "9:name=systemd:/docker/f00\n4:cpu,memory:/docker/f00\n0::/\n"),
            (
                "/proc/self/mountinfo",
                "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                 34 31 0:31 /docker/f00 /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                 35 31 0:32 /docker/f00 /sys/fs/my\\040groups/memory rw master:9 - cgroup cgroup rw,memory\n",
            ),
            ("/sys/fs/my groups/memory/memory.limit_in_bytes", "1073741824\n"),
            ("/sys/fs/my groups/memory/memory.usage_in_bytes", "536870912\n"),
            ("/sys/fs/my groups/memory/memory.stat", "inactive_file 3\ntotal_inactive_file 268435456\n"),
        ];
        let budget = machine(&files, 2).expect("the machine says it");
        assert_eq!(budget, Budget { bytes: less_reserve(768 << 20, 2), source: BudgetSource::ControlGroup });
    }

    #[test]
    fn r01_a_group_without_a_limit_leaves_the_machine() {
        let files = [
            ("/proc/self/cgroup", "4:memory:/a\n"),
            ("/proc/self/mountinfo", "35 31 0:32 / /g rw - cgroup cgroup rw,memory\n"),
            ("/g/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/g/a/memory.usage_in_bytes", "5\n"),
        ];
        assert_eq!(machine(&files, 1).map(|budget| budget.source), Some(BudgetSource::FreeMemory));
    }

    #[test]
    fn r01_a_limit_of_addresses_holds_what_threads_take_of_them() {
        let files = [
            ("/proc/self/limits", LIMITS),
            (
                "/proc/self/status",
                "Name:\ttiled\nVmPeak:\t 999 kB\nVmSize:\t  204800 kB\nVmData:\t 1024 kB\n",
            ),
        ];
        let left = (4_u64 << 30) - (200 << 20);
        for (threads, addresses) in [(1, THREAD_ADDRESS_BYTES), (32, left / 2)] {
            let budget =
                machine(&files, usize::try_from(threads).expect("few")).expect("the machine says it");
            let expected = less_reserve(left, threads) - addresses;
            assert_eq!(budget, Budget { bytes: expected, source: BudgetSource::AddressSpace });
        }
    }

    #[test]
    fn r01_a_limit_of_data_counts_where_it_is_the_least() {
        let limits =
            LIMITS.replace("Max data size             unlimited ", "Max data size             1073741824");
        let status = "VmSize:\t  204800 kB\nVmData:\t 524288 kB\n";
        let files = [("/proc/self/limits", limits.as_str()), ("/proc/self/status", status)];
        let budget = machine(&files, 1).expect("the machine says it");
        assert_eq!(budget, Budget { bytes: less_reserve(512 << 20, 1), source: BudgetSource::DataSize });
    }

    #[test]
    fn r01_a_machine_that_promises_no_more_than_it_has_is_asked_what_it_may_promise() {
        let files = [("/proc/sys/vm/overcommit_memory", "2\n")];
        let budget = machine(&files, 1).expect("the machine says it");
        assert_eq!(budget, Budget { bytes: less_reserve(8 << 30, 1), source: BudgetSource::Commitment });
        let files = [("/proc/sys/vm/overcommit_memory", "0\n")];
        assert_eq!(machine(&files, 1).map(|budget| budget.source), Some(BudgetSource::FreeMemory));
    }

    #[test]
    fn r01_what_is_used_up_leaves_nothing() {
        let status = "VmSize:\t  8388608 kB\nVmData:\t 1024 kB\n";
        let budget = machine(&[("/proc/self/limits", LIMITS), ("/proc/self/status", status)], 1);
        assert_eq!(budget, Some(Budget { bytes: 0, source: BudgetSource::AddressSpace }));
    }

    const MEMINFO: &str = "MemTotal:       97517568 kB\nMemFree:        21850924 kB\nMemAvailable:   67108864 kB\n\
                           CommitLimit:    12582912 kB\nCommitted_AS:    4194304 kB\n";

    const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
                          Max cpu time              unlimited            unlimited            seconds   \n\
                          Max data size             unlimited            unlimited            bytes     \n\
                          Max address space         4294967296           unlimited            bytes     \n";
}
