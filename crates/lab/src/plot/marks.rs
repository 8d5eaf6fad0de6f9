//! The marks at the points of a series.

use plotters::prelude::*;

use super::canvas::{Area, DrawResult};
use super::looks::{SeriesStyle, StyledSeries};

/// Half the width in pixels of a mark on a line; other marks are larger.
pub(super) const MARK: i32 = 8;

/// Draws a mark in the series' shape: filled for our series, hollow for the paper's.
pub(super) fn draw_mark(
    area: &Area<'_>,
    styled: &StyledSeries<'_>,
    (x, y): (i32, i32),
) -> DrawResult {
    let ours = styled.look == SeriesStyle::Line;
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
