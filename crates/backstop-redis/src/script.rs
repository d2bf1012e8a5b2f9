//! Lua scripts. They are called by their hash; a server that does not know a script gets its
//! source.

use crate::keys::{KeyNames, QueueKey, absent_beside};
use backstop_core::QueueName;
use redis::{Cmd, ToRedisArgs};
use std::sync::LazyLock;

/// A script and its hash.
pub(crate) struct Script {
    source: &'static str,
    hash: String,
}

/// Each script, preceded by the library files that it needs. A script includes only those, because
/// Redis runs all of it on every call.
macro_rules! scripts {
    ($($name:ident: $($part:literal)* => $file:literal;)*) => {
        $(
            pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
                Script::new(concat!(
                    include_str!("lua/slices.lua"),
                    include_str!("lua/keys.lua"),
                    $(include_str!(concat!("lua/", $part, ".lua")),)*
                    include_str!(concat!("lua/", $file, ".lua")),
                ))
            });
        )*
    };
}

scripts! {
    AMEND: "record" "payloads" "places" "runs" "deaths" "unique" "claims" => "amend";
    BEAT: "record" => "beat";
    BEGIN: => "begin";
    BURY: "record" "payloads" => "bury";
    CARRY: "record" => "carry";
    CLAIM: "record" "places" "runs" "claims" "held" => "claim";
    DEPART: "record" "payloads" "deaths" "unique" => "depart";
    DISSOLVE: "runs" => "dissolve";
    ENQUEUE: "record" "payloads" "places" "runs" "deaths" "unique" => "enqueue";
    ERASE: "record" "payloads" "deaths" "claims" => "erase";
    EXPIRED: => "expired";
    FETCH: "record" "places" "held" => "fetch";
    FORGET: "record" "unused" => "forget";
    FORGET_MOVED: => "forget_moved";
    GROUPS: => "groups";
    HOLDERS: "record" "unique" => "holders";
    LOOK: "record" => "look";
    MARK: "record" => "mark";
    MEND_CLAIMS: "record" "places" "claims" "held" => "mend_claims";
    MEND_DEATHS: => "mend_deaths";
    MEND_JOBS: "record" "places" "runs" "unique" => "mend_jobs";
    MEND_LINE: "record" => "mend_line";
    MOVE_BACK: => "move_back";
    NEXT_READY: "runs" => "next_ready";
    NOTE_DEATHS: "deaths" => "note_deaths";
    PROMOTE: "record" "places" => "promote";
    PRUNE: "record" "payloads" "unique" "unused" => "prune";
    READY_COUNT: "runs" => "ready_count";
    RECEIVE: "record" "payloads" "places" "runs" "unique" => "receive";
    RECOUNT: => "recount";
    SEIZE: "record" "places" "claims" "held" => "seize";
    SETTLE: "record" "payloads" "places" "unique" "claims" => "settle";
    STATUS: "runs" => "status";
    TALLY: "record" "runs" => "tally";
    LOCATE: => "whereabouts";
}

/// Scripts that have their own keys and need no library files.
macro_rules! bare_scripts {
    ($($name:ident: $file:literal;)*) => {
        $(
            pub(crate) static $name: LazyLock<Script> =
                LazyLock::new(|| Script::new(include_str!(concat!("lua/", $file, ".lua"))));
        )*
    };
}

bare_scripts! {
    FIRST_DUE: "streams/first_due";
    LIST_CELLS: "list_cells";
    MEND_CELLS: "mend_cells";
    SWAP: "swap";
}

/// Scripts on a stream shard, each preceded by the library files that it needs.
macro_rules! shard_scripts {
    ($($name:ident: $($part:literal)* => $file:literal;)*) => {
        $(
            pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
                Script::new(concat!(
                    include_str!("lua/slices.lua"),
                    include_str!("lua/streams/shard.lua"),
                    $(include_str!(concat!("lua/streams/", $part, ".lua")),)*
                    include_str!(concat!("lua/streams/", $file, ".lua")),
                ))
            });
        )*
    };
}

shard_scripts! {
    ADVANCE: "kept" "extended" => "advance";
    DUE: => "due";
    GIVE_BACK: => "give_back";
    HOLDING_KEYS: => "holding_keys";
    KEEP: "extended" => "keep";
    MEND_HEADS: "kept" => "mend_heads";
    MEND_INDEX: => "mend_index";
    MEND_RECORDS: "kept" => "mend_records";
    OFFER: => "offer";
    SHARD_STATUS: => "shard_status";
    STREAM_KEY: "window" => "stream_key";
    TAKE: "kept" "window" => "take";
}

/// The capacity reserved for the head of a call: its keys and its hash.
const HEAD_BYTES: usize = 2_048;

impl Script {
    fn new(source: &'static str) -> Self {
        Self {
            source,
            hash: redis::Script::new(source).get_hash().to_owned(),
        }
    }

    /// A call of this script on a queue.
    pub(crate) fn on(&'static self, keys: &KeyNames, queue: &QueueName) -> ScriptCall {
        self.with(&QueueKey::ALL.map(|part| keys.part(queue, part)))
    }

    /// A call of this script on these keys, which share a hash tag.
    ///
    /// It names one more key, which never exists. While a cluster slot moves, Redis does not start
    /// a script that names a key it does not have. It would start a script of whose keys it has
    /// all. If such a script emptied a key and came back to it, Redis would look for the key on the
    /// other master and abort the script with half of its changes made.
    pub(crate) fn with(&'static self, keys: &[String]) -> ScriptCall {
        let absent = keys.first().map(|key| absent_beside(key));
        let mut command = Cmd::with_capacity(keys.len() + 4, HEAD_BYTES);
        command
            .arg("EVALSHA")
            .arg(&self.hash)
            .arg(keys.len() + usize::from(absent.is_some()));
        for key in keys.iter().chain(&absent) {
            command.arg(key);
        }
        ScriptCall {
            script: self,
            command,
        }
    }
}

/// A script call with its arguments.
pub(crate) struct ScriptCall {
    script: &'static Script,
    pub(crate) command: Cmd,
}

impl ScriptCall {
    /// The same call with the source of the script. Redis routes it by its keys, and the server
    /// there knows the script from then on.
    pub(crate) fn whole(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(self.script.source);
        for arg in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = arg {
                command.arg(bytes);
            }
        }
        command
    }

    #[must_use]
    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds one argument of bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.command.arg(bytes);
    }
}
