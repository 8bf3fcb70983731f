//! Resource counters of one end: time, copies, system calls.

use std::ops::AddAssign;

use haulage::core::Cx;
use haulage::sys::alloc::allocations_on_this_thread;
use haulage::sys::{clock, instructions, process};
use haulage_proto::xdr::{Reader, Truncated, Writer};

/// Counters of one core since it started, or, from [`since`](Self::since), of a period. Those of the cores of one process
/// are combined by `+=`: most are sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The end's own clock, in nanoseconds. Of several cores, the largest.
    pub now_ns: u64,
    /// CPU time of the core's thread, in nanoseconds.
    pub cpu_ns: u64,
    /// Involuntary context switches of the core's thread.
    pub preemptions: u64,
    /// Heap allocations of the core's thread.
    pub allocations: u64,
    /// System calls of the provider.
    pub syscalls: u64,
    /// Messages sent.
    pub sends: u64,
    /// Batches in which messages were sent.
    pub send_batches: u64,
    /// Messages received.
    pub receives: u64,
    /// Batches in which messages were received.
    pub receive_batches: u64,
    /// Octets of tagged data the CPU copied.
    pub tagged_copied: u64,
    /// Octets of anything the CPU copied, here or in the system.
    pub all_copied: u64,
    /// Connections of the core.
    pub connections: u64,
    /// Memory of the core's process, in octets, with its share of memory that it shares with other processes (PSS). Of
    /// several cores, the largest.
    pub memory: u64,
    /// User-space instructions of the core's thread; zero if they are not counted.
    pub instructions: u64,
}

impl Figures {
    /// Reads the counters, on the core's thread, by seven system calls.
    pub fn of(cx: &Cx<'_>) -> Self {
        // The share of memory is read first, because that may take long, and would count in a period that begins here.
        let memory = process::share_of_memory().unwrap_or(0);
        let (moved, done) = (cx.moved(), cx.counters());
        // The system copies between memory and sockets, if the provider uses sockets.
        let copies_along = 1 + u64::from(moved.bytes_system > 0);
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            now_ns: clock::now().as_nanos(),
            cpu_ns: nanos(clock::thread_cpu_time()),
            preemptions: process::preemptions_of_this_thread(),
            allocations: allocations_on_this_thread(),
            syscalls: moved.syscalls,
            sends: moved.sends,
            send_batches: moved.send_batches,
            receives: moved.receives,
            receive_batches: moved.receive_batches,
            // What goes along with messages is no tagged data, and counts like it.
            tagged_copied: moved.tagged_copied + done.bytes_along * copies_along,
            all_copied: moved.bytes_copied
                + moved.bytes_system
                + done.bytes_unreduced
                + done.bytes_along,
            connections: cx.connections().into(),
            memory,
            instructions: instructions::of_this_thread().unwrap_or(0),
        }
    }

    /// Returns the difference from `before`.
    #[must_use]
    pub fn since(mut self, mut before: Self) -> Self {
        let pairs = self.fields_mut().into_iter().zip(before.fields_mut());
        pairs.for_each(|(after, before)| *after = after.saturating_sub(*before));
        self
    }

    /// Returns the share of the period that the core's thread spent on a CPU.
    pub fn cpu(&self) -> f64 {
        self.cpu_ns as f64 / self.now_ns.max(1) as f64
    }

    /// Decodes the counters.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        let mut figures = Self::default();
        for field in figures.fields_mut() {
            *field = r.u64()?;
        }
        Ok(figures)
    }

    /// Appends the counters to `w`.
    pub fn encode(mut self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.fields_mut().into_iter().try_for_each(|field| w.u64(*field))
    }

    /// Returns the counters in their order on the wire.
    fn fields_mut(&mut self) -> [&mut u64; 14] {
        [
            &mut self.now_ns,
            &mut self.cpu_ns,
            &mut self.preemptions,
            &mut self.allocations,
            &mut self.syscalls,
            &mut self.sends,
            &mut self.send_batches,
            &mut self.receives,
            &mut self.receive_batches,
            &mut self.tagged_copied,
            &mut self.all_copied,
            &mut self.connections,
            &mut self.memory,
            &mut self.instructions,
        ]
    }
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        let Self {
            now_ns,
            memory,
            cpu_ns,
            preemptions,
            allocations,
            syscalls,
            sends,
            send_batches,
            receives,
            receive_batches,
            tagged_copied,
            all_copied,
            connections,
            instructions,
        } = other;
        self.now_ns = self.now_ns.max(now_ns);
        self.memory = self.memory.max(memory);
        self.cpu_ns += cpu_ns;
        self.preemptions += preemptions;
        self.allocations += allocations;
        self.syscalls += syscalls;
        self.sends += sends;
        self.send_batches += send_batches;
        self.receives += receives;
        self.receive_batches += receive_batches;
        self.tagged_copied += tagged_copied;
        self.all_copied += all_copied;
        self.connections += connections;
        self.instructions += instructions;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_travels_and_is_a_difference() {
        let mut after = Figures::default();
        (11..).zip(after.fields_mut()).for_each(|(n, field)| *field = n * 10);
        let mut room = [0; 112];
        after.encode(&mut Writer::new(&mut room)).unwrap();
        assert_eq!(Figures::decode(&mut Reader::new(&room)), Ok(after));
        assert!(Figures::decode(&mut Reader::new(&room[..111])).is_err());
        let mut before = Figures::default();
        before.fields_mut().into_iter().for_each(|field| *field = 10);
        let mut spent = after.since(before);
        assert_eq!(
            spent.fields_mut().map(|field| *field / 10),
            [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]
        );
        assert!((Figures { now_ns: 4, cpu_ns: 3, ..Figures::default() }.cpu() - 0.75).abs() < 1e-9);
    }

    #[test]
    fn figures_of_two_cores_are_sums_but_for_what_the_process_has_once() {
        let multiples_of = |unit: u64| {
            let mut figures = Figures::default();
            (1..).zip(figures.fields_mut()).for_each(|(n, field)| *field = n * unit);
            figures
        };
        for (one, other) in [(1, 4), (4, 1)] {
            let mut sum = multiples_of(one);
            sum += multiples_of(other);
            let Figures { now_ns, memory, .. } = multiples_of(4);
            assert_eq!(sum, Figures { now_ns, memory, ..multiples_of(5) });
        }
    }
}
