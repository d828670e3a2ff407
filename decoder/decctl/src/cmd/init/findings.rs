//! What `init` found and did.

use serde::Serialize;

use crate::error::Error;
use crate::output;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// As it should be.
    Ok,
    /// Was made now.
    Done,
    /// Works, but the operator should know.
    Warning,
    /// Must be put right first.
    Failed,
}

#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    outcome: Outcome,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// The findings so far. For people they are printed as they come, as JSON at the end.
pub(super) struct Findings {
    json: bool,
    list: Vec<Finding>,
}

impl Findings {
    pub(super) const fn new(json: bool) -> Self {
        Self {
            json,
            list: Vec::new(),
        }
    }

    /// Notes something that is well, or was made.
    pub(super) fn note(
        &mut self,
        check: &'static str,
        outcome: Outcome,
        detail: impl Into<String>,
    ) -> Result<(), Error> {
        self.add(Finding {
            check,
            outcome,
            detail: detail.into(),
            remedy: None,
        })
    }

    /// Notes a problem and what to do about it.
    pub(super) fn problem(
        &mut self,
        check: &'static str,
        outcome: Outcome,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Result<(), Error> {
        self.add(Finding {
            check,
            outcome,
            detail: detail.into(),
            remedy: Some(remedy.into()),
        })
    }

    fn add(&mut self, finding: Finding) -> Result<(), Error> {
        if !self.json {
            let mark = match finding.outcome {
                Outcome::Ok => "ok      ",
                Outcome::Done => "done    ",
                Outcome::Warning => "warning ",
                Outcome::Failed => "FAILED  ",
            };
            output::write_line(&format!("{mark}{}: {}", finding.check, finding.detail))?;
            if let Some(remedy) = &finding.remedy {
                output::write_line(&format!("          -> {remedy}"))?;
            }
        }
        self.list.push(finding);
        Ok(())
    }

    /// How many checks failed.
    pub(super) fn failed(&self) -> usize {
        self.list
            .iter()
            .filter(|finding| finding.outcome == Outcome::Failed)
            .count()
    }

    /// Prints what is left to print; an error if a check failed.
    pub(super) fn finish(self) -> Result<(), Error> {
        if self.json {
            output::json(&self.list)?;
        }
        match self.failed() {
            0 => Ok(()),
            failed => Err(Error::NotReady {
                failed,
                checks: self.list.len(),
            }),
        }
    }
}
