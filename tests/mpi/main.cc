// Runs the cases of one tag on all ranks: test_mpi "[np4]" under mpirun -n 4.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>
#include <iostream>
#include <string>

#include "mpi/world.h"

namespace rr::test {
namespace {

comm::World* the_world = nullptr;

// Ends the job at the first case that failed here: its peers may wait for this rank for ever.
struct EndJobOnFailure : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;

  bool assertionEnded(const Catch::AssertionStats& stats) override {
    const Catch::AssertionResult& result = stats.assertionResult;
    if (!result.isOk()) {
      std::cerr << "rank " << world().rank() << ": " << result.getSourceInfo() << ": FAILED "
                << result.getExpressionInMacro() << "\n  " << result.getExpandedExpression() << ' '
                << result.getMessage() << '\n';
      for (const Catch::MessageInfo& info : stats.infoMessages) {
        std::cerr << "  with " << info.message << '\n';
      }
    }
    return TestEventListenerBase::assertionEnded(stats);
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (!stats.totals.assertions.allOk()) {
      std::cerr << "rank " << world().rank() << ": FAILED \"" << stats.testInfo.name << "\"\n";
      world().abort(1);
    }
  }
};
CATCH_REGISTER_LISTENER(EndJobOnFailure)

// The number in "[npN]" or "[...-npN-...]" among the arguments; 0: none.
int ranks_asked_for(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t at = argument.find("np");
    if (at != std::string::npos) return std::atoi(argument.c_str() + at + 2);
  }
  return 0;
}

}  // namespace

comm::World& world() { return *the_world; }

}  // namespace rr::test

int main(int argc, char** argv) {
  if (!rr::comm::launched()) {
    std::cerr << "test_mpi: start it with mpirun -n N and a tag \"[npN]\"\n";
    return 2;
  }
  const auto world = rr::comm::make_mpi_world();
  rr::test::the_world = world.get();
  const int wanted = rr::test::ranks_asked_for(argc, argv);
  if (wanted != world->size()) {
    std::cerr << "test_mpi: the tag asks for " << wanted << " ranks, there are " << world->size()
              << '\n';
    world->abort(2);
  }
  Catch::Session session;
  if (session.applyCommandLine(argc, argv) != 0) world->abort(2);
  session.configData().warnings = Catch::WarnAbout::NoTests;  // an empty run is a failure
  if (world->rank() != 0) session.configData().outputFilename = "/dev/null";
  const int failures = session.run();
  if (failures != 0) world->abort(1);
  return 0;
}
