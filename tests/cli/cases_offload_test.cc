// Public bug reports about activation offload: which layers, how many bytes, what it gains.
#include <catch2/catch.hpp>
#include <regex>

#include "cli/program.h"

namespace rr::test {
namespace {

const std::string kOffload =
    " model.cpu_offloading=true model.min_offloaded_tensor_size=1 model.cpu_offloading_num_layers=";

struct Measured {
  std::vector<double> loss, norm;
  double peak = 0;   // of the device pool, bytes
  double moved = 0;  // to the host, bytes
};

Measured measure(const std::string& arguments, const Scratch& folder, const std::string& name) {
  const Outcome outcome = run(1, arguments + " logger.run_dir=" + name, folder);
  INFO(arguments << "\n" << outcome.err);
  REQUIRE(outcome.code == 0);
  Measured result{.loss = series(folder.path() / name, "lm loss"),
                  .norm = series(folder.path() / name, "grad_norm"),
                  .peak = series(folder.path() / name, "device_peak_bytes").back()};
  std::smatch moved;
  if (std::regex_search(outcome.out, moved,
                        std::regex("activation offload moved ([\\d,]+) B out"))) {
    std::string digits = moved[1];
    std::erase(digits, ',');
    result.moved = std::stod(digits);
  }
  return result;
}

}  // namespace

TEST_CASE("B094: exactly the first n layers move, and no bit of the training changes") {
  const Scratch folder;
  const std::string base =
      recipe("td") + " model.num_layers=8 train.train_iters=2" + " train.global_batch_size=2";
  const Measured none = measure(base + kOffload + "0", folder, "0");
  REQUIRE(none.moved == 0);
  double peak = none.peak;
  double one_layer = 0;
  for (int n = 1; n <= 7; ++n) {
    INFO(n << " layers");
    const Measured some = measure(base + kOffload + std::to_string(n), folder, std::to_string(n));
    REQUIRE(some.loss == none.loss);
    REQUIRE(some.norm == none.norm);
    REQUIRE(some.peak <= peak);
    peak = some.peak;
    if (n == 1) one_layer = some.moved;
    REQUIRE(some.moved > 0);
    REQUIRE(some.moved == n * one_layer);
  }
}

TEST_CASE("B095: the device peak falls by four fifths of what the offloaded layers save") {
  const Scratch folder;
  const std::string base = recipe("td") + " model.num_layers=16 train.train_iters=1" +
                           " train.global_batch_size=1 model.seq_length=512 dataset.seq_length=512";
  const Measured without = measure(base, folder, "without");
  const Measured with = measure(base + kOffload + "14", folder, "with");
  REQUIRE(with.loss == without.loss);
  INFO("peaks " << without.peak << " and " << with.peak << ", moved " << with.moved);
  REQUIRE(without.peak - with.peak >= 0.8 * with.moved);
}

}  // namespace rr::test
