// Planned against measured activations, as a run's last table tells them.
#include <catch2/catch.hpp>
#include <regex>

#include "cli/program.h"

namespace rr::test {

namespace {

// Measured bytes over planned ones.
double measured_over_planned(int ranks, const std::string& arguments) {
  const Scratch folder;
  const Outcome outcome = run(ranks, arguments + " train.train_iters=3", folder);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  const std::vector<std::string> rows = lines_with(outcome.out, "activations and temporaries");
  REQUIRE(rows.size() == 1);
  std::smatch numbers;
  REQUIRE(std::regex_search(rows[0], numbers, std::regex(R"(device +([\d,]+) +([\d,]+))")));
  const auto value = [](std::string text) {
    std::erase(text, ',');
    return std::stod(text);
  };
  return value(numbers[2]) / value(numbers[1]);
}

}  // namespace

TEST_CASE("activations are as planned within 5 % where routing is balanced") {
  // Longer sequences, so that small tensors that no plan counts are small beside the rest. Every
  // token goes to every expert: that is as balanced as routing gets.
  const std::string longer = " model.seq_length=128 dataset.seq_length=128";
  const std::string everywhere = " model.moe_router_topk=8";
  for (const std::string precision : {"fp32", "bf16_mixed"}) {
    const std::string type = longer + " mixed_precision=" + precision;
    CAPTURE(precision);
    CHECK(measured_over_planned(1, recipe("td") + type) == Approx(1).margin(0.05));
    CHECK(measured_over_planned(2, recipe("td") + type + " model.pipeline_model_parallel_size=2") ==
          Approx(1).margin(0.05));
    CHECK(measured_over_planned(
              2, recipe("tm") + type + everywhere + " model.expert_model_parallel_size=2") ==
          Approx(1).margin(0.05));
  }
}

TEST_CASE("uneven routing takes more than planned on the rank with the busy experts") {
  // At the start the router prefers some experts; the plan is for balanced ones.
  const double ratio =
      measured_over_planned(2, recipe("tm") +
                                   " model.expert_model_parallel_size=2 model.moe_router_topk=1"
                                   " model.moe_router_pre_softmax=true model.moe_aux_loss_coeff=0"
                                   " model.seq_length=128 dataset.seq_length=128");
  CHECK(ratio > 1.0);
  CHECK(ratio < 2.0);  // of two ranks one can get all rows at most
}

}  // namespace rr::test
