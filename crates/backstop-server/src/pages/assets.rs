//! The style, the script and the icon: in the binary, under names that change with what is in them,
//! so that a browser keeps them for good.

use crate::App;
use axum::Router;
use axum::extract::Path;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::LazyLock;

/// A file in the binary.
pub(super) struct StaticAsset {
    name: &'static str,
    ending: &'static str,
    kind: &'static str,
    text: &'static str,
    hash: LazyLock<String>,
}

/// Colours and sizes, and what uses them.
const STYLE_TEXT: &str = concat!(
    include_str!("../../assets/tokens.css"),
    include_str!("../../assets/backstop.css")
);

pub(super) static STYLE: StaticAsset = StaticAsset {
    name: "backstop",
    ending: "css",
    kind: "text/css; charset=utf-8",
    text: STYLE_TEXT,
    hash: LazyLock::new(|| hash(STYLE_TEXT)),
};

pub(super) static SCRIPT: StaticAsset = StaticAsset {
    name: "backstop",
    ending: "js",
    kind: "text/javascript; charset=utf-8",
    text: include_str!("../../assets/backstop.js"),
    hash: LazyLock::new(|| hash(include_str!("../../assets/backstop.js"))),
};

pub(super) static ICON: StaticAsset = StaticAsset {
    name: "backstop",
    ending: "svg",
    kind: "image/svg+xml",
    text: include_str!("../../assets/backstop.svg"),
    hash: LazyLock::new(|| hash(include_str!("../../assets/backstop.svg"))),
};

impl StaticAsset {
    /// Its address, under the base.
    pub(super) fn path(&self) -> String {
        format!("/assets/{}", self.file())
    }

    fn file(&self) -> String {
        format!("{}.{}.{}", self.name, *self.hash, self.ending)
    }
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(8).fold(String::new(), |mut hash, byte| {
        let _ = write!(hash, "{byte:02x}");
        hash
    })
}

pub(super) fn routes() -> Router<App> {
    Router::new().route("/assets/{file}", get(serve))
}

async fn serve(Path(file): Path<String>) -> Response {
    let Some(asset) = [&STYLE, &SCRIPT, &ICON]
        .into_iter()
        .find(|asset| asset.file() == file)
    else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let kind = HeaderValue::from_static(asset.kind);
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, forever)], asset.text).into_response()
}
