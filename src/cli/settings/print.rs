//! `--print-config`: the settings as a file that would lead to the same.

use std::fmt::Write;

use super::outcome::Outcome;
use super::table::Settings;

impl Settings {
    /// The settings as TOML, each with where it came from. A secret is left out; whether it is set is said.
    pub(in crate::cli) fn print(&self) -> String {
        let mut text = String::from("# The settings of this run, and where each came from.\n");
        let mut section = "";
        for outcome in &self.outcomes {
            let (in_section, name) = outcome.row.key.rsplit_once('.').unwrap_or(("", outcome.row.key));
            if in_section != section {
                section = in_section;
                // Writing to a string cannot fail.
                let _ = writeln!(text, "\n[{section}]");
            }
            let _ = writeln!(text, "{}", line(name, outcome));
        }
        text
    }
}

fn line(name: &str, outcome: &Outcome) -> String {
    let place = outcome.place();
    if outcome.text.is_empty() {
        return format!("# {name} is not set");
    }
    if outcome.row.secret {
        return format!("# {name} is set and not shown ({place})");
    }
    format!("{:<30} # {place}", format!("{name} = {}", quoted(&outcome.text)))
}

/// `text` as a value of TOML.
fn quoted(text: &str) -> String {
    let number = !text.is_empty() && text.len() < 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    if (number && (text == "0" || !text.starts_with('0'))) || text == "true" || text == "false" {
        return text.to_owned();
    }
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
