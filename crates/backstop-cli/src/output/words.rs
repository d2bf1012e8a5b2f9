//! Numbers and times as people read them: the same on the terminal and in pages.

pub(crate) use backstop_server::words::{
    about, bytes, count, counted, cut, instant, kind, one_line, relative, span, to_the_millisecond,
};
