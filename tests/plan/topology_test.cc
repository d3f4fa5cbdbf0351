// The grid of ranks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "plan/specs.h"

using namespace rr::plan;
using rr::plan::testing::topology;

namespace {

const Group kGroups[] = {Group::world,       Group::tensor,    Group::context,
                         Group::data,        Group::pipeline,  Group::expert,
                         Group::expert_data, Group::embedding, Group::model};

}  // namespace

TEST_CASE("ranks are ordered tp-cp-dp-pp, and expert ranks fold over one stage") {
  const Topology t = topology(2, 2, 4, 2, 2, 1);  // 16 ranks
  REQUIRE(t.world == 16);
  REQUIRE(t.expert_data == 2);
  const Coordinates at = t.coordinates(13);  // 13 = 8 + 5: stage 1, tp 1, cp 0, dp 1
  CHECK(at.pipeline == 1);
  CHECK(at.tensor == 1);
  CHECK(at.context == 0);
  CHECK(at.data == 1);
  CHECK(at.expert == 1);
  CHECK(at.expert_data == 1);
  CHECK(t.members(Group::tensor, 13) == std::vector<int>{12, 13});
  CHECK(t.members(Group::context, 13) == std::vector<int>{13, 15});
  CHECK(t.members(Group::data, 13) == std::vector<int>{9, 11, 13, 15});
  CHECK(t.members(Group::pipeline, 13) == std::vector<int>{5, 13});
  CHECK(t.members(Group::expert, 13) == std::vector<int>{12, 13, 14, 15});
  CHECK(t.members(Group::expert_data, 13) == std::vector<int>{9, 13});
  CHECK(t.members(Group::embedding, 13) == std::vector<int>{5, 13});
  CHECK(t.members(Group::model, 13) == std::vector<int>{4, 5, 12, 13});
}

TEST_CASE("expert tensor ranks are neighbours and expert ranks lie ETP apart") {
  const Topology t = topology(2, 1, 2, 4, 1, 2);  // 8 ranks: ETP 2, EP 2, EDP 2
  CHECK(t.members(Group::expert, 5) == std::vector<int>{5, 7});
  CHECK(t.members(Group::expert_data, 5) == std::vector<int>{1, 5});
  CHECK(t.coordinates(5).expert_tensor == 1);
}

TEST_CASE("the embedding group of a middle stage is the rank itself") {
  const Topology t = topology(1, 4, 1, 2);
  CHECK(t.members(Group::embedding, 3) == std::vector<int>{3});
  CHECK(t.members(Group::embedding, 1) == std::vector<int>{1, 7});
  CHECK(topology(1, 1, 1, 2).members(Group::embedding, 1) == std::vector<int>{1});
}

TEST_CASE("every group kind partitions the world, and all members name the same group") {
  for (const auto& [tp, cp, pp, dp, ep, etp] :
       {std::array{1, 1, 1, 1, 1, 1}, std::array{2, 1, 2, 4, 4, 1}, std::array{2, 2, 3, 2, 2, 2},
        std::array{1, 1, 2, 8, 8, 1}, std::array{4, 1, 2, 2, 8, 1}, std::array{1, 2, 4, 1, 1, 2}}) {
    const Topology t = topology(tp, pp, ep, dp, cp, etp);
    for (const Group group : kGroups) {
      INFO(name_of(group) << " of " << t.world << " ranks");
      std::multiset<int> seen;
      for (int rank = 0; rank < t.world; ++rank) {
        const std::vector<int> members = t.members(group, rank);
        CHECK(std::is_sorted(members.begin(), members.end()));
        CHECK(std::count(members.begin(), members.end(), rank) == 1);
        for (const int other : members) CHECK(t.members(group, other) == members);
        const bool middle = group == Group::embedding && members.size() == 1;
        if (!middle) CHECK(static_cast<int>(members.size()) == t.size(group));
        if (members.front() == rank) seen.insert(members.begin(), members.end());
      }
      CHECK(static_cast<int>(seen.size()) == t.world);
      CHECK(std::set<int>(seen.begin(), seen.end()).size() == seen.size());
    }
  }
}
