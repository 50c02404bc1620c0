//! What commands print: lines and tables on stdout.

use std::io::{self, Write};

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

    /// Prints `rows` below `head`, each column as wide as its widest cell. On a terminal columns give way until a line
    /// fits its width, as far as [`keeps`] allows, and what is cut ends in `…`; a pipe or a file gets everything.
    pub(super) fn table<const N: usize>(&mut self, head: [&str; N], rows: &[[String; N]]) -> io::Result<()> {
        let mut widths = head.map(|cell| cell.chars().count());
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        if let Some((columns, _)) = terminal_size::terminal_size_of(io::stdout()) {
            narrow(&head, &mut widths, usize::from(columns.0));
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
            let cell = cut(cell, *width);
            line.push_str(&format!("{cell:<width$}{GAP}"));
        }
        self.line(line.trim_end())
    }
}

/// Makes columns narrower until a line fits `line` characters, or none can give more: those that give way first down to
/// what they keep, the widest of them first, then the next.
fn narrow(head: &[&str], widths: &mut [usize], line: usize) {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    let mut surplus = (widths.iter().sum::<usize>() + gaps).saturating_sub(line);
    for turn in [Turn::Ids, Turn::Names, Turn::Words] {
        while surplus > 0 {
            let giving = head.iter().zip(widths.iter_mut());
            let giving =
                giving.filter(|(head, width)| keeps(head).is_some_and(|(own, least)| own == turn && **width > least));
            let Some((_, widest)) = giving.max_by_key(|(_, width)| **width) else { break };
            (*widest, surplus) = (*widest - 1, surplus - 1);
        }
    }
}

/// When a column gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Ids,
    Names,
    Words,
}

/// When the column below a heading gives way, and how many characters it keeps. Times, numbers and states never do.
fn keeps(head: &str) -> Option<(Turn, usize)> {
    match head {
        "KEY" | "ARTICLE" | "CAUSED BY" | "EVENT" => Some((Turn::Ids, 8)),
        "HANDLER" | "TYPE" | "OPERATION" | "NAME" | "EVENTS" => Some((Turn::Names, 12)),
        "REASON" | "STATE" => Some((Turn::Words, 20)),
        _ => None,
    }
}

/// `cell` in at most `width` characters; one that is longer ends in `…`.
pub(super) fn cut(cell: &str, width: usize) -> std::borrow::Cow<'_, str> {
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
    fn on_a_terminal_ids_give_way_first_reasons_last_and_times_never() {
        let head = ["JOB", "STATUS", "OPERATION", "SINCE", "RUN AT", "REPLAYS", "ARTICLE", "REASON"];
        let wide = [4, 11, 9, 24, 24, 7, 36, 60];
        let narrowed = |line| {
            let mut widths = wide;
            narrow(&head, &mut widths, line);
            widths
        };
        assert_eq!(narrowed(200), wide);
        assert_eq!(narrowed(180), [4, 11, 9, 24, 24, 7, 27, 60]);
        assert_eq!(narrowed(150), [4, 11, 9, 24, 24, 7, 8, 49]);
        assert_eq!(narrowed(80), [4, 11, 9, 24, 24, 7, 8, 20], "then the line is longer than the terminal");
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
