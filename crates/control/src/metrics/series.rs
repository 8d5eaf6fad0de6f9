//! One family of metrics, and how its series are written.

use std::fmt;

use contract::{COARSE_BUCKETS, Coarse, coarse_edge};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::Snapshot;
use crate::tally::seconds_of;

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// It only grows, while the server runs.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Times by bucket.
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

/// Metrics of one name.
#[derive(Debug)]
pub struct Family {
    /// Without what all names begin with, and without what the format adds for counters.
    pub name: &'static str,
    /// Its kind.
    pub shape: Shape,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
    /// Writes its series.
    pub(super) write: fn(&Snapshot, &mut Series<'_>) -> fmt::Result,
}

impl Family {
    /// The name that a query uses, without what all names begin with; histograms have further ones.
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

/// Where the series of a family go.
pub(super) struct Series<'a> {
    family: &'a Family,
    encoder: MetricEncoder<'a>,
}

impl Series<'_> {
    /// One series, whose labels have these values, in the order of the family's.
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

    /// A series of a counter.
    pub(super) fn count<const N: usize>(&mut self, values: [&str; N], count: u64) -> fmt::Result {
        self.labelled(values, |encoder| encoder.encode_counter::<NoLabelSet, _, u64>(&count, None))
    }

    /// A series of a counter of seconds or tokens.
    pub(super) fn sum<const N: usize>(&mut self, values: [&str; N], sum: f64) -> fmt::Result {
        self.labelled(values, |encoder| encoder.encode_counter::<NoLabelSet, _, u64>(&sum, None))
    }

    /// A series of a gauge.
    pub(super) fn gauge<const N: usize>(&mut self, values: [&str; N], value: f64) -> fmt::Result {
        self.labelled(values, |encoder| encoder.encode_gauge(&value))
    }

    /// A series of a gauge, if there is a value.
    pub(super) fn some<const N: usize>(
        &mut self,
        values: [&str; N],
        value: Option<f64>,
    ) -> fmt::Result {
        value.map_or(Ok(()), |value| self.gauge(values, value))
    }

    /// The series of a histogram, with so many of its buckets in one.
    pub(super) fn times<const N: usize>(
        &mut self,
        values: [&str; N],
        histogram: &Coarse<u64>,
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
