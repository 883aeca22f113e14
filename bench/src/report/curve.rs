//! Curves over a common scale as SVG.

use std::fmt::{self, Write as _};

use super::plot::{COLOURS, drawing, number, text};

const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 730.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 370.0;
/// Number of intervals between the lines across, and between the labels of each axis.
const STEPS: u32 = 4;

/// Curves in one plot.
#[derive(Clone, Debug)]
pub struct Curves {
    /// Title above the curves.
    pub title: String,
    /// Label below the horizontal axis.
    pub across: String,
    /// The curves, each in a colour of its own.
    pub curves: Vec<Curve>,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Meaning of the curve, with the unit.
    pub label: String,
    /// Points of the curve, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl fmt::Display for Curves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let widest = points().map(|(x, _)| *x).fold(f64::MIN_POSITIVE, f64::max);
        let highest = points().map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max);
        let across = |x: f64| LEFT + x / widest * (RIGHT - LEFT);
        let up = |y: f64| BOTTOM - y / highest * (BOTTOM - TOP);
        let mut shapes = String::new();
        for step in 0..=STEPS {
            let part = f64::from(step) / f64::from(STEPS);
            let (x, y) = (across(widest * part), up(highest * part));
            writeln!(
                shapes,
                r##"<path d="M{LEFT} {y:.1}H{RIGHT}" stroke="#dddddd"/>"##
            )?;
            text(
                &mut shapes,
                LEFT - 8.0,
                y + 4.0,
                "end",
                "normal",
                &number(highest * part),
            )?;
            text(
                &mut shapes,
                x,
                BOTTOM + 18.0,
                "middle",
                "normal",
                &number(widest * part),
            )?;
        }
        text(
            &mut shapes,
            (LEFT + RIGHT) / 2.0,
            BOTTOM + 40.0,
            "middle",
            "normal",
            &self.across,
        )?;
        let mut label_at = LEFT;
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            let mut path = String::new();
            for (index, (x, y)) in curve.points.iter().enumerate() {
                let (x, y) = (across(*x), up(*y));
                let command = if index == 0 { 'M' } else { 'L' };
                write!(path, "{command}{x:.1} {y:.1}")?;
                writeln!(
                    shapes,
                    r#"<circle cx="{x:.1}" cy="{y:.1}" r="3.5" fill="{colour}"/>"#
                )?;
            }
            writeln!(
                shapes,
                r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>"#
            )?;
            writeln!(
                shapes,
                r#"<rect x="{label_at}" y="42" width="14" height="14" fill="{colour}"/>"#
            )?;
            text(
                &mut shapes,
                label_at + 20.0,
                54.0,
                "start",
                "normal",
                &curve.label,
            )?;
            label_at += 220.0;
        }
        drawing(f, HEIGHT, &self.title, &shapes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_share_a_scale_whose_ends_are_labelled() {
        let curve = |points: &[(f64, f64)]| Curve {
            label: "c & d".to_owned(),
            points: points.to_vec(),
        };
        let curves = Curves {
            title: "t".to_owned(),
            across: "offered".to_owned(),
            curves: vec![
                curve(&[(0.0, 0.0), (200.0, 100.0)]),
                curve(&[(100.0, 50.0)]),
            ],
        };
        let svg = curves.to_string();
        assert!(svg.contains(r#"d="M70.0 370.0L730.0 76.0""#), "{svg}");
        assert!(svg.contains(r#"cx="400.0" cy="223.0""#), "{svg}");
        assert!(svg.contains(">200</text>") && svg.contains(">100</text>"));
        assert!(svg.contains("c &amp; d"));
    }
}
