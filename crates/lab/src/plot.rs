//! Figures as pictures: one SVG for each, in one style.
//!
//! A picture has its title and the names of its axes in words that stand upright, few and pale
//! lines behind the data, and the names of its lines beside the data, never on it. What a series is
//! follows from its name:
//!
//! - `paper…` are figures that were published: hollow marks in the colour of our series whose name
//!   the rest is (`paper: 90 % reads` goes with `90 % reads`), joined by nothing;
//! - `SLO…` are limits: a dashed line across;
//! - all others are ours: a line with a mark at each point. Where there are more than colours,
//!   those whose names begin alike (`A, 99 % reads` and `A, 50 % reads`) share one.
//!
//! An x axis that names its values (`tenant (1 = A, 2 = B)`) has those names instead of numbers,
//! and bars side by side instead of lines.
//!
//! Deliberately not here: tables, pages, and styles for single figures.

mod canvas;
mod categories;
mod dark;
mod frame;
mod legend;
mod looks;
mod marks;
mod scale;

use canvas::{Area, DrawResult, FONT, PALE_INK};
use categories::{BAR, Categories};
pub(crate) use dark::rules as dark_rules;
use figures::Figure;
use frame::Frame;
use legend::LegendPosition;
use looks::{SeriesStyle, StyledSeries, style};
use marks::draw_mark;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use scale::Scale;

/// The size of a picture in pixels. It is a drawing, which can be scaled down without loss.
const SIZE: (u32, u32) = (1600, 1000);

/// The size of a narrow picture in pixels, without the names below the data. At the width of a
/// telephone its words are half as large, so they can still be read.
const NARROW: (u32, u32) = (780, 760);

/// Returns the figure as an SVG document.
///
/// # Errors
/// Fails if there is nothing to draw: no series, or no finite point.
pub(crate) fn svg(figure: &Figure) -> Result<String, String> {
    picture(figure, &figure.title, LegendPosition::Beside)
}

/// Returns the figure as an SVG document without a title, for a page that shows the title as text.
///
/// # Errors
/// Fails as [`svg`] does.
pub(crate) fn untitled(figure: &Figure) -> Result<String, String> {
    picture(figure, "", LegendPosition::Beside)
}

/// Returns the figure as an SVG document without a title that a telephone's width is enough for:
/// the names of its series are below the data.
///
/// # Errors
/// Fails as [`svg`] does.
pub(crate) fn narrow(figure: &Figure) -> Result<String, String> {
    picture(figure, "", LegendPosition::Below)
}

fn picture(figure: &Figure, title: &str, room: LegendPosition) -> Result<String, String> {
    let points = || figure.series.iter().flat_map(|series| &series.points);
    if !points().any(|point| point.0.is_finite() && point.1.is_finite()) {
        return Err(format!("{} has no points to draw", figure.id));
    }
    let categories = Categories::of(&figure.x_label);
    let x = match &categories {
        Some(categories) => categories.scale(),
        None => Scale::along(points().map(|point| point.0)),
    };
    let values = points().map(|point| point.1);
    let y = if figure.log_y { Scale::logarithmic(values) } else { Scale::linear(values) };
    let mut styled = style(&figure.series);
    if categories.is_some() {
        categories::set_aside(&mut styled);
    }
    let mut text = String::new();
    {
        let (size, margins) = match room {
            LegendPosition::Beside => (SIZE, (legend::width(&styled), 0)),
            LegendPosition::Below => {
                let height = legend::height(&styled);
                ((NARROW.0, NARROW.1 + height as u32), (40, height))
            }
        };
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let frame = Frame::new(size, x, y, margins).titled(title);
        draw(&area, figure, (&styled, room), &frame, categories.as_ref())
            .map_err(|e| format!("{}: {e}", figure.id))?;
        area.present().map_err(|e| format!("{}: {e}", figure.id))?;
    }
    Ok(text)
}

fn draw(
    area: &Area<'_>,
    figure: &Figure,
    (styled, room): (&[StyledSeries<'_>], LegendPosition),
    frame: &Frame,
    categories: Option<&Categories>,
) -> DrawResult {
    area.fill(&WHITE)?;
    frame.draw(area, figure, categories)?;
    for limit in styled.iter().filter(|styled| styled.look == SeriesStyle::Limit) {
        draw_limit(area, frame, limit)?;
    }
    // Ours on top of the paper's.
    for look in [SeriesStyle::Paper, SeriesStyle::Line] {
        for styled in styled.iter().filter(|styled| styled.look == look) {
            draw_series(area, frame, styled, categories.is_none())?;
        }
    }
    legend::draw(area, frame, styled, room)
}

fn draw_limit(area: &Area<'_>, frame: &Frame, styled: &StyledSeries<'_>) -> DrawResult {
    let points: Vec<(i32, i32)> = frame.places(styled.series);
    let Some((first, last)) = points.first().zip(points.last()) else { return Ok(()) };
    // As dashes by hand: 14 drawn, 10 not.
    let level = first.1;
    let (left, right) = if first.1 == last.1 { frame.across() } else { (first.0, last.0) };
    let mut at = left;
    while at < right {
        let end = (at + 14).min(right);
        area.draw(&PathElement::new(vec![(at, level), (end, level)], PALE_INK.stroke_width(3)))?;
        at += 24;
    }
    let label = (FONT, 26).into_font().color(&PALE_INK).pos(Pos::new(HPos::Right, VPos::Bottom));
    let place = (right - 8, level - 6);
    area.draw(&Text::new(styled.series.name.clone(), place, label))?;
    Ok(())
}

fn draw_series(
    area: &Area<'_>,
    frame: &Frame,
    styled: &StyledSeries<'_>,
    joined: bool,
) -> DrawResult {
    let mut places = frame.places(styled.series);
    places.iter_mut().for_each(|place| place.0 += styled.aside);
    if joined && styled.look == SeriesStyle::Line && places.len() > 1 {
        area.draw(&PathElement::new(places.clone(), styled.colour.stroke_width(4)))?;
    }
    if !joined && styled.look == SeriesStyle::Line {
        let (_, _, bottom) = frame.side();
        for &(x, y) in &places {
            let corners = [(x - BAR, y), (x + BAR, bottom)];
            area.draw(&Rectangle::new(corners, styled.colour.mix(0.3).filled()))?;
            area.draw(&Rectangle::new(corners, styled.colour.stroke_width(2)))?;
        }
    }
    // Marks that would stand closer than this say nothing that the line does not.
    let sparse = places.len() <= 40 || styled.look == SeriesStyle::Paper;
    for place in places.into_iter().filter(|_| sparse) {
        draw_mark(area, styled, place)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use figures::{Series, Table};

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.to_owned(), points: points.to_vec() }
    }

    pub(super) fn figure(series: Vec<Series>) -> Figure {
        Figure {
            id: "fig1",
            title: "Latency <and> load".to_owned(),
            x_label: "IOPS".to_owned(),
            y_label: "p95 of reads, µs".to_owned(),
            log_y: true,
            series,
            table: Table::default(),
            notes: Vec::new(),
            verdicts: Vec::new(),
        }
    }

    #[test]
    fn a_picture_names_what_it_shows() {
        let ours = series("90 % reads", &[(0.0, 90.0), (100_000.0, 200.0), (221_000.0, 500.0)]);
        let paper = series("paper: 90 % reads", &[(221_000.0, 500.0)]);
        let limit = series("SLO 500 µs", &[(0.0, 500.0), (221_000.0, 500.0)]);
        let text = svg(&figure(vec![ours, paper, limit])).unwrap();
        for words in
            ["Latency &lt;and&gt; load", "90 % reads", "SLO 500 µs", "p95 of reads", "100 K"]
        {
            assert!(text.contains(words), "{words}");
        }
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn more_series_than_colours_share_them_by_group() {
        let names = ["A", "B"].map(|device| (0..5).map(move |n| format!("{device}, {n} %")));
        let all: Vec<Series> =
            names.into_iter().flatten().map(|name| series(&name, &[(1.0, 1.0)])).collect();
        let styled = style(&all);
        assert_eq!((styled[0].colour, styled[5].colour), (styled[4].colour, styled[9].colour));
        assert_ne!(styled[0].colour, styled[9].colour);
        let text = svg(&figure(all)).unwrap();
        assert!(text.contains("A: 0 % to 4 %"), "{text}");
    }

    #[test]
    fn values_with_names_are_bars_and_a_page_has_the_title() {
        let mut figure = figure(vec![series("on", &[(1.0, 100.0), (2.0, 200.0)])]);
        figure.x_label = "tenant (1 = A, 2 = B)".to_owned();
        let text = svg(&figure).unwrap();
        // Each a surface and its outline, beside the background.
        assert_eq!(text.matches("<rect").count(), 5, "{text}");
        assert!(!untitled(&figure).unwrap().contains("Latency"));
        let narrow = narrow(&figure).unwrap();
        assert!(narrow.contains("width=\"780\"") && !narrow.contains("Latency"), "{narrow}");
        assert!(narrow.contains(">\non\n<"), "the series has its name: {narrow}");
    }

    #[test]
    fn odd_data_are_drawn_or_refused() {
        assert!(svg(&figure(Vec::new())).is_err());
        assert!(svg(&figure(vec![series("a", &[(1.0, f64::NAN)])])).is_err());
        let one = svg(&figure(vec![series("a", &[(1.0, 0.0), (f64::INFINITY, 3.0)])])).unwrap();
        assert!(!one.contains("NaN") && !one.contains("inf"));
    }
}
