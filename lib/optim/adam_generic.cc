// AdamW for any x86-64: one element at a time, fused multiply-adds by libm. Exact, not fast.
#include "optim/adam_kernel.h"

namespace rr::optim {

void adam_generic(const AdamArguments& arguments, const AdamArrays& arrays) {
  adam_all<V1>(arguments, arrays);
}

}  // namespace rr::optim
