/*
 * A plug-in of QEMU (8.2 or later) that counts the instructions a guest executes. The counts are in
 * a file, for whoever reads it while the guest runs: those of programs, those of the kernel, and
 * those of each 16 bytes of the kernel's text.
 *
 * What is declared here is the part of QEMU's qemu-plugin.h that is needed: no Debian package has
 * that file.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct qemu_plugin_tb;
enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS };
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
    void (*translated)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *block,
    void (*executed)(unsigned int, void *), enum qemu_plugin_cb_flags flags, void *data);

int qemu_plugin_version = 2;

/* The kernel's text and its modules are the last 2 GiB of addresses. */
#define TEXT 0xffffffff80000000ull
#define GRAIN 16
#define PLACES (0x80000000u / GRAIN)

enum { PROGRAMS, KERNEL, FIRST_PLACE };

static uint64_t *counts;

/* The number of instructions and the place in the table, in one word. */
static void executed(unsigned int processor, void *data)
{
    uint64_t word = (uint64_t)(uintptr_t)data, instructions = word & 0xffff, place = word >> 16;

    (void)processor;
    counts[place] += instructions;
    if (place >= FIRST_PLACE)
        counts[KERNEL] += instructions;
}

static void translated(uint64_t id, struct qemu_plugin_tb *block)
{
    uint64_t address = qemu_plugin_tb_vaddr(block), place = PROGRAMS;

    (void)id;
    if (address >= TEXT)
        place = FIRST_PLACE + (address - TEXT) / GRAIN;
    else if (address >> 63)
        place = KERNEL;
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, QEMU_PLUGIN_CB_NO_REGS,
        (void *)(uintptr_t)(place << 16 | qemu_plugin_tb_n_insns(block)));
}

int qemu_plugin_install(uint64_t id, const void *info, int words, char **argument)
{
    size_t bytes = ((size_t)FIRST_PLACE + PLACES) * sizeof *counts;
    int file;

    (void)info;
    if (words != 1 || strncmp(argument[0], "counts=", 7) != 0)
        return -1;
    file = open(argument[0] + 7, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
        return -1;
    counts = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (counts == MAP_FAILED)
        return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
