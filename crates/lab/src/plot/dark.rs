//! The colours of a picture on a dark page: each colour of a picture has a partner that is as easy
//! to see on dark ground, and the page's style exchanges them.

use std::fmt::Write as _;

use plotters::prelude::WHITE;
use plotters::style::RGBColor;

use super::canvas::{GRID, INK, PALE_INK};
use super::looks::COLOURS;

/// The ground of a dark page.
pub(crate) const GROUND: RGBColor = RGBColor(18, 22, 28);

/// The partners of [`COLOURS`], in the same order.
const PARTNERS: [RGBColor; COLOURS.len()] = [
    RGBColor(74, 158, 234),
    RGBColor(255, 138, 61),
    RGBColor(53, 201, 154),
    RGBColor(231, 154, 198),
    RGBColor(255, 201, 77),
    RGBColor(159, 220, 255),
    RGBColor(213, 217, 223),
];

/// The ground, the inks and the grid, with their partners.
const OTHERS: [(RGBColor, RGBColor); 4] = [
    (WHITE, GROUND),
    (INK, RGBColor(230, 233, 238)),
    (PALE_INK, RGBColor(163, 173, 185)),
    (GRID, RGBColor(43, 51, 61)),
];

/// Returns the colour as it stands in an SVG document and in a style: `#12161C`.
fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// Returns the rules of a style that exchange the colours of pictures for their partners.
pub(crate) fn rules() -> String {
    let mut rules = String::new();
    let pairs = OTHERS.into_iter().chain(COLOURS.into_iter().zip(PARTNERS));
    for (light, dark) in pairs.map(|(light, dark)| (hex(light), hex(dark))) {
        for what in ["fill", "stroke"] {
            let _ = write!(rules, "svg [{what}=\"{light}\"]{{{what}:{dark}}}");
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::svg;
    use crate::plot::tests::figure;
    use figures::Series;

    /// Returns the colours in the attributes of an SVG document.
    fn colours(svg: &str) -> Vec<&str> {
        let attributes = ["fill=\"#", "stroke=\"#"].into_iter();
        let places = attributes.flat_map(|attribute| {
            svg.match_indices(attribute).map(move |(at, _)| at + attribute.len() - 1)
        });
        places.map(|at| &svg[at..at + 7]).collect()
    }

    /// Returns the contrast of two colours (WCAG 2.2, 1.4.11), from 1 to 21.
    fn contrast(one: RGBColor, other: RGBColor) -> f64 {
        let light = |RGBColor(red, green, blue): RGBColor| {
            let linear = [red, green, blue].map(|part| {
                let part = f64::from(part) / 255.0;
                if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05
        };
        let (one, other) = (light(one), light(other));
        one.max(other) / one.min(other)
    }

    #[test]
    fn every_colour_of_a_picture_has_a_partner() {
        let names =
            (0..7).map(|n| format!("way {n}")).chain(["paper: way 1", "SLO"].map(Into::into));
        let series = names.map(|name| Series { name, points: vec![(0.0, 1.0), (1.0, 2.0)] });
        let svg = svg(&figure(series.collect())).unwrap();
        let (all, rules) = (colours(&svg), rules());
        assert!(all.len() > 20, "{all:?}");
        for colour in all {
            assert!(rules.contains(&format!("\"{colour}\"]")), "{colour} is for light pages only");
        }
    }

    #[test]
    fn lines_and_words_can_be_seen_on_dark_ground() {
        for partner in PARTNERS {
            assert!(contrast(partner, GROUND) >= 3.0, "{partner:?}");
        }
        for (light, partner) in
            OTHERS.into_iter().filter(|(light, _)| [INK, PALE_INK].contains(light))
        {
            assert!(contrast(partner, GROUND) >= 4.5, "{light:?}: {partner:?}");
        }
    }
}
