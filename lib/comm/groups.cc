// The groups of a Plan as communicators.
#include "comm/comm.h"

namespace rr::comm {

Groups make_groups(World& world, const plan::Topology& topology) {
  Groups groups;
  for (int kind = 0; kind < plan::kNumGroups; ++kind) {
    groups.by_kind.push_back(
        world.make_group(topology.members(static_cast<plan::Group>(kind), world.rank())));
  }
  return groups;
}

}  // namespace rr::comm
