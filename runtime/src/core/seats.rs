//! The seats of a core in its group: one for peers over RDMA, and one for those over TCP.

use super::streams::Incoming;
use crate::cores::seat::Seat;
use crate::provider::Arrival;

/// The seats of one core of a group, for [`Core::join`](super::Core::join). Peers over RDMA are `I`.
///
/// [`cores::group`](crate::cores::group) makes those of cores that have threads. A world that is simulated has several
/// cores on one thread, and makes the seats itself.
#[derive(Debug)]
pub struct Seats<I> {
    pub(super) rdma: Seat<I>,
    pub(super) tcp: Seat<Incoming>,
}

impl<I: Arrival> Seats<I> {
    /// Makes the seats of a group with `cores` cores, by their numbers. `seed` decides between cores that have equally few
    /// connections, and is not to be guessed by peers.
    pub fn of_all(cores: usize, seed: u64) -> Vec<Self> {
        let tcp = Seat::of_all(cores, seed.rotate_left(32));
        let both = Seat::of_all(cores, seed).into_iter().zip(tcp);
        both.map(|(rdma, tcp)| Self { rdma, tcp }).collect()
    }
}
