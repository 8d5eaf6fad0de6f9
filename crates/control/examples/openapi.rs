//! Prints the OpenAPI document of the admin API, as a server has it at `/openapi.json`.
//!
//! `python/tools/generate_admin.py` makes the Python client from it.

fn main() {
    println!("{:#}", nearflash_control::admin::document());
}
