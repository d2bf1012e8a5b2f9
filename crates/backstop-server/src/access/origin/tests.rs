use super::*;

const OPEN: ServerOrigin<'_> = ServerOrigin {
    is_open: true,
    origins: &[],
};
const GUARDED: ServerOrigin<'_> = ServerOrigin {
    is_open: false,
    origins: &[],
};

fn told<'a>(host: &'a str, origin: Option<&'a str>) -> RequestOrigin<'a> {
    RequestOrigin {
        host: Some(host),
        origin,
        is_write: true,
        ..RequestOrigin::default()
    }
}

#[test]
fn programs_say_nothing_and_pass() {
    for here in [OPEN, GUARDED] {
        assert_eq!(
            check_origin(&told("127.0.0.1:7007", None), &here),
            Ok(OriginVerdict::Unstated)
        );
        assert_eq!(
            check_origin(&RequestOrigin::default(), &here),
            Ok(OriginVerdict::Unstated)
        );
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
            check_origin(&told(host, Some(origin)), &OPEN),
            Ok(OriginVerdict::Ours),
            "{host} {origin}"
        );
    }
}

#[test]
fn over_tls_a_page_that_came_in_the_open_is_not_ours() {
    let over_tls = |origin| RequestOrigin {
        is_encrypted: true,
        ..told("jobs.example.org", Some(origin))
    };
    for origin in [
        "http://jobs.example.org",
        "http://jobs.example.org:80",
        "HTTP://jobs.example.org",
    ] {
        assert_eq!(
            check_origin(&over_tls(origin), &GUARDED),
            Err(ForeignOrigin::Page),
            "{origin}"
        );
        let contradictory = RequestOrigin {
            site: Some("same-origin"),
            ..over_tls(origin)
        };
        assert_eq!(
            check_origin(&contradictory, &GUARDED),
            Err(ForeignOrigin::Page),
            "{origin}"
        );
    }
    for origin in ["https://jobs.example.org", "https://jobs.example.org:443"] {
        assert_eq!(
            check_origin(&over_tls(origin), &GUARDED),
            Ok(OriginVerdict::Ours),
            "{origin}"
        );
    }
    let configured = ["http://jobs.example.org".to_owned()];
    let here = ServerOrigin {
        is_open: false,
        origins: &configured,
    };
    assert_eq!(
        check_origin(&over_tls("http://jobs.example.org"), &here),
        Ok(OriginVerdict::Ours),
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
                let told = RequestOrigin {
                    is_write,
                    ..told("127.0.0.1:7007", Some(origin))
                };
                assert_eq!(
                    check_origin(&told, &here),
                    Err(ForeignOrigin::Page),
                    "{origin}"
                );
            }
        }
    }
}

#[test]
fn a_page_without_a_name_is_ours_only_if_the_browser_says_so() {
    for (site, expected) in [
        (Some("same-origin"), Ok(OriginVerdict::Ours)),
        (Some("none"), Err(ForeignOrigin::Page)),
        (Some("same-site"), Err(ForeignOrigin::Page)),
        (Some("cross-site"), Err(ForeignOrigin::Page)),
        (None, Err(ForeignOrigin::Page)),
    ] {
        for here in [OPEN, GUARDED] {
            let told = RequestOrigin {
                site,
                ..told("127.0.0.1:7007", Some("null"))
            };
            assert_eq!(check_origin(&told, &here), expected, "{site:?}");
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
            check_origin(&told(host, Some(&same)), &OPEN),
            Err(ForeignOrigin::Host),
            "{host}"
        );
        assert_eq!(
            check_origin(&told(host, None), &OPEN),
            Err(ForeignOrigin::Host),
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
            check_origin(&told(host, None), &OPEN),
            Ok(OriginVerdict::Unstated),
            "{host}"
        );
    }
    assert_eq!(
        check_origin(&told("evil.example", None), &GUARDED),
        Ok(OriginVerdict::Unstated),
        "a token decides there"
    );
}

#[test]
fn a_proxy_in_front_of_an_open_server_is_a_mistake() {
    let passed_on = RequestOrigin {
        is_forwarded: true,
        ..told("127.0.0.1:7007", None)
    };
    assert_eq!(
        check_origin(&passed_on, &OPEN),
        Err(ForeignOrigin::Forwarded)
    );
    assert_eq!(
        check_origin(&passed_on, &GUARDED),
        Ok(OriginVerdict::Unstated)
    );
}

#[test]
fn what_a_browser_says_of_the_site_counts() {
    let from = |site, is_write| RequestOrigin {
        site: Some(site),
        is_write,
        ..told("localhost:7007", None)
    };
    for site in ["same-origin", "none"] {
        assert_eq!(
            check_origin(&from(site, true), &OPEN),
            Ok(OriginVerdict::Ours)
        );
    }
    for site in ["cross-site", "same-site", "anything"] {
        assert_eq!(
            check_origin(&from(site, true), &OPEN),
            Err(ForeignOrigin::Page),
            "{site}"
        );
        assert_eq!(
            check_origin(&from(site, false), &OPEN),
            Err(ForeignOrigin::Page),
            "{site}: embedded"
        );
        let visit = RequestOrigin {
            mode: Some("navigate"),
            destination: Some("document"),
            ..from(site, false)
        };
        assert_eq!(
            check_origin(&visit, &OPEN),
            Ok(OriginVerdict::Ours),
            "{site}: a link is followed"
        );
        let posted = RequestOrigin {
            is_write: true,
            ..visit
        };
        assert_eq!(
            check_origin(&posted, &OPEN),
            Err(ForeignOrigin::Page),
            "{site}: a form is sent"
        );
        let framed = RequestOrigin {
            destination: Some("iframe"),
            ..visit
        };
        assert_eq!(
            check_origin(&framed, &OPEN),
            Err(ForeignOrigin::Page),
            "{site}: in a frame"
        );
    }
    let contradictory = RequestOrigin {
        origin: Some("http://localhost:7007"),
        ..from("cross-site", true)
    };
    assert_eq!(
        check_origin(&contradictory, &OPEN),
        Err(ForeignOrigin::Page)
    );
}

#[test]
fn behind_a_proxy_that_changes_the_host_the_configured_origins_are_ours() {
    let origins = ["https://jobs.example.org".to_owned()];
    let here = ServerOrigin {
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
            check_origin(&from(origin), &here),
            Ok(OriginVerdict::Ours),
            "{origin}"
        );
    }
    for origin in [
        "http://jobs.example.org",
        "https://x.jobs.example.org",
        "https://jobs.example.org:8443",
    ] {
        assert_eq!(
            check_origin(&from(origin), &here),
            Err(ForeignOrigin::Page),
            "{origin}"
        );
    }
}
