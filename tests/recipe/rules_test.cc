// Every rule has a recipe that just breaks it and one that just keeps it.
#include "recipe/rules.h"

#include <catch2/catch.hpp>
#include <set>

#include "recipe_fixture.h"
#include "rules_table.h"

using namespace rr;
using namespace rr::recipe;
using namespace rr::test;

namespace {

Recipe load_row(const Row& row, const std::vector<std::string>& overrides, int world) {
  return load_text(kDense, row.moe ? joined(kMoe, overrides) : overrides, world);
}

const Rule* find_rule(const std::string& summary) {
  for (const Rule* rule : all_rules()) {
    if (summary == rule->summary) return rule;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("each rule reports its breach at the boundary and is silent beside it") {
  for (const Row& row : rule_rows()) {
    CAPTURE(row.rule, row.text, row.breaks);
    const Rule* rule = find_rule(row.rule);
    REQUIRE(rule != nullptr);
    const Recipe bad = load_row(row, row.breaks, row.world);
    const Problem* problem = find_problem(bad, row.text);
    CAPTURE(texts(bad));
    REQUIRE(problem != nullptr);
    CHECK(problem->severity == rule->severity);
    CHECK(std::find(rule->keys.begin(), rule->keys.end(), problem->key) != rule->keys.end());
    const Recipe good = load_row(row, row.keeps, row.good_world > 0 ? row.good_world : row.world);
    CAPTURE(row.keeps, texts(good));
    CHECK(find_problem(good, row.text) == nullptr);
  }
}

TEST_CASE("no rule is without a row, and every key that a rule names exists") {
  std::set<std::string> rows;
  for (const Row& row : rule_rows()) rows.insert(row.rule);
  for (const Rule* rule : all_rules()) {
    CAPTURE(rule->summary);
    CHECK(rows.count(rule->summary) == 1);
    for (const char* key : rule->keys) {
      CAPTURE(key);
      CHECK(find_slot(key) != nullptr);
    }
  }
}

TEST_CASE("a value out of its printed range is refused with the range") {
  const std::pair<const char*, const char*> cases[] = {
      {"train.micro_batch_size=0", "0 is outside [1, 4194304]"},
      {"logger.log_interval=0", "0 is outside >= 1"},
      {"optimizer.adam_beta1=1", "1 is outside [0, 1)"},
      {"optimizer.adam_eps=0", "0 is outside > 0"},
      {"optimizer.clip_grad=nan", ".nan is outside >= 0"},
      {"model.rotary_percent=0", "0 is outside (0, 1]"},
      {"train.empty_unused_memory_level=3", "3 is outside [0, 2]"},
      {"model.tensor_model_parallel_size=0", "0 is outside [1, 1048576]"},
      {"scheduler.lr_decay_style=cosin",
       "cosin is not one of constant | linear | cosine | "
       "inverse-square-root | WSD; did you mean cosine?"}};
  for (const auto& [text, want] : cases) {
    CAPTURE(text);
    CHECK(has(texts(load_text(kDense, {text})), want));
  }
  CHECK(texts(load_text(kDense, {"optimizer.adam_beta1=0", "model.rotary_percent=1"})) == "");
}

TEST_CASE("a key that can only be planned is refused for a run by name, unless unchanged") {
  for (const Field& field : fields()) {
    if (field.support != Support::plan_only || field.type != "bool") continue;
    const std::string other = field.initial == "true" ? "false" : "true";
    const Recipe recipe = load_text(kDense, {field.key + "=" + other});
    const Recipe same = load_text(kDense, {field.key + "=" + field.initial});
    CAPTURE(field.key, texts(recipe));
    CHECK(find_problem(same, "can be planned but not run") == nullptr);
    const bool said = find_problem(recipe, field.key + "=" + other + " can be planned") != nullptr;
    // Details of a feature that is off say nothing; a broken rule says more.
    const bool detail = field.key.rfind("model.fp8_", 0) == 0 ||
                        field.key.rfind("model.moe_shared_expert_", 0) == 0 ||
                        field.key.rfind("model.cuda_graph_", 0) == 0 ||
                        field.key == "model.delay_offload_until_cuda_graph" ||
                        field.key == "model.distribute_saved_activations" ||
                        field.key == "model.moe_pad_expert_input_to_capacity" ||
                        field.key == "optimizer.store_param_remainders";
    CHECK(said != detail);
  }
}

TEST_CASE("B027: activation offload with nothing to move is refused with the two keys") {
  const std::string problems = texts(load_text(
      kDense, {"model.cpu_offloading=true", "model.cpu_offloading_num_layers=1",
               "model.cpu_offloading_activations=false", "model.cpu_offloading_weights=false"}));
  CHECK(has(problems, "it is not mentioned what to offload"));
  CHECK(has(problems, "model.cpu_offloading_activations=false"));
  CHECK(has(problems, "model.cpu_offloading_weights=false"));
}

TEST_CASE("B028: zero offloaded layers are the same as off, with any pipeline") {
  const Recipe recipe = load_text(kDense,
                                  {"model.cpu_offloading=true", "model.cpu_offloading_num_layers=0",
                                   "model.pipeline_model_parallel_size=2"},
                                  2);
  CHECK_FALSE(recipe.has_errors());
  CHECK(has(texts(recipe), "moves nothing"));
  CHECK(texts(load_text(
            kDense, {"model.cpu_offloading_num_layers=0", "model.pipeline_model_parallel_size=2"},
            2)) == "");
}

TEST_CASE("B029: optimizer offload is not touched by the limits of activation offload") {
  const Recipe recipe =
      load_text(kDense,
                {"optimizer.optimizer_cpu_offload=true", "optimizer.optimizer_offload_fraction=1",
                 "model.pipeline_model_parallel_size=2"},
                2);
  CHECK(texts(recipe) == "");
  for (const char* n : {"-1", "4", "5"}) {
    const Recipe bad = load_text(
        kDense, {"model.cpu_offloading=true", "model.cpu_offloading_num_layers=" + std::string(n)});
    CHECK(has(texts(bad), "CPU offloading can be done only for layers less than 4"));
    CHECK(has(texts(bad), "Use 0 to 3"));
  }
}

TEST_CASE("B030: optimizer offload runs without the distributed optimizer, and with adam alone") {
  const std::vector<std::string> offload = {"optimizer.optimizer_cpu_offload=true",
                                            "optimizer.optimizer_offload_fraction=1"};
  CHECK(texts(load_text(kDense, joined(offload, {"ddp.use_distributed_optimizer=false"}))) == "");
  for (const char* kind : {"lion", "sgd", "muon"}) {
    const Recipe recipe =
        load_text(kDense, joined(offload, {"optimizer.optimizer=" + std::string(kind)}));
    CHECK(recipe.has_errors());
    CHECK(has(texts(recipe), "works with adam only"));
  }
}

TEST_CASE("B031: a fraction is a finite number in [0, 1]") {
  for (const char* text : {"-0.1", "1.0001", "nan", "inf", "50%", "\"\"", "true", "-1e-9"}) {
    CAPTURE(text);
    CHECK(load_text(kDense, {"optimizer.optimizer_cpu_offload=true",
                             "optimizer.optimizer_offload_fraction=" + std::string(text)})
              .has_errors());
  }
  for (const char* text : {"0", "1", "1e-9", "0.999999", "auto"}) {
    CAPTURE(text);
    CHECK_FALSE(load_text(kDense, {"optimizer.optimizer_cpu_offload=true",
                                   "optimizer.optimizer_offload_fraction=" + std::string(text)})
                    .has_errors());
  }
}

TEST_CASE("auto switches optimizer offload and its overlap on, unless a person switched it off") {
  const std::string fraction = "optimizer.optimizer_offload_fraction=auto";
  const Recipe recipe = load_text(kDense, {fraction});
  CHECK(texts(recipe) == "");
  CHECK(recipe.config.optimizer.optimizer_cpu_offload);
  CHECK(recipe.config.optimizer.overlap_cpu_optimizer_d2h_h2d);
  CHECK(load_text(dump(recipe.config)).config == recipe.config);
  const Recipe off = load_text(kDense, {fraction, "optimizer.optimizer_cpu_offload=false"});
  CHECK(has(texts(off), "optimizer_offload_fraction=auto does nothing while"));
  const Recipe wrong = load_text(kDense, {"optimizer.optimizer_offload_fraction=automatic"});
  CHECK(has(texts(wrong), "not a number or auto"));
}

TEST_CASE("B033: layers that do not divide are refused with the pipeline sizes that do") {
  const Recipe recipe =
      load_text(kDense, {"model.num_layers=30", "model.pipeline_model_parallel_size=4"}, 4);
  CHECK(has(texts(recipe), "30 layers cannot be split evenly"));
  CHECK(has(texts(recipe), "1, 2, 3, 5, 6, 10, 15, 30"));
}

TEST_CASE("B036: tensor parallel sizes that do not divide are refused with those that do") {
  const Recipe recipe =
      load_text(kDense,
                {"model.num_attention_heads=6", "model.kv_channels=16", "model.num_query_groups=6",
                 "model.tensor_model_parallel_size=4"},
                4);
  CHECK(has(texts(recipe),
            "num_attention_heads (6) must be a multiple of "
            "tensor_model_parallel_size (4)."));
  CHECK(has(texts(recipe), "Tensor parallel sizes that fit: 1, 2."));
  // Two query groups over four ranks are shared, not refused.
  CHECK_FALSE(load_text(kDense, {"model.tensor_model_parallel_size=4"}, 4).has_errors());
  CHECK(has(texts(load_text(
                kDense, {"model.tensor_model_parallel_size=4", "model.ffn_hidden_size=130"}, 4)),
            "ffn_hidden_size (130)"));
}

TEST_CASE("B037: a world that does not fit is shown with both products and the sizes that do") {
  const auto moe =
      joined(kMoe, {"model.tensor_model_parallel_size=2", "model.expert_model_parallel_size=4"});
  const std::string problems = texts(load_text(kDense, moe, 4));
  CHECK(has(problems,
            "world_size (4) is not divisible by expert_tensor_model_pipeline_parallel "
            "size (8)"));
  CHECK(has(problems, "world = TP*PP*CP*DP = 2*1*1*DP and ETP*EP*PP*EDP = 2*4*1*EDP"));
  CHECK(has(problems, "World sizes that fit: 8, 16."));
}

TEST_CASE("B038: impossible expert settings are refused") {
  for (const char* text :
       {"model.expert_model_parallel_size=3", "model.moe_router_topk=9", "model.moe_router_topk=0",
        "model.num_moe_experts=0", "model.num_moe_experts=1", "model.num_moe_experts=-2"}) {
    CAPTURE(text);
    CHECK(load_text(kDense, joined(kMoe, {text}), 3).has_errors());
  }
  CHECK(load_text(kDense, joined(kMoe, {"model.expert_model_parallel_size=8"}), 4).has_errors());
}

TEST_CASE("B039: a batch that does not fit is refused with the nearest that do") {
  const auto batch = [](const char* global, const char* micro, int world) {
    return texts(load_text(kDense,
                           {"train.global_batch_size=" + std::string(global),
                            "train.micro_batch_size=" + std::string(micro)},
                           world));
  };
  CHECK(has(batch("10", "4", 1), "Use train.global_batch_size=8 or 12."));
  CHECK(has(batch("7", "1", 2), "Use train.global_batch_size=6 or 8."));
  CHECK(has(batch("0", "1", 1), "0 is outside [1, 4194304]"));
  CHECK(has(batch("2", "4", 1), "Use train.global_batch_size=4."));
  CHECK(has(batch("8", "1", 3), "global batch = micro-batch * DP * n = 1 * 3 * n"));
  CHECK(batch("9", "1", 3) == "");
}

TEST_CASE("B040: a long recipe's warm-up is cut for a short run, and that is said") {
  const Recipe recipe =
      load_text(kDense + "scheduler: {lr_warmup_iters: 2000, lr_decay_style: cosine}\n",
                {"train.train_iters=5"});
  CHECK_FALSE(recipe.has_errors());
  CHECK(recipe.config.scheduler.lr_warmup_iters == 4);
  CHECK(has(texts(recipe), "it is cut to 4"));
  for (const char* decay : {"3", "100"}) {
    const Recipe other = load_text(kDense, {"scheduler.lr_decay_iters=" + std::string(decay)});
    CHECK(texts(other) == "");
  }
}

TEST_CASE("B041: warm-up equal to the decay, 0 or 1 leaves a legal schedule") {
  for (const int warmup : {0, 1, 5}) {
    for (const int decay : {1, 5, 6}) {
      const Recipe recipe =
          load_text(kDense, {"scheduler.lr_warmup_iters=" + std::to_string(warmup),
                             "scheduler.lr_decay_iters=" + std::to_string(decay)});
      CAPTURE(warmup, decay, texts(recipe));
      CHECK_FALSE(recipe.has_errors());
      CHECK(recipe.config.scheduler.lr_warmup_iters < decay);
    }
  }
}

TEST_CASE("B043, B046: a resume is refused before it could mix two schedules") {
  const std::string load = "checkpoint.load=/checkpoints";
  const Recipe recipe = load_text(kDense, {load, "scheduler.override_opt_param_scheduler=true"});
  const Problem* problem = find_problem(recipe, "checkpoint.load");
  REQUIRE(problem != nullptr);
  CHECK(problem->severity == Severity::plan_only);
  CHECK(load_text(kDense, {load, "scheduler.override_opt_param_scheduler=true",
                           "scheduler.use_checkpoint_opt_param_scheduler=true"})
            .has_errors());
  // Without one the switches say that they do nothing.
  CHECK(has(texts(load_text(kDense, {"scheduler.use_checkpoint_opt_param_scheduler=true"})),
            "has no effect here"));
}

TEST_CASE("B138: evaluation off and evaluation beyond the run are both fine") {
  CHECK(texts(load_text(kDense, {"validation.eval_iters=0", "validation.eval_interval=50"})) == "");
  const Recipe late = load_text(kDense, {"validation.eval_interval=50"});
  CHECK_FALSE(late.has_errors());
  CHECK(has(texts(late), "there is no evaluation"));
}
