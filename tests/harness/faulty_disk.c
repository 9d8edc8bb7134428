/* Loaded before the C library: a disk that is slow, fails, or loses power.
 *
 * FAULTY_DISK names a folder. While a file `broken` is in it, msync(2) fails with EIO. Otherwise msync takes a
 * millisecond longer, and copies what it writes to a file of the folder that is named by the inode of the mapped
 * file: this is what a machine would find after a power cut.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST 4096

static struct { char *start; size_t length; ino_t inode; } maps[MOST];
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *mmap64(void *at, size_t length, int protection, int flags, int file, off_t offset)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    struct stat about;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "mmap64");
    void *start = real(at, length, protection, flags, file, offset);
    if (start != MAP_FAILED && (flags & MAP_SHARED) && file >= 0 && fstat(file, &about) == 0) {
        pthread_mutex_lock(&lock);
        if (count == MOST)
            abort();
        maps[count].start = start;
        maps[count].length = length;
        maps[count++].inode = about.st_ino;
        pthread_mutex_unlock(&lock);
    }
    return start;
}

void *mmap(void *at, size_t length, int protection, int flags, int file, off_t offset)
{
    return mmap64(at, length, protection, flags, file, offset);
}

static void keep(const char *folder, const char *from, size_t length)
{
    char name[4096];
    pthread_mutex_lock(&lock);
    /* An address is used again once its map is gone: the last one counts. */
    for (int i = count - 1; i >= 0; i--) {
        if (from < maps[i].start || from >= maps[i].start + maps[i].length)
            continue;
        snprintf(name, sizeof name, "%s/%lu", folder, (unsigned long)maps[i].inode);
        int file = open(name, O_WRONLY | O_CREAT, 0600);
        if (file < 0 || pwrite(file, from, length, from - maps[i].start) != (ssize_t)length)
            abort();
        close(file);
        break;
    }
    pthread_mutex_unlock(&lock);
}

int msync(void *from, size_t length, int flags)
{
    static int (*real)(void *, size_t, int);
    char broken[4096];
    const char *folder = getenv("FAULTY_DISK");
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "msync");
    snprintf(broken, sizeof broken, "%s/broken", folder ? folder : "");
    if (access(broken, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    usleep(1000);
    if (folder)
        keep(folder, from, length);
    return real(from, length, flags);
}
