//! The tenant that a client registers. A tenant's handle holds on one connection only, so the
//! client registers on each of its connections, and again on each new one.

use std::collections::VecDeque;

use client::{Initiator, Ticket};
use contract::{ControlRequest, Instant, Status, TenantRegistration, TenantReply};
use io::Network;

use crate::Error;
use crate::slo::{Refused, Registered, Slo};

/// A server's notice that the client's tenant demands more than its SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Requests per second of all clients of the tenant together, as measured by the server.
    pub iops: u32,
    /// Share of reads among the tenant's requests, in percent, as measured by the server.
    pub read_percent: u8,
}

/// A program's request about its tenant.
#[derive(Debug)]
pub(crate) enum TenantRequest {
    Register { name: String, slo: Slo },
    Renegotiate { slo: Slo },
    Unregister,
}

/// A program's request about its tenant, in progress on one or all connections.
#[derive(Debug)]
struct Operation {
    wish: TenantRequest,
    /// Number of connections whose answer is outstanding.
    left: usize,
    /// The first success among the answers so far, else the last error; `None` before the first
    /// answer.
    outcome: Option<Result<Registered, Error>>,
}

/// The tenant of a client, and its handles.
#[derive(Debug)]
pub(crate) struct Tenancy {
    /// The name and SLO to register on each new connection; `None` if no tenant is registered.
    wanted: Option<(String, Slo)>,
    /// The tenant's handle on each connection; zero for a connection without one.
    handles: Vec<u16>,
    operation: Option<Operation>,
    /// Messages about the tenant that wait for a place in flight. A request of the program adds at
    /// most one for each connection, and each new connection adds one.
    unasked: VecDeque<(TenantQuestion, ControlRequest)>,
}

/// The purpose of a request about the tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TenantQuestion {
    /// Index of the connection.
    link: usize,
    /// `true` if the message registers the tenant again on a new connection; `false` if it belongs
    /// to the program's request in progress.
    is_again: bool,
}

impl Tenancy {
    pub(crate) fn new(connections: usize) -> Tenancy {
        Tenancy {
            wanted: None,
            handles: vec![0; connections],
            operation: None,
            unasked: VecDeque::new(),
        }
    }

    /// Starts a request of the program about its tenant.
    ///
    /// # Errors
    /// [`Error::Full`] if another such request is in progress; [`Error::Failed`] with `NoTenant` if
    /// the request needs a tenant and there is none.
    pub(crate) fn begin<N: Network>(
        &mut self,
        initiator: &mut Initiator<N>,
        wish: TenantRequest,
    ) -> Result<(), Error> {
        if self.operation.is_some() {
            return Err(Error::Full);
        }
        let with_handles = (0..self.handles.len()).filter(|link| self.handles[*link] != 0);
        let asks: Vec<(usize, ControlRequest)> = match &wish {
            TenantRequest::Register { name, slo } => {
                self.wanted = Some((name.clone(), *slo));
                (0..self.handles.len()).map(|link| (link, register(name, *slo))).collect()
            }
            TenantRequest::Renegotiate { slo } => {
                let change = |link: usize| {
                    let tenant = self.handles[link];
                    let name = Box::default();
                    (
                        link,
                        ControlRequest::Renegotiate(TenantRegistration {
                            tag: 0,
                            tenant,
                            name,
                            slo: slo.asked(),
                        }),
                    )
                };
                with_handles.take(1).map(change).collect()
            }
            TenantRequest::Unregister => {
                self.wanted = None;
                let end = |link: usize| {
                    (link, ControlRequest::Unregister { tag: 0, tenant: self.handles[link] })
                };
                with_handles.map(end).collect()
            }
        };
        if let TenantRequest::Unregister = wish {
            for link in 0..self.handles.len() {
                self.charge(initiator, link, 0);
            }
        }
        if asks.is_empty() {
            return Err(Error::Failed(Status::NoTenant));
        }
        self.operation = Some(Operation { wish, left: asks.len(), outcome: None });
        let asked = |link| TenantQuestion { link, is_again: false };
        self.unasked.extend(asks.into_iter().map(|(link, control)| (asked(link), control)));
        Ok(())
    }

    /// Sends waiting messages while there is room in flight, and passes the ticket and purpose of
    /// each to `remember`.
    pub(crate) fn ask<N: Network>(
        &mut self,
        initiator: &mut Initiator<N>,
        now: Instant,
        mut remember: impl FnMut(Ticket, TenantQuestion),
    ) {
        while initiator.room() > 0
            && let Some((asked, control)) = self.unasked.pop_front()
        {
            let ticket = initiator.control(now, Some(asked.link), control);
            remember(ticket.expect("there is room"), asked);
        }
    }

    /// Takes note of a new connection, which has no handle yet, and plans to register the tenant on
    /// it.
    pub(crate) fn connected<N: Network>(&mut self, initiator: &mut Initiator<N>, link: usize) {
        self.charge(initiator, link, 0);
        if let Some((name, slo)) = &self.wanted {
            self.unasked.push_back((TenantQuestion { link, is_again: true }, register(name, *slo)));
        }
    }

    /// Forgets the handle of a connection that was lost.
    pub(crate) fn lost(&mut self, link: usize) {
        self.handles[link] = 0;
    }

    /// Handles the server's answer to a message about the tenant. Returns the outcome of the
    /// program's request if this was the last answer to it, otherwise `None`.
    pub(crate) fn answered<N: Network>(
        &mut self,
        initiator: &mut Initiator<N>,
        TenantQuestion { link, is_again }: TenantQuestion,
        status: Status,
        reply: TenantReply,
    ) -> Option<Result<Registered, Error>> {
        let is_register =
            |operation: &Operation| matches!(operation.wish, TenantRequest::Register { .. });
        let registers = is_again || self.operation.as_ref().is_some_and(is_register);
        if registers && status.is_ok() && self.wanted.is_some() {
            self.charge(initiator, link, reply.tenant);
        }
        if is_again {
            return None;
        }
        let operation = self.operation.as_mut().expect("it waits for its answers");
        let outcome = outcome(status, reply);
        if !matches!(operation.outcome, Some(Ok(_))) {
            operation.outcome = Some(outcome);
        }
        operation.left -= 1;
        if operation.left > 0 {
            return None;
        }
        let Operation { wish, outcome, .. } = self.operation.take().expect("it is there");
        let outcome = outcome.expect("an answer came");
        match (&wish, &outcome, &mut self.wanted) {
            (TenantRequest::Register { .. }, Err(_), wanted) => *wanted = None,
            (TenantRequest::Renegotiate { slo }, Ok(_), Some((_, wanted))) => *wanted = *slo,
            _ => {}
        }
        Some(outcome)
    }

    fn charge<N: Network>(&mut self, initiator: &mut Initiator<N>, link: usize, handle: u16) {
        self.handles[link] = handle;
        initiator.charge(link, handle);
    }
}

fn register(name: &str, slo: Slo) -> ControlRequest {
    ControlRequest::Register(TenantRegistration {
        tag: 0,
        tenant: 0,
        name: name.into(),
        slo: slo.asked(),
    })
}

fn outcome(status: Status, reply: TenantReply) -> Result<Registered, Error> {
    let figures = Registered { tokens_needed: reply.tokens_needed, tokens_free: reply.tokens_free };
    match status {
        Status::Ok => Ok(figures),
        Status::NoResources | Status::Unsupported => Err(Error::Refused(Refused {
            status,
            figures,
            limit_latency_us: (reply.limited_by != 0).then_some(reply.limit_latency_us),
            limited_by_other: ![0, TenantReply::LIMITED_BY_THIS].contains(&reply.limited_by),
        })),
        other => Err(other.into()),
    }
}
