//! The places of the swap tier, and how large each may be.

use crate::config::SwapChoice;
use crate::swap::Layout;
use memfit_core::scheme::SwapFormat;
use memfit_os::probe;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Default limit of a swap file, percent of the free space of its file system.
const FREE_PERCENT: u64 = 50;
/// Largest default size of a place, bytes.
const DEFAULT_MAX: u64 = 64 << 30;
/// Unit of `st_blocks`, bytes.
const STAT_BLOCK: u64 = 512;

/// A file, device or directory of the swap tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwapPlace {
    /// Its path.
    pub path: PathBuf,
    /// Bytes that it shall have: as the user says, or the default.
    pub wanted: u64,
    /// Bytes of them that the scheme can address.
    pub bytes: u64,
}

/// The places in the order in which they are filled. `size`: bytes of each, if the user says.
pub fn places(choice: &SwapChoice, size: Option<u64>, format: SwapFormat) -> Vec<SwapPlace> {
    let paths: Vec<PathBuf> = match choice {
        SwapChoice::None => Vec::new(),
        SwapChoice::Paths(paths) => paths.clone(),
        SwapChoice::Auto => probe::default_swap_directory().into_iter().collect(),
    };
    let mut left = Layout::of(format).most_bytes();
    let place = |path: &PathBuf| {
        let wanted = wanted(path, size, paths.iter().filter(|other| shares_space(path, other)).count() as u64);
        let bytes = wanted.min(left);
        left -= bytes;
        SwapPlace { path: path.clone(), wanted, bytes }
    };
    paths.iter().map(place).collect()
}

/// Whether two places take space from the same file system.
fn shares_space(one: &Path, other: &Path) -> bool {
    let system = |path: &Path| {
        let place = fs::metadata(path).ok()?;
        (!place.file_type().is_block_device()).then_some(place.dev())
    };
    one == other || system(one).is_some_and(|device| system(other) == Some(device))
}

/// The size of a place, bytes. Without a given one: a whole block device; or a share of the free
/// space of the file system, which `sharers` places divide, and a file not less than the space that
/// it has.
fn wanted(path: &Path, size: Option<u64>, sharers: u64) -> u64 {
    let place = fs::metadata(path).ok();
    if place.as_ref().is_some_and(|place| place.file_type().is_block_device()) {
        let all = File::open(path).and_then(|mut device| device.seek(SeekFrom::End(0))).unwrap_or(u64::MAX);
        return size.unwrap_or(DEFAULT_MAX).min(all);
    }
    let share = || {
        let free = probe::file_system(path).map_or(u64::MAX, |system| system.free_bytes);
        let has = place.as_ref().filter(|place| place.is_file()).map_or(0, |file| file.blocks() * STAT_BLOCK);
        (free / 100 * FREE_PERCENT / sharers.max(1)).max(has).min(DEFAULT_MAX)
    };
    size.unwrap_or_else(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_block_device_is_used_whole_and_a_file_system_in_part() {
        let directory = std::env::temp_dir();
        let free = probe::file_system(&directory).unwrap().free_bytes;
        assert!(wanted(&directory, None, 1) <= (free / 2 + (64 << 20)).min(DEFAULT_MAX));
        assert_eq!(wanted(&directory, Some(5 << 40), 2), 5 << 40);
        let devices = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
        let device = devices.map(|entry| Path::new("/dev").join(entry.file_name())).find(|path| path.exists());
        match device {
            Some(device) => {
                let all = File::open(&device).and_then(|mut device| device.seek(SeekFrom::End(0)));
                assert_eq!(wanted(&device, None, 1), all.unwrap_or(u64::MAX).min(DEFAULT_MAX), "{}", device.display());
            }
            None => {
                let test = "a_block_device_is_used_whole_and_a_file_system_in_part";
                crate::skip::skip(test, "there is no block device");
            }
        }
    }

    #[test]
    fn places_of_one_file_system_divide_its_free_space() {
        let paths = ["/var/tmp", "/var/lib"].map(PathBuf::from);
        if !shares_space(&paths[0], &paths[1]) {
            return crate::skip::skip("places_of_one_file_system_divide_its_free_space", "they are not on one");
        }
        let [one, two] = [&paths[..1], &paths[..]]
            .map(|paths| places(&SwapChoice::Paths(paths.to_vec()), None, SwapFormat::CompressedExtents)[0].wanted);
        let free = probe::file_system(&paths[0]).unwrap().free_bytes;
        assert!(one == DEFAULT_MAX || two <= one / 2 + (64 << 20), "{one} alone, {two} of two");
        assert!(two <= free / 4 + (64 << 20), "{two} of {free}");
    }

    #[test]
    fn a_file_counts_the_space_that_it_has() {
        let path = PathBuf::from(format!("/var/tmp/memfit-places-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        file.write_all(&[1; 64 << 10]).unwrap();
        file.sync_all().unwrap();
        let size = |sharers| wanted(&path, None, sharers);
        // As on a disk that is nearly full.
        let least = size(u64::MAX);
        assert!(((64 << 10)..(1 << 20)).contains(&least), "{least}");
        assert!(size(1) >= least);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_scheme_addresses_so_much() {
        let choice = SwapChoice::Paths(["/var/tmp", "/var/lib"].map(PathBuf::from).to_vec());
        for (format, sizes) in [
            (SwapFormat::CompressedExtents, [200 * GIB, 56 * GIB]),
            (SwapFormat::RawSlots, [32 * GIB, 0]),
            (SwapFormat::CompressedBatches, [32 * GIB, 0]),
        ] {
            let places = places(&choice, Some(200 * GIB), format);
            assert_eq!(places.iter().map(|place| place.bytes).collect::<Vec<_>>(), sizes, "{format:?}");
            assert!(places.iter().all(|place| place.wanted == 200 * GIB));
        }
    }
}
