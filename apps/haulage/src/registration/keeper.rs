//! The registration of a server's services, as one thread keeps it.

use haulage::rpcbind::{Entry, Fault, Rpcbind, parse_universal, universal};
use haulage_store::client::error::printable;

use crate::failure::Failure;

use super::service::Service;

/// The services of a server, and the rpcbind that is to know them.
#[derive(Debug)]
pub(super) struct Keeper {
    rpcbind: Rpcbind,
    services: Vec<Service>,
    state: State,
}

/// What the last look at rpcbind has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// All services are registered.
    Held,
    /// rpcbind does not answer as it should.
    Unheard,
    /// Another server is registered for one of the services.
    Taken,
}

/// Why a service is not registered again.
enum Lost {
    /// rpcbind does not do what it is asked.
    Unheard(Fault),
    /// Another server is registered for it, as this text says.
    Taken(String),
}

impl Keeper {
    /// Makes the keeper of services that are not registered yet.
    pub(super) const fn new(rpcbind: Rpcbind, services: Vec<Service>) -> Self {
        Self { rpcbind, services, state: State::Held }
    }

    /// Returns notes if something has changed, and registers again what rpcbind does not know any more.
    pub(super) fn check(&mut self) -> Option<String> {
        let (state, note) = match self.renew() {
            Ok(0) => (State::Held, "rpcbind answers again, and knows this server".to_owned()),
            Ok(_) => {
                let note = "rpcbind did not know this server any more, which is registered again";
                self.state = State::Held;
                return Some(note.to_owned());
            }
            Err(Lost::Unheard(fault)) => {
                let note = format!("{fault}; this server is registered again once it answers");
                (State::Unheard, note)
            }
            Err(Lost::Taken(other)) => (State::Taken, format!("{other}; clients find that one")),
        };
        let has_changed = self.state != state;
        self.state = state;
        has_changed.then_some(note)
    }

    /// Registers all services. What a server at the same addresses left behind is taken over.
    ///
    /// # Errors
    /// A service cannot be registered. None is then.
    pub(super) fn begin(&self) -> Result<(), Failure> {
        for (at, service) in self.services.iter().enumerate() {
            if let Err(fault) = self.set(service) {
                // What cannot be taken back is told by rpcinfo.
                self.services.iter().take(at).for_each(|set| _ = self.unset(set));
                return Err(self.explain(service, fault));
            }
        }
        Ok(())
    }

    /// Ends the registration of the services that are still this server's. Returns notes about those that stay.
    pub(super) fn end(&self) -> Vec<String> {
        let known = match self.rpcbind.dump() {
            Ok(known) => known,
            Err(fault) => return vec![format!("{fault}; this server may stay registered with it")],
        };
        let ours = self.services.iter().filter(|service| is_known(&known, service));
        let left = ours.filter_map(|service| match self.unset(service) {
            Ok(()) => None,
            Err(Fault::NotOurs(..)) => Some(format!(
                "{service} stays registered: another user has registered it, and alone can end that"
            )),
            Err(fault) => Some(format!("{service} stays registered: {fault}")),
        });
        left.collect()
    }

    /// Registers the services that rpcbind does not know. Returns their number.
    fn renew(&self) -> Result<usize, Lost> {
        let known = self.rpcbind.dump().map_err(Lost::Unheard)?;
        let mut renewed = 0;
        let mut taken = Ok(());
        for service in self.services.iter().filter(|service| !is_known(&known, service)) {
            match self.set(service) {
                Ok(()) => renewed += 1,
                Err(Fault::Taken(..)) => {
                    taken = taken.and(Err(Lost::Taken(holder(&known, service))))
                }
                Err(fault) => return Err(Lost::Unheard(fault)),
            }
        }
        taken.map(|()| renewed)
    }

    fn set(&self, service: &Service) -> Result<(), Fault> {
        self.rpcbind.set(service.of.program, service.netid, service.address)
    }

    fn unset(&self, service: &Service) -> Result<(), Fault> {
        self.rpcbind.unset(service.of.program, service.netid)
    }

    /// Returns what to do about a service that could not be registered.
    fn explain(&self, service: &Service, fault: Fault) -> Failure {
        Failure::failed(match fault {
            Fault::Taken(program, _) => {
                let known = self.rpcbind.dump().unwrap_or_default();
                format!(
                    "{}: end that server, or leave out --register; if it is gone, `rpcinfo -d {} {}` of that user removes \
                     what it left behind",
                    holder(&known, service),
                    program.program,
                    program.version
                )
            }
            Fault::Denied => format!(
                "{fault}; it lets servers of its own machine register, best at its local socket, and others only if it runs \
                 with -i"
            ),
            fault => format!("cannot register {service}: {fault}"),
        })
    }
}

/// Returns whether a list of rpcbind has a service at its address.
fn is_known(known: &[Entry], service: &Service) -> bool {
    let address = universal(service.address);
    entry(known, service).is_some_and(|entry| entry.address == address)
}

/// Returns what a list of rpcbind has for the program and the netid of a service.
fn entry<'a>(known: &'a [Entry], service: &Service) -> Option<&'a Entry> {
    let Service { of, netid, .. } = service;
    known.iter().find(|entry| entry.program == of.program && entry.netid == netid.name())
}

/// Says who is registered for a service, according to a list of rpcbind.
fn holder(known: &[Entry], service: &Service) -> String {
    let Some(Entry { address, owner, .. }) = entry(known, service) else {
        return format!("{service} is registered already, at another address");
    };
    let at = parse_universal(address);
    let at = at.map_or_else(|| printable(address.as_bytes()), |at| at.to_string());
    let by = match owner.as_str() {
        "superuser" => "root".to_owned(),
        owner => format!("user {}", printable(owner.as_bytes())),
    };
    format!("{service} is registered already, at {at} by {by}")
}
