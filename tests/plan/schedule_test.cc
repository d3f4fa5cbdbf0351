// Pipeline schedules: nothing lost, nothing twice, no deadlock.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "plan/plan.h"

using namespace rr::plan;

namespace {

using Schedules = std::vector<std::vector<Step>>;

// Where the message of a send step arrives: (stage, forward, micro-batch, chunk).
using Message = std::tuple<int, bool, int, int>;
Message target(const Step& step, int stage, int stages, int chunks) {
  const bool forward = step.kind == StepKind::send_forward;
  int place = step.chunk * stages + stage + (forward ? 1 : -1);
  REQUIRE(place >= 0);
  REQUIRE(place < stages * chunks);
  return {place % stages, forward, step.micro_batch, place / stages};
}

// Runs all stages with blocking receives and sends that never block. Returns false when no stage
// can go on before all are done.
bool runs_to_the_end(const Schedules& schedules, int chunks = 1) {
  const int stages = static_cast<int>(schedules.size());
  std::vector<std::size_t> at(schedules.size(), 0);
  std::set<Message> arrived;
  int done = 0;
  for (bool progress = true; progress;) {
    progress = false;
    for (int s = 0; s < stages; ++s) {
      const auto& steps = schedules[static_cast<std::size_t>(s)];
      std::size_t& next = at[static_cast<std::size_t>(s)];
      while (next < steps.size()) {
        const Step& step = steps[next];
        if (step.kind == StepKind::receive_forward || step.kind == StepKind::receive_backward) {
          const bool forward = step.kind == StepKind::receive_forward;
          if (arrived.erase({s, forward, step.micro_batch, step.chunk}) == 0) break;
        }
        if (step.kind == StepKind::send_forward || step.kind == StepKind::send_backward) {
          arrived.insert(target(step, s, stages, chunks));
        }
        ++next;
        progress = true;
        if (next == steps.size()) ++done;
      }
    }
  }
  return done == stages && arrived.empty();
}

int count(const std::vector<Step>& steps, StepKind kind) {
  int n = 0;
  for (const Step& step : steps) n += step.kind == kind ? 1 : 0;
  return n;
}

}  // namespace

TEST_CASE("one stage runs forward and backward of each micro-batch in turn, without messages") {
  const std::vector<Step> expected = {{StepKind::forward, 0, 0},
                                      {StepKind::backward, 0, 0},
                                      {StepKind::forward, 1, 0},
                                      {StepKind::backward, 1, 0}};
  CHECK(training_schedule(1, 0, 2) == expected);
}

TEST_CASE("the first of two stages warms up with one forward") {
  const std::vector<Step> expected = {
      {StepKind::forward, 0, 0},          {StepKind::send_forward, 0, 0},
      {StepKind::forward, 1, 0},          {StepKind::send_forward, 1, 0},
      {StepKind::receive_backward, 0, 0}, {StepKind::backward, 0, 0},
      {StepKind::receive_backward, 1, 0}, {StepKind::backward, 1, 0}};
  CHECK(training_schedule(2, 0, 2) == expected);
}

TEST_CASE("1F1B runs every micro-batch once each way and never deadlocks") {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
      INFO("PP " << stages << " M " << micro_batches);
      Schedules all;
      for (int s = 0; s < stages; ++s) {
        all.push_back(training_schedule(stages, s, micro_batches));
        const auto& steps = all.back();
        CHECK(count(steps, StepKind::forward) == micro_batches);
        CHECK(count(steps, StepKind::backward) == micro_batches);
        CHECK(count(steps, StepKind::receive_forward) == (s > 0 ? micro_batches : 0));
        CHECK(count(steps, StepKind::send_backward) == (s > 0 ? micro_batches : 0));
        CHECK(count(steps, StepKind::send_forward) == (s + 1 < stages ? micro_batches : 0));
        CHECK(count(steps, StepKind::receive_backward) == (s + 1 < stages ? micro_batches : 0));
        std::set<int> forward, backward;
        std::size_t in_flight = 0, most = 0;
        for (const Step& step : steps) {
          if (step.kind == StepKind::forward) {
            CHECK(forward.insert(step.micro_batch).second);
            most = std::max(most, ++in_flight);
          }
          if (step.kind == StepKind::backward) {
            CHECK(forward.count(step.micro_batch) == 1);
            CHECK(backward.insert(step.micro_batch).second);
            --in_flight;
          }
        }
        CHECK(most == static_cast<std::size_t>(std::min(stages - s, micro_batches)));
      }
      CHECK(runs_to_the_end(all));
    }
  }
}

TEST_CASE("a schedule with a lost send is seen to deadlock") {
  Schedules all = {training_schedule(2, 0, 3), training_schedule(2, 1, 3)};
  for (std::size_t i = 0; i < all[0].size(); ++i) {
    if (all[0][i].kind == StepKind::send_forward) {
      all[0].erase(all[0].begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  }
  CHECK_FALSE(runs_to_the_end(all));
}

TEST_CASE("evaluation runs every micro-batch forward once and never deadlocks") {
  for (int stages = 1; stages <= 8; ++stages) {
    for (const int micro_batches : {1, 2, 7, 32}) {
      Schedules all;
      for (int s = 0; s < stages; ++s) {
        all.push_back(evaluation_schedule(stages, s, micro_batches));
        CHECK(count(all.back(), StepKind::forward) == micro_batches);
        CHECK(count(all.back(), StepKind::backward) == 0);
      }
      CHECK(runs_to_the_end(all));
    }
  }
}

TEST_CASE("interleaved 1F1B runs every chunk of every micro-batch once each way, no deadlock") {
  int cases = 0;
  for (int stages = 2; stages <= 8; ++stages) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      for (int micro_batches = stages; micro_batches <= 32; ++micro_batches) {
        for (const int group : {stages, stages + 1}) {
          const int rest = micro_batches % group;
          if (group > micro_batches || (rest > 0 && rest < stages)) continue;  // refused by rule
          INFO("PP " << stages << " VPP " << chunks << " M " << micro_batches << " group "
                     << group);
          Schedules all;
          for (int s = 0; s < stages; ++s) {
            all.push_back(interleaved_schedule(stages, s, chunks, micro_batches, group));
            std::set<std::pair<int, int>> forward, backward;
            for (const Step& step : all.back()) {
              if (step.kind == StepKind::forward) {
                CHECK(forward.emplace(step.micro_batch, step.chunk).second);
              }
              if (step.kind == StepKind::backward) {
                CHECK(forward.count({step.micro_batch, step.chunk}) == 1);
                CHECK(backward.emplace(step.micro_batch, step.chunk).second);
              }
            }
            CHECK(static_cast<int>(backward.size()) == micro_batches * chunks);
          }
          CHECK(runs_to_the_end(all, chunks));
          ++cases;
        }
      }
    }
  }
  CHECK(cases > 300);
}

TEST_CASE("a stage of the interleaved schedule warms up 2 (PP - stage - 1) + (VPP - 1) PP units") {
  const auto steps = interleaved_schedule(4, 1, 2, 8, 4);
  int forwards = 0;
  for (const Step& step : steps) {
    if (step.kind == StepKind::backward) break;
    forwards += step.kind == StepKind::forward ? 1 : 0;
  }
  CHECK(forwards == 2 * 2 + 4 + 1);  // and one of the steady phase
}
