//! The failures in the outputs of steps, a line each, to be repeated at the end of a long run.

/// Maximum number of characters that are kept of a failure's line.
const LINE_MAX: usize = 400;

/// Maximum number of failures that are kept of a step.
const LINES_MAX: usize = 20;

/// Returns a line for each failure in the output of a step: the test's name and message. If the
/// output names no failed test, its last line stands for it.
pub(super) fn failures(output: &str) -> Vec<String> {
    let mut found: Vec<String> = output
        .lines()
        .filter_map(|line| {
            let rust = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
            if let Some(name) = rust {
                return Some(format!("{name}: {}", panic(output, name)));
            }
            // The lines of trials and of Python's tests.
            let named = line.strip_prefix("FAILED: ").or_else(|| line.strip_prefix("FAILED "));
            named.map(str::to_owned)
        })
        .collect();
    if found.is_empty() {
        found.extend(output.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned));
    }
    found.truncate(LINES_MAX);
    found.into_iter().map(|line| line.chars().take(LINE_MAX).collect()).collect()
}

/// Returns the place and the words of the panic of the test `name` of Rust, from the output of its
/// program.
fn panic(output: &str, name: &str) -> String {
    let said =
        output.lines().skip_while(|line| *line != format!("---- {name} stdout ----")).skip(1);
    let mut said = said.take_while(|line| !line.starts_with("---- "));
    let Some(place) = said.find_map(|line| line.split_once("panicked at ")) else {
        return "ended without a panic".to_owned();
    };
    let words = said.take_while(|line| !line.starts_with("stack backtrace") && !line.is_empty());
    format!("{} {}", place.1, words.collect::<Vec<_>>().join(" "))
}

/// Returns the output of a test program without the text that its passed tests printed.
pub(super) fn without_successes(output: &str) -> String {
    let mut is_shown = true;
    let shown = output.lines().filter(|line| {
        match *line {
            "successes:" => is_shown = false,
            "failures:" => is_shown = true,
            _ => {}
        }
        is_shown
    });
    shown.collect::<Vec<_>>().join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 3 tests\n\
        test a::one ... ok\n\
        test a::two ... FAILED\n\
        test a::three ... FAILED\n\n\
        successes:\n\n\
        ---- a::one stdout ----\n\
        thread 'x' (1) panicked at checked.rs:1:1:\n\
        this was wanted\n\n\
        successes:\n    a::one\n\n\
        failures:\n\n\
        ---- a::two stdout ----\n\n\
        thread 'a::two' (2) panicked at a.rs:3:5:\n\
        assertion failed:\n\
        left is right\n\
        stack backtrace:\n   0: rust\n\n\
        ---- a::three stdout ----\n\
        Error: \"no\"\n\n\
        failures:\n    a::two\n    a::three\n\n\
        test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";

    #[test]
    fn failures_are_told_with_their_words() {
        let expected = [
            "a::two: a.rs:3:5: assertion failed: left is right",
            "a::three: ended without a panic",
        ];
        assert_eq!(failures(OUTPUT), expected);
        assert_eq!(failures("FAILED: kills: two ended\n1 failed\n"), ["kills: two ended"]);
        assert_eq!(failures("FAILED tests/x.py::y - no\n"), ["tests/x.py::y - no"]);
        assert_eq!(failures("compiling\nerror: no such file\n\n"), ["error: no such file"]);
        assert!(failures("").is_empty());
    }

    #[test]
    fn what_passed_tests_printed_is_left_out() {
        let shown = without_successes(OUTPUT);
        assert!(!shown.contains("this was wanted") && shown.contains("left is right"), "{shown}");
        assert!(shown.contains("test result: FAILED"), "{shown}");
        assert_eq!(failures(&shown), failures(OUTPUT));
    }
}
