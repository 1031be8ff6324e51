/* apps TURNS cycle|shuffle SPEC [told|ends]: applications that are triggered in turns, each once a turn, in the order of SPEC or in a
 * new random one. An application is started by its first trigger and stays; what counts is the time from a trigger until it
 * answers. Each line of SPEC: NAME ANON_KIB MIX CODE_KIB FILE_KIB PERMILLE HOT_PERMILLE USES_PERMILLE; its file is NAME.media in the
 * folder of SPEC. apps media FILE INDEX CODE_KIB KIB PERMILLE MIX makes such a file: code, of which each launch needs a part, and each use
 * blocks at random, USES_PERMILLE for each 1000 that there are, and media, of which each use sees another quarter, once. Files are
 * mapped private and read-only. An application of the name "services" stands for those of the system: it is not triggered, but works
 * with each launch and with each use, and its blocks are spread over all of them.
 * told: the pager is told, as `memfit bg -w` and `memfit fg` do, that an application leaves the foreground after its use, and comes
 * back with its trigger. ends: applications end after each turn, and their next trigger starts them anew; the services stay. */
#define _GNU_SOURCE
#include "common.h"
#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { APPS = 64, BLOCK = 8, PARTS = 4, LAUNCH_PART = 5, STEPS = 16 };

struct app {
    char name[40], mix[8];
    unsigned index, anon_kib, code_kib, file_kib, permille, hot, uses;
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

/* What code holds. "phone": all alike. "idle": of ten blocks four, four and two compress to 0.36, 0.58 and 0.91 with LZO, about as
 * programs and libraries of today do, which have a mean of 0.56 to 0.70, and a fifth and more above 0.75. */
static unsigned code_permille(const char *mix, uint64_t id) {
    unsigned x = mix64(id / BLOCK + 5) % 10;
    if (mix[0] != 'i') return 250;
    return x < 4 ? 300 : x < 8 ? 520 : 850;
}

/* Blocks of neighbours: those that every resume needs, or one of ten others that changes from turn to turn. */
static int wanted(uint64_t page, unsigned hot, unsigned turn) {
    uint64_t x = mix64(page / BLOCK + 77);
    if (x % 1000 < hot) return turn == 0;
    return turn && (x >> 20) % 10 == turn % 10;
}

static void check_code(const struct app *a, const unsigned char *file, uint64_t page) {
    uint64_t id = page_id(a->index, page, 1);
    interleaved_check(file + page * PAGE, id, 0, code_permille(a->mix, id));
}

/* Part `step` of STEPS of these: `count` random blocks of the code, and meanwhile the media from page `from` to `end`. */
static void wander(const struct app *a, const unsigned char *file, uint64_t seed, uint64_t count, uint64_t from, uint64_t end, unsigned step) {
    uint64_t code = a->code_kib / 4, seen = from + step * count / STEPS * (end - from) / (count ? count : 1);
    for (uint64_t i = step * count / STEPS; i < (step + 1) * count / STEPS; i++) {
        uint64_t first = mix64(seed << 32 | i) % (code / BLOCK) * BLOCK;
        for (uint64_t p = first; p < first + BLOCK; p++) check_code(a, file, p);
        for (; seen < from + (i + 1) * (end - from) / count; seen++) {
            uint64_t id = page_id(a->index, code + seen, 1);
            interleaved_check(file + (code + seen) * PAGE, id, 0, a->permille);
        }
    }
}

/* Reads a page of the data, and writes it if it is one of every four. */
static void use_data(const struct app *a, unsigned char *mem, uint32_t *versions, uint64_t p) {
    uint64_t id = page_id(a->index, p, 0);
    unsigned permille = permille_of(a->mix, id);
    interleaved_check(mem + p * PAGE, id, versions[p], permille);
    if (p % 4 == 0) interleaved_make(mem + p * PAGE, id, ++versions[p], permille);
}

/* In turn 0 what every launch needs, else what the use in this turn needs of the same. */
static void touch(const struct app *a, unsigned char *mem, uint32_t *versions, const unsigned char *file, unsigned turn) {
    for (uint64_t p = 0; p < a->anon_kib / 4; p++)
        if (wanted(p, a->hot, turn)) use_data(a, mem, versions, p);
    for (uint64_t p = 0; p < a->code_kib / 4; p++)
        if (wanted(p, a->hot, turn)) check_code(a, file, p);
}

/* A step of the use in this turn. */
static void use(const struct app *a, unsigned char *mem, uint32_t *versions, const unsigned char *file, unsigned turn, unsigned step) {
    uint64_t code = a->code_kib / 4, media = a->file_kib / 4 - code;
    if (step == 0) touch(a, mem, versions, file, turn);
    if (!media) return;
    wander(a, file, turn, code / BLOCK * a->uses / 1000, turn % PARTS * media / PARTS, (turn % PARTS + 1) * media / PARTS, step);
}

/* What the services do at a launch: random blocks of their data, HOT_PERMILLE for each 1000, and a fifth of the blocks of their file. */
static void serve_launch(const struct app *a, unsigned char *mem, uint32_t *versions, const unsigned char *file, unsigned visit) {
    uint64_t data = a->anon_kib / 4 / BLOCK, blocks = a->code_kib / 4 / BLOCK * a->uses / 1000 / LAUNCH_PART;
    for (uint64_t i = 0; i < data * a->hot / 1000; i++) {
        uint64_t block = mix64((uint64_t)visit << 32 | i) % data * BLOCK;
        for (uint64_t p = block; p < block + BLOCK; p++) use_data(a, mem, versions, p);
    }
    for (unsigned step = 0; step < STEPS; step++) wander(a, file, 2ul * visit, blocks, 0, 0, step);
}

/* What they do in a step of a use: of the other blocks. */
static void serve_use(const struct app *a, const unsigned char *file, unsigned visit, unsigned step) {
    uint64_t all = a->code_kib / 4 / BLOCK * a->uses / 1000;
    wander(a, file, 2ul * visit + 1, all - all / LAUNCH_PART, 0, 0, step);
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

static int is_services(const struct app *a) { return !strcmp(a->name, "services"); }

/* 'k' when it is ready. 'r': resume, answer, and be used in steps, of which each is asked for; 'q': check everything and end; 'e': end. */
static int application(const struct app *a, unsigned turn, int in, int out, const char *path) {
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
    int services = is_services(a);
    char asked;
    say(out, 'k');
    for (; (asked = hear(in)) == 'r'; turn++) {
        if (services) serve_launch(a, mem, versions, file, turn);
        else touch(a, mem, versions, file, 0);
        say(out, 'k');
        for (unsigned step = 0; step < STEPS && hear(in) == 's'; step++) {
            if (services) serve_use(a, file, turn, step);
            else use(a, mem, versions, file, turn, step);
            say(out, 'u');
        }
    }
    for (uint64_t p = 0; asked != 'e' && p < pages; p++) {
        uint64_t id = page_id(a->index, p, 0);
        interleaved_check(mem + p * PAGE, id, versions[p], permille_of(a->mix, id));
    }
    return 0;
}

static void launch(struct app *a, char **argv, unsigned index, unsigned turn) {
    int to[2], from[2];
    char number[16], first[16], in[16], out[16];
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) { perror("pipe"); exit(1); }
    a->pid = fork();
    if (a->pid < 0) { perror("fork"); exit(1); }
    if (a->pid == 0) {
        /* Without the flag of closing at exec. */
        snprintf(in, sizeof in, "%d", dup(to[0]));
        snprintf(out, sizeof out, "%d", dup(from[1]));
        snprintf(number, sizeof number, "%u", index);
        snprintf(first, sizeof first, "%u", turn);
        execl("/proc/self/exe", argv[0], "app", argv[3], number, first, in, out, (char *)NULL);
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
    int read = 0;
    while (n < APPS && (read = fscanf(f, "%39s %u %7s %u %u %u %u %u", apps[n].name, &apps[n].anon_kib, apps[n].mix, &apps[n].code_kib,
                              &apps[n].file_kib, &apps[n].permille, &apps[n].hot, &apps[n].uses)) == 8) {
        apps[n].index = n;
        n++;
    }
    fclose(f);
    if (read != EOF) { fprintf(stderr, "%s: application %u is not complete, or there are more than %d\n", path, n + 1, APPS - 1); exit(2); }
    return n;
}

static int make_media(const char *path, unsigned index, unsigned code_kib, unsigned kib, unsigned permille, const char *mix) {
    FILE *f = fopen(path, "w");
    unsigned char page[PAGE];
    if (!f) { perror(path); return 1; }
    for (uint64_t p = 0; p < kib / 4; p++) {
        uint64_t id = page_id(index, p, 1);
        interleaved_make(page, id, 0, p < code_kib / 4 ? code_permille(mix, id) : permille);
        if (fwrite(page, PAGE, 1, f) != 1) { perror(path); return 1; }
    }
    return fclose(f) != 0;
}

/* The answer that an application must give. */
static void await(struct app *a, char answer) {
    if (hear(a->from) == answer) return;
    fprintf(stderr, "%s has ended\n", a->name);
    exit(1);
}

static void ask(struct app *a, char what, char answer) {
    say(a->to, what);
    await(a, answer);
}

/* One launch and the use after it, with what the services do for them. */
static void visit(struct app *a, unsigned index, struct app *services, char **argv, uint64_t turn, int told) {
    double trigger = seconds();
    if (!a->pid) {
        launch(a, argv, index, turn + 1);
        await(a, 'k');
    } else if (told) tell(a->pid, "ComeBack");
    if (services) ask(services, 'r', 'k');
    ask(a, 'r', 'k');
    printf("entry %s %llu %.6f\n", a->name, (unsigned long long)turn, seconds() - trigger);
    /* One after the other, so that each run has the same order of accesses. */
    for (unsigned step = 0; step < STEPS; step++) {
        if (services) ask(services, 's', 'u');
        ask(a, 's', 'u');
    }
    if (told) tell(a->pid, "LeaveWhenShort");
}

/* Has an application end, in time that counts without a check of all that it keeps. Whether it failed. */
static int quit(struct app *a, char how) {
    int status;
    say(a->to, how);
    int failed = waitpid(a->pid, &status, 0) != a->pid || status != 0;
    close(a->to);
    close(a->from);
    a->pid = 0;
    return failed;
}

static int cycle(char **argv, uint64_t turns, int shuffle, int told, int ends) {
    static struct app apps[APPS];
    struct app *services = NULL;
    uint64_t s = 1;
    int failed = 0;
    unsigned count = read_spec(argv[3], apps), triggered = 0, order[APPS];
    for (unsigned i = 0; i < count; i++) {
        if (is_services(&apps[i])) services = &apps[i];
        else order[triggered++] = i;
    }
    double start = seconds();
    if (services) {
        launch(services, argv, services->index, 1);
        await(services, 'k');
    }
    for (uint64_t turn = 0; turn < turns; turn++) {
        char label[28];
        for (unsigned i = triggered; shuffle && i > 1; i--) {
            s = mix64(s);
            unsigned k = s % i, t = order[i - 1];
            order[i - 1] = order[k];
            order[k] = t;
        }
        for (unsigned i = 0; i < triggered; i++) visit(&apps[order[i]], order[i], services, argv, turn, told);
        snprintf(label, sizeof label, "turn%llu", (unsigned long long)turn);
        sample(label);
        for (unsigned i = 0; ends && turn + 1 < turns && i < triggered; i++) failed |= quit(&apps[order[i]], 'e');
    }
    measured(start);
    for (unsigned i = 0; i < count; i++) failed |= apps[i].pid && quit(&apps[i], 'q');
    return failed;
}

int main(int argc, char **argv) {
    if (argc == 8 && !strcmp(argv[1], "media"))
        return make_media(argv[2], arg_u64(argc, argv, 3, 0), arg_u64(argc, argv, 4, 0), arg_u64(argc, argv, 5, 0),
                          arg_u64(argc, argv, 6, 0), argv[7]);
    if (argc == 7 && !strcmp(argv[1], "app")) {
        static struct app apps[APPS];
        unsigned index = arg_u64(argc, argv, 3, 0);
        if (index >= read_spec(argv[2], apps)) return 2;
        char path[4096];
        const char *slash = strrchr(argv[2], '/');
        snprintf(path, sizeof path, "%.*s%s.media", slash ? (int)(slash - argv[2] + 1) : 0, argv[2], apps[index].name);
        return application(&apps[index], arg_u64(argc, argv, 4, 1), arg_u64(argc, argv, 5, 0), arg_u64(argc, argv, 6, 1), path);
    }
    int told = argc == 5 && !strcmp(argv[4], "told"), ends = argc == 5 && !strcmp(argv[4], "ends");
    if (argc != 4 && !told && !ends) return 2;
    return cycle(argv, arg_u64(argc, argv, 1, 16), !strcmp(argv[2], "shuffle"), told, ends);
}
