//! What commands print: lines and tables on stdout.

use std::io::{self, Write};

/// Most characters in a line of a table.
const LINE: usize = 100;
/// Between two columns.
const GAP: &str = "  ";

/// Stdout, written to line by line.
///
/// `println!` panics when the reader has gone (`… | head`); here that is an error, which ends the command quietly.
pub(super) struct Output {
    out: io::BufWriter<io::StdoutLock<'static>>,
}

impl Output {
    pub(super) fn new() -> Self {
        Self { out: io::BufWriter::new(io::stdout().lock()) }
    }

    /// Prints a line.
    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{line}")
    }

    /// Prints `rows` below `head`, each column as wide as its widest cell, as long as a line fits [`LINE`]: beyond that
    /// the last column gives way first, then the widest, and what is cut ends in `…`.
    pub(super) fn table<const N: usize>(&mut self, head: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
        let mut widths = head.map(|cell| cell.chars().count());
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        narrow(&mut widths);
        self.row(&head, &widths)?;
        for row in rows {
            self.row(&row.each_ref().map(String::as_str), &widths)?;
        }
        Ok(())
    }

    /// Hands everything over to the operating system.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn row(&mut self, cells: &[&str], widths: &[usize]) -> io::Result<()> {
        let mut line = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let cell = cut(cell, *width);
            line.push_str(&format!("{cell:<width$}{GAP}"));
        }
        self.line(line.trim_end())
    }
}

/// Makes columns narrower until a line fits.
fn narrow(widths: &mut [usize]) {
    /// The last column, often a reason, keeps this much before others give way.
    const LAST_KEEPS: usize = 24;
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    let mut surplus = (widths.iter().sum::<usize>() + gaps).saturating_sub(LINE);
    if let Some(last) = widths.last_mut() {
        let gives = surplus.min(last.saturating_sub(LAST_KEEPS));
        (*last, surplus) = (*last - gives, surplus - gives);
    }
    for _ in 0..surplus {
        if let Some(widest) = widths.iter_mut().max() {
            *widest = widest.saturating_sub(1);
        }
    }
}

fn cut(cell: &str, width: usize) -> std::borrow::Cow<'_, str> {
    if cell.chars().count() <= width {
        return cell.into();
    }
    let mut short: String = cell.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short.into()
}

/// Says a line on stderr. Whoever read it may have gone, as in `2>&1 | head`: no reason to leave work half done, and
/// `eprintln!` would panic.
pub(super) fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{}", printable(line));
}

/// `text` on one line and without control characters, so that what a handler or an event says cannot steer a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// How long ago, in the largest unit that is full: `45s`, `12m`, `3h`, `5d`.
pub(super) fn age(ms: i64) -> String {
    let seconds = ms.max(0) / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A moment as RFC 3339 in UTC with milliseconds.
pub(super) fn moment(ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(ms) {
        Ok(at) => format!("{at:.3}"),
        Err(_) => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_one_width_and_a_z() {
        assert_eq!(moment(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(moment(1_781_091_000_120), "2026-06-10T11:30:00.120Z");
        assert_eq!(moment(i64::MAX), format!("{} ms", i64::MAX));
    }

    #[test]
    fn a_table_fits_a_hundred_columns_whatever_is_in_it() {
        let mut widths = [10, 36, 12, 400];
        narrow(&mut widths);
        assert_eq!(widths, [10, 36, 12, 36]);
        let mut widths = [300, 300, 300];
        narrow(&mut widths);
        assert_eq!(widths.iter().sum::<usize>() + 2 * GAP.len(), LINE);
        assert_eq!(cut("ein Grund", 6), "ein G…");
        assert_eq!(cut("kürzer", 6), "kürzer");
    }

    #[test]
    fn ages_have_one_unit() {
        let ages = [-5, 59_999, 60_000, 7_200_000, 86_400_000 * 12].map(age);
        assert_eq!(ages, ["0s", "59s", "1m", "2h", "12d"]);
    }

    #[test]
    fn nothing_printed_can_steer_a_terminal() {
        assert_eq!(printable("a\nb\x1b[31mc\u{9b}"), "a b [31mc ");
    }
}
