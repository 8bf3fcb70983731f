//! The limits of this process, and its use of the machine.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Resource, Rlimit, Signal};

use super::uring::Ring;
use crate::identity::{Identity, User};

/// Raises the soft limit of open files to the hard one. Returns the limit now in force.
pub fn raise_open_files() -> io::Result<u64> {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit { current: maximum, maximum };
        rustix::process::setrlimit(Resource::Nofile, raised)?;
    }
    Ok(maximum.unwrap_or(u64::MAX))
}

/// Returns how many octets this process may lock in memory; `None` if there is no limit.
pub fn memlock_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Memlock).current
}

/// Memory this process occupies, in octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Ordinary and transparent huge pages (`VmRSS`).
    pub rss: u64,
    /// Pages of the hugetlb pool (`HugetlbPages`), which `rss` leaves out.
    pub hugetlb: u64,
}

impl Resident {
    /// Returns the sum of both figures.
    pub const fn total(self) -> u64 {
        self.rss.saturating_add(self.hugetlb)
    }
}

/// Returns the memory this process occupies. Does not allocate.
pub fn resident() -> io::Result<Resident> {
    let mut room = [0; STATUS_MAX];
    Ok(parse_resident(read_start("/proc/self/status", &mut room)?))
}

/// Returns the octets of this process that devices have locked in memory (`VmPin`), which `memlock` limits.
pub fn pinned() -> io::Result<u64> {
    let mut room = [0; STATUS_MAX];
    Ok(parse_pinned(read_start("/proc/self/status", &mut room)?))
}

/// Returns the octets that this process has in memory, counting of a page shared by several only its part (`Pss`). Does
/// not allocate. Takes longer, the more the process has mapped.
pub fn share_of_memory() -> io::Result<u64> {
    let mut room = [0; STATUS_MAX];
    Ok(parse_share(read_start("/proc/self/smaps_rollup", &mut room)?))
}

/// Returns how often the system has taken the CPU from the calling thread since it started, to run another; zero if it
/// does not tell. Makes one system call.
pub fn preemptions_of_this_thread() -> u64 {
    // SAFETY: an `rusage` is of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `rusage` into a live value.
    let done = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    if done == 0 { u64::try_from(usage.ru_nivcsw).unwrap_or_default() } else { 0 }
}

/// Reads as much of a file as fits into `room`.
fn read_start<'a>(path: &str, room: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let mut file = File::open(path)?;
    let mut length = 0;
    while let Some(rest) = room.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            count => length += count,
        }
    }
    Ok(&room[..length])
}

/// Returns the user that this process acts as on files, and its machine.
pub fn identity() -> io::Result<Identity> {
    let machine = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let status = fs::read_to_string("/proc/self/status")?;
    let user = parse_user(machine.trim_end(), &status);
    user.map(Identity::User).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Tries to make and to enter the kind of ring that the iWARP provider polls with; the error says why that fails.
pub fn probe_io_uring() -> io::Result<()> {
    Ring::new(8, 8, 4096).map(drop).map_err(|unavailable| unavailable.error)
}

/// Octets read of a status file; the figures of `status` are in its first half.
const STATUS_MAX: usize = 4096;

fn parse_pinned(status: &[u8]) -> u64 {
    let mut lines = status.split(|byte| *byte == b'\n');
    lines.find_map(|line| line.strip_prefix(b"VmPin:")).map_or(0, octets)
}

fn parse_resident(status: &[u8]) -> Resident {
    let mut resident = Resident::default();
    for line in status.split(|byte| *byte == b'\n') {
        if let Some(kib) = line.strip_prefix(b"VmRSS:") {
            resident.rss = octets(kib);
        } else if let Some(kib) = line.strip_prefix(b"HugetlbPages:") {
            resident.hugetlb = octets(kib);
        }
    }
    resident
}

fn parse_share(rollup: &[u8]) -> u64 {
    const OF_A_PROCESS: [&[u8]; 3] = [b"Pss:", b"Shared_Hugetlb:", b"Private_Hugetlb:"];
    let lines = rollup.split(|byte| *byte == b'\n');
    let figure = |line: &[u8]| {
        let kib = OF_A_PROCESS.iter().find_map(|name| line.strip_prefix(*name));
        kib.map_or(0, octets)
    };
    lines.map(figure).sum()
}

/// Finds the ids that apply to files: the last of four.
fn parse_user(machine: &str, status: &str) -> Option<User> {
    let line = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let last = |name| line(name)?.split_ascii_whitespace().nth(3)?.parse().ok();
    let groups = line("Groups:")?.split_ascii_whitespace().map(str::parse);
    let groups = groups.collect::<Result<Vec<_>, _>>().ok()?;
    Some(User::new(machine, last("Uid:")?, last("Gid:")?, &groups))
}

/// Parses `   123 kB`.
fn octets(kib: &[u8]) -> u64 {
    let text = str::from_utf8(kib).unwrap_or_default().trim().trim_end_matches("kB").trim_end();
    text.parse::<u64>().unwrap_or(0).saturating_mul(1024)
}

/// Makes this process the leader of a new session, without a terminal: the scheduler then weighs it against other
/// sessions as a group of its own.
///
/// # Errors
///
/// The process leads a process group already.
pub fn begin_session() -> io::Result<()> {
    Ok(rustix::process::setsid().map(drop)?)
}

/// Returns whether this process leads its session, so that changing the session affects no other program.
pub fn leads_session() -> bool {
    // `rustix::process::getsid` takes the number for that of a process. It is 0 where the leader is outside of this
    // process's PID namespace, as for a command that a container's host started in it.
    // SAFETY: the call takes a number and returns one; it touches no memory.
    let session = unsafe { libc::getsid(0) };
    u32::try_from(session) == Ok(std::process::id())
}

/// Gives this process's session precedence over all others of the machine, as far as the scheduler groups by session.
/// Needs the right to lower nice values.
pub fn favour_session() -> io::Result<()> {
    fs::write("/proc/self/autogroup", "-20")
}

/// Has the child of `command` receive SIGTERM when the thread that starts it ends, for whatever reason.
pub fn end_with_us(command: &mut Command) -> &mut Command {
    let ask = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: the closure makes one system call; it neither allocates nor takes a lock.
    unsafe { command.pre_exec(ask) }
}

/// Asks a child to end with SIGTERM and waits until it has.
pub fn terminate(child: &mut Child) -> io::Result<ExitStatus> {
    // The child has not been waited for, so its number is still its own.
    rustix::process::kill_process(Pid::from_child(child), Signal::TERM)?;
    child.wait()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::sys::affinity;

    #[test]
    fn status_lines_give_both_figures() {
        let status =
            b"Name:\tx\nVmPin:\t  24 kB\nVmRSS:\t    1720 kB\nHugetlbPages:\t    4096 kB\n";
        assert_eq!((parse_pinned(status), parse_pinned(b"VmLck:\t 8 kB\n")), (24 * 1024, 0));
        let resident = parse_resident(status);
        assert_eq!(resident, Resident { rss: 1720 * 1024, hugetlb: 4096 * 1024 });
        assert_eq!(resident.total(), 5816 * 1024);
        assert_eq!(parse_resident(b"VmRSS:\n"), Resident::default());
    }

    #[test]
    fn what_counts_for_files_is_who_we_are() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n";
        assert_eq!(parse_user("host", status), Some(User::new("host", 4, 8, &[9, 10])));
        let alone = "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t\n";
        assert_eq!(parse_user("host", alone), Some(User::new("host", 0, 0, &[])));
        assert_eq!(parse_user("host", "Uid:\t1\n"), None);
        assert!(matches!(identity(), Ok(Identity::User(_))));
    }

    #[test]
    fn this_process_occupies_something() {
        let resident = resident().unwrap();
        assert!(resident.rss > 100 * 1024, "{resident:?}");
    }

    #[test]
    fn who_loses_a_cpu_to_another_thread_is_told_so() {
        let cpu = affinity::usable().unwrap()[0];
        let losing = AtomicUsize::new(2);
        // Neither thread yields, so each gets the CPU only when the system preempts the other.
        let lose = || {
            affinity::pin(cpu).unwrap();
            let before = preemptions_of_this_thread();
            let mut lost = false;
            // About ten seconds, if no thread loses its CPU.
            for _ in 0..20_000_000 {
                if !lost && preemptions_of_this_thread() > before {
                    lost = true;
                    losing.fetch_sub(1, Ordering::Relaxed);
                }
                if losing.load(Ordering::Relaxed) == 0 {
                    break;
                }
            }
            lost
        };
        let both_lost = thread::scope(|scope| {
            let threads = [scope.spawn(lose), scope.spawn(lose)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(both_lost, [true; 2]);
    }

    #[test]
    fn shared_pages_count_in_part() {
        let rollup = b"0-1 ---p 0 00:00 0 [rollup]\nRss: 30 kB\nPss: 20 kB\nPss_Anon: 9 kB\n\
            Shared_Hugetlb: 2 kB\nPrivate_Hugetlb: 4 kB\nSwapPss: 1 kB\n";
        assert_eq!(parse_share(rollup), 26 * 1024);
        // Not compared with the resident memory: other tests take and return memory meanwhile.
        assert!(share_of_memory().unwrap() > 100 * 1024);
    }

    #[test]
    fn open_files_end_at_the_hard_limit() {
        let raised = raise_open_files().unwrap();
        let now = rustix::process::getrlimit(Resource::Nofile);
        assert_eq!((now.current.unwrap_or(u64::MAX), now.current), (raised, now.maximum));
    }
}
