//! The address of a service: what it is, and how it is shown without what may be secret in it.

use super::InvalidHttp;
use reqwest::Url;
use std::fmt;
use std::net::IpAddr;

/// An `http://` or `https://` address. Its text, for debugging too, has neither user, password nor
/// values of its query.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TargetUrl(Url);

impl TargetUrl {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidHttp> {
        let url = Url::parse(text.trim())
            .map_err(|error| InvalidHttp::NotAnAddress(error.to_string()))?;
        if !is_web(&url) {
            return Err(InvalidHttp::Scheme);
        }
        Ok(Self(url))
    }

    /// As it was written, password and all: to be called, never to be shown.
    pub(super) fn url(&self) -> Url {
        self.0.clone()
    }

    pub(super) fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The address the host is, if it is not a name. Parsing has made all spellings of one the
    /// same: `0xa9fe.1` too.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        let host = self.0.host_str()?;
        host.strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
            .parse()
            .ok()
    }

    pub(super) fn join(&self, location: &str) -> Option<Self> {
        self.0.join(location).ok().filter(is_web).map(Self)
    }
}

fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = &self.0;
        write!(f, "{}://", url.scheme())?;
        if !url.username().is_empty() || url.password().is_some() {
            f.write_str("[redacted]@")?;
        }
        f.write_str(url.host_str().unwrap_or_default())?;
        if let Some(port) = url.port() {
            write!(f, ":{port}")?;
        }
        f.write_str(url.path())?;
        for (index, part) in url
            .query()
            .into_iter()
            .flat_map(|query| query.split('&'))
            .enumerate()
        {
            f.write_str(if index == 0 { "?" } else { "&" })?;
            match part.split_once('=') {
                Some((name, _)) => write!(f, "{name}=[redacted]")?,
                // Without a name it is all value: `?token`.
                None => f.write_str("[redacted]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for TargetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, shown: &str) {
        let target = TargetUrl::parse(text).unwrap();
        assert_eq!(target.to_string(), shown);
        assert_eq!(format!("{target:?}"), format!("Target({shown})"));
    }

    #[test]
    fn nothing_secret_is_shown() {
        check(
            "http://127.0.0.1:9000/detect",
            "http://127.0.0.1:9000/detect",
        );
        check(
            "https://ada:secret@example.org/a",
            "https://[redacted]@example.org/a",
        );
        check(
            "https://secret@example.org",
            "https://[redacted]@example.org/",
        );
        check(
            "https://:secret@example.org",
            "https://[redacted]@example.org/",
        );
        check(
            "https://h/a?key=secret&x=&secret",
            "https://h/a?key=[redacted]&x=[redacted]&[redacted]",
        );
        check("https://h/a?k=sec=ret#secret", "https://h/a?k=[redacted]");
        check("http://[::1]:80/@a", "http://[::1]/@a");
    }

    #[test]
    fn only_the_web_can_be_called_and_no_refusal_repeats_the_text() {
        for (text, expected) in [
            ("ftp://secret@h/", "only http:// and https://"),
            ("file:///etc/secret", "only http:// and https://"),
            ("gopher://h/secret", "only http:// and https://"),
            ("localhost:9000/secret", "only http:// and https://"),
            ("", "not an address"),
            ("secret", "not an address"),
            ("/secret", "not an address"),
            ("http://", "not an address"),
            ("http://a b/secret", "not an address"),
            ("http://h:99999/secret", "not an address"),
        ] {
            let message = TargetUrl::parse(text).expect_err(text).to_string();
            assert!(
                message.contains(expected) && !message.contains("secret"),
                "{text}: {message}"
            );
            assert!(
                message.contains("http://127.0.0.1:9000/detect"),
                "{message}"
            );
        }
    }

    #[test]
    fn every_spelling_of_a_number_is_recognised() {
        for (text, ip) in [
            ("http://169.254.169.254/", "169.254.169.254"),
            ("http://0xa9fea9fe/", "169.254.169.254"),
            ("http://2852039166/", "169.254.169.254"),
            ("http://0251.0376.0251.0376/", "169.254.169.254"),
            ("http://169.254.43518/", "169.254.169.254"),
            ("http://%31%36%39.254.169.254/", "169.254.169.254"),
            ("http://[::ffff:169.254.169.254]/", "::ffff:169.254.169.254"),
            ("http://[fe80::1]/", "fe80::1"),
        ] {
            assert_eq!(
                TargetUrl::parse(text).unwrap().ip(),
                Some(ip.parse().unwrap()),
                "{text}"
            );
        }
        assert_eq!(TargetUrl::parse("http://localhost/").unwrap().ip(), None);
        assert_eq!(
            TargetUrl::parse("http://169.254.169.254.nip.io/")
                .unwrap()
                .ip(),
            None
        );
    }
}
