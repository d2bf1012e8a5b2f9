//! Store wrappers in a few lines: every port method goes through one `pass` of the wrapper.
//!
//! A wrapper has a field `inner: Arc<dyn Store>` and a method
//! `async fn pass<T, F>(&self, doing: &'static str, call: impl Fn() -> F + Send) -> Answer<T>`,
//! which may call `call` not at all, once or several times.

/// Implements `Backlog`.
macro_rules! forward_backlog {
    ($wrapper:ty) => {
        crate::forward::forward_port!($wrapper, Backlog {
            enqueue(jobs: Vec<NewJob>, now: Time) -> Vec<Enqueued>;
            claim(claim: Claim, now: Time) -> Claimed;
            begin(leases: Vec<Lease>, now: Time) -> Vec<Lease>;
            settle(settlements: Vec<Settlement>, now: Time) -> Vec<Settled>;
            beat(beat: Beat, now: Time) -> Beaten;
            promote(max: usize, now: Time) -> Promoted;
            seize(seize: Seize, now: Time) -> Seizure;
        });
    };
}

/// Implements `Operator`.
macro_rules! forward_operator {
    ($wrapper:ty) => {
        crate::forward::forward_port!($wrapper, Operator {
            job(id: JobId, now: Time) -> Option<Job>;
            namesakes(id: JobId, now: Time) -> Vec<Job>;
            find(queue: QueueName, ids: Vec<JobId>, now: Time) -> Vec<Option<Job>>;
            jobs(query: PageQuery, now: Time) -> Page;
            amend(amendment: Amendment, now: Time) -> Amended;
            bury(burials: Vec<Burial>, now: Time) -> Vec<Enqueued>;
            holders(queue: QueueName, keys: Vec<UniqueKey>, now: Time) -> Vec<Option<KeyHolder>>;
            groups(query: GroupQuery, now: Time) -> Vec<Group>;
            set_bounds(queue: QueueName, bounds: Bounds, now: Time) -> ();
            declare_queues(queues: Vec<QueueName>) -> ();
            queues(now: Time) -> Vec<QueueStatus>;
            set_gate(queue: QueueName, gate: Gate, now: Time) -> ();
            workers(within: Span, now: Time) -> Vec<WorkerStatus>;
            expired_leases(before: Time) -> ExpiredLeases;
            prune(retention: Retention, now: Time) -> Pruned;
        });
    };
}

/// Implements `Cells`.
macro_rules! forward_cells {
    ($wrapper:ty) => {
        crate::forward::forward_port!($wrapper, Cells {
            cells(names: Vec<String>) -> Vec<Option<Cell>>;
            list_cells(query: CellQuery) -> Vec<Cell>;
            swap(swaps: Vec<Swap>) -> Vec<Swapped>;
        });
    };
}

/// Implements `Streams`.
macro_rules! forward_streams {
    ($wrapper:ty) => {
        crate::forward::forward_port!($wrapper, Streams {
            offer(stream: StreamName, records: Vec<Record>, now: Time) -> Vec<Offered>;
            take(take: Take, now: Time) -> Taken;
            keep(leases: Vec<KeyLease>, until: Time, now: Time) -> Vec<KeyLease>;
            advance(advances: Vec<Advance>, now: Time) -> Vec<Advanced>;
            streams() -> Vec<StreamStatus>;
            stream_keys(query: KeyQuery, now: Time) -> Vec<KeyStatus>;
            stream_key(stream: StreamName, key: StreamKey) -> Option<StoredKey>;
        });
    };
}

/// Implements `Store`, with the hints of a method `fn hints(&self) -> Box<dyn Hints>`.
macro_rules! forward_store {
    ($wrapper:ty) => {
        #[async_trait::async_trait]
        impl backstop_core::port::Store for $wrapper {
            async fn migrate(&self) -> backstop_core::port::Answer<backstop_core::port::Migrated> {
                self.pass("migrate", || self.inner.migrate()).await
            }

            async fn is_new(&self) -> backstop_core::port::Answer<bool> {
                self.pass("is_new", || self.inner.is_new()).await
            }

            async fn time(&self) -> backstop_core::port::Answer<backstop_core::Time> {
                self.pass("time", || self.inner.time()).await
            }

            fn watch(&self) -> Box<dyn backstop_core::port::Hints> {
                self.hints()
            }

            async fn examine(
                &self,
            ) -> backstop_core::port::Answer<backstop_core::port::Examination> {
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
                Bounds, Job, JobId, Lease, Leased, NewJob, QueueName, Span, StreamKey, StreamName, Time, port::*,
                stream::{Record, StoredKey}, unique::UniqueKey, verdict::Settlement,
            };

            #[async_trait::async_trait]
            impl $port for $wrapper {
                $(async fn $method(&self, $($argument: $type),*) -> Answer<$answer> {
                    self.pass(stringify!($method), || self.inner.$method($($argument.clone()),*)).await
                })*
            }
        };
    };
}

pub(crate) use {
    forward_backlog, forward_cells, forward_operator, forward_port, forward_store, forward_streams,
};
