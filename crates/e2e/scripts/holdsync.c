/* A disk that stops in the middle: preloaded, and while the file named by HOLD_SYNC holds another number than 0, syncs do not return. Each number lets one
 * sync through, the first after it was written there. With 0 all go on, those that wait, too. */

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int known;

static int told(void) {
    char text[16] = {0};
    const char *path = getenv("HOLD_SYNC");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) < 0)
            text[0] = 0;
        close(file);
    }
    return atoi(text);
}

/* Whether this sync may go on: nothing is held, or it is the first one since the number was written. */
static int goes_on(void) {
    int number = told();
    pthread_mutex_lock(&lock);
    int first = number != known;
    known = number;
    pthread_mutex_unlock(&lock);
    return first || number == 0;
}

static void hold(void) {
    while (!goes_on())
        usleep(5000);
}

int fsync(int descriptor) {
    hold();
    return (int)syscall(SYS_fsync, descriptor);
}

int fdatasync(int descriptor) {
    hold();
    return (int)syscall(SYS_fdatasync, descriptor);
}
