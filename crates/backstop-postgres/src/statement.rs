//! The statement that enqueues a job, as text: for every driver in every language, inside its own
//! transaction.

/// The text of a statement and its parameters, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnqueueStatement {
    /// The SQL text, with `$1`, `$2`, … for the parameters.
    pub text: String,
    /// Name and type of each parameter. Those after the third may be NULL, and then have their
    /// defaults.
    pub parameters: [(&'static str, &'static str); 9],
}

/// Builds the statement for a schema, usually [`crate::SCHEMA`]. It returns the job's id, or that
/// of the other job that holds the unique key. Its role needs the right to execute the function
/// `enqueue`.
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
