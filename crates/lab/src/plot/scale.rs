//! The scales of axes: positions of values, and labels of ticks.

/// The range of an axis, where `low < high`, and its ticks. Both bounds are above zero on a
/// logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A linear scale with ticks at multiples of `step`.
    Linear { step: f64 },
    /// A logarithmic scale with ticks at 1, 2 and 5 of each decade, or at 1 alone if there are many
    /// decades.
    Logarithmic,
}

/// Approximate maximum number of ticks of an axis.
const TICKS: f64 = 7.0;

impl Scale {
    /// Returns a linear scale whose bounds are multiples of its step: from zero, or below the
    /// lowest value if that is negative, to at least the highest value.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = bounds(values.chain([0.0]));
        let high = if high > low { high } else { low + 1.0 };
        let step = round_step((high - low) / TICKS);
        let low = (low / step).floor() * step;
        // A point at the very edge would be cut by it.
        let high = ((high * 1.02) / step).ceil() * step;
        Scale { low, high, kind: Kind::Linear { step } }
    }

    /// Returns a scale for the whole numbers from 1 to `count`, with half a step of room at both
    /// ends.
    pub(super) fn whole(count: usize) -> Scale {
        Scale { low: 0.5, high: count as f64 + 0.5, kind: Kind::Linear { step: 1.0 } }
    }

    /// Returns a linear scale that ends 3 % above the largest value instead of at a round number,
    /// so that lines fill the width.
    pub(super) fn along(values: impl Iterator<Item = f64> + Clone) -> Scale {
        let (_, highest) = bounds(values.clone());
        let scale = Scale::linear(values);
        let snug = scale.low + (highest - scale.low) * 1.03;
        if snug > scale.low { Scale { high: snug.min(scale.high), ..scale } } else { scale }
    }

    /// Returns a logarithmic scale around all values above zero, whose bounds are 1, 2 or 5 times a
    /// power of ten.
    pub(super) fn logarithmic(values: impl Iterator<Item = f64>) -> Scale {
        let (low, high) = bounds(values.filter(|&value| value > 0.0));
        let (low, high) = if low.is_finite() { (low, high) } else { (1.0, 10.0) };
        let low = MANTISSAS.map(|m| m * decade(low)).into_iter().rfind(|&round| round <= low);
        let low = low.unwrap_or(1.0);
        let above = [1.0, 2.0, 5.0, 10.0].map(|m| m * decade(high));
        let reaches = |round: f64| round >= high * 0.999 && round > low;
        let high = above.into_iter().find(|&round| reaches(round)).unwrap_or(high * 2.0);
        Scale { low, high, kind: Kind::Logarithmic }
    }

    /// Returns the position of a value on the axis: 0 at the low end, 1 at the high end. Values
    /// outside are moved to the nearer end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear { .. } => (value - self.low) / (self.high - self.low),
            Kind::Logarithmic => {
                (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
            }
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns the values at which the axis has ticks, ascending.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match self.kind {
            Kind::Linear { step } => {
                let count = ((self.high - self.low) / step * 1.001).floor() as usize;
                (0..=count).map(|n| self.low + n as f64 * step).collect()
            }
            Kind::Logarithmic => {
                let decades = (self.high / self.low).log10();
                let mantissas: &[f64] = if decades > 4.0 { &[1.0] } else { &MANTISSAS };
                let mut ticks = Vec::new();
                let mut base = decade(self.low);
                while base <= self.high {
                    ticks.extend(mantissas.iter().map(|m| m * base));
                    base *= 10.0;
                }
                let within = |&tick: &f64| tick >= self.low * 0.999 && tick <= self.high * 1.001;
                ticks.retain(within);
                ticks
            }
        }
    }
}

/// The multiples of a power of ten at which a logarithmic axis has ticks.
const MANTISSAS: [f64; 3] = [1.0, 2.0, 5.0];

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

/// Returns the largest power of ten that is not above `value`, which is above zero.
fn decade(value: f64) -> f64 {
    10_f64.powf(value.log10().floor())
}

/// Returns the smallest round step that is not below `step`: 1, 2, 2.5, 5 or 10 times a power of
/// ten.
fn round_step(step: f64) -> f64 {
    let base = decade(step);
    let rounds = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * base);
    rounds.into_iter().find(|&round| round >= step * 0.999).unwrap_or(step)
}

/// Returns the label of a tick: `250`, `1.5 K`, `400 K`, `1 M`.
pub(super) fn tick_text(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, " M"),
        v if v >= 1e4 => (value / 1e3, " K"),
        _ => (value, ""),
    };
    let rounded = (scaled * 1000.0).round() / 1000.0;
    let text = format!("{rounded}{unit}");
    // Four digits are easier to read apart.
    match (unit, text.len()) {
        ("", 4) if !text.contains(['.', '-']) => format!("{} {}", &text[..1], &text[1..]),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_start_at_zero_and_end_round() {
        let scale = Scale::linear([3.0, 870_000.0].into_iter());
        let ticks = scale.ticks();
        assert_eq!((ticks[0], *ticks.last().unwrap()), (0.0, 1_000_000.0));
        assert!((4..=9).contains(&ticks.len()), "{ticks:?}");
        assert_eq!(scale.place(500_000.0), 0.5);
        assert_eq!(scale.place(f64::MAX), 1.0);
        let along = Scale::along([0.0, 12.0].into_iter());
        assert_eq!(along.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert!(along.place(12.0) > 0.95);
        assert!(Scale::linear(std::iter::empty()).ticks().len() > 1);
    }

    #[test]
    fn logarithmic_axes_divide_decades() {
        let scale = Scale::logarithmic([0.0, 78.0, 4_300.0].into_iter());
        assert_eq!(scale.ticks(), [50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0]);
        assert_eq!((scale.place(50.0), scale.place(5_000.0), scale.place(1.0)), (0.0, 1.0, 0.0));
        let wide = Scale::logarithmic([1.0, 900_000.0].into_iter());
        assert_eq!(wide.ticks().len(), 7);
        let one = Scale::logarithmic([100.0].into_iter());
        assert!(one.ticks().len() >= 2, "{one:?}");
    }

    #[test]
    fn ticks_are_short() {
        let texts = [0.0, 0.5, 250.0, 1_000.0, 25_000.0, 400_000.0, 1e6, 2.5e6].map(tick_text);
        assert_eq!(texts, ["0", "0.5", "250", "1 000", "25 K", "400 K", "1 M", "2.5 M"]);
    }
}
