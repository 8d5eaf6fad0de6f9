//! The report of `nearflash reproduce`: one HTML page that needs no other files.

use std::fmt::Write as _;

use figures::{Figure, Table, Verdict};

use super::machine::Machine;
use crate::plot;

/// The colours of the page: on light ground, and on dark ground where the reader prefers that.
const INKS: &str = "\
:root{color-scheme:light dark;--page:#fff;--ink:#222;--pale:#666;--line:#ccc;--thin:#eee;\
--good:#00724f;--bad:#b3261e;--link:#0072b2}\
@media screen and (prefers-color-scheme:dark){:root{--page:#12161c;--ink:#e6e9ee;--pale:#a3adb9;\
--line:#4a5562;--thin:#2b333d;--good:#4fd0a5;--bad:#ff8f86;--link:#74b6ff}";

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:60rem;\
margin:2rem auto;padding:0 1rem}\
h1{font-size:1.7rem;margin:0 0 .3rem}h2{font-size:1.25rem;margin:3rem 0 .5rem}\
p{margin:.5rem 0;max-width:46rem}.pale{color:var(--pale)}\
.wide{overflow-x:auto}nav{margin:1rem 0}nav ul{columns:3 14rem;margin:.3rem 0;padding-left:1.1rem}\
nav li{break-inside:avoid}\
table{border-collapse:collapse;margin:.8rem 0;font-size:.92rem}\
th{text-align:left;color:var(--pale);font-weight:600;border-bottom:2px solid var(--line)}\
th,td{padding:.25rem .9rem .25rem 0;vertical-align:top}td{border-bottom:1px solid var(--thin)}\
td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
.met{color:var(--good);font-weight:600}.missed{color:var(--bad);font-weight:700}\
td.met,td.missed,.verdicts td:first-child{white-space:nowrap}\
figure{margin:1rem 0}svg{width:100%;height:auto;display:block}a{color:var(--link)}\
.narrow{display:none}p,h1,h2,li,.verdicts td{overflow-wrap:anywhere}\
@media(max-width:40rem){body{margin:1rem auto}nav ul{columns:1}\
.broad{display:none}.narrow{display:block}\
.verdicts,.verdicts tbody,.verdicts tr,.verdicts td{display:block}.verdicts thead{display:none}\
.verdicts tr{border:1px solid var(--line);border-radius:.4rem;padding:.4rem .6rem;margin:.5rem 0}\
.verdicts td{border:0;padding:.1rem 0}.verdicts td:empty{display:none}\
.verdicts td[data-of]::before{content:attr(data-of) \": \";color:var(--pale)}\
.wide td,.wide th{white-space:nowrap}.verdicts td{white-space:normal}}\
@media print{svg{break-inside:avoid}h2{break-after:avoid}}";

/// Returns the style of the page, with the colours of its pictures on dark ground.
fn style() -> String {
    format!("{INKS}{}}}{STYLE}", plot::dark_rules())
}

/// Returns the page with these figures, measured on `machine`.
pub(super) fn report(figures: &[Figure], machine: &Machine, quick: bool) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>nearflash: the ReFlex paper, reproduced</title><style>{}</style></head><body>\n\
         <h1>The ReFlex paper, reproduced</h1>\n<p class=\"pale\">{}</p>\n",
        style(),
        escaped(&machine.to_string())
    );
    page.push_str(
        "<p>Klimovic, Litz and Kozyrakis, <a href=\"https://doi.org/10.1145/3037697.3037732\">\
         ReFlex: Remote Flash ≈ Local Flash</a> (ASPLOS 2017), by nearflash. What runs in virtual \
         time comes out the same on every machine; what runs in real time is this machine's.</p>\n",
    );
    if quick {
        page.push_str("<p class=\"missed\">Quick runs: an impression, not a result.</p>\n");
    }
    page.push_str(&contents(figures));
    page.push_str(&summary(figures));
    for figure in figures {
        page.push_str(&section(figure));
    }
    page.push_str("</body></html>\n");
    page
}

/// Returns the list of links to the figures as HTML, with the number of missed targets of each.
fn contents(figures: &[Figure]) -> String {
    let mut text = String::from("<nav aria-label=\"Contents\"><ul>\n");
    for figure in figures {
        let missed = figure.verdicts.iter().filter(|verdict| !verdict.met).count();
        let word = match missed {
            0 => String::new(),
            _ => format!(" <span class=\"missed\">✗ {missed} missed</span>"),
        };
        let (id, title) = (figure.id, escaped(&figure.title));
        let _ = writeln!(text, "<li><a href=\"#{id}\">{id}</a>: {title}{word}</li>");
    }
    text.push_str("</ul></nav>\n");
    text
}

/// Returns a table of all figures' verdicts as HTML.
fn summary(figures: &[Figure]) -> String {
    let mut text = String::from(
        "<div class=\"wide\"><table class=\"verdicts\"><thead><tr><th></th><th>measure</th><th>target</th>\
         <th>measured</th><th></th></tr></thead><tbody>\n",
    );
    for figure in figures {
        for (n, verdict) in figure.verdicts.iter().enumerate() {
            let link = match n {
                0 => format!("<a href=\"#{0}\">{0}</a>", figure.id),
                _ => String::new(),
            };
            let _ = writeln!(text, "<tr><td>{link}</td>{}</tr>", verdict_cells(verdict));
        }
    }
    text.push_str("</tbody></table></div>\n");
    text
}

fn verdict_cells(verdict: &Verdict) -> String {
    let (class, word) = if verdict.met { ("met", "✓ met") } else { ("missed", "✗ missed") };
    format!(
        "<td>{}</td><td data-of=\"target\">{}</td><td data-of=\"measured\">{}</td>\
         <td class=\"{class}\">{word}</td>",
        escaped(&verdict.what),
        escaped(&verdict.target),
        escaped(&verdict.measured)
    )
}

fn section(figure: &Figure) -> String {
    let title = escaped(&figure.title);
    let mut text = format!("<h2 id=\"{0}\">{0}: {title}</h2>\n", figure.id);
    // The narrow picture is for telephones, and none is read aloud twice.
    let pictures = [("broad", plot::untitled(figure)), ("narrow", plot::narrow(figure))];
    for (class, svg) in pictures {
        let Ok(svg) = svg else { continue };
        let head = format!("<figure class=\"{class}\" role=\"img\" aria-label=\"{title}\">");
        let _ = writeln!(text, "{head}{svg}</figure>");
    }
    text.push_str(&table(&figure.table));
    for note in &figure.notes {
        let _ = writeln!(text, "<p>{}</p>", escaped(note));
    }
    text
}

fn table(table: &Table) -> String {
    let mut text = String::from("<div class=\"wide\"><table><thead><tr>");
    for column in &table.columns {
        let _ = write!(text, "<th>{}</th>", escaped(column));
    }
    text.push_str("</tr></thead><tbody>\n");
    for row in &table.rows {
        text.push_str("<tr>");
        for cell in row {
            let class = if is_number(cell) { " class=\"number\"" } else { "" };
            let _ = write!(text, "<td{class}>{}</td>", escaped(cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
    text
}

/// Returns `true` if a cell is a number, such as `1 234.5`, `-3.1 %` or `78 / 90`, which is aligned
/// to the right.
fn is_number(cell: &str) -> bool {
    let starts = cell.trim_start_matches(['+', '-', '−', '<', '≈', ' ']);
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit() || " .,%/–-".contains(c));
    starts.starts_with(|c: char| c.is_ascii_digit()) && digits(starts)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use figures::Series;

    #[test]
    fn the_page_stands_alone_and_says_everything() {
        let mut figure = Figure {
            id: "fig4",
            title: "a < b".to_owned(),
            x_label: "IOPS".to_owned(),
            y_label: "µs".to_owned(),
            log_y: false,
            series: vec![Series { name: "local".to_owned(), points: vec![(1.0, 2.0)] }],
            table: Table::new(&["way", "IOPS"]),
            notes: vec!["p95 < 1 & so on".to_owned()],
            verdicts: Vec::new(),
        };
        figure.table.row(vec!["local".to_owned(), "870 000".to_owned()]);
        figure.judge("ratio", "≥ 0.9", "0.5".to_owned(), false);
        let page = report(&[figure], &Machine::describe(), true);
        let contents = "<li><a href=\"#fig4\">fig4</a>: a &lt; b <span class=\"missed\">✗ 1 missed";
        assert_eq!(page.matches("a &lt; b").count(), 4, "contents, heading, labels");
        for words in
            [contents, "a &lt; b", "<svg", "870 000", "p95 &lt; 1 &amp; so on", "✗ missed", "Quick"]
        {
            assert!(page.contains(words), "{words}");
        }
        let style = style();
        assert_eq!(style.matches('{').count(), style.matches('}').count(), "{style}");
        assert!(page.contains(&style) && style.contains("(prefers-color-scheme:dark){:root{"));
        for foreign in ["<script", "src=", "@import", "url(", "<link"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn figures_stand_flush_right() {
        for number in ["870 000", "78 / 90", "-3.1 %", "12.5"] {
            assert!(is_number(number), "{number}");
        }
        for words in ["local", "2 threads", "", "- none -"] {
            assert!(!is_number(words), "{words}");
        }
    }
}
