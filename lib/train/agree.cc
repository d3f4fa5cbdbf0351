// Agreement on failures.
#include <array>
#include <exception>

#include "base/base.h"
#include "base/log.h"
#include "train/train.h"

namespace rr::train {
namespace {

// What went wrong here, if anything did. Exit codes order the kinds: 0 fine, 1 failure, 2 usage.
struct Outcome {
  int code = 0;
  std::string message;
};

Outcome attempt(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const UsageError& error) {
    return {2, error.what()};
  } catch (const std::exception& error) {
    return {1, std::string("error: ") + error.what()};
  }
}

}  // namespace

void together(comm::Communicator& world, const std::function<void()>& work) {
  const Outcome outcome = attempt(work);
  // Lower ranks weigh more, so the maximum names the lowest failing rank; its code rides along.
  const double weight = world.size() - world.rank();
  std::array<double, 1> worst = {outcome.code == 0 ? 0.0 : weight * 4 + outcome.code};
  world.all_reduce_max(worst);
  if (worst[0] == 0.0) return;
  const auto packed = static_cast<std::int64_t>(worst[0]);
  if (world.size() - packed / 4 == world.rank()) log_error(outcome.message);
  throw JobFailed{static_cast<int>(packed % 4)};
}

}  // namespace rr::train
