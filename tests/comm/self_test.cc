// The world of one rank: every call works without a message, and nothing of MPI is touched.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "comm/ordered_sum.h"

using namespace rr;
using namespace rr::comm;

namespace {

// Sets or clears an environment variable while it lives.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before, had_ = true;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Environment() { had_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string before_;
  bool had_ = false;
};

}  // namespace

TEST_CASE("only a launcher's variables mean launched, not those of a batch script") {
  const Environment a("PMIX_NAMESPACE", nullptr), b("OMPI_COMM_WORLD_SIZE", nullptr),
      c("PMI_SIZE", nullptr), d("SLURM_PROCID", "0"), e("SLURM_NTASKS", "4");
  CHECK_FALSE(launched());
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const Environment set(name, "4");
    CHECK(launched());
  }
  CHECK_FALSE(launched());
}

TEST_CASE("a world of one is rank 0 of 1 everywhere") {
  const auto world = make_self_world();
  CHECK(world->rank() == 0);
  CHECK(world->size() == 1);
  CHECK(world->local_rank() == 0);
  CHECK(world->local_size() == 1);
  const auto group = world->make_group({0});
  CHECK(group->rank() == 0);
  CHECK(group->size() == 1);
  CHECK_THROWS_AS(world->make_group({0, 1}), Error);
  CHECK_THROWS_AS(world->make_group({}), Error);
}

TEST_CASE("collectives of one rank keep or copy their data") {
  const auto group = make_self_world()->make_group({0});
  std::vector<float> in{1, 2, 3}, out(3);
  group->all_reduce_sum(std::span(in));
  CHECK(in == std::vector<float>{1, 2, 3});
  group->reduce_scatter_sum(in, out);
  CHECK(out == in);
  group->reduce_scatter_sum(in, in);
  CHECK(in == std::vector<float>{1, 2, 3});

  std::vector<std::byte> bytes{std::byte{5}, std::byte{6}}, gathered(2), exchanged(2);
  group->all_gather(bytes, gathered);
  CHECK(gathered == bytes);
  const std::vector<std::int64_t> counts{2};
  group->all_to_all(bytes, counts, exchanged, counts);
  CHECK(exchanged == bytes);
  group->broadcast(bytes, 0);
  group->barrier();
  CHECK(bytes == gathered);
  double value = 3;
  group->all_reduce_max(std::span(&value, 1));
  CHECK(value == 3);
}

TEST_CASE("a rank alone receives what it sent to itself, by tag and in order") {
  const auto group = make_self_world()->make_group({0});
  std::vector<std::byte> a{std::byte{1}}, b{std::byte{2}}, c{std::byte{3}}, in(1);
  group->send(a, 0, 4)->wait();
  group->send(b, 0, 4)->wait();
  group->send(c, 0, 5)->wait();
  a[0] = std::byte{9};  // the sent one was a copy
  for (const auto& [tag, value] : {std::pair(5, 3), std::pair(4, 1), std::pair(4, 2)}) {
    group->receive(in, 0, tag);
    CHECK(in[0] == static_cast<std::byte>(value));
  }
  CHECK_THROWS_AS(group->receive(in, 0, 4), Error);  // would wait for ever
  CHECK_THROWS_AS(group->send(a, 1, 0), Error);
}

TEST_CASE("counts that do not add up to the buffer are refused") {
  const auto group = make_self_world()->make_group({0});
  std::vector<std::byte> bytes(4), out(4);
  const std::vector<std::int64_t> right{4}, wrong{3}, two{2, 2};
  CHECK_THROWS_AS(group->all_to_all(bytes, wrong, out, right), Error);
  CHECK_THROWS_AS(group->all_to_all(bytes, right, out, wrong), Error);
  CHECK_THROWS_AS(group->all_to_all(bytes, two, out, right), Error);
}

TEST_CASE("a plan for one rank has all its groups, each of one") {
  const auto world = make_self_world();
  const Groups groups = make_groups(*world, plan::Topology{});
  REQUIRE(groups.by_kind.size() == plan::kNumGroups);
  for (int kind = 0; kind < plan::kNumGroups; ++kind) {
    CHECK(groups[static_cast<plan::Group>(kind)].size() == 1);
  }
}

TEST_CASE("a plan for more ranks than there are is refused") {
  const auto world = make_self_world();
  plan::Topology topology;
  topology.world = topology.data = topology.expert_data = 2;
  CHECK_THROWS_AS(make_groups(*world, topology), Error);
}

TEST_CASE("sums go from the first part to the last, in single precision") {
  // (1e8 + 3) - 1e8 loses the 3 in one order and keeps some of it in the other.
  const std::vector<float> a{1e8F, 3.0F}, b{3.0F, 1e8F}, c{-1e8F, -1e8F};
  std::vector<float> out(2);
  const std::vector<const float*> parts{a.data(), b.data(), c.data()};
  reduce_in_order<Sum, float>(parts, out.data(), 2);
  CHECK(out[0] == (1e8F + 3.0F) - 1e8F);
  CHECK(out[0] != 3.0F);
  // A lone minus zero stays one: nothing is added to it.
  const float zero = -0.0F;
  const float* alone[] = {&zero};
  reduce_in_order<Sum, float>(std::span<const float* const>(alone), out.data(), 1);
  CHECK(std::signbit(out[0]));
}
