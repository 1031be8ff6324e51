// Touches of known pages at known times, and processes that check their memory while it is evicted again and again.
#include "pages.h"

enum { PAGES = 1024, TOUCHED = 256, ROUNDS = 8, CHILDREN = 3, CHECKS = 12 };

static const size_t BYTES = 2048 * PAGE;

// All pages once; then after a pause the first ones in order, again and again, and the others never.
static int known(void) {
    uint64_t *p = map(PAGES * PAGE);
    printf("%lu\n", (uintptr_t)p / PAGE);
    usleep(500000);
    for (size_t page = 0; page < PAGES; page++) p[page * 512] = page + 1;
    size_t wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        usleep(400000);
        for (size_t page = 0; page < TOUCHED; page++) wrong += p[page * 512] != page + 1;
    }
    printf("%zu\n", wrong);
    return wrong != 0;
}

static void *looks(void *p) {
    size_t wrong = 0;
    for (int i = 0; i < CHECKS; i++) {
        usleep(70000);
        wrong += check(p, BYTES, 1);
    }
    return (void *)wrong;
}

// Memory that is only read, also by a thread, and memory that is changed, in the parent and in children of children.
static size_t lives(uint64_t *read, uint64_t *changed, int depth) {
    size_t wrong = 0;
    for (int i = 0; i < CHECKS; i++) {
        wrong += check(changed, BYTES, depth * 100 + i);
        if (i % 4 == 2) madvise(changed, BYTES / 2, MADV_DONTNEED);
        if (i % 4 == 2) wrong += check_empty(changed, BYTES / 2);
        fill(changed, BYTES, depth * 100 + i + 1);
        wrong += check(read, BYTES, 1);
        usleep(30000 + 10000 * (i % 7));
    }
    return wrong;
}

static int verified(void) {
    uint64_t *read = map(BYTES), *changed = map(BYTES);
    fill(read, BYTES, 1);
    fill(changed, BYTES, 0);
    usleep(300000);
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        MUST(children[i] = fork());
        if (children[i] == 0) {
            size_t wrong = lives(read, changed, 0);
            pid_t child;
            MUST(child = i == 0 ? fork() : 0);
            if (i == 0 && child == 0) _exit(check(changed, BYTES, CHECKS) || check(read, BYTES, 1));
            _exit(wrong || (i == 0 && status_of(child)));
        }
        usleep(50000);
    }
    pthread_t thread;
    pthread_create(&thread, NULL, looks, read);
    size_t wrong = lives(read, changed, 0);
    void *seen;
    pthread_join(thread, &seen);
    wrong += (size_t)seen;
    for (int i = 0; i < CHILDREN; i++) wrong += status_of(children[i]) != 0;
    printf("%zu\n", wrong);
    return wrong != 0;
}

int main(int count, char **words) {
    setbuf(stdout, NULL);
    return count > 1 && !strcmp(words[1], "known") ? known() : verified();
}
