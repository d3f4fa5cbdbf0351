// The data options that go by documents, seen through the loss that the program prints.
#include <catch2/catch.hpp>

#include "cli/program.h"

namespace rr::test {

namespace {

// Documents of 15 bytes; with the end of document 16 tokens, so that no sequence of 16 or 32 tokens
// cuts one. `bytes` is a shell word that may use $i, the document's number.
void build_corpus(const Scratch& folder, const std::string& bytes) {
  const Outcome built =
      shell("for i in $(seq 1 64); do printf %s \"" + bytes +
                "\" >d$i; done\n\"$RR\" data build --input $(seq -f d%.0f 1 64) --output corpus",
            folder);
  INFO(built.err);
  REQUIRE(built.code == 0);
}

std::vector<double> losses(const Scratch& folder, const std::string& overrides) {
  const Outcome outcome = run(1,
                              recipe("td") +
                                  " dataset.data_path=[corpus] \"dataset.split='1,0,0'\""
                                  " tokenizer.tokenizer_type=ByteTokenizer"
                                  " tokenizer.vocab_size=257 logger.run_dir=run " +
                                  overrides,
                              folder);
  INFO(outcome.err);
  REQUIRE(outcome.code == 0);
  std::vector<double> values = series(folder.path() / "run", "lm loss");
  std::filesystem::remove_all(folder.path() / "run");
  return values;
}

}  // namespace

TEST_CASE("a document that attends to itself only has the loss that it has alone") {
  const Scratch folder;
  build_corpus(folder, "the same letter");
  // Weights that are large enough for attention to matter; the first loss is before any step.
  const auto first_loss = [&](const std::string& overrides) {
    return losses(folder,
                  "train.train_iters=1 scheduler.lr_warmup_iters=0 "
                  "model.init_method_std=0.3 " +
                      overrides)[0];
  };
  const std::string one = "model.seq_length=16 dataset.seq_length=16 ";
  const std::string mask = "dataset.reset_attention_mask=true ";
  const std::string positions = "dataset.reset_position_ids=true ";
  const double alone = first_loss(one);
  const double packed = first_loss("");
  // fp32 sums in another order: 1e-6. The effects are above 1e-3.
  CHECK(first_loss(mask + positions) == Approx(alone).epsilon(1e-6));
  // Rotary positions are relative.
  CHECK(first_loss(mask) == Approx(alone).epsilon(1e-5));
  CHECK(packed != Approx(alone).epsilon(1e-3));
  const double restarted = first_loss(positions);
  CHECK(restarted != Approx(alone).epsilon(1e-3));
  CHECK(restarted != Approx(packed).epsilon(1e-3));
  CHECK(first_loss(one + mask + positions) == alone);
}

TEST_CASE("without loss at the ends of documents, what cannot be foreseen costs nothing") {
  const Scratch folder;
  // The alphabet in small or in capital letters: which one comes next is anybody's guess.
  build_corpus(folder,
               "$(echo abcdefghijklmno | tr a-o $([ $((i * i % 7 % 2)) = 0 ] "
               "&& echo a-o || echo A-O))");
  const std::string train =
      "train.train_iters=60 model.seq_length=16 dataset.seq_length=16 optimizer.lr=0.01 ";
  const double counted = losses(folder, train).back();
  const double masked = losses(folder, train + "dataset.eod_mask_loss=true").back();
  // The guess alone costs up to ln 2 in one of 16 places, 0.043.
  CHECK(counted > 0.03);
  CHECK(masked < 0.02);
}

}  // namespace rr::test
