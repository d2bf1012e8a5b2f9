//! What surrounds every page: the struct that each template embeds as `frame`.

use super::flash::FlashMessage;
use super::section::{NAVIGATION, NavigationGroup, PageSection};
use backstop_core::limits::REASON_CHARS_MAX;

/// What surrounds a page. Made by [`super::PageView::frame`].
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "what a template asks")]
pub struct PageFrame {
    /// The page's heading and title.
    pub title: String,
    pub section: PageSection,
    /// The path in front of every address; empty at the root.
    pub base: String,
    /// The address of the style.
    pub style: String,
    /// The address of the script.
    pub script: String,
    /// The address of the icon.
    pub icon: String,
    /// The caller's word in the audit log; `None` shows no navigation.
    pub caller: Option<String>,
    /// Whether buttons that change something are shown.
    pub may_write: bool,
    /// Whether there is a session to log out of.
    pub has_session: bool,
    /// The theme somebody chose; `None` follows the system.
    pub theme: Option<&'static str>,
    /// What the last action did.
    pub note: Option<FlashMessage>,
    /// Whether only the part that changes is wanted.
    pub is_fragment: bool,
    /// Whether the page refreshes itself when something happens.
    pub is_live: bool,
    /// The store, without its password; empty for somebody who has not shown who they are.
    pub store: String,
    /// The version of the server.
    pub version: &'static str,
    /// When the page was made.
    pub made_at: String,
    /// The reason that forms begin with: what was typed before something had to be asked again.
    pub reason: String,
}

impl PageFrame {
    /// A page whose block `live` refreshes itself when something happens.
    #[must_use]
    pub fn live(self) -> Self {
        Self {
            is_live: true,
            ..self
        }
    }

    /// The sections, in their groups.
    pub const fn navigation(&self) -> &'static [NavigationGroup] {
        &NAVIGATION
    }

    /// Whether the caller may look at a section: who did what is for those who could have done it.
    pub fn may_see(&self, section: &PageSection) -> bool {
        *section != PageSection::Audit || self.may_write
    }

    pub const fn reason_max(&self) -> usize {
        REASON_CHARS_MAX
    }

    /// Whether the page belongs to a section.
    pub fn is_in(&self, section: &PageSection) -> bool {
        self.section == *section
    }
}
