//! Cells: small values that processes share and change by compare-and-set.

use crate::given::Scene;
use backstop_core::limits::{CELL_BYTES_MAX, CELL_NAME_BYTES_MAX};
use backstop_core::port::{Cell, CellSwap, ListCellsRequest, Store, StoreError, SwapOutcome};
use std::sync::Arc;

fn swap(name: &str, seen: Option<i64>, version: i64, value: Option<&str>) -> CellSwap {
    CellSwap {
        name: name.to_owned(),
        seen,
        version,
        value: value.map(|value| value.as_bytes().to_vec()),
    }
}

fn cell(name: &str, version: i64, value: &str) -> Cell {
    Cell {
        name: name.to_owned(),
        version,
        value: value.as_bytes().to_vec(),
    }
}

async fn swapped(scene: &Scene, swap: CellSwap) -> SwapOutcome {
    scene
        .store
        .swap(vec![swap])
        .await
        .expect("the store answers")
        .remove(0)
}

async fn read(scene: &Scene, name: &str) -> Option<Cell> {
    scene
        .store
        .cells(vec![name.to_owned()])
        .await
        .expect("the store answers")
        .remove(0)
}

/// Only a caller that knows the latest version changes a cell; any other caller gets the current
/// value.
pub async fn a_cell_is_changed_only_by_who_has_seen_it(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    assert_eq!(read(&scene, "a").await, None);
    assert_eq!(
        swapped(&scene, swap("a", Some(1), 2, Some("x"))).await,
        SwapOutcome::Conflict(None)
    );
    assert_eq!(
        swapped(&scene, swap("a", None, 1, Some("one"))).await,
        SwapOutcome::Applied
    );
    assert_eq!(read(&scene, "a").await, Some(cell("a", 1, "one")));
    let standing = Some(cell("a", 1, "one"));
    assert_eq!(
        swapped(&scene, swap("a", None, 9, Some("x"))).await,
        SwapOutcome::Conflict(standing.clone())
    );
    assert_eq!(
        swapped(&scene, swap("a", Some(7), 9, None)).await,
        SwapOutcome::Conflict(standing)
    );
    assert_eq!(
        swapped(&scene, swap("a", Some(1), i64::MIN, Some(""))).await,
        SwapOutcome::Applied
    );
    assert_eq!(read(&scene, "a").await, Some(cell("a", i64::MIN, "")));
    assert_eq!(
        swapped(&scene, swap("a", Some(i64::MIN), 3, None)).await,
        SwapOutcome::Applied
    );
    assert_eq!(read(&scene, "a").await, None);
}

/// A repeated swap is applied once, and gets the same answer.
pub async fn a_repeated_change_is_applied_once(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    for change in [
        swap("a", None, 1, Some("one")),
        swap("a", Some(1), 2, Some("two")),
        swap("a", Some(2), 3, None),
    ] {
        assert_eq!(swapped(&scene, change.clone()).await, SwapOutcome::Applied);
        assert_eq!(swapped(&scene, change).await, SwapOutcome::Applied);
    }
    assert_eq!(read(&scene, "a").await, None);
}

/// One call may swap several cells, in the order given; each swap has its own answer.
pub async fn changes_of_one_call_stand_alone(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let swaps = vec![
        swap("a", None, 1, Some("one")),
        swap("a", None, 2, Some("late")),
        swap("b", None, 3, Some("three")),
        swap("a", Some(1), 4, Some("four")),
    ];
    let answers = scene.store.swap(swaps).await.expect("the store answers");
    let conflict = SwapOutcome::Conflict(Some(cell("a", 1, "one")));
    assert_eq!(
        answers,
        [
            SwapOutcome::Applied,
            conflict,
            SwapOutcome::Applied,
            SwapOutcome::Applied
        ]
    );
    let names = ["b", "none", "a"].map(str::to_owned).to_vec();
    let read = scene.store.cells(names).await.expect("the store answers");
    assert_eq!(
        read,
        [
            Some(cell("b", 3, "three")),
            None,
            Some(cell("a", 4, "four"))
        ]
    );
}

/// Of many concurrent swaps from the same version, one wins.
pub async fn of_many_changes_at_once_one_wins(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    assert_eq!(
        swapped(&scene, swap("a", None, 1, Some("0"))).await,
        SwapOutcome::Applied
    );
    let tries = (0..32).map(|n: i64| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let change = swap("a", Some(1), 100 + n, Some(&n.to_string()));
            (
                n,
                store
                    .swap(vec![change])
                    .await
                    .expect("the store answers")
                    .remove(0),
            )
        })
    });
    let mut winners = Vec::new();
    for one in tries.collect::<Vec<_>>() {
        let (n, answer) = one.await.expect("nobody panics");
        winners.extend((answer == SwapOutcome::Applied).then_some(n));
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(
        read(&scene, "a").await,
        Some(cell("a", 100 + winners[0], &winners[0].to_string()))
    );
}

/// Cells are listed page by page, ordered by the bytes of their names.
pub async fn cells_are_listed_by_name(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let names = [
        "breaker/b",
        "breaker/a",
        "breaker/ä",
        "breaker",
        "breakers",
        "audit/1",
        "breaker/A",
    ];
    for (version, name) in (1..).zip(names) {
        assert_eq!(
            swapped(&scene, swap(name, None, version, Some("x"))).await,
            SwapOutcome::Applied
        );
    }
    let listed = async |prefix: &str, after: Option<&str>, limit| {
        let query = ListCellsRequest {
            prefix: prefix.to_owned(),
            after: after.map(str::to_owned),
            limit,
        };
        let cells = scene
            .store
            .list_cells(query)
            .await
            .expect("the store answers");
        cells.into_iter().map(|cell| cell.name).collect::<Vec<_>>()
    };
    assert_eq!(
        listed("breaker/", None, 10).await,
        ["breaker/A", "breaker/a", "breaker/b", "breaker/ä"]
    );
    assert_eq!(
        listed("breaker/", None, 2).await,
        ["breaker/A", "breaker/a"]
    );
    assert_eq!(
        listed("breaker/", Some("breaker/a"), 2).await,
        ["breaker/b", "breaker/ä"]
    );
    assert_eq!(listed("breaker/", Some("a"), 1).await, ["breaker/A"]);
    assert_eq!(listed("breaker/", Some("c"), 9).await, Vec::<String>::new());
    assert_eq!(listed("", None, 0).await, ["audit/1"]);
    assert_eq!(listed("none", None, 9).await, Vec::<String>::new());
}

/// A value may be any bytes up to the limit; a larger one is misuse.
pub async fn a_cell_has_its_limits(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let value: Vec<u8> = (0..CELL_BYTES_MAX).map(|n| (n % 256) as u8).collect();
    let name = "n".repeat(CELL_NAME_BYTES_MAX);
    let full = CellSwap {
        name: name.clone(),
        seen: None,
        version: 1,
        value: Some(value.clone()),
    };
    assert_eq!(swapped(&scene, full).await, SwapOutcome::Applied);
    assert_eq!(
        read(&scene, &name).await,
        Some(Cell {
            name: name.clone(),
            version: 1,
            value
        })
    );
    let over = [
        CellSwap {
            name: "a".to_owned(),
            seen: None,
            version: 1,
            value: Some(vec![0; CELL_BYTES_MAX + 1]),
        },
        swap(&format!("{name}n"), None, 1, Some("x")),
        swap("", None, 1, Some("x")),
        swap("a\0b", None, 1, Some("x")),
    ];
    for change in over {
        assert!(matches!(
            scene.store.swap(vec![change]).await,
            Err(StoreError::Misuse { .. })
        ));
    }
}
