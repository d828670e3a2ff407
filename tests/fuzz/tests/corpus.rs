//! All targets over their seeds, over what was found once, and over mutations of both: none panics, and none takes more
//! memory than the size of its input allows.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use fuzz::{Mutator, TARGETS, Target};

/// Mutations of each target.
const MUTATIONS: usize = 1500;

/// What a parser may take at a time for each byte of its input: what it decodes is larger than the bytes.
const BYTES_PER_BYTE: usize = 64;

/// Counts what each thread has, and the most that it had.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // While a thread ends there is nothing to count with.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

#[expect(
    unsafe_code,
    reason = "an allocator that counts can't be had otherwise"
)]
// SAFETY: everything is passed on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: the caller's promise; all places come from `alloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most memory that was taken at a time.
fn most_of(run: impl FnOnce()) -> usize {
    let before = NOW.get();
    MOST.set(before);
    run();
    usize::try_from(MOST.get() - before).unwrap_or_default()
}

fn try_input(target: &Target, input: &[u8]) -> Result<(), String> {
    let mut most = 0;
    let run = AssertUnwindSafe(|| {
        most = most_of(|| {
            (target.run)(input);
        });
    });
    let outcome = catch_unwind(run);
    if outcome.is_err() {
        return Err("a panic".to_owned());
    }
    let allowed = target.memory_bytes + BYTES_PER_BYTE * input.len();
    if most > allowed {
        return Err(format!("took {most} bytes of memory, allowed {allowed}"));
    }
    Ok(())
}

fn check(target: &Target, input: &[u8]) {
    if let Err(problem) = try_input(target, input) {
        let name = target.name;
        let path = std::env::temp_dir().join(format!("decant-fuzz-{name}"));
        let kept = std::fs::write(&path, input);
        panic!(
            "{name}: {problem}; the input of {} bytes is in {} ({kept:?}): {}",
            input.len(),
            path.display(),
            input[..input.len().min(200)].escape_ascii()
        );
    }
}

fn run(target: &Target) {
    let mut inputs = (target.seeds)();
    assert!(!inputs.is_empty(), "{} has no seeds", target.name);
    inputs.extend(target.regressions());
    // What is read once, and kept, is read here.
    let understood = inputs.iter().filter(|input| (target.run)(input)).count();
    assert!(
        understood > 0,
        "{} understands none of its seeds",
        target.name
    );
    for input in &inputs {
        check(target, input);
    }
    let mut mutator = Mutator::new(1);
    for _ in 0..MUTATIONS {
        check(target, &mutator.mutate(&inputs));
    }
}

/// All processors take part.
#[test]
fn no_input_makes_a_parser_panic_or_take_more_memory_than_it_may() {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(target);
                }
            });
        }
    });
}

#[test]
fn every_target_has_a_name_of_its_own() {
    let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), TARGETS.len());
}
