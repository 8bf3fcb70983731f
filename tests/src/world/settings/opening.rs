//! How a connection comes to the version it speaks.

use haulage_proto::negotiate::{Remembered, Version};
use haulage_proto::v2::connection::Role;

use super::super::choices::Choices;

/// How a connection comes to the version it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Both ends have version 2.
    Two,
    /// The client has version 1 alone.
    One,
    /// The client remembers that its server has version 1 alone.
    Remembered,
    /// The client begins with version 2, which its server has not.
    Fallback,
}

impl Opening {
    /// Every way there is.
    pub const ALL: [Self; 4] = [Self::Two, Self::One, Self::Remembered, Self::Fallback];

    /// Draws one of them. Half of them lead to version 1.
    pub fn draw(choices: &mut Choices) -> Self {
        choices.pick(&[
            Self::Two,
            Self::Two,
            Self::Two,
            Self::One,
            Self::Remembered,
            Self::Fallback,
        ])
    }

    /// Returns whether an end has version 1, and whether it has version 2. Where both will do, `either`
    /// says whether it has both.
    pub const fn versions(self, role: Role, either: bool) -> [bool; 2] {
        match (self, role) {
            (Self::Two, _) => [either, true],
            (Self::One | Self::Remembered, Role::Server) => [true, either],
            (Self::One, Role::Client) | (Self::Fallback, Role::Server) => [true, false],
            (Self::Remembered | Self::Fallback, Role::Client) => [true, true],
        }
    }

    /// Returns the version that is spoken in the end.
    pub const fn version(self) -> Version {
        match self {
            Self::Two => Version::Two,
            Self::One | Self::Remembered | Self::Fallback => Version::One,
        }
    }

    /// Returns what an end knows of its peer before.
    pub const fn known(self, role: Role) -> Remembered {
        match (self, role) {
            (Self::Remembered, Role::Client) => Remembered::OnlyVersionOne,
            _ => Remembered::Nothing,
        }
    }

    /// Returns what it knows afterwards.
    pub const fn learnt(self, role: Role) -> Remembered {
        match (self, role) {
            (Self::Remembered | Self::Fallback, Role::Client) => Remembered::OnlyVersionOne,
            _ => Remembered::Nothing,
        }
    }
}
