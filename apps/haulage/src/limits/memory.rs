//! Measurements of memory traffic between two cores.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use haulage::sys::clock;

use super::pair::{GIB, Pair};
use crate::samples::Samples;

/// Measures how fast one core copies blocks of `size` octets into few hot buffers that the other core
/// uses, in GiB/s: the median of many copies. The other core touches every cache line.
pub fn memcpy_gib_per_s(pair: Pair, size: usize, budget: Duration) -> io::Result<f64> {
    let size = size.max(1);
    // Small blocks share a buffer, so that reading the clock costs little beside the copying.
    let blocks = (BUFFER_MIN / size).max(1);
    let (full, filled) = mpsc::channel::<Vec<u8>>();
    let (used, free) = mpsc::channel::<Vec<u8>>();
    let measure = move || {
        for _ in 0..BUFFERS {
            // Sending fails once the other thread has ended; `receive` below then ends this one.
            let _ = full.send(vec![0; size * blocks]);
        }
        let source = vec![1; size];
        let mut samples = Samples::default();
        let end = clock::now().saturating_add(budget);
        while let Some(mut buffer) = pair.receive(&free) {
            let start = clock::now();
            for block in buffer.chunks_exact_mut(size) {
                block.copy_from_slice(std::hint::black_box(&source));
            }
            let stop = clock::now();
            samples.record(stop.saturating_since(start));
            if stop >= end {
                break;
            }
            let _ = full.send(buffer);
        }
        Ok((size * blocks) as f64 / GIB / (samples.quantile_us(0.5) / 1e6))
    };
    let touch = move || {
        while let Some(buffer) = pair.receive(&filled) {
            let lines = buffer.iter().step_by(CACHE_LINE);
            std::hint::black_box(lines.fold(0_u8, |sum, octet| sum.wrapping_add(*octet)));
            if used.send(buffer).is_err() {
                break;
            }
        }
        Ok(())
    };
    pair.run(measure, touch)
}

/// Measures the median time one cache line takes from one core to the other and another one back, in
/// microseconds.
pub fn cacheline_rtt_us(pair: Pair, budget: Duration) -> io::Result<f64> {
    let (there, back) = (Line::default(), Line::default());
    let (there, back) = (&there, &back);
    // Each thread ends when the other one does, even if that one panics.
    let (near_end, far_end) = (EndOnDrop(there), EndOnDrop(back));
    let measure = move || {
        let _end = near_end;
        let mut samples = Samples::default();
        let end = clock::now().saturating_add(budget);
        let (mut now, mut round) = (clock::now(), 0);
        while now < end {
            for _ in 0..ROUNDS_PER_SAMPLE {
                round += 1;
                there.0.store(round, Ordering::Release);
                if !back.await_change(round - 1, pair) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            let then = std::mem::replace(&mut now, clock::now());
            samples.record(now.saturating_since(then) / ROUNDS_PER_SAMPLE);
        }
        Ok(samples.quantile_us(0.5))
    };
    let mirror = move || {
        let _end = far_end;
        let mut round = 0;
        while there.await_change(round, pair) {
            round += 1;
            back.0.store(round, Ordering::Release);
        }
        Ok(())
    };
    pair.run(measure, mirror)
}

/// A word alone in its cache line, and in the line the CPU fetches along with it.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Line {
    /// Polls until the word differs from `seen`. Returns `false` if the writer ended.
    fn await_change(&self, seen: u64, pair: Pair) -> bool {
        loop {
            match self.0.load(Ordering::Acquire) {
                ENDED => return false,
                word if word != seen => return true,
                _ => pair.relax(),
            }
        }
    }
}

struct EndOnDrop<'a>(&'a Line);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.0.store(ENDED, Ordering::Release);
    }
}

const ENDED: u64 = u64::MAX;
const ROUNDS_PER_SAMPLE: u32 = 128;
const CACHE_LINE: usize = 64;
const BUFFERS: usize = 2;
const BUFFER_MIN: usize = 256 << 10;
