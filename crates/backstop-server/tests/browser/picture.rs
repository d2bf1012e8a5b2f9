//! Pictures of pages, for people: kept below the target folder, where nothing depends on them.

use crate::page::Page;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Characters of a picture's name.
const NAME_MAX: usize = 80;

impl Page {
    /// Keeps a picture of it as it is, under `look` and its path.
    pub(crate) fn keep(&self, look: &str) -> PathBuf {
        let address = self.address();
        let parts = address.split(['/', '?', '&']).skip(3);
        // The same name on every run.
        let parts = parts.map(|part| {
            if part.len() == 36 && part.matches('-').count() == 4 {
                "id"
            } else {
                part
            }
        });
        let path = parts.collect::<Vec<_>>().join("/");
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = path.chars().map(plain).take(NAME_MAX).collect();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("browser")
            .join(look);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(format!(
            "{}.png",
            if name.is_empty() { "overview" } else { &name }
        ));
        let shot = self.call(
            "Page.captureScreenshot",
            &json!({ "format": "png", "captureBeyondViewport": true }),
        );
        std::fs::write(&file, decoded(shot["data"].as_str().unwrap())).unwrap();
        file
    }
}

/// What a text in base 64 stands for.
fn decoded(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let value = |byte: u8| {
        digits
            .iter()
            .position(|digit| *digit == byte)
            .map(|at| u32::try_from(at).unwrap())
    };
    let values: Vec<u32> = text.bytes().filter_map(value).collect();
    let mut bytes = Vec::with_capacity(values.len() * 3 / 4);
    for four in values.chunks(4) {
        let whole =
            four.iter().fold(0, |whole, value| (whole << 6) | value) << (6 * (4 - four.len()));
        bytes.extend(&whole.to_be_bytes()[1..four.len()]);
    }
    bytes
}

#[test]
fn base_64_is_read() {
    for (text, bytes) in [
        ("", ""),
        ("Zg==", "f"),
        ("Zm8=", "fo"),
        ("Zm9v", "foo"),
        ("Zm9vYmFy", "foobar"),
    ] {
        assert_eq!(decoded(text), bytes.as_bytes(), "{text}");
    }
}
