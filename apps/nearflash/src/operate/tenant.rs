//! `nearflash tenant add|set|rm|list|check`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use control::admin::{
    Admitted, ChangeTenants, ChangedTenants, Check, NewTenant, Share, Slo, State, TenantPatch,
    TenantStatus, Verdict, parse_iops, parse_latency, parse_percentile,
};
use flash::parse_size;

use super::table::{Side, facts, rows_or};
use super::{Common, Failure, read_text};
use lab::report::{count_text, micros_text, number_text};

/// Add, change, remove and show tenants of a running server
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Add a tenant. Without --latency and --iops it is best effort
    Add {
        /// Name of the tenant
        name: String,
        #[command(flatten)]
        promise: SloArgs,
        #[command(flatten)]
        portion: ShareArgs,
    },
    /// Change a tenant's promise, its device, share or note. Omitted options keep their value
    Set {
        /// Name of the tenant
        name: String,
        /// Release the promise: the tenant becomes best effort
        #[arg(long, conflicts_with_all = ["latency", "iops", "read_percent", "percentile", "request_size"])]
        best_effort: bool,
        #[command(flatten)]
        promise: SloArgs,
        #[command(flatten)]
        portion: ShareArgs,
    },
    /// Remove a tenant. Its tokens are free at once
    Rm {
        /// Name of the tenant
        name: String,
    },
    /// Show one tenant
    Show {
        /// Name of the tenant
        name: String,
    },
    /// Apply many changes of tenants from a file: all of them or none
    Apply {
        /// File of the changes in JSON, as the body of `PATCH /v1/tenants`; `-` for standard input
        file: PathBuf,
    },
    /// List all tenants with their figures of the last second
    List,
    /// Check whether an SLO would be admitted, and what would have to give if not
    Check {
        /// Device of the promise [default: the tenant's; of a new one, the first]
        #[arg(long, value_name = "NAME")]
        device: Option<String>,
        /// Tenant whose SLO would change [default: a new tenant]
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        #[command(flatten)]
        promise: SloArgs,
        /// Print only how many new tenants with this SLO fit
        #[arg(long, conflicts_with = "tenant")]
        count: bool,
    },
}

/// The options of a tenant's SLO.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SloArgs {
    /// Bound of the tail latency of reads: 500us, 2ms
    #[arg(long, value_name = "TIME", value_parser = parse_latency)]
    latency: Option<u32>,
    /// Requests a second: 120000, 120k
    #[arg(long, value_name = "IOPS", value_parser = parse_iops)]
    iops: Option<u32>,
    /// Share of reads among the requests [default: 100]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    read_percent: Option<u8>,
    /// Percentile that the latency bounds; other than 95 only if the device model has it [default:
    /// 95]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percentile)]
    percentile: Option<f64>,
    /// Bytes of a typical request [default: 4KiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    request_size: Option<u32>,
}

impl SloArgs {
    /// Returns the SLO that the options name; options that are not given keep their value in
    /// `before`. Returns `None` for best effort: no option is given and `before` is `None`.
    fn over(&self, before: Option<Slo>) -> Result<Option<Slo>, String> {
        let names_any = self.latency.is_some()
            || self.iops.is_some()
            || self.read_percent.is_some()
            || self.percentile.is_some()
            || self.request_size.is_some();
        if !names_any && before.is_none() {
            return Ok(None);
        }
        let latency_us = self.latency.or(before.as_ref().map(|slo| slo.latency_us));
        let iops = self.iops.or(before.as_ref().map(|slo| slo.iops));
        let (Some(latency_us), Some(iops)) = (latency_us, iops) else {
            return Err("a promise needs both --latency and --iops".to_owned());
        };
        let before = before.unwrap_or(Slo {
            latency_us,
            percentile: 95.0,
            iops,
            read_percent: 100,
            request_bytes: 4096,
        });
        Ok(Some(Slo {
            latency_us,
            iops,
            percentile: self.percentile.unwrap_or(before.percentile),
            read_percent: self.read_percent.unwrap_or(before.read_percent),
            request_bytes: self.request_size.unwrap_or(before.request_bytes),
        }))
    }
}

/// The options of a best-effort tenant's share, its weight and its cap, and a tenant's device and
/// note.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ShareArgs {
    /// Device that the promise is about [default of a new tenant: the first]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Best effort: weight of the tenant's share of what is left, 1 to 1000 [default: 1]
    #[arg(long, value_name = "WEIGHT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    weight: Option<u32>,
    /// Best effort: maximum of tokens a second: 20000, 20k, or `none` [default: none]
    #[arg(long, value_name = "TOKENS", value_parser = parse_cap)]
    cap: Option<Cap>,
    /// Free text about the tenant, at most 200 characters; "" removes it
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// The value of `--cap`: a maximum of tokens a second, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cap {
    None,
    Tokens(u32),
}

impl ShareArgs {
    /// Returns the share that the options name; options that are not given keep their value in
    /// `before`. Returns `None` if neither a weight nor a cap is given.
    fn over(&self, before: &Share) -> Option<Share> {
        (self.weight.is_some() || self.cap.is_some()).then(|| Share {
            weight: self.weight.unwrap_or(before.weight),
            cap_tokens: match self.cap {
                None => before.cap_tokens,
                Some(Cap::None) => None,
                Some(Cap::Tokens(tokens)) => Some(tokens.into()),
            },
        })
    }
}

impl TenantCommand {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let client = &mut common.client()?;
        match self {
            TenantCommand::Add { name, promise, portion } => {
                let slo = promise.over(None)?;
                let share = portion.over(&Share { weight: 1, cap_tokens: None });
                let ShareArgs { device, note, .. } = portion.clone();
                let name = name.clone();
                let admitted = client.send(&NewTenant { name, device, slo, share, note })?;
                common.print(&admitted, |admitted| outcome("added", admitted));
            }
            TenantCommand::Set { name, best_effort, promise, portion } => {
                let to = patch(&client.get(name)?, *best_effort, promise, portion)?;
                let admitted = client.send_to(name, &to)?;
                common.print(&admitted, |admitted| outcome("changed", admitted));
            }
            TenantCommand::Rm { name } => {
                client.delete::<TenantStatus>(name)?;
                common.removed(name);
            }
            TenantCommand::Show { name } => common.print(&client.get(name)?, show),
            TenantCommand::Apply { file } => {
                let parsed = serde_json::from_str::<ChangeTenants>(&read_text(file)?);
                let all = parsed.map_err(|error| format!("{}: {error}", file.display()))?;
                let changed = client.send(&all)?;
                common.print(&changed, |ChangedTenants { added, changed, removed }| {
                    format!("{added} tenants added, {changed} changed, {removed} removed")
                });
            }
            TenantCommand::List => {
                common.print(&client.tenant_list()?, |all| list(&all.tenants) + &all.verdict());
            }
            TenantCommand::Check { device, tenant, promise, count } => {
                let slo = promise.over(None)?;
                let slo = slo.ok_or_else(|| "a check needs --latency and --iops".to_owned())?;
                let question = Check { device: device.clone(), tenant: tenant.clone(), slo };
                let verdict = client.send(&question)?;
                match verdict.fits.filter(|_| *count) {
                    Some(fits) => common.print(&fits, usize::to_string),
                    None => common.print(&verdict, judged),
                }
                return Ok(ExitCode::from(u8::from(!verdict.admitted)));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the tenant's change that the options of `tenant set` name; fails if they name none.
fn patch(
    before: &TenantStatus,
    best_effort: bool,
    promise: &SloArgs,
    portion: &ShareArgs,
) -> Result<TenantPatch, String> {
    let (share, ShareArgs { device, note, .. }) = (portion.over(&before.share), portion.clone());
    if best_effort {
        return Ok(TenantPatch { slo: None, share, note, device });
    }
    let slo = promise.over(before.slo.clone())?;
    if slo == before.slo && share.is_none() && note.is_none() && device.is_none() {
        let text = "nothing to change: name --latency, --iops or another part of the promise, \
                    --device, --weight, --cap or --note, or --best-effort";
        return Err(text.to_owned());
    }
    Ok(TenantPatch { slo, share, note, device })
}

fn outcome(what: &str, admitted: &Admitted) -> String {
    let Admitted { name, device, share, .. } = admitted;
    let text = |tokens: u64| number_text(tokens as f64);
    let (needed, left) = (text(admitted.tokens_needed), text(admitted.tokens_left));
    let words = match admitted.tokens_needed {
        0 if !admitted.has_model => "best effort, without limits".to_owned(),
        0 if *share == Share::default() => format!("best effort, shares {left} tokens/s"),
        0 => format!("best effort, {}, shares {left} tokens/s", share.text(number_text)),
        _ => format!("{needed} tokens/s promised, {left} left"),
    };
    format!("{what} {name} on {device}: {words}")
}

fn judged(verdict: &Verdict) -> String {
    let tokens = |n: Option<u64>| number_text(n.unwrap_or(0) as f64);
    let kept = tokens(Some(verdict.tokens_headroom));
    let kept = format!("\n{kept} tokens/s more are kept back, so that SLOs hold in windows");
    let said = match &verdict.refusal {
        None => {
            let (needed, left) = (tokens(verdict.tokens_needed), tokens(verdict.tokens_left));
            let fits = match verdict.fits {
                None => String::new(),
                Some(1) => "; no second one like it fits".to_owned(),
                Some(fits) => format!("; {} such tenants fit", number_text(fits as f64)),
            };
            format!("would be admitted: needs {needed} tokens/s, {left} would be left{fits}")
        }
        Some(problem) => format!("would be refused: {}", problem.message),
    };
    said + if verdict.tokens_headroom > 0 { &kept } else { "" }
}

/// Returns the text about one tenant, a line for each property.
fn show(tenant: &TenantStatus) -> String {
    let (measured, none) = (&tenant.measured, || "-".to_owned());
    let promise = tenant.slo.as_ref().map_or("none: best effort".to_owned(), |slo| {
        format!(
            "p{} within {} at {} requests/s of {} B, {} % reads: {} tokens/s",
            slo.percentile,
            micros_text(slo.latency_us.into()),
            number_text(slo.iops.into()),
            slo.request_bytes,
            slo.read_percent,
            number_text(tenant.tokens_needed as f64)
        )
    });
    let tail = measured.p95_us.map_or_else(none, micros_text);
    let now = format!(
        "{} requests/s, p95 of reads {tail}, {} tokens/s",
        number_text(measured.iops.round()),
        number_text(measured.tokens.round())
    );
    let not_done = format!(
        "{} failed and {} refused as busy, a second",
        number_text(measured.failures.round()),
        number_text(measured.retries.round())
    );
    let connections = count_text(tenant.connections.into(), "connection");
    let requests = count_text(tenant.in_flight.into(), "request");
    let mut each = vec![
        ("state", status(tenant)),
        ("device", tenant.device.clone()),
        ("promise", promise),
        ("share", tenant.share.text(number_text)),
        ("now", now),
        ("not done", not_done),
        ("holds", format!("{connections}, {requests} in flight")),
    ];
    each.extend(tenant.note.clone().map(|note| ("note", note)));
    facts(&format!("tenant {}", tenant.name), &each)
}

/// Returns the table of tenants, with measured values beside promised ones.
fn list(tenants: &[TenantStatus]) -> String {
    use Side::{Left, Right};
    rows_or(
        "there is no tenant",
        [
            ("TENANT", Left),
            ("DEVICE", Left),
            ("IOPS", Right),
            ("SLO", Right),
            ("p95 READ", Right),
            ("SLO", Right),
            ("TOKENS/S", Right),
            ("SLO", Right),
            ("READS", Right),
            ("SLO", Right),
            ("CONNS", Right),
            ("STATUS", Left),
        ],
        tenants,
        |tenant| {
            let (measured, slo) = (&tenant.measured, tenant.slo.as_ref());
            let none = || "-".to_owned();
            let cap = || {
                let bound = |tokens: u64| format!("≤ {}", number_text(tokens as f64));
                tenant.share.cap_tokens.map_or_else(none, bound)
            };
            // Both are at the percentile that is promised, which is named where it is not p95.
            let tail = slo.map_or(measured.p95_us, |_| measured.slo_percentile_us);
            let other = slo.map(|slo| slo.percentile).filter(|percentile| *percentile != 95.0);
            let other = other.map_or(String::new(), |percentile| format!(" p{percentile}"));
            let latency = |micros: f64| micros_text(micros) + &other;
            let percent = |share: f64| format!("{share:.0} %");
            [
                tenant.name.clone(),
                tenant.device.clone(),
                number_text(measured.iops.round()),
                slo.map_or_else(none, |slo| number_text(slo.iops.into())),
                tail.map_or_else(none, latency),
                slo.map_or_else(none, |slo| latency(slo.latency_us.into())),
                number_text(measured.tokens.round()),
                slo.map_or_else(cap, |_| number_text(tenant.tokens_needed as f64)),
                measured.read_percent.map_or_else(none, percent),
                slo.map_or_else(none, |slo| percent(slo.read_percent.into())),
                tenant.connections.to_string(),
                status(tenant),
            ]
        },
    )
}

/// The factor above the promised rate from which a tenant's load counts as a burst, not as noise.
const BURST: f64 = 1.05;

/// Returns the tenant's status for the table, in a word or two.
fn status(tenant: &TenantStatus) -> String {
    let measured = &tenant.measured;
    let Some(slo) = &tenant.slo else {
        let plain = if measured.iops == 0.0 { "idle" } else { "best effort" };
        return match (tenant.state, tenant.share.weight) {
            (State::Leaving, _) => "leaving".to_owned(),
            (State::Active, 1) => plain.to_owned(),
            (State::Active, weight) => format!("{plain}, weight {weight}"),
        };
    };
    let word = match measured.slo_percentile_us {
        _ if tenant.state == State::Leaving => "leaving",
        _ if measured.iops == 0.0 => "idle",
        _ if measured.tokens > tenant.tokens_needed as f64 * BURST => "over its SLO",
        Some(us) if us > f64::from(slo.latency_us) => "late",
        _ => "kept",
    };
    word.to_owned()
}

fn parse_cap(text: &str) -> Result<Cap, String> {
    if text == "none" {
        return Ok(Cap::None);
    }
    let tokens = parse_iops(text).ok().filter(|tokens| *tokens <= 1_000_000_000);
    tokens.map(Cap::Tokens).ok_or_else(|| {
        "tokens a second, from 1 to 1000000000: 20000, 20k, 1.5M; or `none`".to_owned()
    })
}

fn parse_bytes(text: &str) -> Result<u32, String> {
    parse_size(text).ok().and_then(|bytes| u32::try_from(bytes).ok()).ok_or_else(|| {
        "a size with its unit, a multiple of 512 bytes and at most 1MiB: 4KiB".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::admin::{Class, Measured, Origin};

    fn slo() -> Slo {
        Slo {
            latency_us: 500,
            percentile: 95.0,
            iops: 120_000,
            read_percent: 100,
            request_bytes: 4096,
        }
    }

    fn tenant(name: &str, slo: Option<Slo>, measured: Measured) -> TenantStatus {
        TenantStatus {
            name: name.to_owned(),
            number: 1,
            state: State::Active,
            origin: Origin::Operator,
            class: if slo.is_some() { Class::LatencyCritical } else { Class::BestEffort },
            device: "fast".to_owned(),
            tokens_needed: if slo.is_some() { 120_000 } else { 0 },
            slo,
            share: Share { weight: 1, cap_tokens: None },
            note: None,
            measured,
            connections: 4,
            in_flight: 0,
        }
    }

    fn measured(iops: f64, p95_us: f64) -> Measured {
        Measured {
            iops,
            read_percent: Some(100.0),
            tokens: iops,
            p95_us: Some(p95_us),
            slo_percentile_us: Some(p95_us),
            ..Measured::default()
        }
    }

    #[test]
    fn what_is_measured_stands_beside_what_is_promised() {
        let shown = list(&[
            tenant("gold", Some(slo()), measured(119_812.4, 312.2)),
            tenant("batch", None, measured(900.0, 2_512.0)),
            tenant("idle", Some(slo()), Measured::default()),
        ]);
        assert_eq!(
            shown,
            "\
TENANT  DEVICE     IOPS      SLO  p95 READ     SLO  TOKENS/S      SLO  READS    SLO  CONNS  STATUS
gold    fast    119 812  120 000    312 µs  500 µs   119 812  120 000  100 %  100 %      4  kept
batch   fast        900        -   2.51 ms       -       900        -  100 %      -      4  best effort
idle    fast          0  120 000         -  500 µs         0  120 000      -  100 %      4  idle"
        );
        assert_eq!(
            show(&tenant("gold", Some(slo()), measured(119_812.4, 312.2))),
            "tenant gold\n  state     kept\n  device    fast\n  \
             promise   p95 within 500 µs at 120 000 requests/s of 4096 B, 100 % reads: 120 000 tokens/s\n  \
             share     weight 1\n  now       119 812 requests/s, p95 of reads 312 µs, 119 812 tokens/s\n  \
             not done  0 failed and 0 refused as busy, a second\n  \
             holds     4 connections, 0 requests in flight"
        );
        let strict = Slo { percentile: 99.0, ..slo() };
        let shown = list(&[tenant("strict", Some(strict), measured(7.0, 312.2))]);
        assert!(shown.contains("312 µs p99  500 µs p99"), "{shown}");
        assert_eq!(list(&[]), "there is no tenant");
        let share = Share { weight: 3, cap_tokens: Some(20_000) };
        let shown = list(&[TenantStatus { share, ..tenant("bulk", None, measured(7.0, 312.2)) }]);
        assert!(shown.contains("≤ 20 000"), "{shown}");
        assert!(shown.ends_with("best effort, weight 3"), "{shown}");
        assert!(list(&[tenant("bulk", None, Measured::default())]).ends_with("idle"));
    }

    #[test]
    fn a_status_says_whose_fault_it_is() {
        let status = |iops, p95_us| status(&tenant("x", Some(slo()), measured(iops, p95_us)));
        assert_eq!(status(100_000.0, 499.0), "kept");
        assert_eq!(status(100_000.0, 501.0), "late");
        assert_eq!(status(130_000.0, 9_000.0), "over its SLO");
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let change = SloArgs { iops: Some(50_000), ..SloArgs::default() };
        assert_eq!(change.over(Some(slo())), Ok(Some(Slo { iops: 50_000, ..slo() })));
        assert!(change.over(None).unwrap_err().contains("--latency"));
        assert_eq!(SloArgs::default().over(None), Ok(None));
        assert_eq!(SloArgs::default().over(Some(slo())), Ok(Some(slo())));
        let whole = SloArgs { latency: Some(500), iops: Some(120_000), ..SloArgs::default() };
        assert_eq!(whole.over(None), Ok(Some(slo())));
    }

    #[test]
    fn a_note_alone_is_a_change() {
        let gold = tenant("gold", Some(slo()), Measured::default());
        let portion = |note, device| ShareArgs { note, device, ..ShareArgs::default() };
        let to = |note, device| patch(&gold, false, &SloArgs::default(), &portion(note, device));
        let note = Some("ticket 7".to_owned());
        let none = TenantPatch { slo: Some(slo()), share: None, note: None, device: None };
        assert_eq!(to(note.clone(), None), Ok(TenantPatch { note, ..none.clone() }));
        assert!(to(None, None).unwrap_err().contains("--note"));
        let device = Some("second".to_owned());
        assert_eq!(to(None, device.clone()), Ok(TenantPatch { device, ..none }));
    }

    #[test]
    fn a_share_keeps_what_it_does_not_name() {
        let before = Share { weight: 3, cap_tokens: Some(20_000) };
        let over = |weight, cap| ShareArgs { weight, cap, ..ShareArgs::default() }.over(&before);
        assert_eq!(over(None, None), None);
        assert_eq!(over(Some(2), None), Some(Share { weight: 2, ..before.clone() }));
        assert_eq!(over(None, Some(Cap::None)), Some(Share { cap_tokens: None, ..before.clone() }));
        let capped = Share { cap_tokens: Some(9_000), ..before.clone() };
        assert_eq!(over(None, parse_cap("9k").ok()), Some(capped));
        assert_eq!(parse_cap("none"), Ok(Cap::None));
        assert!(parse_cap("0").is_err() && parse_cap("2000M").is_err());
    }

    #[test]
    fn an_admission_says_what_the_tenant_gets() {
        let admitted = |tokens_needed, has_model, share: &Share| Admitted {
            name: "bulk".to_owned(),
            number: 3,
            device: "fast".to_owned(),
            tokens_needed,
            tokens_left: 360_000,
            has_model,
            share: share.clone(),
        };
        let said = |needed, has_model, share| outcome("set", &admitted(needed, has_model, share));
        let (plain, own) = (Share::default(), Share { weight: 3, cap_tokens: Some(50_000) });
        assert_eq!(said(0, true, &plain), "set bulk on fast: best effort, shares 360 000 tokens/s");
        assert_eq!(
            said(0, true, &own),
            "set bulk on fast: best effort, weight 3, 50 000 tokens/s at most, shares 360 000 tokens/s"
        );
        assert_eq!(said(0, false, &plain), "set bulk on fast: best effort, without limits");
        assert_eq!(said(9, true, &plain), "set bulk on fast: 9 tokens/s promised, 360 000 left");
    }

    #[test]
    fn a_check_tells_what_is_kept_back_for_windows() {
        let verdict = Verdict {
            admitted: true,
            tokens_needed: Some(20_000),
            tokens_left: Some(354_000),
            tokens_headroom: 46_000,
            fits: Some(18),
            refusal: None,
        };
        let admitted = "would be admitted: needs 20 000 tokens/s, 354 000 would be left; 18 such \
                        tenants fit";
        let kept = "46 000 tokens/s more are kept back, so that SLOs hold in windows";
        assert_eq!(judged(&verdict), format!("{admitted}\n{kept}"));
        assert_eq!(judged(&Verdict { tokens_headroom: 0, ..verdict }), admitted);
    }

    #[test]
    fn a_typical_request_has_whole_blocks() {
        assert_eq!(parse_bytes("4KiB"), Ok(4096));
        assert!(parse_bytes("4").is_err() && parse_bytes("1TiB").is_err());
    }
}
