// Public bug reports about numbers: losses that depend on the layout, on offload, on NaN.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <regex>

#include "cli/program.h"

namespace rr::test {
namespace {

constexpr double kSumTolerance = 1e-5;    // fp32 sums in another order, relative
constexpr double kFirstTolerance = 1e-6;  // the same before any update has spread it

const std::string kWholeOffload =
    " optimizer.optimizer_cpu_offload=true optimizer.optimizer_offload_fraction=1.0";

}  // namespace

TEST_CASE("B032 B033: five layers on two stages, all state on the host, train as on one rank") {
  const Scratch folder;
  const std::string five = recipe("td") + " model.num_layers=5";
  const Series one = train_series(1, five, folder, "one");
  const std::string cut = five + " model.pipeline_model_parallel_size=2" +
                          " model.num_layers_in_first_pipeline_stage=2" + kWholeOffload;
  require_close(train_series(2, cut, folder, "cut"), one, kSumTolerance);
  // No layer is lost on the way, and an uneven cut is never chosen silently.
  const auto parameters = [&](const std::string& arguments) {
    const Outcome outcome = run(1, arguments + " --dry-run", folder);
    std::smatch found;
    REQUIRE(std::regex_search(outcome.out, found, std::regex("model: ([\\d,]+) parameters")));
    return found[1].str();
  };
  REQUIRE(parameters(cut + " --world-size 2") == parameters(five));
  REQUIRE(run(1, five + " model.pipeline_model_parallel_size=2 --dry-run --world-size 2", folder)
              .code == 2);
}

TEST_CASE("B049: a batch is learnt by heart alike with and without optimizer offload") {
  const Scratch folder;
  // 33 tokens: one sample, the same in every iteration.
  std::ofstream(folder.file("text")) << "the quick brown fox jumps, he he";
  REQUIRE(shell("\"$RR\" data build --input text --output corpus", folder).code == 0);
  const std::string one_batch =
      recipe("td") + " tokenizer.tokenizer_type=ByteTokenizer model.vocab_size=257" +
      " tokenizer.vocab_size=257 dataset.split=\"'1,0,0'\" dataset.data_path=[corpus]" +
      " train.train_iters=300 train.global_batch_size=1 logger.log_interval=50";
  const Series device = train_series(1, one_batch, folder, "device");
  REQUIRE(train_series(1, one_batch + kWholeOffload, folder, "host") == device);
  REQUIRE(device.loss.back() < 0.1);
}

TEST_CASE("B051 B089: gradients add up over micro-batches of any size, with state on the host") {
  const Scratch folder;
  const std::string base = recipe("td") + kWholeOffload + " train.micro_batch_size=";
  const Series eight = train_series(1, base + "8", folder, "eight");
  require_close(train_series(1, base + "1", folder, "one"), eight, kSumTolerance);
  require_close(train_series(1, base + "2", folder, "two"), eight, kSumTolerance);
}

TEST_CASE("B053: the first loss is the same in every layout: so are the initial weights") {
  const Scratch folder;
  const std::string base = recipe("tm") + " train.train_iters=1";
  const Series one = train_series(1, base, folder, "one");
  const std::string stages = " model.pipeline_model_parallel_size=",
                    experts = " model.expert_model_parallel_size=";
  require_close(train_series(4, base + stages + "4", folder, "pp4"), one, kFirstTolerance);
  require_close(train_series(4, base + experts + "4", folder, "ep4"), one, kFirstTolerance);
  // Another seed is another model: the loss tells.
  REQUIRE(std::abs(train_series(1, base + " rng.seed=4321", folder, "seed").loss[0] - one.loss[0]) >
          100 * kFirstTolerance * one.loss[0]);
}

TEST_CASE("B063: a large balance loss weighs the same in every layout") {
  const Scratch folder;
  const std::string base = recipe("tm") + " model.moe_aux_loss_coeff=1.0 optimizer.clip_grad=0";
  const Series one = train_series(1, base, folder, "one");
  // It matters: without it the gradients are others.
  REQUIRE(std::abs(train_series(1, base + " model.moe_aux_loss_coeff=0", folder, "none").norm[0] -
                   one.norm[0]) > 100 * kSumTolerance * one.norm[0]);
  const std::string experts = base + " model.expert_model_parallel_size=2";
  require_close(train_series(2, experts, folder, "ep2"), one, kSumTolerance);
  require_close(
      train_series(4, experts + " model.pipeline_model_parallel_size=2", folder, "ep2pp2"), one,
      kSumTolerance);
  require_close(train_series(2, base, folder, "dp2"), one, kSumTolerance);
}

TEST_CASE("B069 B070: a gradient that is not finite ends the run, whatever the type and the clip") {
  const Scratch folder;
  const std::string base = recipe("td") + " optimizer.lr=1e30 optimizer.min_lr=1e30";
  for (const std::string setting :
       {"optimizer.clip_grad=0 mixed_precision=bf16_mixed", "optimizer.clip_grad=1",
        "optimizer.clip_grad=1 ddp.check_for_nan_in_grad=false"}) {
    INFO(setting);
    const Outcome outcome = run(1, base + " " + setting + " logger.run_dir=run", folder);
    REQUIRE(outcome.code == 1);
    REQUIRE(lines_with(outcome.err, "found NaN or infinity").size() == 1);
    // No line claims a loss after it.
    for (const double loss : series(folder.path() / "run", "lm loss")) REQUIRE(std::isfinite(loss));
  }
}

}  // namespace rr::test
