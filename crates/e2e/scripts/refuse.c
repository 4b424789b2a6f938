/* A disk that takes no writes for a while: preloaded, and as long as the file named by REFUSE_WRITES holds the number of an error, whatever would
 * write to a file, or make, rename or remove one, fails with that error. What is read is read. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int refused(void) {
    char text[16] = {0};
    const char *path = getenv("REFUSE_WRITES");
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (file >= 0) {
        if (syscall(SYS_read, file, text, sizeof text - 1) < 0)
            text[0] = 0;
        syscall(SYS_close, file);
    }
    return atoi(text);
}

/* The log is a file, too, and goes to standard error. */
static int refused_file(int descriptor) {
    struct stat status;
    if (descriptor <= 2 || fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
        return 0;
    return refused();
}

#define REFUSE(error)          \
    do {                       \
        int found = (error);   \
        if (found != 0) {      \
            errno = found;     \
            return -1;         \
        }                      \
    } while (0)

ssize_t write(int descriptor, const void *bytes, size_t count) {
    REFUSE(refused_file(descriptor));
    return syscall(SYS_write, descriptor, bytes, count);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    REFUSE(refused_file(descriptor));
    return syscall(SYS_writev, descriptor, parts, count);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t count, off_t at) {
    REFUSE(refused_file(descriptor));
    return syscall(SYS_pwrite64, descriptor, bytes, count, at);
}

int ftruncate64(int descriptor, off_t length) {
    REFUSE(refused_file(descriptor));
    return (int)syscall(SYS_ftruncate, descriptor, length);
}

int open64(const char *path, int flags, ...) {
    mode_t mode = 0;
    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    if (flags & O_CREAT)
        REFUSE(refused());
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int rename(const char *from, const char *to) {
    REFUSE(refused());
    return (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

int unlink(const char *path) {
    REFUSE(refused());
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
