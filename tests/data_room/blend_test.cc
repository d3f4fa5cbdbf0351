// Blends and mock data against the reference's own.
#include "data/blend.h"

#include "data/gpt.h"
#include "golden.h"

namespace {

using namespace rr::data;
using nlohmann::json;

TEST_CASE("the blending helpers choose part and sample as the reference's do") {
  const json all = golden::json("blend_helper.json");
  for (const auto& expected : all) {
    const bool weighted = expected["kind"] == "weights";
    CAPTURE(expected.dump());
    const Blend blend = weighted
                            ? blend_by_weight(expected["weights"].get<std::vector<double>>(),
                                              expected["size"].get<std::int64_t>())
                            : blend_everything(expected["sizes"].get<std::vector<std::int64_t>>());
    CHECK(golden::widened(blend.part) ==
          expected["dataset_index"].get<std::vector<std::int64_t>>());
    CHECK(blend.sample == expected["dataset_sample_index"].get<std::vector<std::int64_t>>());
  }
}

TEST_CASE("a corpus without samples adds nothing to a blend of everything") {
  const Blend blend = blend_everything({2, 0, 1});
  CHECK(golden::widened(blend.part) == std::vector<std::int64_t>{0, 2, 0});
}

TEST_CASE("weights are summed in NumPy's order") {
  // Left to right, each small term would be lost beside 1; in eight lanes they add up first.
  std::vector<double> weights(16, 1e-16);
  weights[0] = 1.0;
  CHECK(normalised(weights)[0] == 1.0 / (((1.0 + 2e-16) + 4e-16) + 8e-16));
  CHECK(normalised(weights)[0] < 1.0);
  CHECK(normalised({3, 1})[0] == 0.75);
}

struct Corpora {
  std::vector<std::string> prefixes;
  std::vector<double> weights;
};

Corpora corpora_of(const json& blend) {
  Corpora corpora;
  for (const auto& name : blend[0]) corpora.prefixes.push_back(golden::path(name));
  if (!blend[1].is_null()) corpora.weights = blend[1].get<std::vector<double>>();
  return corpora;
}

rr::plan::DataPlan plan_of(const json& test) {
  auto plan = golden::plan_for("", test["sequence_length"], 0, 100000);
  plan.prefixes.clear();
  plan.seed = test["seed"].get<std::uint64_t>();
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& size = test["sizes"][i];
    plan.samples[i] = size.is_null() ? kOneEpoch : size.get<std::int64_t>();
  }
  if (test["blend"].is_null()) {
    for (std::size_t i = 0; i < 3; ++i) {
      const auto corpora = corpora_of(test["blend_per_split"][i]);
      plan.split_prefixes[i] = corpora.prefixes;
      plan.split_weights[i] = corpora.weights;
    }
    return plan;
  }
  const auto corpora = corpora_of(test["blend"]);
  plan.prefixes = corpora.prefixes;
  plan.weights = corpora.weights;
  const std::string split = test["split"];
  plan.split = split == "90,8,2"  ? std::array<double, 3>{0.9, 0.08, 0.02}
               : split == "9,1,0" ? std::array<double, 3>{0.9, 0.1, 0}
                                  : std::array<double, 3>{1, 0, 0};
  return plan;
}

void check_part(const Order& order, const json& expected) {
  CHECK(order.shuffle.size() == expected["length"].get<std::size_t>());
  CHECK(order.epochs == expected["epochs"].get<std::int64_t>());
  CHECK(order.tokens_per_epoch == expected["tokens_per_epoch"].get<std::int64_t>());
  CHECK(order.separate_last_epoch == expected["separate_final_epoch"].get<bool>());
}

void check_split(const Samples& samples, const json& expected, const std::string& stem) {
  CHECK(samples.size() == expected["length"].get<std::int64_t>());
  if (expected["kind"] == "gpt") {
    check_part(dynamic_cast<const GptSamples&>(samples).order(), expected);
  } else {
    const auto& blended = dynamic_cast<const BlendedSamples&>(samples);
    CHECK(golden::widened(blended.blend().part) == golden::npy(stem + ".dataset_index.npy"));
    CHECK(blended.blend().sample == golden::npy(stem + ".dataset_sample_index.npy"));
    for (std::size_t i = 0; i < blended.parts().size(); ++i) {
      check_part(blended.parts()[i]->order(), expected["parts"][i]);
    }
  }
  Batch batch;
  for (std::int64_t i = 0; i < expected["samples_dumped"].get<std::int64_t>(); ++i) {
    samples.read(i, batch);
  }
  CHECK(batch.tokens == golden::npy(stem + ".tokens.npy"));
  CHECK(batch.labels == golden::npy(stem + ".labels.npy"));
}

TEST_CASE("every blend, weighted or by size, sized or whole, equals the reference's") {
  int checked = 0;
  const json cases = golden::json("cases.json");
  for (const auto& test : cases["blends"]) {
    const auto plan = plan_of(test);
    for (const Split split : {Split::train, Split::valid, Split::test}) {
      const auto& expected = test["splits"][name_of(split)];
      if (expected.is_null()) continue;
      const std::string stem = test["name"].get<std::string>() + "/" + name_of(split);
      CAPTURE(stem);
      check_split(*open(plan, split), expected, stem);
      ++checked;
    }
  }
  CHECK(checked == 11);
}

TEST_CASE("a blend that draws more samples of a corpus than it has names the surplus") {
  auto plan = golden::plan_for(golden::path("corpus_a"), 64, 150);
  auto built = build_samples(plan, Split::train);
  std::vector<std::unique_ptr<GptSamples>> parts;
  parts.emplace_back(dynamic_cast<GptSamples*>(built.samples.release()));
  const std::int64_t too_many = parts[0]->size() + 1;
  CHECK_THAT(
      golden::refusal([&] { BlendedSamples(std::move(parts), blend_by_weight({1.0}, too_many)); }),
      Catch::Contains("mid_level_dataset_surplus") && Catch::Contains("oversamples"));
}

// ---- mock data --------------------------------------------------------------------------------

struct Sums {
  std::int64_t plain = 0;
  std::uint64_t weighted = 0, count = 0;
  void add(std::int64_t value) {
    plain += value;
    weighted += static_cast<std::uint64_t>(value) * ++count;
  }
};

void check_sums(const Sums& sums, const json& expected, const std::string& name) {
  CAPTURE(name);
  CHECK(sums.plain == expected[name + "_sum"].get<std::int64_t>());
  CHECK(sums.weighted == expected[name + "_weighted_sum"].get<std::uint64_t>());
}

void check_mock_order(const Order& order, const json& expected, const std::string& stem) {
  CHECK(order.tokens_per_epoch == expected["tokens_per_epoch"].get<std::int64_t>());
  REQUIRE(order.shuffle.size() == expected["length"].get<std::size_t>());
  Sums documents, places, shuffle;
  std::vector<std::int64_t> flat;
  for (const auto document : order.documents) documents.add(document);
  for (const Place& place : order.places) {
    places.add(place.document);
    places.add(place.offset);
    flat.push_back(place.document);
    flat.push_back(place.offset);
  }
  for (const auto sample : order.shuffle) shuffle.add(sample);
  check_sums(documents, expected, "document_index");
  check_sums(places, expected, "sample_index");
  check_sums(shuffle, expected, "shuffle_index");
  for (const auto& [name, values] :
       {std::pair{"document", golden::widened(order.documents)}, std::pair{"sample", flat},
        std::pair{"shuffle", golden::widened(order.shuffle)}}) {
    const auto head = golden::npy(stem + "." + name + "_index_first.npy");
    CHECK(golden::first(values, head.size()) == head);
  }
}

TEST_CASE("mock data has the reference's lengths, order, tokens and labels") {
  const json expected = golden::json("cases.json")["mock"];
  const auto corpus = make_mock(expected["vocab_size"], expected["eod"]);
  const auto& lengths = corpus->lengths();
  REQUIRE(lengths.size() == expected["size"].get<std::size_t>());
  const auto head = golden::npy("mock/lengths_first.npy");
  CHECK(golden::first(golden::widened(lengths), head.size()) == head);
  std::int64_t sum = 0;
  for (const auto length : lengths) sum += length;
  CHECK(sum == expected["lengths_sum"].get<std::int64_t>());
  for (std::size_t i = 0; i < expected["lengths_every_5000"].size(); ++i) {
    CHECK(lengths[i * 5000] == expected["lengths_every_5000"][i].get<std::int32_t>());
  }
  for (const auto& document : expected["shortest_documents"]) {
    const auto tokens = document[1].get<std::vector<std::int64_t>>();
    std::vector<std::int64_t> read(tokens.size());
    corpus->read(document[0], 0, static_cast<std::int64_t>(read.size()), read.data());
    CHECK(read == tokens);
  }

  rr::plan::DataPlan plan;
  plan.seq_length = expected["sequence_length"];
  plan.seed = expected["seed"].get<std::uint64_t>();
  plan.vocab = expected["vocab_size"];
  plan.split = {1.0 / 3, 1.0 / 3, 1.0 / 3};
  for (const Split split : {Split::train, Split::valid, Split::test}) {
    const auto& one = expected["splits"][name_of(split)];
    const std::string stem = std::string("mock/") + name_of(split);
    CAPTURE(stem);
    plan.samples[static_cast<std::size_t>(split)] = one["num_samples_requested"];
    const auto samples = open(plan, split);
    check_mock_order(dynamic_cast<const GptSamples&>(*samples).order(), one, stem);
    Batch batch;
    for (std::int64_t i = 0; i < one["samples_dumped"].get<std::int64_t>(); ++i) {
      samples->read(i, batch);
    }
    CHECK(batch.tokens == golden::npy(stem + ".tokens.npy"));
    CHECK(batch.labels == golden::npy(stem + ".labels.npy"));
  }
}

}  // namespace
