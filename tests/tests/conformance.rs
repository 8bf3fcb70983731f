//! The contract of `Provider`, line by line, on every provider.

use haulage::provider::iwarp::Backend;
use haulage::provider::sim::FabricConfig;
use haulage::provider::toy::Messages;
#[cfg(feature = "verbs")]
use haulage::provider::verbs::{Config, ReceiveQueues};
#[cfg(feature = "verbs")]
use haulage_mr_pool::Strategy;
use haulage_tests::contract;
#[cfg(feature = "verbs")]
use haulage_tests::network::Rnic;
use haulage_tests::network::{Dealt, Hub, Lent, Loopback, OneMachine, Slow, Virtual};

/// Runs every line on one kind of provider, or, with `if`, on a provider that may be absent. A new provider is done
/// when its line here passes.
macro_rules! provider_conformance {
    ($provider:ident, if $network:expr) => {
        mod $provider {
            use super::*;

            lines! { $network;
                line_01_connecting_never_blocks
                line_02_a_peer_is_reported_once_and_waits_for_accept
                line_03_accept_establishes_both_ends
                line_04_a_connection_that_fails_says_why
                line_05_an_early_send_is_delivered_after_established
                line_06_a_connection_ends_in_order
                line_07_post_takes_a_prefix
                line_08_requests_complete_in_the_order_posted
                line_09_signaled_requests_complete_once
                line_10_after_one_flush_everything_is_flushed
                line_11_a_write_is_at_rest_before_a_later_send
                line_12_reads_beyond_the_ord_wait
                line_13_a_fenced_request_waits_for_reads
                line_14_a_copied_source_is_free_at_once
                line_15_receives_are_used_in_order
                line_16_a_send_without_a_receive_waits
                line_17_a_send_larger_than_its_receive_ends_its_connection
                line_18_a_receive_fills_its_scatter_list_in_order
                line_19_a_handle_is_valid_from_registration_to_invalidation
                line_20_a_peer_that_names_anything_else_loses_its_connection
                line_21_an_invalidation_retires_its_handle_first
                line_22_views_are_dropped_before_the_report
                line_23_sleep_ends_for_every_reason
                line_24_messages_are_taken_without_receives_in_their_turn
                line_25_receives_are_there_for_whom_they_are_reserved
                line_26_a_port_does_what_work_requests_do
                line_27_messages_with_a_template_are_whole
                line_28_there_is_room_once_all_was_taken
                line_29_a_message_behind_a_refused_write_does_not_arrive
                line_30_a_peer_is_adopted_anywhere_and_keeps_its_place
            }
        }
    };
    ($provider:ident, $network:expr) => {
        provider_conformance!($provider, if Some($network));
    };
}

macro_rules! lines {
    ($network:expr; $($line:ident)*) => {
        $(
            #[test]
            fn $line() {
                if let Some(network) = $network {
                    contract::$line(network);
                }
            }
        )*
    };
}

provider_conformance!(toy, Hub::new(Messages::Taken));
provider_conformance!(toy_copying, Hub::new(Messages::Copied));
provider_conformance!(toy_delaying, Slow::new(Hub::new(Messages::Taken), 2, 60));
provider_conformance!(toy_copying_delaying, Slow::new(Hub::new(Messages::Copied), 3, 60));
provider_conformance!(toy_lending, Lent::new(Hub::new(Messages::Taken), 2, 60));
provider_conformance!(toy_copying_lending, Lent::new(Hub::new(Messages::Copied), 3, 60));
provider_conformance!(sim, Virtual::new(FabricConfig::default()));
provider_conformance!(sim_eager, Virtual::new(eager()));
provider_conformance!(sim_late, Virtual::new(late()));
provider_conformance!(sim_own_receives, Virtual::new(own_receives()));
provider_conformance!(delaying, Slow::new(Virtual::new(FabricConfig::default()), 1, 60));
provider_conformance!(lending, Lent::new(Virtual::new(FabricConfig::default()), 1, 60));
provider_conformance!(iwarp, Loopback::new(Backend::Auto));
provider_conformance!(iwarp_sockets, Loopback::new(Backend::Sockets));
provider_conformance!(shm, OneMachine::default());
provider_conformance!(shm_small_rings, OneMachine::with_rings(4096));
provider_conformance!(shm_delaying, Slow::new(OneMachine::default(), 7, 60));
provider_conformance!(iwarp_delaying, Slow::new(Loopback::new(Backend::Auto), 4, 60));

// Each line over two cores: peers reach one provider of a host, and another adopts them.
provider_conformance!(toy_dealt, Dealt::new(Hub::new(Messages::Taken)));
provider_conformance!(sim_dealt, Dealt::new(Virtual::new(FabricConfig::default())));
provider_conformance!(sim_own_receives_dealt, Dealt::new(Virtual::new(own_receives())));
provider_conformance!(delaying_dealt, Dealt::new(Slow::new(Virtual::new(late()), 8, 60)));
provider_conformance!(lending_dealt, Dealt::new(Lent::new(Virtual::new(eager()), 8, 60)));
provider_conformance!(iwarp_dealt, Dealt::new(Loopback::new(Backend::Auto)));
provider_conformance!(iwarp_sockets_dealt, Dealt::new(Loopback::new(Backend::Sockets)));
provider_conformance!(shm_dealt, Dealt::new(OneMachine::default()));

#[cfg(feature = "verbs")]
provider_conformance!(verbs, if Rnic::find(Config::default()));
#[cfg(feature = "verbs")]
provider_conformance!(verbs_own_receives, if own_queues_rnic());
#[cfg(feature = "verbs")]
provider_conformance!(verbs_post_send, if Rnic::find_posting_lists());
#[cfg(feature = "verbs")]
provider_conformance!(verbs_grouped, if Rnic::find_grouped());
#[cfg(feature = "verbs")]
provider_conformance!(verbs_dealt, if Rnic::find(Config::default()).map(Dealt::new));
#[cfg(feature = "verbs")]
provider_conformance!(verbs_delaying, if slow_rnic());
#[cfg(feature = "verbs")]
provider_conformance!(verbs_persistent, if persistent_rnic());

/// Returns a device whose events come late.
#[cfg(feature = "verbs")]
fn slow_rnic() -> Option<Slow<Rnic>> {
    Rnic::find(Config::default()).map(|rnic| Slow::new(rnic, 5, 60))
}

/// Returns a device with a receive queue for each queue pair.
#[cfg(feature = "verbs")]
fn own_queues_rnic() -> Option<Rnic> {
    Rnic::find(Config { receive_queues: ReceiveQueues::Own, ..Config::default() })
}

/// Returns a device that copies exposed memory to memory which peers can always reach.
#[cfg(feature = "verbs")]
fn persistent_rnic() -> Option<Rnic> {
    Rnic::find(Config { registration: Some(Strategy::Persistent), ..Config::default() })
}

/// Returns a fabric on which everything completes before it arrives.
fn eager() -> FabricConfig {
    FabricConfig { seed: 2, eager_percent: 100, latency_min_ns: 0, ..FabricConfig::default() }
}

/// Returns a fabric on which every queue pair has a receive queue of its own.
fn own_receives() -> FabricConfig {
    FabricConfig { receives_each: Some(64), ..FabricConfig::default() }
}

/// Returns a fabric on which nothing completes before it has arrived, with slow acknowledgements.
fn late() -> FabricConfig {
    let latency_max_ns = 10_000_000;
    FabricConfig { seed: 3, eager_percent: 0, latency_max_ns, ..FabricConfig::default() }
}

/// Compares the numbers of the lines in `Provider`'s documentation with those of the checks above.
#[test]
fn every_line_of_the_contract_has_a_check() {
    let documented = include_str!("../../runtime/src/provider.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("/// ")?.split_once(". ")?.0.parse::<u32>().ok());
    let checked = include_str!("conformance.rs")
        .lines()
        .filter_map(|line| line.trim().strip_prefix("line_")?.get(..2)?.parse::<u32>().ok());
    assert_eq!(documented.collect::<Vec<_>>(), checked.collect::<Vec<_>>());
}
