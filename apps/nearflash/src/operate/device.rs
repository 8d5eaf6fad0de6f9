//! `nearflash device list`.

use std::process::ExitCode;

use clap::Subcommand;
use control::admin::{Correction, Device};

use super::table::{Side, table, text};
use super::{Common, Failure};
use crate::report::number_text;

/// Shows the devices of a running server
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show all devices: the tokens a second that each makes, promises and has left
    List,
}

impl Command {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let devices = common.client()?.devices()?;
        common.print(&devices, |devices| list(&devices.devices));
        Ok(ExitCode::SUCCESS)
    }
}

fn list(devices: &[Device]) -> String {
    use Side::{Left, Right};
    let mut table = table(&[
        ("DEVICE", Left),
        ("TOKENS/S", Right),
        ("PROMISED", Right),
        ("FREE", Right),
        ("LIMITED BY", Left),
    ]);
    for device in devices {
        let tokens = |n: Option<u64>| n.map_or("-".to_owned(), |n| number_text(n as f64));
        let mut limit = match (&device.strictest, device.has_model) {
            (_, false) => "nothing: it has no model".to_owned(),
            (None, true) => "its model: no latency is promised".to_owned(),
            (Some(limit), true) => format!("{} µs of {}", limit.latency_us, limit.tenant),
        };
        if let Some(Correction { rate_percent, write_price_percent }) = &device.correction {
            limit += &format!(
                "; corrected: rate {rate_percent:.1} %, write price {write_price_percent:.1} %"
            );
        }
        table.add_row([
            device.name.clone(),
            tokens(device.tokens),
            number_text(device.tokens_promised as f64),
            tokens(device.tokens_left),
            limit,
        ]);
    }
    text(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::admin::Strictest;

    #[test]
    fn devices_stand_in_columns() {
        let device = |name: &str, tokens: Option<u64>, strictest| Device {
            name: name.to_owned(),
            has_model: tokens.is_some(),
            tokens,
            tokens_promised: tokens.map_or(0, |_| 316_000),
            tokens_left: tokens.map(|n| n - 316_000),
            strictest,
            correction: None,
        };
        let strictest = Strictest { latency_us: 500, tenant: "gold".to_owned() };
        let text =
            list(&[device("fast", Some(420_000), Some(strictest)), device("volume0", None, None)]);
        assert_eq!(
            text,
            "DEVICE   TOKENS/S  PROMISED     FREE  LIMITED BY\n\
             fast      420 000   316 000  104 000  500 µs of gold\n\
             volume0         -         0        -  nothing: it has no model"
        );
        let correction = Correction { rate_percent: 85.0, write_price_percent: 123.4 };
        let corrected =
            Device { correction: Some(correction), ..device("old", Some(400_000), None) };
        let text = list(&[corrected]);
        assert!(text.ends_with("; corrected: rate 85.0 %, write price 123.4 %"), "{text}");
    }
}
