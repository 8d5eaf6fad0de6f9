//! The trend of a volume's load: how evenly hosts write its pages, and how full its victims are.

use crate::field_codec::FieldCodec;

/// The mean heat (recent write frequency) of written pages below which the volume's writes become
/// even; they stay even up to [`UNEVEN_ABOVE`]. While hosts write all pages equally often, a page
/// has a heat of 24 on average when it is written, and 40 afterwards.
const EVEN_BELOW: f32 = 48.0;
const UNEVEN_ABOVE: f32 = 56.0;

/// The divisor of the volume's pages that gives the number of writes over which the heat is
/// averaged, which is at least [`HEAT_PAGES_MIN`].
const HEAT_PART: u32 = 16;
const HEAT_PAGES_MIN: u32 = 256;

/// Maximum number of victims over which their live pages are averaged.
const VICTIMS: u16 = 16;

/// The averages of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trend {
    /// The mean heat, after the write, of the pages that hosts write.
    heat: f32,
    /// Number of written pages over which the heat is averaged.
    span: f32,
    /// `true` if hosts write all pages about equally often, so that separating often written pages
    /// gains nothing. A volume begins with `false` after it was opened.
    is_even: bool,
    /// The mean share of live pages in victims.
    live: f32,
    /// Number of victims in the mean `live`, at most [`VICTIMS`].
    victims: u16,
}

impl Trend {
    /// Returns the trend of a volume of `pages` pages before its first write.
    pub(crate) fn new(pages: u32) -> Trend {
        let span = (pages / HEAT_PART).max(HEAT_PAGES_MIN) as f32;
        Trend { heat: 2.0 * UNEVEN_ABOVE, span, is_even: false, live: 0.0, victims: 0 }
    }

    /// Notes that a host wrote a page, which now has this heat.
    #[inline]
    pub(crate) fn note_write(&mut self, heat: u8) {
        self.heat += (f32::from(heat) - self.heat) / self.span;
        self.is_even = self.heat < if self.is_even { UNEVEN_ABOVE } else { EVEN_BELOW };
    }

    /// Notes that a victim has `live` live pages of `pages` pages.
    pub(crate) fn note_victim(&mut self, live: u32, pages: u32) {
        self.victims = (self.victims + 1).min(VICTIMS);
        self.live += (live as f32 / pages as f32 - self.live) / f32::from(self.victims);
    }

    /// Writes or reads the averages.
    pub(crate) fn hand_over(&mut self, scribe: &mut FieldCodec<'_>) {
        scribe.f32(&mut self.heat);
        scribe.f32(&mut self.live);
        scribe.u16(&mut self.victims);
        scribe.bool(&mut self.is_even);
        scribe.check(self.heat.is_finite() && self.live.is_finite());
    }

    /// Returns `true` if hosts write all pages about equally often.
    pub(crate) fn is_even(&self) -> bool {
        self.is_even
    }

    /// Returns the number of pages that are moved for each page of space that collection yields.
    pub(crate) fn moves(&self) -> f32 {
        self.live / (1.0 - self.live).max(f32::EPSILON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::CHUNK_PAGES;
    use crate::map::Map;

    /// Returns the trend after `overwrites` overwrites of a volume. `draw(n)` is the `n`th page
    /// that hosts write.
    fn trend(overwrites: u32, draw: impl Fn(u32) -> u32) -> Trend {
        let pages = 4_096;
        let (mut map, mut trend) =
            (Map::new(pages, u32::MAX, pages.div_ceil(CHUNK_PAGES)), Trend::new(pages));
        (0..pages).for_each(|page| map.restore(page, page));
        for number in 0..overwrites * pages {
            let (heat, _) = map.warm(draw(number) % pages);
            trend.note_write(heat);
        }
        trend
    }

    fn scatter(number: u32) -> u32 {
        number.wrapping_mul(0x9e37_79b9).rotate_left(15).wrapping_mul(0x85eb_ca6b) >> 12
    }

    #[test]
    fn even_writes_are_told_from_skewed_ones() {
        assert!(trend(4, |number| number).is_even(), "in order");
        assert!(trend(4, scatter).is_even(), "at random");
        let half_to_a_fifth = |number: u32| match number % 2 {
            0 => scatter(number) % 819,
            _ => scatter(number),
        };
        assert!(!trend(4, half_to_a_fifth).is_even());
        assert!(!trend(4, |number| scatter(number) % 64).is_even());
    }

    #[test]
    fn the_first_victims_count_at_once() {
        let mut trend = Trend::new(4_096);
        assert!(trend.moves() < 0.01);
        trend.note_victim(56, 64);
        assert!((trend.moves() - 7.0).abs() < 0.01, "{trend:?}");
        for _ in 0..100 {
            trend.note_victim(32, 64);
        }
        assert!((trend.moves() - 1.0).abs() < 0.01, "{trend:?}");
        trend.note_victim(64, 64);
        assert!(trend.moves() > 1.0 && trend.moves() < 2.0);
    }
}
