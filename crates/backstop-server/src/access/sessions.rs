//! Sessions of the dashboard: a random id in a cookie, its hash in the store, good for as long as
//! the token that opened it.

use super::secret::{Secret, SecretHash, random_version};
use backstop::{Backstop, Span, Time};
use backstop_core::limits::CELLS_MAX;
use backstop_core::port::{Cell, CellSwap, ListCellsRequest, StoreError, StoreResult, SwapOutcome};
use serde::{Deserialize, Serialize};

/// Sessions a store keeps; those that end first make room.
const SESSIONS_MAX: usize = 900;
/// Sessions of one token; those that end first make room, so that whoever logs in again and again
/// logs out nobody else.
const TOKEN_SESSIONS_MAX: usize = 20;
/// How the ids of sessions begin.
const PREFIX: &str = "session_";
/// How the names of their cells begin.
const CELL_PREFIX: &str = "session/";

/// A session as its cell keeps it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LoginSession {
    /// The id of the token that opened it.
    pub(super) token: String,
    pub(super) expires_at: Time,
}

/// Opens one for the holder of a token; answers the id, which only the cookie has.
pub(super) async fn open(backstop: &Backstop, token: &str, good_for: Span) -> StoreResult<Secret> {
    make_room(backstop, token).await?;
    let (secret, expires_at) = (Secret::generate(PREFIX), backstop.now().after(good_for));
    let session = LoginSession {
        token: token.to_owned(),
        expires_at,
    };
    let value = serde_json::to_vec(&session)
        .map_err(|error| StoreError::misuse("opening a session", error))?;
    let swap = CellSwap {
        name: cell_name(secret.reveal()),
        seen: None,
        version: random_version(),
        value: Some(value),
    };
    match backstop.store().swap(vec![swap]).await?.pop() {
        Some(SwapOutcome::Applied) => Ok(secret),
        _ => Err(StoreError::unavailable(
            "opening a session",
            "its id is taken; log in once more",
        )),
    }
}

/// The session of this id, if it has not ended.
pub(super) async fn find(backstop: &Backstop, id: &str) -> StoreResult<Option<LoginSession>> {
    if !id.starts_with(PREFIX) {
        return Ok(None);
    }
    let cell = backstop
        .store()
        .cells(vec![cell_name(id)])
        .await?
        .pop()
        .flatten();
    let session = cell.as_ref().and_then(parse_session);
    Ok(session.filter(|session| backstop.now() < session.expires_at))
}

/// Ends the session of this id, if there is one.
pub(super) async fn close(backstop: &Backstop, id: &str) -> StoreResult<()> {
    let cell = backstop
        .store()
        .cells(vec![cell_name(id)])
        .await?
        .pop()
        .flatten();
    remove(backstop, cell.iter()).await
}

/// Removes those that have ended, and those that end first where there are too many for one more:
/// of this token, or in all.
async fn make_room(backstop: &Backstop, token: &str) -> StoreResult<()> {
    let query = ListCellsRequest {
        prefix: CELL_PREFIX.to_owned(),
        after: None,
        limit: CELLS_MAX,
    };
    let cells = backstop.store().list_cells(query).await?;
    let surplus = select_surplus(
        cells
            .iter()
            .map(|cell| (cell, parse_session(cell)))
            .collect(),
        token,
        backstop.now(),
    );
    remove(backstop, surplus.into_iter()).await
}

fn select_surplus<T>(sessions: Vec<(T, Option<LoginSession>)>, token: &str, now: Time) -> Vec<T> {
    let is_alive = |session: &Option<LoginSession>| {
        session
            .as_ref()
            .is_some_and(|session| now < session.expires_at)
    };
    let (mut alive, ended): (Vec<_>, Vec<_>) = sessions
        .into_iter()
        .partition(|(_, session)| is_alive(session));
    alive.sort_by_key(|(_, session)| session.as_ref().map(|session| session.expires_at));
    let is_own = |session: &Option<LoginSession>| {
        session
            .as_ref()
            .is_some_and(|session| session.token == token)
    };
    let own = alive.iter().filter(|(_, session)| is_own(session)).count();
    let mut own_surplus = (own + 1).saturating_sub(TOKEN_SESSIONS_MAX);
    let mut over = (alive.len() + 1).saturating_sub(SESSIONS_MAX);
    let mut is_surplus = |session: &Option<LoginSession>| {
        let goes = over > 0 || own_surplus > 0 && is_own(session);
        over = over.saturating_sub(usize::from(goes));
        own_surplus = own_surplus.saturating_sub(usize::from(goes && is_own(session)));
        goes
    };
    let surplus = alive
        .into_iter()
        .filter(|(_, session)| is_surplus(session))
        .map(|(one, _)| one);
    ended
        .into_iter()
        .map(|(one, _)| one)
        .chain(surplus)
        .collect()
}

async fn remove(backstop: &Backstop, cells: impl Iterator<Item = &Cell>) -> StoreResult<()> {
    let removal = |cell: &Cell| CellSwap {
        name: cell.name.clone(),
        seen: Some(cell.version),
        version: random_version(),
        value: None,
    };
    let swaps: Vec<CellSwap> = cells.map(removal).collect();
    if !swaps.is_empty() {
        backstop.store().swap(swaps).await?;
    }
    Ok(())
}

fn cell_name(id: &str) -> String {
    format!("{CELL_PREFIX}{}", SecretHash::of(id).to_hex())
}

fn parse_session(cell: &Cell) -> Option<LoginSession> {
    serde_json::from_slice(&cell.value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which go, of sessions of these tokens that end one after another.
    fn check(tokens: &[&str], token: &str, expected: &[usize]) {
        let session = |(at, token): (usize, &&str)| {
            let expires_at = Time::from_millis(1_000 + i64::try_from(at).unwrap());
            (
                at,
                Some(LoginSession {
                    token: (*token).to_owned(),
                    expires_at,
                }),
            )
        };
        let sessions = tokens.iter().enumerate().map(session).collect();
        assert_eq!(
            select_surplus(sessions, token, Time::from_millis(0)),
            expected
        );
    }

    #[test]
    fn a_token_pushes_out_its_own_sessions_first() {
        let mut tokens = vec!["b", "b", "b"];
        tokens.extend(["a"; TOKEN_SESSIONS_MAX - 1]);
        check(&tokens, "a", &[]);
        tokens.push("a");
        check(&tokens, "a", &[3]);
        check(&tokens, "b", &[]);
    }

    #[test]
    fn where_all_is_full_those_that_end_first_go() {
        let names: Vec<String> = (0..SESSIONS_MAX).map(|n| format!("t{}", n / 10)).collect();
        let tokens: Vec<&str> = names.iter().map(String::as_str).collect();
        check(&tokens, "new", &[0]);
        check(&tokens[1..], "new", &[]);
    }

    #[test]
    fn what_has_ended_or_cannot_be_read_goes() {
        let ended = LoginSession {
            token: "a".to_owned(),
            expires_at: Time::from_millis(5),
        };
        let alive = LoginSession {
            token: "a".to_owned(),
            expires_at: Time::from_millis(6),
        };
        let sessions = vec![(0, Some(alive)), (1, Some(ended)), (2, None)];
        assert_eq!(select_surplus(sessions, "a", Time::from_millis(5)), [1, 2]);
    }
}
