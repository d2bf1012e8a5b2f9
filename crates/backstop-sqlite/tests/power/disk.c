/*
 * A disk that fails. Preloaded into a process that uses DIR/store.db, it keeps beside each file what of it would be
 * on the disk: a write makes pages dirty, a successful fsync copies them there, a failed one forgets that they are
 * dirty, as Linux does. A power cut ends the process and leaves in DIR/cut what the disk has: of the pages that are
 * dirty then, a random half.
 *
 * POWER_FAIL_AT, POWER_FAIL_COUNT  the first fsync that fails, and how many do
 * POWER_ERRNO                      with what: 5 is EIO, 28 is ENOSPC
 * POWER_EVICT                      1: pages that a failed fsync dropped leave the page cache, too
 * POWER_FULL_AT, POWER_FULL_COUNT  the first write that finds the disk full, and how many do
 * POWER_KILL_AT                    the write or fsync at which the process is killed, its disk kept in DIR/state
 * POWER_CUT_AT                     the write or fsync at which the power is cut
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES_MAX 16384
#define FILES 2

static const char *const NAMES[FILES] = {"store.db", "store.db-wal"};

struct file {
    int known;
    long disk_pages;                /* pages on the disk */
    unsigned char dirty[PAGES_MAX]; /* written, and not on the disk yet */
    unsigned char *disk;            /* what is on the disk */
};

static struct file files[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long fsyncs, writes, operations;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_unlink)(const char *);

static long number(const char *name) {
    const char *text = getenv(name);
    return text ? atol(text) : 0;
}

static const char *directory(void) { return getenv("POWER_DIR"); }

static void path_of(char *path, size_t size, const char *folder, int at) {
    snprintf(path, size, "%s/%s%s", directory(), folder, NAMES[at]);
}

static void load_state(int at) {
    char path[4096];
    path_of(path, sizeof path, "state/", at);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return;
    struct file *file = &files[at];
    if (read(fd, &file->disk_pages, sizeof file->disk_pages) < 0) abort();
    if (read(fd, file->dirty, sizeof file->dirty) < 0) abort();
    for (long page = 0; page < file->disk_pages; page++)
        if (read(fd, file->disk + page * PAGE, PAGE) < 0) abort();
    file->known = 1;
    close(fd);
}

__attribute__((constructor)) static void start(void) {
    real_pwrite = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
    real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    real_ftruncate = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate64");
    real_unlink = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    if (!directory()) return;
    srandom((unsigned)number("POWER_SEED"));
    for (int at = 0; at < FILES; at++) {
        files[at].disk = calloc(PAGES_MAX, PAGE);
        load_state(at);
    }
}

static int file_at(const char *path) {
    char own[4096];
    if (!directory()) return -1;
    for (int at = 0; at < FILES; at++) {
        path_of(own, sizeof own, "", at);
        if (strcmp(own, path) == 0) return at;
    }
    return -1;
}

static int file_of(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return -1;
    path[length] = 0;
    return file_at(path);
}

/* What was there before this process is on the disk. */
static void know(struct file *file, int fd) {
    struct stat status;
    if (file->known || fstat(fd, &status) != 0) return;
    file->known = 1;
    file->disk_pages = (status.st_size + PAGE - 1) / PAGE;
    if (pread(fd, file->disk, (size_t)status.st_size, 0) < 0) abort();
}

static void copy_page(struct file *file, int fd, long page) {
    unsigned char *to = file->disk + page * PAGE;
    memset(to, 0, PAGE);
    if (pread(fd, to, PAGE, page * PAGE) < 0) abort();
}

static void copy_all(struct file *file, int fd) {
    struct stat status;
    if (fstat(fd, &status) != 0) abort();
    long pages = (status.st_size + PAGE - 1) / PAGE;
    for (long page = 0; page < pages; page++)
        if (file->dirty[page]) copy_page(file, fd, page);
    memset(file->dirty, 0, sizeof file->dirty);
    file->disk_pages = pages;
}

/* A failed fsync: the pages are clean now, and not on the disk. */
static void forget(struct file *file, int fd) {
    static const unsigned char nothing[PAGE];
    for (long page = 0; page < PAGES_MAX; page++) {
        if (!file->dirty[page]) continue;
        file->dirty[page] = 0;
        if (!number("POWER_EVICT")) continue;
        struct stat status;
        if (fstat(fd, &status) != 0) abort();
        long left = status.st_size - page * PAGE;
        if (left <= 0) continue;
        const unsigned char *from = page < file->disk_pages ? file->disk + page * PAGE : nothing;
        if (real_pwrite(fd, from, (size_t)(left < PAGE ? left : PAGE), page * PAGE) < 0) abort();
    }
}

static void save(int at, const char *folder, int with_dirty) {
    char path[4096];
    struct file *file = &files[at];
    path_of(path, sizeof path, folder, at);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) abort();
    if (with_dirty) {
        if (write(fd, &file->disk_pages, sizeof file->disk_pages) < 0) abort();
        if (write(fd, file->dirty, sizeof file->dirty) < 0) abort();
    }
    for (long page = 0; page < file->disk_pages; page++)
        if (write(fd, file->disk + page * PAGE, PAGE) < 0) abort();
    close(fd);
}

/* Some of what is dirty had been written back by then. */
static void write_back_some(int at) {
    char path[4096];
    struct file *file = &files[at];
    path_of(path, sizeof path, "", at);
    int fd = open(path, O_RDONLY);
    struct stat status = {0};
    if (fd >= 0 && fstat(fd, &status) != 0) abort();
    long pages = (status.st_size + PAGE - 1) / PAGE;
    if (file->known && pages < file->disk_pages && random() % 2) file->disk_pages = pages;
    for (long page = 0; page < pages; page++) {
        if (!file->dirty[page] || random() % 2) continue;
        copy_page(file, fd, page);
        if (page >= file->disk_pages) file->disk_pages = page + 1;
    }
    if (fd >= 0 && !file->known) {
        know(file, fd);
    }
    if (fd >= 0) close(fd);
}

static void step(void) {
    operations++;
    if (operations == number("POWER_KILL_AT")) {
        for (int at = 0; at < FILES; at++)
            if (files[at].known) save(at, "state/", 1);
        _exit(76);
    }
    if (operations == number("POWER_CUT_AT")) {
        for (int at = 0; at < FILES; at++) {
            write_back_some(at);
            save(at, "cut/", 0);
        }
        _exit(77);
    }
}

static int is_within(long count, const char *from, const char *length) {
    long first = number(from);
    return first > 0 && count >= first && count < first + number(length);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) {
    int at = file_of(fd);
    if (at < 0) return real_pwrite(fd, bytes, length, offset);
    pthread_mutex_lock(&lock);
    know(&files[at], fd);
    step();
    ssize_t written = -1;
    if (is_within(++writes, "POWER_FULL_AT", "POWER_FULL_COUNT")) {
        errno = ENOSPC;
    } else {
        written = real_pwrite(fd, bytes, length, offset);
        for (long page = offset / PAGE; written > 0 && page <= (offset + written - 1) / PAGE; page++)
            files[at].dirty[page] = 1;
    }
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    return pwrite64(fd, bytes, length, offset);
}

int fsync(int fd) {
    int at = file_of(fd);
    if (at < 0) return real_fsync(fd);
    pthread_mutex_lock(&lock);
    know(&files[at], fd);
    step();
    int failed = is_within(++fsyncs, "POWER_FAIL_AT", "POWER_FAIL_COUNT");
    if (failed)
        forget(&files[at], fd);
    else
        copy_all(&files[at], fd);
    pthread_mutex_unlock(&lock);
    if (failed) errno = (int)number("POWER_ERRNO");
    return failed ? -1 : 0;
}

int fdatasync(int fd) { return fsync(fd); }

/* What is cut off is on the disk until the next fsync says otherwise. */
static void cut_off(struct file *file, long from) {
    for (long page = from; page < PAGES_MAX; page++)
        if (page < file->disk_pages) file->dirty[page] = 1;
        else file->dirty[page] = 0;
}

int ftruncate64(int fd, off_t size) {
    int at = file_of(fd);
    if (at < 0) return real_ftruncate(fd, size);
    pthread_mutex_lock(&lock);
    know(&files[at], fd);
    int result = real_ftruncate(fd, size);
    cut_off(&files[at], size / PAGE);
    pthread_mutex_unlock(&lock);
    return result;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int unlink(const char *path) {
    int at = file_at(path);
    if (at < 0) return real_unlink(path);
    pthread_mutex_lock(&lock);
    int result = real_unlink(path);
    cut_off(&files[at], 0);
    pthread_mutex_unlock(&lock);
    return result;
}
