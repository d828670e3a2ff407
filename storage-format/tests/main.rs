//! The writer against files: what it writes, what it finds again, and what it does when files fail.

#[path = "main/faults.rs"]
#[cfg(test)]
mod faults;
#[path = "main/faulty_fs.rs"]
#[cfg(test)]
mod faulty_fs;
#[path = "main/golden.rs"]
#[cfg(test)]
mod golden;
#[path = "main/headers.rs"]
#[cfg(test)]
mod headers;
#[path = "main/names.rs"]
#[cfg(test)]
mod names;
#[path = "main/recovery.rs"]
#[cfg(test)]
mod recovery;
#[path = "main/sealing.rs"]
#[cfg(test)]
mod sealing;
#[path = "main/staged.rs"]
#[cfg(test)]
mod staged;
#[path = "main/support.rs"]
#[cfg(test)]
mod support;
#[path = "main/verify.rs"]
#[cfg(test)]
mod verify;
#[path = "main/writing.rs"]
#[cfg(test)]
mod writing;
