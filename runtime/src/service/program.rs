//! A program that a service serves.

use haulage_proto::rpc::Binding;
use haulage_proto::rpc::auth::{AUTH_NONE, AUTH_SYS};

use super::call::{ArgumentLeases, ResultSource};

/// A program in one version, as a service serves it: its binding, the authentication flavors that it takes, and how its
/// procedures are served.
///
/// # Panics
/// The methods that name a procedure panic if the binding has no such procedure.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) binding: Binding,
    pub(crate) flavors: Box<[u32]>,
    pub(crate) procedures: Box<[Serving]>,
    pub(crate) is_open_to_all: bool,
}

/// How one procedure is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serving {
    pub(crate) argument: ArgumentLeases,
    pub(crate) result: ResultSource,
    pub(crate) is_costly: bool,
    pub(crate) asked: Option<fn(&[u8]) -> usize>,
}

impl Program {
    /// Serves a binding. Calls without a credential and those with AUTH_SYS are taken, no procedure is costly, every
    /// argument may lie in several leases, and every result comes from memory that the service holds anyway.
    pub fn new(binding: Binding) -> Self {
        let argument = ArgumentLeases::Any;
        let result = ResultSource::Resident;
        let one = Serving { argument, result, is_costly: false, asked: None };
        let procedures = vec![one; binding.procedures.len()].into();
        let flavors = [AUTH_NONE, AUTH_SYS].into();
        Self { binding, flavors, procedures, is_open_to_all: false }
    }

    /// Takes Calls of these authentication flavors (RFC 5531 section 8.2) alone. A Call of another flavor is denied with
    /// `AUTH_ERROR` and never reaches the service.
    #[must_use]
    pub fn flavors(mut self, flavors: &[u32]) -> Self {
        self.flavors = flavors.into();
        self
    }

    /// Says where the DDP-eligible result of a procedure comes from.
    #[must_use]
    pub fn result_source(mut self, procedure: u32, source: ResultSource) -> Self {
        self.serving(procedure).result = source;
        self
    }

    /// Says which leases the DDP-eligible argument of a procedure may lie in.
    #[must_use]
    pub fn argument_leases(mut self, procedure: u32, leases: ArgumentLeases) -> Self {
        self.serving(procedure).argument = leases;
        self
    }

    /// Says that a Call of each of these procedures may take long: more than some ten microseconds, because it lists,
    /// searches or makes system calls. Such a Call has a turn of the core for itself, and connections take turns. Only
    /// the first 64 procedures can be costly.
    #[must_use]
    pub fn costly(mut self, procedures: impl IntoIterator<Item = u32>) -> Self {
        for procedure in procedures {
            self.serving(procedure).is_costly = true;
        }
        self
    }

    /// Says how many octets of its DDP-eligible result a Call of a procedure asks for at most, by its arguments. Over RDMA its
    /// Write chunk says that; over TCP nothing else does, and the longest result is reserved.
    #[must_use]
    pub fn asked_by(mut self, procedure: u32, asked: fn(&[u8]) -> usize) -> Self {
        self.serving(procedure).asked = Some(asked);
        self
    }

    /// Says that peers may call over TCP whom the service does not admit
    /// ([`Service::admits`](crate::core::Service::admits)), to be told so by the program itself.
    #[must_use]
    pub const fn open_to_all(mut self) -> Self {
        self.is_open_to_all = true;
        self
    }

    /// Returns the binding.
    pub const fn binding(&self) -> &Binding {
        &self.binding
    }

    fn serving(&mut self, procedure: u32) -> &mut Serving {
        let Binding { program, version, .. } = self.binding;
        let serving = usize::try_from(procedure).ok().and_then(|at| self.procedures.get_mut(at));
        serving.unwrap_or_else(|| {
            panic!("program {program} version {version} has no procedure {procedure}")
        })
    }
}
