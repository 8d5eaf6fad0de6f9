//! The frame of a picture: the area for the data, with the title, axes and grid around it.

use figures::{Figure, Series};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::canvas::{Area, DrawResult, FONT, GRID, INK, PALE_INK};
use super::categories::Categories;
use super::scale::{Scale, tick_text};

/// A rectangle of pixels for the data of a picture, with the scales of its axes and the title
/// above.
pub(super) struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
    x: Scale,
    y: Scale,
    title: String,
}

/// Height of a title in pixels.
const TITLE: i32 = 62;

/// Height of the words below the data in pixels: the ticks and the name of the axis.
pub(super) const FOOT: i32 = 160;

/// The approximate width of a letter of a tick, in pixels.
const LETTER: i32 = 14;

impl Frame {
    /// Returns the frame of a picture of `size` pixels without a title, with so many pixels on its
    /// right and below it.
    pub(super) fn new(size: (u32, u32), x: Scale, y: Scale, (beside, below): (i32, i32)) -> Frame {
        let (right, bottom) = (size.0 as i32 - beside, size.1 as i32 - FOOT - below);
        Frame { left: 130, right, top: 160 - TITLE, bottom, x, y, title: String::new() }
    }

    /// Returns the frame with this title, and moved down by a title's height if the title is not
    /// empty.
    pub(super) fn titled(self, title: &str) -> Frame {
        let top = self.top + if title.is_empty() { 0 } else { TITLE };
        Frame { top, title: title.to_owned(), ..self }
    }

    /// Returns the right, top and bottom edges of the area for data, in pixels.
    pub(super) fn side(&self) -> (i32, i32, i32) {
        (self.right, self.top, self.bottom)
    }

    /// Returns the left and right edges of the area for data, in pixels.
    pub(super) fn across(&self) -> (i32, i32) {
        (self.left, self.right)
    }

    /// Returns the pixel at which a point (x, y) of the data is drawn.
    pub(super) fn place(&self, (x, y): (f64, f64)) -> (i32, i32) {
        let right = self.x.place(x) * f64::from(self.right - self.left);
        let up = self.y.place(y) * f64::from(self.bottom - self.top);
        (self.left + right.round() as i32, self.bottom - up.round() as i32)
    }

    /// Returns the pixels of the finite points of a series.
    pub(super) fn places(&self, series: &Series) -> Vec<(i32, i32)> {
        let finite =
            series.points.iter().filter(|point| point.0.is_finite() && point.1.is_finite());
        finite.map(|&point| self.place(point)).collect()
    }

    /// Draws the title, the axes and the grid. The x axis has the names of `categories` instead of
    /// numbers, if there are any.
    pub(super) fn draw(
        &self,
        area: &Area<'_>,
        figure: &Figure,
        categories: Option<&Categories>,
    ) -> DrawResult {
        if !self.title.is_empty() {
            let title = (FONT, 40).into_font().style(FontStyle::Bold).color(&INK);
            area.draw(&Text::new(self.title.clone(), (40, 34), title))?;
        }
        let words = (FONT, 29).into_font().color(&PALE_INK);
        area.draw(&Text::new(figure.y_label.clone(), (40, self.top - 64), words.clone()))?;
        let ticks = (FONT, 27).into_font().color(&PALE_INK);
        let beside = ticks.clone().pos(Pos::new(HPos::Right, VPos::Center));
        for tick in self.y.ticks() {
            let (_, level) = self.place((0.0, tick));
            let line = vec![(self.left, level), (self.right, level)];
            area.draw(&PathElement::new(line, GRID.stroke_width(2)))?;
            area.draw(&Text::new(tick_text(tick), (self.left - 18, level), beside.clone()))?;
        }
        let below = ticks.pos(Pos::new(HPos::Center, VPos::Top));
        let named = |categories: &Categories| categories.ticks();
        let numbers = || self.x.ticks().into_iter().map(|tick| (tick, tick_text(tick))).collect();
        // The right end of the last word in each of two rows.
        let mut ends = [i32::MIN; 2];
        for (tick, text) in categories.map_or_else(numbers, named) {
            let (at, _) = self.place((tick, 0.0));
            let line = vec![(at, self.bottom), (at, self.bottom + 10)];
            area.draw(&PathElement::new(line, PALE_INK.stroke_width(2)))?;
            let half = text.chars().count() as i32 * LETTER / 2;
            // A number that has no room is left out; a name goes to the second row.
            let row = ends.iter().position(|end| at - half > *end);
            let Some(row) =
                row.or(categories.map(|_| 1)).filter(|row| *row == 0 || categories.is_some())
            else {
                continue;
            };
            ends[row] = at + half;
            let level = self.bottom + 20 + row as i32 * 32;
            area.draw(&Text::new(text, (at, level), below.clone()))?;
        }
        let axis = vec![(self.left, self.bottom), (self.right, self.bottom)];
        area.draw(&PathElement::new(axis, PALE_INK.stroke_width(3)))?;
        let below = words.pos(Pos::new(HPos::Right, VPos::Top));
        let place = (self.right, self.bottom + if ends[1] > i32::MIN { 94 } else { 66 });
        let label = categories.map_or(&figure.x_label[..], Categories::title);
        area.draw(&Text::new(label.to_owned(), place, below))?;
        Ok(())
    }
}
