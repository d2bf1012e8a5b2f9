//! The names of workers elsewhere, counted: a name costs its caller nothing and the store a row, so
//! that it has a bound.

use backstop_core::limits::{WORKER_NAME_KEPT, WORKERS_MAX, WORKERS_OF_CALLER_MAX};
use backstop_core::{Time, WorkerName};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The names that callers of this server used lately.
#[derive(Debug, Default)]
pub(crate) struct WorkerNames(Mutex<BTreeMap<Arc<str>, BTreeMap<WorkerName, Time>>>);

/// There are as many names as there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum TooManyWorkerNames {
    #[error(
        "this token has used {WORKERS_OF_CALLER_MAX} worker names within the hour, and this is another one"
    )]
    OfCaller,
    #[error(
        "this server has heard {WORKERS_MAX} worker names within the hour, and this is another one"
    )]
    OfAll,
}

impl WorkerNames {
    /// Notes that a caller uses a name; refuses a new name beyond the bounds.
    pub(crate) fn note(
        &self,
        caller: &Arc<str>,
        worker: &WorkerName,
        now: Time,
    ) -> Result<(), TooManyWorkerNames> {
        // A map of times: any state of it is a good state.
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = callers
            .get_mut(caller)
            .and_then(|names| names.get_mut(worker))
        {
            *seen = now;
            return Ok(());
        }
        let of_all: usize = callers.values().map(BTreeMap::len).sum();
        let of_caller = callers.get(caller).map_or(0, BTreeMap::len);
        if of_all >= WORKERS_MAX || of_caller >= WORKERS_OF_CALLER_MAX {
            forget_old(&mut callers, now);
        }
        let of_all: usize = callers.values().map(BTreeMap::len).sum();
        let names = callers.entry(Arc::clone(caller)).or_default();
        if names.len() >= WORKERS_OF_CALLER_MAX {
            return Err(TooManyWorkerNames::OfCaller);
        }
        if of_all >= WORKERS_MAX {
            return Err(TooManyWorkerNames::OfAll);
        }
        names.insert(worker.clone(), now);
        Ok(())
    }
}

fn forget_old(callers: &mut BTreeMap<Arc<str>, BTreeMap<WorkerName, Time>>, now: Time) {
    for names in callers.values_mut() {
        names.retain(|_, seen| now.since(*seen) < WORKER_NAME_KEPT);
    }
    callers.retain(|_, names| !names.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::Span;

    fn note(
        names: &WorkerNames,
        caller: &str,
        worker: usize,
        now: Time,
    ) -> Result<(), TooManyWorkerNames> {
        names.note(&caller.into(), &WorkerName::new(&format!("w{worker}")), now)
    }

    #[test]
    fn a_caller_uses_so_many_names_and_a_name_is_free_an_hour_after_its_last_call() {
        let (names, start) = (WorkerNames::default(), Time::from_millis(0));
        for worker in 0..WORKERS_OF_CALLER_MAX {
            note(&names, "a", worker, start).unwrap();
        }
        let later = start.after(WORKER_NAME_KEPT).before(Span::secs(1));
        assert_eq!(
            note(&names, "a", 9_999, later),
            Err(TooManyWorkerNames::OfCaller)
        );
        assert_eq!(
            note(&names, "a", 7, later),
            Ok(()),
            "a name that is known goes on"
        );
        assert_eq!(
            note(&names, "b", 9_999, later),
            Ok(()),
            "others have names of their own"
        );
        let after = start.after(WORKER_NAME_KEPT);
        assert_eq!(note(&names, "a", 9_999, after), Ok(()));
        assert_eq!(
            names.0.lock().unwrap()["a"].len(),
            2,
            "what was silent for an hour is forgotten"
        );
    }

    #[test]
    fn all_callers_together_use_so_many_names() {
        let (names, now) = (WorkerNames::default(), Time::from_millis(0));
        for worker in 0..WORKERS_MAX {
            note(&names, &format!("c{}", worker / 500), worker, now).unwrap();
        }
        assert_eq!(
            note(&names, "other", 0, now),
            Err(TooManyWorkerNames::OfAll)
        );
        assert_eq!(note(&names, "c3", 1_500, now), Ok(()));
    }
}
