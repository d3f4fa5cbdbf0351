// One corpus in sample order, against what Megatron's GPTDataset gives for the same files.
#include <algorithm>

#include "data/gpt.h"
#include "golden.h"

namespace {

using namespace rr::data;
using nlohmann::json;

std::int64_t size_or_one_epoch(const json& size) {
  return size.is_null() ? kOneEpoch : size.get<std::int64_t>();
}

rr::plan::DataPlan plan_of(const json& test, const json& corpora) {
  const auto& corpus = corpora[test["corpus"].get<std::string>()];
  auto plan = golden::plan_for(golden::path(test["corpus"]), test["sequence_length"], 0,
                               corpus["vocab_size"]);
  for (std::size_t i = 0; i < 3; ++i) {
    plan.samples[i] = size_or_one_epoch(test["sizes"][i]);
    const auto& borders = test["split_matrix"][i];
    plan.split[i] = borders.is_null() ? 0.0 : borders[1].get<double>() - borders[0].get<double>();
  }
  plan.seed = test["seed"].get<std::uint64_t>();
  plan.end_of_document = corpus["eod"];
  const auto& options = test["options"];
  plan.reset_position_ids = options.value("reset_position_ids", false);
  plan.reset_attention_mask = options.value("reset_attention_mask", false);
  plan.eod_mask_loss = options.value("eod_mask_loss", false);
  plan.drop_last_partial_validation = options.value("drop_last_partial_validation_sequence", true);
  plan.add_extra_token = options.value("add_extra_token_to_sequence", true);
  return plan;
}

// The shares as the reference's parser makes them from the split's text.
void set_split(const std::string& text, rr::plan::DataPlan& plan) {
  double parts[3] = {0, 0, 0};
  std::size_t at = 0;
  for (double& part : parts) {
    at = text.find_first_of(".0123456789", at);
    if (at == std::string::npos) break;
    std::size_t used = 0;
    part = std::stod(text.substr(at), &used);
    at += used;
  }
  for (std::size_t i = 0; i < 3; ++i) plan.split[i] = parts[i] / (parts[0] + parts[1] + parts[2]);
}

std::vector<std::int64_t> flat(const std::vector<Place>& places) {
  std::vector<std::int64_t> values;
  for (const Place& place : places) {
    values.push_back(place.document);
    values.push_back(place.offset);
  }
  return values;
}

void check_order(const Order& order, const json& expected, const std::string& stem) {
  CHECK(order.epochs == expected["epochs"].get<std::int64_t>());
  CHECK(order.tokens_per_epoch == expected["tokens_per_epoch"].get<std::int64_t>());
  CHECK(order.separate_last_epoch == expected["separate_final_epoch"].get<bool>());
  CHECK(order.shuffle.size() == expected["length"].get<std::size_t>());
  CHECK(golden::widened(order.documents) == golden::npy(stem + ".document_index.npy"));
  CHECK(flat(order.places) == golden::npy(stem + ".sample_index.npy"));
  CHECK(golden::widened(order.shuffle) == golden::npy(stem + ".shuffle_index.npy"));
}

// [samples, S, S], 1 where a token must not be seen, from the documents' starts.
std::vector<std::int64_t> masks_of(const Batch& batch, std::int64_t samples) {
  std::vector<std::int64_t> masks;
  const std::int64_t length = batch.seq_length;
  for (std::int64_t row = 0; row < samples * length; ++row) {
    const std::int64_t start = batch.document_starts[static_cast<std::size_t>(row)];
    for (std::int64_t j = 0; j < length; ++j) {
      masks.push_back(j > row % length || j < start ? 1 : 0);
    }
  }
  return masks;
}

void check_samples(const Samples& samples, const json& expected, const std::string& stem) {
  Batch batch;
  const auto count = expected["samples_dumped"].get<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) samples.read(i, batch);
  CHECK(batch.num_sequences == count);
  CHECK(batch.tokens == golden::npy(stem + ".tokens.npy"));
  CHECK(batch.labels == golden::npy(stem + ".labels.npy"));
  const bool has_masks = golden::exists(stem + ".loss_mask.npy");
  if (has_masks) {
    CHECK(golden::widened(batch.loss_mask) == golden::npy(stem + ".loss_mask.npy"));
    CHECK(batch.positions == golden::npy(stem + ".position_ids.npy"));
  } else {
    CHECK(std::count(batch.loss_mask.begin(), batch.loss_mask.end(), 1.0F) ==
          count * batch.seq_length);
    for (std::size_t i = 0; i < batch.positions.size(); ++i) {
      REQUIRE(batch.positions[i] == static_cast<std::int64_t>(i) % batch.seq_length);
    }
  }
  if (golden::exists(stem + ".attention_mask.npy")) {
    CHECK(masks_of(batch, std::min<std::int64_t>(count, 8)) ==
          golden::npy(stem + ".attention_mask.npy"));
  } else {
    CHECK(batch.document_starts.empty());
  }
}

TEST_CASE("every GPT case has the reference's indices, tokens, labels, masks and positions") {
  const json cases = golden::json("cases.json");
  int checked = 0;
  for (const auto& test : cases["gpt"]) {
    auto plan = plan_of(test, cases["corpora"]);
    set_split(test["split"], plan);
    for (const Split split : {Split::train, Split::valid, Split::test}) {
      const auto& expected = test["splits"][name_of(split)];
      if (expected.is_null()) continue;
      const std::string stem = test["name"].get<std::string>() + "/" + name_of(split);
      CAPTURE(stem);
      const auto built = build_samples(plan, split);
      check_order(dynamic_cast<const GptSamples&>(*built.samples).order(), expected, stem);
      check_samples(*built.samples, expected, stem);
      ++checked;
    }
  }
  CHECK(checked == 28);
}

TEST_CASE("a split takes whole sequences, with borders rounded half to even") {
  const std::array<double, 3> halves = {0.5, 0.3, 0.2};
  CHECK(split_range(halves, 0, 5) == std::pair<std::int64_t, std::int64_t>{0, 2});
  CHECK(split_range(halves, 1, 5) == std::pair<std::int64_t, std::int64_t>{2, 4});
  CHECK(split_range(halves, 2, 5) == std::pair<std::int64_t, std::int64_t>{4, 5});
  CHECK(split_range(halves, 0, 7) == std::pair<std::int64_t, std::int64_t>{0, 4});
  CHECK(split_range({0, 1, 0}, 1, 9) == std::pair<std::int64_t, std::int64_t>{0, 9});
}

TEST_CASE("splits of the cases start and end at the reference's sequences") {
  const json cases = golden::json("cases.json");
  for (const auto& test : cases["gpt"]) {
    auto plan = plan_of(test, cases["corpora"]);
    set_split(test["split"], plan);
    const auto sequences =
        cases["corpora"][test["corpus"].get<std::string>()]["sequences"].get<std::int64_t>();
    for (const Split split : {Split::train, Split::valid, Split::test}) {
      const auto& expected = test["splits"][name_of(split)];
      const auto range = split_range(plan.split, static_cast<int>(split), sequences);
      if (expected.is_null()) {
        CHECK(range.first == range.second);
        continue;
      }
      CHECK(range.first == expected["first_sequence"].get<std::int64_t>());
      CHECK(range.second - range.first == expected["sequences"].get<std::int64_t>());
    }
  }
}

TEST_CASE("a kept partial sample is padded, masked, and holds every token that is left") {
  const std::vector<std::int32_t> lengths = {3, 4};
  OrderSpec spec;
  spec.num_sequences = 2;
  spec.seq_length = 4;
  spec.drop_last_partial = false;
  const auto order = build_order(lengths, spec);
  REQUIRE(order.shuffle.size() == 2);
  CHECK(order.places.back() == Place{1, lengths[static_cast<std::size_t>(order.documents[1])] - 1});
  spec.drop_last_partial = true;
  CHECK(build_order(lengths, spec).shuffle.size() == 1);
}

TEST_CASE("the last epoch stands apart when fewer than 80 % of its samples are asked for") {
  const std::vector<std::int32_t> lengths = {120, 81};
  OrderSpec spec;
  spec.num_sequences = 2;
  spec.seq_length = 10;  // 20 samples an epoch, 40 in two
  for (const std::int64_t samples : {21, 35, 36, 40}) {
    CAPTURE(samples);
    spec.samples = samples;
    const auto order = build_order(lengths, spec);
    CHECK(order.epochs == 2);
    CHECK(order.separate_last_epoch == (samples < 36));
    const auto last_of_first_epoch =
        *std::max_element(order.shuffle.begin(), order.shuffle.begin() + 20);
    if (samples < 36) CHECK(last_of_first_epoch == 19);
  }
}

TEST_CASE("sequences without a token are passed over") {
  const std::vector<std::int32_t> lengths = {0, 5, 0, 0, 4, 0};
  OrderSpec spec;
  spec.num_sequences = 6;
  spec.seq_length = 2;
  spec.samples = 9;
  const auto order = build_order(lengths, spec);
  CHECK(order.epochs == 3);
  CHECK(order.shuffle.size() == 13);
  std::int64_t before = -2;
  for (const Place& place : order.places) {
    std::int64_t tokens = place.offset;
    for (std::int32_t i = 0; i < place.document; ++i) {
      tokens += lengths[static_cast<std::size_t>(order.documents[static_cast<std::size_t>(i)])];
    }
    CHECK(tokens == before + 2);
    before = tokens;
  }
}

TEST_CASE("more passes than the sample index can hold are refused, not counted out") {
  const std::vector<std::int32_t> lengths = {1, 1};
  OrderSpec spec;
  spec.corpus = "tiny.bin";
  spec.num_sequences = 2;
  spec.seq_length = 4096;
  spec.samples = 10'000'000'000;
  CHECK_THAT(golden::refusal([&] { build_order(lengths, spec); }),
             Catch::Contains("tiny.bin") && Catch::Contains("10,000,000,000 samples"));
  spec.samples = std::int64_t{1} << 62;
  CHECK_THAT(golden::refusal([&] { build_order(lengths, spec); }), Catch::Contains("tiny.bin"));
}

}  // namespace
