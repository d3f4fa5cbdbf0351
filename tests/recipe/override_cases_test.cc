// Public bug reports about overrides and typed values, one test each.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "recipe_fixture.h"

using namespace rr;
using namespace rr::recipe;
using namespace rr::test;

namespace {

// Problems of the base recipe with one override more.
std::string problems_with(const std::string& override_) {
  return texts(load_text(kDense, {override_}));
}

bool refused(const std::string& override_) { return load_text(kDense, {override_}).has_errors(); }

}  // namespace

TEST_CASE("B001: every spelling of a learning rate is the same number") {
  for (const char* lr : {"1e-4", "1E-4", "1.e-4", "0.0001", "+1e-4", ".0001", "0.1e-3"}) {
    const Recipe recipe = load_text(kDense, {"optimizer.lr=" + std::string(lr)});
    CAPTURE(lr, texts(recipe));
    CHECK_FALSE(recipe.has_errors());
    CHECK(recipe.config.optimizer.lr == 0.0001);
    CHECK(value_text(recipe.config, "optimizer.lr") == "0.0001");
  }
  CHECK(has(problems_with("optimizer.lr=1e-4x"), "optimizer.lr (override 1): wants real?: 1e-4x"));
}

TEST_CASE("B003: an override of another key leaves a small number a number") {
  const Recipe recipe = load_text(kDense + "  min_lr: 0.00001\n", {"train.train_iters=3"});
  CHECK(recipe.config.optimizer.min_lr == 0.00001);
}

TEST_CASE("B004: text keys keep their exact text") {
  for (const char* name : {"1E3", "007", "true", "1_000", "inf", "0x10", "1.0", "no", "12:30"}) {
    const Recipe recipe = load_text(kDense, {"logger.run_name=" + std::string(name)});
    CAPTURE(name, texts(recipe));
    CHECK(recipe.config.logger.run_name == std::string(name));
    const Recipe again = load_text(dump(recipe.config));
    CHECK(again.config.logger.run_name == std::string(name));
  }
  CHECK(load_text(kDense, {"logger.run_name='null'"}).config.logger.run_name == "null");
  const Recipe saved = load_text(kDense, {"checkpoint.save=./1e5"});
  CHECK(saved.config.checkpoint.save == (std::filesystem::current_path() / "1e5").string());
}

TEST_CASE("B005: a quoted number in a text key survives dump and load") {
  const Recipe recipe = load_text(kDense + "logger: {run_name: \"10e2\"}\n");
  CHECK(recipe.config.logger.run_name == "10e2");
  CHECK(load_text(dump(recipe.config)).config.logger.run_name == "10e2");
}

TEST_CASE("B006: one number grammar for whole numbers, or a refusal") {
  const std::pair<const char*, std::int64_t> good[] = {
      {"1_000", 1000}, {"1e3", 1000}, {"1000.0", 1000}, {"+7", 7}};
  for (const auto& [text, value] : good) {
    CAPTURE(text);
    CHECK(load_text(kDense, {"train.train_iters=" + std::string(text)}).config.train.train_iters ==
          value);
  }
  for (const char* text : {"1__0", "0_e0", "1_", "1000.5", "99999999999999999999", "1e30", "inf",
                           "nan", "ten", "'5'", "[5]", "true", ""}) {
    CAPTURE(text);
    CHECK(refused("train.train_iters=" + std::string(text)));
  }
}

TEST_CASE("B007: a leading zero or another base is refused, in files and overrides alike") {
  for (const char* text : {"0010", "08", "0o10", "0x10", "0b11", "010", "1:30"}) {
    CAPTURE(text);
    CHECK(refused("train.global_batch_size=" + std::string(text)));
    std::string file = kDense;
    file.replace(file.find("global_batch_size: 8"), 20, "global_batch_size: " + std::string(text));
    const Recipe recipe = load_text(file);
    REQUIRE(recipe.has_errors());
    CHECK(has(texts(recipe), "case.yaml:13"));
    CHECK(has(texts(recipe), "without leading zeros"));
  }
}

TEST_CASE("B008: truth values are true and false in any case, files may say yes") {
  const std::string key = "optimizer.optimizer_cpu_offload=";
  for (const char* text : {"true", "True", "TRUE", "tRue"}) {
    CHECK(load_text(kDense, {key + text}).config.optimizer.optimizer_cpu_offload);
  }
  for (const char* text : {"yes", "on", "1", "Tru", "2", "y", "'true'"}) {
    CAPTURE(text);
    CHECK(has(problems_with(key + text), "Use true or false."));
  }
  const Recipe yes = load_text(kDense + "  optimizer_cpu_offload: yes\n");
  CHECK(yes.config.optimizer.optimizer_cpu_offload);
  CHECK(has(texts(yes), "warning: optimizer.optimizer_cpu_offload"));
  CHECK(has(texts(yes), "Write true."));
  CHECK(load_text(kDense + "logger: {run_name: no}\n").config.logger.run_name == "no");
}

TEST_CASE("B009: null leaves an optional empty and nothing else") {
  for (const char* text : {"null", "NULL", "None"}) {
    const Recipe recipe = load_text(kDense, {"model.recompute_granularity=" + std::string(text)});
    CAPTURE(text, texts(recipe));
    CHECK_FALSE(recipe.config.model.recompute_granularity);
    CHECK_FALSE(recipe.has_errors());
  }
  CHECK(refused("model.recompute_granularity=~"));
  CHECK(refused("model.recompute_granularity="));
  CHECK(refused("model.num_layers=null"));
  CHECK(refused("model.num_layers=None"));
}

TEST_CASE("B012: overrides of one group change their leaves only, in any order") {
  const Recipe base = load_text(kDense);
  std::vector<std::string> overrides = {"model.qk_layernorm=true",   "model.rotary_base=5e5",
                                        "model.num_layers=6",        "model.layernorm_epsilon=1e-6",
                                        "model.init_method_std=0.1", "model.normalization=RMSNorm"};
  std::sort(overrides.begin(), overrides.end());
  int orders = 0;
  do {
    if (orders++ % 60 != 0) continue;  // 12 of the 720 orders
    const Recipe recipe = load_text(kDense, overrides);
    std::vector<std::string> changed;
    for (const Field& field : fields()) {
      if (value_text(recipe.config, field.key) != value_text(base.config, field.key)) {
        changed.push_back(field.key);
      }
    }
    // The six, and the one that follows from init_method_std.
    CHECK(changed == std::vector<std::string>{"model.num_layers", "model.rotary_base",
                                              "model.normalization", "model.layernorm_epsilon",
                                              "model.qk_layernorm", "model.init_method_std",
                                              "model.embedding_init_method_std"});
  } while (std::next_permutation(overrides.begin(), overrides.end()));
}

TEST_CASE("B014: a misspelt key is refused with the right name, whatever the sign") {
  const std::pair<const char*, const char*> cases[] = {
      {"optimizer.optimzer_cpu_offload=true", "optimizer.optimizer_cpu_offload"},
      {"optimiser.lr=1", "optimizer.lr"},
      {"model.num_layer=2", "model.num_layers"},
      {"+model.num_layer=2", "model.num_layers"},
      {"++model.num_layer=2", "model.num_layers"},
      {"train.eval_iters=2", "validation.eval_iters"},
      {"lr=1", "optimizer.lr"},
      {"optimizer={lrr: 1}", "optimizer.lr"}};
  for (const auto& [text, want] : cases) {
    const std::string problems = problems_with(text);
    CAPTURE(text, problems);
    CHECK(has(problems, "there is no such"));
    CHECK(has(problems, "Did you mean " + std::string(want)));
    CHECK(has(problems, "override 1"));
  }
}

TEST_CASE("B016: an argument that is no override is refused") {
  CHECK(has(problems_with("model.num_layers"),
            "Expected override in KEY=VALUE form, got 'model.num_layers'"));
  CHECK(refused("model.num_layers 2"));
  CHECK(refused("--model.num_layers=2"));
  CHECK(load_text(kDense, {"model.num_layers=2"}).config.model.num_layers == 2);
}

TEST_CASE("B017: blanks inside brackets are free, lists and scalars do not mix") {
  const Recipe spaced = load_text(kDense, {"dataset.blend=[[a, b],[0.3, 0.7]]"});
  const Recipe tight = load_text(kDense, {"dataset.blend=[[a,b],[0.3,0.7]]"});
  CHECK(texts(spaced) == "");
  CHECK(spaced.config == tight.config);
  REQUIRE(spaced.config.dataset.blend);
  CHECK(spaced.config.dataset.blend->weights == std::vector<double>{0.3, 0.7});
  CHECK(refused("model.num_layers=[4]"));
  CHECK(has(problems_with("dataset.data_path=a"), "Use [a]."));
  CHECK(has(problems_with("dataset.blend=[a,b]"), "Use [[prefix, ...], null]"));
}

TEST_CASE("B018: commas outside brackets are called a sweep, with the quotes to add") {
  const std::string problems = problems_with("dataset.split=90,5,5");
  CHECK(has(problems, "sweeps are not supported"));
  CHECK(has(problems, "dataset.split='90,5,5'"));
  CHECK(load_text(kDense, {"dataset.split='90,5,5'"}).config.dataset.split == "90,5,5");
}

TEST_CASE("B019: a value is taken literally when quoted, whatever it holds") {
  const std::string long_text(10000, 'x');
  for (const std::string& value :
       {std::string("a=b"), std::string("#1"), std::string("a#b"), std::string("x y"),
        std::string("\xc3\xa9\xe6\xbc\xa2"), std::string("a,b"), std::string("${a"), long_text}) {
    const Recipe recipe = load_text(kDense, {"logger.run_name='" + value + "'"});
    CAPTURE(value.substr(0, 40), texts(recipe));
    if (value == "${a") {
      CHECK(has(texts(recipe), "'${' is never closed"));
      continue;
    }
    CHECK_FALSE(recipe.has_errors());
    CHECK(recipe.config.logger.run_name == value);
    CHECK(load_text(dump(recipe.config)).config.logger.run_name == value);
  }
  CHECK(has(problems_with("logger.run_name=a#b"), "Quote the value: logger.run_name='a#b'."));
  CHECK(load_text(kDense, {"logger.run_name='x\\\\'"}).config.logger.run_name == "x\\");
}

TEST_CASE("B020: odd key paths are refused, a list index works") {
  for (const char* text :
       {"a..b=1", ".a=1", "a.=1", "dataset.blend.9=foo", "model.num_layers.x=1"}) {
    CAPTURE(text);
    CHECK(refused(text));
  }
  const std::string file = kDense + "dataset: {data_path: [a, b]}\n";
  const Recipe recipe = load_text(file, {"dataset.data_path.1=/c"});
  CHECK(texts(recipe) == "");
  CHECK(recipe.config.dataset.data_path->at(1) == "/c");
  CHECK(recipe.origins.at("dataset.data_path").detail == "override 1");
  CHECK(has(texts(load_text(file, {"dataset.data_path.2=/c"})), "out of range"));
}

TEST_CASE("B021: any number of overrides, of a repeated key the last wins and that is said") {
  std::vector<std::string> overrides;
  for (int i = 0; i < 50; ++i) overrides.push_back("rng.seed=" + std::to_string(i));
  const Recipe recipe = load_text(kDense, overrides);
  CHECK(recipe.config.rng.seed == 49);
  CHECK(recipe.problems.size() == 49);
  CHECK(has(texts(recipe), "warning: rng.seed (override 50): was already set by override 49"));
}

TEST_CASE("B022: rules see the recipe after its overrides, and say which override broke it") {
  const std::string bad =
      kDense + "  optimizer_offload_fraction: 2\n  optimizer_cpu_offload: true\n";
  CHECK(load_text(bad).has_errors());
  CHECK(texts(load_text(bad, {"optimizer.optimizer_offload_fraction=1"})) == "");
  CHECK(has(problems_with("optimizer.optimizer_offload_fraction=2"),
            "error: optimizer.optimizer_offload_fraction (override 1):"));
}

TEST_CASE("all problems are reported at once, each with its place") {
  const Recipe recipe = load_text(
      kDense + "  lrr: 1\nnothing: {a: 1}\n",
      {"train.micro_batch_size=x", "model.pipeline_model_parallel_size=3", "bad key=1", "a=1,2"},
      3);
  const std::string problems = texts(recipe);
  CAPTURE(problems);
  CHECK(has(problems, "optimizer.lrr ("));
  CHECK(has(problems, "case.yaml:17)"));
  CHECK(has(problems, "nothing ("));
  CHECK(has(problems, "train.micro_batch_size (override 1)"));
  CHECK(has(problems, "model.pipeline_model_parallel_size (override 2)"));
  CHECK(has(problems, "(override 3)"));
  CHECK(has(problems, "(override 4)"));
}

TEST_CASE("random overrides, sizes at the edge included, never kill the program") {
  std::mt19937 random(4321);
  const std::vector<std::string> values = {"0",
                                           "-1",
                                           "1",
                                           "2",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "1e18",
                                           "nan",
                                           "inf",
                                           "null",
                                           "true",
                                           "[1,2]",
                                           "{}",
                                           "text",
                                           "${rng.seed}",
                                           "4294967296",
                                           "1048576",
                                           "3"};
  const std::vector<Field>& all = fields();
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> overrides = round % 2 == 0 ? kMoe : std::vector<std::string>();
    for (int i = 0; i < 6; ++i) {
      std::string text = all[random() % all.size()].key + "=" + values[random() % values.size()];
      if (random() % 4 == 0) text.erase(random() % text.size(), 1);
      if (random() % 4 == 0) text.insert(random() % text.size(), 1, "~+@{}[](),'\\"[random() % 12]);
      overrides.push_back(text);
    }
    const Recipe recipe = load_text(kDense, overrides, 1 + static_cast<int>(random() % 16));
    for (const Problem& problem : recipe.problems) CHECK_FALSE(problem.what.empty());
    if (!recipe.has_errors())
      CHECK(load_text(dump(recipe.config), {}, recipe.world_size).config == recipe.config);
  }
}
