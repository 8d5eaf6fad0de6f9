//! The legend: the names of the series, in the right margin. Names are beside the ends of their
//! lines if all lines end there. Otherwise they are below each other, in the order of the lines'
//! ends from the right. In a narrow picture they are below each other and below the data.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::canvas::{Area, DrawResult, FONT, INK, PALE_INK};
use super::frame::{FOOT, Frame};
use super::looks::{SeriesStyle, StyledSeries, name};
use super::marks::{MARK, draw_mark};

/// The distance between the middles of two names, in pixels.
const LINE: i32 = 44;

/// The gap between the data and the names, in pixels.
const GAP: i32 = 36;

/// The width of the swatch before a name, in pixels.
const SWATCH: i32 = 60;

/// The approximate largest width of a letter, in pixels.
const LETTER: f64 = 15.5;

/// The legend's entry for hollow marks, which show the values that the paper published.
const PAPER: &str = "hollow: the paper";

/// Returns the width in pixels of the right margin that the legend needs.
pub(super) fn width(styled: &[StyledSeries<'_>]) -> i32 {
    let names = entries(styled).map(|entry| words(&entry, styled));
    let names = names.chain(has_matched(styled).then(|| PAPER.to_owned()));
    let letters = names.map(|name| name.chars().count()).max();
    letters.map_or(60, |letters| GAP + SWATCH + 16 + (letters as f64 * LETTER) as i32 + 30)
}

/// The place of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LegendPosition {
    /// In the right margin.
    Beside,
    /// Below the x axis.
    Below,
}

/// Returns the height in pixels that the legend needs below the data.
pub(super) fn height(styled: &[StyledSeries<'_>]) -> i32 {
    let names = entries(styled).count() + usize::from(has_matched(styled));
    names as i32 * LINE + LINE / 2
}

/// Draws the names of the series.
pub(super) fn draw(
    area: &Area<'_>,
    frame: &Frame,
    styled: &[StyledSeries<'_>],
    room: LegendPosition,
) -> DrawResult {
    let (right, top, bottom) = frame.side();
    let mut ends: Vec<(StyledSeries<'_>, (i32, i32))> = entries(styled)
        .map(|entry| (entry, frame.places(entry.series).last().copied().unwrap_or((0, bottom))))
        .collect();
    let (left, _) = frame.across();
    let near = right - (right - left) / 12;
    let beside =
        ends.iter().all(|(entry, _)| entry.aside == 0) && ends.iter().all(|&(_, (x, _))| x >= near);
    if beside {
        ends.sort_by_key(|&(_, (_, y))| y);
    } else {
        ends.sort_by_key(|&(_, (x, y))| (std::cmp::Reverse(x), y));
    }
    let wanted = ends.iter().enumerate().map(
        |(n, &(_, (_, y)))| {
            if beside { y } else { top + n as i32 * LINE }
        },
    );
    let levels = match room {
        LegendPosition::Beside => spread(&wanted.collect::<Vec<i32>>(), top, bottom),
        LegendPosition::Below => (0..ends.len() as i32).map(|n| bottom + FOOT + n * LINE).collect(),
    };
    let font = (FONT, 29).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    let at = if room == LegendPosition::Beside { right + GAP } else { GAP };
    for ((entry, _), &level) in ends.iter().zip(&levels) {
        let middle = (at + SWATCH / 2, level);
        if entry.look == SeriesStyle::Line && entry.aside == 0 {
            let line = vec![(at, level), (at + SWATCH, level)];
            area.draw(&PathElement::new(line, entry.colour.stroke_width(4)))?;
        }
        draw_mark(area, entry, middle)?;
        area.draw(&Text::new(words(entry, styled), (at + SWATCH + 16, level), font.clone()))?;
    }
    if has_matched(styled) {
        let level = match room {
            LegendPosition::Beside => {
                levels.last().map_or(top, |&last| last + LINE + LINE / 2).min(bottom + LINE)
            }
            LegendPosition::Below => bottom + FOOT + levels.len() as i32 * LINE,
        };
        let middle = (at + SWATCH / 2, level);
        area.draw(&Circle::new(middle, MARK + 4, PALE_INK.stroke_width(4)))?;
        let font = font.color(&PALE_INK);
        area.draw(&Text::new(PAPER, (at + SWATCH + 16, level), font))?;
    }
    Ok(())
}

/// Returns the series that have an entry in the legend: one for each colour of lines, and the
/// paper's series that match no line.
fn entries<'a>(styled: &'a [StyledSeries<'a>]) -> impl Iterator<Item = StyledSeries<'a>> {
    let is_named = |n: usize, entry: &StyledSeries<'_>| match entry.look {
        SeriesStyle::Line => {
            let is_same = |other: &StyledSeries<'_>| {
                other.look == SeriesStyle::Line && other.group == entry.group
            };
            entry.group.is_empty() || !styled[..n].iter().any(is_same)
        }
        SeriesStyle::Paper => !is_matched(entry, styled),
        SeriesStyle::Limit => false,
    };
    styled.iter().enumerate().filter(move |&(n, entry)| is_named(n, entry)).map(|(_, entry)| *entry)
}

/// Returns the text of a legend entry: the series' name, or `GROUP: FIRST to LAST` for lines that
/// share a colour.
fn words(entry: &StyledSeries<'_>, all: &[StyledSeries<'_>]) -> String {
    let is_same =
        |other: &&StyledSeries<'_>| other.look == SeriesStyle::Line && other.group == entry.group;
    let (first, last) = (entry, all.iter().rfind(is_same).unwrap_or(entry));
    if entry.group.is_empty()
        || entry.look != SeriesStyle::Line
        || first.series.name == last.series.name
    {
        return entry.series.name.clone();
    }
    let rest = |styled: &StyledSeries<'_>| {
        let rest = styled.series.name.strip_prefix(entry.group).unwrap_or_default();
        rest.trim_start_matches([',', ' ']).to_owned()
    };
    format!("{}: {} to {}", entry.group, rest(first), rest(last))
}

fn has_matched(styled: &[StyledSeries<'_>]) -> bool {
    styled.iter().any(|entry| entry.look == SeriesStyle::Paper && is_matched(entry, styled))
}

/// Returns `true` if a line of ours has the name that this series of the paper has behind `paper`.
fn is_matched(paper: &StyledSeries<'_>, all: &[StyledSeries<'_>]) -> bool {
    let ours = |other: &StyledSeries<'_>| other.look == SeriesStyle::Line;
    all.iter().any(|other| ours(other) && other.series.name == name(paper.series))
}

/// Returns the ascending vertical positions of names moved apart by at least `LINE` pixels, and
/// within `top` and `bottom` if they fit.
fn spread(wanted: &[i32], top: i32, bottom: i32) -> Vec<i32> {
    let mut levels: Vec<i32> = Vec::with_capacity(wanted.len());
    for &level in wanted {
        let free = levels.last().map_or(top, |last| last + LINE);
        levels.push(level.max(free));
    }
    let mut limit = bottom;
    for level in levels.iter_mut().rev() {
        *level = (*level).min(limit);
        limit = *level - LINE;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_hide_each_other() {
        let levels = spread(&[100, 101, 300, 990, 995], 50, 1000);
        assert_eq!(levels, [100, 144, 300, 956, 1000]);
        let crowded = spread(&[500; 4], 0, 2000);
        assert!(crowded.windows(2).all(|pair| pair[1] - pair[0] >= LINE), "{crowded:?}");
    }
}
