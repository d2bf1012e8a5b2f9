use super::*;
use crate::wire::{Broken, Received};

fn read(text: &[u8]) -> Vec<(u64, Bytes)> {
    Lines::new(text).batch(usize::MAX).unwrap()
}

#[test]
fn lines_have_their_numbers_and_empty_ones_are_passed_over() {
    let lines = read(b"{\"a\":1}\n\n  \n{\"b\" :2}\r\nrubbish");
    let told: Vec<_> = lines
        .iter()
        .map(|(number, line)| (*number, str::from_utf8(line).unwrap()))
        .collect();
    assert_eq!(
        told,
        [(1, "{\"a\":1}"), (4, "{\"b\" :2}\r"), (5, "rubbish")]
    );
}

#[test]
fn a_trace_can_be_read_as_it_is() {
    let lines = read(b"{\"at_ms\":5,\"result\":{\"a\" : 1}}\n{\"at_ms\":6,\"hex\":\"7b22\"}\n");
    assert_eq!(
        lines,
        [
            (1, Bytes::from_static(b"{\"a\" : 1}")),
            (2, Bytes::from_static(b"{\""))
        ]
    );
}

#[test]
fn a_line_without_end_costs_its_neighbours_nothing() {
    let mut text = vec![b'x'; 3 * LINE_BYTES_MAX];
    text.extend_from_slice(b"\n{}\n");
    let lines = read(&text);
    assert_eq!(
        (lines.len(), &lines[1]),
        (2, &(2, Bytes::from_static(b"{}")))
    );
    let broken = Received::read(lines[0].1.clone()).expect_err("it is too long");
    assert_eq!(broken, Broken::TooLarge(LINE_BYTES_MAX));
}

#[test]
fn batches_go_on_where_the_last_one_ended() {
    let mut lines = Lines::new(&b"{}\n{}\n{}\n"[..]);
    let sizes: Vec<usize> = (0..3).map(|_| lines.batch(2).unwrap().len()).collect();
    assert_eq!(sizes, [2, 1, 0]);
}
