/* apps TURNS cycle|shuffle SPEC [told]: applications that are triggered in turns, each once a turn, in the order of SPEC or in a
 * new random one. An application is started by its first trigger and stays; what counts is the time from a trigger until it
 * answers. Each line of SPEC: NAME ANON_KIB MIX CODE_KIB FILE_KIB PERMILLE HOT_PERMILLE; its file is NAME.media in the folder of
 * SPEC. apps media FILE INDEX CODE_KIB KIB PERMILLE makes such a file: code, of which each launch needs a part, and each use
 * blocks at random, more than there are, and media, of which each use sees another quarter, once. Files are mapped private and read-only.
 * told: the pager is told, as `memfit bg -w` and `memfit fg` do, that an application leaves the foreground after its use, and comes
 * back with its trigger. */
#define _GNU_SOURCE
#include "common.h"
#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { APPS = 64, BLOCK = 8, CODE_PERMILLE = 250, PARTS = 4, USES = 8 };

struct app {
    char name[40], mix[8];
    unsigned index, anon_kib, code_kib, file_kib, permille, hot;
    pid_t pid;
    int to, from;
};

static uint64_t page_id(unsigned index, uint64_t page, int file) { return (uint64_t)index << 32 | (uint64_t)file << 31 | page; }

/* What an application keeps: "phone": C = 2 as with zRAM; "idle": mostly zero and light pages. */
static unsigned permille_of(const char *mix, uint64_t id) {
    unsigned x = mix64(id) % 10;
    if (mix[0] == 'i') return x < 4 ? 0 : x < 7 ? 100 : 300;
    return x < 1 ? 0 : x < 4 ? 200 : x < 8 ? 400 : x < 9 ? 650 : 900;
}

/* Blocks of neighbours: those that every resume needs, or one of ten others that changes from turn to turn. */
static int wanted(uint64_t page, unsigned hot, unsigned turn) {
    uint64_t x = mix64(page / BLOCK + 77);
    if (x % 1000 < hot) return turn == 0;
    return turn && (x >> 20) % 10 == turn % 10;
}

static void touch(const struct app *a, unsigned char *mem, uint32_t *versions, const unsigned char *file, unsigned turn) {
    for (uint64_t p = 0; p < a->anon_kib / 4; p++) {
        if (!wanted(p, a->hot, turn)) continue;
        uint64_t id = page_id(a->index, p, 0);
        unsigned permille = permille_of(a->mix, id);
        interleaved_check(mem + p * PAGE, id, versions[p], permille);
        if (p % 4 == 0) interleaved_make(mem + p * PAGE, id, ++versions[p], permille);
    }
    uint64_t code = a->code_kib / 4, media = a->file_kib / 4 - code;
    for (uint64_t p = 0; p < code; p++)
        if (wanted(p, a->hot, turn)) interleaved_check(file + p * PAGE, page_id(a->index, p, 1), 0, CODE_PERMILLE);
    if (!turn || !media) return;
    uint64_t from = turn % PARTS * media / PARTS, end = (turn % PARTS + 1) * media / PARTS, uses = code / BLOCK * USES;
    for (uint64_t i = 0, seen = from; i < uses; i++) {
        uint64_t first = mix64((uint64_t)turn << 32 | i) % (code / BLOCK) * BLOCK;
        for (uint64_t p = first; p < first + BLOCK; p++)
            interleaved_check(file + p * PAGE, page_id(a->index, p, 1), 0, CODE_PERMILLE);
        for (; seen < from + (i + 1) * (end - from) / uses; seen++)
            interleaved_check(file + (code + seen) * PAGE, page_id(a->index, code + seen, 1), 0, a->permille);
    }
}

static void say(int fd, char c) {
    if (write(fd, &c, 1) != 1) exit(1);
}

static char hear(int fd) {
    char c;
    return read(fd, &c, 1) == 1 ? c : 0;
}

/* What `memfit bg -w PID` and `memfit fg PID` send, without the time that a command takes to start. */
static void tell(pid_t pid, const char *what) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *name = getenv("MEMFIT_SOCKET");
    char packet[128], answer[8192];
    struct timeval patience = {.tv_sec = 10};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (!name || strlen(name) + 1 > sizeof to.sun_path) { fprintf(stderr, "no pager to tell\n"); exit(1); }
    memcpy(to.sun_path + 1, name, strlen(name));
    int length = snprintf(packet, sizeof packet, "{\"stat\":1,\"brief\":true,\"order\":{\"pid\":%d,\"what\":\"%s\"}}", pid, what);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) || connect(fd, (struct sockaddr *)&to, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)) ||
        send(fd, packet, length, 0) != length) { perror("the pager cannot be told"); exit(1); }
    ssize_t got = recv(fd, answer, sizeof answer - 1, 0);
    answer[got < 0 ? 0 : got] = 0;
    if (!strstr(answer, "\"standing\"") || strstr(answer, "Unknown")) {
        fprintf(stderr, "the pager does not know process %d: %s\n", pid, answer);
        exit(1);
    }
    close(fd);
}

/* 'r': resume, answer, and be used; 'q': check everything and end. */
static int application(const struct app *a, int in, int out, const char *path) {
    const unsigned char *file = NULL;
    if (a->file_kib) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        void *m = fd < 0 ? MAP_FAILED : mmap(NULL, a->file_kib * 1024ul, PROT_READ, MAP_PRIVATE, fd, 0);
        if (m == MAP_FAILED) { perror(path); return 1; }
        file = m;
        close(fd);
    }
    uint64_t pages = a->anon_kib / 4;
    unsigned char *mem = pages_map(pages);
    uint32_t *versions = calloc(pages, sizeof *versions);
    for (uint64_t p = 0; p < pages; p++) {
        uint64_t id = page_id(a->index, p, 0);
        interleaved_make(mem + p * PAGE, id, 0, permille_of(a->mix, id));
    }
    for (unsigned turn = 1; hear(in) == 'r'; turn++) {
        touch(a, mem, versions, file, 0);
        say(out, 'k');
        touch(a, mem, versions, file, turn);
        say(out, 'u');
    }
    for (uint64_t p = 0; p < pages; p++) {
        uint64_t id = page_id(a->index, p, 0);
        interleaved_check(mem + p * PAGE, id, versions[p], permille_of(a->mix, id));
    }
    return 0;
}

static void launch(struct app *a, char **argv, unsigned index) {
    int to[2], from[2];
    char number[16], in[16], out[16];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) { perror("pipe"); exit(1); }
    a->pid = fork();
    if (a->pid < 0) { perror("fork"); exit(1); }
    if (a->pid == 0) {
        /* Without the flag of closing at exec. */
        snprintf(in, sizeof in, "%d", dup(to[0]));
        snprintf(out, sizeof out, "%d", dup(from[1]));
        snprintf(number, sizeof number, "%u", index);
        execl("/proc/self/exe", argv[0], "app", argv[3], number, in, out, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    a->to = to[1];
    a->from = from[0];
}

static unsigned read_spec(const char *path, struct app *apps) {
    FILE *f = fopen(path, "r");
    unsigned n = 0;
    if (!f) { perror(path); exit(2); }
    while (n < APPS && fscanf(f, "%39s %u %7s %u %u %u %u", apps[n].name, &apps[n].anon_kib, apps[n].mix, &apps[n].code_kib,
                              &apps[n].file_kib, &apps[n].permille, &apps[n].hot) == 7) {
        apps[n].index = n;
        n++;
    }
    fclose(f);
    return n;
}

static int make_media(const char *path, unsigned index, unsigned code_kib, unsigned kib, unsigned permille) {
    FILE *f = fopen(path, "w");
    unsigned char page[PAGE];
    if (!f) { perror(path); return 1; }
    for (uint64_t p = 0; p < kib / 4; p++) {
        interleaved_make(page, page_id(index, p, 1), 0, p < code_kib / 4 ? CODE_PERMILLE : permille);
        if (fwrite(page, PAGE, 1, f) != 1) { perror(path); return 1; }
    }
    return fclose(f) != 0;
}

int main(int argc, char **argv) {
    static struct app apps[APPS];
    if (argc == 7 && !strcmp(argv[1], "media"))
        return make_media(argv[2], arg_u64(argc, argv, 3, 0), arg_u64(argc, argv, 4, 0), arg_u64(argc, argv, 5, 0),
                          arg_u64(argc, argv, 6, 0));
    if (argc == 6 && !strcmp(argv[1], "app")) {
        unsigned index = arg_u64(argc, argv, 3, 0);
        if (index >= read_spec(argv[2], apps)) return 2;
        char path[4096];
        const char *slash = strrchr(argv[2], '/');
        snprintf(path, sizeof path, "%.*s%s.media", slash ? (int)(slash - argv[2] + 1) : 0, argv[2], apps[index].name);
        return application(&apps[index], arg_u64(argc, argv, 4, 0), arg_u64(argc, argv, 5, 1), path);
    }
    int told = argc == 5 && !strcmp(argv[4], "told");
    if (argc != 4 && !told) return 2;
    uint64_t turns = arg_u64(argc, argv, 1, 16), s = 1;
    int shuffle = !strcmp(argv[2], "shuffle"), failed = 0, status;
    unsigned count = read_spec(argv[3], apps), order[APPS];
    for (unsigned i = 0; i < count; i++) order[i] = i;
    double start = seconds();
    for (uint64_t turn = 0; turn < turns; turn++) {
        char label[28];
        for (unsigned i = count; shuffle && i > 1; i--) {
            s = mix64(s);
            unsigned k = s % i, t = order[i - 1];
            order[i - 1] = order[k];
            order[k] = t;
        }
        for (unsigned i = 0; i < count; i++) {
            struct app *a = &apps[order[i]];
            double trigger = seconds();
            if (!a->pid) launch(a, argv, order[i]);
            else if (told) tell(a->pid, "ComeBack");
            say(a->to, 'r');
            if (hear(a->from) != 'k') { fprintf(stderr, "%s has ended\n", a->name); return 1; }
            printf("entry %s %llu %.6f\n", a->name, (unsigned long long)turn, seconds() - trigger);
            if (hear(a->from) != 'u') { fprintf(stderr, "%s has ended\n", a->name); return 1; }
            if (told) tell(a->pid, "LeaveWhenShort");
        }
        snprintf(label, sizeof label, "turn%llu", (unsigned long long)turn);
        sample(label);
    }
    measured(start);
    for (unsigned i = 0; i < count; i++) {
        say(apps[i].to, 'q');
        failed |= waitpid(apps[i].pid, &status, 0) != apps[i].pid || status != 0;
    }
    return failed;
}
