// A library for LD_PRELOAD that answers some calls itself, as padsp or torsocks do; with PROGRAM, the program that makes them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifdef PROGRAM
int main(void) {
    printf("%d %ld\n", ioctl(1, 0x4d45, 1), syscall(70000, 1));
    return 0;
}
#else
int ioctl(int fd, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    int (*next)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
    return request == 0x4d45 ? 42 : next(fd, request, argument);
}

long syscall(long number, ...) {
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    long (*next)(long, ...) = dlsym(RTLD_NEXT, "syscall");
    return number == 70000 ? 77 : next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#endif
