//! The HTTP server: an engine that speaks HTTP/1 and knows nothing of articles, and what is served through it.

pub mod engine;
