// The groups of a Plan's topology as communicators: everybody finds the same peers in one order.
#include <catch2/catch.hpp>
#include <vector>

#include "mpi/world.h"

using namespace rr;
using namespace rr::comm;
using rr::test::world;

namespace {

// Gathers the world ranks of every group's members over the group itself and compares them with
// the Plan's list, order included.
void check_groups(const plan::Topology& topology) {
  const Groups groups = make_groups(world(), topology);
  REQUIRE(groups.by_kind.size() == plan::kNumGroups);
  for (int kind = 0; kind < plan::kNumGroups; ++kind) {
    const auto group = static_cast<plan::Group>(kind);
    INFO("group " << plan::name_of(group));
    const std::vector<int> members = topology.members(group, world().rank());
    Communicator& communicator = groups[group];
    REQUIRE(communicator.size() == static_cast<int>(members.size()));
    CHECK(members[static_cast<std::size_t>(communicator.rank())] == world().rank());

    const int me = world().rank();
    std::vector<int> found(members.size());
    communicator.all_gather(std::as_bytes(std::span(&me, 1)),
                            std::as_writable_bytes(std::span(found)));
    CHECK(found == members);
    double sum = me, expected = 0;
    for (const int member : members) expected += member;
    communicator.all_reduce_sum(std::span(&sum, 1));
    CHECK(sum == expected);
  }
}

}  // namespace

TEST_CASE("groups of a topology: data parallel only", "[np2][np3][np4]") {
  plan::Topology topology;
  topology.world = topology.data = topology.expert_data = world().size();
  check_groups(topology);
}

TEST_CASE("groups of a topology: pipeline, experts and replicas", "[np4]") {
  check_groups({.world = 4, .pipeline = 2, .data = 2, .expert = 2, .expert_data = 1});
  check_groups({.world = 4, .pipeline = 4, .data = 1, .expert_data = 1});
  check_groups({.world = 4, .data = 4, .expert = 2, .expert_data = 2});
}

TEST_CASE("groups of a topology: everything at once", "[np8]") {
  check_groups({.world = 8, .pipeline = 2, .data = 4, .expert = 2, .expert_data = 2});
  check_groups({.world = 8, .tensor = 2, .pipeline = 2, .data = 2, .expert = 4, .expert_data = 1});
  check_groups({.world = 8, .tensor = 2, .context = 2, .data = 2, .expert = 2, .expert_data = 4});
}
