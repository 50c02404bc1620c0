//! A look at the bytes as they arrive, for what hyper does not tell.
//!
//! A request with both `Content-Length` and `Transfer-Encoding` is the usual way to smuggle a second request past a
//! proxy. hyper drops the length before anybody sees it and goes on; here such a request is to be refused. So this
//! follows the framing of the byte stream just far enough to give a verdict on each request head, and to know whether
//! the stream rests between two requests. hyper remains the judge of syntax: what it refuses ends the connection, so
//! that this need not be right about it.

use std::collections::VecDeque;

/// How much of a line is kept: enough for the two fields that matter.
const LINE_BYTES_KEPT: usize = 256;

/// Follows one connection's incoming bytes.
#[derive(Debug, Default)]
pub(super) struct Framing {
    at: At,
    head: Head,
    line: Vec<u8>,
    /// Bytes of the newest head's first line, as far as it has arrived.
    first_line: usize,
    /// One for each complete head that has not been asked for: whether it has both fields.
    verdicts: VecDeque<bool>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In a request head, or before one.
    #[default]
    Head,
    /// This many bytes of a body of known length are to come.
    Body(u64),
    ChunkSize,
    /// This many bytes of a chunk, with its line end, are to come.
    Chunk(u64),
    Trailers,
    /// hyper will refuse this.
    Lost,
}

#[derive(Debug, Default)]
struct Head {
    lines: usize,
    length: Option<u64>,
    has_length: bool,
    has_encoding: bool,
}

impl Framing {
    /// Takes note of the next bytes.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.at {
                At::Lost => return,
                At::Body(left) => {
                    let (left, rest) = skip(left, bytes);
                    self.at = if left == 0 { At::Head } else { At::Body(left) };
                    rest
                }
                At::Chunk(left) => {
                    let (left, rest) = skip(left, bytes);
                    self.at = if left == 0 { At::ChunkSize } else { At::Chunk(left) };
                    rest
                }
                At::Head | At::ChunkSize | At::Trailers => self.follow_line(bytes),
            };
        }
    }

    /// The verdict on the next head: whether it has both `Content-Length` and `Transfer-Encoding`.
    pub(super) fn next_is_ambiguous(&mut self) -> bool {
        self.verdicts.pop_front().unwrap_or(false)
    }

    /// Whether part of a head has arrived.
    pub(super) fn in_head(&self) -> bool {
        self.at == At::Head && (self.head.lines > 0 || !self.line.is_empty())
    }

    /// How long the first line of the newest head is, as far as it has arrived.
    pub(super) fn first_line_bytes(&self) -> usize {
        self.first_line
    }

    /// Whether all that has arrived belongs to requests that were asked for, and they are complete.
    pub(super) fn at_rest(&self) -> bool {
        self.at == At::Head && !self.in_head() && self.verdicts.is_empty()
    }

    fn follow_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (part, rest) = end.map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 1..]));
        if self.at == At::Head && self.head.lines == 0 {
            if self.line.is_empty() {
                self.first_line = 0;
            }
            self.first_line += part.len();
        }
        let room = LINE_BYTES_KEPT - self.line.len();
        self.line.extend_from_slice(&part[..part.len().min(room)]);
        if end.is_some() {
            let mut line = std::mem::take(&mut self.line);
            let text = line.strip_suffix(b"\r").unwrap_or(&line);
            self.end_line(text);
            line.clear();
            self.line = line;
        }
        rest
    }

    fn end_line(&mut self, line: &[u8]) {
        match self.at {
            At::Head if line.is_empty() => self.end_head(),
            At::Head => self.head.take(line),
            At::ChunkSize => self.at = after_chunk_size(line),
            At::Trailers if line.is_empty() => self.at = At::Head,
            At::Trailers | At::Body(_) | At::Chunk(_) | At::Lost => {}
        }
    }

    fn end_head(&mut self) {
        let head = std::mem::take(&mut self.head);
        if head.lines == 0 {
            // An empty line before a request is passed over.
            return;
        }
        self.verdicts.push_back(head.has_length && head.has_encoding);
        self.at = match (head.has_encoding, head.has_length, head.length) {
            (true, _, _) => At::ChunkSize,
            (false, false, _) | (false, true, Some(0)) => At::Head,
            (false, true, Some(length)) => At::Body(length),
            (false, true, None) => At::Lost,
        };
    }
}

impl Head {
    fn take(&mut self, line: &[u8]) {
        self.lines += 1;
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            self.has_length = true;
            self.length = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.has_encoding = true;
        }
    }
}

fn after_chunk_size(line: &[u8]) -> At {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let size = std::str::from_utf8(&line[..digits]).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok());
    match size {
        Some(0) => At::Trailers,
        Some(size) => At::Chunk(size.saturating_add(2)),
        None => At::Lost,
    }
}

fn skip(left: u64, bytes: &[u8]) -> (u64, &[u8]) {
    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (left - taken as u64, &bytes[taken..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows `bytes` in pieces of `size`; the verdicts, and whether it rests at the end.
    fn verdicts(bytes: &[u8], size: usize) -> (Vec<bool>, bool) {
        let mut framing = Framing::default();
        bytes.chunks(size).for_each(|piece| framing.follow(piece));
        let verdicts = framing.verdicts.drain(..).collect();
        (verdicts, framing.at_rest())
    }

    #[test]
    fn each_head_in_a_stream_gets_its_verdict_however_it_is_cut() {
        let stream = b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\
            POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n\
            POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n\
            5;x=1\r\n\r\n\r\n\n\r\n10 \r\n0123456789abcdef\r\n0\r\nT: 1\r\n\r\n\
            POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n\
            GET / HTTP/1.1\nTransfer-Encoding: chunked\ncontent-length: 3\n\n0\r\n\r\n";
        for size in 1..stream.len() {
            assert_eq!(verdicts(stream, size), (vec![false, false, false, true, true], true), "in pieces of {size}");
        }
    }

    #[test]
    fn an_unfinished_request_is_not_at_rest() {
        for part in ["G", "GET / HTTP/1.1\r\n", "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc"] {
            let mut framing = Framing::default();
            framing.follow(part.as_bytes());
            framing.next_is_ambiguous();
            assert!(!framing.at_rest(), "{part:?}");
        }
    }

    #[test]
    fn nonsense_is_left_to_hyper() {
        for nonsense in [
            "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ] {
            let mut framing = Framing::default();
            framing.follow(nonsense.as_bytes());
            framing.follow(&[0xff; 10_000]);
            assert_eq!(framing.at, At::Lost);
        }
    }
}
