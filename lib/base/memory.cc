// Physical memory and the limit of the control group.
#include "base/memory.h"

#include <unistd.h>

#include <algorithm>

#include "base/cgroup.h"

namespace rr {

std::int64_t usable_memory() {
  const std::int64_t bytes = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return std::min(bytes, cgroup_memory(own_cgroup(), "/sys/fs/cgroup").value_or(bytes));
}

}  // namespace rr
