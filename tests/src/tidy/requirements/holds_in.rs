//! The layers of the product that tests drive.

/// A layer of the product; each drives the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The protocol library and the memory pool, called directly.
    Library,
    /// A core or a provider of the runtime.
    Runtime,
    /// The services and the command.
    Command,
}

impl Layer {
    /// Returns the layer that the test with this full name drives; `None` if it drives no layer.
    pub(super) fn of_test(name: &str) -> Option<Self> {
        let inside =
            |root: &str| name.strip_prefix(root).is_some_and(|rest| rest.starts_with("::"));
        LAYERS.into_iter().find(|(root, _)| inside(root)).map(|(_, layer)| layer)
    }

    /// Returns the layer with this word in the column `holds_in`.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        [Self::Library, Self::Runtime, Self::Command].into_iter().find(|layer| layer.word() == word)
    }

    /// Returns the layer's word in the column `holds_in`.
    pub(in crate::tidy) fn word(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Runtime => "runtime",
            Self::Command => "command",
        }
    }
}

/// The layer that the tests of each crate drive, or of each file in the tests' own crate.
const LAYERS: [(&str, Layer); 14] = [
    ("proto", Layer::Library),
    ("mr_pool", Layer::Library),
    ("runtime", Layer::Runtime),
    ("apps", Layer::Command),
    ("tests::codecs", Layer::Library),
    ("tests::fuzz", Layer::Library),
    ("tests::rpc", Layer::Library),
    ("tests::world", Layer::Library),
    ("tests::conformance", Layer::Runtime),
    ("tests::credentials", Layer::Runtime),
    ("tests::foreign", Layer::Runtime),
    ("tests::hostile", Layer::Runtime),
    ("tests::rpcbind", Layer::Runtime),
    ("tests::sim", Layer::Runtime),
];
