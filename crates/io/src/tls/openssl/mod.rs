//! The messages of a handshake with pre-shared keys, by OpenSSL. rustls has no external pre-shared
//! keys.
//!
//! Deliberately left out: sockets and records. OpenSSL sees neither: bytes come and go by queues in
//! memory, and what it leaves behind is the secret of each direction.
#![allow(unsafe_code)]
// UNSAFETY: calls OpenSSL, which calls back with pointers.

mod functions;

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_long, c_uchar, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use contract::{Psk, PskHash, TlsFailure};

use self::functions::{OpenSsl, Ssl, SslCtx, SslSession};
use super::offers::{KnownKeys, TrafficSecrets};
use crate::Error;

/// TLS 1.3, as OpenSSL numbers it.
const TLS_1_3: c_int = 0x0304;

/// Bytes that one call reads from OpenSSL's queue.
const PIECE_BYTES: usize = 4096;

/// `SSL_CTRL_SET_SESS_CACHE_MODE`.
const SET_CACHE: c_int = 44;
/// `SSL_CTRL_SET_MIN_PROTO_VERSION`.
const SET_VERSION_MIN: c_int = 123;
/// `SSL_CTRL_SET_MAX_PROTO_VERSION`.
const SET_VERSION_MAX: c_int = 124;
/// `SSL_CTRL_SET_GROUPS_LIST`.
const SET_GROUPS: c_int = 92;
/// The groups of key exchanges: those that cost the server little.
const GROUPS: &CStr = c"X25519:P-256:P-384";
/// `SSL_OP_ALLOW_NO_DHE_KEX`, which a machine's settings may have set.
const WITHOUT_EXCHANGE: u64 = 1 << 10;
/// `SSL_OP_NO_TICKET`.
const NO_TICKETS: u64 = 1 << 14;
/// `SSL_VERIFY_PEER`: a server that proves itself by a certificate is refused, as none is trusted.
const VERIFY_PEER: c_int = 1;
/// `SSL_ERROR_WANT_READ`.
const WANT_READ: c_int = 2;
/// `TLSEXT_TYPE_psk`.
const PSK_EXTENSION: u32 = 41;
/// `ERR_LIB_SSL`.
const ERRORS_OF_TLS: u64 = 20;
/// `SSL_AD_REASON_OFFSET`: an alert of the peer has the reason of its number above this.
const ALERTS_FROM: u64 = 1000;

/// The place of the handshake's data among the extra data of an `SSL`: that of applications.
const DATA: c_int = 0;

/// The OpenSSL settings (`SSL_CTX`) that all handshakes of a listener, or of a client with one key,
/// share.
pub(super) struct SslContext {
    lib: &'static OpenSsl,
    ctx: NonNull<SslCtx>,
    is_server: bool,
}

// SAFETY: OpenSSL counts references to an SSL_CTX by atomics, and it is not changed after `new`.
unsafe impl Send for SslContext {}
// SAFETY: as above.
unsafe impl Sync for SslContext {}

impl Drop for SslContext {
    fn drop(&mut self) {
        // SAFETY: the pointer is of SSL_CTX_new, and freed once.
        unsafe { (self.lib.contexts.free)(self.ctx.as_ptr()) }
    }
}

impl SslContext {
    /// Creates settings for TLS 1.3 with pre-shared keys, with ephemeral keys, and without
    /// certificates or tickets. A server takes the ciphers of both hashes; a client offers that of
    /// its key, which `hash` is of.
    ///
    /// # Errors
    /// Fails if OpenSSL is not installed, or refuses the settings.
    pub(super) fn new(hash: Option<PskHash>) -> Result<SslContext, Error> {
        let (lib, is_server) = (OpenSsl::get()?, hash.is_none());
        let calls = &lib.contexts;
        // SAFETY: without arguments, or with the pointer of the call before.
        let ctx = unsafe {
            let method = match is_server {
                true => (calls.server_method)(),
                false => (calls.client_method)(),
            };
            (calls.new)(method)
        };
        let refused = || Error::new("OpenSSL refuses TLS 1.3 with pre-shared keys".to_owned());
        let ctx = NonNull::new(ctx).ok_or_else(refused)?;
        let context = SslContext { lib, ctx, is_server };
        let suites = match hash {
            None => c"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384",
            Some(hash) => suite(hash),
        };
        let ctx = ctx.as_ptr();
        let version = c_long::from(TLS_1_3);
        // SAFETY: the context is valid, the suites are a string of C, and the callbacks are
        // functions of the types that the library's headers give.
        let done = unsafe {
            (calls.set_options)(ctx, NO_TICKETS);
            (calls.clear_options)(ctx, WITHOUT_EXCHANGE);
            (calls.ctrl)(ctx, SET_CACHE, 0, null_mut());
            (calls.on_secret)(ctx, on_secret);
            if is_server {
                (calls.on_hello)(ctx, on_hello, null_mut());
                (calls.on_find)(ctx, on_find);
            } else {
                (calls.set_verify)(ctx, VERIFY_PEER, null());
                (calls.on_use)(ctx, on_use);
            }
            (calls.ctrl)(ctx, SET_VERSION_MIN, version, null_mut()) == 1
                && (calls.ctrl)(ctx, SET_VERSION_MAX, version, null_mut()) == 1
                && (calls.set_ciphersuites)(ctx, suites.as_ptr()) == 1
                && (calls.set_num_tickets)(ctx, 0) == 1
                && (calls.ctrl)(ctx, SET_GROUPS, 0, GROUPS.as_ptr().cast_mut().cast()) == 1
        };
        if done { Ok(context) } else { Err(refused()) }
    }
}

/// Returns OpenSSL's name of the cipher that goes with a hash.
fn suite(hash: PskHash) -> &'static CStr {
    match hash {
        PskHash::Sha256 => c"TLS_AES_128_GCM_SHA256",
        PskHash::Sha384 => c"TLS_AES_256_GCM_SHA384",
    }
}

/// The data of a handshake that OpenSSL's calls back look at.
struct CallbackData {
    lib: &'static OpenSsl,
    /// The keys, and the findings of the handshake.
    inner: RefCell<Inner>,
}

struct Inner {
    known: KnownKeys,
    secrets: TrafficSecrets,
    /// The reason for which this end refuses the other; `None` if OpenSSL has the reason.
    refusal: Option<TlsFailure>,
}

/// The messages of one handshake.
pub(super) struct SslHandshake {
    context: Arc<SslContext>,
    ssl: NonNull<Ssl>,
    incoming: *mut functions::Bio,
    outgoing: *mut functions::Bio,
    /// Owned by this value; OpenSSL has its address, too.
    data: NonNull<CallbackData>,
}

// SAFETY: an SSL may be used by any thread, one at a time, and so may its data.
unsafe impl Send for SslHandshake {}

impl Drop for SslHandshake {
    fn drop(&mut self) {
        // SAFETY: the pointer is of SSL_new, and freed once; the queues go with it. The data is of
        // a box, and nobody else has its address any more.
        unsafe {
            (self.context.lib.talks.free)(self.ssl.as_ptr());
            drop(Box::from_raw(self.data.as_ptr()));
        }
    }
}

impl SslHandshake {
    /// Begins a handshake.
    pub(super) fn new(
        context: Arc<SslContext>,
        known: KnownKeys,
    ) -> Result<SslHandshake, TlsFailure> {
        let lib = context.lib;
        let inner = Inner { known, secrets: TrafficSecrets::default(), refusal: None };
        // SAFETY: the context is valid, and each pointer is checked before its use. The queues
        // belong to the SSL once they are set.
        unsafe {
            let ssl = (lib.talks.new)(context.ctx.as_ptr());
            let ssl = NonNull::new(ssl).ok_or(TlsFailure::Internal)?;
            let incoming = (lib.parts.bio_new)((lib.parts.bio_memory)());
            let outgoing = (lib.parts.bio_new)((lib.parts.bio_memory)());
            if incoming.is_null() || outgoing.is_null() {
                [incoming, outgoing].into_iter().filter(|bio| !bio.is_null()).for_each(|bio| {
                    (lib.parts.bio_free)(bio);
                });
                (lib.talks.free)(ssl.as_ptr());
                return Err(TlsFailure::Internal);
            }
            (lib.talks.set_bio)(ssl.as_ptr(), incoming, outgoing);
            match context.is_server {
                true => (lib.talks.set_accept_state)(ssl.as_ptr()),
                false => (lib.talks.set_connect_state)(ssl.as_ptr()),
            }
            let data = NonNull::from(Box::leak(Box::new(CallbackData {
                lib,
                inner: RefCell::new(inner),
            })));
            let talk = SslHandshake { context, ssl, incoming, outgoing, data };
            match (lib.talks.set_data)(ssl.as_ptr(), DATA, data.as_ptr().cast()) {
                1 => Ok(talk),
                _ => Err(TlsFailure::Internal),
            }
        }
    }

    /// Passes received bytes of the peer to OpenSSL.
    pub(super) fn hear(&mut self, bytes: &[u8]) -> Result<(), TlsFailure> {
        let length = c_int::try_from(bytes.len()).map_err(|_| TlsFailure::Misbehaved)?;
        // SAFETY: the queue is the SSL's, and the slice is valid.
        let written = unsafe {
            (self.context.lib.parts.bio_write)(self.incoming, bytes.as_ptr().cast(), length)
        };
        if written == length { Ok(()) } else { Err(TlsFailure::Internal) }
    }

    /// Continues as far as the bytes go that have come. Returns `true` if the handshake has ended
    /// well.
    ///
    /// # Errors
    /// Fails with the reason why there is no connection over TLS.
    pub(super) fn go_on(&mut self) -> Result<bool, TlsFailure> {
        let (lib, ssl) = (self.context.lib, self.ssl.as_ptr());
        // SAFETY: the SSL is valid and used by nobody else; its data outlives the call.
        let (result, error, used_psk) = unsafe {
            (lib.parts.clear_errors)();
            let result = (lib.talks.handshake)(ssl);
            (result, (lib.talks.get_error)(ssl, result), (lib.talks.used_psk)(ssl))
        };
        match (result, error) {
            (1, _) if used_psk == 1 => Ok(true),
            (1, _) => Err(TlsFailure::WrongKey),
            (_, WANT_READ) => Ok(false),
            _ => {
                let refusal = self.inner(|inner| inner.refusal.take());
                Err(refusal.unwrap_or_else(|| reason(lib)))
            }
        }
    }

    /// Appends the bytes that OpenSSL wants to send to the peer to `to`.
    pub(super) fn say(&mut self, to: &mut Vec<u8>) {
        let mut piece = [0; PIECE_BYTES];
        loop {
            let room = PIECE_BYTES as c_int;
            // SAFETY: the queue is the SSL's, and the array has this length.
            let read = unsafe {
                (self.context.lib.parts.bio_read)(self.outgoing, piece.as_mut_ptr().cast(), room)
            };
            match usize::try_from(read) {
                Ok(bytes @ 1..) => to.extend_from_slice(&piece[..bytes]),
                _ => return,
            }
        }
    }

    /// Takes the pre-shared keys out of the handshake, for another attempt with the same received
    /// bytes.
    pub(super) fn known(&mut self) -> KnownKeys {
        self.inner(|inner| std::mem::take(&mut inner.known))
    }

    /// Takes the secrets of both directions.
    pub(super) fn secrets(&mut self) -> TrafficSecrets {
        self.inner(|inner| std::mem::take(&mut inner.secrets))
    }

    fn inner<R>(&mut self, work: impl FnOnce(&mut Inner) -> R) -> R {
        // SAFETY: the data lives as long as this value, and OpenSSL looks at it in its calls only.
        let data = unsafe { self.data.as_ref() };
        work(&mut data.inner.borrow_mut())
    }
}

/// Returns the reason that OpenSSL gives for a failed handshake.
fn reason(lib: &OpenSsl) -> TlsFailure {
    // SAFETY: without arguments.
    let code = unsafe { (lib.parts.next_error)() };
    let (library, reason) = (code >> 23 & 0xff, code & 0x7f_ffff);
    match reason {
        _ if library != ERRORS_OF_TLS => TlsFailure::Internal,
        // A binder does not verify; a certificate in place of the key.
        253 | 134 => TlsFailure::WrongKey,
        // No shared cipher, group, signature or version.
        101 | 118 | 191 | 193 | 252 | 258 | 266 | 267 | 295 | 376 | 396 | 410 => {
            TlsFailure::NothingInCommon
        }
        ALERTS_FROM.. => match u8::try_from(reason - ALERTS_FROM) {
            Ok(number) => TlsFailure::Alert(number),
            Err(_) => TlsFailure::Misbehaved,
        },
        _ => TlsFailure::Misbehaved,
    }
}

/// Returns the data of a handshake.
///
/// # Safety
/// `ssl` is the handshake of a [`SslHandshake`] that is in a call of OpenSSL.
unsafe fn data<'a>(lib: &OpenSsl, ssl: *const Ssl) -> Option<&'a CallbackData> {
    // SAFETY: the address is that of the data of the caller's Talk, or null.
    unsafe { (lib.talks.get_data)(ssl, DATA).cast::<CallbackData>().as_ref() }
}

/// Calls `work` with the data of a handshake; returns `None` if there is none.
///
/// # Safety
/// `ssl` is the handshake of a [`SslHandshake`] that is in a call of OpenSSL.
unsafe fn with<R>(ssl: *const Ssl, work: impl FnOnce(&OpenSsl, &mut Inner) -> R) -> Option<R> {
    let lib = OpenSsl::get().ok()?;
    // SAFETY: the caller's promise.
    let data = unsafe { data(lib, ssl) }?;
    Some(work(data.lib, &mut *data.inner.try_borrow_mut().ok()?))
}

/// Chooses the client's key when its hello has come, before OpenSSL chooses a cipher, which has to
/// go with the key.
extern "C" fn on_hello(ssl: *mut Ssl, alert: *mut c_int, _: *mut c_void) -> c_int {
    let work = |lib: &OpenSsl, inner: &mut Inner| {
        let (mut bytes, mut length) = (null(), 0);
        // SAFETY: within this callback, the extension's bytes are lent to it.
        let offered = unsafe {
            match (lib.talks.hello_extension)(ssl, PSK_EXTENSION, &mut bytes, &mut length) {
                1 if length > 0 => std::slice::from_raw_parts(bytes, length),
                _ => &[],
            }
        };
        match inner.known.choose(offered) {
            // SAFETY: the SSL is the callback's, and the name is a string of C.
            Ok(hash) => unsafe { (lib.talks.set_ciphersuites)(ssl, suite(hash).as_ptr()) == 1 },
            Err(why) => {
                inner.refusal = Some(why);
                // SAFETY: OpenSSL passes a place for the alert's number.
                unsafe { *alert = c_int::from(UNKNOWN_PSK_IDENTITY) };
                false
            }
        }
    };
    // SAFETY: OpenSSL calls this in a call of the handshake's Talk.
    c_int::from(unsafe { with(ssl, work) }.unwrap_or(false))
}

/// The alert "unknown PSK identity".
const UNKNOWN_PSK_IDENTITY: u8 = 115;

/// Callback of a server: gives OpenSSL the key of an identity that the client offers, if that key
/// was chosen.
extern "C" fn on_find(
    ssl: *mut Ssl,
    identity: *const c_uchar,
    length: usize,
    session: *mut *mut SslSession,
) -> c_int {
    let work = |lib: &OpenSsl, inner: &mut Inner| {
        // SAFETY: OpenSSL lends the identity, whose pointer is not null even if it is empty.
        let identity = unsafe { std::slice::from_raw_parts(identity, length) };
        let psk = inner.known.key_of(identity);
        psk.map_or(Some(null_mut()), |psk| session_of(lib, ssl, psk))
    };
    // SAFETY: OpenSSL calls this in a call of the handshake's Talk.
    let found = unsafe { with(ssl, work) }.flatten();
    // SAFETY: OpenSSL passes a place for the pointer, which it owns then.
    unsafe { *session = found.unwrap_or(null_mut()) };
    c_int::from(found.is_some())
}

/// Callback of a client: gives OpenSSL the client's pre-shared key and its identity.
extern "C" fn on_use(
    ssl: *mut Ssl,
    _: *const c_void,
    identity: *mut *const c_uchar,
    length: *mut usize,
    session: *mut *mut SslSession,
) -> c_int {
    let work = |lib: &OpenSsl, inner: &mut Inner| {
        let (own, psk) = inner.known.own()?;
        let made = session_of(lib, ssl, psk)?;
        // SAFETY: OpenSSL passes places for the pointers and the length. The identity is not
        // changed while the handshake lives, and the key belongs to OpenSSL then.
        unsafe {
            *identity = own.as_ptr();
            *length = own.len();
            *session = made;
        }
        Some(())
    };
    // SAFETY: OpenSSL calls this in a call of the handshake's Talk.
    c_int::from(unsafe { with(ssl, work) }.flatten().is_some())
}

/// Keeps the secrets from which the keys of records are made.
extern "C" fn on_secret(ssl: *const Ssl, line: *const c_char) {
    // SAFETY: OpenSSL lends a string of C.
    let line = unsafe { CStr::from_ptr(line) }.to_bytes();
    // SAFETY: OpenSSL calls this in a call of the handshake's Talk.
    unsafe { with(ssl, |_, inner| inner.secrets.note(line)) };
}

/// Makes OpenSSL's form of a key; `None` if it has no memory.
fn session_of(lib: &OpenSsl, ssl: *mut Ssl, psk: &Psk) -> Option<*mut SslSession> {
    let cipher: [u8; 2] = match psk.hash {
        PskHash::Sha256 => [0x13, 0x01],
        PskHash::Sha384 => [0x13, 0x02],
    };
    let parts = &lib.parts;
    // SAFETY: the SSL is valid, the slices are, and each pointer is checked before its use.
    unsafe {
        let cipher = (lib.talks.find_cipher)(ssl, cipher.as_ptr());
        let session = (parts.session_new)();
        if session.is_null() || cipher.is_null() {
            (parts.session_free)(session); // takes null, too
            return None;
        }
        let is_set = (parts.session_set_key)(session, psk.key.as_ptr(), psk.key.len()) == 1
            && (parts.session_set_cipher)(session, cipher) == 1
            && (parts.session_set_version)(session, TLS_1_3) == 1;
        if !is_set {
            (parts.session_free)(session);
            return None;
        }
        Some(session)
    }
}
