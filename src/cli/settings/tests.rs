//! Layers, the file's faults, what is printed, and the example file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Settings;
use super::flags::Given;
use super::outcome::{FileText, SettingsError};
use super::table::TABLE;

const EXAMPLE: &str = "vayu-articles.example.toml";

fn load(flags: &[(&'static str, &str)], variables: &[(&str, &str)], file: &str) -> Result<Settings, SettingsError> {
    let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
    let file = FileText { path: PathBuf::from("vayu.toml"), text: file.to_owned() };
    Settings::layered(&Given::of(flags), &variable, Some(&file))
}

fn fault(file: &str) -> String {
    load(&[], &[], file).expect_err(file).to_string()
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = "[server]\nthreads = 2\nconnections = 2\nrequest_queue = 2\n";
    let variables = [("VAYU_THREADS", "3"), ("VAYU_CONNECTIONS", "3"), ("VAYU_READERS", "")];
    let settings = load(&[("threads", "5")], &variables, file).expect("good settings");
    let got = (settings.threads.0, settings.connections.0, settings.request_queue.0, settings.readers.0);
    assert_eq!(got, (5, 3, 2, 4));
    let place = |flag| settings.outcome(flag).expect("a setting").place();
    assert_eq!(place("threads"), "flag, --threads");
    assert_eq!(place("connections"), "environment, VAYU_CONNECTIONS");
    assert_eq!(place("request-queue"), "file, line 4");
    assert_eq!(place("readers"), "default", "a variable that is set to nothing is not set");
}

#[test]
fn a_key_that_is_no_setting_is_an_error_with_its_line_and_a_suggestion() {
    assert_eq!(
        fault("data = \"x\"\n\n[server]\nthread = 4\n"),
        "vayu.toml, line 4: server.thread is no setting; did you mean server.threads?"
    );
    assert_eq!(fault("[servr]\nx = 4\n"), "vayu.toml, line 1: servr is no setting; did you mean server?");
    assert_eq!(fault("addr = \"x\"\n"), "vayu.toml, line 1: addr is no setting; did you mean server.addr?");
    assert!(fault("[server]\n\nzzzzzzzzzzzzzzzz = 1").contains("--print-config"));
    assert!(fault(&format!("{} = 1", "y".repeat(100_000))).contains("is no setting"));
}

#[test]
fn a_wrong_value_or_file_is_an_error_with_its_line() {
    assert!(
        fault("[server]\nmax_body = \"16MB\"").starts_with("vayu.toml, line 2: server.max_body is \"16MB\": write")
    );
    assert!(fault("[server]\nthreads = 0").contains("line 2"));
    assert!(fault("[server]\nthreads = [1]").contains("takes a single value"));
    assert!(fault("server = 1").contains("is a section"));
    assert!(fault("[server]\n[server.threads]\nx = 1").contains("takes a single value"));
    assert!(fault("data = \"a\"\ndata = \"b\"").contains("line 2"));
    assert!(fault("data = \"a").contains("line 1: no TOML"));
    let error = load(&[], &[("VAYU_KEEP", "7")], "").expect_err("no unit").to_string();
    assert!(error.starts_with("VAYU_KEEP is \"7\": write"), "{error}");
}

#[test]
fn settings_that_need_each_other_are_checked_together() {
    for (flags, needed) in [
        (&[("cdn", "http://cdn/")][..], "--site"),
        (&[("cdn-token", "t"), ("site", "http://e.org")], "--cdn"),
        (&[("cdn-again", "21s")], "--cdn-again"),
        (&[("max-body", "65MiB")], "--max-bodies"),
        (&[("backoff", "3m")], "--backoff-max"),
    ] {
        let error = load(flags, &[], "").expect_err(needed).to_string();
        assert!(error.contains(needed), "{error}");
    }
}

#[test]
fn a_cdn_setting_that_cannot_work_is_named_by_its_flag() {
    let given = |more: &[(&'static str, &str)]| {
        let flags: Vec<_> =
            [("cdn", "http://cache:6081/"), ("site", "https://e.org")].iter().chain(more).copied().collect();
        load(&flags, &[], "").and_then(|settings| Ok((settings.cdn()?, settings.edge()?)))
    };
    let (lanes, edge) = given(&[("cdn-shape", "keys"), ("cdn-ttl", "10m")]).expect("good settings");
    assert!(lanes.is_some_and(|lanes| lanes.again.is_some()) && edge.is_some());
    let (lanes, _) = given(&[("cdn-again", "off")]).expect("good settings");
    assert!(lanes.is_some_and(|lanes| lanes.again.is_none()));
    for (flag, text) in [
        ("cdn-key-header", "a b"),
        ("cdn-method", "GET"),
        ("cdn-shape", "xkey"),
        ("cdn-again", "0s"),
        ("cdn-ttl", "10"),
    ] {
        let error = given(&[(flag, text)]).expect_err(text).to_string();
        assert!(error.contains(&format!("--{flag}")), "{error}");
    }
    let error = given(&[("cdn-shape", "ban"), ("cdn", "http://cache/path")]).expect_err("a path").to_string();
    assert!(error.starts_with("--cdn must have no path"), "{error}");
    let unset = load(&[], &[], "").expect("good settings");
    assert!(unset.cdn().expect("none").is_none() && unset.edge().expect("none").is_none());
}

#[test]
fn what_is_printed_leads_to_the_same_settings_and_hides_secrets() {
    let flags = [("data", "C:\\my \"data\"\n"), ("cdn", "http://cdn/"), ("site", "https://e.org"), ("log", "off")];
    let settings = load(&flags, &[("VAYU_CDN_TOKEN", "s3cret")], "[server]\nthreads = 0x10").expect("good settings");
    let printed = settings.print();
    assert!(!printed.contains("s3cret"), "{printed}");
    assert!(printed.contains("# token is set and not shown (environment, VAYU_CDN_TOKEN)"), "{printed}");
    assert!(printed.contains("threads = 16 ") && printed.contains("# file, line 2"), "{printed}");
    let again = load(&[], &[("VAYU_CDN_TOKEN", "s3cret")], &printed).expect("a settings file");
    for (one, other) in settings.outcomes.iter().zip(&again.outcomes) {
        assert_eq!(one.text, other.text, "{}", one.row.key);
    }
}

#[test]
fn every_setting_has_names_of_its_own_that_fit_each_other_and_a_default_that_is_right() {
    let mut names = BTreeSet::new();
    for row in TABLE {
        assert_eq!(row.variable, format!("VAYU_{}", row.flag.replace('-', "_").to_uppercase()), "{}", row.flag);
        assert!(names.insert(row.flag) && names.insert(row.variable), "{}", row.flag);
        assert!(row.key == row.flag || names.insert(row.key), "{}", row.key);
        assert_eq!((row.check)(row.default), Ok(()), "{}", row.flag);
        assert!(!row.help.is_empty() && !row.help.ends_with('.'), "{}", row.flag);
    }
}

/// With UPDATE_EXAMPLE=1 in the environment the file is written instead.
#[test]
fn the_example_file_has_every_setting_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(EXAMPLE);
    if std::env::var_os("UPDATE_EXAMPLE").is_some() {
        std::fs::write(&path, example()).expect("written");
    }
    let text = std::fs::read_to_string(&path).expect("the example file");
    assert_eq!(text, example(), "{EXAMPLE} is out of step; UPDATE_EXAMPLE=1 with this test writes it anew");
    let unset = |line: &str| line.starts_with('#') && !line.starts_with("# ");
    let all: String = text.lines().map(|line| format!("{}\n", if unset(line) { &line[1..] } else { line })).collect();
    for (name, text) in [("as it is", &text), ("with every line in force", &all)] {
        let settings = load(&[], &[], text).expect(name);
        assert_eq!(settings.keep, Duration::from_secs(7 * 86_400), "{name}");
        assert!(settings.outcomes.iter().all(|outcome| outcome.text == outcome.row.default), "{name}");
    }
}

fn example() -> String {
    let mut text = "\
# Settings of vayu-articles, each with its default: take away the `#` before a name and write what you want.
#
#   vayu-articles serve --config vayu-articles.toml
#   vayu-articles serve --config vayu-articles.toml --print-config     (shows the outcome and where each came from)
#
# A flag counts before a variable of the environment, which counts before this file. Times are whole numbers with a unit
# (ms, s, m, h, d), sizes are bytes or have a unit (KiB, MiB, GiB). A name that is no setting is an error.
"
    .to_owned();
    let mut section = "";
    for row in TABLE {
        let (in_section, name) = row.key.rsplit_once('.').unwrap_or(("", row.key));
        if in_section != section {
            section = in_section;
            text += &format!("\n[{section}]\n");
        }
        let number = !row.default.is_empty() && row.default.bytes().all(|byte| byte.is_ascii_digit());
        let quote = if number || row.default == "true" || row.default == "false" { "" } else { "\"" };
        text +=
            &format!("\n# {} (--{}, {})\n#{name} = {quote}{}{quote}\n", row.help, row.flag, row.variable, row.default);
    }
    text
}
