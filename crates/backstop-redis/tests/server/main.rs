//! What only a server can do: restart, fail over, be full of other settings, be damaged by hand.

mod cluster_parts;
mod dead;
mod failover;
mod group;
mod ids;
mod moves;
mod outage;
mod place;
mod repair;
mod settings;
mod size;
mod streams;
mod tls;
#[path = "../user/mod.rs"]
mod user;
