//! A family of metrics, and the writer of its series.

use std::fmt;

use contract::{COARSE_BUCKETS, CoarseHistogram, Stage, StageHistograms, coarse_edge};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::Snapshot;
use crate::totals::seconds_of;

/// Names of operations, in the order of their counters.
const OPS: [&str; 3] = ["read", "write", "other"];

/// Number of neighbouring buckets of a stage histogram that are summed into one in the text.
const JOINED: usize = 2;

fn stage_word(stage: Stage) -> &'static str {
    match stage {
        Stage::Scheduler => "scheduler",
        Stage::Device => "device",
        Stage::Reply => "reply",
    }
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number that only grows while the server runs.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Counts of times by bucket.
    Histogram,
}

impl Shape {
    pub(super) fn word(self) -> &'static str {
        match self {
            Shape::Counter => "counter",
            Shape::Gauge => "gauge",
            Shape::Histogram => "histogram",
        }
    }

    fn metric_type(self) -> MetricType {
        match self {
            Shape::Counter => MetricType::Counter,
            Shape::Gauge => MetricType::Gauge,
            Shape::Histogram => MetricType::Histogram,
        }
    }
}

/// A family of metrics: all series of one name.
#[derive(Debug)]
pub struct Family {
    /// Name without [`PREFIX`](super::PREFIX), and without the format's suffix for counters.
    pub name: &'static str,
    /// The type of the family: counter, gauge or histogram.
    pub shape: Shape,
    /// Names of the labels of each series, in the order of their values.
    pub labels: &'static [&'static str],
    /// Description of the family in the text of a scrape and in the documentation.
    pub help: &'static str,
    /// The function that writes the series.
    pub(super) write: fn(&Snapshot, &mut Series<'_>) -> fmt::Result,
}

/// Defines the table of a module's families: of each its name, type and labels, its description,
/// and the function that writes its series.
macro_rules! families {
    ($($name:ident: $shape:ident $labels:tt $help:literal => $write:expr;)*) => {
        pub(super) const FAMILIES: &[$crate::metrics::series::Family] = &[$(
            $crate::metrics::series::Family {
                name: stringify!($name),
                shape: $crate::metrics::series::Shape::$shape,
                labels: &$labels,
                help: $help,
                write: $write,
            }
        ),*];
    };
}
pub(super) use families;

impl Family {
    /// Returns the name in queries, without [`PREFIX`](super::PREFIX). Histograms have further
    /// names.
    pub fn full_name(&self) -> String {
        match self.shape {
            Shape::Counter => format!("{}_total", self.name),
            Shape::Gauge | Shape::Histogram => self.name.to_owned(),
        }
    }

    pub(super) fn encode(
        &self,
        snapshot: &Snapshot,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        // The encoder adds a full stop.
        let help = self.help.strip_suffix('.').unwrap_or(self.help);
        let encoder = encoder.encode_descriptor(self.name, help, None, self.shape.metric_type())?;
        (self.write)(snapshot, &mut Series { family: self, encoder })
    }
}

/// The writer of a family's series.
pub(super) struct Series<'a> {
    family: &'a Family,
    encoder: MetricEncoder<'a>,
}

impl Series<'_> {
    /// Writes one series with these label values, in the order of the family's labels.
    fn labelled<const N: usize>(
        &mut self,
        values: [&str; N],
        encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        assert!(N == self.family.labels.len(), "{} has other labels", self.family.name);
        if N == 0 {
            return encode(&mut self.encoder);
        }
        let labels: [(&str, &str); N] = std::array::from_fn(|n| (self.family.labels[n], values[n]));
        encode(&mut self.encoder.encode_family(&labels)?)
    }

    /// Writes a series of a counter.
    pub(super) fn count<const N: usize>(&mut self, values: [&str; N], count: u64) -> fmt::Result {
        self.labelled(values, |encoder| encoder.encode_counter::<NoLabelSet, _, u64>(&count, None))
    }

    /// Writes the series of a counter by operation, for one value of the first label.
    pub(super) fn ops<const N: usize>(&mut self, of: &str, counts: [u64; N]) -> fmt::Result {
        let mut each = OPS.iter().zip(counts);
        each.try_for_each(|(op, count)| self.count([of, op], count))
    }

    /// Writes the non-empty histograms by operation and stage, for one value of the first label.
    pub(super) fn stages(&mut self, of: &str, samples: &StageHistograms<u64>) -> fmt::Result {
        for (op, stages) in ["read", "other"].into_iter().zip(samples) {
            for (stage, histogram) in Stage::ALL.into_iter().zip(stages) {
                if histogram.iter().any(|count| *count > 0) {
                    self.times([of, op, stage_word(stage)], histogram, JOINED)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a series of a counter of seconds or tokens.
    pub(super) fn sum<const N: usize>(&mut self, values: [&str; N], sum: f64) -> fmt::Result {
        self.labelled(values, |encoder| encoder.encode_counter::<NoLabelSet, _, u64>(&sum, None))
    }

    /// Writes a series of a gauge.
    pub(super) fn gauge<const N: usize>(&mut self, values: [&str; N], value: f64) -> fmt::Result {
        self.labelled(values, |encoder| encoder.encode_gauge(&value))
    }

    /// Writes a series of a gauge, if there is a value.
    pub(super) fn some<const N: usize>(
        &mut self,
        values: [&str; N],
        value: Option<f64>,
    ) -> fmt::Result {
        value.map_or(Ok(()), |value| self.gauge(values, value))
    }

    /// Writes the series of a histogram, with each `joined` neighbouring buckets summed into one.
    pub(super) fn times<const N: usize>(
        &mut self,
        values: [&str; N],
        histogram: &CoarseHistogram<u64>,
        joined: usize,
    ) -> fmt::Result {
        let count = histogram.iter().sum();
        let buckets: Vec<(f64, u64)> = (0..COARSE_BUCKETS)
            .step_by(joined)
            .map(|n| {
                let edge =
                    coarse_edge(n + joined - 1).map_or(f64::INFINITY, |nanos| nanos as f64 / 1e9);
                (edge, histogram[n..n + joined].iter().sum())
            })
            .collect();
        let seconds = seconds_of(histogram);
        self.labelled(values, |encoder| {
            encoder.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
        })
    }
}
