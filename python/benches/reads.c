/* Reads of 4 KiB at a depth: reads URL DEPTH COUNT. Prints nanoseconds per read. */
#include <nearflash.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BYTES = 4096, SPAN = 1 << 23, DEPTH_MAX = 64 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

int main(int argc, char **argv) {
    int depth = argc == 4 ? atoi(argv[2]) : 0, count = argc == 4 ? atoi(argv[3]) : 0;
    static unsigned char memory[DEPTH_MAX][BYTES];
    nf_op ops[DEPTH_MAX] = {0};
    nf_done done[DEPTH_MAX];
    nf_queue *queue;
    if (depth < 1 || depth > DEPTH_MAX || nf_open(argv[1], NULL, &queue) < 0) {
        fprintf(stderr, "%s\n", nf_error());
        return 1;
    }
    nf_properties properties;
    if (nf_info(queue, &properties) < 0) {
        fprintf(stderr, "%s\n", nf_error());
        return 1;
    }
    double start = now();
    unsigned long long next = 0;
    /* As one batch after another, which is what a call of many reads does. */
    for (int ended = 0; ended < count; ended += depth) {
        for (int n = 0; n < depth; n++) {
            ops[n].code = NF_READ;
            ops[n].offset = next++ * BYTES % SPAN;
            ops[n].bytes = BYTES;
            ops[n].data = memory[n];
        }
        if (nf_submit(queue, ops, (uint32_t)depth) != depth) {
            return 1;
        }
        for (int left = depth; left > 0;) {
            int got = nf_poll(queue, done, DEPTH_MAX, -1);
            for (int n = 0; n < got; n++) {
                if (done[n].result < 0) {
                    return 1;
                }
            }
            if (got < 0) {
                return 1;
            }
            left -= got;
        }
    }
    printf("%.0f\n", (now() - start) / count);
    return nf_close(queue) < 0;
}
