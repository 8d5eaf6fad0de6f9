//! Checks of `unsafe`: only three crates may have it, and each use states its safety argument.

use proc_macro2::{TokenStream, TokenTree};

use super::tree::{File, Tree};

/// The folders that may contain `unsafe`: for system calls, the pointers of C, and the memory of
/// Python.
const HOMES: [&str; 3] = ["crates/io/", "crates/capi/", "python/"];

/// The largest number of lines of code from the covering comment to the line of `unsafe`, which is
/// counted too.
const REACH: usize = 4;

/// Returns a line for each file that has `unsafe` outside of these folders or before the reason for
/// it, and for each `unsafe` without its comment.
pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.sources().filter(|file| file.text.contains("unsafe")) {
        let mut lines = Vec::new();
        if let Ok(tokens) = file.text.parse::<TokenStream>() {
            collect(tokens, &mut lines);
        }
        let Some(first) = lines.iter().min() else { continue };
        if !HOMES.iter().any(|home| file.path.starts_with(home)) {
            let homes = HOMES.join(" and ");
            found.push(format!("{}:{first}: `unsafe` outside of {homes}", file.path));
            continue;
        }
        if !file.text.lines().take(*first).any(|line| line.starts_with("// UNSAFETY: ")) {
            found.push(format!("{}: uses `unsafe` without `// UNSAFETY: why`", file.path));
        }
        let bare = lines.iter().filter(|line| !is_covered(file, **line));
        found.extend(
            bare.map(|line| {
                format!("{}:{line}: `unsafe` without `// SAFETY:` before it", file.path)
            }),
        );
    }
    found
}

/// Adds to `lines` the line of each keyword `unsafe`, outside of comments and strings.
fn collect(tokens: TokenStream, lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) if name == "unsafe" => lines.push(name.span().start().line),
            TokenTree::Group(group) => collect(group.stream(), lines),
            _ => {}
        }
    }
}

/// Returns `true` if a `SAFETY:` comment, or the `# Safety` section of an unsafe function's
/// documentation, covers a line: with at most [`REACH`] lines of code down to it, itself counted.
fn is_covered(file: &File, line: usize) -> bool {
    let above: Vec<&str> = file.text.lines().take(line).collect();
    let mut code = 0;
    for text in above.iter().rev() {
        if text.contains("// SAFETY: ") || text.contains("# Safety") {
            return true;
        }
        let trimmed = text.trim_start();
        if !trimmed.starts_with("//") && !trimmed.starts_with("#[") {
            code += 1;
        }
        if code > REACH {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "//! Rings.\n// UNSAFETY: the kernel\nfn a() {\n    // SAFETY: it lives\n    \
                        // as long as the ring.\n    unsafe { b() }\n}\n";

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)]))
    }

    #[test]
    fn a_covered_block_at_home_passes() {
        assert_eq!(found("crates/io/src/ring.rs", GOOD), [""; 0]);
    }

    #[test]
    fn elsewhere_it_is_found_but_not_in_words() {
        assert_eq!(found("crates/proto/src/a.rs", GOOD).len(), 1);
        let words = "// unsafe\nconst A: &str = \"unsafe\"; #[deny(unsafe_code)] fn a() {}";
        assert_eq!(found("crates/proto/src/a.rs", words), [""; 0]);
    }

    #[test]
    fn a_missing_comment_is_found() {
        let bare = GOOD.replace("// SAFETY: it lives", "// it lives");
        assert!(found("crates/io/src/ring.rs", &bare)[0].contains(":6:"));
        let module = GOOD.replace("UNSAFETY", "");
        assert!(found("crates/io/src/ring.rs", &module)[0].contains("UNSAFETY"));
    }
}
