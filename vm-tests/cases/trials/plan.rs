//! The trials of a campaign: which change, what happens to the node meanwhile, and how it has to end.

use super::changes::Part;
use crate::lab::random::Random;

/// What happens during a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twist {
    /// Nothing.
    None,
    /// SIGKILL to the guard, so many times.
    GuardKilled(usize),
    /// The guard's unit is stopped.
    GuardStopped,
    /// Both guards are stopped; the next boot is the last that can take it back.
    BothStopped,
    /// SIGKILL to `apply` after so many milliseconds.
    ApplyKilled(u64),
    /// The power fails so many milliseconds after the change was in place.
    PowerCut(u64),
    /// The power fails so many milliseconds after the deadline.
    PowerCutInRevert(u64),
    /// The client of `confirm` is killed after so many milliseconds.
    ConfirmCut(u64),
    /// The login that began the trial confirms, over the same connection.
    SameChannel,
    /// A root shell without a login confirms.
    NoLogin,
    /// Another program reboots the node.
    ForeignReboot,
    /// Another program fills the disk.
    FullDisk,
    /// `rollback` during the trial.
    TakenBackByHand,
    /// Another trial is begun during the first.
    SecondTrial,
    /// The confirmation comes after the deadline.
    TooLate,
    /// By a probe, which fails in a bad trial.
    Probe,
    /// The client of `apply` is killed.
    ClientGone,
    /// The confirmation comes when two thirds of the time are over.
    Late,
    /// Another operating system, with a reboot.
    System(Boot),
}

/// A trial with a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// Into the other image.
    Image,
    /// With other kernel arguments.
    Arguments,
    /// A unit blocks it.
    Blocked,
    /// The power fails so many milliseconds after its start.
    Cut(u64),
    /// No image and no arguments change.
    FilesAlone,
}

impl Twist {
    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::GuardKilled(1) => "guard killed once",
            Self::GuardKilled(_) => "guard killed ten times",
            Self::GuardStopped => "guard's unit stopped",
            Self::BothStopped => "both guards stopped",
            Self::ApplyKilled(_) => "apply killed",
            Self::PowerCut(_) => "power cut in the trial",
            Self::PowerCutInRevert(_) => "power cut in the revert",
            Self::ConfirmCut(_) => "confirm lost on the way",
            Self::SameChannel => "confirm by the same connection",
            Self::NoLogin => "confirm without a login",
            Self::ForeignReboot => "reboot by another program",
            Self::FullDisk => "full disk",
            Self::TakenBackByHand => "reverted by hand",
            Self::SecondTrial => "a second trial",
            Self::TooLate => "confirm after the deadline",
            Self::Probe => "probe",
            Self::ClientGone => "client of apply killed",
            Self::Late => "confirm late in the time",
            Self::System(Boot::Image) => "OS, with a reboot",
            Self::System(Boot::Arguments) => "kernel arguments, with a reboot",
            Self::System(Boot::Blocked) => "OS, a unit blocks the boot",
            Self::System(Boot::Cut(_)) => "OS, power cut in the boot",
            Self::System(Boot::FilesAlone) => "files, with a reboot",
        }
    }
}

/// One trial.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Its place in the campaign.
    pub number: usize,
    /// A good one is confirmed and stays.
    pub good: bool,
    /// What is changed.
    pub part: Part,
    /// What happens.
    pub twist: Twist,
    /// Of the details.
    pub seed: u64,
}

impl Trial {
    /// What it is counted as.
    pub fn kind(&self) -> &'static str {
        match self.twist {
            Twist::None => self.part.name(),
            twist => twist.name(),
        }
    }
}

/// So many bad and so many good trials, every kind as often as any other.
pub fn draw(bad: usize, good: usize, seed: u64) -> Vec<Trial> {
    let mut random = Random::of(seed);
    let mut trials = Vec::new();
    let mut bag = Vec::new();
    for _ in 0..bad {
        let (part, twist) = take(&mut bag, bad_kinds, &mut random);
        trials.push((false, part, twist));
    }
    bag.clear();
    for _ in 0..good {
        let (part, twist) = take(&mut bag, good_kinds, &mut random);
        trials.push((true, part, twist));
    }
    // Mixed, so that a good one follows a bad one and the other way round.
    for last in (1..trials.len()).rev() {
        trials.swap(last, random.below(last + 1));
    }
    let numbered = trials.into_iter().enumerate();
    numbered
        .map(|(number, (good, part, twist))| Trial {
            number,
            good,
            part,
            twist,
            seed: seed.wrapping_mul(1_000_003).wrapping_add(number as u64),
        })
        .collect()
}

type Kind = (Part, Twist);

/// One of the kinds that are left, which are all of them again when none is.
fn take(bag: &mut Vec<Kind>, all: fn(&mut Random) -> Vec<Kind>, random: &mut Random) -> Kind {
    if bag.is_empty() {
        *bag = all(random);
    }
    bag.swap_remove(random.below(bag.len()))
}

fn bad_kinds(random: &mut Random) -> Vec<Kind> {
    let moment = |random: &mut Random, limit: usize| random.below(limit) as u64;
    let twists = [
        Twist::GuardKilled(1),
        Twist::GuardKilled(10),
        Twist::GuardStopped,
        Twist::BothStopped,
        Twist::ApplyKilled(moment(random, 1500)),
        Twist::PowerCut(moment(random, 6000)),
        Twist::PowerCutInRevert(moment(random, 1200)),
        Twist::ConfirmCut(moment(random, 700)),
        Twist::SameChannel,
        Twist::NoLogin,
        Twist::ForeignReboot,
        Twist::FullDisk,
        Twist::TakenBackByHand,
        Twist::SecondTrial,
        Twist::TooLate,
        Twist::Probe,
        Twist::ClientGone,
        Twist::System(Boot::Image),
        Twist::System(Boot::Arguments),
        Twist::System(Boot::Blocked),
        Twist::System(Boot::Cut(moment(random, 2000))),
        Twist::System(Boot::FilesAlone),
    ];
    with_parts(&twists, random)
}

fn good_kinds(random: &mut Random) -> Vec<Kind> {
    let twists = [
        Twist::GuardKilled(1),
        Twist::GuardKilled(10),
        Twist::SameChannel,
        Twist::NoLogin,
        Twist::SecondTrial,
        Twist::Probe,
        Twist::ClientGone,
        Twist::Late,
        Twist::System(Boot::Image),
        Twist::System(Boot::Arguments),
        Twist::System(Boot::FilesAlone),
    ];
    with_parts(&twists, random)
}

/// Each part as it is, and each twist with any part whose change is seen at once.
fn with_parts(twists: &[Twist], random: &mut Random) -> Vec<Kind> {
    let plain = Part::ALL.map(|part| (part, Twist::None));
    let mut kinds: Vec<Kind> = plain.to_vec();
    for twist in twists {
        let parts: &[Part] = match twist {
            // Somebody has to be let in for it, or to be still there.
            Twist::ConfirmCut(_) => &[Part::Kubelet, Part::Sysctl],
            Twist::SameChannel => &[Part::Keys, Part::Sshd, Part::Kubelet],
            Twist::System(Boot::Image | Boot::FilesAlone) => &[
                Part::Keyfile,
                Part::Sshd,
                Part::Firewall,
                Part::Keys,
                Part::Pam,
                Part::UnitOfSshd,
                Part::UnitInConflict,
                Part::UnitOfNetwork,
            ],
            _ => &Part::CUTTING,
        };
        kinds.push((parts[random.below(parts.len())], *twist));
    }
    kinds
}
