//! What one end has spent: its time, its copies, its calls to the system.

use haulage::core::Cx;
use haulage::sys::alloc::allocations_on_this_thread;
use haulage::sys::{clock, instructions, process};
use haulage_proto::xdr::{Reader, Truncated, Writer};

/// Counters of one core since it started; or of a stretch of time, as [`since`](Self::since) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The end's own clock, in nanoseconds.
    pub now_ns: u64,
    /// CPU time of the core's thread, in nanoseconds.
    pub cpu_ns: u64,
    /// Times the system let another thread have the CPU that the core's thread was using.
    pub preemptions: u64,
    /// Heap allocations of the core's thread.
    pub allocations: u64,
    /// System calls of the provider.
    pub syscalls: u64,
    /// Messages sent.
    pub sends: u64,
    /// Times messages left.
    pub send_batches: u64,
    /// Messages received.
    pub receives: u64,
    /// Times messages were found.
    pub receive_batches: u64,
    /// Octets of tagged data the CPU copied.
    pub tagged_copied: u64,
    /// Octets of anything the CPU copied, here or in the system.
    pub all_copied: u64,
    /// Connections of the core.
    pub connections: u64,
    /// Octets of memory of the core's process, its part of what it shares with others.
    pub memory: u64,
    /// Instructions of the core's thread, without the system's; zero where they are not counted.
    pub instructions: u64,
}

impl Figures {
    /// Takes them on the core's thread. Seven system calls.
    pub fn of(cx: &Cx<'_>) -> Self {
        // First: what this takes is to lie before a stretch that begins, and it may take long.
        let memory = process::share_of_memory().unwrap_or(0);
        let (moved, done) = (cx.moved(), cx.counters());
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
            tagged_copied: moved.tagged_copied,
            all_copied: moved.bytes_copied + moved.bytes_system + done.bytes_inline,
            connections: cx.connections().into(),
            memory,
            instructions: instructions::of_this_thread().unwrap_or(0),
        }
    }

    /// Returns what was spent after `before`.
    #[must_use]
    pub fn since(mut self, mut before: Self) -> Self {
        let pairs = self.fields_mut().into_iter().zip(before.fields_mut());
        pairs.for_each(|(after, before)| *after = after.saturating_sub(*before));
        self
    }

    /// Returns the part of the time that the core's thread was on its CPU.
    pub fn cpu(&self) -> f64 {
        self.cpu_ns as f64 / self.now_ns.max(1) as f64
    }

    /// Reads them.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        let mut figures = Self::default();
        for field in figures.fields_mut() {
            *field = r.u64()?;
        }
        Ok(figures)
    }

    /// Appends them.
    pub fn encode(mut self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.fields_mut().into_iter().try_for_each(|field| w.u64(*field))
    }

    /// In the order in which they travel.
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
}
