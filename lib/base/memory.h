// What this process may use of the machine's memory.
#pragma once

#include <cstdint>

namespace rr {

// Physical memory, cut by the limit of the control group.
std::int64_t usable_memory();

}  // namespace rr
