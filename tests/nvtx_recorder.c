/* A tool that listens to NVTX, as profilers do (NVTX_INJECTION64_PATH): it keeps what it hears.
 *
 * The interface is that of NVTX 3: nvtx3/nvToolsExt.h, and nvtxDetail/nvtxTypes.h for tools. What is
 * needed of it is written out here, since the package nvtx brings no headers.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct attributes { /* nvtxEventAttributes_v2 */
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
};
enum { TEXT = 1, REGISTERED = 3 }; /* types of messages */

struct callbacks { /* NvtxExportTableCallbacks */
    size_t size;
    int (*table_of)(int module, void ****table, unsigned *entries);
};
enum { CALLBACKS = 1 }; /* of the tables that NVTX exports */
enum { DOMAINS = 5 };   /* of the modules: calls that name a domain, or NULL */
enum { MARK = 1, START, END, PUSH, POP, REGISTER = 10, CREATE = 12 }; /* of its calls */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char heard[1 << 16];
static uint64_t last;

static void note(const char *form, ...)
{
    size_t used = strlen(heard);
    va_list rest;
    va_start(rest, form);
    vsnprintf(heard + used, sizeof heard - used, form, rest);
    va_end(rest);
}

/* What is kept of a domain and of a registered string is its text. */
static const char *message(const struct attributes *a)
{
    return a->message_type == TEXT || a->message_type == REGISTERED ? a->message : "?";
}

static uint64_t start(const char *domain, const struct attributes *a)
{
    pthread_mutex_lock(&lock);
    uint64_t id = ++last;
    note("start\t%s\t%llu\t%s\n", domain ? domain : "", (unsigned long long)id, message(a));
    pthread_mutex_unlock(&lock);
    return id;
}

static void end(const char *domain, uint64_t id)
{
    pthread_mutex_lock(&lock);
    note("end\t%s\t%llu\t\n", domain ? domain : "", (unsigned long long)id);
    pthread_mutex_unlock(&lock);
}

/* Of all else, which GMPI does not call, only that there was something. */
static int other(const char *domain)
{
    pthread_mutex_lock(&lock);
    note("other\t%s\t0\t\n", domain ? domain : "");
    pthread_mutex_unlock(&lock);
    return 0;
}

static char *registered(const char *domain, const char *text)
{
    (void)domain;
    return strdup(text);
}

static char *create(const char *name)
{
    return strdup(name);
}

/* For the program that listens to itself: lines of what, domain, number and message. */
const char *nvtx_heard(void)
{
    return heard;
}

int InitializeInjectionNvtx2(const void *(*exported)(uint32_t))
{
    const struct callbacks *known = exported(CALLBACKS);
    void ***calls;
    unsigned entries;
    if (!known || !known->table_of(DOMAINS, &calls, &entries) || entries <= CREATE)
        return 0;
    *calls[MARK] = *calls[PUSH] = *calls[POP] = (void *)other;
    *calls[START] = (void *)start;
    *calls[END] = (void *)end;
    *calls[REGISTER] = (void *)registered;
    *calls[CREATE] = (void *)create;
    return 1;
}
