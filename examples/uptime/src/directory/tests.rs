use super::*;

#[test]
fn a_directory_comes_back_from_its_file_as_it_was() {
    let text = r#"{
        "regions": { "us": "active", "eu": "shadow", "ap": "inactive" },
        "organizations": [{ "id": 1, "has_uptime": true }, { "id": 2, "has_uptime": false }],
        "detectors": [{ "id": 5, "organization": 2, "enabled": true, "begins": "onboarding" }],
        "subscriptions": [
            { "id": "5421b5df80744113a6b57014f01a3a42", "interval_s": 60, "regions": { "us": "active" }, "detector": 5 },
            { "id": "00000000000000000000000000000007", "interval_s": 3600, "regions": {}, "host_provider": "cloud" }
        ]
    }"#;
    let directory = Directory::from_json(text).unwrap();
    assert_eq!(
        (directory.subscriptions.len(), directory.detectors.len()),
        (2, 1)
    );
    assert_eq!(
        Directory::from_json(&directory.to_json()).unwrap(),
        directory
    );
}

#[test]
fn a_directory_that_contradicts_itself_is_refused() {
    let check = |text: &str, expected: &str| {
        let error = Directory::from_json(text).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    let with = |organizations: &str, detectors: &str, subscriptions: &str| {
        format!(
            r#"{{"regions":{{}},"organizations":[{organizations}],"detectors":[{detectors}],"subscriptions":[{subscriptions}]}}"#
        )
    };
    let one = r#"{"id":1,"has_uptime":true}"#;
    let detector = r#"{"id":5,"organization":2,"enabled":true,"begins":"active"}"#;
    check(
        &with(&format!("{one},{one}"), "", ""),
        "two organizations with the id 1",
    );
    check(
        &with(one, detector, ""),
        "detector 5 belongs to organization 2",
    );
    let subscription = r#"{"id":"5421b5df80744113a6b57014f01a3a42","interval_s":90,"regions":{}}"#;
    check(
        &with(one, "", subscription),
        "an interval of 90 s; it must be one of [60, 300,",
    );
    check(
        &with(one, "", r#"{"id":1,"colour":"red"}"#),
        "line 1 column",
    );
}
