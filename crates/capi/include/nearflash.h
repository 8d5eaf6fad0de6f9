/* nearflash: remote flash at close to local speed. The library for C and C++.
 *
 * A queue (nf_queue) keeps many requests in flight and is driven by polls. A client (nf_client)
 * has a thread of its own, and calls that block until the answer.
 *
 * Results. Functions return zero or a count, or -errno. After a failure, nf_error() says in words
 * what failed. A NULL where a pointer is needed is -EINVAL.
 *
 *   -EINVAL           an argument is invalid, or not a multiple of 512 bytes
 *   -ERANGE           outside the namespace
 *   -EMSGSIZE         larger than one request can be
 *   -EAGAIN           the queue is full, or the server is busy: repeat it
 *   -EILSEQ           a compare found other data; nothing was written
 *   -ECONNRESET       the connection was lost before the outcome was known
 *   -EACCES           denied by the server's access rules
 *   -ENOENT           no such namespace or tenant
 *   -ENOSPC           no space left on the device
 *   -EROFS            the namespace is read-only
 *   -EIO              the device, or the payload's way to it, failed
 *   -ENOTSUP          the server or the device does not support it
 *   -EDQUOT           the server does not promise the SLO, or a table of it is full
 *   -EREMOTEIO        the server has an internal error
 *   -EADDRNOTAVAIL    the server's address is invalid or unknown
 *   -ENOTCONN         the server cannot be reached, or refused the connection
 *   -ENOMEM           this machine lacks something, named by nf_error()
 *   -EPERM            a queue was used by another thread than the one that opened it
 *   -ECHILD           the handle belongs to the parent of this process
 *   -EBUSY            a call is under way on the queue; nf_close: see there
 *   -ENOTRECOVERABLE  the library failed in this handle, which can only be closed
 *
 * Threads. A queue belongs to the thread that opened it; only nf_wake may be called from others. A
 * client may be used by any number of threads at the same time; nf_client_close comes after all
 * other calls.
 *
 * Fork. In the child, a handle can only be closed, which leaves the parent's connections alone. All
 * descriptors are closed by exec. Those of a client stay open in a child that does not call exec.
 *
 * Memory. From nf_submit until nf_poll or nf_close returns the request, its memory stays mapped.
 * That of a read is touched by nobody else; that of a write may be read, but not changed. Any
 * alignment will do.
 *
 * Reconnection. When a connection is lost, the library connects again, and repeats the requests that
 * are safe to repeat: all but compare-and-writes and atomic writes (protocol version 2).
 */
#ifndef NEARFLASH_H
#define NEARFLASH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All offsets and sizes are in bytes, and multiples of this. */
#define NF_BLOCK_BYTES 512
/* The largest request in bytes. Blocking calls cut larger ones, but for atomic ones. */
#define NF_REQUEST_BYTES_MAX 1048576

/* Flags of nf_options. */
#define NF_NAMESPACE 1 /* use the namespace `nsid` and not the server's default */
#define NF_CHECKSUMS 2 /* checksums of payloads on the network */

/* Codes of nf_op. */
#define NF_READ 0
#define NF_WRITE 1
#define NF_FLUSH 2
#define NF_DISCARD 3
#define NF_WRITE_ZEROES 4
#define NF_COMPARE_AND_WRITE 5 /* `data` has the expected bytes, then the new ones: 2 * bytes */
#define NF_WRITE_ATOMIC 6
#define NF_BARRIER 7 /* earlier requests of the stream end before any later one starts */

/* Flags of nf_op and nf_pwrite. */
#define NF_FUA 1 /* a write is durable before it ends */

/* A queue of one thread. */
typedef struct nf_queue nf_queue;
/* A client of any number of threads. */
typedef struct nf_client nf_client;

/* Options. Zero means the default everywhere. A caller that was compiled against an older header
 * has a smaller `size`; the missing fields have their defaults. */
typedef struct nf_options {
    size_t size;            /* sizeof(nf_options); 0 is refused */
    uint32_t flags;         /* NF_NAMESPACE, NF_CHECKSUMS */
    uint32_t nsid;          /* the namespace's number, with NF_NAMESPACE */
    uint32_t connections;   /* connections to the server; default 1, at most 1024 */
    uint32_t in_flight_max; /* requests in flight; default 256, at most 65536 */
    int64_t outage_ns;      /* how long requests wait for an unreachable server; default 30 s */
    int64_t spin_ns;        /* how long a wait looks before it sleeps; default 50 us; -1: not */
    const char *tenant;     /* the tenant of the connections; NULL: the server's choice */
    const void *token;      /* credentials; NULL: none */
    size_t token_bytes;
} nf_options;

/* A request. */
typedef struct nf_op {
    uint16_t code;       /* NF_READ and so on */
    uint16_t flags;      /* NF_FUA */
    uint16_t connection; /* 0: any; n: the n-th */
    uint16_t stream;     /* 0 to 7, in which barriers order the requests of one connection */
    uint64_t offset;     /* bytes */
    uint64_t bytes;      /* at most NF_REQUEST_BYTES_MAX */
    void *data;          /* the payload, or room for what is read */
    uint64_t tag;        /* comes back in nf_done */
} nf_op;

/* A request that has ended. */
typedef struct nf_done {
    uint64_t tag;
    int32_t result; /* 0 or -errno */
    uint32_t reserved;
} nf_done;

/* The properties of a namespace, and the rights to it. */
typedef struct nf_properties {
    uint64_t bytes;
    uint64_t atomic_bytes_max;     /* the largest atomic write; 0: none */
    uint32_t physical_block_bytes; /* the granularity at which the device works best */
    uint16_t nsid;
    uint8_t may_read;
    uint8_t may_write;
    uint8_t needs_flush; /* acknowledged writes become durable only with a flush */
    uint8_t reserved[7];
} nf_properties;

/* A tenant's service-level objective. All zero: best effort. */
typedef struct nf_slo {
    uint32_t latency_us;        /* tail read latency */
    uint32_t iops;              /* guaranteed requests per second */
    uint32_t request_bytes;     /* size of a typical request; 0: 4096 */
    uint16_t percentile_tenths; /* that latency_us bounds: 950 is p95; 0: p95 */
    uint8_t read_percent;       /* share of reads */
    uint8_t reserved;
} nf_slo;

/* The figures of a promise, or of its refusal. A token is the cost of a read of 4 KiB. */
typedef struct nf_promise {
    uint64_t tokens_needed; /* per second; 0: best effort */
    uint64_t tokens_free;   /* per second that the device has left */
} nf_promise;

/* A notice that the tenant demands more than its SLO. */
typedef struct nf_notice {
    uint32_t iops; /* measured */
    uint32_t read_percent;
} nf_notice;

/* Returns what failed last in this thread, until the thread's next failure. Never NULL. */
const char *nf_error(void);

/* Opens a queue to `reflex://HOST:PORT` or `reflex+unix:PATH`. `options` may be NULL. The name of a
 * host is looked up now; connections are made by nf_poll. */
int nf_open(const char *url, const nf_options *options, nf_queue **queue);

/* Returns a descriptor for poll, epoll and the like, which belongs to the queue: it is readable when
 * nf_poll has something to do. */
int nf_fd(nf_queue *queue);

/* Submits and sends requests. Never blocks. Returns how many were taken, in their order: fewer than
 * `count` when the queue is full or a request is invalid, and a failure if the first is. */
int nf_submit(nf_queue *queue, const nf_op *ops, uint32_t count);

/* Returns how many requests have ended and were put into `done`, at most `max`. Waits for the first
 * one for `wait_ns`: 0 looks once, -1 waits without limit. Returns 0 when the time is over, nf_wake
 * was called, or a connection came or went. */
int nf_poll(nf_queue *queue, nf_done *done, uint32_t max, int64_t wait_ns);

/* Ends the wait of nf_poll, from any thread. */
int nf_wake(nf_queue *queue);

/* Asks for the namespace's properties, and waits for them. Requests go on meanwhile. */
int nf_info(nf_queue *queue, nf_properties *properties);

/* Registers a tenant for the queue's requests, or joins one that is registered, and waits for the
 * answer. Requests go on meanwhile. `promise` may be NULL. */
int nf_register_tenant(nf_queue *queue, const char *name, const nf_slo *slo, nf_promise *promise);

/* Changes the SLO of the registered tenant, and waits for the answer. */
int nf_renegotiate(nf_queue *queue, const nf_slo *slo, nf_promise *promise);

/* Returns 1 and the oldest notice, or 0. */
int nf_next_notice(nf_queue *queue, nf_notice *notice);

/* Closes the queue; NULL is closed already. Requests in flight are given up, and their memory is the
 * caller's again. -EBUSY: the queue is closed, but the kernel was not done with some request after
 * 5 s; the memory of requests in flight must then stay mapped for good. */
int nf_close(nf_queue *queue);

/* Opens a client, and waits for its first connection. `options` may be NULL. */
int nf_client_open(const char *url, const nf_options *options, nf_client **client);

/* Reads. */
int nf_pread(nf_client *client, void *data, size_t bytes, uint64_t offset);

/* Writes; with NF_FUA, the data is durable when the call returns. */
int nf_pwrite(nf_client *client, const void *data, size_t bytes, uint64_t offset, uint32_t flags);

/* Makes all acknowledged writes durable. */
int nf_flush(nf_client *client);

/* Discards: the bytes read as zeroes from now on. */
int nf_discard(nf_client *client, uint64_t offset, uint64_t bytes);

/* Writes zeroes. */
int nf_write_zeroes(nf_client *client, uint64_t offset, uint64_t bytes);

/* Writes `desired` if the stored bytes equal `expected`, as one atomic step; -EILSEQ if they do
 * not. */
int nf_compare_and_write(nf_client *client, const void *expected, const void *desired, size_t bytes,
                         uint64_t offset);

/* Writes so that a reader, and a crash, sees all of it or nothing. Durable when the call returns. */
int nf_write_atomic(nf_client *client, const void *data, size_t bytes, uint64_t offset);

/* As nf_info. */
int nf_client_info(nf_client *client, nf_properties *properties);

/* As nf_register_tenant. */
int nf_client_register_tenant(nf_client *client, const char *name, const nf_slo *slo,
                              nf_promise *promise);

/* As nf_renegotiate. */
int nf_client_renegotiate(nf_client *client, const nf_slo *slo, nf_promise *promise);

/* Closes the client; NULL is closed already. */
int nf_client_close(nf_client *client);

#ifdef __cplusplus
}
#endif

#endif
