//! The sections of the dashboard: their names, addresses, keys and pictures.

/// A section of the dashboard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageSection {
    Overview,
    Queues,
    /// Kinds, and how long their runs took.
    Kinds,
    Jobs,
    /// Dead letters, their groups and their redrives.
    Dead,
    Streams,
    Schedules,
    /// Sweeps and what they found.
    Sweeps,
    Tables,
    Workers,
    Breakers,
    /// What a retry policy does.
    Policy,
    Audit,
    /// A page of no section: the login, an error.
    Outside,
}

pub struct NavigationGroup {
    /// What they have in common.
    pub name: &'static str,
    pub sections: &'static [PageSection],
}

/// The navigation, in its order.
pub const NAVIGATION: [NavigationGroup; 3] = [
    NavigationGroup {
        name: "Work",
        sections: &[
            PageSection::Overview,
            PageSection::Queues,
            PageSection::Kinds,
            PageSection::Jobs,
            PageSection::Dead,
        ],
    },
    NavigationGroup {
        name: "Order and time",
        sections: &[
            PageSection::Streams,
            PageSection::Schedules,
            PageSection::Sweeps,
            PageSection::Tables,
        ],
    },
    NavigationGroup {
        name: "Operations",
        sections: &[
            PageSection::Workers,
            PageSection::Breakers,
            PageSection::Policy,
            PageSection::Audit,
        ],
    },
];

impl PageSection {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Queues => "Queues",
            Self::Kinds => "Kinds",
            Self::Jobs => "Jobs",
            Self::Dead => "Dead letters",
            Self::Streams => "Streams",
            Self::Schedules => "Schedules",
            Self::Sweeps => "Sweeps",
            Self::Tables => "Tables",
            Self::Workers => "Workers",
            Self::Breakers => "Breakers",
            Self::Policy => "Policy lab",
            Self::Audit => "Audit",
            Self::Outside => "",
        }
    }

    /// Its address, under the base.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Overview | Self::Outside => "/",
            Self::Queues => "/queues",
            Self::Kinds => "/kinds",
            Self::Jobs => "/jobs",
            Self::Dead => "/dead",
            Self::Streams => "/streams",
            Self::Schedules => "/schedules",
            Self::Sweeps => "/sweeps",
            Self::Tables => "/tables",
            Self::Workers => "/workers",
            Self::Breakers => "/breakers",
            Self::Policy => "/policy",
            Self::Audit => "/audit",
        }
    }

    /// The key that leads to it, after `g`.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Overview => "o",
            Self::Queues => "q",
            Self::Kinds => "k",
            Self::Jobs => "j",
            Self::Dead => "d",
            Self::Streams => "s",
            Self::Schedules => "c",
            Self::Sweeps => "e",
            Self::Tables => "t",
            Self::Workers => "w",
            Self::Breakers => "b",
            Self::Policy => "p",
            Self::Audit => "a",
            Self::Outside => "",
        }
    }

    /// Its picture: the lines of an icon of 16 by 16.
    pub const fn icon(self) -> &'static str {
        match self {
            Self::Overview => "M2 9.5 5 6l3 4 2.5-6L14 9.5M2 13.5h12",
            Self::Queues => "M2.5 3h11v2.6h-11zM2.5 6.8h11v2.6h-11zM2.5 10.6h11v2.6h-11z",
            Self::Kinds => "M2 13.5h12M3.5 13.5V10M6.5 13.5V4M9.5 13.5V7M12.5 13.5V11",
            Self::Jobs => "M5.5 3.5h8M5.5 8h8M5.5 12.5h8M2.5 3.5h.1M2.5 8h.1M2.5 12.5h.1",
            Self::Dead => "M2 4h12v8.5H2zM2 4.5l6 4.5 6-4.5M6 11l1.5-1.5M10 11 8.5 9.5",
            Self::Streams => {
                "M1.5 5c2 0 2 2 4.3 2S8 5 10.2 5s2.3 2 4.3 2M1.5 10c2 0 2 2 4.3 2s2.2-2 4.4-2 2.3 2 4.3 2"
            }
            Self::Schedules => {
                "M2.5 3.5h11v10h-11zM2.5 6.5h11M5.5 2v2.5M10.5 2v2.5M6 9.5l1.5 1.5L10.5 8.5"
            }
            Self::Sweeps => "M10.5 2 8 7.5M5 7.5h6l1.5 6H3.5zM6.5 13.5V11M9.5 13.5V11",
            Self::Tables => "M2 3h12v10H2zM2 6.3h12M2 9.7h12M6.5 6.3V13",
            Self::Workers => {
                "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6M8 1.5v2M8 12.5v2M1.5 8h2M12.5 8h2M3.4 3.4l1.4 1.4M11.2 11.2l1.4 1.4M12.6 3.4l-1.4 1.4M4.8 11.2l-1.4 1.4"
            }
            Self::Breakers => "M1.5 10.5h3.5L11 5M11 10.5h3.5M5 10.5h.1M11 10.5h.1",
            Self::Policy => "M6 2h4M7 2v4.5L3 13.5h10L9 6.5V2M5 10.5h6",
            Self::Audit => "M4 2h8v12H4zM6 5h4M6 8h4M6 11h2.5",
            Self::Outside => "",
        }
    }
}
