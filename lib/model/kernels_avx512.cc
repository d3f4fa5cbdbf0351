// The kernels for CPUs with AVX-512.
#include "model/kernels_table.h"
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl")
#define RR_ISA avx512
#include "model/kernels_body.h"
