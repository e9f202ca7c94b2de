/*
 * Recorder of file system changes, preloaded into a process.
 *
 * It appends one record to a log for every change that the process makes below a directory: creations, writes, truncations, flushes,
 * renames and removals. One lock covers each call and its record, so the order of the log is the order of the changes.
 *
 * A flush is recorded and not carried out: the log decides what a power cut leaves, and the rig runs at the speed of memory.
 * A call that changes files in a way that the model does not know is recorded as such, and the rig rejects the recording.
 *
 * Files that end in "-shm" are not recorded. SQLite maps them into memory and never expects them to survive.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* These numbers are also in log.rs. */
enum kind { CREATE = 1, DIRECTORY, WRITE, TRUNCATE, FLUSH, RENAME, REMOVE, UNKNOWN };

struct header {
    uint32_t kind;
    uint32_t name;
    uint32_t second;
    uint32_t data;
    uint64_t a;
    uint64_t b;
};

#define DESCRIPTORS 65536

static char root[4096];
static size_t root_length;
static int out = -1;
static long kill_after = -1;
static long recorded;
static unsigned char watched[DESCRIPTORS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...)                                 \
    static type (*real)(__VA_ARGS__);                         \
    if (!real) {                                              \
        *(void **)&real = dlsym(RTLD_NEXT, name);             \
    }

static int real_open(const char *path, int flags, mode_t mode)
{
    REAL(int, "open64", const char *, int, ...)
    return real(path, flags, mode);
}

static ssize_t real_write(int fd, const void *data, size_t count)
{
    REAL(ssize_t, "write", int, const void *, size_t)
    return real(fd, data, count);
}

static int real_close(int fd)
{
    REAL(int, "close", int)
    return real(fd);
}

__attribute__((constructor)) static void start(void)
{
    const char *directory = getenv("TIDELOCK_POWER_CUT_ROOT");
    const char *log = getenv("TIDELOCK_POWER_CUT_LOG");
    const char *limit = getenv("TIDELOCK_POWER_CUT_KILL_AFTER");
    if (!directory || !log || strlen(directory) >= sizeof root) {
        return;
    }
    strcpy(root, directory);
    root_length = strlen(root);
    kill_after = limit ? atol(limit) : -1;
    out = real_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* A log with a hole would prove nothing, so a failure ends the process with a status of its own. */
static void put(const void *data, size_t count)
{
    const char *next = data;
    while (count > 0) {
        ssize_t n = real_write(out, next, count);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            _exit(97);
        }
        next += n;
        count -= (size_t)n;
    }
}

static void record(enum kind kind, uint64_t a, uint64_t b, const char *name, const char *second, const void *data, size_t count)
{
    int kept = errno;
    struct header header = { kind, 0, 0, (uint32_t)count, a, b };
    header.name = name ? (uint32_t)strlen(name) : 0;
    header.second = second ? (uint32_t)strlen(second) : 0;
    put(&header, sizeof header);
    put(name, header.name);
    put(second, header.second);
    put(data, count);
    recorded += 1;
    if (recorded == kill_after) {
        _exit(98);
    }
    errno = kept;
}

static void unknown(const char *call)
{
    record(UNKNOWN, 0, 0, call, NULL, NULL, 0);
}

static int ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static int is_below(const char *path)
{
    return out >= 0 && path && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0)
        && !ends_with(path, "-shm");
}

static int is_watched(int fd)
{
    return out >= 0 && fd >= 0 && fd < DESCRIPTORS && watched[fd];
}

static uint64_t inode_of(int fd)
{
    struct stat found;
    return fstat(fd, &found) == 0 ? found.st_ino : 0;
}

static uint64_t inode_at(const char *path)
{
    struct stat found;
    return lstat(path, &found) == 0 ? found.st_ino : 0;
}

/* Splits a path into the inode of its directory and the name in it. */
static uint64_t split(const char *path, const char **name)
{
    char directory[4096];
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length == 0 || length >= sizeof directory) {
        *name = path;
        return 0;
    }
    memcpy(directory, path, length);
    directory[length] = 0;
    *name = slash + 1;
    return inode_at(directory);
}

static int opened(const char *path, int flags, mode_t mode)
{
    if (!is_below(path)) {
        int fd = real_open(path, flags, mode);
        if (fd >= 0 && fd < DESCRIPTORS) {
            watched[fd] = 0;
        }
        return fd;
    }
    pthread_mutex_lock(&lock);
    struct stat before;
    int existed = lstat(path, &before) == 0;
    int fd = real_open(path, flags, mode);
    int kept = errno;
    if (fd >= DESCRIPTORS) {
        unknown("open with a high number");
    } else if (fd >= 0) {
        watched[fd] = 1;
        if (!existed) {
            const char *name;
            uint64_t directory = split(path, &name);
            record(CREATE, directory, inode_of(fd), name, NULL, NULL, 0);
        } else if (flags & O_TRUNC) {
            record(TRUNCATE, inode_of(fd), 0, NULL, NULL, NULL, 0);
        }
        if ((flags & O_ACCMODE) != O_RDONLY && (flags & (O_SYNC | O_DSYNC | O_DIRECT))) {
            unknown("open with O_SYNC or O_DIRECT");
        }
        if ((flags & O_TMPFILE) == O_TMPFILE) {
            unknown("open with O_TMPFILE");
        }
    }
    pthread_mutex_unlock(&lock);
    errno = kept;
    return fd;
}

static mode_t mode_of(int flags, va_list arguments)
{
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return opened(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return opened(path, flags, mode);
}

int creat(const char *path, mode_t mode)
{
    return opened(path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

static int opened_at(const char *symbol, int directory, const char *path, int flags, mode_t mode)
{
    if (directory == AT_FDCWD || (path && path[0] == '/')) {
        return opened(path, flags, mode);
    }
    int (*real)(int, const char *, int, ...);
    *(void **)&real = dlsym(RTLD_NEXT, symbol);
    if (is_watched(directory) && (flags & O_CREAT)) {
        pthread_mutex_lock(&lock);
        unknown("openat");
        pthread_mutex_unlock(&lock);
    }
    return real(directory, path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return opened_at("openat", directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return opened_at("openat64", directory, path, flags, mode);
}

int close(int fd)
{
    if (!is_watched(fd)) {
        return real_close(fd);
    }
    pthread_mutex_lock(&lock);
    watched[fd] = 0;
    int result = real_close(fd);
    pthread_mutex_unlock(&lock);
    return result;
}

ssize_t write(int fd, const void *data, size_t count)
{
    if (!is_watched(fd)) {
        return real_write(fd, data, count);
    }
    pthread_mutex_lock(&lock);
    ssize_t n = real_write(fd, data, count);
    if (n > 0) {
        /* The position after the write is right for files that are opened for appending as well. */
        off64_t end = lseek64(fd, 0, SEEK_CUR);
        record(WRITE, inode_of(fd), (uint64_t)(end - n), NULL, NULL, data, (size_t)n);
    }
    pthread_mutex_unlock(&lock);
    return n;
}

static ssize_t written_at(int fd, const void *data, size_t count, off64_t offset)
{
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)
    if (!is_watched(fd)) {
        return real(fd, data, count, offset);
    }
    pthread_mutex_lock(&lock);
    ssize_t n = real(fd, data, count, offset);
    if (n > 0) {
        record(WRITE, inode_of(fd), (uint64_t)offset, NULL, NULL, data, (size_t)n);
    }
    pthread_mutex_unlock(&lock);
    return n;
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset)
{
    return written_at(fd, data, count, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t offset)
{
    return written_at(fd, data, count, offset);
}

/* A vector is written in parts: a program must expect a short write of any length. */
ssize_t writev(int fd, const struct iovec *parts, int count)
{
    REAL(ssize_t, "writev", int, const struct iovec *, int)
    if (!is_watched(fd)) {
        return real(fd, parts, count);
    }
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > 0) {
            return write(fd, parts[i].iov_base, parts[i].iov_len);
        }
    }
    return 0;
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t)
    if (!is_watched(fd)) {
        return real(fd, parts, count, offset);
    }
    for (int i = 0; i < count; i++) {
        if (parts[i].iov_len > 0) {
            return written_at(fd, parts[i].iov_base, parts[i].iov_len, offset);
        }
    }
    return 0;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset)
{
    return pwritev(fd, parts, count, offset);
}

static int truncated(int fd, off64_t length)
{
    REAL(int, "ftruncate64", int, off64_t)
    if (!is_watched(fd)) {
        return real(fd, length);
    }
    pthread_mutex_lock(&lock);
    int result = real(fd, length);
    if (result == 0) {
        record(TRUNCATE, inode_of(fd), (uint64_t)length, NULL, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t length)
{
    return truncated(fd, length);
}

int ftruncate64(int fd, off64_t length)
{
    return truncated(fd, length);
}

static int flushed(const char *symbol, int fd)
{
    if (!is_watched(fd)) {
        int (*real)(int);
        *(void **)&real = dlsym(RTLD_NEXT, symbol);
        return real(fd);
    }
    pthread_mutex_lock(&lock);
    record(FLUSH, inode_of(fd), 0, NULL, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int fd)
{
    return flushed("fsync", fd);
}

int fdatasync(int fd)
{
    return flushed("fdatasync", fd);
}

/* It promises nothing about power cuts, so it counts as no flush. */
int sync_file_range(int fd, off64_t offset, off64_t count, unsigned int flags)
{
    REAL(int, "sync_file_range", int, off64_t, off64_t, unsigned int)
    return is_watched(fd) ? 0 : real(fd, offset, count, flags);
}

int rename(const char *from, const char *to)
{
    REAL(int, "rename", const char *, const char *)
    if (!is_below(from) && !is_below(to)) {
        return real(from, to);
    }
    pthread_mutex_lock(&lock);
    const char *old_name, *new_name;
    uint64_t old_directory = split(from, &old_name), new_directory = split(to, &new_name);
    int result = real(from, to);
    if (result == 0) {
        record(RENAME, old_directory, new_directory, old_name, new_name, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static int removed(const char *symbol, const char *path)
{
    int (*real)(const char *);
    *(void **)&real = dlsym(RTLD_NEXT, symbol);
    if (!is_below(path)) {
        return real(path);
    }
    pthread_mutex_lock(&lock);
    const char *name;
    uint64_t directory = split(path, &name);
    int result = real(path);
    if (result == 0) {
        record(REMOVE, directory, 0, name, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int unlink(const char *path)
{
    return removed("unlink", path);
}

int rmdir(const char *path)
{
    return removed("rmdir", path);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, "mkdir", const char *, mode_t)
    if (!is_below(path)) {
        return real(path, mode);
    }
    pthread_mutex_lock(&lock);
    int result = real(path, mode);
    if (result == 0) {
        const char *name;
        uint64_t directory = split(path, &name);
        record(DIRECTORY, directory, inode_at(path), name, NULL, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* The calls below are outside the model. */

static void outside(int concerned, const char *call)
{
    if (concerned) {
        pthread_mutex_lock(&lock);
        unknown(call);
        pthread_mutex_unlock(&lock);
    }
}

int link(const char *from, const char *to)
{
    REAL(int, "link", const char *, const char *)
    outside(is_below(to), "link");
    return real(from, to);
}

int symlink(const char *from, const char *to)
{
    REAL(int, "symlink", const char *, const char *)
    outside(is_below(to), "symlink");
    return real(from, to);
}

int renameat(int from_directory, const char *from, int to_directory, const char *to)
{
    REAL(int, "renameat", int, const char *, int, const char *)
    outside(is_watched(from_directory) || is_watched(to_directory) || is_below(from) || is_below(to), "renameat");
    return real(from_directory, from, to_directory, to);
}

int unlinkat(int directory, const char *path, int flags)
{
    REAL(int, "unlinkat", int, const char *, int)
    outside(is_watched(directory) || is_below(path), "unlinkat");
    return real(directory, path, flags);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t length)
{
    REAL(int, "fallocate64", int, int, off64_t, off64_t)
    outside(is_watched(fd), "fallocate");
    return real(fd, mode, offset, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length)
{
    return fallocate64(fd, mode, offset, length);
}

int posix_fallocate64(int fd, off64_t offset, off64_t length)
{
    REAL(int, "posix_fallocate64", int, off64_t, off64_t)
    outside(is_watched(fd), "posix_fallocate");
    return real(fd, offset, length);
}

int posix_fallocate(int fd, off_t offset, off_t length)
{
    return posix_fallocate64(fd, offset, length);
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
    REAL(void *, "mmap64", void *, size_t, int, int, int, off64_t)
    outside(is_watched(fd) && (flags & MAP_SHARED) && (protection & PROT_WRITE), "a shared writable mapping");
    return real(address, length, protection, flags, fd, offset);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return mmap64(address, length, protection, flags, fd, offset);
}
