//! A figure beside the number with which it is compared, and its goal.

use std::fmt;

use serde::Serialize;

use crate::{stats::Ratio, table::Table};

/// The bound that a figure must keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At most this value.
    AtMost(f64),
    /// At least this value.
    AtLeast(f64),
}

/// Whether a figure keeps its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval keeps the goal.
    Met,
    /// Neither end of the interval keeps the goal.
    Missed,
    /// Only one end of the interval keeps the goal: the machine was too noisy for a verdict.
    Unsure,
    /// The figure was not measured.
    NotMeasured,
}

/// How a figure's numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A ratio.
    Times,
    /// Microseconds.
    Microseconds,
    /// Bytes, in KiB.
    KiB,
    /// A count.
    Count,
}

/// A figure in a data file under `bench/results`.
#[derive(Serialize)]
pub struct FigureData {
    figure: String,
    faasw: Option<String>,
    other: Option<String>,
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    unit: &'static str,
    goal: Option<String>,
    met: Option<String>,
}

/// A figure of the report.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Description of the figure.
    pub what: String,
    /// The node's own number, as text.
    pub ours: String,
    /// The number with which it is compared, as text.
    pub against: String,
    /// The figure between the ends of its interval; without an interval, all three are equal.
    value: Option<[f64; 3]>,
    unit: Unit,
    goal: Option<Goal>,
}

impl Figure {
    /// Returns a figure for a ratio.
    pub fn ratio(what: String, ratio: Option<Ratio>, goal: Option<Goal>) -> Self {
        let value = ratio.map(|ratio| [ratio.low, ratio.median, ratio.high]);
        Self::new(what, value, Unit::Times, goal)
    }

    /// Returns a figure for a number that is compared only with its goal.
    pub fn number(what: String, value: Option<f64>, unit: Unit, goal: Option<Goal>) -> Self {
        Self::new(what, value.map(|value| [value; 3]), unit, goal)
    }

    fn new(what: String, value: Option<[f64; 3]>, unit: Unit, goal: Option<Goal>) -> Self {
        Self {
            what,
            ours: String::new(),
            against: String::new(),
            value,
            unit,
            goal,
        }
    }

    /// Adds the two numbers from which the figure was computed.
    pub fn of(self, ours: Option<String>, against: Option<String>) -> Self {
        Self {
            ours: ours.unwrap_or_default(),
            against: against.unwrap_or_default(),
            ..self
        }
    }

    /// Returns whether the goal is met; `None` without a goal.
    pub fn verdict(&self) -> Option<Verdict> {
        let goal = self.goal?;
        let Some([low, _, high]) = self.value else {
            return Some(Verdict::NotMeasured);
        };
        Some(match (goal.holds(low), goal.holds(high)) {
            (true, true) => Verdict::Met,
            (false, false) => Verdict::Missed,
            _ => Verdict::Unsure,
        })
    }

    /// Returns the ends of the interval; `None` if both are equal.
    fn interval(&self) -> Option<[f64; 2]> {
        let [low, _, high] = self.value?;
        (low < high).then_some([low, high])
    }

    /// Returns the goal as text; `None` without a goal.
    fn goal_text(&self) -> Option<String> {
        Some(match self.goal? {
            Goal::AtMost(most) => format!("≤ {}", self.unit.write(most)),
            Goal::AtLeast(least) => format!("≥ {}", self.unit.write(least)),
        })
    }

    /// Returns the figure as part of a data file.
    pub fn data(&self) -> FigureData {
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        // Three decimals: more than any interval of a measurement justifies.
        let number = |value: f64| (self.unit.scale(value) * 1000.0).round() / 1000.0;
        FigureData {
            figure: self.what.clone(),
            faasw: text(&self.ours),
            other: text(&self.against),
            ratio: self.value.map(|[_, value, _]| number(value)),
            low: self.interval().map(|[low, _]| number(low)),
            high: self.interval().map(|[_, high]| number(high)),
            unit: self.unit.name(),
            goal: self.goal_text(),
            met: self.verdict().map(|verdict| verdict.name().to_owned()),
        }
    }
}

impl Goal {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl Unit {
    /// Formats a number with its unit.
    pub fn write(self, value: f64) -> String {
        let value = self.scale(value);
        match self {
            Self::Times => format!("{value:.3} ×"),
            Self::Microseconds => format!("{value:.1} us"),
            Self::KiB => format!("{value:.0} KiB"),
            Self::Count => format!("{value:.0}"),
        }
    }

    /// Returns the unit's name.
    fn name(self) -> &'static str {
        match self {
            Self::Times => "×",
            Self::Microseconds => "us",
            Self::KiB => "KiB",
            Self::Count => "",
        }
    }

    /// Converts a figure's value to this unit.
    fn scale(self, value: f64) -> f64 {
        match self {
            Self::KiB => value / 1024.0,
            Self::Times | Self::Microseconds | Self::Count => value,
        }
    }
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Met => "yes",
            Self::Missed => "no",
            Self::Unsure => "too noisy to tell",
            Self::NotMeasured => "not measured",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missed => write!(f, "**{}**", self.name()),
            _ => f.write_str(self.name()),
        }
    }
}

/// Returns all figures as a table.
pub fn table(figures: &[Figure]) -> Table {
    let titles = [
        "figure",
        "faasw",
        "peer or floor",
        "came to",
        "95 % interval",
        "goal",
        "met",
    ];
    let mut table = Table::new(titles);
    for figure in figures {
        let unit = figure.unit;
        let interval = figure.interval();
        let verdict = figure.verdict().map(|verdict| verdict.to_string());
        table.row([
            figure.what.clone(),
            figure.ours.clone(),
            figure.against.clone(),
            figure
                .value
                .map_or("–".to_owned(), |[_, value, _]| unit.write(value)),
            interval.map_or(String::new(), |[low, high]| {
                format!("{} to {}", unit.write(low), unit.write(high))
            }),
            figure.goal_text().unwrap_or_default(),
            verdict.unwrap_or_default(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(low: f64, high: f64, goal: Goal) -> Option<Verdict> {
        let ratio = Ratio {
            median: f64::midpoint(low, high),
            low,
            high,
            pairs: 9,
        };
        Figure::ratio(String::new(), Some(ratio), Some(goal)).verdict()
    }

    #[test]
    fn a_goal_is_met_only_with_the_whole_interval() {
        let most = Goal::AtMost(0.9);
        assert_eq!(verdict(0.7, 0.9, most), Some(Verdict::Met));
        assert_eq!(verdict(0.85, 0.95, most), Some(Verdict::Unsure));
        assert_eq!(verdict(0.91, 1.0, most), Some(Verdict::Missed));
        let least = Goal::AtLeast(0.9);
        assert_eq!(verdict(0.9, 1.2, least), Some(Verdict::Met));
        assert_eq!(verdict(0.8, 1.2, least), Some(Verdict::Unsure));
        assert_eq!(verdict(0.1, 0.2, least), Some(Verdict::Missed));
    }

    #[test]
    fn missing_measurements_are_reported() {
        let goal = Some(Goal::AtMost(1.5));
        let missing = Figure::ratio("f".to_owned(), None, goal);
        assert_eq!(missing.verdict(), Some(Verdict::NotMeasured));
        assert!(table(&[missing]).to_string().contains("not measured"));
        assert_eq!(Figure::ratio("f".to_owned(), None, None).verdict(), None);
    }

    #[test]
    fn a_data_file_has_numbers_in_their_unit() {
        let goal = Some(Goal::AtMost(400.0 * 1024.0));
        let figure = Figure::number("memory".to_owned(), Some(500.0 * 1024.0), Unit::KiB, goal)
            .of(Some("500 KiB".to_owned()), None);
        assert_eq!(
            serde_json::to_value(figure.data()).unwrap(),
            serde_json::json!({
                "figure": "memory",
                "faasw": "500 KiB",
                "other": null,
                "ratio": 500.0,
                "low": null,
                "high": null,
                "unit": "KiB",
                "goal": "≤ 400 KiB",
                "met": "no",
            })
        );
    }

    #[test]
    fn a_number_stands_beside_its_goal_in_its_unit() {
        let goal = Some(Goal::AtMost(400.0 * 1024.0));
        let figure = Figure::number("memory".to_owned(), Some(300.0 * 1024.0), Unit::KiB, goal);
        let text = table(&[figure]).to_string();
        assert!(text.contains("300 KiB") && text.contains("≤ 400 KiB") && text.contains("yes"));
    }
}
