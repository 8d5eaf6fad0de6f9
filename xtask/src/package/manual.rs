//! The manual page of the C library, generated from the comments and declarations of its header.

use std::fmt::Write;

/// The text of the header after which its declarations begin.
const BEGIN: &str = "extern \"C\" {\n#endif\n";

/// The text of the header at which its declarations end.
const END: &str = "#ifdef __cplusplus\n}\n";

/// A function that the header declares, with its comment.
struct Function<'a> {
    name: &'a str,
    declaration: &'a str,
    comment: String,
}

/// The parts of the header, from which the page is made.
struct Header<'a> {
    /// The paragraphs of the comment at the header's top.
    about: Vec<String>,
    /// The constants and types, as the header declares them.
    types: &'a str,
    functions: Vec<Function<'a>>,
}

impl<'a> Header<'a> {
    fn parse(text: &'a str) -> Option<Header<'a>> {
        let (top, rest) = text.strip_prefix("/*")?.split_once("*/")?;
        let about = paragraphs(top);
        let (_, body) = rest.split_once(BEGIN)?;
        let (body, _) = body.split_once(END)?;
        let mut functions = Vec::new();
        let mut types_end = None;
        let mut place = 0;
        while let Some(found) = body[place..].find("\n/* ") {
            let start = place + found + 1;
            let (comment, after) = body[start + 2..].split_once("*/\n")?;
            // The first line after the comment tells whether a function is declared.
            let declaration = after.split_once(';').map_or("", |(head, _)| head);
            place = start + 2 + comment.len();
            if let Some(name) = function_name(declaration) {
                types_end.get_or_insert(start);
                let comment = paragraphs(comment).join("\n");
                functions.push(Function { name, declaration, comment });
            }
        }
        Some(Header { about, types: body[..types_end?].trim(), functions })
    }
}

/// Returns the name of the function that is declared, or `None` if the declaration is of something
/// else.
fn function_name(declaration: &str) -> Option<&str> {
    let (head, _) = declaration.split_once('(')?;
    let is_function = declaration.ends_with(')') && !head.contains(['#', '{', '\t']);
    let name = head.rsplit([' ', '*']).next()?;
    (is_function && name.starts_with("nf_")).then_some(name)
}

/// Splits a comment into its paragraphs, without the stars at the beginnings of its lines. An
/// indented line is a paragraph of its own.
fn paragraphs(comment: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in comment.trim().lines() {
        let line = line.trim_start().strip_prefix('*').unwrap_or(line);
        let line = line.strip_prefix(' ').unwrap_or(line).trim_end();
        let is_new = line.is_empty() || line.starts_with("  ");
        if is_new && !all.last().is_some_and(String::is_empty) {
            all.push(String::new());
        }
        let last = all.last_mut().expect("there is one");
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(if line.starts_with("  ") { line } else { line.trim() });
    }
    all.retain(|paragraph| !paragraph.trim().is_empty());
    all
}

/// Returns a text in which the characters that are special to troff are escaped.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the text of the manual page in section 3, and the names of all functions, each of which
/// gets a page that refers to this one.
pub(super) fn page(header: &str, version: &str) -> Result<(String, Vec<String>), String> {
    let header = Header::parse(header).ok_or("nearflash.h does not have its usual form")?;
    let names: Vec<String> = header.functions.iter().map(|it| it.name.to_owned()).collect();
    let [title, about @ ..] = &header.about[..] else {
        return Err("nearflash.h does not begin with what it is".to_owned());
    };
    let title = title.trim_start_matches("nearflash: ");
    let mut page = format!(
        ".TH NEARFLASH 3 \"\" \"nearflash {version}\" \"C library\"\n.SH NAME\nnearflash, {} \\- {}\n\
         .SH SYNOPSIS\n.nf\n#include <nearflash.h>\n\n",
        names.join(", "),
        escaped(title)
    );
    for function in &header.functions {
        line(&mut page, &format!("{};", escaped(function.declaration)));
    }
    line(&mut page, "\ncc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs nearflash)\n.fi");
    line(&mut page, ".SH DESCRIPTION");
    for paragraph in about {
        described(&mut page, paragraph);
    }
    line(&mut page, ".SH FUNCTIONS");
    for Function { name, declaration, comment } in &header.functions {
        line(&mut page, &format!(".SS {name}\n.nf\n{};\n.fi\n.PP", escaped(declaration)));
        line(&mut page, &escaped(comment));
    }
    line(&mut page, &format!(".SH TYPES AND CONSTANTS\n.nf\n{}\n.fi", escaped(header.types)));
    line(&mut page, ".SH SEE ALSO\n.BR nearflash (1)");
    Ok((page, names))
}

/// Adds a paragraph of the header's top to the page: an error number with its meaning, a paragraph
/// with a title, or a plain one.
fn described(page: &mut String, paragraph: &str) {
    let number = paragraph.trim_start().split_once(' ').filter(|_| paragraph.starts_with("  "));
    match number {
        Some((number, meaning)) => {
            let (number, meaning) = (escaped(number), escaped(meaning.trim()));
            line(page, &format!(".TP\n.B {number}\n{meaning}"));
        }
        None => match paragraph.split_once(". ").filter(|(title, _)| !title.contains(' ')) {
            Some((title, rest)) => line(page, &format!(".SS {title}\n{}", escaped(rest))),
            None => line(page, &format!(".PP\n{}", escaped(paragraph))),
        },
    }
}

fn line(page: &mut String, text: &str) {
    // Nothing is written to but memory.
    let _written = writeln!(page, "{text}");
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use xtask::shell;

    const SMALL: &str = "/* nearflash: fast. The library.\n *\n * A queue is\n * a queue.\n *\n \
        * Results. Zero or -errno.\n *\n *   -EINVAL   wrong\n *   -EIO      broken\n */\n\
        #ifdef __cplusplus\nextern \"C\" {\n#endif\n\n/* Flags. */\n#define NF_A 1 /* a */\n\n\
        /* A thing. */\ntypedef struct nf_a {\n    int b; /* c */\n} nf_a;\n\n\
        /* Opens.\n * Twice. */\nint nf_open(const char *url,\n            int n);\n\n\
        /* Closes. */\nconst char *nf_close(void);\n\n#ifdef __cplusplus\n}\n#endif\n";

    #[test]
    fn the_page_says_what_the_header_says() {
        let (page, names) = page(SMALL, "1.2.3").unwrap();
        assert_eq!(names, ["nf_open", "nf_close"]);
        for part in [
            ".TH NEARFLASH 3 \"\" \"nearflash 1.2.3\"",
            "nearflash, nf_open, nf_close \\- fast. The library.\n",
            "int nf_open(const char *url,\n            int n);\nconst char *nf_close(void);\n",
            ".PP\nA queue is a queue.\n.SS Results\nZero or \\-errno.\n.TP\n.B \\-EINVAL\nwrong\n.TP\n",
            ".SS nf_open\n.nf\nint nf_open(const char *url,\n            int n);\n.fi\n.PP\nOpens. Twice.\n",
            ".nf\n/* Flags. */\n#define NF_A 1 /* a */\n\n/* A thing. */\ntypedef struct nf_a {\n",
        ] {
            assert!(page.contains(part), "{part}\nis not in\n{page}");
        }
        assert_eq!(escaped(".x\\\n'y"), "\\&.x\\e\n\\&'y");
    }

    #[test]
    fn every_function_of_the_library_is_in_it() {
        let folder = shell::root().join("crates/capi");
        let header = fs::read_to_string(folder.join("include/nearflash.h")).unwrap();
        let (page, names) = page(&header, "1").unwrap();
        let map = fs::read_to_string(folder.join("nearflash.map")).unwrap();
        let exported = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
        let mut exported: Vec<&str> = exported.filter(|name| name.starts_with("nf_")).collect();
        let mut described: Vec<&str> = names.iter().map(String::as_str).collect();
        exported.sort_unstable();
        described.sort_unstable();
        assert_eq!(described, exported);
        for part in [".SS Fork\n", ".B \\-ENOTRECOVERABLE\n", "typedef struct nf_slo {"] {
            assert!(page.contains(part), "{part}");
        }
    }
}
