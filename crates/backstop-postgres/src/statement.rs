//! The statement that takes a job in, as text: for every driver in every language, inside its own
//! transaction.

/// A statement and what its parameters are, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnqueueStatement {
    /// The text, with `$1`, `$2`, … for the parameters.
    pub text: String,
    /// Name and type of each parameter. Those after the third may be NULL: then they are as if they
    /// were not given.
    pub parameters: [(&'static str, &'static str); 9],
}

/// The statement for a schema, usually [`crate::SCHEMA`]. It answers the job's id; if another job
/// holds the unique key, that job's. Only whoever may call the function `enqueue` may run it.
pub fn enqueue_statement(schema: &str) -> EnqueueStatement {
    let schema = schema.replace('"', "\"\"");
    EnqueueStatement {
        text: format!(
            "SELECT \"{schema}\".enqueue($1, $2, $3::json, $4::timestamptz, coalesce($5, 'normal'), $6, $7::interval, \
             $8::json, coalesce($9::uuid, gen_random_uuid()))"
        ),
        parameters: [
            ("queue", "text"),
            ("kind", "text"),
            ("payload", "json"),
            ("run_at", "timestamptz"),
            ("priority", "text"),
            ("unique_key", "text"),
            ("unique_for", "interval"),
            ("retry", "json"),
            ("id", "uuid"),
        ],
    }
}
