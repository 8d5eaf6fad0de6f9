/* Writes and reads a block of a server: blocking reflex://127.0.0.1:7420
 * The example overwrites the first 4 KiB. */
#include <errno.h>
#include <nearflash.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, nf_error());
    return 1;
}

int main(int argc, char **argv) {
    const char *url = argc > 1 ? argv[1] : "reflex://127.0.0.1:7420";
    nf_client *client;
    if (nf_client_open(url, NULL, &client) < 0) {
        return fail("connect");
    }
    nf_properties properties;
    if (nf_client_info(client, &properties) < 0) {
        return fail("info");
    }
    printf("namespace %u has %llu MiB\n", properties.nsid,
           (unsigned long long)(properties.bytes >> 20));

    static unsigned char data[4096], back[4096];
    memset(data, 7, sizeof data);
    if (nf_pwrite(client, data, sizeof data, 0, NF_FUA) < 0) {
        return fail("write");
    }
    if (nf_pread(client, back, sizeof back, 0) < 0) {
        return fail("read");
    }
    if (memcmp(data, back, sizeof data) != 0) {
        fputs("other data came back\n", stderr);
        return 1;
    }
    /* If many programs try this at the same time, exactly one of them succeeds. */
    static unsigned char ours[512];
    int result = nf_compare_and_write(client, data, ours, sizeof ours, 0);
    if (result == -EILSEQ) {
        puts("somebody else was faster");
    } else if (result < 0) {
        return fail("compare and write");
    } else {
        puts("the first block was as expected and is now ours");
    }
    return nf_client_close(client) < 0 ? fail("close") : 0;
}
