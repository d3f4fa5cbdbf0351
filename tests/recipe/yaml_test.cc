// Recipe text as people and broken tools write it.
#include "recipe/yaml.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "recipe_fixture.h"

using namespace rr;
using namespace rr::recipe;
using namespace rr::test;

namespace {

std::string problems_of(const std::string& text) { return texts(load_text(text)); }

}  // namespace

TEST_CASE("B010: a duplicate key is refused with both lines") {
  CHECK(has(problems_of(kDense + "optimizer:\n  lr: 1\n"),
            "case.yaml:17): duplicate key "
            "'optimizer'; it also stands at "));
  CHECK(has(problems_of(kDense + "  lr: 2\n"), "case.yaml:17): duplicate key 'lr'"));
  CHECK(has(problems_of(kDense + "rng: {seed: 1, seed: 2}\n"), "duplicate key 'seed'"));
}

TEST_CASE("B011: << merges maps, the local value wins, then the earlier base") {
  const std::string text = R"(_a: &a {num_layers: 4, hidden_size: 64, num_attention_heads: 4}
_b: &b {hidden_size: 128, vocab_size: 512, seq_length: 32}
model:
  <<: [*a, *b]
  num_layers: 2
  position_embedding_type: none
  attention_dropout: 0
  hidden_dropout: 0
train: {train_iters: 1}
optimizer: {lr: 1e-3}
)";
  const Recipe recipe = load_text(text);
  CHECK(texts(recipe) == "");
  CHECK(recipe.config.model.num_layers == 2);
  CHECK(recipe.config.model.hidden_size == 64);
  CHECK(recipe.config.model.vocab_size == 512);
  CHECK(has(problems_of("a: &a 1\nmodel: {<<: *a}\n"), "'<<' wants a map"));
}

TEST_CASE("B013: overriding one user of an anchor leaves the other alone") {
  const std::string text = kDense +
                           "_b: &b {overlap_grad_reduce: true, bucket_size: 64}\n"
                           "ddp: *b\ncomm_overlap: *b\n";
  const Recipe recipe = load_text(text, {"ddp.bucket_size=128", "comm_overlap.bucket_size=null"});
  CHECK(texts(recipe) == "");
  CHECK(recipe.config.ddp.bucket_size == 128);
  CHECK_FALSE(recipe.config.comm_overlap.bucket_size);
}

TEST_CASE("B015: unknown keys and groups of a file are refused with their line") {
  const std::string problems =
      problems_of(kDense + "modle:\n  deep: {er: 1}\nvalidation:\n  eval_itres: 3\n");
  CHECK(has(problems, "modle ("));
  CHECK(has(problems, "case.yaml:17): there is no such group. Did you mean model?"));
  CHECK(has(problems, "case.yaml:20): there is no such key. Did you mean validation.eval_iters"));
}

TEST_CASE("B023: deep nesting is refused, not a crash") {
  for (const std::string& text : {std::string(50000, '['), "a: " + std::string(50000, '{'), [] {
                                    std::string dashes;
                                    for (int i = 0; i < 20000; ++i) dashes += "- ";
                                    return dashes;
                                  }()}) {
    CHECK(has(problems_of(text), "error"));
  }
}

TEST_CASE("B024: malformed text is an error with file and line") {
  const std::pair<std::string, int> cases[] = {
      {"model:\n\tnum_layers: 2\n", 2},
      {"model:\n  a: \"x\n", 0},
      {std::string("model:\n  a: \0\n", 13), 2},
      {"model: !python/object:os.system {a: 1}\n", 1},
      {"model:\n  a: \xc3\n", 2},
      {"model:\n  a: \xed\xa0\x80\n", 2},
      {"", 1},
      {"# nothing\n", 1},
      {"- a\n- b\n", 1},
      {"just words\n", 1},
      {kDense + "---\nmodel: {}\n", 17},
      {"a: [1, 2\n", 0},
      {"a: *nothing\n", 1},
      {"? [a]\n: 1\n", 1},
      {"model: {a: &x [*x]}\n", 1},
  };
  for (const auto& [text, line] : cases) {
    const Recipe recipe = load_text(text);
    CAPTURE(text, texts(recipe));
    REQUIRE(recipe.has_errors());
    if (line > 0) CHECK(has(texts(recipe), "case.yaml:" + std::to_string(line)));
  }
}

TEST_CASE("B025: a byte-order mark and CRLF are harmless, UTF-16 is refused by name") {
  std::string crlf;
  for (const char c : kDense) crlf += c == '\n' ? "\r\n" : std::string(1, c);
  const Config plain = load_text(kDense).config;
  CHECK(load_text("\xef\xbb\xbf" + kDense).config == plain);
  CHECK(load_text(crlf).config == plain);
  CHECK(has(problems_of(std::string("\xff\xfem\0o\0", 6)), "UTF-16"));
}

TEST_CASE("a missing recipe, a folder and an unreadable name are refused with the nearest names") {
  CHECK(has(texts(load_named("tiny_gpt_pretran")), "Did you mean tiny_gpt_pretrain"));
  CHECK(has(texts(load_named("/nowhere/at/all.yaml")), "not found"));
  const TempFolder folder;
  CHECK(load_named(folder.path() + "/").has_errors());
}

TEST_CASE("aliases that explode are refused") {
  std::string text = "_a: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    text += "_b" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) text += "*a" + std::to_string(i - 1) + (j < 9 ? "," : "]\n");
  }
  CHECK(has(problems_of(text), "too many values"));
}

TEST_CASE("random damage to a recipe never kills the program") {
  std::mt19937 random(1234);
  const std::string signs = "[]{}:,&*!|>'\"%@`#-?\n\t \\<~\x80\xff";
  for (int round = 0; round < 400; ++round) {
    std::string text = kDense;
    for (int edits = 1 + static_cast<int>(random() % 6); edits > 0; --edits) {
      const std::size_t place = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[place] = signs[random() % signs.size()];
          break;
        case 1:
          text.insert(place, 1, signs[random() % signs.size()]);
          break;
        default:
          text.erase(place, 1 + random() % 20);
          if (text.empty()) text = "x";
      }
    }
    std::vector<Problem> problems;
    parse_yaml(text, "damaged", OriginKind::recipe, &problems);
    for (const Problem& problem : problems) CHECK(has(problem.where, "damaged"));
  }
}
