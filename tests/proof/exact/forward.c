/* Loaded before NumPy's and SciPy's OpenBLAS: what linear models call of it goes to Intel's MKL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EACH(X) \
    X(scipy_cblas_dgemm64_, cblas_dgemm_64) \
    X(scipy_cblas_dsyrk64_, cblas_dsyrk_64) \
    X(scipy_cblas_dgemv64_, cblas_dgemv_64) \
    X(scipy_cblas_ddot64_, cblas_ddot_64) \
    X(scipy_cblas_daxpy64_, cblas_daxpy_64) \
    X(scipy_dgesv_64_, dgesv_64_) \
    X(scipy_dsyevd_64_, dsyevd_64_) \
    X(scipy_dpotrf_, dpotrf_) \
    X(scipy_dpotri_, dpotri_)

#define POINTER(from, to) __attribute__((visibility("hidden"))) void *at_##from;
#define JUMP(from, to) \
    __asm__(".text\n.globl " #from "\n.type " #from ", @function\n" #from ": jmp *at_" #from "(%rip)\n");
EACH(POINTER)
EACH(JUMP)

__attribute__((constructor)) static void begin(void) {
    void *library = dlopen(getenv("FORWARD_TO"), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(9);
    }
#define FIND(from, to) \
    if (!(at_##from = dlsym(library, #to))) { \
        fprintf(stderr, "it has no " #to "\n"); \
        _exit(9); \
    }
    EACH(FIND)
}
