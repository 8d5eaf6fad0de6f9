//! Tests that `include/nearflash.h` declares what the library has: each function, struct and
//! constant, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use syn::{Expr, FnArg, Item, Lit, Pat, ReturnType, Type};

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns a text without comments, with one blank between words.
fn plain(header: &str) -> String {
    let mut text = String::new();
    for (n, part) in header.split("/*").enumerate() {
        text += if n == 0 { part } else { part.split_once("*/").expect("a comment ends").1 };
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the name of a type of the library in C: `nf_properties` for `Properties`.
fn c_name(name: &str) -> String {
    let known = match name {
        "c_int" => "int",
        "c_char" => "char",
        "c_void" => "void",
        "usize" => "size_t",
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i32" => "int32_t",
        "i64" => "int64_t",
        other => return format!("nf_{}", other.to_lowercase()),
    };
    known.to_owned()
}

/// Returns the declaration of `name` with a type in C.
fn declared(ty: &Type, name: &str) -> String {
    match ty {
        Type::Path(path) => {
            let last = path.path.segments.last().expect("a path has an end");
            format!("{} {name}", c_name(&last.ident.to_string()))
        }
        Type::Ptr(pointer) => {
            let constant = if pointer.const_token.is_some() { "const " } else { "" };
            format!("{constant}{}", declared(&pointer.elem, &format!("*{name}")))
        }
        Type::Array(array) => {
            let Expr::Lit(len) = &array.len else { panic!("a length is a number") };
            let Lit::Int(len) = &len.lit else { panic!("a length is a number") };
            declared(&array.elem, &format!("{name}[{len}]"))
        }
        _ => panic!("a type that C does not have"),
    }
}

/// Returns the declarations in C of what a source file exports.
fn exported(source: &str) -> Vec<String> {
    let mut all = Vec::new();
    for item in syn::parse_file(source).unwrap().items {
        match item {
            Item::Fn(function) if function.sig.abi.is_some() => {
                let signature = function.sig;
                if !signature.ident.to_string().starts_with("nf_") {
                    continue;
                }
                let arguments: Vec<String> = signature.inputs.iter().map(argument).collect();
                let list =
                    if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
                let ReturnType::Type(_, ty) = &signature.output else {
                    panic!("a function returns something")
                };
                all.push(declared(ty, &format!("{}({list});", signature.ident)));
            }
            Item::Struct(item) if is_of_c(&item.attrs) => {
                let name = c_name(&item.ident.to_string());
                let field = |field: &syn::Field| {
                    declared(&field.ty, &field.ident.as_ref().unwrap().to_string())
                };
                let fields: Vec<String> = item.fields.iter().map(field).collect();
                let fields = fields.join("; ");
                all.push(format!("typedef struct {name} {{ {fields}; }} {name};"));
            }
            Item::Const(item) if item.ident.to_string().starts_with("NF_") => {
                let Expr::Lit(value) = *item.expr else { panic!("a constant is a number") };
                let Lit::Int(value) = value.lit else { panic!("a constant is a number") };
                all.push(format!("#define {} {value} ", item.ident));
            }
            _ => {}
        }
    }
    all
}

fn is_of_c(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("repr"))
}

fn argument(argument: &FnArg) -> String {
    let FnArg::Typed(typed) = argument else { panic!("there is no `self` in C") };
    let Pat::Ident(name) = &*typed.pat else { panic!("an argument has a name") };
    declared(&typed.ty, &name.ident.to_string())
}

fn all_exported() -> Vec<String> {
    let files = ["abi.rs", "failure.rs", "queue.rs", "client.rs"];
    files.iter().flat_map(|file| exported(&read(&format!("src/{file}")))).collect()
}

#[test]
fn the_header_is_not_stale() {
    let header = plain(&read("include/nearflash.h"));
    let all = all_exported();
    for declaration in &all {
        assert!(header.contains(declaration), "the header lacks `{declaration}`");
    }
    let functions = all.iter().filter(|it| it.ends_with(");")).count();
    assert_eq!(functions, header.matches(");").count(), "the header has other functions");
    let structs = all.iter().filter(|it| it.starts_with("typedef")).count();
    // Beside them there are the two handles.
    assert_eq!(structs + 2, header.matches("typedef").count(), "the header has other structs");
}

#[test]
fn a_stale_header_is_found() {
    let source = "#[repr(C)] pub struct Op { pub tag: u64, pub rest: [u8; 7] }
        pub const NF_READ: u16 = 0;
        pub extern \"C\" fn nf_error() -> *const c_char { todo() }
        pub unsafe extern \"C\" fn nf_open(queue: *mut *mut Queue, ops: *const Op) -> c_int { 0 }";
    let expected = [
        "typedef struct nf_op { uint64_t tag; uint8_t rest[7]; } nf_op;",
        "#define NF_READ 0 ",
        "const char *nf_error(void);",
        "int nf_open(nf_queue **queue, const nf_op *ops);",
    ];
    assert_eq!(exported(source), expected);
    assert_eq!(plain("a /* b\n c */ d\n  e"), "a d e");
}

#[test]
fn every_function_has_a_version() {
    let map = read("nearflash.map");
    let named = |text: &str| {
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.filter(|word| word.starts_with("nf_")).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let functions: BTreeSet<String> = all_exported()
        .iter()
        .filter_map(|it| it.strip_suffix(");")?.split_once('(').map(|(head, _)| head.to_owned()))
        .flat_map(|head| named(&head))
        .collect();
    assert_eq!(named(&map), functions);
}
