// SPDX-License-Identifier: GPL-2.0-only
/*
 * An engine for fio that measures volumes of nearflash servers.
 *
 * It includes fio's headers, so it is under fio's licence, apart from the rest of the project. It
 * uses nothing of the project but the public header of the C library. `cargo xtask fio-engine`
 * compiles it; an engine fits the version of fio whose headers it was compiled with.
 *
 * A job is a queue of the library: requests are collected by ->queue(), leave together by
 * ->commit(), and transfer straight from and to the job's memory. fio submits each request alone
 * unless told otherwise: see iodepth_batch_submit.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <nearflash.h>

#include "fio.h"
#include "optgroup.h"

/* The options of a job. The first member is never an option: fio takes offset zero for none. */
struct engine_options {
	void *pad;
	char *url;
	char *tenant;
	char *token;
	unsigned int connections;
	unsigned int spin_us;
	unsigned int outage_s;
};

/* A running job. */
struct job {
	nf_queue *queue;
	nf_op *ops;           /* requests that were not submitted yet */
	unsigned int waiting; /* how many */
	nf_done *done;
	struct io_u **ended;  /* requests for fio to take */
	unsigned int failed;  /* how many of them could not be submitted */
	size_t memory_bytes;
	int is_held;          /* the library may still use the memory of requests */
};

static struct fio_option options[] = {
	{
		.name = "url",
		.lname = "Server",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct engine_options, url),
		.help = "reflex://HOST:PORT or reflex+unix:PATH",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "tenant",
		.lname = "Tenant",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct engine_options, tenant),
		.help = "Tenant of the connections",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "token",
		.lname = "Token",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct engine_options, token),
		.help = "Token to present when connecting",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "connections",
		.lname = "Connections",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct engine_options, connections),
		.help = "Connections of each job",
		.def = "1",
		.minval = 1,
		.maxval = 1024,
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "spin",
		.lname = "Spin",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct engine_options, spin_us),
		.help = "Microseconds for which a wait looks before it sleeps",
		.def = "50",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = "outage",
		.lname = "Outage",
		.type = FIO_OPT_INT,
		.off1 = offsetof(struct engine_options, outage_s),
		.help = "Seconds for which requests wait for an unreachable server",
		.def = "30",
		.minval = 1,
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{
		.name = NULL,
	},
};

static nf_options library_options(struct thread_data *td)
{
	struct engine_options *o = td->eo;
	nf_options all = { 0 };

	all.size = sizeof(all);
	all.connections = o->connections;
	all.in_flight_max = td->o.iodepth;
	all.outage_ns = o->outage_s * INT64_C(1000000000);
	all.spin_ns = o->spin_us ? o->spin_us * INT64_C(1000) : -1;
	all.tenant = o->tenant;
	all.token = o->token;
	all.token_bytes = o->token ? strlen(o->token) : 0;
	return all;
}

static int fail(struct thread_data *td, int result, const char *what)
{
	log_err("nearflash: %s: %s\n", what, nf_error());
	td_verror(td, -result, what);
	return 1;
}

/* Asks for the size. Runs before the jobs are forked, so it leaves nothing open. */
static int nearflash_setup(struct thread_data *td)
{
	struct engine_options *o = td->eo;
	nf_options wanted = library_options(td);
	nf_properties properties;
	nf_client *client;
	int result;

	if (!o->url) {
		log_err("nearflash: the option url is missing\n");
		return 1;
	}
	if (td_max_bs(td) > NF_REQUEST_BYTES_MAX) {
		log_err("nearflash: a block has at most %d bytes\n", NF_REQUEST_BYTES_MAX);
		return 1;
	}
	result = nf_client_open(o->url, &wanted, &client);
	if (result < 0)
		return fail(td, result, o->url);
	result = nf_client_info(client, &properties);
	if (result < 0) {
		fail(td, result, "properties");
		nf_client_close(client);
		return 1;
	}
	nf_client_close(client);
	/* There are no files; fio wants one to have offsets in. */
	if (!td->files_index) {
		add_file(td, "nearflash", 0, 0);
		td->o.nr_files = td->o.nr_files ? : 1;
		td->o.open_files++;
	}
	td->files[0]->real_file_size = properties.bytes;
	return 0;
}

static void close_queue(struct job *job)
{
	if (job->queue && nf_close(job->queue) == -EBUSY)
		job->is_held = 1;
	job->queue = NULL;
}

static void nearflash_cleanup(struct thread_data *td)
{
	struct job *job = td->io_ops_data;

	if (!job)
		return;
	close_queue(job);
	free(job->ops);
	free(job->done);
	free(job->ended);
	free(job);
	td->io_ops_data = NULL;
}

static int nearflash_init(struct thread_data *td)
{
	struct engine_options *o = td->eo;
	nf_options wanted = library_options(td);
	struct job *job = calloc(1, sizeof(*job));
	int result;

	if (!job)
		return 1;
	td->io_ops_data = job;
	job->ops = calloc(td->o.iodepth, sizeof(*job->ops));
	job->done = calloc(td->o.iodepth, sizeof(*job->done));
	job->ended = calloc(td->o.iodepth, sizeof(*job->ended));
	if (!job->ops || !job->done || !job->ended)
		return 1;
	/* The queue belongs to this thread, which is the job's. */
	result = nf_open(o->url, &wanted, &job->queue);
	return result < 0 ? fail(td, result, o->url) : 0;
}

/* Memory that is there before the first request, at the beginning of a page. */
static int nearflash_iomem_alloc(struct thread_data *td, size_t bytes)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
	struct job *job = td->io_ops_data;

	if (memory == MAP_FAILED)
		return 1;
	td->orig_buffer = memory;
	job->memory_bytes = bytes;
	return 0;
}

static void nearflash_iomem_free(struct thread_data *td)
{
	struct job *job = td->io_ops_data;

	if (!job || !job->memory_bytes)
		return;
	/* Requests that nobody waited for end with the queue. */
	close_queue(job);
	if (!job->is_held)
		munmap(td->orig_buffer, job->memory_bytes);
	job->memory_bytes = 0;
}

static enum fio_q_status nearflash_queue(struct thread_data *td, struct io_u *io_u)
{
	struct job *job = td->io_ops_data;
	nf_op op = { 0 };

	fio_ro_check(td, io_u);
	if (job->waiting == td->o.iodepth)
		return FIO_Q_BUSY;
	switch (io_u->ddir) {
	case DDIR_READ:
		op.code = NF_READ;
		break;
	case DDIR_WRITE:
		op.code = NF_WRITE;
		op.flags = td->o.sync_io ? NF_FUA : 0;
		break;
	case DDIR_TRIM:
		op.code = NF_DISCARD;
		break;
	case DDIR_SYNC:
	case DDIR_DATASYNC:
		op.code = NF_FLUSH;
		break;
	default:
		io_u->error = ENOTSUP;
		return FIO_Q_COMPLETED;
	}
	if (op.code != NF_FLUSH) {
		op.offset = io_u->offset;
		op.bytes = io_u->xfer_buflen;
	}
	if (op.code == NF_READ || op.code == NF_WRITE)
		op.data = io_u->xfer_buf;
	op.tag = (uintptr_t)io_u;
	job->ops[job->waiting++] = op;
	return FIO_Q_QUEUED;
}

/* The clock of a request begins when it leaves. */
static void begin(struct thread_data *td, const nf_op *ops, unsigned int count)
{
	struct timespec now;
	unsigned int n;

	io_u_mark_submit(td, count);
	if (!fio_fill_issue_time(td))
		return;
	fio_gettime(&now, NULL);
	for (n = 0; n < count; n++) {
		struct io_u *io_u = (struct io_u *)(uintptr_t)ops[n].tag;

		io_u->issue_time = now;
		io_u_queued(td, io_u);
	}
	if (td->o.read_iolog_file)
		td->last_issue = now;
}

static int nearflash_commit(struct thread_data *td)
{
	struct job *job = td->io_ops_data;
	unsigned int first = 0, count = job->waiting;

	while (first < count) {
		int taken = nf_submit(job->queue, job->ops + first, count - first);

		/* The queue is as deep as the job, so it is full only if the job polls too late. */
		if (taken == -EAGAIN)
			break;
		if (taken > 0) {
			begin(td, job->ops + first, taken);
			first += taken;
			continue;
		}
		/* The first of them is refused, and the others are tried again. */
		begin(td, job->ops + first, 1);
		job->ended[job->failed] = (struct io_u *)(uintptr_t)job->ops[first].tag;
		job->ended[job->failed++]->error = -taken;
		first++;
	}
	job->waiting = count - first;
	memmove(job->ops, job->ops + first, job->waiting * sizeof(*job->ops));
	return 0;
}

static int64_t nanoseconds(const struct timespec *t)
{
	return t->tv_sec * INT64_C(1000000000) + t->tv_nsec;
}

static int nearflash_getevents(struct thread_data *td, unsigned int min, unsigned int max,
			       const struct timespec *t)
{
	struct job *job = td->io_ops_data;
	unsigned int count = job->failed;

	job->failed = 0;
	do {
		int64_t wait = count >= min ? 0 : t ? nanoseconds(t) : -1;
		int n, ended;

		if (count >= max)
			break;
		ended = nf_poll(job->queue, job->done, max - count, wait);
		if (ended < 0) {
			log_err("nearflash: %s\n", nf_error());
			return ended;
		}
		for (n = 0; n < ended; n++) {
			struct io_u *io_u = (struct io_u *)(uintptr_t)job->done[n].tag;

			io_u->error = -job->done[n].result;
			job->ended[count++] = io_u;
		}
		/* A poll also returns when a connection came or went. */
		if (!ended && t)
			break;
	} while (count < min);
	return count;
}

static struct io_u *nearflash_event(struct thread_data *td, int event)
{
	struct job *job = td->io_ops_data;

	return job->ended[event];
}

static int nearflash_open_file(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static int nearflash_close_file(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

static int nearflash_invalidate(struct thread_data *td, struct fio_file *f)
{
	return 0;
}

struct ioengine_ops ioengine = {
	.name = "nearflash",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_MEMALIGN |
		 FIO_ASYNCIO_SETS_ISSUE_TIME,
	.setup = nearflash_setup,
	.init = nearflash_init,
	.cleanup = nearflash_cleanup,
	.iomem_alloc = nearflash_iomem_alloc,
	.iomem_free = nearflash_iomem_free,
	.queue = nearflash_queue,
	.commit = nearflash_commit,
	.getevents = nearflash_getevents,
	.event = nearflash_event,
	.open_file = nearflash_open_file,
	.close_file = nearflash_close_file,
	.invalidate = nearflash_invalidate,
	.options = options,
	.option_struct_size = sizeof(struct engine_options),
};
