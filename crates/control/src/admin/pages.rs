//! The dashboard: pages for a browser, embedded in the program.
//!
//! The pages are files of `crates/control/ui`, served unchanged. They get their data from the API.
//! This module deliberately leaves out the requests by which pages change something.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::Router;
use axum::extract::{Path, Request};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

use super::problem::{Code, Problem};

/// The content security policy of the pages: they may run and show resources of this server, and
/// connect to it. No inline code, no evaluated text, no frames, no forms to other places.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// The header that tells browsers which pages may load a file.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// A file of the dashboard.
struct File {
    /// Path below `ui/`, with slashes.
    path: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(File { path: $path, bytes: include_bytes!(concat!("../../ui/", $path)) }),+]
    };
}

/// All files of the dashboard.
const FILES: &[File] = files![
    "index.html",
    "api.js",
    "app.js",
    "base.css",
    "chart.js",
    "check.js",
    "connections.js",
    "device.js",
    "devices.js",
    "dom.js",
    "first.js",
    "format.js",
    "heat.js",
    "history.js",
    "icon.svg",
    "link.js",
    "moment.js",
    "parts.css",
    "sign-in.js",
    "standing.js",
    "tenant.js",
    "tenants.js",
    "theme.js",
    "tiles.js",
    "tokens.js",
    "vendor/uplot/LICENSE",
    "vendor/uplot/uPlot.iife.min.js",
    "vendor/uplot/uPlot.min.css",
    "violations.js",
    "workers.js",
];

/// Returns `true` for a GET of a file of the dashboard. These files are the same on every server.
pub(super) fn is_one(request: &Request) -> bool {
    let path = request.uri().path();
    let is_file = path == "/" || path == "/ui" || path.starts_with("/ui/");
    is_file && *request.method() == Method::GET
}

/// Returns the router that serves the dashboard's files.
pub(super) fn pages_router() -> Router {
    Router::new()
        .route("/", get(async || Redirect::temporary("/ui/")))
        .route("/ui", get(async || Redirect::temporary("/ui/")))
        .route("/ui/", get(async |headers: HeaderMap| serve("index.html", &headers)))
        .route(
            "/ui/{*path}",
            get(async |Path(path): Path<String>, headers: HeaderMap| serve(&path, &headers)),
        )
}

fn serve(path: &str, asked: &HeaderMap) -> Response {
    let Some(file) = FILES.iter().find(|file| file.path == path) else {
        return Problem::new(Code::NotFound, "the dashboard is at /ui/").into_response();
    };
    let tag = HeaderValue::from_str(&file.tag()).expect("digits and quotes");
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(file.kind())),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (RESOURCE_POLICY, HeaderValue::from_static("same-origin")),
        // A browser asks each time whether its copy is of this version.
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (ETAG, tag.clone()),
    ];
    match asked.get(IF_NONE_MATCH) {
        Some(known) if *known == tag => (StatusCode::NOT_MODIFIED, headers).into_response(),
        _ => (headers, file.bytes).into_response(),
    }
}

impl File {
    fn kind(&self) -> &'static str {
        match self.path.rsplit_once('.').map(|(_, ending)| ending) {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        }
    }

    /// Returns the entity tag of the file, a digest that changes with its bytes.
    fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.bytes.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn files_below(folder: &Path) -> Vec<PathBuf> {
        let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] })
            .collect()
    }

    fn text(file: &File) -> &'static str {
        std::str::from_utf8(file.bytes).unwrap()
    }

    #[test]
    fn only_files_of_the_pages_are_for_everybody() {
        let is_one = |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path);
            super::is_one(&request.body(axum::body::Body::empty()).unwrap())
        };
        for path in ["/", "/ui", "/ui/", "/ui/app.js"] {
            assert!(is_one("GET", path) && !is_one("POST", path), "{path}");
        }
        for path in ["/metrics", "/v1/tenants", "/openapi.json", "/uix", "//ui/", "/healthz"] {
            assert!(!is_one("GET", path), "{path}");
        }
    }

    #[test]
    fn every_file_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
        let found = files_below(&folder)
            .into_iter()
            .map(|path| path.strip_prefix(&folder).unwrap().to_str().unwrap().to_owned());
        let mut found: Vec<String> = found.filter(|path| !path.ends_with(".toml")).collect();
        found.sort();
        let mut served: Vec<&str> = FILES.iter().map(|file| file.path).collect();
        served.sort_unstable();
        assert_eq!(found, served);
        assert_eq!(serve("vendored.toml", &HeaderMap::new()).status(), StatusCode::NOT_FOUND);
        assert_eq!(serve("../Cargo.toml", &HeaderMap::new()).status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        for file in FILES.iter().filter(|file| !file.path.starts_with("vendor/")) {
            let text = text(file).replace("http://www.w3.org/", "");
            for word in ["http://", "https://", "//cdn", "innerHTML", "eval("] {
                assert!(!text.contains(word), "{}: {word}", file.path);
            }
        }
    }

    #[test]
    fn browsers_are_told_that_nothing_else_may_run_or_show_it() {
        for file in FILES {
            let response = serve(file.path, &HeaderMap::new());
            let told = |name| response.headers().get(name).unwrap().to_str().unwrap();
            let rules: Vec<&str> = told(CONTENT_SECURITY_POLICY).split("; ").collect();
            for rule in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
                assert!(rules.contains(&rule), "{}: {rules:?}", file.path);
            }
            assert!(!rules.iter().any(|rule| rule.contains("unsafe")), "{rules:?}");
            assert_eq!(told(X_FRAME_OPTIONS), "DENY");
            assert_eq!(told(RESOURCE_POLICY), "same-origin");
        }
    }

    #[test]
    fn what_files_name_is_there() {
        let known = |path: &str| FILES.iter().any(|file| file.path == path);
        let mut seen = 0;
        for file in FILES.iter().filter(|file| !file.path.starts_with("vendor/")) {
            let text = text(file);
            for sign in ["from \"./", "src=\"", "href=\""] {
                let names = text.split(sign).skip(1).map(|rest| rest.split('"').next().unwrap());
                for name in names.filter(|name| !name.starts_with('#')) {
                    assert!(known(name), "{}: {name}", file.path);
                    seen += 1;
                }
            }
        }
        assert!(seen > 10, "{seen} names");
    }

    #[test]
    fn a_copy_of_this_version_is_not_sent_again() {
        let first = serve("app.js", &HeaderMap::new());
        let policy = first.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        let tag = first.headers()[ETAG].clone();
        let again = serve("app.js", &HeaderMap::from_iter([(IF_NONE_MATCH, tag.clone())]));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let other = serve("api.js", &HeaderMap::from_iter([(IF_NONE_MATCH, tag)]));
        assert_eq!(other.status(), StatusCode::OK);
    }
}
