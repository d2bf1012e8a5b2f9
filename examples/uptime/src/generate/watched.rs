//! Who is watched, and a few who are not.

use super::{Dice, Plan};
use crate::directory::{
    Beginning, Detector, DetectorId, Directory, Interval, Organization, OrganizationId, RegionMode,
    Regions, Subscription,
};
use crate::wire::{Id, Status, SubscriptionId};

/// Organizations with the feature.
const ORGANIZATIONS: i64 = 8;
/// The one without it.
const WITHOUT_FEATURE: OrganizationId = OrganizationId(ORGANIZATIONS + 1);
/// Where results count.
const ACTIVE: [&str; 3] = ["us-west", "us-east", "eu-central"];
/// Where they are tried out.
pub(super) const SHADOW: &str = "ap-south";
/// In a hundred subscriptions, how many are checked how often.
const INTERVALS: [(u32, usize); 6] = [
    (60, 62),
    (300, 20),
    (600, 9),
    (1200, 4),
    (1800, 3),
    (3600, 2),
];

/// A subscription whose results are to be made.
pub(super) struct Watched {
    pub(super) key: SubscriptionId,
    pub(super) interval: Interval,
    /// Where its results come from in turn.
    pub(super) regions: Vec<String>,
    /// Whether a region on trial checks it too.
    pub(super) has_shadow: bool,
    /// What all its results say, if they all say the same.
    pub(super) always: Option<Status>,
}

/// The directory, those who are watched, and those whose results validation stops.
pub(super) fn populate(plan: &Plan) -> (Directory, Vec<Watched>, Vec<Watched>) {
    let mut directory = Directory {
        regions: fleet(),
        ..Directory::default()
    };
    for id in 1..=ORGANIZATIONS {
        directory
            .organizations
            .insert(OrganizationId(id), Organization { has_uptime: true });
    }
    directory
        .organizations
        .insert(WITHOUT_FEATURE, Organization { has_uptime: false });
    let mut dice = Dice::new(plan.seed, u64::MAX);
    let watched = (0..plan.subscriptions)
        .map(|nth| watch(&mut directory, nth, &mut dice))
        .collect();
    let unwatched = unwatched(&mut directory, plan.subscriptions, &mut dice);
    (directory, watched, unwatched)
}

fn fleet() -> Regions {
    let mut regions: Regions = ACTIVE
        .iter()
        .map(|name| ((*name).to_owned(), RegionMode::Active))
        .collect();
    regions.insert(SHADOW.to_owned(), RegionMode::Shadow);
    regions.insert("eu-north".to_owned(), RegionMode::Inactive);
    regions
}

fn watch(directory: &mut Directory, nth: u32, dice: &mut Dice) -> Watched {
    let intervals: Vec<u32> = INTERVALS
        .iter()
        .flat_map(|(secs, share)| std::iter::repeat_n(*secs, *share))
        .collect();
    let interval = *dice.one(&intervals);
    let begins = if dice.chance(0.2) {
        Beginning::Onboarding
    } else {
        Beginning::Active
    };
    let organization = OrganizationId(1 + dice.below(ORGANIZATIONS));
    let detector = DetectorId(i64::from(nth) + 1);
    directory.detectors.insert(
        detector,
        Detector {
            organization,
            enabled: true,
            begins,
        },
    );
    subscribe(directory, Some(detector), interval, dice)
}

/// One of each kind that validation stops: unknown, without a detector, disabled, without the
/// feature, unwilling.
fn unwatched(directory: &mut Directory, taken: u32, dice: &mut Dice) -> Vec<Watched> {
    let mut id = i64::from(taken);
    let mut detector = |directory: &mut Directory, organization, enabled| {
        id += 1;
        let begins = Beginning::Active;
        directory.detectors.insert(
            DetectorId(id),
            Detector {
                organization,
                enabled,
                begins,
            },
        );
        Some(DetectorId(id))
    };
    let owner = OrganizationId(1);
    let disabled = detector(directory, owner, false);
    let without_feature = detector(directory, WITHOUT_FEATURE, true);
    let unwilling = detector(directory, owner, true);
    let unknown = subscribe(directory, None, 60, dice);
    directory.subscriptions.remove(&unknown.key);
    vec![
        unknown,
        subscribe(directory, None, 60, dice),
        subscribe(directory, disabled, 60, dice),
        subscribe(directory, without_feature, 60, dice),
        Watched {
            always: Some(Status::DisallowedByRobots),
            ..subscribe(directory, unwilling, 60, dice)
        },
    ]
}

fn subscribe(
    directory: &mut Directory,
    detector: Option<DetectorId>,
    interval: u32,
    dice: &mut Dice,
) -> Watched {
    let key = SubscriptionId(Id::new(dice.bits()));
    let interval = Interval::try_from(interval).expect("the list has allowed intervals only");
    let has_shadow = dice.chance(0.25);
    let mut regions: Regions = ACTIVE
        .iter()
        .map(|name| ((*name).to_owned(), RegionMode::Active))
        .collect();
    if has_shadow {
        regions.insert(SHADOW.to_owned(), RegionMode::Shadow);
    }
    let host_provider = dice
        .chance(0.5)
        .then(|| (*dice.one(&["hosted", "cloudy", "rack"])).to_owned());
    directory.subscriptions.insert(
        key,
        Subscription {
            interval,
            regions,
            detector,
            host_provider,
        },
    );
    let regions = ACTIVE.iter().map(|name| (*name).to_owned()).collect();
    Watched {
        key,
        interval,
        regions,
        has_shadow,
        always: None,
    }
}
