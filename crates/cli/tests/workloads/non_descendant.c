// Fills memory, makes the file "full.NAME", waits for the file "go", compares, and writes what it found to "done.NAME". Arguments: the
// name, MiB.
#include "pages.h"

static void make(const char *kind, const char *name, const char *text) {
    char path[100], all[104];
    snprintf(path, sizeof path, "%s.%s", kind, name);
    snprintf(all, sizeof all, "%s.new", path);
    int fd = open(all, O_WRONLY | O_CREAT, 0666);
    MUST(fd);
    MUST(write(fd, text, strlen(text)));
    MUST(rename(all, path));
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t bytes = (size_t)atoi(argv[2]) * MIB;
    uint64_t *p = map(bytes);
    fill(p, bytes, 1);
    size_t wrong = check(p, bytes, 1);
    make("full", argv[1], "");
    while (access("go", F_OK)) usleep(5000);
    for (int round = 0; round < 3; round++) {
        wrong += check(p, bytes, 1);
        uint64_t *more = map(MIB);
        fill(more, MIB, 2);
        wrong += check(more, MIB, 2);
    }
    char text[40];
    snprintf(text, sizeof text, "%zu wrong\n", wrong);
    make("done", argv[1], text);
    return 0;
}
