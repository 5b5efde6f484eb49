/* Copyright (c) the ironspan developers
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the file says. It is looked at before each answer, and read when it is another one than before. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "shim.h"

#define MOST_LINES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *content;
static struct { const char *key, *value; } lines[MOST_LINES];
static int count;
static struct stat seen;
static unsigned long contents;

static void split(void)
{
    count = 0;
    for (char *rest = NULL, *line = strtok_r(content, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *space = strchr(line, ' ');
        if (line[0] == '#' || !space || count == MOST_LINES)
            continue;
        *space = '\0';
        lines[count].key = line;
        lines[count++].value = space + 1;
    }
}

/* Files are replaced, never written into, so one that was opened is whole. Old contents stay in memory: another thread
 * may be copying from them. Returns the number of contents that there were. */
unsigned long read_again(void)
{
    const char *path = getenv("IRONSPAN_NVML_STATE");
    struct stat now;
#ifdef USUAL_STATE
    path = path ? path : USUAL_STATE;
#endif
    pthread_mutex_lock(&lock);
    if (!path || stat(path, &now) != 0) {
        contents += count != 0;
        count = 0;
        memset(&seen, 0, sizeof(seen));
    } else if (now.st_ino != seen.st_ino || now.st_size != seen.st_size ||
               now.st_mtim.tv_sec != seen.st_mtim.tv_sec || now.st_mtim.tv_nsec != seen.st_mtim.tv_nsec) {
        FILE *file = fopen(path, "r");
        char *fresh = file ? calloc(1, (size_t)now.st_size + 1) : NULL;
        if (fresh && fread(fresh, 1, (size_t)now.st_size, file) == (size_t)now.st_size) {
            content = fresh;
            seen = now;
            contents++;
            split();
        }
        if (file)
            fclose(file);
    }
    unsigned long now_read = contents;
    pthread_mutex_unlock(&lock);
    return now_read;
}

static const char *find(const char *key)
{
    for (int at = count - 1; at >= 0; at--)
        if (strcmp(lines[at].key, key) == 0)
            return lines[at].value;
    return NULL;
}

const char *word(int gpu, const char *key)
{
    char own[160];
    const char *found = NULL;
    pthread_mutex_lock(&lock);
    if (gpu != SYSTEM) {
        snprintf(own, sizeof(own), "%d.%s", gpu, key);
        found = find(own);
    }
    if (!found)
        found = find(key);
    pthread_mutex_unlock(&lock);
    return found;
}

int number(int gpu, const char *key, long long *into)
{
    const char *found = word(gpu, key);
    if (!found || strcmp(found, "unsupported") == 0)
        return NOT_SUPPORTED;
    *into = strtoll(found, NULL, 0);
    return OK;
}

int text(int gpu, const char *key, char *into, size_t length)
{
    const char *found = word(gpu, key);
    if (!found || strcmp(found, "unsupported") == 0)
        return NOT_SUPPORTED;
    if (!into)
        return INVALID_ARGUMENT;
    if (strlen(found) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(into, found);
    return OK;
}

int gpus(void)
{
    long long many = 0;
    return number(SYSTEM, "gpus", &many) == OK && many >= 0 && many <= MOST_GPUS ? (int)many : 0;
}

void pause_ms(int milliseconds)
{
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&rest, NULL);
}

/* Faults, before each answer: "hang 1" and "hang.FUNCTION 1" wait until the file says otherwise, "fail CODE" and
 * "fail.FUNCTION CODE" answer with an error; "3.fail 15" is a GPU that is lost. */
int enter(int gpu, const char *function)
{
    char key[128];
    long long value;
    for (;;) {
        read_again();
        if (count == 0)
            return DRIVER_NOT_LOADED;
        snprintf(key, sizeof(key), "hang.%s", function);
        int hangs = (number(gpu, "hang", &value) == OK && value) || (number(gpu, key, &value) == OK && value);
        if (!hangs)
            break;
        pause_ms(20);
    }
    snprintf(key, sizeof(key), "fail.%s", function);
    if (number(gpu, key, &value) == OK && value)
        return (int)value;
    return number(gpu, "fail", &value) == OK ? (int)value : OK;
}

int enter_system(const char *function)
{
    return enter(SYSTEM, function);
}

/* Lines "event SEQUENCE GPU TYPE DATA", in any order. */
static int event_of(int at, long long *sequence, int *gpu, unsigned long long *type, unsigned long long *data)
{
    return strcmp(lines[at].key, "event") == 0 &&
           sscanf(lines[at].value, "%lld %d %lli %lli", sequence, gpu, (long long *)type, (long long *)data) == 4;
}

int next_event(long long after, long long *sequence, int *gpu, unsigned long long *type, unsigned long long *data)
{
    long long best = -1, number_of;
    int of;
    unsigned long long kind, content_of;
    pthread_mutex_lock(&lock);
    for (int at = 0; at < count; at++)
        if (event_of(at, &number_of, &of, &kind, &content_of) && number_of > after && (best < 0 || number_of < best)) {
            best = number_of;
            *sequence = number_of;
            *gpu = of;
            *type = kind;
            *data = content_of;
        }
    pthread_mutex_unlock(&lock);
    return best >= 0;
}

long long last_event(void)
{
    long long last = 0, number_of;
    int of;
    unsigned long long kind, content_of;
    pthread_mutex_lock(&lock);
    for (int at = 0; at < count; at++)
        if (event_of(at, &number_of, &of, &kind, &content_of) && number_of > last)
            last = number_of;
    pthread_mutex_unlock(&lock);
    return last;
}
