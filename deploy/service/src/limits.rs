//! What the operating system lets a process have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process open as many files as its hard limit allows: every client is one. What a process is started with is
/// often 1,024, for the sake of programs that call `select`.
pub fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(
            ?current,
            ?maximum,
            %error,
            "the limit of open files stays as it is: more clients than that can't connect"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_becomes_the_hard_one() {
        let before = getrlimit(Resource::Nofile);
        let low = Rlimit {
            current: Some(256),
            ..before
        };
        setrlimit(Resource::Nofile, low).unwrap();
        raise_open_files();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }
}
