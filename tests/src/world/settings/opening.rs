//! How the ends of a connection arrive at their version.

use haulage_proto::negotiate::{Remembered, Version};
use haulage_proto::v2::connection::Role;

use super::super::choices::Choices;

/// How the ends of a connection arrive at their version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Both ends support version 2.
    Two,
    /// The client supports version 1 alone.
    One,
    /// The client remembers that its server supports version 1 alone.
    Remembered,
    /// The client begins with version 2, which its server does not support.
    Fallback,
}

impl Opening {
    /// All openings.
    pub const ALL: [Self; 4] = [Self::Two, Self::One, Self::Remembered, Self::Fallback];

    /// Draws an opening. Half of the draws lead to version 1.
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

    /// Returns whether an end supports version 1, and whether it supports version 2. Where a second version changes
    /// nothing, `either` tells whether the end supports it.
    pub const fn versions(self, role: Role, either: bool) -> [bool; 2] {
        match (self, role) {
            (Self::Two, _) => [either, true],
            (Self::One | Self::Remembered, Role::Server) => [true, either],
            (Self::One, Role::Client) | (Self::Fallback, Role::Server) => [true, false],
            (Self::Remembered | Self::Fallback, Role::Client) => [true, true],
        }
    }

    /// Returns the version that both ends arrive at.
    pub const fn version(self) -> Version {
        match self {
            Self::Two => Version::Two,
            Self::One | Self::Remembered | Self::Fallback => Version::One,
        }
    }

    /// Returns the end's memory of its peer before the connection.
    pub const fn known(self, role: Role) -> Remembered {
        match (self, role) {
            (Self::Remembered, Role::Client) => Remembered::OnlyVersionOne,
            _ => Remembered::Nothing,
        }
    }

    /// Returns the end's memory of its peer after the connection.
    pub const fn learnt(self, role: Role) -> Remembered {
        match (self, role) {
            (Self::Remembered | Self::Fallback, Role::Client) => Remembered::OnlyVersionOne,
            _ => Remembered::Nothing,
        }
    }
}
