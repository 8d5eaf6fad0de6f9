//! The functions of OpenSSL 3 that a handshake with pre-shared keys needs. They are found when the
//! first of such handshakes is prepared, so that a program without them is built and run without
//! OpenSSL.
#![allow(unsafe_code)]
// UNSAFETY: opens a shared library and calls its functions by pointers, as its headers declare
// them.

use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_ulong, c_void};
use std::ptr::null;
use std::sync::OnceLock;

use crate::Error;

/// The name of the library. All versions 3 of OpenSSL have it, and keep its interface.
const LIBRARY: &CStr = c"libssl.so.3";

/// `OPENSSL_INIT_NO_ATEXIT`.
const NO_ATEXIT: u64 = 1 << 19;

/// Declares opaque types of OpenSSL, which are used only through pointers.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            pub(super) struct $name {
                _content: [u8; 0],
            }
        )*
    };
}

opaque! {
    /// `SSL_CTX`: the settings of handshakes.
    SslCtx
    /// `SSL`: one handshake.
    Ssl
    /// `SSL_SESSION`: a pre-shared key for a handshake.
    SslSession
    /// `SSL_CIPHER`.
    SslCipher
    /// `SSL_METHOD`.
    SslMethod
    /// `BIO`: a queue of bytes.
    Bio
    /// `BIO_METHOD`.
    BioMethod
}

/// `SSL_psk_find_session_cb_func`.
pub(super) type FindSession =
    extern "C" fn(*mut Ssl, *const c_uchar, usize, *mut *mut SslSession) -> c_int;

/// `SSL_psk_use_session_cb_func`. The second argument is an `EVP_MD`.
pub(super) type UseSession = extern "C" fn(
    *mut Ssl,
    *const c_void,
    *mut *const c_uchar,
    *mut usize,
    *mut *mut SslSession,
) -> c_int;

/// `SSL_client_hello_cb_fn`.
pub(super) type OnHello = extern "C" fn(*mut Ssl, *mut c_int, *mut c_void) -> c_int;

/// `SSL_CTX_keylog_cb_func`.
pub(super) type OnSecret = extern "C" fn(*const Ssl, *const c_char);

/// Declares a struct of pointers to functions, and how they are found in the library.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident {
        $($field:ident = $symbol:ident($($argument:ty),*) $(-> $result:ty)?;)*
    }) => {
        $(#[$doc])*
        pub(super) struct $name {
            // SAFETY: a type; each call says why it is sound.
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $name {
            fn find(library: &Library) -> Result<$name, Error> {
                Ok($name {
                    $($field: {
                        let found = library.find(concat!(stringify!($symbol), "\0"))?;
                        // SAFETY: the library's headers declare the function with this type, and
                        // pointers to functions and to data have one size where dlsym exists.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    /// Functions of the settings of handshakes.
    ContextFunctions {
        init = OPENSSL_init_ssl(u64, *const c_void) -> c_int;
        server_method = TLS_server_method() -> *const SslMethod;
        client_method = TLS_client_method() -> *const SslMethod;
        new = SSL_CTX_new(*const SslMethod) -> *mut SslCtx;
        free = SSL_CTX_free(*mut SslCtx);
        ctrl = SSL_CTX_ctrl(*mut SslCtx, c_int, c_long, *mut c_void) -> c_long;
        set_options = SSL_CTX_set_options(*mut SslCtx, u64) -> u64;
        clear_options = SSL_CTX_clear_options(*mut SslCtx, u64) -> u64;
        set_ciphersuites = SSL_CTX_set_ciphersuites(*mut SslCtx, *const c_char) -> c_int;
        set_num_tickets = SSL_CTX_set_num_tickets(*mut SslCtx, usize) -> c_int;
        set_verify = SSL_CTX_set_verify(*mut SslCtx, c_int, *const c_void);
        on_hello = SSL_CTX_set_client_hello_cb(*mut SslCtx, OnHello, *mut c_void);
        on_find = SSL_CTX_set_psk_find_session_callback(*mut SslCtx, FindSession);
        on_use = SSL_CTX_set_psk_use_session_callback(*mut SslCtx, UseSession);
        on_secret = SSL_CTX_set_keylog_callback(*mut SslCtx, OnSecret);
    }
}

functions! {
    /// Functions of one handshake.
    HandshakeFunctions {
        new = SSL_new(*mut SslCtx) -> *mut Ssl;
        free = SSL_free(*mut Ssl);
        set_bio = SSL_set_bio(*mut Ssl, *mut Bio, *mut Bio);
        set_accept_state = SSL_set_accept_state(*mut Ssl);
        set_connect_state = SSL_set_connect_state(*mut Ssl);
        handshake = SSL_do_handshake(*mut Ssl) -> c_int;
        get_error = SSL_get_error(*const Ssl, c_int) -> c_int;
        set_data = SSL_set_ex_data(*mut Ssl, c_int, *mut c_void) -> c_int;
        get_data = SSL_get_ex_data(*const Ssl, c_int) -> *mut c_void;
        set_ciphersuites = SSL_set_ciphersuites(*mut Ssl, *const c_char) -> c_int;
        hello_extension =
            SSL_client_hello_get0_ext(*mut Ssl, u32, *mut *const c_uchar, *mut usize) -> c_int;
        used_psk = SSL_session_reused(*const Ssl) -> c_int;
        find_cipher = SSL_CIPHER_find(*mut Ssl, *const c_uchar) -> *const SslCipher;
    }
}

functions! {
    /// Functions of pre-shared keys, of queues of bytes and of errors.
    SupportFunctions {
        session_new = SSL_SESSION_new() -> *mut SslSession;
        session_free = SSL_SESSION_free(*mut SslSession);
        session_set_key = SSL_SESSION_set1_master_key(*mut SslSession, *const c_uchar, usize) -> c_int;
        session_set_cipher = SSL_SESSION_set_cipher(*mut SslSession, *const SslCipher) -> c_int;
        session_set_version = SSL_SESSION_set_protocol_version(*mut SslSession, c_int) -> c_int;
        bio_memory = BIO_s_mem() -> *const BioMethod;
        bio_new = BIO_new(*const BioMethod) -> *mut Bio;
        bio_free = BIO_free(*mut Bio) -> c_int;
        bio_write = BIO_write(*mut Bio, *const c_void, c_int) -> c_int;
        bio_read = BIO_read(*mut Bio, *mut c_void, c_int) -> c_int;
        clear_errors = ERR_clear_error();
        next_error = ERR_get_error() -> c_ulong;
    }
}

/// The functions of the OpenSSL library that this program uses, loaded at run time.
pub(super) struct OpenSsl {
    pub(super) contexts: ContextFunctions,
    pub(super) talks: HandshakeFunctions,
    pub(super) parts: SupportFunctions,
}

impl OpenSsl {
    /// Returns the functions, which the first call finds.
    ///
    /// # Errors
    /// Fails if the library is missing or lacks a function, and says what to install.
    pub(super) fn get() -> Result<&'static OpenSsl, Error> {
        static FOUND: OnceLock<Result<OpenSsl, String>> = OnceLock::new();
        let found = FOUND.get_or_init(|| OpenSsl::find().map_err(|error| error.to_string()));
        found.as_ref().map_err(Error::new)
    }

    fn find() -> Result<OpenSsl, Error> {
        let library = Library::open(LIBRARY)?;
        let contexts = ContextFunctions::find(&library)?;
        // SAFETY: the options are the library's, and it takes no settings then. Without the option
        // its memory would be freed at the end of the process, beside threads that do handshakes.
        if unsafe { (contexts.init)(NO_ATEXIT, null()) } != 1 {
            return Err(Error::new("OpenSSL cannot be initialised".to_owned()));
        }
        Ok(OpenSsl {
            contexts,
            talks: HandshakeFunctions::find(&library)?,
            parts: SupportFunctions::find(&library)?,
        })
    }
}

/// A shared library that stays open until the process ends.
struct Library {
    handle: *mut c_void,
    name: &'static CStr,
}

impl Library {
    fn open(name: &'static CStr) -> Result<Library, Error> {
        // SAFETY: the name is a string of C; OpenSSL's initialisation has no conditions.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() { Err(missing(name)) } else { Ok(Library { handle, name }) }
    }

    /// Returns the address of a function in the library, or in one that it needs. The name ends
    /// with a zero.
    fn find(&self, function: &str) -> Result<*mut c_void, Error> {
        let function = CStr::from_bytes_with_nul(function.as_bytes()).expect("it ends with a zero");
        // SAFETY: the handle is open, and the name is a string of C.
        let found = unsafe { libc::dlsym(self.handle, function.as_ptr()) };
        if found.is_null() { Err(missing(self.name)) } else { Ok(found) }
    }
}

/// Returns the error for the last failed call of the dynamic linker.
fn missing(name: &CStr) -> Error {
    // SAFETY: takes no argument; the result is a string of C or null, valid until the next call of
    // this thread.
    let why = unsafe { libc::dlerror().as_ref() };
    // SAFETY: as above.
    let why = why.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned());
    Error::new(format!(
        "TLS with pre-shared keys needs OpenSSL 3, and {} cannot be used ({}); install it: it is in \
         package libssl3 of Debian 12 and Ubuntu 22.04, libssl3t64 of later ones, and openssl-libs \
         of Fedora and Red Hat",
        name.to_string_lossy(),
        why.as_deref().unwrap_or("no reason is given")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_what_to_install() {
        let error = Library::open(c"libnearflash-has-none.so.3").err().unwrap().to_string();
        assert!(
            error.contains("libnearflash-has-none.so.3") && error.contains("libssl3"),
            "{error}"
        );
        let Ok(library) = Library::open(c"libc.so.6") else { return };
        let error = library.find("no_such_function\0").unwrap_err().to_string();
        assert!(error.contains("no_such_function"), "{error}");
    }
}
