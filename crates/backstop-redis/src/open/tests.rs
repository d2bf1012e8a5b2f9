use super::*;

fn parsed(text: &str) -> RedisAddress {
    RedisAddress::parse(text).expect("the address is good")
}

#[test]
fn an_address_says_where_who_and_what() {
    let address = parsed("redis://ada:p%40ss%2Fw%3F@example.net:7000/3?prefix=shop");
    assert_eq!(address.hosts, [("example.net".to_owned(), 7_000)]);
    assert_eq!(
        (address.user.as_deref(), address.password.as_deref()),
        (Some("ada"), Some("p@ss/w?"))
    );
    assert_eq!(
        (address.tls, address.topology),
        (TlsSetting::Off, ServerTopology::Server { db: 3 })
    );
    assert_eq!(address.prefix, "shop");
}

#[test]
fn what_is_not_said_is_usual() {
    let address = parsed("rediss://[::1]");
    assert_eq!(address.hosts, [("::1".to_owned(), 6_379)]);
    assert_eq!(
        (address.tls, address.topology),
        (TlsSetting::Verified, ServerTopology::Server { db: 0 })
    );
    assert_eq!(
        (address.user, address.password, address.prefix),
        (None, None, "backstop".to_owned())
    );
    assert_eq!(
        parsed("redis://:secret@h").password.as_deref(),
        Some("secret")
    );
}

#[test]
fn clusters_and_sentinels_have_several_hosts() {
    let cluster = parsed("rediss+cluster://a:1,b:2,c?ca=/etc/ca.pem&prefix=x");
    let hosts = [
        ("a".to_owned(), 1),
        ("b".to_owned(), 2),
        ("c".to_owned(), 6_379),
    ];
    assert_eq!(
        (cluster.topology, &cluster.hosts[..]),
        (ServerTopology::Cluster, &hosts[..])
    );
    assert_eq!(cluster.ca, Some("/etc/ca.pem".into()));
    let sentinel = parsed("redis+sentinel://a,b:2/mymaster/4");
    assert_eq!(
        sentinel.hosts,
        [("a".to_owned(), 26_379), ("b".to_owned(), 2)]
    );
    assert_eq!(
        sentinel.topology,
        ServerTopology::Sentinel {
            master: "mymaster".to_owned(),
            db: 4
        }
    );
}

fn refused(text: &str) -> String {
    open(text).err().expect("the address is wrong").to_string()
}

#[test]
fn what_is_wrong_is_said_with_what_to_write() {
    for (text, advice) in [
        ("localhost:6379", "redis://"),
        ("http://localhost", "redis://"),
        ("redis://", "host:port"),
        ("redis://h:x", "host:port"),
        ("redis://h:0", "host:port"),
        ("redis://a,b", "host:port"),
        ("redis://[::1", "host:port"),
        ("redis://h/x", "/DATABASE"),
        ("redis+cluster://h/1", "/DATABASE"),
        ("redis+sentinel://h", "/MASTER"),
        ("redis://h?prefix=", "?prefix=NAME"),
        ("redis://h?prefix=a:b", "?prefix=NAME"),
        ("redis://h?prefix=a{b}", "?prefix=NAME"),
        ("redis://h?ca=x", "ca=FILE"),
        ("redis://h?db=1", "prefix=NAME"),
        ("rediss://h?ca=/does/not/exist", "/does/not/exist"),
        ("redis://%zz@h", "%25"),
    ] {
        assert!(refused(text).contains(advice), "{text}: {}", refused(text));
    }
}

#[test]
fn a_password_is_never_shown() {
    for text in [
        "redis://u:hunter2@h:x",
        "redis://u:hun/hunter2@h:x",
        "redis://u:hun?hunter2@h:x",
        "redis://u:hunter2@h/x",
        "redis://u:hunter2%@h",
        "http://u:hunter2@h",
        "u:hunter2@h",
        "redis://u:hunter2@h?hunter2",
    ] {
        assert!(!refused(text).contains("hunter2"), "{}", refused(text));
    }
    let store = crate::RedisStore::open("redis://u:hunter2@h").expect("a good address");
    let shown = format!("{store:?}");
    assert!(
        shown.contains("h:6379") && !shown.contains("hunter2"),
        "{shown}"
    );
}
