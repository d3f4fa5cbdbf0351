// The Plan as text and as JSON.
#include "base/text.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "plan/specs.h"

using namespace rr;
using namespace rr::plan;
using namespace rr::plan::testing;

TEST_CASE("the JSON of a plan parses and says what the plan says") {
  Plan plan = hand_made(tiny_moe(), topology(1, 2, 2, 2), 20000);
  plan.optimizer.cpu_offload = true;
  plan.optimizer.fraction = 0.5;
  plan.launch = "say \"hi\"\tand \\";
  const nlohmann::json json = nlohmann::json::parse(to_json(plan));
  CHECK(json.at("topology").at("world") == 4);
  CHECK(json.at("parameters") == plan.total_parameters);
  CHECK(json.at("stages").size() == 2);
  CHECK(json.at("stages")[1].at("layers") == std::vector<int>{3, 4});
  CHECK(json.at("launch") == plan.launch);
  const auto& first = json.at("rank_classes")[0];
  const RankPlan rank = rank_plan(plan, first.at("ranks")[0]);
  CHECK(first.at("device_bytes") == rank.bytes(Pool::device));
  CHECK(first.at("host_bytes") == rank.bytes(Pool::host));
  std::int64_t sum = 0;
  for (const auto& item : first.at("memory")) {
    if (item.at("pool") == "device") sum += item.at("bytes").get<std::int64_t>();
  }
  CHECK(sum == rank.bytes(Pool::device));
  CHECK(json.at("optimizer").at("fraction") == 0.5);
  CHECK(json.at("batch").at("bubble") == 0.5);  // two stages, one micro-batch
  CHECK(json.at("traffic").size() == 2);
  CHECK(json.at("traffic")[0].at("optimizer to host") == 4 * rank_plan(plan, 0).offloaded_elements);
  CHECK(json.at("time").is_null());
  const recipe::Machine machine = recipe::load_machine("h100_sxm", {RR_SOURCE_DIR});
  const nlohmann::json timed = nlohmann::json::parse(to_json(plan, machine));
  CHECK(timed.at("time").at("step_ms") == Approx(estimate(plan, machine).step_ms));
}

TEST_CASE(
    "the launch line names mpirun for several ranks only, and quotes what a shell would eat") {
  CHECK(launch_line(1, "run_recipe", {"--recipe", "a"}) == "run_recipe --recipe a");
  CHECK(launch_line(4, "run_recipe", {"--recipe", "a", "optimizer.lr=1e-4"}) ==
        "mpirun -n 4 run_recipe --recipe a optimizer.lr=1e-4");
  CHECK(launch_line(2, "run_recipe", {"x=[1,2]", "y='b c'", "~z", ""}) ==
        "mpirun -n 2 run_recipe 'x=[1,2]' 'y='\\''b c'\\''' '~z' ''");
}

TEST_CASE("the layout counts parameters per (tensor, pipeline) rank in the reference's words") {
  const Plan plan = hand_made(qwen3_30b_a3b(), topology(2, 2, 4, 4));
  const std::string text = layout_text(plan);
  CHECK(text.find(" > number of parameters on (tensor, pipeline) model parallel rank (1, 0): "
                  "4012349440\n") != std::string::npos);
  CHECK(text.find(" > number of parameters on (tensor, pipeline) model parallel rank (0, 1): "
                  "4012351488\n") != std::string::npos);
}

TEST_CASE("the schedule says the number of micro-batches in the reference's words") {
  Plan plan = hand_made(tiny_moe(), topology(1, 2, 1, 1));
  plan.batch.num_micro_batches = 3;
  const std::string text = schedule_text(plan);
  CHECK(text.find("setting number of microbatches to constant 3\n") == 0);
  CHECK(text.find("  stage 0: F0 F1 B0 F2 B1 B2\n  stage 1: F0 B0 F1 B1 F2 B2\n") !=
        std::string::npos);
}

TEST_CASE("ranks that need the same memory are one class, the largest first") {
  Plan plan = hand_made(tiny_moe(), topology(1, 4, 1, 2));
  plan.batch.num_micro_batches = 8;
  const std::string text = memory_text(plan);
  CHECK(text.find("ranks 0-1 (stage 0)") != std::string::npos);
  CHECK(text.find("ranks 0-1 (stage 0)") < text.find("ranks 4-5 (stage 2)"));
}

TEST_CASE("the traffic of a step counts what leaves a rank") {
  Plan plan = hand_made(tiny_moe(), topology(1, 2, 2, 2));
  plan.batch.num_micro_batches = 3;
  plan.optimizer.cpu_offload = true;
  plan.optimizer.fraction = 1;
  const std::string text = traffic_text(plan);
  INFO(text);
  const RankPlan rank = rank_plan(plan, 0);
  // 16 tokens of 32 f32: 2,048 B a message; three go forward from stage 0.
  CHECK(text.find("stage 0: gradients " + format_bytes(plan.stages[0].buffers[0].size * 2)) !=
        std::string::npos);
  CHECK(text.find("pipeline 6.14 kB") != std::string::npos);
  // One expert layer, four messages of two rows a token, half of them to the other rank.
  CHECK(text.find("experts 24.58 kB") != std::string::npos);
  CHECK(text.find("optimizer to host " + format_bytes(4 * rank.shard_elements)) !=
        std::string::npos);
  CHECK(traffic_text(hand_made(tiny_moe(), topology(1, 1, 1, 1))).empty());
}
