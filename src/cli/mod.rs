//! The command line.
#![allow(dead_code)]

mod dates;
mod front_matter;
mod markdown_files;
