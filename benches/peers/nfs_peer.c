/*
 * Measures an NFS version 3 server over TCP on this machine by libnfs, with a number of calls in flight on one
 * connection.
 *
 * nfs_peer OPERATION --nfs-port N --mount-port N --export PATH [--file NAME] [--same LOCAL] [--names N] [--size OCTETS]
 *          [--depth N] [--seconds S] [--server PID]
 *
 *   read     READs of --size octets of the file --file, one after another, from its beginning again and again. Before
 *            the measurement all octets are read once and compared with those of the local file --same.
 *   getattr  GETATTRs of the file --file.
 *   create   Pairs of a CREATE of an empty file in the export, which must not exist, and its REMOVE. Counts pairs.
 *   list     READDIRPLUSs of at most --size octets from the beginning of the export to its end, again and again. Counts
 *            names. Before the measurement one listing is looked at: it has each of name-00000 and up, --names of them,
 *            once.
 *
 * Prints one line: operations a second; the share of the time in which this program had something to do; the share of
 * a CPU that the process --server used. The program asks the socket again and again rather than sleeping, so a server
 * never has to wake it. If its first share is near one, the figure is the client's limit rather than the server's.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>

enum operation { READ, GETATTR, CREATE, LIST };

struct options {
    enum operation operation;
    int nfs_port, mount_port;
    const char *export, *file, *same;
    uint32_t names, size, depth;
    double seconds;
    int server;
};

/* A slot, which makes one call after another. */
struct slot {
    struct bench *bench;
    uint32_t number;
    uint64_t offset;
    /* The names made so far, and the latest of them. */
    uint32_t made;
    char name[32];
    /* Where the next READDIRPLUS goes on, and how many names there were before. */
    cookie3 cookie;
    cookieverf3 verifier;
    uint32_t listed;
};

struct bench {
    const struct options *options;
    struct rpc_context *rpc;
    nfs_fh3 handle;
    struct slot *slots;
    uint32_t in_flight;
    /* Whether calls that end are followed by others. */
    bool going;
    uint64_t done;
    /* The file's length, the octets it should have, and the next offset to read. */
    uint64_t length, next;
    const char *expected;
    /* Whether what arrives is compared, and how much of it was right: octets or names. */
    bool checking;
    uint64_t checked;
    char *seen;
};

static void fail(const char *what, const char *why) {
    fprintf(stderr, "nfs_peer: %s: %s\n", what, why);
    exit(1);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Returns the seconds of CPU that a process has used, 0 for no process. */
static double cpu_of(int process) {
    char path[64], line[1024];
    unsigned long user, system;
    if (process == 0) return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file)) fail(path, strerror(errno));
    fclose(file);
    char *after = strrchr(line, ')');
    if (!after || sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail(path, "cannot be read");
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static void issue(struct slot *slot);

static void ended(struct slot *slot, uint64_t count) {
    struct bench *bench = slot->bench;
    bench->done += count;
    if (bench->going)
        issue(slot);
    else
        bench->in_flight--;
}

static void good(struct rpc_context *rpc, int status, const void *data, const char *procedure) {
    if (status != RPC_STATUS_SUCCESS) fail(procedure, rpc_get_error(rpc));
    /* All results begin with the status. */
    nfsstat3 answer = *(const nfsstat3 *)data;
    if (answer != NFS3_OK) fail(procedure, nfsstat3_to_str((int)answer));
}

static void was_read(struct rpc_context *rpc, int status, void *data, void *private) {
    struct slot *slot = private;
    struct bench *bench = slot->bench;
    good(rpc, status, data, "READ");
    const READ3resok *read = &((READ3res *)data)->READ3res_u.resok;
    if (read->data.data_len != bench->options->size) fail("READ", "the result is short");
    if (bench->checking) {
        if (memcmp(read->data.data_val, bench->expected + slot->offset, read->data.data_len) != 0)
            fail("READ", "these are not the octets of the file");
        bench->checked += read->data.data_len;
        bench->going = bench->next != 0;
    }
    ended(slot, 1);
}

static void was_got(struct rpc_context *rpc, int status, void *data, void *private) {
    struct slot *slot = private;
    good(rpc, status, data, "GETATTR");
    if (((GETATTR3res *)data)->GETATTR3res_u.resok.obj_attributes.size != slot->bench->length)
        fail("GETATTR", "this is not the length of the file");
    ended(slot, 1);
}

static void was_removed(struct rpc_context *rpc, int status, void *data, void *private) {
    good(rpc, status, data, "REMOVE");
    ended(private, 1);
}

static void was_created(struct rpc_context *rpc, int status, void *data, void *private) {
    struct slot *slot = private;
    struct bench *bench = slot->bench;
    good(rpc, status, data, "CREATE");
    REMOVE3args args = {.object = {.dir = bench->handle, .name = slot->name}};
    if (rpc_nfs3_remove_async(rpc, was_removed, &args, slot) != 0) fail("REMOVE", rpc_get_error(rpc));
}

static void see(struct bench *bench, const char *name) {
    unsigned number;
    if (sscanf(name, "name-%5u", &number) != 1 || number >= bench->options->names) fail("an unknown name", name);
    if (bench->seen[number]) fail("a name was listed twice", name);
    bench->seen[number] = 1;
    bench->checked++;
}

static void was_listed(struct rpc_context *rpc, int status, void *data, void *private) {
    struct slot *slot = private;
    struct bench *bench = slot->bench;
    good(rpc, status, data, "READDIRPLUS");
    const READDIRPLUS3resok *listed = &((READDIRPLUS3res *)data)->READDIRPLUS3res_u.resok;
    uint32_t count = 0;
    for (const entryplus3 *entry = listed->reply.entries; entry; entry = entry->nextentry) {
        slot->cookie = entry->cookie;
        if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0) continue;
        if (!entry->name_attributes.attributes_follow || !entry->name_handle.handle_follows)
            fail(entry->name, "has no attributes or no handle");
        if (bench->checking) see(bench, entry->name);
        count++;
    }
    memcpy(slot->verifier, listed->cookieverf, sizeof slot->verifier);
    slot->listed += count;
    if (listed->reply.eof) {
        if (slot->listed != bench->options->names) fail("READDIRPLUS", "there are more or fewer names");
        slot->listed = 0;
        slot->cookie = 0;
        memset(slot->verifier, 0, sizeof slot->verifier);
        if (bench->checking) bench->going = false;
    } else if (count == 0) {
        fail("READDIRPLUS", "has no names");
    }
    ended(slot, count);
}

/* Makes the next call of a slot. */
static void issue(struct slot *slot) {
    struct bench *bench = slot->bench;
    const struct options *options = bench->options;
    int refused = -1;
    switch (options->operation) {
    case READ: {
        slot->offset = bench->next;
        bench->next = (bench->next + options->size) % bench->length;
        READ3args args = {.file = bench->handle, .offset = slot->offset, .count = options->size};
        refused = rpc_nfs3_read_async(bench->rpc, was_read, &args, slot);
        break;
    }
    case GETATTR: {
        GETATTR3args args = {.object = bench->handle};
        refused = rpc_nfs3_getattr_async(bench->rpc, was_got, &args, slot);
        break;
    }
    case CREATE: {
        snprintf(slot->name, sizeof slot->name, "made-%u-%u", slot->number, slot->made++);
        CREATE3args args = {.where = {.dir = bench->handle, .name = slot->name}, .how = {.mode = GUARDED}};
        struct set_mode3 *mode = &args.how.createhow3_u.g_obj_attributes.mode;
        mode->set_it = 1;
        mode->set_mode3_u.mode = 0644;
        refused = rpc_nfs3_create_async(bench->rpc, was_created, &args, slot);
        break;
    }
    case LIST: {
        READDIRPLUS3args args = {
            .dir = bench->handle, .cookie = slot->cookie, .dircount = options->size, .maxcount = options->size};
        memcpy(args.cookieverf, slot->verifier, sizeof args.cookieverf);
        refused = rpc_nfs3_readdirplus_async(bench->rpc, was_listed, &args, slot);
        break;
    }
    }
    if (refused != 0) fail("a call", rpc_get_error(bench->rpc));
}

/* Does what the socket is ready for. Returns whether it was ready for anything. */
static bool turn(struct bench *bench) {
    struct pollfd poll_of = {.fd = rpc_get_fd(bench->rpc), .events = (short)rpc_which_events(bench->rpc)};
    int ready = poll(&poll_of, 1, 0);
    if (ready < 0 && errno != EINTR) fail("poll", strerror(errno));
    if (ready <= 0) return false;
    if (rpc_service(bench->rpc, poll_of.revents) < 0) fail("the connection", rpc_get_error(bench->rpc));
    return true;
}

static void start(struct bench *bench) {
    bench->going = true;
    for (uint32_t number = 0; number < bench->options->depth; number++) {
        /* The last call of a short file may have begun already. */
        if (bench->checking && number > 0 && bench->next == 0) break;
        bench->in_flight++;
        issue(&bench->slots[number]);
    }
}

static void drain(struct bench *bench) {
    while (bench->in_flight > 0) turn(bench);
}

/* Looks at all octets or names once. */
static void check(struct bench *bench) {
    enum operation operation = bench->options->operation;
    if (operation != READ && operation != LIST) return;
    bench->checking = true;
    start(bench);
    drain(bench);
    bench->checking = false;
    uint64_t all = operation == READ ? bench->length : bench->options->names;
    if (bench->checked != all) fail("the check", "did not see everything");
}

static void measure(struct bench *bench) {
    const uint64_t second = 1000000000;
    uint64_t time = now(), idle = 0;
    uint64_t begin = time + second / 4;
    start(bench);
    while (time < begin) {
        turn(bench);
        time = now();
    }
    begin = time;
    bench->done = 0;
    double cpu = cpu_of(bench->options->server);
    uint64_t end = begin + (uint64_t)(bench->options->seconds * (double)second);
    while (time < end) {
        bool worked = turn(bench);
        uint64_t later = now();
        if (!worked) idle += later - time;
        time = later;
    }
    cpu = cpu_of(bench->options->server) - cpu;
    uint64_t done = bench->done;
    double took = (double)(time - begin) / (double)second;
    bench->going = false;
    drain(bench);
    printf("%.1f %.3f %.3f\n", (double)done / took, 1 - (double)idle / (double)(time - begin), cpu / took);
}

static struct options options_of(int count, char **arguments) {
    struct options options = {.names = 0, .size = 4096, .depth = 1, .seconds = 2};
    const char *operations[] = {"read", "getattr", "create", "list"};
    int operation = 0;
    while (count > 1 && operation < 4 && strcmp(arguments[1], operations[operation]) != 0) operation++;
    if (count < 2 || operation == 4) fail("usage", "nfs_peer read|getattr|create|list [OPTION VALUE]...");
    options.operation = (enum operation)operation;
    for (int at = 2; at < count; at += 2) {
        const char *name = arguments[at], *value = at + 1 < count ? arguments[at + 1] : NULL;
        if (!value) fail(name, "has no value");
        if (strcmp(name, "--nfs-port") == 0) options.nfs_port = atoi(value);
        else if (strcmp(name, "--mount-port") == 0) options.mount_port = atoi(value);
        else if (strcmp(name, "--export") == 0) options.export = value;
        else if (strcmp(name, "--file") == 0) options.file = value;
        else if (strcmp(name, "--same") == 0) options.same = value;
        else if (strcmp(name, "--names") == 0) options.names = (uint32_t)atoi(value);
        else if (strcmp(name, "--size") == 0) options.size = (uint32_t)atoi(value);
        else if (strcmp(name, "--depth") == 0) options.depth = (uint32_t)atoi(value);
        else if (strcmp(name, "--seconds") == 0) options.seconds = atof(value);
        else if (strcmp(name, "--server") == 0) options.server = atoi(value);
        else fail(name, "is not an option");
    }
    if (!options.export || options.nfs_port == 0 || options.mount_port == 0)
        fail("usage", "--export, --nfs-port and --mount-port are needed");
    if (options.depth == 0 || options.size == 0 || options.seconds <= 0) fail("usage", "an option is zero");
    if (options.operation == READ && !options.same) fail("usage", "read needs --same");
    return options;
}

/* Maps the local file whose octets READs must have. */
static void expect(struct bench *bench) {
    const struct options *options = bench->options;
    struct stat known;
    int file = open(options->same, O_RDONLY);
    if (file < 0 || fstat(file, &known) != 0) fail(options->same, strerror(errno));
    bench->length = (uint64_t)known.st_size;
    if (bench->length == 0 || bench->length % options->size != 0) fail(options->same, "is not a multiple of --size");
    bench->expected = mmap(NULL, bench->length, PROT_READ, MAP_SHARED, file, 0);
    if (bench->expected == MAP_FAILED) fail(options->same, strerror(errno));
    close(file);
}

static void was_connected(struct rpc_context *rpc, int status, void *data, void *private) {
    (void)data;
    if (status != RPC_STATUS_SUCCESS) fail("no connection", rpc_get_error(rpc));
    ((struct bench *)private)->in_flight--;
}

/* Keeps a handle beyond the result that it came in. */
static void keep(struct bench *bench, u_int length, const char *octets) {
    char *kept = malloc(length);
    if (!kept) fail("memory", "there is none");
    memcpy(kept, octets, length);
    bench->handle.data.data_len = length;
    bench->handle.data.data_val = kept;
    bench->in_flight--;
}

static void was_mounted(struct rpc_context *rpc, int status, void *data, void *private) {
    struct bench *bench = private;
    if (status != RPC_STATUS_SUCCESS) fail("MNT", rpc_get_error(rpc));
    const mountres3 *mounted = data;
    if (mounted->fhs_status != MNT3_OK) fail(bench->options->export, mountstat3_to_str((int)mounted->fhs_status));
    const fhandle3 *handle = &mounted->mountres3_u.mountinfo.fhandle;
    keep(bench, handle->fhandle3_len, handle->fhandle3_val);
}

static void was_looked_up(struct rpc_context *rpc, int status, void *data, void *private) {
    good(rpc, status, data, "LOOKUP");
    const nfs_fh3 *handle = &((LOOKUP3res *)data)->LOOKUP3res_u.resok.object;
    keep(private, handle->data.data_len, handle->data.data_val);
}

static void connect_to(struct bench *bench, int port, int program) {
    bench->rpc = rpc_init_context();
    if (!bench->rpc) fail("memory", "there is none");
    bench->in_flight = 1;
    if (rpc_connect_port_async(bench->rpc, "127.0.0.1", port, program, 3, was_connected, bench) != 0)
        fail("no connection", rpc_get_error(bench->rpc));
    drain(bench);
}

/* Connects, and finds the handle of the export, or of the file in it. */
static void find(struct bench *bench) {
    const struct options *options = bench->options;
    connect_to(bench, options->mount_port, MOUNT_PROGRAM);
    bench->in_flight = 1;
    if (rpc_mount3_mnt_async(bench->rpc, was_mounted, (char *)options->export, bench) != 0)
        fail("MNT", rpc_get_error(bench->rpc));
    drain(bench);
    rpc_destroy_context(bench->rpc);
    connect_to(bench, options->nfs_port, NFS_PROGRAM);
    if (!options->file) return;
    bench->in_flight = 1;
    LOOKUP3args args = {.what = {.dir = bench->handle, .name = (char *)options->file}};
    if (rpc_nfs3_lookup_async(bench->rpc, was_looked_up, &args, bench) != 0) fail("LOOKUP", rpc_get_error(bench->rpc));
    drain(bench);
}

int main(int count, char **arguments) {
    const struct options options = options_of(count, arguments);
    struct bench bench = {.options = &options};
    if (options.same) expect(&bench);
    bench.slots = calloc(options.depth, sizeof *bench.slots);
    bench.seen = calloc(options.names + 1, 1);
    if (!bench.slots || !bench.seen) fail("memory", "there is none");
    for (uint32_t number = 0; number < options.depth; number++) {
        bench.slots[number].bench = &bench;
        bench.slots[number].number = number;
    }

    find(&bench);
    check(&bench);
    measure(&bench);
    rpc_destroy_context(bench.rpc);
    return 0;
}
