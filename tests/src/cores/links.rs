//! Connects links, and injects misfortunes.

use std::time::Duration;

use haulage::core::ConnectOptions;
use haulage::provider::ConnectError;
use haulage::service::CallError;

use super::caller::Link;
use super::mix::Event;
use super::{Client, Hole, World};

impl World {
    /// Connects a link that has no connection, perhaps to a server that is away.
    pub(super) fn connect(&mut self) {
        let client = self.choices.below(self.clients.len());
        let link = self.choices.below(self.clients[client].ways.len());
        let server = &self.servers[self.clients[client].ways[link].server];
        if (server.node.is_some() && !server.is_draining) || self.choices.one_in(8) {
            self.connect_link(client, link);
        }
    }

    /// Connects every link that has no connection and whose server is up. Returns whether there was such a link.
    pub(super) fn connect_all(&mut self) -> bool {
        let mut any = false;
        for client in 0..self.clients.len() {
            for link in 0..self.clients[client].ways.len() {
                let server = &self.servers[self.clients[client].ways[link].server];
                if server.node.is_some() && !server.is_draining {
                    any |= self.connect_link(client, link);
                }
            }
        }
        any
    }

    pub(super) fn connect_link(&mut self, client: usize, link: usize) -> bool {
        let Self { clients, servers, holes, stopped, now, mix, .. } = self;
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
        for lost in caller.link(link).take_lost() {
            node.core.close(lost);
        }
        let (binding, identity) = (way.binding.clone(), way.identity.clone());
        let options = ConnectOptions::new(binding).identity(identity);
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
        let is_away = server.node.is_none() || server.is_draining;
        let is_lost = holes
            .iter()
            .chain(stopped.iter())
            .any(|hole| [*address, server.at.ip()].contains(&hole.address));
        if is_away || is_lost {
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
                self.each_link(server, Link::doom);
                self.fabric.sever_all(self.servers[server].at.ip());
            }
            3 => {
                self.mix.note(Event::BlackHole);
                let address = if self.choices.one_in(2) {
                    self.doom_client(client);
                    self.clients[client].address
                } else {
                    self.each_link(server, Link::doom);
                    self.servers[server].at.ip()
                };
                self.fabric.black_hole(address);
                self.holes.retain(|hole| hole.address != address);
                self.holes.push(Hole { address, until });
            }
            4 => {
                self.each_link(server, Link::doom);
                let server = &mut self.servers[server];
                if server.node.take().is_some() {
                    self.mix.note(Event::Restarted);
                    server.back = until;
                }
            }
            5 => {
                self.each_link(server, Link::doom);
                let now = self.now;
                let server = &mut self.servers[server];
                if let Some(node) = server.node.as_mut().filter(|_| !server.is_draining) {
                    self.mix.note(Event::ShutDown);
                    node.core.begin_shutdown(now);
                    server.is_draining = true;
                }
            }
            6 => {
                self.mix.note(Event::Stopped);
                let (node, address) = if self.choices.one_in(2) {
                    self.doom_client(client);
                    let Client { node, address, .. } = &mut self.clients[client];
                    (Some(node), *address)
                } else {
                    self.each_link(server, Link::doom);
                    let server = &mut self.servers[server];
                    (server.node.as_mut(), server.at.ip())
                };
                if let Some(node) = node.filter(|node| !node.is_stopped) {
                    node.is_stopped = true;
                    self.fabric.stop_copying(address);
                    self.stopped.push(Hole { address, until });
                }
            }
            _ => {
                self.mix.note(Event::ClosedEarly);
                self.close_links(client);
            }
        }
        self.stir();
    }

    /// Has the stopped nodes go on whose time has come.
    pub(super) fn go_on(&mut self) {
        let Self { now, stopped, fabric, servers, clients, .. } = self;
        for over in stopped.extract_if(.., |stopped| stopped.until <= *now) {
            fabric.go_on_copying(over.address);
            let servers = servers.iter_mut().filter(|server| server.at.ip() == over.address);
            let clients = clients.iter_mut().filter(|client| client.address == over.address);
            let nodes = servers.filter_map(|server| server.node.as_mut());
            for node in nodes.chain(clients.map(|client| &mut client.node)) {
                node.is_stopped = false;
            }
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
