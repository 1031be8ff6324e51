/* fusefile MOUNTPOINT MIB [TROUBLE=N]: a file system with one file, `swap`, that lives in this process's memory and fails as
 * told: from the Nth request of its kind on (read-eio, write-eio), once (stall: 6 s before the Nth answer), or every Nth time
 * (flip: a bit of what is read). Prints a line when it is mounted; ends when it is unmounted. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ROOT = FUSE_ROOT_ID, SWAP = 2, MOST = 128 << 10 };
static int fd;
static uint64_t bytes;
static unsigned char *data;
static const char *injected = "";
static long nth = -1;

static void answer(uint64_t unique, int error, const void *body, size_t len) {
    struct fuse_out_header head = {.len = sizeof head + len, .error = -error, .unique = unique};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)body, len}};
    if (writev(fd, parts, len ? 2 : 1) < 0 && errno != ENOENT) perror("fusefile: writev");
}

static struct fuse_attr attributes(uint64_t node) {
    struct fuse_attr a = {.ino = node, .nlink = 1, .blksize = 4096};
    a.mode = node == ROOT ? S_IFDIR | 0700 : S_IFREG | 0600;
    a.size = node == ROOT ? 0 : bytes;
    a.blocks = a.size / 512;
    return a;
}

/* Whether this request must fail in this way. */
static int is(const char *kind, long count) {
    if (nth < 0 || strcmp(kind, injected)) return 0;
    return !strcmp(kind, "stall") ? count == nth : !strcmp(kind, "flip") ? count % nth == 0 : count >= nth;
}

static void serve(struct fuse_in_header *in, void *body) {
    static long requests, reads, writes;
    switch (in->opcode) {
    case FUSE_INIT: {
        struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_readahead = MOST, .max_write = MOST};
        out.flags = FUSE_MAX_PAGES;
        out.max_pages = MOST / 4096;
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP: {
        struct fuse_entry_out out = {.nodeid = SWAP, .attr = attributes(SWAP)};
        if (strcmp(body, "swap")) return answer(in->unique, ENOENT, 0, 0);
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_GETATTR:
    case FUSE_SETATTR: {
        struct fuse_attr_out out = {.attr = attributes(in->nodeid)};
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO};
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {.st = {.blocks = bytes / 4096, .bfree = bytes / 4096, .bavail = bytes / 4096,
                                             .bsize = 4096, .frsize = 4096, .namelen = 255}};
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_READ: {
        struct fuse_read_in *r = body;
        static unsigned char copy[MOST];
        size_t len = r->offset >= bytes ? 0 : r->size < bytes - r->offset ? r->size : bytes - r->offset;
        reads++;
        if (is("stall", ++requests)) sleep(6);
        if (is("read-eio", reads)) return answer(in->unique, EIO, 0, 0);
        memcpy(copy, data + r->offset, len);
        if (is("flip", reads) && len) copy[len / 2] ^= 4;
        return answer(in->unique, 0, copy, len);
    }
    case FUSE_WRITE: {
        struct fuse_write_in *w = body;
        struct fuse_write_out out = {.size = w->size};
        writes++;
        if (is("stall", ++requests)) sleep(6);
        if (is("write-eio", writes)) return answer(in->unique, EIO, 0, 0);
        if (w->offset + w->size > bytes) return answer(in->unique, ENOSPC, 0, 0);
        memcpy(data + w->offset, w + 1, w->size);
        return answer(in->unique, 0, &out, sizeof out);
    }
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FSYNC:
        return answer(in->unique, 0, 0, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    case FUSE_DESTROY:
        answer(in->unique, 0, 0, 0);
        exit(0);
    default:
        return answer(in->unique, ENOSYS, 0, 0);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    bytes = strtoull(argv[2], 0, 10) << 20;
    data = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (argc > 3) {
        char *equals = strchr(argv[3], '=');
        if (!equals) return 2;
        *equals = 0;
        injected = argv[3];
        nth = strtol(equals + 1, 0, 10);
    }
    fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0) return perror("/dev/fuse"), 1;
    char options[100];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    if (mount("fusefile", argv[1], "fuse", MS_NOSUID | MS_NODEV, options)) return perror("mount"), 1;
    puts("mounted");
    fflush(stdout);
    static unsigned char request[MOST + 8192];
    for (;;) {
        ssize_t got = read(fd, request, sizeof request);
        if (got < 0 && errno == ENODEV) return 0;
        if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
        if (got < 0) return perror("fusefile: read"), 1;
        serve((void *)request, request + sizeof(struct fuse_in_header));
    }
}
