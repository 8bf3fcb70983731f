//! Connects links, and injects misfortunes.

use std::net::IpAddr;
use std::time::Duration;

use haulage::core::ConnectOptions;
use haulage::provider::ConnectError;
use haulage::service::CallError;
use haulage_proto::time::Instant;

use super::caller::Link;
use super::fellow::Moment;
use super::hosts::{Forgotten, Roster, name_of};
use super::mix::Event;
use super::settings::Serves;
use super::{Client, Hole, Server, World};

impl World {
    /// Connects a link that has no connection, perhaps to a server that is away.
    pub(super) fn connect(&mut self) {
        let client = self.choices.below(self.clients.len());
        let link = self.choices.below(self.clients[client].ways.len());
        let server = &self.servers[self.clients[client].ways[link].server];
        if server.is_up() || self.choices.one_in(8) {
            self.connect_link(client, link);
        }
    }

    /// Connects every link that has no connection and whose server is up. Returns whether there was such a link.
    pub(super) fn connect_all(&mut self) -> bool {
        let mut any = false;
        for client in 0..self.clients.len() {
            for link in 0..self.clients[client].ways.len() {
                let server = &self.servers[self.clients[client].ways[link].server];
                if server.is_up() {
                    any |= self.connect_link(client, link);
                }
            }
        }
        any
    }

    pub(super) fn connect_link(&mut self, client: usize, link: usize) -> bool {
        let Self { clients, servers, holes, stopped, now, mix, luck, .. } = self;
        let Client { node, address, ways } = &mut clients[client];
        let way = &ways[link];
        let server = &servers[way.server];
        let (_, caller) = node.caller(*now);
        let own = caller.link(link);
        if own.connection().is_some() || own.not_before() > *now {
            return false;
        }
        if stopped.iter().any(|stopped| stopped.address == *address) {
            return false;
        }
        let is_known = server.roster.as_ref().is_none_or(|known| known.knows(&name_of(*address)));
        // Most clients that are not let in wait until they are known again.
        if !is_known && !luck.one_in(32) {
            return false;
        }
        for lost in caller.link(link).take_lost() {
            node.core.close(lost);
        }
        let (binding, identity) = (way.binding.clone(), way.identity.clone());
        let options = ConnectOptions::new(binding).identity(identity);
        let auth = way.roster.as_ref().map(Roster::auth);
        let options = auth.into_iter().fold(options, ConnectOptions::host_auth);
        let connection = node.core.connect(*now, server.at, options);
        let connection = match connection {
            Ok(connection) => connection,
            // The end of the queue pair's last connection may still be on its way to the core.
            Err(CallError::Connect(ConnectError::NoQueuePair)) => return false,
            Err(error) => panic!("a connection cannot be made: {error:?}"),
        };
        let link = node.caller(*now).1.link(link);
        link.connect(connection, *now);
        mix.note_if(link.made() > 1, Event::Reconnected);
        let is_away = !server.is_up() || server.falls.get().is_some();
        let is_lost = holes.iter().chain(stopped.iter()).any(|hole| {
            let mut cores = server.nodes.iter();
            hole.address == *address || cores.any(|core| core.address == hole.address)
        });
        if is_away || is_lost || !is_known {
            link.doom();
        }
        self.stir();
        true
    }

    /// Allows the Calls to fail that a client has under way, or makes on its present connections.
    fn doom_client(&mut self, client: usize) {
        let (_, caller) = self.clients[client].node.caller(self.now);
        (0..caller.links()).for_each(|link| caller.link(link).doom());
    }

    /// Allows the Calls to fail that are on connections of a server's cores: of all cores, or of one that is drawn. Returns the
    /// addresses of these cores.
    fn doom_cores(&mut self, server: usize) -> Vec<IpAddr> {
        let Server { nodes, at, cores, .. } = &self.servers[server];
        if nodes.is_empty() || *cores == 1 || self.luck.one_in(2) {
            let mut addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
            if addresses.is_empty() {
                addresses.push(at.ip());
            }
            self.each_link(server, Link::doom);
            return addresses;
        }
        let node = &nodes[self.luck.below(nodes.len())];
        let (core, address) = (node.core.number(), node.address);
        self.mix.note(Event::OneOfSeveral);
        self.each_link(server, |link| link.doom_at(core));
        vec![address]
    }

    /// Has a server end without shutdown: all its cores go at once, or one is to panic.
    fn end_at_once(&mut self, number: usize) {
        let server = &mut self.servers[number];
        if server.serves == Serves::Exercise && server.is_up() && self.luck.one_in(2) {
            let moment = self.luck.pick(&[Moment::InCall, Moment::InTurn]);
            server.falls.set(Some(moment));
            return;
        }
        self.mix.note(Event::Restarted);
        while !self.servers[number].nodes.is_empty() {
            self.drop_a_core(number);
        }
    }

    fn stop_nodes(&mut self, addresses: &[IpAddr], until: Instant) {
        let mut stopped = Vec::new();
        for node in self.nodes() {
            if addresses.contains(&node.address) && !node.is_stopped {
                node.is_stopped = true;
                stopped.push(node.address);
            }
        }
        for address in stopped {
            self.fabric.stop_copying(address);
            self.stopped.push(Hole { address, until });
        }
    }

    pub(super) fn misfortune(&mut self) {
        self.misfortunes -= 1;
        let client = self.choices.below(self.clients.len());
        let server = self.choices.below(self.servers.len());
        let after = Duration::from_micros(self.choices.pick(&[1, 100, 10_000, 3_000_000]));
        let until = self.now.saturating_add(after);
        match self.choices.below(8) {
            0 | 1 => {
                self.mix.note(Event::Severed);
                self.doom_client(client);
                self.fabric.sever_all(self.clients[client].address);
            }
            2 => {
                self.mix.note(Event::SeveredServer);
                for address in self.doom_cores(server) {
                    self.fabric.sever_all(address);
                }
            }
            3 => {
                self.mix.note(Event::BlackHole);
                let addresses = if self.choices.one_in(2) {
                    self.doom_client(client);
                    vec![self.clients[client].address]
                } else {
                    self.doom_cores(server)
                };
                for address in addresses {
                    self.fabric.black_hole(address);
                    self.holes.retain(|hole| hole.address != address);
                    self.holes.push(Hole { address, until });
                }
            }
            4 => {
                self.each_link(server, Link::doom);
                if !self.servers[server].nodes.is_empty() {
                    self.servers[server].back = until;
                    self.end_at_once(server);
                }
            }
            5 => {
                self.each_link(server, Link::doom);
                if self.servers[server].is_up() {
                    self.mix.note(Event::ShutDown);
                    self.shut_down(server);
                }
            }
            6 => {
                self.mix.note(Event::Stopped);
                let addresses = if self.choices.one_in(2) {
                    self.doom_client(client);
                    vec![self.clients[client].address]
                } else {
                    self.doom_cores(server)
                };
                self.stop_nodes(&addresses, until);
            }
            _ if self.servers[server].roster.is_some() && self.luck.one_in(2) => {
                self.forget(server, client, until);
            }
            _ => {
                self.mix.note(Event::ClosedEarly);
                self.close_links(client);
            }
        }
        self.stir();
    }

    /// Has a server not know a client for a while.
    fn forget(&mut self, server: usize, client: usize, until: Instant) {
        self.mix.note(Event::HostForgotten);
        self.doom_client(client);
        let Server { roster, forgotten, nodes, .. } = &mut self.servers[server];
        let name = name_of(self.clients[client].address);
        roster.iter().for_each(|roster| roster.forget(&name));
        forgotten.push(Forgotten { client, until });
        nodes.iter_mut().for_each(|node| node.core.judge_hosts());
    }

    /// Has servers know the clients again whose time has come.
    pub(super) fn know_again(&mut self) {
        let (now, clients) = (self.now, &self.clients);
        for Server { roster, forgotten, .. } in &mut self.servers {
            for over in forgotten.extract_if(.., |forgotten| forgotten.until <= now) {
                let name = name_of(clients[over.client].address);
                roster.iter().for_each(|roster| roster.remember(name.clone()));
            }
        }
    }

    /// Has the stopped nodes go on whose time has come.
    pub(super) fn go_on(&mut self) {
        let now = self.now;
        let over: Vec<_> = self.stopped.extract_if(.., |stopped| stopped.until <= now).collect();
        for over in over {
            self.fabric.go_on_copying(over.address);
            let nodes = self.nodes().filter(|node| node.address == over.address);
            nodes.for_each(|node| node.is_stopped = false);
        }
    }

    /// Closes all connections of a client.
    pub(super) fn close_links(&mut self, client: usize) {
        let node = &mut self.clients[client].node;
        let (_, caller) = node.caller(self.now);
        let mut lost = Vec::new();
        for link in 0..caller.links() {
            caller.link(link).disconnect();
            lost.extend(caller.link(link).take_lost());
        }
        lost.into_iter().for_each(|connection| node.core.close(connection));
    }
}
