//! Charts: lines over two logarithmic axes.

use std::fmt::Write as _;

use super::markdown::number;
use crate::outcome::Chart;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;

/// Told apart by most people also without colours, since each has its own mark.
const COLOURS: [&str; 6] = [
    "#c0392b", "#2471a3", "#1e8449", "#b9770e", "#7d3c98", "#566573",
];

/// A file with the chart.
pub(super) fn draw(chart: &Chart) -> String {
    let points = || chart.series.iter().flat_map(|series| series.points.iter());
    let x = Axis::over(points().map(|(x, _)| *x));
    let y = Axis::over(points().map(|(_, y)| *y));
    let mut out = String::new();
    write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
    )
    .expect("text can be written");
    text(&mut out, (LEFT, 24.0), "start", &chart.title);
    frame(&mut out, chart, x, y);
    for (index, series) in chart.series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let places: Vec<(f64, f64)> = series
            .points
            .iter()
            .filter(|(x, y)| *x > 0.0 && *y > 0.0)
            .map(|(px, py)| (across(x, *px), up(y, *py)))
            .collect();
        line(&mut out, &places, colour);
        #[expect(clippy::cast_precision_loss, reason = "there are few lines")]
        let row = TOP + 14.0 + 18.0 * index as f64;
        mark(&mut out, (WIDTH - RIGHT + 16.0, row - 4.0), colour);
        text(&mut out, (WIDTH - RIGHT + 26.0, row), "start", &series.name);
    }
    out + "</svg>\n"
}

/// A logarithmic axis from one power of ten to another.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>) -> Self {
        let positive = values.filter(|value| *value > 0.0 && value.is_finite());
        let (low, high) = positive.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if low > high {
            return Self {
                low: 0.0,
                high: 1.0,
            };
        }
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        Self {
            low,
            high: high.max(low + 1.0),
        }
    }

    /// 0 to 1.
    fn share(self, value: f64) -> f64 {
        (value.log10() - self.low) / (self.high - self.low)
    }

    fn ticks(self) -> impl Iterator<Item = f64> {
        let steps = (self.high - self.low).round();
        let mut step = 0.0;
        std::iter::from_fn(move || {
            let value = (step <= steps).then(|| 10_f64.powf(self.low + step));
            step += 1.0;
            value
        })
    }
}

fn across(axis: Axis, value: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * axis.share(value)
}

fn up(axis: Axis, value: f64) -> f64 {
    HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * axis.share(value)
}

fn frame(out: &mut String, chart: &Chart, x: Axis, y: Axis) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for tick in x.ticks() {
        let place = across(x, tick);
        grid(out, (place, TOP), (place, bottom));
        text(out, (place, bottom + 16.0), "middle", &number(tick));
    }
    for tick in y.ticks() {
        let place = up(y, tick);
        grid(out, (LEFT, place), (right, place));
        text(out, (LEFT - 6.0, place + 4.0), "end", &label(tick));
    }
    let middle = f64::midpoint(LEFT, right);
    text(out, (middle, HEIGHT - 14.0), "middle", &chart.x);
    text(out, (LEFT - 70.0, TOP - 8.0), "start", &chart.y);
}

/// A small power of ten needs its digits.
fn label(tick: f64) -> String {
    if tick < 0.000_5 {
        format!("{tick:.0e}")
    } else {
        number(tick)
    }
}

fn grid(out: &mut String, from: (f64, f64), to: (f64, f64)) {
    writeln!(
        out,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#d5d8dc\"/>",
        from.0, from.1, to.0, to.1
    )
    .expect("text can be written");
}

fn line(out: &mut String, places: &[(f64, f64)], colour: &str) {
    let points: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        points.join(" ")
    )
    .expect("text can be written");
    for place in places {
        mark(out, *place, colour);
    }
}

fn mark(out: &mut String, (x, y): (f64, f64), colour: &str) {
    writeln!(
        out,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
    )
    .expect("text can be written");
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, content: &str) {
    let content = content
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#1c2833\">{content}</text>"
    )
    .expect("text can be written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_powers_of_ten() {
        let axis = Axis::over([3.0, 250.0].into_iter());
        assert_eq!(
            axis,
            Axis {
                low: 0.0,
                high: 3.0
            }
        );
        let ticks: Vec<f64> = axis.ticks().map(f64::round).collect();
        assert_eq!(ticks, [1.0, 10.0, 100.0, 1_000.0]);
        assert_eq!(Axis::over([1.0].into_iter()).share(1.0), 0.0);
        assert_eq!(Axis::over(std::iter::empty()).share(10.0), 1.0);
    }

    #[test]
    fn every_line_is_drawn_and_named() {
        let chart = Chart::new("c", "a < b", "x", "y")
            .with("native", vec![(1.0, 10.0), (64.0, 640.0)])
            .with("Decant", vec![(1.0, 1.0), (64.0, 0.0)]);
        let file = draw(&chart);
        assert!(file.starts_with("<svg ") && file.ends_with("</svg>\n"));
        assert_eq!(file.matches("<polyline").count(), 2);
        assert!(file.contains("a &lt; b") && file.contains(">Decant<"));
        // A value that has no logarithm is left out.
        assert_eq!(file.matches("<circle").count(), 3 + 2);
        assert!(!file.contains("NaN") && !file.contains("inf"));
    }
}
