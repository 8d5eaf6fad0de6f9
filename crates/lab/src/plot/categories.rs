//! Axes of plots whose values 1, 2, 3 and so on stand for names, such as those of tenants.

use super::looks::{SeriesStyle, StyledSeries};
use super::scale::Scale;

/// Pixels between the bars of two series at the same name.
const APART: i32 = 40;

/// Half the width of a bar, in pixels.
pub(super) const BAR: i32 = 17;

/// The title of an axis, and the names of its values 1, 2, 3 and so on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Categories {
    title: String,
    names: Vec<String>,
}

impl Categories {
    /// Parses `title (1 = name, 2 = name, …)`. Returns `None` for other labels, which name no
    /// values.
    pub(super) fn of(label: &str) -> Option<Categories> {
        let (title, rest) = label.split_once(" (1 = ")?;
        let mut names = Vec::new();
        for (n, part) in rest.strip_suffix(')')?.split(", ").enumerate() {
            let name = match n {
                0 => part,
                _ => part.strip_prefix(&format!("{} = ", n + 1))?,
            };
            names.push(name.to_owned());
        }
        Some(Categories { title: title.to_owned(), names })
    }

    /// Returns the title of the axis.
    pub(super) fn title(&self) -> &str {
        &self.title
    }

    /// Returns a scale with one place of equal width for each name.
    pub(super) fn scale(&self) -> Scale {
        Scale::whole(self.names.len())
    }

    /// Returns the values 1, 2, 3 and so on with their names.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        (1..).map(f64::from).zip(self.names.iter().cloned()).collect()
    }
}

/// Places the bars of several series side by side, by setting `aside`. Series of one colour, which
/// are ours and the paper's, share a place.
pub(super) fn set_aside(styled: &mut [StyledSeries<'_>]) {
    let mut shapes: Vec<_> =
        styled.iter().filter(|s| s.look != SeriesStyle::Limit).map(place).collect();
    shapes.dedup();
    let middle = (shapes.len() as i32 - 1) * APART / 2;
    for entry in styled.iter_mut().filter(|entry| entry.look != SeriesStyle::Limit) {
        let n = shapes.iter().position(|&shape| shape == place(entry)).unwrap_or(0) as i32;
        // Never zero, which means that lines join the marks.
        entry.aside = if n * APART == middle { 1 } else { n * APART - middle };
    }
}

fn place(styled: &StyledSeries<'_>) -> (u8, u8, u8) {
    let colour = styled.colour;
    (colour.0, colour.1, colour.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_name_their_values() {
        let tenants = Categories::of("tenant (1 = A, 2 = B, 3 = the other)").unwrap();
        assert_eq!((tenants.title(), tenants.names.len()), ("tenant", 3));
        assert_eq!(tenants.ticks()[2], (3.0, "the other".to_owned()));
        assert_eq!(tenants.scale().place(2.0), 0.5);
        for other in ["IOPS", "IOPS (thousands)", "x (1 = A, B)", "x (1 = A"] {
            assert_eq!(Categories::of(other), None, "{other}");
        }
    }
}
