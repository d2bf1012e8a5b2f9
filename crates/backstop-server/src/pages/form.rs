//! What a form sent.

use super::failure::PageFailure;
use super::view::PageView;
use crate::App;
use axum::extract::{FromRequest, FromRequestParts, RawForm, Request};
use axum::response::{IntoResponse, Response};
use backstop::audit::{AuditReason, InvalidAuditReason};

/// The fields of a form, in their order; a name may come several times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostedForm(Vec<(String, String)>);

impl PostedForm {
    /// The first value of a field; an empty one is none.
    pub fn get(&self, name: &str) -> Option<&str> {
        let named = self.0.iter().filter(|(key, _)| key == name);
        named
            .map(|(_, value)| value.trim())
            .find(|value| !value.is_empty())
    }

    /// The same to the letter: a name that begins or ends with a space is another name than one
    /// without it.
    pub fn get_exact(&self, name: &str) -> Option<&str> {
        let named = self.0.iter().filter(|(key, _)| key == name);
        named
            .map(|(_, value)| value.as_str())
            .find(|value| !value.is_empty())
    }

    /// All values of a field.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// A field that must be there, read as `T`.
    pub fn read<T>(&self, view: &PageView, name: &str) -> Result<T, PageFailure>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        let text = self
            .get(name)
            .ok_or_else(|| view.bad(format!("The field `{name}` is missing.")))?;
        text.parse().map_err(|error| view.bad(error))
    }
}

impl PostedForm {
    /// The reason that is given, if one is.
    pub fn reason(&self, view: &PageView) -> Result<Option<AuditReason>, PageFailure> {
        self.get("reason")
            .map(str::parse)
            .transpose()
            .map_err(|error: InvalidAuditReason| view.bad(error))
    }
}

impl FromRequest<App> for PostedForm {
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let Ok(view) = PageView::from_request_parts(&mut parts, app).await;
        match RawForm::from_request(Request::from_parts(parts, body), app).await {
            Ok(RawForm(bytes)) => Ok(Self(form_urlencoded::parse(&bytes).into_owned().collect())),
            Err(rejection) => Err(view.bad(rejection).into_response()),
        }
    }
}
