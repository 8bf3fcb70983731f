//! The cores of a server: how they are built, how they leave, and the checks of them as a group.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;

use haulage::core::{CoreNumber, Places, Seats};
use haulage::cores::post;
use haulage::limits::Versions;
use haulage_proto::time::Instant;

use super::fellow::{Fallen, Fellow};
use super::mix::Event;
use super::node::{self, Kind, Node, Plan};
use super::{Server, World, address_of_core};

impl Server {
    /// Returns whether there is no core, or one that has panicked: the others leave, too.
    pub(super) fn is_away(&self) -> bool {
        self.nodes.is_empty() || self.nodes.iter().any(|node| node.has_fallen)
    }

    /// Returns whether clients may connect, and stay.
    pub(super) fn is_up(&self) -> bool {
        !self.is_away() && !self.is_draining
    }

    /// Returns the versions that clients may speak.
    pub(super) fn versions(&self) -> Versions {
        match &self.roster {
            Some(roster) if roster.policy().requires() => Versions::OnlyTwo,
            _ => self.limits.versions,
        }
    }

    /// Checks that every connection is on the core that it was dealt to. Returns the places that peers have.
    pub(super) fn check_places(&mut self, now: Instant) -> Option<Places> {
        let places = self.nodes.first()?.core.places();
        for node in &mut self.nodes {
            let (number, connections) = (node.core.number(), node.connections(now));
            let dealt = places.connections[usize::from(number.get())];
            assert_eq!(dealt, connections, "connections of core {number}: {places:?}");
        }
        Some(places)
    }

    /// Checks a group that has nothing more to do.
    pub(super) fn check_over(&mut self, now: Instant) {
        let places = self.check_places(now).expect("a server that was shut down");
        let none = vec![0; self.cores];
        let (setups, connections) = (none.clone(), none);
        assert_eq!(places, Places { setups, connections, origins: 0 }, "a place is not given back");
        let fellows: Vec<_> = self.nodes.iter().filter_map(Node::fellow).collect();
        Fellow::check_all(&fellows);
    }
}

impl World {
    /// Builds a server, for the first time or again, at its address.
    pub(super) fn begin(&mut self, number: usize) {
        let cores = self.servers[number].cores;
        // The dealer and its mailboxes know the cores of this run of the server, and no others.
        let seats = Seats::of_all(cores, self.luck.number());
        let mailboxes = post::mailboxes(cores, self.luck.pick(&[1, 2, 16]));
        self.servers[number].falls.set(None);
        for ((core, seats), mailbox) in (0..).zip(seats).zip(mailboxes) {
            let fellow = (cores > 1).then(|| Fellow::new(self.luck.number(), mailbox));
            let mut node = self.core(number, core, fellow);
            node.core.join(seats);
            if node.is_scattered() {
                self.mix.note(Event::Scattered);
            }
            if core == 0 {
                node.core.listen(self.servers[number].at).expect("a free port");
            }
            self.servers[number].nodes.push(node);
        }
        self.servers[number].is_draining = false;
        self.mix.note_if(cores > 1, Event::Several);
        let root = self.servers[number].root;
        self.each_link(number, |link| link.program.restarted(root));
    }

    /// Builds one core of a server.
    fn core(&mut self, number: usize, core: u8, fellow: Option<Fellow>) -> Node {
        let Self { servers, choices, luck, fabric, trace, ledger, .. } = self;
        let server = &mut servers[number];
        // What is drawn for the first core does not depend on the number of the others.
        let choices = if core == 0 { choices } else { luck };
        let plan = Plan {
            fabric,
            trace,
            address: address_of_core(server.at.ip(), core),
            core: CoreNumber::new(core).expect("few cores"),
            number: server.number + 100 * u32::from(core),
            limits: server.limits,
            delayed_percent: server.delayed_percent,
            lent_percent: server.lent_percent,
            corrupted_percent: server.corrupted_percent,
            memory: choices.pick(&[1 << 20, 4 << 20]),
            seed: choices.number(),
            roster: server.roster.clone(),
        };
        let due = Rc::new(Cell::new(None));
        let falls = Rc::clone(&server.falls);
        plan.build(Rc::clone(&due), |pool| {
            let flavors = server.flavors.clone();
            let (kind, root) = node::serve(server.serves, pool, choices, ledger, &due, flavors);
            server.root = root;
            match kind {
                Kind::Exercise(exercise) => {
                    let exercise = exercise.in_group(falls, fellow);
                    let is_misled = server.corrupted_percent > 0;
                    Kind::Exercise(if is_misled { exercise.misled() } else { exercise })
                }
                kind => kind,
            }
        })
    }

    /// Lets go of servers that are over, and builds those again whose time has come.
    pub(super) fn come_back(&mut self) {
        for number in 0..self.servers.len() {
            if self.servers[number].nodes.iter().any(|node| node.has_fallen) {
                self.leave_fallen(number);
            }
            let server = &mut self.servers[number];
            if server.is_draining {
                // Each core goes once it has drained, whatever the others still do.
                server.nodes.retain(|node| !node.core.is_drained());
                if server.nodes.is_empty() {
                    server.back = self.now;
                }
            }
            if server.nodes.is_empty() && server.back <= self.now {
                self.begin(number);
            }
        }
    }

    /// Drops the core of a server that has panicked, as a panic does. The others turn for a while, and leave.
    fn leave_fallen(&mut self, number: usize) {
        self.mix.note(Event::Fell);
        let nodes = &mut self.servers[number].nodes;
        let at = nodes.iter().position(|node| node.has_fallen).expect("one that has panicked");
        let fallen = nodes.remove(at);
        let unwound = panic::catch_unwind(AssertUnwindSafe(move || {
            let _dropped_as_it_unwinds = fallen;
            panic::resume_unwind(Box::new(Fallen));
        }));
        drop(unwound);
        while !self.servers[number].nodes.is_empty() {
            for _ in 0..self.luck.below(12) {
                self.turn();
            }
            self.drop_a_core(number);
        }
        self.stir();
    }

    /// Drops one core of a server without further ado.
    pub(super) fn drop_a_core(&mut self, number: usize) {
        let nodes = &mut self.servers[number].nodes;
        let at = self.luck.below(nodes.len());
        drop(nodes.remove(at));
    }

    /// Has all cores of a server shut down, one after another.
    pub(super) fn shut_down(&mut self, number: usize) {
        self.servers[number].is_draining = true;
        let count = self.servers[number].nodes.len();
        let first = self.luck.below(count);
        for at in 0..count {
            let now = self.now;
            self.servers[number].nodes[(first + at) % count].core.begin_shutdown(now);
            let turns = if count > 1 { self.luck.below(10) } else { 0 };
            for _ in 0..turns {
                self.turn();
            }
        }
    }
}
