use backstop_core::port::Store;
use backstop_memory::MemoryStore;
use std::fs;
use std::path::Path;
use std::sync::Arc;

#[test]
fn every_case_is_in_the_list() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let list = fs::read_to_string(source.join("contract.rs")).expect("the list is there");
    let mut cases = 0;
    for file in fs::read_dir(source.join("contract")).expect("the cases are there") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("a case can be read");
        for line in text
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn "))
        {
            let (case, _) = line.split_once('(').expect("a case takes a store");
            let listed = list.lines().filter(|listed| listed.trim() == case).count();
            assert_eq!(listed, 1, "{case} belongs into `store_contract!`, once");
            cases += 1;
        }
    }
    assert!(
        cases > 90,
        "{cases} cases found: are they written in another way now?"
    );
}

/// The forms in which a factory may give its store; the test is that they compile.
mod forms {
    use super::*;

    async fn case(store: Arc<dyn Store>) {
        store.migrate().await.expect("memory has its shape");
    }

    fn shared() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new())
    }

    #[test]
    fn a_factory_gives_a_store_with_or_without_a_guard() {
        crate::contract::run(|| async { MemoryStore::new() }, case);
        crate::contract::run(|| async { (MemoryStore::new(), "guard".to_owned()) }, case);
        crate::contract::run(|| async { shared() }, case);
        crate::contract::run(|| async { (shared(), vec![1]) }, case);
    }
}
