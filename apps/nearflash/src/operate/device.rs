//! `nearflash device …`: devices, their models, and measuring them anew.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Subcommand;
use control::admin::{
    AddDevice, Client, ClientError, Code, DeviceSettings, DeviceStatus, Devices, Drift, DriftState,
    Found, Model, OpenedDevice, Phase, Promises, Recalibration, SetRecalibration,
    StartRecalibration, When,
};

use flash::size_text;

use super::table::{Side, table, text};
use super::{Common, Failure};
use lab::report::{micros_text, number_text};

/// The pause between two queries of a recalibration's progress, and the maximum time to wait for
/// its end.
const WAIT_PERIOD: Duration = Duration::from_millis(200);
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Add, change, remove, show and recalibrate devices of a running server
#[derive(Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// List all devices with the tokens a second that each makes, has promised and has left
    List,
    /// Add a device. It is there again after a restart
    Add(Add),
    /// Change settings of a running device. Omitted options keep their value
    Set(super::settings::Set),
    /// Remove a device that has no namespace and no tenant
    Rm {
        /// Name of the device
        name: String,
    },
    /// Show one device: its tokens, its drift and its last recalibration
    Show {
        /// Name of the device
        name: String,
    },
    /// Show the model of a device, or reset it to the configured one
    Model {
        /// Name of the device
        name: String,
        /// Reset to the model that the configuration names
        #[arg(long)]
        reset: bool,
    },
    /// Measure a device again beside its tenants
    Recalibrate(Recalibrate),
}

/// The error text for `--accept` without `--now` or `--when-idle` while no model is held back.
const ACCEPT_ALONE: &str = "--accept without --now or --when-idle uses what is held back, and begins \
                            nothing";

/// The arguments of `nearflash device add`.
#[derive(clap::Args, Debug)]
pub(crate) struct Add {
    /// Name of the device for namespaces and tenants
    name: String,
    /// Device spec: file:PATH[?size=SIZE], null:SIZE, mem:SIZE, sim:MODEL or ftl:MEMBER
    spec: String,
    /// Device model: a file on the server's machine, a or cloud. Without one, nothing can be
    /// promised
    #[arg(long, value_name = "FILE")]
    model: Option<String>,
    /// Correct the device model by measured delays
    #[arg(long, requires = "model")]
    correct_online: bool,
    /// Bound the requests at the device by the strictest latency
    #[arg(long, requires = "model")]
    bound_depth: bool,
    /// Refuse at once requests that would miss their latency
    #[arg(long, requires = "model")]
    fail_fast: bool,
    /// Promise latencies in windows of 1,000 reads or 10 s
    #[arg(long, requires = "model")]
    promise_windows: bool,
}

/// The arguments of `nearflash device recalibrate`.
#[derive(clap::Args, Debug)]
pub(crate) struct Recalibrate {
    /// Name of the device
    name: String,
    /// Begin at once, whatever the tenants do (the default)
    #[arg(long, conflicts_with = "when_idle")]
    now: bool,
    /// Begin when the device is idle, and stop when load comes
    #[arg(long)]
    when_idle: bool,
    /// Read only: keep the price of writes (the default)
    #[arg(long, conflicts_with = "scratch")]
    reads_only: bool,
    /// Overwrite this namespace to find the price of writes: ALL DATA IN IT IS LOST
    #[arg(long, value_name = "NAMESPACE")]
    scratch: Option<String>,
    /// With --now or --when-idle: use the new model even if the promises do not fit. Alone: use the
    /// model that is held back
    #[arg(long)]
    accept: bool,
    /// Wait for the end; the exit code is 1 unless a model was found and is used
    #[arg(long, conflicts_with = "cancel")]
    wait: bool,
    /// End the recalibration, or discard the model that is held back
    #[arg(long, conflicts_with_all = ["now", "when_idle", "reads_only", "scratch", "accept"])]
    cancel: bool,
}

impl DeviceCommand {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let mut client = common.client()?;
        match self {
            DeviceCommand::List => {
                common.print(&client.read::<Devices>()?, |devices| list(&devices.devices))
            }
            DeviceCommand::Add(what) => {
                let device = client.send(&AddDevice {
                    model: what.model.clone(),
                    correct_online: what.correct_online,
                    bound_depth: what.bound_depth,
                    fail_fast: what.fail_fast,
                    promises: Promises::held(what.promise_windows),
                    ..AddDevice::new(what.name.clone(), what.spec.clone())
                })?;
                common.print(&device, added);
            }
            DeviceCommand::Set(what) => what.run(common, &mut client)?,
            DeviceCommand::Rm { name } => {
                client.delete::<DeviceStatus>(name)?;
                common.removed(name);
            }
            DeviceCommand::Show { name } => {
                let device = client.get::<DeviceStatus>(name)?;
                // It may never have been measured.
                let last = if common.json { None } else { client.get::<Recalibration>(name).ok() };
                common.print(&device, |device| show(device, last.as_ref()));
            }
            DeviceCommand::Model { name, reset } => {
                if *reset {
                    client.delete::<Model>(name)?;
                }
                let model = client.get::<Model>(name)?;
                common.print(&model, show_model);
            }
            DeviceCommand::Recalibrate(what) => return what.run(common, &mut client),
        }
        common.warn(&client);
        Ok(ExitCode::SUCCESS)
    }
}

fn added(device: &OpenedDevice) -> String {
    let size = size_text(device.bytes);
    let model = if device.has_model { "" } else { ", without a model" };
    format!("added {}, {size}{model}", device.name)
}

impl Recalibrate {
    fn run(&self, common: &Common, client: &mut Client) -> Result<ExitCode, Failure> {
        if self.cancel {
            client.delete::<Recalibration>(&self.name)?;
            return Ok(ExitCode::SUCCESS);
        }
        let is_begun = !self.accept || self.now || self.when_idle;
        let mut told = if !is_begun {
            self.accept_held(client)?
        } else {
            let when = if self.when_idle { When::Idle } else { When::Now };
            let (scratch, accept) = (self.scratch.clone(), self.accept);
            client.send_to(&self.name, &StartRecalibration { when, scratch, accept })?
        };
        if self.wait {
            told = await_end(client, &self.name)?;
        }
        common.print(&told, recalibration);
        let is_well = told.phase == Phase::Accepted || !self.wait;
        Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Recalibrate {
    /// Makes the server use the model that is held back; fails if there is none. Never starts a
    /// measurement, which would take long and could cost the data of a scratch namespace.
    fn accept_held(&self, client: &mut Client) -> Result<Recalibration, Failure> {
        if self.scratch.is_some() || self.reads_only {
            return Err(Failure::from(format!("{ACCEPT_ALONE}: it says how to measure")));
        }
        let accept = SetRecalibration { accept: true };
        client.send_to(&self.name, &accept).map_err(|error| match error.code() {
            Some(Code::NotFound) => Failure::from(format!("{ACCEPT_ALONE}: {error}")),
            _ => error.into(),
        })
    }
}

fn await_end(client: &mut Client, name: &str) -> Result<Recalibration, ClientError> {
    #[expect(clippy::disallowed_methods, reason = "how long a person waits")]
    let begun = Instant::now();
    loop {
        let told = client.get::<Recalibration>(name)?;
        if !told.phase.is_open() || begun.elapsed() > WAIT_MAX {
            return Ok(told);
        }
        std::thread::sleep(WAIT_PERIOD);
    }
}

fn list(devices: &[DeviceStatus]) -> String {
    use Side::{Left, Right};
    let mut table = table(&[
        ("DEVICE", Left),
        ("TOKENS/S", Right),
        ("PROMISED", Right),
        ("FREE", Right),
        ("MODEL", Left),
        ("LIMITED BY", Left),
    ]);
    for device in devices {
        let tokens = |n: Option<u64>| n.map_or("-".to_owned(), |n| number_text(n as f64));
        table.add_row([
            device.name.clone(),
            tokens(device.tokens),
            number_text(device.tokens_promised as f64),
            tokens(device.tokens_left),
            device.drift.as_ref().map_or("-".to_owned(), drift_word),
            limit(device),
        ]);
    }
    text(&table)
}

fn limit(device: &DeviceStatus) -> String {
    let mut limit = match (&device.strictest, device.has_model) {
        (_, false) => "nothing: it has no model".to_owned(),
        (None, true) => "its model: no latency is promised".to_owned(),
        (Some(by), true) => format!("{} of {}", micros_text(by.latency_us.into()), by.tenant),
    };
    if device.tokens_headroom > 0 {
        let kept = number_text(device.tokens_headroom as f64);
        limit += &format!("; {kept} more are kept back, so that SLOs hold in windows");
    }
    if let Some(found) = &device.correction {
        let (rate, price) = (found.rate_percent, found.write_price_percent);
        limit += &format!("; corrected: rate {rate:.1} %, write price {price:.1} %");
    }
    limit
}

fn drift_word(drift: &Drift) -> String {
    match (drift.state, drift.percent) {
        (DriftState::Drifted, Some(percent)) => format!("DRIFTED: {percent:.0} %"),
        (DriftState::Fits, _) => "fits".to_owned(),
        _ => "unknown".to_owned(),
    }
}

/// Returns the text about one device, a line for each property. `last` is its latest recalibration,
/// if any.
fn show(device: &DeviceStatus, last: Option<&Recalibration>) -> String {
    let tokens = |n: Option<u64>| n.map_or("unlimited".to_owned(), |n| number_text(n as f64));
    let mut lines = vec![
        format!("device {}", device.name),
        format!("  makes         {} tokens/s, limited by {}", tokens(device.tokens), limit(device)),
        format!("  promised      {} tokens/s", number_text(device.tokens_promised as f64)),
        format!("  free          {} tokens/s", tokens(device.tokens_left)),
    ];
    if let Some(drift) = &device.drift {
        lines.push(format!("  model         {}", drift_text(drift)));
    }
    if device.recalibrated {
        lines.push(
            "                measured while the server ran (`nearflash device model NAME --reset` \
             goes back)"
                .to_owned(),
        );
    }
    lines.extend(device.settings.iter().flat_map(DeviceSettings::lines));
    lines.extend(last.map(recalibration));
    lines.join("\n")
}

fn drift_text(drift: &Drift) -> String {
    match (drift.state, drift.percent) {
        (DriftState::Drifted, Some(percent)) => format!(
            "drifted: it serves {percent:.0} % of what the model says at the latency that its reads \
             have, since {:.0} s",
            drift.seconds.unwrap_or(0.0)
        ),
        (DriftState::Fits, Some(percent)) => format!("fits ({percent:.0} %)"),
        _ => format!("unknown: {}", drift.why.as_deref().unwrap_or("nobody watches")),
    }
}

/// Returns the text about a recalibration, a line for each property.
fn recalibration(told: &Recalibration) -> String {
    let phase = match told.phase {
        Phase::Waiting => "waits".to_owned(),
        Phase::Measuring => {
            let tail = told.p95_us.map_or(String::new(), |us| format!(", p95 {us:.0} µs"));
            format!("measures: {:.0} %, {} steps{tail}", told.progress_percent, told.steps)
        }
        Phase::Held => "has found a model that is held back".to_owned(),
        Phase::Accepted => "has found a model, which is used".to_owned(),
        Phase::Refused => "has ended without a model".to_owned(),
        Phase::Cancelled => "was cancelled".to_owned(),
    };
    let mut lines = vec![format!("recalibration of {}: {phase}", told.device)];
    lines.extend(told.why.as_ref().map(|why| format!("  {why}")));
    if !told.displaced.is_empty() {
        let names = told.displaced.join(", ");
        lines.push(format!("  tenants that would have to go: {names} (or use it with --accept)"));
    }
    lines.extend(told.found.as_ref().map(found));
    lines.join("\n")
}

fn found(found: &Found) -> String {
    use Side::{Left, Right};
    let mut table = table(&[
        ("P95", Right),
        ("MIXED, TOKENS/S", Right),
        ("BEFORE", Right),
        ("READS ALONE/S", Right),
        ("BEFORE", Right),
        ("", Left),
    ]);
    for rate in &found.rates {
        let number = |n: u64| number_text(n as f64);
        table.add_row([
            format!("{} µs", rate.latency_us),
            number(rate.mixed),
            number(rate.mixed_before),
            number(rate.read_only),
            number(rate.read_only_before),
            if rate.measured { "measured" } else { "scaled with the rest" }.to_owned(),
        ]);
    }
    let price = match found.write_price_measured {
        true => format!("{:.2} tokens (before {:.2})", found.write_price, found.write_price_before),
        false => format!("{:.2} tokens, as before", found.write_price),
    };
    format!("  a write costs {price}\n{}", text(&table))
}

fn show_model(model: &Model) -> String {
    use Side::Right;
    let mut table = table(&[("P95", Right), ("MIXED, TOKENS/S", Right), ("READS ALONE/S", Right)]);
    for rate in &model.p95 {
        table.add_row([
            format!("{} µs", rate.latency_us),
            number_text(rate.mixed as f64),
            number_text(rate.read_only as f64),
        ]);
    }
    format!(
        "a write costs {:.2} tokens, a read of reads alone {:.2}; at most {} tokens/s\n{}",
        model.write_price,
        model.read_only_price,
        number_text(model.tokens_max as f64),
        text(&table)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::admin::{Correction, Strictest};

    fn device(name: &str, tokens: Option<u64>, strictest: Option<Strictest>) -> DeviceStatus {
        DeviceStatus {
            name: name.to_owned(),
            has_model: tokens.is_some(),
            tokens,
            tokens_promised: tokens.map_or(0, |_| 316_000),
            tokens_left: tokens.map(|n| n - 316_000),
            tokens_headroom: 0,
            strictest,
            correction: None,
            drift: tokens.map(|_| Drift {
                state: DriftState::Fits,
                percent: Some(98.0),
                seconds: None,
                why: None,
            }),
            recalibrated: false,
            settings: None,
        }
    }

    #[test]
    fn a_device_tells_its_headroom() {
        let strictest = Strictest { latency_us: 500, tenant: "gold".to_owned() };
        let kept = DeviceStatus {
            tokens_headroom: 46_000,
            ..device("fast", Some(374_000), Some(strictest))
        };
        let text = show(&kept, None);
        assert!(text.contains("500 µs of gold; 46 000 more are kept back"), "{text}");
        assert!(!show(&device("fast", Some(420_000), None), None).contains("kept back"));
    }

    #[test]
    fn devices_stand_in_columns() {
        let strictest = Strictest { latency_us: 500, tenant: "gold".to_owned() };
        let text =
            list(&[device("fast", Some(420_000), Some(strictest)), device("volume0", None, None)]);
        assert_eq!(
            text,
            "DEVICE   TOKENS/S  PROMISED     FREE  MODEL  LIMITED BY\n\
             fast      420 000   316 000  104 000  fits   500 µs of gold\n\
             volume0         -         0        -  -      nothing: it has no model"
        );
        let strictest = Strictest { latency_us: 10_000, tenant: "gold".to_owned() };
        let text = list(&[device("slow", Some(420_000), Some(strictest))]);
        assert!(text.ends_with("10.0 ms of gold"), "{text}");
        let correction = Correction { rate_percent: 85.0, write_price_percent: 123.4 };
        let corrected =
            DeviceStatus { correction: Some(correction), ..device("old", Some(400_000), None) };
        let text = list(&[corrected]);
        assert!(text.ends_with("; corrected: rate 85.0 %, write price 123.4 %"), "{text}");
    }

    #[test]
    fn a_drift_is_told_with_its_size_and_age() {
        let drift = Drift {
            state: DriftState::Drifted,
            percent: Some(54.2),
            seconds: Some(12.4),
            why: None,
        };
        let old = DeviceStatus { drift: Some(drift), ..device("old", Some(400_000), None) };
        assert!(list(std::slice::from_ref(&old)).contains("DRIFTED: 54 %"));
        assert!(show(&old, None).contains("serves 54 % of what the model says"));
        assert!(show(&old, None).contains("since 12 s"));
    }

    #[test]
    fn what_was_found_stands_beside_what_was() {
        let rate = control::admin::FoundRate {
            latency_us: 500,
            mixed_before: 420_000,
            mixed: 380_000,
            read_only_before: 850_000,
            read_only: 800_000,
            measured: true,
        };
        let told = Recalibration {
            device: "old".to_owned(),
            phase: Phase::Held,
            asked: StartRecalibration::default(),
            automatic: false,
            why: None,
            progress_percent: 100.0,
            steps: 31,
            p95_us: Some(460.0),
            gave_way: 0,
            found: Some(Found {
                write_price_before: 10.0,
                write_price: 24.5,
                write_price_measured: true,
                rates: vec![rate],
                off_percent: 3.0,
            }),
            displaced: vec!["gold".to_owned()],
        };
        assert_eq!(
            recalibration(&told),
            "recalibration of old: has found a model that is held back\n  \
             tenants that would have to go: gold (or use it with --accept)\n  \
             a write costs 24.50 tokens (before 10.00)\n   \
             P95  MIXED, TOKENS/S   BEFORE  READS ALONE/S   BEFORE\n\
             500 µs          380 000  420 000        800 000  850 000  measured"
        );
    }
}
