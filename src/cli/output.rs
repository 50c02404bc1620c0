//! What commands print: lines and tables on stdout.

use std::io::{self, Write};

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

    /// Prints `rows` below `head`, each column as wide as its widest cell.
    pub(super) fn table<const N: usize>(&mut self, head: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
        let mut widths = head.map(|cell| cell.chars().count());
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
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
            line.push_str(&format!("{cell:<width$}  "));
        }
        self.line(line.trim_end())
    }
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
    fn nothing_printed_can_steer_a_terminal() {
        assert_eq!(printable("a\nb\x1b[31mc\u{9b}"), "a b [31mc ");
    }
}
