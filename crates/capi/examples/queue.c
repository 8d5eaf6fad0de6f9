/* Keeps 32 reads in flight from an event loop: queue reflex://127.0.0.1:7420
 * The example only reads. */
#include <errno.h>
#include <nearflash.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEPTH = 32, BYTES = 4096, READS = 10000, SPAN = 1 << 20 };

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, nf_error());
    return 1;
}

int main(int argc, char **argv) {
    const char *url = argc > 1 ? argv[1] : "reflex://127.0.0.1:7420";
    nf_options options = {0};
    options.size = sizeof options;
    options.in_flight_max = DEPTH;
    nf_queue *queue;
    if (nf_open(url, &options, &queue) < 0) {
        return fail("open");
    }
    unsigned char *memory = calloc(DEPTH, BYTES);
    struct pollfd ready = {nf_fd(queue), POLLIN, 0};
    if (memory == NULL || ready.fd < 0) {
        return fail("descriptor");
    }
    nf_op ops[DEPTH];
    nf_done done[DEPTH];
    uint64_t next = 0;
    int count = DEPTH; /* requests to submit */
    for (int n = 0; n < DEPTH; n++) {
        done[n].tag = (uint64_t)n;
    }
    for (int ended = 0; ended < READS;) {
        /* The memory of what has ended is used by what comes next. */
        for (int n = 0; n < count; n++) {
            nf_op read = {0};
            read.code = NF_READ;
            read.offset = next++ * BYTES % SPAN;
            read.bytes = BYTES;
            read.tag = done[n].tag;
            read.data = memory + read.tag * BYTES;
            ops[n] = read;
        }
        if (count > 0 && nf_submit(queue, ops, (uint32_t)count) != count) {
            return fail("submit");
        }
        while ((count = nf_poll(queue, done, DEPTH, 0)) == 0) {
            poll(&ready, 1, -1);
        }
        if (count < 0) {
            return fail("poll");
        }
        for (int n = 0; n < count; n++) {
            if (done[n].result < 0) {
                fprintf(stderr, "a read failed: error %d\n", -done[n].result);
                return 1;
            }
        }
        ended += count;
    }
    if (nf_close(queue) < 0) {
        return fail("close");
    }
    free(memory); /* not before: reads were in flight */
    printf("%d reads of 4 KiB\n", READS);
    return 0;
}
