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
}

/// A file of the kernel, by its path without the leading `/`, and the content that it should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Fix {
    pub(super) file: String,
    pub(super) value: String,
}

impl Finding {
    pub(super) fn good(subject: impl Into<String>, found: impl Into<String>) -> Finding {
        Finding {
            grade: Grade::Good,
            subject: subject.into(),
            found: found.into(),
            advice: String::new(),
            fix: None,
        }
    }

    pub(super) fn graded(self, grade: Grade, advice: impl Into<String>) -> Finding {
        Finding { grade, advice: advice.into(), ..self }
    }

    pub(super) fn with_fix(self, file: &str, value: &str) -> Finding {
        Finding { fix: Some(Fix { file: file.to_owned(), value: value.to_owned() }), ..self }
    }
}
