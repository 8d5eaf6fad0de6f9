//! Traces of requests as a file for Perfetto and Chrome: the trace-event format, in JSON.
//!
//! A worker is a process of the file and a request is a bar. The stages between the points of its
//! path are bars below it.

use std::fmt::Write as _;

use contract::{IoKind, TenantId, Trace, TracePoint};

/// Names of the stages between two successive points of a request's path.
const STAGES: [&str; TracePoint::ALL.len() - 1] = [
    "receive, parse",
    "wait for the turn's others",
    "wait in the scheduler",
    "submit",
    "device",
    "take completions",
    "write replies",
    "hand to the socket",
    "network takes it",
];

/// Returns the file's text for these traces, each with the number of its worker. `name` returns the
/// name of a tenant.
pub(crate) fn chrome(traces: &[(usize, Trace)], name: impl Fn(TenantId) -> String) -> String {
    let mut text = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
    let mut workers: Vec<usize> = traces.iter().map(|(worker, _)| *worker).collect();
    workers.sort_unstable();
    workers.dedup();
    for worker in &workers {
        let _ = writeln!(
            text,
            "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{worker},\"tid\":0,\
             \"args\":{{\"name\":\"worker {worker}\"}}}},"
        );
    }
    for (n, (worker, trace)) in traces.iter().enumerate() {
        write_request(&mut text, n, *worker, trace, &name(trace.tenant));
    }
    // No comma may follow the last element of a list.
    let end = text.trim_end_matches(['\n', ',']).len();
    text.truncate(end);
    text + "]}\n"
}

fn write_request(text: &mut String, n: usize, worker: usize, trace: &Trace, tenant: &str) {
    let kind = match trace.kind {
        IoKind::Read => "read",
        IoKind::Write | IoKind::Exchange => "write",
        IoKind::Other => "flush",
    };
    let tenant = serde_json::to_string(tenant).expect("a text is JSON");
    // A request that waited for its payload was admitted before the payload had come.
    let mut at = trace.at;
    let seen = 1 + at.iter().rposition(|at| *at > 0).unwrap_or(0);
    for seam in 1..seen {
        at[seam] = at[seam].max(at[seam - 1]);
    }
    let id = format!("{worker}.{}.{n}", trace.at[0]);
    let mut event = |phase: char, name: &str, at: u64, args: &str| {
        let micros = at as f64 / 1e3;
        let _ = writeln!(
            text,
            "{{\"ph\":\"{phase}\",\"cat\":\"request\",\"id\":\"{id}\",\"name\":\"{name}\",\
             \"pid\":{worker},\"tid\":0,\"ts\":{micros:.3}{args}}},"
        );
    };
    let args = format!(
        ",\"args\":{{\"tenant\":{tenant},\"connection\":{},\"namespace\":{},\"bytes\":{},\
         \"status\":\"{}\"}}",
        trace.connection, trace.namespace.0, trace.bytes, trace.status
    );
    event('b', kind, at[0], &args);
    for stage in 0..seen - 1 {
        event('b', STAGES[stage], at[stage], "");
        event('e', STAGES[stage], at[stage + 1], "");
    }
    event('e', kind, at[seen - 1], "");
}

#[cfg(test)]
mod tests {
    use super::*;

    use contract::{NamespaceId, Status};
    use serde_json::Value;

    #[test]
    fn a_request_is_a_bar_with_its_stages_below() {
        let trace = Trace {
            tenant: TenantId(3),
            connection: 5,
            namespace: NamespaceId(1),
            kind: IoKind::Read,
            status: Status::Ok,
            bytes: 4096,
            at: std::array::from_fn(|seam| 1_000_000 + 1_000 * seam as u64),
        };
        let mut cut = Trace { kind: IoKind::Write, ..trace };
        // The payload came late, and the connection ended before the reply was sent.
        (cut.at[0], cut.at[9]) = (1_002_500, 0);
        let text = chrome(&[(0, trace), (1, cut)], |tenant| format!("t\"{}", tenant.0));
        let value: Value = serde_json::from_str(&text).unwrap();
        let events = value["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 2 + 20 + 18);
        let (begin, end) = (&events[2], &events[21]);
        assert_eq!((&begin["ph"], &begin["name"]), (&"b".into(), &"read".into()));
        assert_eq!((&begin["ts"], &end["ts"]), (&1_000.0.into(), &1_009.0.into()));
        assert_eq!(begin["args"]["tenant"], "t\"3");
        let mut open = Vec::new();
        let mut last = 0.0;
        for event in &events[2..] {
            let ts = event["ts"].as_f64().unwrap();
            match event["ph"].as_str().unwrap() {
                "b" => open.push((&event["id"], &event["name"])),
                _ => assert_eq!(open.pop(), Some((&event["id"], &event["name"]))),
            }
            if open.len() > 1 {
                assert!(ts >= last, "time goes back within a request");
            }
            last = ts;
        }
        assert!(open.is_empty());
        assert_eq!(
            chrome(&[], |_| String::new()),
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[]}\n"
        );
    }
}
