//! Scripts: called by their hash, and loaded into a server that does not know them.

use crate::keys::{Keys, Part};
use backstop_core::QueueName;
use redis::{Cmd, ToRedisArgs};
use std::sync::LazyLock;

/// A script and its hash.
pub(crate) struct Script {
    source: &'static str,
    hash: String,
}

macro_rules! scripts {
    ($($name:ident: $file:literal,)*) => {
        $(
            pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
                Script::new(concat!(include_str!("lua/shared.lua"), include_str!(concat!("lua/", $file))))
            });
        )*
    };
}

scripts! {
    AMEND: "amend.lua",
    BEAT: "beat.lua",
    BEGIN: "begin.lua",
    CLAIM: "claim.lua",
    ENQUEUE: "enqueue.lua",
    EXPIRED: "expired.lua",
    FETCH: "fetch.lua",
    LOOK: "look.lua",
    MEND_CLAIMS: "mend_claims.lua",
    MEND_JOBS: "mend_jobs.lua",
    MEND_LINE: "mend_line.lua",
    PROMOTE: "promote.lua",
    PRUNE: "prune.lua",
    SEIZE: "seize.lua",
    SETTLE: "settle.lua",
    STATUS: "status.lua",
    TALLY: "tally.lua",
}

/// Bytes set aside for the head of a call: its keys and hash.
const HEAD_BYTES: usize = 2_048;

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }

    /// A call of the script on a queue.
    pub(crate) fn on(&'static self, keys: &Keys, queue: &QueueName) -> ScriptCall {
        let mut command = Cmd::with_capacity(Part::ALL.len() + 3, HEAD_BYTES);
        command.arg("EVALSHA").arg(&self.hash).arg(Part::ALL.len());
        for part in Part::ALL {
            command.arg(keys.part(queue, part));
        }
        ScriptCall { script: self, command }
    }

    /// What makes a server know the script.
    pub(crate) fn load(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("SCRIPT").arg("LOAD").arg(self.source);
        command
    }
}

/// A call of a script, with its arguments.
pub(crate) struct ScriptCall {
    pub(crate) script: &'static Script,
    pub(crate) command: Cmd,
}

impl ScriptCall {
    /// One more argument.
    #[must_use]
    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// One more argument of bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.command.arg(bytes);
    }
}
