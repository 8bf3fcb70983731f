//! The types of option values, each parsed from its text.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use haulage::limits::{Profile, Versions};
use haulage::sys::cpu;

use super::similar::similar;

/// The provider that carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Provider {
    /// MPA, DDP and RDMAP on TCP: any machine, no hardware
    Iwarp,
    /// Shared memory: both ends on one machine
    Shm,
    /// An RDMA device
    #[cfg(feature = "verbs")]
    Verbs,
}

impl Provider {
    /// Returns the name that is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iwarp => "iwarp",
            Self::Shm => "shm",
            #[cfg(feature = "verbs")]
            Self::Verbs => "verbs",
        }
    }

    /// Returns the names of this build's providers, joined by "and".
    pub fn list() -> String {
        Self::value_variants().iter().map(|it| it.name()).collect::<Vec<_>>().join(" and ")
    }

    /// Returns the names of providers that this build lacks. A feature of the same name adds each.
    pub const fn of_other_builds() -> &'static [&'static str] {
        if cfg!(feature = "verbs") { &[] } else { &["verbs"] }
    }
}

/// How a core waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Polling {
    /// Never sleep: for a CPU that has nothing else to do
    Busy,
    /// Poll for a while, then sleep until something happens
    Adaptive,
    /// Sleep whenever there is nothing to do
    Event,
}

impl Polling {
    /// Returns the name that is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Adaptive => "adaptive",
            Self::Event => "event",
        }
    }
}

/// The versions of RPC-over-RDMA that a core speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RpcVersion {
    /// Both: clients begin with version 2 and fall back to version 1
    Auto,
    /// Version 1 alone, as Linux NFS clients and servers speak
    #[value(name = "1")]
    One,
    /// Version 2 alone
    #[value(name = "2")]
    Two,
}

impl RpcVersion {
    /// Returns the versions.
    pub const fn versions(self) -> Versions {
        match self {
            Self::Auto => Versions::Both,
            Self::One => Versions::OnlyOne,
            Self::Two => Versions::OnlyTwo,
        }
    }
}

/// The text of version 1 that a core follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileName {
    /// RFC 8166
    Rfc8166,
    /// RFC 5666, with padded messages and Replies that clients read
    Rfc5666,
}

impl ProfileName {
    /// Returns the name that is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rfc8166 => "rfc8166",
            Self::Rfc5666 => "rfc5666",
        }
    }

    /// Returns the profile.
    pub const fn profile(self) -> Profile {
        match self {
            Self::Rfc8166 => Profile::Rfc8166,
            Self::Rfc5666 => Profile::Rfc5666,
        }
    }
}

/// Which round-trip extensions are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Extensions {
    /// Those that save time
    Auto,
    /// All that there are
    On,
    /// None
    Off,
}

impl Extensions {
    /// Returns the name that is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Whether hosts prove which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HostPolicy {
    /// They do not
    Off,
    /// They do if both ends have keys
    Optional,
    /// They do, and a peer that does not is refused
    Required,
}

/// The form of the log on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines of text
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

impl LogFormat {
    /// Returns the name that is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes
    On,
    /// No
    Off,
}

impl Switch {
    /// Returns the name that is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// A number of octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        super::bytes::parse(text).map(Self)
    }
}

/// A ratio from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio(pub f64);

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        ratio.map(Self).ok_or_else(|| "give a number from 0 to 1".to_owned())
    }
}

/// The exponent of Zipf's law: more than 0, up to 10.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponent(pub f64);

impl FromStr for Exponent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let exponent = text.parse().ok().filter(|exponent| *exponent > 0.0 && *exponent <= 10.0);
        exponent.map(Self).ok_or_else(|| "give a number above 0, up to 10".to_owned())
    }
}

/// A share of memory: 1 to 80 percent, with two digits behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Hundredths of a percent.
    hundredths: u32,
}

impl Share {
    /// Returns this share of a number of octets.
    pub const fn of(self, octets: usize) -> usize {
        let whole = octets / 10_000 * self.hundredths as usize;
        whole + octets % 10_000 * self.hundredths as usize / 10_000
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|at| at.is_ascii_digit());
        let number = |text: &str| text.parse::<u32>().ok().filter(|_| is_number(text));
        let rest = match rest.len() {
            1 => number(rest).map(|tenths| tenths * 10),
            2 => number(rest),
            _ => None,
        };
        let hundredths = number(whole).filter(|whole| *whole <= 80).zip(rest);
        let hundredths = hundredths.map(|(whole, rest)| whole * 100 + rest);
        let hundredths = hundredths.filter(|share| (100..=8000).contains(share));
        let hundredths = hundredths.ok_or_else(|| "give 1 to 80 percent".to_owned())?;
        Ok(Self { hundredths })
    }
}

/// A number of keys: 1 to 99,999,999, so that each number has at most eight digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys(pub u32);

impl FromStr for Keys {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let keys = text.parse().ok().filter(|keys| (1..100_000_000).contains(keys));
        keys.map(Self).ok_or_else(|| "give 1 to 99999999".to_owned())
    }
}

/// CPUs to pin cores to: at least one, in rising order, without repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreList(Vec<usize>);

impl CoreList {
    /// Returns the CPUs.
    pub fn cpus(&self) -> &[usize] {
        &self.0
    }
}

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match cpu::parse_list(text) {
            Some(cpus) if !cpus.is_empty() => Ok(Self(cpus)),
            _ => Err("give CPU numbers and ranges, such as 0,2-3".to_owned()),
        }
    }
}

/// A timeout: more than zero, at most a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout(pub Duration);

impl FromStr for Timeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds <= DAY_SECONDS);
        let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match duration {
            Some(duration) if !duration.is_zero() => Ok(Self(duration)),
            _ => Err(match text.strip_suffix('s').map(|text| (text, text.parse::<Self>())) {
                Some((text, Ok(_))) => format!("give seconds; did you mean `{text}`?"),
                _ => "give seconds, more than 0 and at most 86400, such as 2 or 0.5".to_owned(),
            }),
        }
    }
}

/// A timeout of at most a day, or none, which is typed as 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlimited(pub Option<Duration>);

impl FromStr for Unlimited {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.parse() == Ok(0.0) {
            return Ok(Self(None));
        }
        let wrong = "give seconds, at most 86400, such as 3600 or 0.5; 0 is never";
        text.parse().map(|Timeout(time)| Self(Some(time))).map_err(|_| wrong.to_owned())
    }
}

const DAY_SECONDS: f64 = 86_400.0;

/// The file system that a storage server exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Export {
    /// Files in this much memory.
    Memory(Bytes),
    /// The files below a directory.
    Directory(PathBuf),
}

impl FromStr for Export {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("give a directory, or memory:BYTES such as memory:1GiB".to_owned());
        }
        match text.split_once(':') {
            Some((MEMORY, bytes)) => bytes.parse().map(Self::Memory),
            Some((word, bytes))
                if !word.contains(['/', '.'])
                    && similar(word, &[MEMORY]).is_some()
                    && super::bytes::parse(bytes).is_ok() =>
            {
                Err(format!(
                    "a directory of that name is ./{text}; did you mean `{MEMORY}:{bytes}`?"
                ))
            }
            _ => Ok(Self::Directory(text.into())),
        }
    }
}

/// A value, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maybe<T>(pub Option<T>);

impl<T: FromStr<Err = String>> FromStr for Maybe<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OFF {
            return Ok(Self(None));
        }
        text.parse().map(|value| Self(Some(value))).map_err(|error| match similar(text, &[OFF]) {
            Some(off) => format!("{error}, or {off}; did you mean `{off}`?"),
            None => format!("{error}, or {OFF}"),
        })
    }
}

/// The text of a value that is turned off.
const OFF: &str = "off";
/// The prefix of an export of memory, before the colon and the size.
const MEMORY: &str = "memory";

/// The callers that a storage server turns into the anonymous user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Squash {
    /// Believe all callers
    None,
    /// Turn root into the anonymous user
    Root,
    /// Turn all callers into the anonymous user
    All,
}

/// A network: an address and a prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address of the network.
    pub address: IpAddr,
    /// The prefix length, in bits.
    pub bits: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "give an address or a network, such as 192.0.2.7 or 10.0.0.0/8".to_owned();
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), |bits| bits.parse().map_err(|_| wrong()))?;
        if bits > width { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_positive_number_of_seconds() {
        assert_eq!("0.5".parse(), Ok(Timeout(Duration::from_millis(500))));
        assert_eq!("86400".parse(), Ok(Timeout(Duration::from_secs(86_400))));
        for wrong in ["0", "-1", "nan", "inf", "86401", "", "2s", "1e-30"] {
            assert!(wrong.parse::<Timeout>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_without_limit_is_zero_seconds() {
        assert_eq!(["0".parse(), "0.0".parse()], [Ok(Unlimited(None)), Ok(Unlimited(None))]);
        assert_eq!("1.5".parse(), Ok(Unlimited(Some(Duration::from_millis(1500)))));
        for wrong in ["-1", "nan", "86401", "", "never"] {
            assert!(wrong.parse::<Unlimited>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_is_a_number_of_percent_within_bounds() {
        let share = |text: &str| text.parse::<Share>().unwrap();
        assert_eq!(share("12.5").of(256 << 20), 32 << 20);
        assert_eq!(
            [share("1").of(10_000), share("80").of(99), share("1.25").of(20_001)],
            [100, 79, 250]
        );
        assert_eq!(
            share("80.00").of(usize::MAX),
            usize::MAX / 10_000 * 8000 + 1615 * 8000 / 10_000
        );
        for wrong in ["0.99", "80.01", "", ".", "5.", ".5", "+5", "5.123", "5%", "nan", "1e1", "-5"]
        {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_are_what_is_typed() {
        for provider in Provider::value_variants() {
            assert_eq!(Provider::from_str(provider.name(), false), Ok(*provider));
        }
        for polling in Polling::value_variants() {
            assert_eq!(Polling::from_str(polling.name(), false), Ok(*polling));
        }
        for format in LogFormat::value_variants() {
            assert_eq!(LogFormat::from_str(format.name(), false), Ok(*format));
        }
        for switch in Switch::value_variants() {
            assert_eq!(Switch::from_str(switch.name(), false), Ok(*switch));
        }
    }

    #[test]
    fn what_is_served_is_memory_or_a_directory() {
        assert_eq!("memory:1KiB".parse(), Ok(Export::Memory(Bytes(1024))));
        assert_eq!("./memory:1KiB".parse(), Ok(Export::Directory("./memory:1KiB".into())));
        assert_eq!("/srv".parse(), Ok(Export::Directory("/srv".into())));
        assert!("".parse::<Export>().is_err() && "memory:".parse::<Export>().is_err());
    }

    #[test]
    fn parts_and_keys_have_their_bounds() {
        assert_eq!(("0".parse(), "1".parse()), (Ok(Ratio(0.0)), Ok(Ratio(1.0))));
        assert!(["-0.1", "1.1", "nan", ""].iter().all(|text| text.parse::<Ratio>().is_err()));
        assert_eq!("99999999".parse(), Ok(Keys(99_999_999)));
        assert!(["0", "100000000", "-1"].iter().all(|text| text.parse::<Keys>().is_err()));
    }

    #[test]
    fn a_core_list_names_at_least_one_cpu() {
        assert_eq!("2,0-1".parse::<CoreList>().unwrap().cpus(), [0, 1, 2]);
        assert!("".parse::<CoreList>().is_err() && "x".parse::<CoreList>().is_err());
    }
}
