// A rank that fails alone takes the job down: run each tag by itself and expect mpirun to fail.
//
// The peers wait in a barrier that nobody will complete.
#include <catch2/catch.hpp>
#include <csignal>
#include <iostream>

#include "mpi/world.h"

using namespace rr;
using rr::test::all_ranks;
using rr::test::world;

namespace {

// True on the rank that is to fail; the line proves that the case was reached.
bool this_one_goes() {
  if (world().rank() != 1) return false;
  std::cerr << "rank 1 goes" << std::endl;
  return true;
}

}  // namespace

TEST_CASE("a failed assertion on one rank ends the job", "[.ends-np2-failure]") {
  const auto group = world().make_group(all_ranks());
  REQUIRE_FALSE(this_one_goes());
  group->barrier();
}

TEST_CASE("an exception on one rank ends the job", "[.ends-np2-exception]") {
  const auto group = world().make_group(all_ranks());
  if (this_one_goes()) throw Error("rank 1 failed alone");
  group->barrier();
}

TEST_CASE("a killed rank ends the job", "[.ends-np2-kill]") {
  const auto group = world().make_group(all_ranks());
  if (this_one_goes()) std::raise(SIGKILL);
  group->barrier();
}

TEST_CASE("abort ends the job with its code", "[.ends-np2-abort]") {
  const auto group = world().make_group(all_ranks());
  if (this_one_goes()) world().abort(7);
  group->barrier();
}
