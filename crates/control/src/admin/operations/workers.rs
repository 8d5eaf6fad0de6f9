//! The functions of the API's operations on workers and their connections.

use std::time::Duration;

use contract::ConnId;
use serde_json::json;

use crate::admin::input::{Body, Query};
use crate::admin::model::{Worker, Workers};
use crate::admin::operation::{Api, Call};
use crate::admin::problem::{Code, Problem};
use crate::admin::workers::{
    Connection, ConnectionFilter, Connections, DEADLINE_MS_MAX, EndConnection, HasMoved, MoveTo,
    SetWorker,
};
use crate::commands::{self, CommandRefused, WorkerState};

pub(super) fn list(call: &Call, (): ()) -> Result<Workers, Problem> {
    Ok(Workers { workers: shown_workers(&call.api) })
}

pub(super) fn get(call: &Call, (): ()) -> Result<Worker, Problem> {
    let number = number_of(call)?;
    let worker = shown_workers(&call.api).into_iter().find(|worker| worker.number == number);
    worker.ok_or_else(|| CommandRefused::NoWorker(number).into())
}

pub(super) fn set(call: &Call, Body(to): Body<SetWorker>) -> Result<(), Problem> {
    let (number, SetWorker { state, deadline_ms }) = (number_of(call)?, to);
    match state {
        WorkerState::Active => drop(call.api.commands.add(Some(number))?),
        WorkerState::Retiring | WorkerState::Parked => {
            let limit = deadline_ms.map(|ms| Duration::from_millis(ms.min(DEADLINE_MS_MAX)));
            call.api.commands.retire(number, limit)?;
        }
    }
    call.note.after(&to);
    tracing::info!(worker = number, ?state, "worker set");
    Ok(())
}

pub(super) fn connections(
    call: &Call,
    Query(which): Query<ConnectionFilter>,
) -> Result<Connections, Problem> {
    let infos = call.api.commands.connections()?;
    let numbers = numbers(&call.api);
    let total = infos.len();
    let wanted = |info: &commands::ConnectionInfo| {
        let Some(text) = &which.search else { return true };
        let has = |of: &str| of.to_lowercase().contains(&text.to_lowercase());
        info.tenant.as_deref().is_some_and(has) || has(&info.listed.peer.to_string())
    };
    let found = infos.into_iter().filter(wanted).take(which.limit.unwrap_or(usize::MAX));
    Ok(Connections { connections: found.map(|info| shown(info, &numbers)).collect(), total })
}

pub(super) fn connection(call: &Call, (): ()) -> Result<Connection, Problem> {
    let (worker, conn) = named(&call.name)?;
    Ok(shown(call.api.commands.connection(worker, conn)?, &numbers(&call.api)))
}

pub(super) fn end_connection(
    call: &Call,
    Query(EndConnection { deadline_ms }): Query<EndConnection>,
) -> Result<Connection, Problem> {
    let (worker, conn) = named(&call.name)?;
    let limit = Duration::from_millis(deadline_ms.unwrap_or(10_000).min(DEADLINE_MS_MAX));
    let ended = call.api.commands.end_connection(worker, conn, limit)?;
    let ending = shown(ended, &numbers(&call.api));
    call.note.before(&ending);
    let (id, peer, in_flight) = (&call.name, &ending.peer, ending.in_flight);
    tracing::info!(id, peer, in_flight, "connection ends");
    Ok(ending)
}

pub(super) fn move_connection(
    call: &Call,
    Body(MoveTo { to }): Body<MoveTo>,
) -> Result<HasMoved, Problem> {
    let (worker, conn) = named(&call.name)?;
    call.note.before(&json!({ "worker": worker }));
    let commands::MoveResult { worker, conn, pause } =
        call.api.commands.move_connection(worker, conn, to)?;
    let id = name(worker, conn);
    call.note.after(&json!({ "worker": worker, "id": id }));
    let pause_us = pause.as_micros() as u64;
    tracing::info!(from = call.name, worker, pause_us, "connection moved");
    Ok(HasMoved { id, worker, pause_us })
}

/// Returns the number of the worker that the call's path names.
///
/// # Errors
/// Fails if the path has no number.
fn number_of(call: &Call) -> Result<usize, Problem> {
    let bad = || format!("{:?} is no number of a worker", call.name);
    call.name.parse().map_err(|_| Problem::new(Code::Invalid, bad()))
}

/// Returns the state of all workers in the form of the API.
fn shown_workers(api: &Api) -> Vec<Worker> {
    let (_, flows, _) = api.tenants.registry().activity().flows();
    let waited = |number: usize| flows.get(number).map_or(0.0, |flow| flow.last.waited_share);
    let each = api.commands.workers().into_iter().map(|info| Worker {
        number: info.number,
        cpu: api.parts.cpu(info.number),
        state: info.state,
        connections: info.connections,
        busy_percent: (info.busy * 1_000.0).round() / 10.0,
        waited_percent: (waited(info.number) * 1_000.0).round() / 10.0,
        moved: info.moved,
        stayed: info.stayed,
        arrived: info.arrived,
        pause_us_max: info.pause_us_max,
    });
    each.collect()
}

fn name(worker: usize, conn: ConnId) -> String {
    format!("{worker}:{}.{}", conn.index, conn.generation)
}

/// Parses the identifier of a connection in a path, such as `0:17.3`, into the number of its worker
/// and its identifier there.
fn named(id: &str) -> Result<(usize, ConnId), Problem> {
    parse(id).ok_or_else(|| {
        let message = format!("{id:?} is no name of a connection, such as 0:17.3");
        Problem::new(Code::Invalid, message)
    })
}

fn parse(id: &str) -> Option<(usize, ConnId)> {
    let (worker, conn) = id.split_once(':')?;
    let (index, generation) = conn.split_once('.')?;
    let conn = ConnId { index: index.parse().ok()?, generation: generation.parse().ok()? };
    Some((worker.parse().ok()?, conn))
}

impl From<CommandRefused> for Problem {
    fn from(refused: CommandRefused) -> Problem {
        let code = match refused {
            CommandRefused::NoWorker(_) => Code::NoWorker,
            CommandRefused::NoConnection(..) => Code::NoConnection,
            CommandRefused::Stays(contract::MoveRefusal::Gone) => Code::NoConnection,
            CommandRefused::ManyEnd | CommandRefused::Upgrading => Code::Busy,
            CommandRefused::Stays(_)
            | CommandRefused::Listens
            | CommandRefused::AllServe
            | CommandRefused::NotActive(_) => Code::InUse,
            CommandRefused::NoAnswer => Code::TimeOut,
        };
        Problem::new(code, refused.to_string())
    }
}

/// Returns pairs of a listener's index and its number, for the listeners whose number is not the
/// index plus one.
fn numbers(api: &Api) -> Vec<(u16, u16)> {
    api.parts.inventory().map(|inventory| inventory.listener_numbers()).unwrap_or_default()
}

fn shown(info: commands::ConnectionInfo, numbers: &[(u16, u16)]) -> Connection {
    let listener = info.listed.listener;
    let other = numbers.iter().find(|(called, _)| *called == listener);
    Connection {
        id: name(info.worker, info.listed.conn),
        worker: info.worker,
        peer: info.listed.peer.to_string(),
        transport: info.listed.peer.transport().to_owned(),
        tenant: info.tenant,
        listener: other.map_or(listener + 1, |(_, number)| *number),
        in_flight: info.listed.in_flight,
        messages: info.listed.messages,
        can_move: info.listed.can_move,
        ending: info.listed.is_ending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_connections_are_understood_again() {
        let conn = ConnId { index: 17, generation: 3 };
        assert_eq!(parse(&name(2, conn)), Some((2, conn)));
        for bad in ["", "1", "1:2", "1:2.", "a:1.2", "1:2.3.4", "1:-2.3"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
