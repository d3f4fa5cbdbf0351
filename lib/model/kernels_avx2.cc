// The kernels for CPUs with AVX2.
#include "model/kernels_table.h"
#pragma GCC target("avx2,f16c")
#define RR_ISA avx2
#include "model/kernels_body.h"
