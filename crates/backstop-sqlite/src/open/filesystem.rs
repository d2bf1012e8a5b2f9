//! Which file systems a store may be on.

use std::path::Path;

/// What is known of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileSystem {
    /// A local one, or one we know nothing against.
    Local,
    /// A FUSE one: it may be a local disk or the other end of the world.
    User,
    /// A network one: locks and shared memory do not reach the other machines.
    Network(&'static str),
}

/// The file system a path is on.
#[cfg(target_os = "linux")]
#[allow(
    clippy::useless_conversion,
    reason = "the field has 32 bits on some machines"
)]
pub(crate) fn file_system(path: &Path) -> FileSystem {
    // Whoever cannot be asked is not accused.
    rustix::fs::statfs(path).map_or(FileSystem::Local, |stat| of_magic(i64::from(stat.f_type)))
}

/// The file system a path is on.
#[cfg(not(target_os = "linux"))]
pub(crate) fn file_system(_path: &Path) -> FileSystem {
    FileSystem::Local
}

/// What the number in `statfs` means; numbers are those of Linux.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn of_magic(magic: i64) -> FileSystem {
    // 32 bits whatever the width of the field: some kernels sign-extend it.
    match magic & 0xffff_ffff {
        0x6969 => FileSystem::Network("NFS"),
        0x517b => FileSystem::Network("SMB"),
        0xff53_4d42 => FileSystem::Network("CIFS"),
        0xfe53_4d42 => FileSystem::Network("SMB2"),
        0x0102_1997 => FileSystem::Network("9P"),
        0x5346_414f => FileSystem::Network("AFS"),
        0x7375_7245 => FileSystem::Network("Coda"),
        0x00c3_6400 => FileSystem::Network("Ceph"),
        0x0bd0_0bd0 => FileSystem::Network("Lustre"),
        0x786f_4256 => FileSystem::Network("a VirtualBox share"),
        0x6573_5546 => FileSystem::User,
        _ => FileSystem::Local,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_refused_and_fuse_is_only_doubted() {
        for magic in [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x0102_1997] {
            assert!(
                matches!(of_magic(magic), FileSystem::Network(_)),
                "{magic:x}"
            );
        }
        let sign_extended = i64::from(0xff53_4d42_u32.cast_signed());
        assert_eq!(of_magic(sign_extended), FileSystem::Network("CIFS"));
        assert_eq!(of_magic(0x6573_5546), FileSystem::User);
        for (name, magic) in [
            ("ext4", 0xef53),
            ("xfs", 0x5846_5342),
            ("btrfs", 0x9123_683e),
            ("tmpfs", 0x0102_1994),
        ] {
            assert_eq!(of_magic(magic), FileSystem::Local, "{name}");
        }
    }
}
