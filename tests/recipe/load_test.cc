// load(): sources, origins, derived values, dump and load.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "recipe_fixture.h"

using namespace rr;
using namespace rr::recipe;
using namespace rr::test;

namespace {

struct Variable {
  explicit Variable(const char* variable, const char* value) : name(variable) {
    setenv(name, value, 1);
  }
  ~Variable() { unsetenv(name); }
  const char* name;
};

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const RecipeInfo& info : list_recipes({RR_SOURCE_DIR})) names.push_back(info.name);
  return names;
}

}  // namespace

TEST_CASE("every recipe loads without an error, with a summary") {
  CHECK(recipe_names().size() >= 25);
  for (const RecipeInfo& info : list_recipes({RR_SOURCE_DIR})) {
    const Recipe recipe = load_named(info.name);
    CAPTURE(info.name, texts(recipe));
    CHECK_FALSE(recipe.has_errors());
    CHECK(info.summary.size() > 10);
    CHECK(recipe.world_size == recipe.config.dist.world_size);
  }
}

TEST_CASE("the tiny recipes run: not even a warning") {
  int count = 0;
  for (const std::string& name : recipe_names()) {
    if (name.rfind("tiny_", 0) != 0) continue;
    ++count;
    CAPTURE(name);
    CHECK(texts(load_named(name)) == "");
  }
  CHECK(count >= 7);
}

TEST_CASE("a name may carry _config") {
  const Recipe recipe = load_named("tiny_moe_pretrain_config");
  CHECK(recipe.name == "tiny_moe_pretrain");
  CHECK(recipe.config == load_named("tiny_moe_pretrain").config);
}

TEST_CASE("the reference's smoke command is accepted word for word") {
  const Recipe recipe = load_named(
      "qwen3_30b_a3b_pretrain_config",
      {"optimizer.optimizer_cpu_offload=True", "optimizer.optimizer_offload_fraction=0.5",
       "train.train_iters=20", "train.global_batch_size=8", "train.micro_batch_size=1"});
  CHECK_FALSE(recipe.has_errors());
  CHECK(recipe.world_size == 16);
  // As published, the 16-GPU recipe of the reference refuses it: 8 sequences for 16 replicas.
  const Recipe published = load_named("qwen3_30b_a3b_pretrain_16gpu_h100_bf16",
                                      {"train.global_batch_size=8", "train.micro_batch_size=1"});
  CHECK(find_problem(published,
                     "global batch size (8) is not divisible by micro batch size (1) "
                     "times data parallel size (16)") != nullptr);
}

TEST_CASE("B002, B004, B005: dump and load is the identity for every recipe") {
  for (const std::string& name : recipe_names()) {
    const Recipe recipe = load_named(name);
    const Recipe again = load_text(dump(recipe.config, &recipe), {}, recipe.world_size);
    CAPTURE(name, texts(again));
    CHECK_FALSE(again.has_errors());
    CHECK(again.config == recipe.config);
  }
  for (const char* lr : {"1e-3", "1e-4", "3e-5", "1e-6", "1e-7", "1e-8", "1e-9"}) {
    const Recipe recipe = load_text(kDense, {"optimizer.lr=" + std::string(lr)});
    CHECK(load_text(dump(recipe.config)).config == recipe.config);
  }
}

TEST_CASE("configs/reference.yaml is what the program prints, and loads") {
  const std::string path = std::string(RR_SOURCE_DIR) + "/configs/reference.yaml";
  if (std::getenv("RR_UPDATE_GOLDENS") != nullptr) std::ofstream(path) << reference_yaml();
  INFO("If the change is meant: run the tests once with RR_UPDATE_GOLDENS=1, and read the diff.");
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  CHECK(text.str() == reference_yaml());
  // All defaults: nothing is misspelt; only what has no default is missing.
  const Recipe recipe = load_text(text.str());
  CHECK(find_problem(recipe, "there is no such") == nullptr);
  CHECK(find_problem(recipe, "0 is outside [1, 100000]") != nullptr);
}

TEST_CASE("override beats flag beats environment beats recipe beats preset beats default") {
  const std::string text = kDense + "rng: {seed: 1}\n";
  CHECK(load_text(kDense).config.rng.seed == 1234);
  const Variable variable("RUN_RECIPE_RNG__SEED", "2");
  Request request;
  const TempFolder folder;
  request.recipe = folder.write("case.yaml", text);
  request.search_paths = {RR_SOURCE_DIR};
  Recipe recipe = load(request);
  CHECK(recipe.config.rng.seed == 2);
  CHECK(to_string(recipe.origins.at("rng.seed")) == "environment RUN_RECIPE_RNG__SEED");
  request.flags = {{"--seed", "rng.seed", "0"}};
  recipe = load(request);
  CHECK(recipe.config.rng.seed == 0);  // presence decides, not truth
  CHECK(to_string(recipe.origins.at("rng.seed")) == "--seed");
  request.overrides = {"rng.seed=4"};
  recipe = load(request);
  CHECK(recipe.config.rng.seed == 4);
  CHECK(to_string(recipe.origins.at("rng.seed")) == "override 1");

  const Recipe preset = load_named("qwen3_600m_pretrain");
  CHECK(to_string(preset.origins.at("model.hidden_size")) ==
        "preset configs/models/qwen3_600m.yaml:3");
  CHECK(load_named("qwen3_600m_pretrain", {"model.hidden_size=64"}).config.model.hidden_size == 64);
  CHECK(load_named("qwen3_600m_pretrain", {"model.preset=qwen3_8b"}).config.model.hidden_size ==
        4096);
}

TEST_CASE("a misspelt environment variable is refused, other settings are not ours") {
  const Variable wrong("RUN_RECIPE_RNG__SED", "2"), other("RUN_RECIPE_HOME_OF_MINE", "x");
  const std::string problems = texts(load_text(kDense));
  CHECK(has(problems, "Did you mean RUN_RECIPE_RNG__SEED?"));
  CHECK_FALSE(has(problems, "HOME_OF_MINE"));
}

TEST_CASE("an unknown preset is refused with the nearest") {
  CHECK(has(texts(load_named("qwen3_600m_pretrain", {"model.preset=qwen3_8"})),
            "Did you mean qwen3_8b"));
}

TEST_CASE("a relative path is relative to its file in a recipe, to the folder in an override") {
  const TempFolder folder;
  const std::string file = folder.write("case.yaml", kDense + "dataset: {data_path: [../d/a]}\n");
  const std::string parent = std::filesystem::path(folder.path()).parent_path().string();
  CHECK(load_named(file).config.dataset.blend->prefixes.at(0) == parent + "/d/a");
  const Recipe changed = load_named(file, {"dataset.data_path=[0.3,d/a,0.7,/d/b]"});
  const std::string here = std::filesystem::current_path().string();
  CHECK(changed.config.dataset.blend->prefixes == std::vector<std::string>{here + "/d/a", "/d/b"});
  CHECK(changed.config.dataset.blend->weights == std::vector<double>{0.3, 0.7});
}

TEST_CASE("interpolations resolve, in recipes and overrides") {
  const Variable variable("RR_TEST_SEED", "77");
  const Recipe recipe =
      load_text(kDense + "logger: {run_name: \"h${model.hidden_size}\"}\n",
                {"rng.seed=${oc.env:RR_TEST_SEED}", "model.ffn_hidden_size=${model.hidden_size}"});
  CHECK(texts(recipe) == "");
  CHECK(recipe.config.logger.run_name == "h64");
  CHECK(recipe.config.rng.seed == 77);
  CHECK(recipe.config.model.ffn_hidden_size == 64);
  CHECK(has(texts(load_text(kDense, {"rng.seed=${oc.env:RR_NO_SUCH}"})), "is not set"));
}

TEST_CASE("mixed precision decides the types, and contradictions name both keys") {
  const Config bf16 = load_text(kDense, {"mixed_precision=bf16_mixed"}).config;
  CHECK(bf16.model.bf16);
  CHECK(bf16.model.params_dtype == "bf16");
  CHECK(bf16.model.pipeline_dtype == "bf16");
  CHECK(bf16.ddp.grad_reduce_in_fp32);
  const std::string problems = texts(load_text(kDense, {"model.params_dtype=bf16"}));
  CHECK(has(problems, "model.params_dtype=bf16 contradicts mixed_precision=fp32"));
}

TEST_CASE("twins follow the one that is set") {
  const Recipe recipe = load_text(kDense, {"ddp.use_distributed_optimizer=true"});
  CHECK(recipe.config.optimizer.use_distributed_optimizer);
  CHECK(to_string(recipe.origins.at("optimizer.use_distributed_optimizer")) ==
        "derived from ddp.use_distributed_optimizer");
  CHECK(has(texts(load_text(kDense, {"ddp.use_distributed_optimizer=true",
                                     "optimizer.use_distributed_optimizer=false"})),
            "optimizer.use_distributed_optimizer=false contradicts "
            "ddp.use_distributed_optimizer=true"));
}

TEST_CASE("what the planner needs has a value after load") {
  const Config c = load_text(kDense).config;
  CHECK(c.model.ffn_hidden_size == 256);
  CHECK(c.model.kv_channels == 16);
  CHECK(c.model.expert_tensor_parallel_size == 1);
  CHECK(c.dataset.seq_length == 32);
  CHECK(c.tokenizer.vocab_size == 512);
  CHECK(c.tokenizer.null_tokenizer_eod_id == 511);
  CHECK(c.optimizer.min_lr == 0.0);
  CHECK(c.scheduler.lr_decay_iters == 20);
  CHECK(c.scheduler.start_weight_decay == 0.01);
  CHECK(c.validation.eval_global_batch_size == 8);
  CHECK(c.ddp.bucket_size == 40000000);
  CHECK(c.logger.run_name == "case");
  CHECK(c.dist.world_size == 1);
}

TEST_CASE("without a world size the smallest that fits is taken") {
  const auto moe =
      joined(kMoe, {"model.pipeline_model_parallel_size=2", "model.expert_model_parallel_size=4"});
  CHECK(load_text(kDense, moe).world_size == 8);
}

TEST_CASE("B026: numbers do not follow the user's locale") {
  const char* before = setlocale(LC_ALL, nullptr);
  const std::string saved = before == nullptr ? "C" : before;
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8"}) setlocale(LC_ALL, name);
  const Recipe recipe = load_text(kDense, {"optimizer.lr=1.5e-4", "optimizer.min_lr=0.25e-5"});
  setlocale(LC_ALL, saved.c_str());
  CHECK(recipe.config.optimizer.lr == 1.5e-4);
  CHECK(value_text(recipe.config, "optimizer.min_lr") == "2.5e-06");
}

TEST_CASE("explain tells type, range, rules and who set the value") {
  const Recipe recipe = load_named("tiny_moe_pretrain");
  const std::string text = explain("optimizer.optimizer_offload_fraction", &recipe);
  CHECK(has(text, "type     real"));
  CHECK(has(text, "rule     the fraction is in [0, 1]"));
  CHECK(has(text, "here     0.5 (recipes/tiny_moe_pretrain.yaml:"));
  CHECK(has(explain("optimizer"), "  lr = null: Highest learning rate."));
  CHECK_THROWS_WITH(explain("optimizer.lrr"), Catch::Contains("Did you mean optimizer.lr"));
}

TEST_CASE("changes list what differs from the defaults, with its origin") {
  const Recipe recipe = load_text(kDense, {"optimizer.lr=2e-3"});
  bool found = false;
  for (const Change& change : changes(recipe)) {
    CHECK(change.key != "optimizer.adam_beta1");
    if (change.key != "optimizer.lr") continue;
    found = true;
    CHECK(change.value == "0.002");
    CHECK(to_string(change.origin) == "override 1");
  }
  CHECK(found);
}

TEST_CASE("keys without effect warn only where a person set them") {
  CHECK(has(texts(load_text(kDense, {"train.manual_gc=true"})),
            "train.manual_gc=true has no effect"));
  CHECK(has(texts(load_text(kDense + "profiling: {profile_step_start: 3, profile_step_end: 4}\n")),
            "these keys have no effect here: profiling.profile_step_start, "
            "profiling.profile_step_end"));
  CHECK(texts(load_text(kDense, {"train.manual_gc=false"})) == "");
}
