//! Bar charts as SVG. They have few shapes, so that they are readable as text in a diff, too.

use std::fmt::{self, Write as _};

/// Colours of the series, which the colour-blind can distinguish as well (Okabe and Ito).
pub const COLOURS: [&str; 4] = ["#0072b2", "#e69f00", "#999999", "#009e73"];
/// Width of every plot.
const WIDTH: f64 = 760.0;
/// The position at which bars begin; the longest ends at `RIGHT`.
const LEFT: f64 = 210.0;
const RIGHT: f64 = 670.0;
const BAR: f64 = 18.0;
const GAP: f64 = 14.0;
const TITLE: f64 = 44.0;

/// Groups of bars from a common zero.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title above the chart, with the unit.
    pub title: String,
    /// Groups from top to bottom.
    pub groups: Vec<Group>,
}

/// Bars that belong together.
#[derive(Clone, Debug)]
pub struct Group {
    /// Label before the first bar, if there is more than one group; may be empty.
    pub label: String,
    /// Bars from top to bottom; the first of each group has the first colour.
    pub bars: Vec<Bar>,
}

/// A bar of a chart.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Meaning of the bar.
    pub label: String,
    /// Value that the bar shows.
    pub value: f64,
    /// Value to which a thin line continues, such as p99 if the bar shows p50.
    pub whisker: Option<f64>,
}

impl Chart {
    fn longest(&self) -> f64 {
        let bars = self.groups.iter().flat_map(|group| &group.bars);
        bars.map(|bar| bar.whisker.unwrap_or(0.0).max(bar.value))
            .fold(f64::MIN_POSITIVE, f64::max)
    }
}

impl fmt::Display for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scale = (RIGHT - LEFT) / self.longest();
        let mut shapes = String::new();
        let mut y = TITLE;
        for group in &self.groups {
            if self.groups.len() > 1 && !group.label.is_empty() {
                text(&mut shapes, 10.0, y + 13.0, "start", "bold", &group.label)?;
                y += BAR;
            }
            for (bar, colour) in group.bars.iter().zip(COLOURS.iter().cycle()) {
                draw(&mut shapes, bar, colour, y, scale)?;
                y += BAR + 4.0;
            }
            y += GAP;
        }
        drawing(f, y, &self.title, &shapes)
    }
}

fn draw(shapes: &mut String, bar: &Bar, colour: &str, y: f64, scale: f64) -> fmt::Result {
    text(shapes, LEFT - 8.0, y + 13.0, "end", "normal", &bar.label)?;
    let width = bar.value * scale;
    writeln!(
        shapes,
        r#"<rect x="{LEFT}" y="{y}" width="{width:.1}" height="{BAR}" fill="{colour}"/>"#
    )?;
    let mut end = LEFT + width;
    let mut label = number(bar.value);
    if let Some(whisker) = bar.whisker {
        let middle = y + BAR / 2.0;
        let to = LEFT + whisker * scale;
        let (above, below) = (middle - 5.0, middle + 5.0);
        let path = format!("M{end:.1} {middle}H{to:.1}M{to:.1} {above}V{below}");
        writeln!(
            shapes,
            r#"<path d="{path}" stroke="{colour}" stroke-width="2"/>"#
        )?;
        end = end.max(to);
        let _ = write!(label, " / {}", number(whisker));
    }
    text(shapes, end + 6.0, y + 13.0, "start", "normal", &label)
}

/// Writes a picture of the common width, with `shapes` under a title.
pub fn drawing(f: &mut fmt::Formatter<'_>, height: f64, title: &str, shapes: &str) -> fmt::Result {
    let size = format!(r#"viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}""#);
    let font = r#"font-family="sans-serif" font-size="13""#;
    writeln!(
        f,
        r#"<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>"#
    )?;
    writeln!(
        f,
        r##"<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>"##
    )?;
    let mut above = String::new();
    text(&mut above, 10.0, 24.0, "start", "bold", title)?;
    writeln!(f, "{above}{shapes}</svg>")
}

/// Writes text at a position.
pub fn text(
    to: &mut String,
    x: f64,
    y: f64,
    anchor: &str,
    weight: &str,
    said: &str,
) -> fmt::Result {
    let said = said.replace('&', "&amp;").replace('<', "&lt;");
    let style = format!(r##"text-anchor="{anchor}" font-weight="{weight}" fill="#222222""##);
    writeln!(to, r#"<text x="{x:.1}" y="{y}" {style}>{said}</text>"#)
}

/// Formats a number with about three significant digits, and with none of its decimals from 100 on.
pub fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(values: &[(f64, Option<f64>)]) -> String {
        let bars = values.iter().map(|(value, whisker)| Bar {
            label: "a < b".to_owned(),
            value: *value,
            whisker: *whisker,
        });
        let group = Group {
            label: "g".to_owned(),
            bars: bars.collect(),
        };
        let chart = Chart {
            title: "t & u".to_owned(),
            groups: vec![group],
        };
        chart.to_string()
    }

    #[test]
    fn the_longest_bar_fills_the_width_and_others_are_to_scale() {
        let svg = chart(&[(200.0, None), (50.0, None)]);
        assert!(
            svg.contains(r#"width="460.0""#) && svg.contains(r#"width="115.0""#),
            "{svg}"
        );
        assert!(svg.contains(">200</text>") && svg.contains(">50.0</text>"));
    }

    #[test]
    fn a_whisker_counts_for_the_scale() {
        let svg = chart(&[(100.0, Some(200.0))]);
        assert!(
            svg.contains(r#"width="230.0""#) && svg.contains("H670.0"),
            "{svg}"
        );
    }

    #[test]
    fn text_is_escaped_and_nothing_at_all_is_drawn_too() {
        let svg = chart(&[(1.0, None)]);
        assert!(svg.contains("t &amp; u") && svg.contains("a &lt; b"));
        assert!(chart(&[]).starts_with("<svg") && chart(&[]).trim_end().ends_with("</svg>"));
    }
}
