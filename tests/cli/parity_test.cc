// The same model in every layout, and the same bits at every offload setting.
#include <catch2/catch.hpp>

#include "cli/program.h"

namespace rr::test {
namespace {

constexpr double kLayoutTolerance = 1e-5;  // fp32 sums in another order, relative, 10 iterations

// Ten iterations; a run that does not learn would compare nothing.
Series train(int ranks, const std::string& arguments, const Scratch& folder,
             const std::string& name) {
  Series result = train_series(ranks, arguments, folder, name);
  REQUIRE(result.loss.size() == 10);
  REQUIRE(result.loss.back() < result.loss.front());
  return result;
}

void require_close(const Series& actual, const Series& expected) {
  require_close(actual, expected, kLayoutTolerance);
}

}  // namespace

TEST_CASE("B052: a dense model trains the same on one rank, with PP 2, DP 2 and both") {
  const Scratch folder;
  const Series one = train(1, recipe("td"), folder, "one");
  require_close(train(2, recipe("td"), folder, "dp2"), one);
  const std::string pipeline = recipe("td") + " model.pipeline_model_parallel_size=2";
  const Series pp2 = train(2, pipeline, folder, "pp2");
  require_close(pp2, one);
  require_close(train(4, pipeline, folder, "pp2dp2"), one);
  // The same layout twice: the same bits.
  REQUIRE(train(2, pipeline, folder, "again") == pp2);
}

TEST_CASE("B065: a tied embedding trains the same with PP 2 and DP 2 as on one rank") {
  const Scratch folder;
  const std::string tied = recipe("td") + " model.share_embeddings_and_output_weights=true";
  const Series one = train(1, tied, folder, "one");
  const std::string pipeline = tied + " model.pipeline_model_parallel_size=2";
  require_close(train(2, pipeline, folder, "pp2"), one);
  require_close(train(4, pipeline, folder, "pp2dp2"), one);
}

TEST_CASE("B056 B057: a mixture of experts trains the same with EP 2 and DP 4, and all together") {
  const Scratch folder;
  const Series one = train(1, recipe("tm"), folder, "one");
  const std::string experts = recipe("tm") + " model.expert_model_parallel_size=2";
  require_close(train(2, experts, folder, "ep2"), one);
  require_close(train(4, experts, folder, "ep2dp4"), one);
  const std::string all = experts + " model.pipeline_model_parallel_size=2";
  require_close(train(4, all, folder, "pp2ep2dp2"), one);
  require_close(train(8, all, folder, "pp2ep2dp4"), one);
}

TEST_CASE("without the distributed optimizer the numbers are the same bits") {
  const Scratch folder;
  const Series sharded = train(2, recipe("td"), folder, "sharded");
  const Series whole = train(2,
                             recipe("td") +
                                 " ddp.use_distributed_optimizer=false"
                                 " optimizer.use_distributed_optimizer=false",
                             folder, "whole");
  REQUIRE(whole.loss == sharded.loss);
}

TEST_CASE("B081 B088: the loss and norm series are the same bits at every offload fraction") {
  const std::string precision = GENERATE("fp32", "bf16_mixed");
  const Scratch folder;
  // A binding clip, so that the norm matters for the weights.
  const std::string base = recipe("tm") + " model.expert_model_parallel_size=2" +
                           " optimizer.clip_grad=0.1 mixed_precision=" + precision;
  const Series none = train(2, base, folder, "none");
  for (const std::string fraction : {"0.0", "0.25", "0.5", "1.0"}) {
    INFO(precision << ", fraction " << fraction);
    REQUIRE(train(2,
                  base +
                      " optimizer.optimizer_cpu_offload=true"
                      " optimizer.optimizer_offload_fraction=" +
                      fraction,
                  folder, "f" + fraction) == none);
  }
  REQUIRE(train(2,
                base + " optimizer.optimizer_cpu_offload=true"
                       " optimizer.optimizer_offload_fraction=0.7"
                       " optimizer.overlap_cpu_optimizer_d2h_h2d=true",
                folder, "overlap") == none);
}

TEST_CASE("B094 B095: activation offload changes no bit and lowers the device peak") {
  const Scratch folder;
  const std::string base = recipe("td") + " model.seq_length=128 dataset.seq_length=128" +
                           " train.global_batch_size=4 train.micro_batch_size=2";
  const Series without = train(1, base, folder, "without");
  const double peak = series(folder.path() / "without", "device_peak_bytes").back();
  const Series with = train(1,
                            base +
                                " model.cpu_offloading=true model.cpu_offloading_num_layers=2"
                                " model.min_offloaded_tensor_size=1024",
                            folder, "with");
  REQUIRE(with == without);
  REQUIRE(series(folder.path() / "with", "device_peak_bytes").back() < peak);
}

}  // namespace rr::test
