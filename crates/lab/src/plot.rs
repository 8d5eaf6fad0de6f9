//! Figures as pictures: one SVG for each, in one style.
//!
//! A picture has its title and the names of its axes in words that stand upright, few and pale lines
//! behind the data, and the names of its lines beside the data, never on it. What a series is follows
//! from its name:
//!
//! - `paper…` are figures that were published: hollow marks in the colour of our series whose name
//!   the rest is (`paper: 90 % reads` goes with `90 % reads`), joined by nothing;
//! - `SLO…` are limits: a dashed line across;
//! - all others are ours: a line with a mark at each point. Where there are more than colours, those
//!   whose names begin alike (`A, 99 % reads` and `A, 50 % reads`) share one.
//!
//! An x axis that names its values (`tenant (1 = A, 2 = B)`) has those names instead of numbers, and
//! marks side by side instead of lines.
//!
//! What is deliberately not here: tables, pages, and any figure's own way.

mod categories;
mod frame;
mod legend;
mod scale;

use crate::figures::{Figure, Series};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use categories::Categories;
use frame::Frame;
use scale::Scale;

/// Pixels of a picture; it is a drawing, and shown smaller loses nothing.
const SIZE: (u32, u32) = (1600, 1000);

/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito 2008, without
/// their yellow, which is too pale for lines).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
];

const INK: RGBColor = RGBColor(34, 34, 34);
const PALE_INK: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(228, 228, 228);
const FONT: &str = "sans-serif";

/// Half the width of a mark.
const MARK: i32 = 8;

/// The look of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Line,
    Paper,
    Limit,
}

/// A series, and how it looks.
#[derive(Clone, Copy)]
struct Styled<'a> {
    series: &'a Series,
    look: Look,
    colour: RGBColor,
    /// Which of the shapes its marks have.
    shape: usize,
    /// The common prefix of the names that share a colour. Empty if no other series shares it.
    group: &'a str,
    /// The offset by which the series is drawn to the right, in pixels.
    aside: i32,
}

/// The figure as an SVG document.
///
/// # Errors
/// Fails if there is nothing to draw: no series, or no finite point.
pub(crate) fn svg(figure: &Figure) -> Result<String, String> {
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
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let frame = Frame::new(SIZE, x, y, legend::width(&styled));
        draw(&area, figure, &styled, &frame, categories.as_ref())
            .map_err(|e| format!("{}: {e}", figure.id))?;
        area.present().map_err(|e| format!("{}: {e}", figure.id))?;
    }
    Ok(text)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(
    area: &Area<'_>,
    figure: &Figure,
    styled: &[Styled<'_>],
    frame: &Frame,
    categories: Option<&Categories>,
) -> Drawn {
    area.fill(&WHITE)?;
    frame.draw(area, figure, categories)?;
    for limit in styled.iter().filter(|styled| styled.look == Look::Limit) {
        draw_limit(area, frame, limit)?;
    }
    // Ours on top of the paper's.
    for look in [Look::Paper, Look::Line] {
        for styled in styled.iter().filter(|styled| styled.look == look) {
            draw_series(area, frame, styled, categories.is_none())?;
        }
    }
    legend::draw(area, frame, styled)
}

/// Returns each series with its look and colour, which follow from its name.
fn style(series: &[Series]) -> Vec<Styled<'_>> {
    let ours: Vec<&str> = series
        .iter()
        .map(|series| &series.name[..])
        .filter(|name| look(name) == Look::Line)
        .collect();
    let is_grouped = ours.len() > COLOURS.len();
    let mut keys: Vec<&str> = Vec::new();
    for name in ours.iter().copied().chain(series.iter().map(name)) {
        let key = if is_grouped { group(name) } else { name };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut styled = Vec::with_capacity(series.len());
    for series in series {
        let (look, name) = (look(&series.name), name(series));
        let key = if is_grouped { group(name) } else { name };
        let place = keys.iter().position(|&other| other == key).expect("every name has a key");
        let colour = match look {
            Look::Limit => PALE_INK,
            _ => COLOURS[place % COLOURS.len()],
        };
        let group = if is_grouped { group(name) } else { "" };
        styled.push(Styled { series, look, colour, shape: place % 4, group, aside: 0 });
    }
    styled
}

/// Returns the part of a name before its first comma.
fn group(name: &str) -> &str {
    name.split_once(',').map_or(name, |(group, _)| group)
}

fn look(name: &str) -> Look {
    if name.starts_with("paper") {
        Look::Paper
    } else if name.starts_with("SLO") {
        Look::Limit
    } else {
        Look::Line
    }
}

/// The name of the series that this one goes with: its own, or what follows `paper`.
fn name(series: &Series) -> &str {
    let name = series.name.strip_prefix("paper").unwrap_or(&series.name);
    name.trim_start_matches([':', ',', ' '])
}

fn draw_limit(area: &Area<'_>, frame: &Frame, styled: &Styled<'_>) -> Drawn {
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

fn draw_series(area: &Area<'_>, frame: &Frame, styled: &Styled<'_>, joined: bool) -> Drawn {
    let mut places = frame.places(styled.series);
    places.iter_mut().for_each(|place| place.0 += styled.aside);
    if joined && styled.look == Look::Line && places.len() > 1 {
        area.draw(&PathElement::new(places.clone(), styled.colour.stroke_width(4)))?;
    }
    // Marks that would stand closer than this say nothing that the line does not.
    let sparse = places.len() <= 40 || styled.look == Look::Paper;
    for place in places.into_iter().filter(|_| sparse) {
        draw_mark(area, styled, place)?;
    }
    Ok(())
}

/// A mark in the series' shape: filled when it is ours, hollow when it is the paper's.
fn draw_mark(area: &Area<'_>, styled: &Styled<'_>, (x, y): (i32, i32)) -> Drawn {
    let ours = styled.look == Look::Line;
    // Marks that no line joins have to be seen on their own.
    let size = if ours && styled.aside == 0 { MARK } else { MARK + 4 };
    let outline: Vec<(i32, i32)> = match styled.shape {
        0 => {
            let fill = if ours { styled.colour.filled() } else { WHITE.filled() };
            area.draw(&Circle::new((x, y), size, fill))?;
            if !ours {
                area.draw(&Circle::new((x, y), size, styled.colour.stroke_width(4)))?;
            }
            return Ok(());
        }
        1 => vec![(-1, -1), (1, -1), (1, 1), (-1, 1)],
        2 => vec![(0, -1), (1, 1), (-1, 1)],
        _ => vec![(0, -1), (1, 0), (0, 1), (-1, 0)],
    };
    let grown = if styled.shape == 1 { size - 1 } else { size + 2 };
    let mut outline: Vec<(i32, i32)> =
        outline.into_iter().map(|(dx, dy)| (x + dx * grown, y + dy * grown)).collect();
    if ours {
        area.draw(&Polygon::new(outline, styled.colour.filled()))?;
    } else {
        area.draw(&Polygon::new(outline.clone(), WHITE.filled()))?;
        outline.push(outline[0]);
        area.draw(&PathElement::new(outline, styled.colour.stroke_width(4)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Table;

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
    fn the_papers_points_have_the_colour_of_ours() {
        let all = [series("a", &[]), series("b", &[]), series("paper: b", &[])];
        let styled = style(&all);
        assert_eq!(styled[2].look, Look::Paper);
        assert_eq!((styled[2].colour, styled[2].shape), (styled[1].colour, styled[1].shape));
        assert_ne!(styled[0].colour, styled[1].colour);
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
    fn odd_data_are_drawn_or_refused() {
        assert!(svg(&figure(Vec::new())).is_err());
        assert!(svg(&figure(vec![series("a", &[(1.0, f64::NAN)])])).is_err());
        let one = svg(&figure(vec![series("a", &[(1.0, 0.0), (f64::INFINITY, 3.0)])])).unwrap();
        assert!(!one.contains("NaN") && !one.contains("inf"));
    }
}
