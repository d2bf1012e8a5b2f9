//! Finds out whether a file system is fit for a store.

use std::path::Path;

/// The kind of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileSystem {
    /// A local file system, or one that we know no problem of.
    Local,
    /// A FUSE file system: its files may be on a local disk or on another machine.
    User,
    /// A network file system: locks and shared memory do not reach the other machines.
    Network(&'static str),
}

/// Finds the file system that a path is on.
#[cfg(target_os = "linux")]
#[allow(
    clippy::useless_conversion,
    reason = "the field has 32 bits on some machines"
)]
pub(crate) fn file_system(path: &Path) -> FileSystem {
    // If `statfs` fails, the file system is taken to be local.
    rustix::fs::statfs(path).map_or(FileSystem::Local, |stat| of_magic(i64::from(stat.f_type)))
}

/// Finds the file system that a path is on.
#[cfg(not(target_os = "linux"))]
pub(crate) fn file_system(_path: &Path) -> FileSystem {
    FileSystem::Local
}

/// Maps the magic number of `statfs` on Linux to a kind of file system.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn of_magic(magic: i64) -> FileSystem {
    // Compare 32 bits, whatever the width of the field: some kernels sign-extend it.
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
