//! Sessions of the dashboard: a random id in a cookie, its hash in the store, good for as long as the token that opened it.

use super::secret::{Fingerprint, Secret, version};
use backstop::{Backstop, Span, Time};
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Answer, Cell, CellQuery, StoreError, Swap, Swapped};
use serde::{Deserialize, Serialize};

/// Sessions a store keeps; those that end first make room.
const SESSIONS_MAX: usize = 900;
/// How the ids of sessions begin.
const PREFIX: &str = "session_";
/// How the names of their cells begin.
const CELLS: &str = "session/";

/// A session as its cell keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Session {
    /// The id of the token that opened it.
    pub(super) token: String,
    /// When it ends.
    pub(super) expires_at: Time,
}

/// Opens one for the holder of a token; answers the id, which only the cookie has.
pub(super) async fn open(backstop: &Backstop, token: &str, good_for: Span) -> Answer<Secret> {
    make_room(backstop).await?;
    let (secret, expires_at) = (Secret::draw(PREFIX), backstop.now().after(good_for));
    let session = Session { token: token.to_owned(), expires_at };
    let value =
        serde_json::to_vec(&session).map_err(|error| StoreError::misuse("opening a session", error))?;
    let swap = Swap { name: cell_name(secret.reveal()), seen: None, version: version(), value: Some(value) };
    match backstop.store().swap(vec![swap]).await?.pop() {
        Some(Swapped::Applied) => Ok(secret),
        _ => Err(StoreError::unavailable("opening a session", "its id is taken; log in once more")),
    }
}

/// The session of this id, if it has not ended.
pub(super) async fn find(backstop: &Backstop, id: &str) -> Answer<Option<Session>> {
    if !id.starts_with(PREFIX) {
        return Ok(None);
    }
    let cell = backstop.store().cells(vec![cell_name(id)]).await?.pop().flatten();
    let session = cell.as_ref().and_then(read);
    Ok(session.filter(|session| backstop.now() < session.expires_at))
}

/// Ends the session of this id, if there is one.
pub(super) async fn close(backstop: &Backstop, id: &str) -> Answer<()> {
    let cell = backstop.store().cells(vec![cell_name(id)]).await?.pop().flatten();
    remove(backstop, cell.iter()).await
}

/// Removes those that have ended, and those that end first where there are too many.
async fn make_room(backstop: &Backstop) -> Answer<()> {
    let query = CellQuery { prefix: CELLS.to_owned(), after: None, limit: CELLS_MAX };
    let cells = backstop.store().list_cells(query).await?;
    let now = backstop.now();
    let end = |cell: &Cell| read(cell).map_or(Time::from_micros(0), |session| session.expires_at);
    let mut by_end: Vec<&Cell> = cells.iter().collect();
    by_end.sort_by_key(|cell| end(cell));
    let over = by_end.len().saturating_sub(SESSIONS_MAX);
    let goes = |(at, cell): &(usize, &Cell)| *at < over || end(cell) <= now;
    remove(backstop, by_end.iter().copied().enumerate().filter(goes).map(|(_, cell)| cell)).await
}

async fn remove(backstop: &Backstop, cells: impl Iterator<Item = &Cell>) -> Answer<()> {
    let removal = |cell: &Cell| Swap {
        name: cell.name.clone(),
        seen: Some(cell.version),
        version: version(),
        value: None,
    };
    let swaps: Vec<Swap> = cells.map(removal).collect();
    if !swaps.is_empty() {
        backstop.store().swap(swaps).await?;
    }
    Ok(())
}

fn cell_name(id: &str) -> String {
    format!("{CELLS}{}", Fingerprint::of(id).to_hex())
}

fn read(cell: &Cell) -> Option<Session> {
    serde_json::from_slice(&cell.value).ok()
}
