// Which samples a rank reads, and which data is refused before or while it is read.
#include <set>

#include "data/corpus.h"
#include "data/data.h"
#include "golden.h"

namespace {

using namespace rr::data;
using Catch::Contains;

// `count` samples; sample i is the one token i.
class Numbers final : public Samples {
 public:
  explicit Numbers(std::int64_t count) : count_(count) {}
  std::int64_t size() const override { return count_; }
  void read(std::int64_t index, Batch& batch) const override {
    RR_CHECK(index >= 0 && index < count_, "outside");
    batch.tokens.push_back(index);
    ++batch.num_sequences;
    batch.seq_length = 1;
  }

 private:
  std::int64_t count_;
};

template <class T>
void write_corpus(const std::string& prefix, rr::DType type,
                  const std::vector<std::vector<T>>& documents) {
  IndexedWriter writer(prefix, type);
  for (const auto& document : documents) {
    writer.append(document.data(), static_cast<std::int64_t>(document.size()));
    writer.end_sequence();
    writer.end_document();
  }
  writer.finish();
}

std::vector<std::int64_t> step_ids(const Samples& samples, std::int64_t consumed, int micro_batches,
                                   std::int64_t size, int ranks) {
  std::vector<std::int64_t> ids;
  for (int m = 0; m < micro_batches; ++m) {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto batch = read_batch(samples, consumed, m, size, rank, ranks);
      ids.insert(ids.end(), batch.tokens.begin(), batch.tokens.end());
    }
  }
  return ids;
}

TEST_CASE("micro-batches of all ranks are consecutive samples, each rank its own slice") {
  const Numbers samples(100);
  CHECK(read_batch(samples, 24, 1, 2, 2, 3).tokens == std::vector<std::int64_t>{34, 35});
  CHECK(step_ids(samples, 24, 2, 2, 3) ==
        std::vector<std::int64_t>{24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35});
}

TEST_CASE("B132: a run stopped after any step reads on exactly where it stopped") {
  auto plan = golden::plan_for(golden::path("corpus_c"), 8, 24, 50);
  const auto whole = open(plan, Split::train);
  REQUIRE(whole->size() >= 24);
  for (std::int64_t stop = 0; stop < 24; stop += 4) {
    const auto resumed = open(plan, Split::train);  // nothing is carried over but `consumed`
    for (std::int64_t consumed = stop; consumed < 24; consumed += 4) {
      for (int rank = 0; rank < 2; ++rank) {
        CHECK(read_batch(*resumed, consumed, 0, 2, rank, 2).tokens ==
              read_batch(*whole, consumed, 0, 2, rank, 2).tokens);
      }
    }
  }
}

TEST_CASE("B132: over several epochs no tail is replayed: each epoch reads every token once") {
  // 10 samples an epoch, global batch 4, 3 epochs: token k of the stream appears 3 times.
  const golden::Folder folder;
  std::vector<std::vector<std::uint16_t>> documents(10);
  for (std::uint16_t i = 0; i < 10; ++i) documents[i] = {i, static_cast<std::uint16_t>(i + 10)};
  write_corpus(folder / "c", rr::DType::u16, documents);
  auto plan = golden::plan_for(folder / "c", 2, 30, 20);
  plan.add_extra_token = false;
  const auto samples = open(plan, Split::train);
  REQUIRE(samples->size() == 30);
  std::multiset<std::int64_t> seen;
  for (std::int64_t consumed = 0; consumed + 4 <= 28; consumed += 4) {
    for (int rank = 0; rank < 2; ++rank) {
      for (const auto token : read_batch(*samples, consumed, 0, 2, rank, 2).tokens) {
        seen.insert(token);
      }
    }
  }
  Batch rest;
  samples->read(28, rest);
  samples->read(29, rest);
  seen.insert(rest.tokens.begin(), rest.tokens.end());
  for (std::int64_t token = 0; token < 20; ++token) CHECK(seen.count(token) == 3);
}

TEST_CASE("B134: at the end of the data all ranks refuse the same micro-batch") {
  const Numbers samples(5);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(read_batch(samples, 0, 0, 2, rank, 2).num_sequences == 2);
    CHECK_THAT(golden::refusal([&] { read_batch(samples, 4, 0, 2, rank, 2); }),
               Contains("ends after 5 samples; samples 4 to 7"));
    CHECK_THAT(golden::refusal([&] { read_batch(samples, 0, 1, 2, rank, 2); }),
               Contains("samples 4 to 7"));
    // Rank 0's own two samples exist here; it must refuse them all the same.
    CHECK_THAT(golden::refusal([&] { read_batch(Numbers(6), 4, 0, 2, rank, 2); }),
               Contains("ends after 6 samples; samples 4 to 7"));
    CHECK(read_batch(Numbers(8), 4, 0, 2, rank, 2).num_sequences == 2);
  }
}

TEST_CASE("B138: any number of evaluations wraps over a small validation set") {
  const Numbers samples(3);
  std::int64_t consumed = 0;
  for (int evaluation = 0; evaluation < 50; ++evaluation, consumed += 4) {
    for (int rank = 0; rank < 2; ++rank) {
      const auto tokens = read_batch(samples, consumed, 0, 2, rank, 2, AtEnd::wrap).tokens;
      const std::int64_t first = consumed + 2 * rank;
      CHECK(tokens == std::vector<std::int64_t>{first % 3, (first + 1) % 3});
    }
  }
}

TEST_CASE("B137: a token outside the vocabulary is refused with file, position and id") {
  const golden::Folder folder;
  write_corpus<std::int32_t>(folder / "c", rr::DType::i32, {{1, 2, 3}, {4, 600, 6, 7}});
  auto plan = golden::plan_for(folder / "c", 6, 1, 512);
  const auto samples = open(plan, Split::train);
  Batch batch;
  CHECK_THAT(golden::refusal([&] { samples->read(0, batch); }),
             Contains("c.bin") && Contains("token id 600 at position 4") &&
                 Contains("token 1 of sequence 1") && Contains("at least 601"));
  for (const std::int64_t vocab : {600, 601}) {
    plan.vocab = vocab;
    const auto message = golden::refusal([&] { open(plan, Split::train)->read(0, batch); });
    CHECK((message.empty() == (vocab == 601)));
  }
}

TEST_CASE("B137: a negative id is refused, also where padding would look the same") {
  const golden::Folder folder;
  write_corpus<std::int32_t>(folder / "c", rr::DType::i32, {{1, 2, 3, -1}});
  const auto samples = open(golden::plan_for(folder / "c", 3, 1, 10), Split::train);
  Batch batch;
  CHECK_THAT(golden::refusal([&] { samples->read(0, batch); }),
             Contains("token id -1 at position 3") && Contains("never negative"));
}

TEST_CASE("the label of the last token is checked against the vocabulary too") {
  const golden::Folder folder;
  write_corpus<std::uint16_t>(folder / "c", rr::DType::u16, {{1, 2, 99}});
  const auto samples = open(golden::plan_for(folder / "c", 2, 1, 50), Split::train);
  Batch batch;
  CHECK_THAT(golden::refusal([&] { samples->read(0, batch); }), Contains("token id 99"));
}

TEST_CASE("an unasked split opens nothing, not even its files") {
  auto plan = golden::plan_for("/nowhere/c", 8, 0);
  CHECK(open(plan, Split::train) == nullptr);
  CHECK(open(plan, Split::test) == nullptr);
}

TEST_CASE("a test split with a share of 0 is left out, as the reference does") {
  auto plan = golden::plan_for(golden::path("corpus_a"), 8, 8);
  plan.samples = {8, 8, 8};
  plan.split = {0.9, 0.1, 0};
  CHECK(open(plan, Split::test) == nullptr);
  CHECK(open(plan, Split::valid)->size() >= 8);
}

TEST_CASE("a split without tokens is refused where the reference loops for ever") {
  auto plan = golden::plan_for(golden::path("corpus_c"), 4, 8, 50);
  plan.samples = {8, 2, 2};
  plan.split = {0.92, 0.08, 0};
  CHECK_THAT(golden::refusal([&] { open(plan, Split::valid); }),
             Contains("dataset.split") && Contains("the valid split gets 8 % of the 5 sequences") &&
                 Contains("at least 20 %"));
  plan.split = {0.92, 0, 0.08};
  CHECK_THAT(golden::refusal([&] { open(plan, Split::valid); }), Contains("valid split gets 0 %"));
  CHECK_THAT(golden::refusal([&] { open(plan, Split::test); }), Contains("test split gets 8 %"));
  CHECK(open(plan, Split::train)->size() >= 8);
}

TEST_CASE("B136: a corpus shorter than one sequence is refused with both lengths") {
  auto plan = golden::plan_for(golden::path("corpus_c"), 23, 4, 50);
  CHECK_THAT(golden::refusal([&] { open(plan, Split::train); }),
             Contains("corpus_c") && Contains("holds 23 tokens") && Contains("sequence of 24") &&
                 Contains("model.seq_length=22"));
  plan.seq_length = 22;
  CHECK(open(plan, Split::train)->size() == 4);
}

TEST_CASE("weights that do not fit are refused, every problem at once") {
  auto plan = golden::plan_for(golden::path("corpus_a"), 8, 4);
  plan.prefixes.push_back(golden::path("corpus_c"));
  plan.weights = {1, -2, 0.5};
  CHECK_THAT(golden::refusal([&] { open(plan, Split::train); }),
             Contains("3 weights for 2 corpora") && Contains("weight -2"));
  plan.weights = {0, 0};
  CHECK_THAT(golden::refusal([&] { open(plan, Split::train); }), Contains("all weights are 0"));
  plan.prefixes.clear();
  plan.weights.clear();
  CHECK_THAT(golden::refusal([&] { open(plan, Split::train); }), Contains("no corpus"));
}

TEST_CASE("every bad corpus of a blend is named in one message") {
  auto plan = golden::plan_for("/nowhere/one", 8, 4);
  plan.prefixes.push_back(golden::path("corpus_a"));
  plan.prefixes.push_back("/nowhere/two");
  CHECK_THAT(golden::refusal([&] { open(plan, Split::train); }),
             Contains("/nowhere/one") && Contains("/nowhere/two"));
}

TEST_CASE("corpora blended by size are too small for training before it starts, not at its end") {
  auto plan = golden::plan_for(golden::path("corpus_a"), 64, 400, 100000);
  plan.prefixes.push_back(golden::path("corpus_b"));
  CHECK_THAT(golden::refusal([&] { open(plan, Split::train); }),
             Contains("381 samples") && Contains("asks for 400"));
  plan.samples = {381, 1000, 0};
  plan.split = {0, 1, 0};
  CHECK(open(plan, Split::valid)->size() == 381);
}

TEST_CASE(
    "options without an end of document, a seed past NumPy's and a cache are refused together") {
  auto plan = golden::plan_for(golden::path("corpus_a"), 64, 4);
  plan.reset_attention_mask = true;
  plan.seed = std::uint64_t{1} << 32;
  plan.cache_path = "cache";
  CHECK_THAT(golden::refusal([&] { open(plan, Split::train); }),
             Contains("end-of-document") && Contains("2**32 - 1, got 4294967296") &&
                 Contains("dataset.path_to_cache"));
}

TEST_CASE("samples of one batch share their length, and none exists past the last") {
  const auto samples = open(golden::plan_for(golden::path("corpus_a"), 64, 4), Split::train);
  Batch batch;
  CHECK_THROWS_AS(samples->read(samples->size(), batch), rr::Error);
  CHECK_THROWS_AS(samples->read(-1, batch), rr::Error);
  samples->read(0, batch);
  const auto shorter = open(golden::plan_for(golden::path("corpus_a"), 32, 4), Split::train);
  CHECK_THROWS_AS(shorter->read(0, batch), rr::Error);
}

}  // namespace
