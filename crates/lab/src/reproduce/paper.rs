//! Data points that the paper states or shows, drawn beside our measurements, and curves cut to the
//! visible range.

use figures::{Figure, Series};

/// The latency in µs at which curves end that grow beyond any bound.
const LATENCY_US_MAX: f64 = 5_000.0;

/// Adds the paper's points to the plot of a figure that has some.
pub(super) fn overlay(figure: &mut Figure) {
    let mut add = |name: &str, points: Vec<(f64, f64)>| {
        figure.series.push(Series { name: name.to_owned(), points });
    };
    match figure.id {
        // Section 3.2.2: 420 K tokens/s at 500 µs, a write costs 10, a read of reads alone half.
        "fig1" => {
            add("paper: 100 % reads", vec![(840.0, 500.0)]);
            for percent in [99.0, 95.0, 90.0, 75.0, 50.0] {
                let cost = (percent + 10.0 * (100.0 - percent)) / 100.0;
                add(&format!("paper: {percent:.0} % reads"), vec![(420.0 / cost, 500.0)]);
            }
            cut(figure);
        }
        // Sections 5.4 and 5.5, device A.
        "fig3" => {
            add("paper: A", vec![(420.0, 500.0), (570.0, 2_000.0)]);
            cut(figure);
        }
        "fig5" => add("SLO of A and B, 500 µs", vec![(1.0, 500.0), (4.0, 500.0)]),
        _ => {}
    }
}

/// Ends each curve where it reaches `LATENCY_US_MAX`, by interpolation.
fn cut(figure: &mut Figure) {
    for series in &mut figure.series {
        let Some(first) = series.points.iter().position(|&(_, y)| y > LATENCY_US_MAX) else {
            continue;
        };
        if first > 0 {
            let ((x0, y0), (x1, y1)) = (series.points[first - 1], series.points[first]);
            // On a logarithmic axis.
            let share = (LATENCY_US_MAX / y0).ln() / (y1 / y0).ln();
            series.points[first] = (x0 + share * (x1 - x0), LATENCY_US_MAX);
            series.points.truncate(first + 1);
        } else {
            series.points.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_the_plot_does() {
        let options = figures::Options { quick: true, ..Default::default() };
        let mut figure = figures::fig1(&options);
        let ours = figure.series.len();
        overlay(&mut figure);
        assert_eq!(figure.series.len(), 2 * ours);
        for series in &figure.series {
            assert!(!series.points.is_empty(), "{}", series.name);
            assert!(series.points.iter().all(|&(_, y)| y <= LATENCY_US_MAX), "{}", series.name);
        }
    }
}
