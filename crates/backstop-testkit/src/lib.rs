//! How backstop is tested. Knows the port and the rules, and no store but the oracle.
//!
//! | where | what it is for |
//! |---|---|
//! | [`store_contract!`] | one line that runs every case of the port on a store |
//! | [`random`] | the same random operations on several stores, compared answer by answer |
//! | [`flaky`] | a store whose calls fail, get lost or take their time, by a seed |
//! | [`meters`] | what is told through the `metrics` facade, to be asserted |
//! | [`counted`] | a store that counts how often it was asked |
//! | [`parted`] | a store of which a part can be gone, as of a cluster |
//! | [`strict`] | a store that refuses the ends of some jobs |
//! | [`history`] | what producers and workers saw, checked against what the store ended up with |
//! | [`ordered`] | what processes that are killed do to ordered streams, and what must hold of it |
//! | [`simulator`] | the whole engine on virtual time, by a seed |
//! | [`model`] | calls and answers as values |
//! | [`servers`] | real PostgreSQL and Redis servers, and a network that fails |
//! | [`clock`] | a process whose clock is wrong until it compares it with the store's |
//! | [`given`] | jobs, claims and a clock moved by hand, in few words |

pub mod clock;
pub mod contract;
pub mod counted;
pub mod flaky;
mod forward;
pub mod given;
pub mod history;
pub mod meters;
pub mod model;
pub mod ordered;
pub mod parted;
pub mod random;
pub mod servers;
pub mod simulator;
pub mod strict;
