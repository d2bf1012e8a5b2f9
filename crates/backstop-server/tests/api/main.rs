//! `/v1`, route by route: what it answers when all is well, and when it is not.

mod breakers;
mod dead;
mod given;
mod hostile;
mod jobs;
mod openapi;
mod push;
mod queues;
mod recovery;
mod sqlite;
mod streams;
mod work;
