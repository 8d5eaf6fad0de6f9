//! The appearance of each series, which follows from its name.

use figures::Series;
use plotters::style::RGBColor;

use super::canvas::PALE_INK;

/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito 2008, without
/// their yellow, which is too pale for lines).
pub(super) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
];

/// The way in which a series is drawn: as a line of ours, as marks of the paper, or as a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeriesStyle {
    Line,
    Paper,
    Limit,
}

/// A series and how it is drawn.
#[derive(Clone, Copy)]
pub(super) struct StyledSeries<'a> {
    pub(super) series: &'a Series,
    pub(super) look: SeriesStyle,
    pub(super) colour: RGBColor,
    /// The index of the shape of the series' marks, from 0 to 3.
    pub(super) shape: usize,
    /// The part of the name before its first comma, if names that begin alike share a colour; empty
    /// in figures where each name has its own colour.
    pub(super) group: &'a str,
    /// The distance in pixels by which marks or bars are moved to the right; zero if a line joins
    /// the marks.
    pub(super) aside: i32,
}

/// Returns each series with its look, colour and shape, which follow from its name.
pub(super) fn style(series: &[Series]) -> Vec<StyledSeries<'_>> {
    let ours: Vec<&str> = series
        .iter()
        .map(|series| &series.name[..])
        .filter(|name| look(name) == SeriesStyle::Line)
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
            SeriesStyle::Limit => PALE_INK,
            _ => COLOURS[place % COLOURS.len()],
        };
        let group = if is_grouped { group(name) } else { "" };
        styled.push(StyledSeries { series, look, colour, shape: place % 4, group, aside: 0 });
    }
    styled
}

/// Returns the part of a series' name before its first comma, or the whole name.
fn group(name: &str) -> &str {
    name.split_once(',').map_or(name, |(group, _)| group)
}

fn look(name: &str) -> SeriesStyle {
    if name.starts_with("paper") {
        SeriesStyle::Paper
    } else if name.starts_with("SLO") {
        SeriesStyle::Limit
    } else {
        SeriesStyle::Line
    }
}

/// Returns the name that a series of ours and one of the paper have in common: the name without a
/// leading `paper`.
pub(super) fn name(series: &Series) -> &str {
    let name = series.name.strip_prefix("paper").unwrap_or(&series.name);
    name.trim_start_matches([':', ',', ' '])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str) -> Series {
        Series { name: name.to_owned(), points: Vec::new() }
    }

    #[test]
    fn the_papers_points_have_the_colour_of_ours() {
        let all = [series("a"), series("b"), series("paper: b")];
        let styled = style(&all);
        assert_eq!(styled[2].look, SeriesStyle::Paper);
        assert_eq!((styled[2].colour, styled[2].shape), (styled[1].colour, styled[1].shape));
        assert_ne!(styled[0].colour, styled[1].colour);
    }
}
