// The kernels for every x86-64-v2 CPU.
#define RR_ISA generic
#include "model/kernels_body.h"
