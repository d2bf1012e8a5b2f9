use super::*;

fn check(name: &str, expected: Option<&str>) {
    let variable = |variable: &'static str| {
        let value = match variable {
            POSTGRES_VARIABLE => "/old/bin",
            REDIS_VARIABLE => "/old/redis",
            _ => return None,
        };
        Some(value.into())
    };
    let program = chosen(name, variable).map(|(_, program)| program.display().to_string());
    assert_eq!(program.as_deref(), expected, "{name}");
    assert_eq!(chosen(name, |_| None), None, "{name}: nobody chose one");
}

#[test]
fn servers_are_chosen_and_clients_are_not() {
    check("postgres", Some("/old/bin/postgres"));
    check("initdb", Some("/old/bin/initdb"));
    check("psql", None);
    check("redis-server", Some("/old/redis"));
    check("redis-cli", None);
    check("pgbouncer", None);
}

#[test]
fn a_chosen_program_that_is_missing_is_named_with_its_variable() {
    let missing =
        absolute(REDIS_VARIABLE, Path::new("/nowhere/redis-server")).expect_err("it is not there");
    let said = missing.to_string();
    assert!(
        said.contains(REDIS_VARIABLE) && said.contains("/nowhere/redis-server"),
        "{said}"
    );
}
