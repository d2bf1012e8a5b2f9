//! Adopted tables on SQLite, PostgreSQL and MariaDB: the same rows are due, and the same becomes of
//! them.

#[path = "../databases/mod.rs"]
mod databases;

mod check;
mod claims;
mod dates;
mod due;
mod expired;
mod ground;
mod handlers;
mod locks;
mod names;
mod places;
mod rows;
mod tls;
mod worker;
