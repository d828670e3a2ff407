//! The writer against files: what it writes, what it finds again, and what it does when files fail.

#[path = "main/faults.rs"]
mod faults;
#[path = "main/faulty_fs.rs"]
mod faulty_fs;
#[path = "main/headers.rs"]
mod headers;
#[path = "main/recovery.rs"]
mod recovery;
#[path = "main/sealing.rs"]
mod sealing;
#[path = "main/staged.rs"]
mod staged;
#[path = "main/support.rs"]
mod support;
#[path = "main/writing.rs"]
mod writing;
