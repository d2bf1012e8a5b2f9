//! Where it is measured: a file, a schema or keys of its own, so that nobody's jobs are touched,
//! and how they are removed.

use super::server::{self, UnlinkResult};
use anyhow::{Context, Result};
use backstop::core::amend::{AmendAction, Selection};
use backstop::core::limits::AMEND_MAX;
use backstop::core::port::AmendJobsRequest;
use backstop::{Backstop, OpenError, StoreAddress, StoreKind};
use std::path::Path;
use tempfile::TempDir;

pub(super) struct BenchStore {
    kind: StoreKind,
    /// As the user named it; our own file if nobody did.
    named: StoreAddress,
    measured: StoreAddress,
    /// For files; on the disk of the store, if that is one.
    folder: TempDir,
    /// The schema, or the prefix of keys, that is ours.
    name: String,
    leaves: StoreCleanup,
}

/// What has to be removed at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StoreCleanup {
    /// Nothing that the folder does not take along.
    Nothing,
    /// Schemas with all that is in them.
    Schemas,
    Keys,
}

impl BenchStore {
    /// At `named`, or on the disk of the current folder.
    pub(super) fn choose(named: Option<&StoreAddress>) -> Result<Self> {
        let beside = named
            .and_then(StoreAddress::sqlite_file)
            .and_then(Path::parent);
        let beside = beside
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let folder = tempfile::tempdir_in(beside).with_context(|| {
            format!(
                "no folder for the measurements could be made in {}",
                beside.display()
            )
        })?;
        // No other run that goes on now has this name, and none has a name that begins with it.
        let name = format!("backstop_bench_{:010}", std::process::id());
        let own = StoreAddress::new(format!(
            "sqlite:{}",
            folder.path().join("bench.db").display()
        ));
        let named = named.cloned().unwrap_or_else(|| own.clone());
        let kind = named
            .kind()
            .ok_or_else(|| OpenError::UnknownStore(named.clone()))?;
        let (measured, leaves) = match kind {
            StoreKind::Memory => (named.clone(), StoreCleanup::Nothing),
            StoreKind::Sqlite => (own, StoreCleanup::Nothing),
            StoreKind::Postgres => (named.with_parameter("schema", &name), StoreCleanup::Schemas),
            StoreKind::Redis => (named.with_parameter("prefix", &name), StoreCleanup::Keys),
        };
        Ok(Self {
            kind,
            named,
            measured,
            folder,
            name,
            leaves,
        })
    }

    /// The kind of store that is measured.
    pub(super) const fn kind(&self) -> StoreKind {
        self.kind
    }

    /// The store as the user named it.
    pub(super) const fn named(&self) -> &StoreAddress {
        &self.named
    }

    pub(super) const fn measured(&self) -> &StoreAddress {
        &self.measured
    }

    /// A folder that is gone afterwards.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The schema, or the prefix of keys, for raw loops.
    pub(super) fn raw_name(&self) -> String {
        format!("{}_raw", self.name)
    }

    /// Waits until what was written before is written: it is not to be on its way to the disk while
    /// something else is measured.
    pub(super) async fn calm(&self) -> Result<()> {
        written().await?;
        match self.kind {
            StoreKind::Redis => server::rewritten(&self.named).await,
            StoreKind::Memory | StoreKind::Sqlite | StoreKind::Postgres => Ok(()),
        }
    }

    /// Leaves the store as it was.
    pub(super) async fn clean_up(&self, backstop: &Backstop) -> Result<()> {
        match self.leaves {
            StoreCleanup::Nothing => Ok(()),
            StoreCleanup::Schemas => self.drop_schemas().await,
            StoreCleanup::Keys => {
                // Where nobody but the store finds the keys, their jobs are gone at least.
                match server::unlink_all(&self.named, &self.name).await? {
                    UnlinkResult::All => Ok(()),
                    UnlinkResult::Nothing => clear(backstop).await,
                }
            }
        }
    }

    async fn drop_schemas(&self) -> Result<()> {
        let client = server::connect(&self.named).await?;
        server::drop_schema(&client, &self.name).await?;
        server::drop_schema(&client, &self.raw_name()).await
    }
}

/// Waits until what was written is on the disk.
async fn written() -> Result<()> {
    Ok(tokio::task::spawn_blocking(rustix::fs::sync).await?)
}

async fn clear(backstop: &Backstop) -> Result<()> {
    let (selection, action) = (Selection::All, AmendAction::Delete);
    let mut amendment = AmendJobsRequest {
        selection,
        action,
        only: None,
        cursor: None,
        max: AMEND_MAX,
    };
    loop {
        amendment.cursor = backstop
            .store()
            .amend(amendment.clone(), backstop.now())
            .await?
            .next;
        if amendment.cursor.is_none() {
            return Ok(());
        }
    }
}
