//! Store wrappers in a few lines: every port method goes through one `pass` of the wrapper.
//!
//! A wrapper has a field `inner: Arc<dyn Store>` and a method
//! `async fn pass<T, F>(&self, doing: &'static str, call: impl Fn() -> F + Send) ->
//! StoreResult<T>`, which may call `call` not at all, once or several times.

/// Implements `JobStore`.
macro_rules! forward_backlog {
    ($wrapper:ty) => {
        crate::forward::forward_port!($wrapper, JobStore {
            enqueue(jobs: Vec<NewJob>, now: Time) -> Vec<EnqueueOutcome>;
            claim(claim: Claim, now: Time) -> ClaimResult;
            begin(leases: Vec<Lease>, now: Time) -> Vec<Lease>;
            settle(settlements: Vec<Settlement>, now: Time) -> Vec<SettleOutcome>;
            beat(beat: BeatRequest, now: Time) -> BeatResult;
            promote(max: usize, now: Time) -> PromoteResult;
            seize(seize: SeizeRequest, now: Time) -> SeizeResult;
        });
    };
}

/// Implements `OperatorStore`.
macro_rules! forward_operator {
    ($wrapper:ty) => {
        crate::forward::forward_port!($wrapper, OperatorStore {
            job(id: JobId, now: Time) -> Option<Job>;
            locate(id: JobId, now: Time) -> Vec<Job>;
            find(queue: QueueName, ids: Vec<JobId>, now: Time) -> Vec<Option<Job>>;
            jobs(query: ListJobsRequest, now: Time) -> ListJobsResult;
            amend(amendment: AmendJobsRequest, now: Time) -> AmendResult;
            bury(burials: Vec<NewDeadLetter>, now: Time) -> Vec<EnqueueOutcome>;
            unique_holders(queue: QueueName, keys: Vec<UniqueKey>, now: Time) -> Vec<Option<UniqueKeyHolder>>;
            groups(query: ListGroupsRequest, now: Time) -> Vec<DeadLetterGroup>;
            set_bounds(queue: QueueName, bounds: QueueBounds, now: Time) -> ();
            declare_queues(queues: Vec<QueueName>) -> ();
            queues(now: Time) -> Vec<QueueStatus>;
            set_queue_state(queue: QueueName, gate: QueueState, now: Time) -> ();
            workers(within: Span, now: Time) -> Vec<WorkerStatus>;
            expired_leases(before: Time) -> ExpiredLeases;
            prune(retention: PruneRequest, now: Time) -> PruneResult;
        });
    };
}

/// Implements `CellStore`.
macro_rules! forward_cells {
    ($wrapper:ty) => {
        crate::forward::forward_port!($wrapper, CellStore {
            cells(names: Vec<String>) -> Vec<Option<Cell>>;
            list_cells(query: ListCellsRequest) -> Vec<Cell>;
            swap(swaps: Vec<CellSwap>) -> Vec<SwapOutcome>;
        });
    };
}

/// Implements `StreamStore`.
macro_rules! forward_streams {
    ($wrapper:ty) => {
        crate::forward::forward_port!($wrapper, StreamStore {
            offer(stream: StreamName, records: Vec<Record>, now: Time) -> Vec<OfferOutcome>;
            take(take: TakeRequest, now: Time) -> TakeResult;
            keep(leases: Vec<KeyLease>, until: Time, now: Time) -> Vec<KeyLease>;
            advance(advances: Vec<KeyAdvance>, now: Time) -> Vec<AdvanceOutcome>;
            streams() -> Vec<StreamStatus>;
            stream_keys(query: ListKeysRequest, now: Time) -> Vec<KeyStatus>;
            stream_key(stream: StreamName, key: StreamKey) -> Option<StoredKey>;
        });
    };
}

/// Implements `Store`, with the hints of a method `fn hints(&self) -> Box<dyn HintSubscription>`.
macro_rules! forward_store {
    ($wrapper:ty) => {
        #[async_trait::async_trait]
        impl backstop_core::port::Store for $wrapper {
            async fn migrate(
                &self,
            ) -> backstop_core::port::StoreResult<backstop_core::port::MigrationResult> {
                self.pass("migrate", || self.inner.migrate()).await
            }

            async fn is_new(&self) -> backstop_core::port::StoreResult<bool> {
                self.pass("is_new", || self.inner.is_new()).await
            }

            async fn time(&self) -> backstop_core::port::StoreResult<backstop_core::Time> {
                self.pass("time", || self.inner.time()).await
            }

            fn watch(&self) -> Box<dyn backstop_core::port::HintSubscription> {
                self.hints()
            }

            async fn examine(
                &self,
            ) -> backstop_core::port::StoreResult<backstop_core::port::ExaminationReport> {
                self.pass("examine", || self.inner.examine()).await
            }
        }
    };
}

/// Implements one trait of the port, method by method.
macro_rules! forward_port {
    ($wrapper:ty, $port:ident { $($method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)* }) => {
        const _: () = {
            #[allow(unused_imports, reason = "each trait of the port uses its own part of them")]
            use backstop_core::{
                QueueBounds, Job, JobId, Lease, LeasedRun, NewJob, QueueName, Span, StreamKey, StreamName, Time, port::*,
                stream::{Record, StoredKey}, unique::UniqueKey, verdict::Settlement,
            };

            #[async_trait::async_trait]
            impl $port for $wrapper {
                $(async fn $method(&self, $($argument: $type),*) -> StoreResult<$answer> {
                    self.pass(stringify!($method), || self.inner.$method($($argument.clone()),*)).await
                })*
            }
        };
    };
}

pub(crate) use {
    forward_backlog, forward_cells, forward_operator, forward_port, forward_store, forward_streams,
};
