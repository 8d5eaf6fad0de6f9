//! A finding: the result of a check of one setting, with its grade and its advice.

use serde::Serialize;

/// The grade of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Grade {
    /// The setting is as it should be.
    Good,
    /// The setting works, but another one would be better.
    Advice,
    /// The setting will make something fail or be slow.
    Problem,
}

/// The result of checking one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) grade: Grade,
    pub(super) subject: String,
    /// The value that was found.
    pub(super) found: String,
    /// The effect of the finding and the remedy; empty for a good finding.
    pub(super) advice: String,
    /// The setting that `--apply` would write; `None` if none is wrong, or it is not safe to write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fix: Option<Fix>,
    /// The network card of a listener; `None` in other findings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) card: Option<Card>,
}

/// A file of the kernel, by its path without the leading `/`, and the content that it should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Fix {
    pub(super) file: String,
    pub(super) value: String,
}

/// A network card, as far as it matters to a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Card {
    /// The address of the listener, with its protocol.
    pub(super) listener: String,
    pub(super) interface: String,
    /// The name of the driver; `None` for an interface without hardware.
    pub(super) driver: Option<String>,
    /// Number of queues to receive.
    pub(super) queues: usize,
    /// The node of memory; `None` if the kernel does not tell it.
    pub(super) node: Option<u64>,
    /// The processors that handle the card's interrupts, as the kernel writes them; empty if it has
    /// none of its own.
    pub(super) interrupts: String,
    /// The processors of the server's workers.
    pub(super) workers: String,
    /// The processors that both of these have.
    pub(super) shared: String,
}

impl Finding {
    pub(super) fn good(subject: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding {
            grade: Grade::Good,
            subject: subject.into(),
            found: found.into(),
            advice: String::new(),
            fix: None,
            card: None,
        }
    }

    pub(super) fn graded(self, grade: Grade, advice: impl Into<String>) -> Finding {
        Finding { grade, advice: advice.into(), ..self }
    }

    pub(super) fn with_fix(self, file: &str, value: &str) -> Finding {
        Finding { fix: Some(Fix { file: file.to_owned(), value: value.to_owned() }), ..self }
    }
}
