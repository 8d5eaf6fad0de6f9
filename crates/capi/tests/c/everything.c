/* Calls every function of the library, rightly and wrongly: everything URL */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <nearflash.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, nf_error());               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static unsigned char data[1 << 20], back[1 << 20];

static nf_op op_of(uint16_t code, uint64_t offset, uint64_t bytes, void *memory) {
    nf_op op = {0};
    op.code = code;
    op.offset = offset;
    op.bytes = bytes;
    op.data = memory;
    op.tag = 0x0123456789abcdef;
    return op;
}

/* Submits one request and returns its result. */
static int carry_out(nf_queue *queue, uint16_t code, uint64_t offset, uint64_t bytes, void *memory) {
    nf_op op = op_of(code, offset, bytes, memory);
    nf_done done;
    int count = nf_submit(queue, &op, 1);
    if (count < 0) {
        return count;
    }
    CHECK(count == 1);
    do {
        count = nf_poll(queue, &done, 1, -1);
    } while (count == 0);
    CHECK(count == 1 && done.tag == op.tag && done.reserved == 0);
    return done.result;
}

static void use_queue(const char *url) {
    nf_options options = {0};
    options.size = sizeof options;
    options.connections = 2;
    options.in_flight_max = 8;
    options.tenant = "";
    nf_queue *queue = NULL;
    CHECK(nf_open(url, &options, &queue) == 0);
    CHECK(nf_fd(queue) >= 0);
    nf_properties properties;
    CHECK(nf_info(queue, &properties) == 0);
    CHECK(properties.bytes == 4 << 20 && properties.may_read && properties.may_write);

    for (size_t n = 0; n < sizeof data; n++) {
        data[n] = (unsigned char)(n / 512 + 1);
    }
    CHECK(carry_out(queue, NF_WRITE, 0, sizeof data, data) == 0);
    CHECK(carry_out(queue, NF_FLUSH, 0, 0, NULL) == 0);
    CHECK(carry_out(queue, NF_READ, 0, sizeof back, back) == 0);
    CHECK(memcmp(data, back, sizeof data) == 0);
    memcpy(back, data, 512);
    memset(back + 512, 9, 512);
    CHECK(carry_out(queue, NF_COMPARE_AND_WRITE, 0, 512, back) == 0);
    CHECK(carry_out(queue, NF_COMPARE_AND_WRITE, 0, 512, back) == -EILSEQ);
    CHECK(carry_out(queue, NF_WRITE_ATOMIC, 512, 512, back) == 0);
    CHECK(carry_out(queue, NF_WRITE_ZEROES, 1024, 512, NULL) == 0);
    CHECK(carry_out(queue, NF_DISCARD, 1536, 512, NULL) == 0);
    CHECK(carry_out(queue, NF_BARRIER, 0, 0, NULL) == 0);
    CHECK(carry_out(queue, NF_READ, 0, 2048, back) == 0);
    CHECK(back[0] == 9 && back[512] == 1 && back[1024] == 0 && back[1536] == 0);

    /* What is wrong is refused, and harms nothing. */
    CHECK(carry_out(queue, NF_READ, 4 << 20, 512, back) == -ERANGE);
    CHECK(carry_out(queue, NF_READ, 1, 512, back) == -EINVAL);
    CHECK(carry_out(queue, NF_READ, 0, 0, back) == -EINVAL);
    CHECK(carry_out(queue, NF_READ, 0, 512, NULL) == -EINVAL);
    CHECK(carry_out(queue, NF_READ, 0, (1 << 20) + 512, back) == -EMSGSIZE);
    CHECK(carry_out(queue, 99, 0, 512, back) == -EINVAL);
    nf_op op = op_of(NF_READ, 0, 512, back);
    op.flags = NF_FUA;
    CHECK(nf_submit(queue, &op, 1) == -EINVAL);
    op.flags = 0;
    op.connection = 3;
    CHECK(nf_submit(queue, &op, 1) == -EINVAL);
    op.connection = 2;
    op.stream = 8;
    CHECK(nf_submit(queue, &op, 1) == -EINVAL);
    CHECK(nf_submit(queue, NULL, 1) == -EINVAL && nf_submit(queue, NULL, 0) == 0);
    nf_done done[16];
    CHECK(nf_poll(queue, done, 0, 0) == -EINVAL && nf_poll(queue, NULL, 1, 0) == -EINVAL);
    CHECK(strcmp(nf_error(), "there is no place for what has ended") == 0);

    /* A full queue takes what fits. */
    nf_op ops[16];
    for (int n = 0; n < 16; n++) {
        ops[n] = op_of(NF_READ, 0, 4096, back + n * 4096);
        ops[n].connection = 1;
        ops[n].stream = 1;
    }
    CHECK(nf_submit(queue, ops, 16) == 8);
    CHECK(nf_submit(queue, ops + 8, 8) == -EAGAIN);
    for (int ended = 0; ended < 8;) {
        int count = nf_poll(queue, done, 3, 1000000000);
        CHECK(count >= 0 && count <= 3);
        for (int n = 0; n < count; n++) {
            CHECK(done[n].result == 0);
        }
        ended += count;
    }
    CHECK(nf_wake(queue) == 0);
    CHECK(nf_poll(queue, done, 1, -1) == 0);

    nf_notice notice;
    CHECK(nf_next_notice(queue, &notice) == 0);
    nf_slo slo = {0};
    CHECK(nf_renegotiate(queue, &slo, NULL) == -ENOENT);
    nf_promise promise = {1, 1};
    int registered = nf_register_tenant(queue, "gold", &slo, &promise);
    CHECK(registered <= 0); /* the server may not let clients register */
    CHECK(nf_register_tenant(queue, "\xff", &slo, NULL) == -EINVAL);
    CHECK(carry_out(queue, NF_READ, 0, 512, back) == 0);
    CHECK(nf_close(queue) == 0 && nf_close(NULL) == 0);
}

static void use_client(const char *url) {
    nf_client *client = NULL;
    CHECK(nf_client_open(url, NULL, &client) == 0);
    nf_properties properties;
    CHECK(nf_client_info(client, &properties) == 0 && properties.bytes == 4 << 20);
    CHECK(nf_pwrite(client, data, sizeof data, 512, 0) == 0);
    CHECK(nf_pread(client, back, sizeof back, 512) == 0);
    CHECK(memcmp(data, back, sizeof data) == 0);
    CHECK(nf_pwrite(client, data, 512, 0, NF_FUA) == 0 && nf_flush(client) == 0);
    CHECK(nf_compare_and_write(client, data, back, 512, 0) == 0);
    CHECK(nf_compare_and_write(client, data + 512, back, 512, 0) == -EILSEQ);
    CHECK(nf_write_atomic(client, data, 512, 0) == 0);
    CHECK(nf_write_zeroes(client, 0, 512) == 0 && nf_discard(client, 512, 512) == 0);
    CHECK(nf_discard(client, 0, 100) == -EINVAL && nf_write_zeroes(client, 1, 512) == -EINVAL);
    CHECK(nf_pread(client, back, 512, 4 << 20) == -ERANGE);
    CHECK(nf_pread(client, back, 100, 0) == -EINVAL && nf_pread(client, NULL, 512, 0) == -EINVAL);
    CHECK(nf_pwrite(client, data, 512, 0, 2) == -EINVAL);
    CHECK(nf_client_info(client, NULL) == -EINVAL && nf_flush(NULL) == -EINVAL);
    nf_slo slo = {0};
    CHECK(nf_client_renegotiate(client, &slo, NULL) == -ENOENT);
    CHECK(nf_client_register_tenant(client, "gold", &slo, NULL) <= 0);
    CHECK(nf_client_close(client) == 0 && nf_client_close(NULL) == 0);
}

static void open_wrongly(void) {
    nf_queue *queue = NULL;
    nf_client *client = NULL;
    CHECK(nf_open(NULL, NULL, &queue) == -EINVAL && nf_open("reflex://x", NULL, NULL) == -EINVAL);
    CHECK(nf_open("nvme://127.0.0.1:1", NULL, &queue) == -EADDRNOTAVAIL && queue == NULL);
    nf_options options = {0};
    CHECK(nf_open("reflex://127.0.0.1:1", &options, &queue) == -EINVAL);
    options.size = sizeof options;
    options.in_flight_max = 65537;
    CHECK(nf_open("reflex://127.0.0.1:1", &options, &queue) == -EINVAL);
    CHECK(nf_client_open("reflex://127.0.0.1:1", NULL, &client) == -ENOTCONN && client == NULL);
    CHECK(strstr(nf_error(), "refused") != NULL);
}

static void *elsewhere(void *queue) {
    nf_done done;
    CHECK(nf_poll(queue, &done, 1, 0) == -EPERM && nf_close(queue) == -EPERM);
    CHECK(nf_wake(queue) == 0);
    return NULL;
}

static void use_threads(const char *url) {
    nf_queue *queue;
    CHECK(nf_open(url, NULL, &queue) == 0);
    CHECK(carry_out(queue, NF_READ, 0, 512, back) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, elsewhere, queue) == 0);
    nf_done done;
    CHECK(nf_poll(queue, &done, 1, -1) == 0); /* until it is woken */
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(carry_out(queue, NF_READ, 0, 512, back) == 0);
    CHECK(nf_close(queue) == 0);
}

static void use_fork(const char *url) {
    nf_queue *queue;
    nf_client *client;
    CHECK(nf_open(url, NULL, &queue) == 0 && nf_client_open(url, NULL, &client) == 0);
    CHECK(carry_out(queue, NF_WRITE, 0, 512, data) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        nf_done done;
        CHECK(nf_poll(queue, &done, 1, 0) == -ECHILD && nf_wake(queue) == -ECHILD);
        CHECK(nf_flush(client) == -ECHILD);
        CHECK(nf_close(queue) == 0 && nf_client_close(client) == 0);
        /* Handles of its own work. */
        CHECK(nf_open(url, NULL, &queue) == 0);
        CHECK(carry_out(queue, NF_READ, 0, 512, back) == 0 && nf_close(queue) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(carry_out(queue, NF_READ, 0, 512, back) == 0 && memcmp(data, back, 512) == 0);
    CHECK(nf_flush(client) == 0);
    CHECK(nf_close(queue) == 0 && nf_client_close(client) == 0);
}

/* Closes a queue with requests in flight: their memory is free afterwards. */
static void close_early(const char *url) {
    unsigned char *memory = calloc(64, 65536);
    CHECK(memory != NULL);
    nf_queue *queue;
    CHECK(nf_open(url, NULL, &queue) == 0);
    CHECK(carry_out(queue, NF_READ, 0, 512, memory) == 0);
    for (int n = 0; n < 64; n++) {
        nf_op op = op_of(n % 2 ? NF_READ : NF_WRITE, 0, 65536, memory + n * 65536);
        CHECK(nf_submit(queue, &op, 1) == 1);
    }
    CHECK(nf_close(queue) == 0);
    free(memory);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    CHECK(strcmp(nf_error(), "nothing has failed") == 0);
    open_wrongly();
    use_queue(argv[1]);
    use_client(argv[1]);
    use_threads(argv[1]);
    use_fork(argv[1]);
    close_early(argv[1]);
    puts("everything works");
    return 0;
}
