//! The tables of instructions for a read through each client.

use std::fmt;

use super::client::{Client, DEPTHS};

/// The number of functions of the kernel that a table names.
const FUNCTIONS: usize = 16;

/// The instructions of one read: in programs, and in the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cost {
    pub(super) programs: f64,
    pub(super) kernel: f64,
}

/// The costs of all clients in all rounds, and the kernel's functions in which `nearflash attach`
/// spends them.
#[derive(Default)]
pub(super) struct Report {
    rows: Vec<(Client, u32, Cost)>,
    ways: Vec<(u32, Vec<(String, f64)>)>,
}

impl Cost {
    fn total(self) -> f64 {
        self.programs + self.kernel
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} in programs, {:.0} in the kernel", self.programs, self.kernel)
    }
}

impl Report {
    pub(super) fn add(&mut self, client: Client, depth: u32, cost: Cost) {
        self.rows.push((client, depth, cost));
    }

    pub(super) fn add_ways(&mut self, depth: u32, ways: Vec<(String, f64)>) {
        self.ways.push((depth, ways));
    }

    /// Returns the cost of a read through a client in the median round, by the total of instructions.
    fn median(&self, client: Client, depth: u32) -> Cost {
        let of_row = self.rows.iter().filter(|row| row.0 == client && row.1 == depth);
        let mut costs: Vec<Cost> = of_row.map(|row| row.2).collect();
        costs.sort_by(|a, b| a.total().total_cmp(&b.total()));
        costs.get(costs.len() / 2).copied().unwrap_or(Cost { programs: 0.0, kernel: 0.0 })
    }

    /// Returns the ratio of the instructions of a read through one client and through another, both
    /// without those of the load itself.
    fn beyond(&self, client: Client, other: Client, depth: u32) -> f64 {
        let load = self.median(Client::Nothing, depth).total();
        let [own, other] = [client, other].map(|client| self.median(client, depth).total() - load);
        own / other
    }

    /// Returns the instructions of a read through `nearflash attach` divided by those through the
    /// kernel's NVMe host.
    pub(super) fn ratio(&self, depth: u32) -> f64 {
        self.beyond(Client::Attach, Client::Nvme, depth)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for depth in DEPTHS {
            writeln!(f, "{depth} in flight:\n")?;
            writeln!(
                f,
                "| client | programs | kernel | together | beyond the load | / NVMe | / iSCSI |"
            )?;
            writeln!(f, "|---|---|---|---|---|---|---|")?;
            let load = self.median(Client::Nothing, depth).total();
            for client in Client::ALL {
                let cost = self.median(client, depth);
                let (programs, kernel, total) = (cost.programs, cost.kernel, cost.total());
                write!(f, "| {} | {programs:.0} | {kernel:.0} | {total:.0} | ", client.name())?;
                match client {
                    Client::Nothing => writeln!(f, "| | |")?,
                    client => {
                        let [nvme, iscsi] = [Client::Nvme, Client::Iscsi]
                            .map(|other| self.beyond(client, other, depth));
                        writeln!(f, "{:.0} | {nvme:.2} | {iscsi:.2} |", total - load)?;
                    }
                }
            }
            writeln!(f)?;
        }
        for (depth, ways) in &self.ways {
            writeln!(
                f,
                "{}, {depth} in flight: functions of the kernel\n",
                Client::AttachSleeping.name()
            )?;
            for (name, count) in ways.iter().take(FUNCTIONS) {
                writeln!(f, "{count:>7.0} {name}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_compared_beyond_the_load() {
        let mut report = Report::default();
        let cost = |programs, kernel| Cost { programs, kernel };
        for kernel in [10.0, 30.0, 20.0] {
            report.add(Client::Nothing, 1, cost(0.0, kernel));
            report.add(Client::Nvme, 1, cost(0.0, kernel + 100.0));
            report.add(Client::Attach, 1, cost(40.0, kernel + 110.0));
        }
        assert_eq!(report.median(Client::Nvme, 1), cost(0.0, 120.0));
        assert!((report.ratio(1) - 1.5).abs() < 1e-9);
    }
}
