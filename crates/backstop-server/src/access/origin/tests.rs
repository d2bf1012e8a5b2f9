use super::*;

const OPEN: Here<'_> = Here {
    is_open: true,
    origins: &[],
};
const GUARDED: Here<'_> = Here {
    is_open: false,
    origins: &[],
};

fn told<'a>(host: &'a str, origin: Option<&'a str>) -> Told<'a> {
    Told {
        host: Some(host),
        origin,
        is_write: true,
        ..Told::default()
    }
}

#[test]
fn programs_say_nothing_and_pass() {
    for here in [OPEN, GUARDED] {
        assert_eq!(
            judge(&told("127.0.0.1:7007", None), &here),
            Ok(Provenance::Unsaid)
        );
        assert_eq!(judge(&Told::default(), &here), Ok(Provenance::Unsaid));
    }
}

#[test]
fn our_own_page_is_known_by_its_origin() {
    for (host, origin) in [
        ("127.0.0.1:7007", "http://127.0.0.1:7007"),
        ("localhost:7007", "http://LOCALHOST:7007"),
        ("[::1]:7007", "http://[::1]:7007"),
        ("localhost", "http://localhost:80"),
        ("localhost:443", "https://localhost"),
    ] {
        assert_eq!(
            judge(&told(host, Some(origin)), &OPEN),
            Ok(Provenance::Ours),
            "{host} {origin}"
        );
    }
}

#[test]
fn over_tls_a_page_that_came_in_the_open_is_not_ours() {
    let over_tls = |origin| Told {
        is_encrypted: true,
        ..told("jobs.example.org", Some(origin))
    };
    for origin in [
        "http://jobs.example.org",
        "http://jobs.example.org:80",
        "HTTP://jobs.example.org",
    ] {
        assert_eq!(
            judge(&over_tls(origin), &GUARDED),
            Err(Stranger::Page),
            "{origin}"
        );
        let contradictory = Told {
            site: Some("same-origin"),
            ..over_tls(origin)
        };
        assert_eq!(
            judge(&contradictory, &GUARDED),
            Err(Stranger::Page),
            "{origin}"
        );
    }
    for origin in ["https://jobs.example.org", "https://jobs.example.org:443"] {
        assert_eq!(
            judge(&over_tls(origin), &GUARDED),
            Ok(Provenance::Ours),
            "{origin}"
        );
    }
    let configured = ["http://jobs.example.org".to_owned()];
    let here = Here {
        is_open: false,
        origins: &configured,
    };
    assert_eq!(
        judge(&over_tls("http://jobs.example.org"), &here),
        Ok(Provenance::Ours),
        "somebody said so"
    );
}

#[test]
fn a_foreign_page_is_turned_away_whatever_it_asks_for() {
    for origin in [
        "null",
        "",
        "https://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:3000",
        "http://127.0.0.1:7007.evil.example",
        "http://127.0.0.1:70070",
        "http://evil.example/127.0.0.1:7007",
        "file://127.0.0.1:7007",
        "127.0.0.1:7007",
        "http://user@127.0.0.1:7007",
    ] {
        for is_write in [true, false] {
            for here in [OPEN, GUARDED] {
                let told = Told {
                    is_write,
                    ..told("127.0.0.1:7007", Some(origin))
                };
                assert_eq!(judge(&told, &here), Err(Stranger::Page), "{origin}");
            }
        }
    }
}

#[test]
fn a_page_without_a_name_is_ours_only_if_the_browser_says_so() {
    for (site, expected) in [
        (Some("same-origin"), Ok(Provenance::Ours)),
        (Some("none"), Err(Stranger::Page)),
        (Some("same-site"), Err(Stranger::Page)),
        (Some("cross-site"), Err(Stranger::Page)),
        (None, Err(Stranger::Page)),
    ] {
        for here in [OPEN, GUARDED] {
            let told = Told {
                site,
                ..told("127.0.0.1:7007", Some("null"))
            };
            assert_eq!(judge(&told, &here), expected, "{site:?}");
        }
    }
}

#[test]
fn a_name_that_only_leads_here_is_not_this_machine() {
    for host in [
        "evil.example:7007",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "notlocalhost",
        "0.0.0.0:7007",
        "10.0.0.1",
        "[::]:7007",
        "2130706433",
        "",
    ] {
        let same = format!("http://{host}");
        assert_eq!(
            judge(&told(host, Some(&same)), &OPEN),
            Err(Stranger::Host),
            "{host}"
        );
        assert_eq!(
            judge(&told(host, None), &OPEN),
            Err(Stranger::Host),
            "{host}"
        );
    }
    for host in [
        "localhost",
        "jobs.localhost:1",
        "127.0.0.2:7007",
        "[::1]",
        "[::ffff:127.0.0.1]:1",
    ] {
        assert_eq!(
            judge(&told(host, None), &OPEN),
            Ok(Provenance::Unsaid),
            "{host}"
        );
    }
    assert_eq!(
        judge(&told("evil.example", None), &GUARDED),
        Ok(Provenance::Unsaid),
        "a token decides there"
    );
}

#[test]
fn a_proxy_in_front_of_an_open_server_is_a_mistake() {
    let passed_on = Told {
        is_forwarded: true,
        ..told("127.0.0.1:7007", None)
    };
    assert_eq!(judge(&passed_on, &OPEN), Err(Stranger::Forwarded));
    assert_eq!(judge(&passed_on, &GUARDED), Ok(Provenance::Unsaid));
}

#[test]
fn what_a_browser_says_of_the_site_counts() {
    let from = |site, is_write| Told {
        site: Some(site),
        is_write,
        ..told("localhost:7007", None)
    };
    for site in ["same-origin", "none"] {
        assert_eq!(judge(&from(site, true), &OPEN), Ok(Provenance::Ours));
    }
    for site in ["cross-site", "same-site", "anything"] {
        assert_eq!(
            judge(&from(site, true), &OPEN),
            Err(Stranger::Page),
            "{site}"
        );
        assert_eq!(
            judge(&from(site, false), &OPEN),
            Err(Stranger::Page),
            "{site}: embedded"
        );
        let visit = Told {
            mode: Some("navigate"),
            destination: Some("document"),
            ..from(site, false)
        };
        assert_eq!(
            judge(&visit, &OPEN),
            Ok(Provenance::Ours),
            "{site}: a link is followed"
        );
        let posted = Told {
            is_write: true,
            ..visit
        };
        assert_eq!(
            judge(&posted, &OPEN),
            Err(Stranger::Page),
            "{site}: a form is sent"
        );
        let framed = Told {
            destination: Some("iframe"),
            ..visit
        };
        assert_eq!(
            judge(&framed, &OPEN),
            Err(Stranger::Page),
            "{site}: in a frame"
        );
    }
    let contradictory = Told {
        origin: Some("http://localhost:7007"),
        ..from("cross-site", true)
    };
    assert_eq!(judge(&contradictory, &OPEN), Err(Stranger::Page));
}

#[test]
fn behind_a_proxy_that_changes_the_host_the_configured_origins_are_ours() {
    let origins = ["https://jobs.example.org".to_owned()];
    let here = Here {
        is_open: false,
        origins: &origins,
    };
    let from = |origin| told("10.0.0.7:7007", Some(origin));
    for origin in [
        "https://jobs.example.org",
        "https://jobs.example.org:443",
        "https://JOBS.example.org",
    ] {
        assert_eq!(
            judge(&from(origin), &here),
            Ok(Provenance::Ours),
            "{origin}"
        );
    }
    for origin in [
        "http://jobs.example.org",
        "https://x.jobs.example.org",
        "https://jobs.example.org:8443",
    ] {
        assert_eq!(judge(&from(origin), &here), Err(Stranger::Page), "{origin}");
    }
}
