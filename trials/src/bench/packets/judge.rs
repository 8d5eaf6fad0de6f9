//! The comparison of measured sides: ratios of medians, and whether they meet their targets.

/// The largest share of the time that other work may take from the server or the client, for a
/// figure to count.
const TAKEN_MAX: f64 = 0.05;

/// A target for a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// The figures of one compared side, one for each round.
#[derive(Clone, Debug, Default)]
pub(crate) struct ComparedSide {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
    /// The share of processor time that other processes took, by round.
    pub(crate) taken: Vec<f64>,
    /// The reason why the side has fewer rounds than others.
    pub(crate) obstacle: Option<String>,
}

/// The outcome of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// The result is not valid, for the given reason: the machine took too much time, or a side
    /// could not be measured.
    NotDecided(String),
}

/// A target with its result.
#[derive(Clone, Debug)]
pub(crate) struct TargetResult {
    pub(crate) what: String,
    pub(crate) bound: Bound,
    /// The measured figure, with its unit; empty if there is none.
    pub(crate) result: String,
    pub(crate) verdict: Verdict,
}

/// The results of one comparison.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) name: &'static str,
    pub(crate) about: String,
    /// The name of the compared quantity, with its unit.
    pub(crate) unit: &'static str,
    /// The compared sides. Ratios are to the first one.
    pub(crate) sides: Vec<ComparedSide>,
    pub(crate) judged: Vec<TargetResult>,
}

impl Bound {
    pub(crate) fn holds(self, figure: f64) -> bool {
        match self {
            Bound::AtLeast(least) => figure >= least,
            Bound::AtMost(most) => figure <= most,
        }
    }
}

impl ComparedSide {
    /// Creates a side without figures.
    pub(crate) fn new(name: String) -> ComparedSide {
        ComparedSide { name, ..ComparedSide::default() }
    }

    /// Adds the result of a round: a figure and the share of time that other processes took, or the
    /// error of a failed round.
    pub(crate) fn add(&mut self, result: Result<(f64, f64), String>) {
        match result {
            Ok((value, taken)) => {
                self.values.push(value);
                self.taken.push(taken);
            }
            Err(error) => {
                println!("  {}: {error}", self.name);
                self.obstacle = Some(error);
            }
        }
    }

    /// Returns the median figure; `None` if there is none.
    pub(crate) fn median(&self) -> Option<f64> {
        median(&self.values)
    }

    /// Returns the median share of time that other processes took.
    pub(crate) fn taken(&self) -> f64 {
        median(&self.taken).unwrap_or(0.0)
    }

    /// Returns the reason why the side's figures are not valid (a failed round, a busy machine, no
    /// figure); `None` if they are valid.
    pub(crate) fn doubt(&self) -> Option<String> {
        match (&self.obstacle, self.taken()) {
            // Also where other rounds went well: a round that fails is what a row may look for.
            (Some(obstacle), _) => Some(format!("a round of {} failed: {obstacle}", self.name)),
            (None, taken) if taken > TAKEN_MAX => {
                Some(format!("the machine took {:.0} % of the time", 100.0 * taken))
            }
            (None, _) if self.values.is_empty() => Some(format!("{} was not measured", self.name)),
            (None, _) => None,
        }
    }
}

/// Returns the median; `None` without values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        even if even % 2 == 0 => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        _ => Some(sorted[middle]),
    }
}

/// Judges the ratio of the medians of two sides against a bound.
pub(crate) fn ratio(
    what: String,
    ours: &ComparedSide,
    theirs: &ComparedSide,
    bound: Bound,
) -> TargetResult {
    let ratio = match (ours.median(), theirs.median()) {
        (Some(ours), Some(theirs)) if theirs > 0.0 => Some(ours / theirs),
        _ => None,
    };
    let result = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
    verdict(what, bound, ratio, result, &[ours, theirs])
}

/// Judges the median of the ratios of two sides in each round. The outcome is
/// [`Verdict::NotDecided`] if the ratios vary so much that the true median may be beyond the bound.
pub(crate) fn pairs(
    what: String,
    ours: &ComparedSide,
    theirs: &ComparedSide,
    bound: Bound,
) -> TargetResult {
    let is_whole = ours.values.len() == theirs.values.len();
    let pairs = ours.values.iter().zip(&theirs.values).filter(|_| is_whole);
    let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs).collect();
    let middle = median(&ratios);
    let error = middle.map_or(0.0, |middle| error_of_median(&ratios, middle));
    let result = middle.map_or(String::new(), |middle| format!("{middle:.4} ± {error:.4}"));
    let mut judged = verdict(what, bound, middle, result, &[ours, theirs]);
    let (Bound::AtLeast(limit) | Bound::AtMost(limit)) = bound;
    let is_near = middle.is_some_and(|middle| (middle - limit).abs() <= error);
    if is_near && !matches!(judged.verdict, Verdict::NotDecided(_)) {
        let rounds = ratios.len();
        let why = format!("{rounds} pairs know the ratio to ± {error:.4}");
        judged.verdict = Verdict::NotDecided(why);
    }
    judged
}

/// Returns the standard error of a median, from the median of the distances to it. With one value
/// the error is unknown and counts as infinite.
fn error_of_median(values: &[f64], middle: f64) -> f64 {
    // For a normal distribution, the standard deviation is 1.4826 times the median distance, and
    // the standard error of a median 1.2533 times that of a mean.
    const FACTOR: f64 = 1.4826 * 1.2533;
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    match median(&distances) {
        Some(distance) if values.len() > 1 => FACTOR * distance / (values.len() as f64).sqrt(),
        _ => f64::INFINITY,
    }
}

/// Judges a figure that was made of `sides`, and is shown as `result`.
pub(crate) fn verdict(
    what: String,
    bound: Bound,
    figure: Option<f64>,
    result: String,
    sides: &[&ComparedSide],
) -> TargetResult {
    let doubt = sides.iter().find_map(|side| side.doubt());
    let verdict = match (doubt, figure) {
        (Some(doubt), _) => Verdict::NotDecided(doubt),
        (None, Some(figure)) if bound.holds(figure) => Verdict::Met,
        (None, Some(_)) => Verdict::Missed,
        (None, None) => Verdict::NotDecided("there is no figure".to_owned()),
    };
    TargetResult { what, bound, result, verdict }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(values: &[f64], taken: f64) -> ComparedSide {
        let taken = values.iter().map(|_| taken).collect();
        ComparedSide { name: "UDP".to_owned(), values: values.to_vec(), taken, obstacle: None }
    }

    fn judged(ours: &ComparedSide, theirs: &ComparedSide, bound: Bound) -> (String, Verdict) {
        let judged = ratio(String::new(), ours, theirs, bound);
        (judged.result, judged.verdict)
    }

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratios_are_held_against_their_bounds() {
        let (ours, theirs) = (side(&[1.0, 9.0, 2.0], 0.0), side(&[4.0, 4.0, 4.0], 0.0));
        let met = |verdict| ("0.50".to_owned(), verdict);
        assert_eq!(judged(&ours, &theirs, Bound::AtLeast(0.5)), met(Verdict::Met));
        assert_eq!(judged(&ours, &theirs, Bound::AtLeast(0.51)), met(Verdict::Missed));
        assert_eq!(judged(&ours, &theirs, Bound::AtMost(0.5)), met(Verdict::Met));
        assert_eq!(judged(&ours, &theirs, Bound::AtMost(0.49)), met(Verdict::Missed));
    }

    #[test]
    fn pairs_decide_nothing_within_their_error() {
        let theirs = side(&[100.0; 4], 0.0);
        let judged = |values: &[f64], bound| {
            let judged = pairs(String::new(), &side(values, 0.0), &theirs, bound);
            (judged.result, judged.verdict)
        };
        let (result, verdict) = judged(&[99.9, 100.1, 99.9, 100.1], Bound::AtLeast(0.995));
        assert_eq!((result.as_str(), verdict), ("1.0000 ± 0.0009", Verdict::Met));
        let (_, verdict) = judged(&[99.0, 99.1, 99.2, 99.1], Bound::AtLeast(0.995));
        assert_eq!(verdict, Verdict::Missed);
        let why = Verdict::NotDecided("4 pairs know the ratio to ± 0.0186".to_owned());
        let (_, verdict) = judged(&[98.0, 102.0, 98.0, 102.0], Bound::AtMost(1.005));
        assert_eq!(verdict, why);
        let (theirs, ours) = (side(&[100.0], 0.0), side(&[100.0], 0.0));
        let one = pairs(String::new(), &ours, &theirs, Bound::AtMost(1.005));
        assert!(matches!(one.verdict, Verdict::NotDecided(_)), "one pair proves nothing");
    }

    #[test]
    fn nothing_is_decided_of_cores_that_were_taken_or_of_no_figure() {
        let (good, bad) = (side(&[4.0], 0.05), side(&[4.0], 0.051));
        let why = "the machine took 5 % of the time".to_owned();
        for (ours, theirs) in [(&good, &bad), (&bad, &good)] {
            let (_, verdict) = judged(ours, theirs, Bound::AtLeast(0.5));
            assert_eq!(verdict, Verdict::NotDecided(why.clone()));
        }
        assert_eq!(judged(&good, &good, Bound::AtLeast(0.5)).1, Verdict::Met);
        let mut none = side(&[], 0.0);
        none.add(Err("no card".to_owned()));
        let (result, verdict) = judged(&none, &good, Bound::AtMost(0.5));
        let why = "a round of UDP failed: no card".to_owned();
        assert_eq!((result.as_str(), verdict), ("", Verdict::NotDecided(why)));
    }
}
