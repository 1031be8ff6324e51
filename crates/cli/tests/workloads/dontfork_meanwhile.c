// One thread keeps page after page from fork children, also at the moment when memfit begins to page the process. Then a fork
// child must have none of these pages, and all others.
#include "pages.h"

enum { PAGES = 4 << 20, FILLED = 48 };

static uint64_t *filled;
static volatile int paged;

static void *filler(void *unused) {
    fill(filled, FILLED * MIB, 1);
    wait_until_paged(FILLED * MIB);
    paged = 1;
    return unused;
}

static int maps_where_nothing_is(char *at, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    return bytes == 0 || mmap(at, bytes, PROT_READ, flags, -1, 0) == at;
}

int main(void) {
    filled = map(FILLED * MIB);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *all = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    MUST((intptr_t)all);
    pthread_t thread;
    MUST(-pthread_create(&thread, NULL, filler, NULL));
    size_t kept = 0;
    while (!paged && kept < PAGES) MUST(madvise(all + kept++ * PAGE, PAGE, MADV_DONTFORK));
    MUST(-pthread_join(thread, NULL));
    pid_t child = fork();
    MUST(child);
    if (!child) {
        size_t wrong = check(filled, FILLED * MIB, 1);
        if (kept < PAGES) wrong += maps_where_nothing_is(all + kept * PAGE, PAGE);
        wrong += !maps_where_nothing_is(all, kept * PAGE);
        _exit(wrong != 0);
    }
    size_t wrong = check(filled, FILLED * MIB, 1);
    int status = status_of(child);
    printf("child: %d, wrong: %zu\n", status, wrong);
    return status != 0 || wrong != 0;
}
