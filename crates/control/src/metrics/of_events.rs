//! Metric families of rare events: ends of connections, refusals, reloads. All series exist from
//! the start, so that a rate includes the first event.

use std::fmt;

use contract::{EndCause, PacketReading, Protocol, ServerEvent, TlsFailure, TlsUse};

use super::of_server::protocol_word;
use super::series::{Series, families};

/// Writes one series for each of the `kinds`: the value of the label, and the event that is
/// counted.
fn each<const N: usize>(out: &mut Series<'_>, kinds: [(&str, ServerEvent); N]) -> fmt::Result {
    kinds.into_iter().try_for_each(|(word, kind)| out.count([word], kind.so_far()))
}

families! {
    worker_connections_ended: Counter["worker", "cause"]
        "Connections that have ended: `peer` closed it; `network`: the peer reset it, or the network failed; `protocol_error`: the peer broke the protocol; `failed_request`: a request failed, for which version 1 of `reflex` has no word; `session`: an NVMe controller was shut down, missed its keep-alives, was not let in or is not any more; `stuck`: the peer stopped amid a message or its credentials, or left replies unread, for too long; `not_let_in`: no access rule, or no such tenant; `drained` with its listener, worker or server; `ordered` by an operator; `superseded` by a newer one of its client; `back_pressure`: too much was kept for stopped connections."
        => |snapshot, out| {
            snapshot.workers.iter().enumerate().try_for_each(|(n, flow)| {
                let mut ends = EndCause::ALL.into_iter().zip(flow.ends);
                ends.try_for_each(|(cause, count)| out.count([&n.to_string(), cause.word()], count))
            })
        };
    worker_moves: Counter["worker", "outcome"]
        "Connections that `left` the worker for others, `stayed` although they were to leave, and `arrived` from others."
        => |snapshot, out| {
            snapshot.workers.iter().enumerate().try_for_each(|(n, flow)| {
                let mut moves = ["left", "stayed", "arrived"].into_iter().zip(flow.moves);
                moves.try_for_each(|(outcome, count)| out.count([&n.to_string(), outcome], count))
            })
        };
    connections_refused: Counter["reason"]
        "Connections that were closed when they came: there were as many as may be (`full`), or their listener is drained (`drained`). Those that no rule lets in end as `not_let_in`."
        => |_, out| {
            let (full, drained) = (ServerEvent::RefusedFull, ServerEvent::RefusedDrained);
            each(out, [("full", full), ("drained", drained)])
        };
    authentications: Counter["credential", "outcome"]
        "Proofs of who somebody is that `failed`, and those that were looked at late because of failures from the same address (`delayed`; wrong tokens of operators are refused instead): a client's `token`, an NVMe host's `key` (one that breaks off has failed), an operator's `admin_token`."
        => |_, out| {
            use ServerEvent as Of;
            let kinds = [
                ("token", Of::TokenFailed, Of::TokenDelayed),
                ("key", Of::KeyFailed, Of::KeyDelayed),
                ("admin_token", Of::AdminTokenFailed, Of::AdminTokenDelayed),
            ];
            kinds.into_iter().try_for_each(|(word, failed, delayed)| {
                out.count([word, "failed"], failed.so_far())?;
                out.count([word, "delayed"], delayed.so_far())
            })
        };
    tls_handshakes: Counter["outcome"]
        "TLS handshakes that ended well (`done`), and those that failed: the peer did not speak TLS (`plain`), broke off (`broken_off`), or took too long (`late`); there were too many at once (`crowd`); either end did not take the other's certificate (`certificate`), or has not its pre-shared key (`key`); anything else (`protocol`)."
        => |_, out| {
            out.count(["done"], ServerEvent::TlsDone.so_far())?;
            let failed = TlsFailure::WORDS.into_iter().zip(ServerEvent::INSECURE);
            failed.into_iter().try_for_each(|(word, kind)| out.count([word], kind.so_far()))
        };
    tls_connections: Gauge["protocol"]
        "Connections of clients over TLS that are open, by protocol."
        => |_, out| {
            Protocol::ALL.into_iter().try_for_each(|protocol| {
                out.gauge([protocol_word(protocol)], TlsUse::of(protocol).opened() as f64)
            })
        };
    tls_choices: Counter["protocol", "choice"]
        "Connections that came to listeners with `tls=allowed` and went on over TLS (`tls`), or without it (`plain`)."
        => |_, out| {
            Protocol::ALL.into_iter().try_for_each(|protocol| {
                let mut each = ["tls", "plain"].into_iter().zip(TlsUse::of(protocol).chosen());
                each.try_for_each(|(choice, count)| {
                    out.count([protocol_word(protocol), choice], count)
                })
            })
        };
    packets_received: Counter[]
        "Packets that arrived at listeners `reflex+udp://` and `reflex+eth://`."
        => |_, out| out.count([], PacketReading::of_process().received);
    packets_sent: Counter[]
        "Packets that left by listeners `reflex+udp://` and `reflex+eth://`."
        => |_, out| out.count([], PacketReading::of_process().sent);
    packets_resent_pieces: Counter[]
        "Pieces of messages that were sent to clients again, because their packets were lost or refused: beside `packets_sent`, how much the network or the clients lose."
        => |_, out| out.count([], PacketReading::of_process().resent);
    packets_refused: Counter["reason"]
        "Packets that changed nothing: `malformed`, damaged on the way, or with a wrong seal; `unknown`: of no association, with a wrong cookie, or from another address; `repeated`: they had arrived before; `no_room`: memory for what had come was used up, and the client sends them again; `too_many`: strangers said hello too often."
        => |_, out| {
            let read = PacketReading::of_process();
            let PacketReading { malformed, unknown, repeated, no_room, too_many, .. } = read;
            out.count(["malformed"], malformed)?;
            out.count(["unknown"], unknown)?;
            out.count(["repeated"], repeated)?;
            out.count(["no_room"], no_room)?;
            out.count(["too_many"], too_many)
        };
    packets_associations: Gauge[]
        "Associations with clients over packets: one for each process of a client, however many connections it has."
        => |_, out| out.gauge([], PacketReading::of_process().associations as f64);
    packets_of_lanes: Counter["lane", "direction"]
        "Packets of each lane of a listener with several (`also=`), `received` and `sent`. Lanes are counted from 1, in the order of the listener's URL."
        => |_, out| {
            for (lane, read) in ["1", "2", "3", "4"].into_iter().zip(PacketReading::of_process().lanes) {
                out.count([lane, "received"], read.received)?;
                out.count([lane, "sent"], read.sent)?;
            }
            Ok(())
        };
    packets_paths: Counter["change"]
        "Paths to clients beside the first of each association: `proven`, used from now on or again; `left`, since the client was silent there and not elsewhere."
        => |_, out| {
            let PacketReading { paths_left, paths_proven, .. } = PacketReading::of_process();
            out.count(["proven"], paths_proven)?;
            out.count(["left"], paths_left)
        };
    audit_records: Counter["outcome"]
        "Records of changes that are in the audit log's file (`kept`), and those that could not be written when they were due (`owed`): those are written later, or lost with the process."
        => |_, out| each(out, [("kept", ServerEvent::AuditKept), ("owed", ServerEvent::AuditOwed)]);
    log_left_out: Counter[]
        "Events that were left out of the log, because there were too many from one place in the program."
        => |_, out| out.count([], ServerEvent::LogLeftOut.so_far());
    reloads: Counter["outcome"]
        "Configurations that were read again: taken (`done`), or `refused`, after which nothing has changed."
        => |_, out|
            each(out, [("done", ServerEvent::ReloadDone), ("refused", ServerEvent::ReloadRefused)]);
    upgrades: Counter["outcome"]
        "`done`: 1 in a process that has taken over from another; `failed`: attempts of others to take over from this one that came to nothing."
        => |_, out|
            each(out, [("done", ServerEvent::UpgradeDone), ("failed", ServerEvent::UpgradeFailed)]);
}
