//! Builds the servers and clients of a world.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use haulage::core::CoreNumber;
use haulage::hosts::Policy;
use haulage::identity::{Identity, User};
use haulage::limits::{Limits, Profile, Versions};
use haulage::service::{AUTH_NONE, AUTH_SYS};
use haulage_proto::time::Instant;

use super::caller::{Caller, Link, Settings};
use super::hosts::{self, Roster};
use super::mix::Event;
use super::node::{FLAVORS, Kind, Plan};
use super::programs::exercise::Exercises;
use super::programs::kv::Keys;
use super::programs::nfs::Files;
use super::programs::{self, Program};
use super::settings::{self, Serves};
use super::{Client, Server, Way, World, address, exercise};
use crate::world::choices::Choices;

impl World {
    pub(super) fn draw_server(&mut self, number: usize) -> Server {
        let Self { choices, manners, profiles, .. } = self;
        let serves = match choices.below(4) {
            0 => Serves::Kv,
            1 => Serves::Nfs,
            _ => Serves::Exercise,
        };
        self.mix.note(match serves {
            Serves::Exercise => Event::Exercise,
            Serves::Kv => Event::Kv,
            Serves::Nfs => Event::Nfs,
        });
        let versions = choices.pick(&[Versions::OnlyOne, Versions::Both, Versions::Both]);
        let flavors = if serves == Serves::Exercise && choices.one_in(12) {
            vec![AUTH_SYS]
        } else {
            FLAVORS.to_vec()
        };
        // The other services have no state that cores share: each core would have keys, or files, of its own.
        let cores = if serves == Serves::Exercise { self.luck.of(1..=CORES_MAX) } else { 1 };
        let at = SocketAddr::new(address(1 + number), 20_050);
        let policy =
            self.luck.pick(&[Policy::Off, Policy::Off, Policy::Optional, Policy::Required]);
        let known = (0..CLIENTS_MAX).map(|client| hosts::name_of(address(10 + client))).collect();
        let roster = Roster::new(hosts::name_of(at.ip()), known, policy);
        // Version 1 has no host authentication.
        let versions = if policy.requires() { Versions::Both } else { versions };
        Server {
            nodes: Vec::new(),
            cores,
            falls: Rc::default(),
            at,
            number: u32::try_from(number).expect("few servers"),
            serves,
            flavors,
            limits: Limits {
                profile: settings::profile(profiles),
                ..settings::patience(manners, settings::limits(choices, versions))
            },
            roster: Some(roster).filter(|roster| roster.policy() != Policy::Off),
            forgotten: Vec::new(),
            delayed_percent: choices.pick(&[0, 10, 40]),
            lent_percent: choices.pick(&LENT),
            corrupted_percent: corrupted(choices, 12),
            back: Instant::ZERO,
            is_draining: false,
            root: None,
        }
    }

    pub(super) fn draw_client(&mut self, number: usize) -> Client {
        let Self { choices, servers, fabric, trace, ledger, luck, profiles, .. } = self;
        let mut ways: Vec<_> = (0..choices.of(1..=2))
            .map(|_| {
                let server = choices.below(servers.len());
                let serves = servers[server].serves;
                let user = Identity::User(User::new("world", 0, 0, &[7]));
                let is_anonymous = serves != Serves::Nfs && choices.one_in(2);
                let identity = if is_anonymous { Identity::Anonymous } else { user };
                let binding = match serves {
                    Serves::Exercise => exercise::binding(),
                    Serves::Kv => haulage_kv::service::binding(programs::kv::VALUE_MAX),
                    Serves::Nfs => haulage_store::nfs3::binding::binding(&programs::nfs::LIMITS),
                };
                Way { server, identity, binding, roster: None }
            })
            .collect();
        let wanted =
            choices.pick(&[Versions::Both, Versions::Both, Versions::OnlyOne, Versions::OnlyTwo]);
        let agree = |way: &Way| settings::common(wanted, servers[way.server].versions());
        let all_agree = ways.iter().all(|way| agree(way).is_some());
        let versions = if all_agree { wanted } else { Versions::Both };
        for way in &mut ways {
            let server = &servers[way.server];
            way.roster = draw_roster(luck, address(10 + number), server, versions);
        }
        // A client that reads no Replies would let its server wait for it.
        let reads = |way: &Way| servers[way.server].limits.profile == Profile::Rfc5666;
        let profile = settings::profile(profiles);
        let profile = if ways.iter().any(reads) { Profile::Rfc5666 } else { profile };
        let corrupted_percent = corrupted(choices, 12);
        let link = |(n, way): (usize, &Way)| {
            let server = &servers[way.server];
            let prefix = format!("{number}-{n}-");
            let program: Box<dyn Program> = match server.serves {
                Serves::Exercise => {
                    let flavor =
                        if way.identity == Identity::Anonymous { AUTH_NONE } else { AUTH_SYS };
                    let denied = !server.flavors.contains(&flavor);
                    Box::new(Exercises::new(Rc::clone(ledger), denied))
                }
                Serves::Kv => Box::new(Keys::new(prefix)),
                Serves::Nfs => Box::new(Files::new(server.root.expect("a directory"), prefix)),
            };
            // A client to which servers have to prove themselves speaks version 2 to them alone.
            let requires = way.roster.as_ref().is_some_and(|roster| roster.policy().requires());
            let versions = if requires { Versions::OnlyTwo } else { versions };
            let version = settings::common(versions, server.versions());
            let (both, one) = (Versions::Both, Versions::OnlyOne);
            let falls_back = versions == both && server.versions() == one;
            let version = version.expect("a version in common");
            let mut link = Link::new(program, version, falls_back);
            link.begins_anew = versions == both && server.versions() == both;
            link.idle_timeout = server.limits.idle_timeout;
            link.is_crowded = server.limits.connections_max < 16;
            link.reads = reads(way);
            link.is_misled = corrupted_percent > 0 || server.corrupted_percent > 0;
            link
        };
        let links = ways.iter().enumerate().map(link).collect();
        let settings = Settings {
            number: number as u64,
            seed: choices.number(),
            calls: choices.of(5..=30),
            window: choices.pick(&[1, 4, 16]),
            in_turns: choices.one_in(2),
            in_replies: choices.one_in(2),
        };
        let caller = Caller::new(settings, links);
        let address = address(10 + number);
        let plan = Plan {
            fabric,
            trace,
            address,
            core: CoreNumber::FIRST,
            number: 10 + u32::try_from(number).expect("few clients"),
            limits: Limits { profile, ..settings::limits(choices, versions) },
            delayed_percent: choices.pick(&[0, 10, 40]),
            lent_percent: choices.pick(&LENT),
            corrupted_percent,
            memory: choices.pick(&[1 << 19, 4 << 20]),
            seed: choices.number(),
            roster: None,
        };
        let node = plan.build(Rc::default(), |_| Kind::Caller(caller));
        Client { node, address, ways }
    }
}

/// Draws how a client and a server prove to each other which hosts they are.
fn draw_roster(
    luck: &mut Choices,
    own: IpAddr,
    server: &Server,
    versions: Versions,
) -> Option<Arc<Roster>> {
    let theirs = server.roster.as_ref()?.policy();
    if theirs == Policy::Optional && luck.one_in(4) {
        return None;
    }
    let may_require = ![versions, server.limits.versions].contains(&Versions::OnlyOne);
    let policy = if may_require && luck.one_in(2) { Policy::Required } else { Policy::Optional };
    Some(Roster::new(hosts::name_of(own), vec![hosts::name_of(server.at.ip())], policy))
}

/// The most clients of a world.
const CLIENTS_MAX: usize = 4;

/// The most cores of a server.
const CORES_MAX: usize = 4;

/// Draws the percentage of corrupted messages at a node: zero except once in `times`.
fn corrupted(choices: &mut Choices, times: usize) -> u8 {
    if choices.one_in(times) { choices.pick(&[2, 20]) } else { 0 }
}

/// Percentages of the chances to deliver messages without Receives that are taken.
const LENT: [u8; 4] = [0, 50, 90, 100];
