/* A driver library for tests: two cards, the first with a MIG slice. Figures and errors come from the environment. */
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory_v1;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { unsigned gpu, memory; } utilisation;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process;

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
static int cards[2], slice;
static unsigned energy_mj = 1000000;

static int number(const char *name, int otherwise) { const char *v = getenv(name); return v ? atoi(v) : otherwise; }
static int answer(const char *what) { return number(what, number("STUB_ALL", SUCCESS)); }
static void say(char *to, unsigned size, const char *text) { strncpy(to, text, size); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return number("STUB_INIT", SUCCESS); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int rc) { (void)rc; return "stub error"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return SUCCESS; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { say(to, size, "580.95.05"); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle) {
    if (i > 1) return INVALID_ARGUMENT;
    *handle = &cards[i];
    return answer("STUB_HANDLE");
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    if (!strcmp(uuid, "GPU-0")) *handle = &cards[0];
    else if (!strcmp(uuid, "GPU-1")) *handle = &cards[1];
    else if (!strcmp(uuid, "MIG-0")) *handle = &slice;
    else return NOT_FOUND;
    return SUCCESS;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **card) {
    if (handle != &slice) return INVALID_ARGUMENT;
    *card = &cards[0];
    return SUCCESS;
}
int nvmlDeviceGetName(void *handle, char *to, unsigned size) {
    say(to, size, handle == &slice ? "NVIDIA H100 MIG 1g.10gb" : handle == &cards[0] ? "NVIDIA H100" : "NVIDIA L4");
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *handle, memory_v1 *m) {
    (void)handle;
    m->total = 1000; m->used = 300; m->free = 700;
    return answer("STUB_MEMORY");
}
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2 *m) {
    m->total = handle == &slice ? 100 : 1000; m->reserved = 50; m->used = 250; m->free = 700;
    return m->version == 0x02000028 ? answer("STUB_MEMORY") : 25;
}
#endif
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, process *found) {
    int rc = answer("STUB_PROCESSES");
    (void)handle;
    if (rc) return rc;
    if (*count < 2) { *count = 2; return INSUFFICIENT_SIZE; }
    *count = 2;
    found[0] = (process){1, 11, 0, 0};
    found[1] = (process){(unsigned)number("STUB_PID", 2), 222, 0, 0};
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *handle, utilisation *u) {
    u->gpu = 87; u->memory = 40;
    return handle == &slice ? NOT_SUPPORTED : answer("STUB_UTILISATION");
}
int nvmlDeviceGetPowerUsage(void *handle, unsigned *mw) {
    *mw = 350500;
    return handle == &slice ? NOT_SUPPORTED : answer("STUB_POWER");
}
int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *mj) {
    *mj = energy_mj;
    energy_mj += 2500;
    return handle == &slice ? NOT_SUPPORTED : answer("STUB_ENERGY");
}
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *mhz) {
    (void)handle;
    *mhz = type == 1 ? 1980 : 2619;
    return answer("STUB_CLOCKS");
}
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    (void)handle; (void)sensor;
    *celsius = 61;
    return answer("STUB_TEMPERATURE");
}
