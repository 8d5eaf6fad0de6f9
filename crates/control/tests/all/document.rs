//! Tests that the OpenAPI document describes what the server does.

use nearflash_control::admin::document;
use serde_json::json;

use super::admin::{Api, parse};

#[test]
fn the_document_names_what_there_is() {
    let document = document();
    let about = document["info"]["description"].as_str().unwrap();
    for kind in [
        "tenants",
        "devices",
        "namespaces",
        "subsystems",
        "hosts",
        "listeners",
        "workers",
        "connections",
    ] {
        assert!(about.contains(kind), "{kind}");
        let of_one = document["paths"].as_object().unwrap().iter().any(|(path, methods)| {
            path.starts_with(&format!("/v1/{kind}/{{")) && methods["get"].is_object()
        });
        assert!(of_one, "no GET of one of the {kind}");
    }
    assert!(document["paths"]["/metrics"]["get"].is_object());
}

#[test]
fn the_document_says_who_is_not_let_in() {
    let api = Api::start();
    let document = document();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let path = path.replace("{name}", "nobody").replace("{id}", "9:1.1");
            let path = path.replace("{number}", "9");
            let method = method.to_uppercase();
            let (code, answer) = parse(&api.raw(&format!(
                "{method} {path} HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n"
            )));
            assert_eq!((code, &answer["error"]["code"]), (403, &json!("forbidden")), "{path}");
            let schema = &operation["responses"]["403"]["content"]["application/json"]["schema"];
            assert_eq!(schema["$ref"], "#/components/schemas/Failure", "{method} {path}");
            for code in ["401", "408", "429"] {
                assert!(operation["responses"][code].is_object(), "{method} {path}: {code}");
            }
        }
    }
}

#[test]
fn a_path_allows_the_methods_that_the_document_has() {
    let api = Api::start();
    let document = document();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let mut expected: Vec<String> =
            methods.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        if path == "/v1/tenants/check" {
            // A tenant may have this name.
            expected.extend(["GET", "PUT", "DELETE"].map(str::to_owned));
        }
        if expected.iter().any(|method| method == "GET") {
            expected.push("HEAD".to_owned());
        }
        expected.sort();
        let path = path.replace("{name}", "a").replace("{id}", "0:1.1").replace("{number}", "0");
        let answer = api.raw(&format!(
            "OPTIONS {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        ));
        assert_eq!(parse(&answer).0, 405, "{path}");
        let allowed = answer.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap();
        let mut allowed: Vec<&str> = allowed.split(',').collect();
        allowed.sort_unstable();
        assert_eq!(allowed, expected, "{path}");
    }
}

#[test]
fn the_document_has_the_ranges_that_the_server_has() {
    let (api, document) = (Api::start(), document());
    let member = |schema: &str, member: &str, word: &str| {
        document["components"]["schemas"][schema]["properties"][member][word].clone()
    };
    assert_eq!(member("Slo", "latency_us", "minimum"), json!(1));
    assert_eq!(member("Slo", "iops", "minimum"), json!(1));
    assert_eq!(member("Slo", "iops", "maximum"), json!(u32::MAX));
    assert_eq!(member("Slo", "read_percent", "maximum"), json!(100));
    assert_eq!(member("Share", "weight", "maximum"), json!(1_000));
    assert_eq!(member("SetDevice", "recalibrate_idle_seconds", "maximum"), json!(u32::MAX));
    let after = &document["paths"]["/v1/history"]["get"]["parameters"][0]["schema"];
    assert_eq!((&after["minimum"], &after["maximum"]), (&json!(0), &json!(u64::MAX)));
    for (member, outside) in
        [("latency_us", 0), ("iops", 0), ("read_percent", 101), ("request_bytes", 1_048_577)]
    {
        let mut slo = json!({ "latency_us": 900, "iops": 1 });
        slo[member] = outside.into();
        let body = json!({ "name": "x", "slo": slo }).to_string();
        assert_eq!(api.ask("POST", "/v1/tenants", &body).0, 400, "{member}");
    }
    for (path, code) in [
        ("/v1/history?after=18446744073709551615", 200),
        ("/v1/history?after=18446744073709551616", 400),
        ("/v1/standing?limit=18446744073709551616", 400),
    ] {
        assert_eq!(api.ask("GET", path, "").0, code, "{path}");
    }
}

#[test]
fn the_document_describes_what_answers() {
    let api = Api::start();
    let (code, served) = api.ask("GET", "/openapi.json", "");
    assert_eq!(code, 200);
    assert_eq!(served, document());
    for (path, methods) in served["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let path = path.replace("{name}", "nobody").replace("{id}", "9:1.1");
            let path = path.replace("{number}", "9");
            let (code, answer) = api.ask(&method.to_uppercase(), &path, "");
            let known =
                !matches!(answer["error"]["code"].as_str(), Some("not-found" | "no-method"));
            assert!(known, "{method} {path}: {code} {answer}");
            let documented = &methods[method]["responses"][code.to_string()];
            assert!(documented.is_object(), "{method} {path}: {code} is not documented");
        }
    }
    let text = served.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(served["components"]["schemas"][name].is_object(), "{name} is not described");
    }
}
