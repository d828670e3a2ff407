//! Disks of a test's own: one that is soon full, and one that freezes, tears and turns read-only.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Whether a program of the system's did what it was told.
fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let run = Command::new(program).args(arguments).output();
    run.is_ok_and(|output| output.status.success())
}

fn folder(prefix: &str) -> TempDir {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir();
    folder.unwrap()
}

/// Lazily: a program that a failed test left may still have files open.
fn unmount(folder: &Path) {
    succeeds("umount", &["-l", folder.to_str().unwrap()]);
}

/// A small file system of its own. Unmounted when it is dropped.
pub(crate) struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` where this process may not mount.
    pub(crate) fn mount(bytes: u64) -> Option<Self> {
        let folder = folder("decant-small-disk-");
        let options = format!("size={bytes}");
        let path = folder.path().to_str().unwrap().to_owned();
        let mounted = succeeds("mount", &["-t", "tmpfs", "-o", &options, "decant", &path]);
        mounted.then_some(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) {
        let path = self.ballast();
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        let mut piece: &[u8] = &[0xAA; 1 << 16];
        while !piece.is_empty() {
            match std::io::Write::write(&mut &file, piece) {
                Ok(_) => {}
                Err(_) => piece = &piece[..piece.len() / 2],
            }
        }
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(self.path());
    }
}

/// An ext4 file system on a disk that is a file. Unmounted when it is dropped.
pub(crate) struct LoopDisk {
    folder: TempDir,
    image: PathBuf,
    /// What was on it before it was torn.
    whole: Vec<u8>,
    frozen: bool,
}

impl LoopDisk {
    /// On a file in `folder`, which takes room there only as it is written; `None` where this process may not mount.
    pub(crate) fn mount(at: &Path, bytes: u64) -> Option<Self> {
        let image = at.join("disk");
        std::fs::File::create_new(&image)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        let made = succeeds("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]);
        let disk = Self {
            folder: folder("decant-loop-disk-"),
            image,
            whole: Vec::new(),
            frozen: false,
        };
        (made && disk.attach()).then_some(disk)
    }

    fn attach(&self) -> bool {
        let image = self.image.to_str().unwrap();
        succeeds("mount", &["-o", "loop", image, self.mounted()])
    }

    fn mounted(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Whoever writes from now on waits.
    pub(crate) fn freeze(&mut self) {
        assert!(succeeds("fsfreeze", &["-f", self.mounted()]));
        self.frozen = true;
    }

    pub(crate) fn thaw(&mut self) {
        assert!(succeeds("fsfreeze", &["-u", self.mounted()]));
        self.frozen = false;
    }

    /// For nobody who writes has anything open.
    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(succeeds("mount", &["-o", &options, self.mounted()]));
    }

    /// The disk is taken away and put back, checked, as after a failure. Nobody may have anything open.
    pub(crate) fn replace(&self) {
        assert!(succeeds("umount", &[self.mounted()]));
        // Exit status 1: errors were corrected.
        let checked = Command::new("e2fsck").arg("-fy").arg(&self.image).output();
        assert!(checked.unwrap().status.code() <= Some(1));
        assert!(self.attach());
    }

    /// The disk delivers nothing any more of what is not in memory; what is of `files` leaves it first. Nobody may write.
    pub(crate) fn tear(&mut self, files: &[PathBuf]) {
        rustix::fs::sync();
        for path in files {
            let file = std::fs::File::open(path).unwrap();
            let advice = rustix::fs::Advice::DontNeed;
            rustix::fs::fadvise(&file, 0, None, advice).unwrap();
        }
        self.whole = std::fs::read(&self.image).unwrap();
        self.image_file().set_len(0).unwrap();
    }

    pub(crate) fn mend(&mut self) {
        let file = self.image_file();
        file.write_all_at(&std::mem::take(&mut self.whole), 0)
            .unwrap();
    }

    fn image_file(&self) -> std::fs::File {
        let file = std::fs::File::options().write(true).open(&self.image);
        file.unwrap()
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if self.frozen {
            succeeds("fsfreeze", &["-u", self.mounted()]);
        }
        if !self.whole.is_empty() {
            self.mend();
        }
        unmount(self.folder.path());
    }
}
