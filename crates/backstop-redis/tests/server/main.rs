//! What only a server can do: restart, fail over, be full of other settings, be damaged by hand.

mod failover;
mod outage;
mod place;
mod repair;
mod settings;
mod size;
mod tls;
