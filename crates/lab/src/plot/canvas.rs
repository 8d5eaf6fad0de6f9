//! The area that a picture is drawn on: its colours and its font.

use plotters::prelude::*;

pub(super) const INK: RGBColor = RGBColor(34, 34, 34);
pub(super) const PALE_INK: RGBColor = RGBColor(110, 110, 110);
pub(super) const GRID: RGBColor = RGBColor(228, 228, 228);
pub(super) const FONT: &str = "sans-serif";

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
pub(super) type DrawResult = Result<(), Box<dyn std::error::Error>>;
