// From a DataPlan to the samples of one split, and from samples to the batches of one rank.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/text.h"
#include "data/gpt.h"

namespace rr::data {

namespace {

// What makes up one split.
struct Mix {
  std::vector<std::string> prefixes;
  std::vector<double> weights;  // empty: by size
  std::array<double, 3> split = {1, 0, 0};
  int which = 0;                      // the part of `split` to take
  bool blended = false;               // even of a single corpus: it is built with the surplus
  const char* key = "dataset.blend";  // for messages
};

Mix mix_of(const plan::DataPlan& plan, Split split) {
  const auto which = static_cast<std::size_t>(split);
  Mix mix;
  if (!plan.split_prefixes[which].empty()) {
    mix.prefixes = plan.split_prefixes[which];
    mix.weights = plan.split_weights[which];
    mix.blended = mix.prefixes.size() > 1;
    mix.key = "dataset.blend_per_split";
    return mix;
  }
  mix.prefixes = plan.prefixes;
  mix.weights = plan.weights;
  mix.split = plan.split;
  mix.which = static_cast<int>(which);
  mix.blended = mix.prefixes.size() > 1 || !mix.weights.empty();
  return mix;
}

void check_mix(const Mix& mix, Split split, std::vector<Problem>& problems) {
  const auto add = [&](std::string what, std::string remedy) {
    problems.push_back({Severity::error, mix.key, "", std::move(what), std::move(remedy)});
  };
  if (mix.prefixes.empty()) {
    add(fmt::format("there is no corpus for the {} split.", name_of(split)),
        "Name one, or ask it for no samples (validation.eval_iters=0).");
  }
  if (mix.prefixes.size() > std::numeric_limits<std::int16_t>::max()) {
    add(fmt::format("{} corpora are more than a blend can hold, 32767.", mix.prefixes.size()),
        "Merge some of them.");
  }
  if (mix.weights.empty()) return;
  if (mix.weights.size() != mix.prefixes.size()) {
    add(fmt::format("{} weights for {} corpora.", mix.weights.size(), mix.prefixes.size()),
        "Give one weight per corpus, or none at all to blend by size.");
  }
  double sum = 0;
  for (const double weight : mix.weights) {
    sum += weight;
    if (std::isfinite(weight) && weight >= 0) continue;
    add(fmt::format("weight {} is not a number of 0 or more.", format_real(weight)),
        "Weights are shares: any positive numbers.");
  }
  if (sum == 0) add("all weights are 0.", "Give at least one corpus a positive weight.");
}

void check_options(const plan::DataPlan& plan, std::vector<Problem>& problems) {
  if (plan.seed > std::numeric_limits<std::uint32_t>::max()) {
    problems.push_back({Severity::error, "dataset.random_seed", "",
                        fmt::format("Seed must be between 0 and 2**32 - 1, got {}.", plan.seed),
                        "Use 1234."});
  }
  if (!plan.cache_path.empty()) {
    problems.push_back(
        {Severity::error, "dataset.path_to_cache", "",
         fmt::format("'{}': the sample order is not cached; it is built in memory at "
                     "every start.",
                     plan.cache_path),
         "Use null."});
  }
  const bool needs_end = plan.reset_position_ids || plan.reset_attention_mask || plan.eod_mask_loss;
  if (needs_end && plan.end_of_document < 0) {
    problems.push_back({Severity::error, "dataset", "",
                        "reset_position_ids, reset_attention_mask and eod_mask_loss need an "
                        "end-of-document id; the tokenizer has none.",
                        "Leave them false, or use a tokenizer that ends documents."});
  }
}

// The sequences of a corpus that the split gets. Throws UsageError when there is none.
std::pair<std::int64_t, std::int64_t> checked_range(const Mix& mix, Split split,
                                                    const Corpus& corpus) {
  const auto sequences = static_cast<std::int64_t>(corpus.lengths().size());
  const auto range = split_range(mix.split, mix.which, sequences);
  if (range.first < range.second) return range;
  throw UsageError(
      {Severity::error, "dataset.split", "",
       fmt::format(
           "the {} split gets {:.3g} % of the {} sequences of {}: none, so it has no tokens.",
           name_of(split), 100 * mix.split[static_cast<std::size_t>(mix.which)], sequences,
           corpus.file()),
       fmt::format("Give it at least {:.3g} % (one sequence), give it a corpus of its own "
                   "(dataset.blend_per_split), or ask it for no samples "
                   "(validation.eval_iters=0).",
                   std::min(100.0, 100.0 / static_cast<double>(sequences)))});
}

std::unique_ptr<GptSamples> build_part(const plan::DataPlan& plan, const Mix& mix, Split split,
                                       std::unique_ptr<Corpus> corpus, std::int64_t samples) {
  const auto range = checked_range(mix, split, *corpus);
  OrderSpec spec;
  spec.corpus = corpus->file();
  spec.first_sequence = range.first;
  spec.num_sequences = range.second - range.first;
  spec.samples = samples;
  spec.seq_length = plan.seq_length;
  spec.extra_tokens = plan.add_extra_token ? 1 : 0;
  spec.drop_last_partial = split != Split::valid || plan.drop_last_partial_validation;
  spec.seed = static_cast<std::uint32_t>(plan.seed);
  Order order = build_order(corpus->lengths(), spec);
  return std::make_unique<GptSamples>(plan, std::move(corpus), std::move(order));
}

// Builds one sample order per corpus; the problems of all of them are thrown together.
std::vector<std::unique_ptr<GptSamples>> build_parts(const plan::DataPlan& plan, const Mix& mix,
                                                     Split split,
                                                     const std::vector<std::int64_t>& samples) {
  std::vector<std::unique_ptr<GptSamples>> parts;
  std::vector<Problem> problems;
  for (std::size_t i = 0; i < mix.prefixes.size(); ++i) {
    try {
      parts.push_back(build_part(plan, mix, split, open_indexed(mix.prefixes[i]), samples[i]));
    } catch (const UsageError& error) {
      problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    }
  }
  if (!problems.empty()) throw UsageError(std::move(problems));
  return parts;
}

std::int64_t ceiled(double value) { return static_cast<std::int64_t>(std::ceil(value)); }

Built built(std::vector<std::unique_ptr<GptSamples>> parts, Blend blend) {
  std::int64_t tokens = 0;
  for (const auto& part : parts) tokens += part->order().tokens_per_epoch;
  return {std::make_unique<BlendedSamples>(std::move(parts), std::move(blend)), tokens};
}

Built built(std::unique_ptr<GptSamples> part) {
  const std::int64_t tokens = part->order().tokens_per_epoch;
  return {std::move(part), tokens};
}

Built blend_weighted(const plan::DataPlan& plan, const Mix& mix, Split split, std::int64_t asked) {
  RR_CHECK(asked >= 0, "a weighted blend needs its size");
  const auto weights = normalised(mix.weights);
  std::vector<std::int64_t> samples;
  std::int64_t size = 0;
  for (const double weight : weights) {
    const std::int64_t drawn = ceiled(static_cast<double>(asked) * weight);
    samples.push_back(ceiled(static_cast<double>(drawn) * (1.0 + plan.surplus)));
    size += drawn;
  }
  auto parts = build_parts(plan, mix, split, samples);
  // Normalised once more, as the reference does: it can move the last bit, and with it a tie.
  return built(std::move(parts), blend_by_weight(normalised(weights), size));
}

Built blend_by_size(const plan::DataPlan& plan, const Mix& mix, Split split, std::int64_t asked) {
  auto parts =
      build_parts(plan, mix, split, std::vector<std::int64_t>(mix.prefixes.size(), kOneEpoch));
  std::vector<std::int64_t> sizes;
  std::vector<double> weights;
  std::int64_t total = 0;
  for (const auto& part : parts) {
    sizes.push_back(part->size());
    weights.push_back(static_cast<double>(part->size()));
    total += part->size();
  }
  Blend blend;
  if (total > 0) {
    blend = asked == kOneEpoch ? blend_everything(sizes)
                               : blend_by_weight(normalised(weights), std::min(asked, total));
  }
  return built(std::move(parts), std::move(blend));
}

}  // namespace

const char* name_of(Split split) {
  switch (split) {
    case Split::train:
      return "train";
    case Split::valid:
      return "valid";
    case Split::test:
      return "test";
  }
  return "";
}

Built build_samples(const plan::DataPlan& plan, Split split) {
  RR_CHECK(plan.seq_length > 0 && plan.vocab > 0, "a plan of data needs sizes");
  const std::int64_t asked = plan.samples[static_cast<std::size_t>(split)];
  std::vector<Problem> problems;
  check_options(plan, problems);
  Mix mix = mix_of(plan, split);
  if (plan.mock) {
    mix.blended = false;
  } else {
    check_mix(mix, split, problems);
  }
  if (!problems.empty()) throw UsageError(std::move(problems));
  if (plan.mock) {
    const std::int64_t end = plan.end_of_document < 0 ? plan.vocab - 1 : plan.end_of_document;
    return built(build_part(plan, mix, split, make_mock(plan.vocab, end), asked));
  }
  if (!mix.blended) {
    return built(build_part(plan, mix, split, open_indexed(mix.prefixes.front()), asked));
  }
  return mix.weights.empty() ? blend_by_size(plan, mix, split, asked)
                             : blend_weighted(plan, mix, split, asked);
}

namespace {

// A share of exactly 0 says that no test split is wanted, though evaluation is on.
bool has_no_share(const plan::DataPlan& plan) {
  const Mix mix = mix_of(plan, Split::test);
  return mix.split[static_cast<std::size_t>(mix.which)] == 0;
}

}  // namespace

std::unique_ptr<Samples> open(const plan::DataPlan& plan, Split split) {
  const std::int64_t asked = plan.samples[static_cast<std::size_t>(split)];
  if (asked == 0 || (split == Split::test && has_no_share(plan))) return nullptr;
  Built data = build_samples(plan, split);
  const Samples& samples = *data.samples;
  const std::int64_t tokens = data.tokens;
  const Mix mix = mix_of(plan, split);
  const std::int64_t needed = plan.seq_length + (plan.add_extra_token ? 1 : 0);
  if (tokens < needed || samples.size() == 0) {
    throw UsageError(
        {Severity::error, mix.key, join(mix.prefixes, ", "),
         fmt::format("the {} split holds {} tokens, less than one sequence of {}.", name_of(split),
                     format_count(tokens), format_count(needed)),
         fmt::format("Use model.seq_length={} or less, a larger share in dataset.split, or more "
                     "data.",
                     std::max<std::int64_t>(1, tokens - (needed - plan.seq_length)))});
  }
  if (split == Split::train && samples.size() < asked) {
    throw UsageError(
        {Severity::error, mix.key, join(mix.prefixes, ", "),
         fmt::format("the corpora hold {} samples without repeating; training asks for "
                     "{}.",
                     format_count(samples.size()), format_count(asked)),
         "Give weights, so that corpora repeat, or lower train.train_iters."});
  }
  return std::move(data.samples);
}

Batch read_batch(const Samples& samples, std::int64_t consumed, int micro_batch,
                 std::int64_t micro_batch_size, int data_rank, int data_size, AtEnd at_end) {
  RR_CHECK(consumed >= 0 && micro_batch >= 0 && micro_batch_size > 0 && data_rank >= 0 &&
               data_rank < data_size && samples.size() > 0,
           fmt::format("rank {} of {}, {} consumed", data_rank, data_size, consumed));
  const std::int64_t together = micro_batch_size * data_size;
  const std::int64_t first = consumed + micro_batch * together;
  // Decided on what all ranks read together, so that all of them refuse or none.
  if (at_end == AtEnd::refuse && first + together > samples.size()) {
    throw UsageError({Severity::error, "dataset", "",
                      fmt::format("the data ends after {} samples; samples {} to {} are asked for.",
                                  format_count(samples.size()), first, first + together - 1),
                      "Lower train.train_iters, or give more data."});
  }
  Batch batch;
  for (std::int64_t i = 0; i < micro_batch_size; ++i) {
    samples.read((first + data_rank * micro_batch_size + i) % samples.size(), batch);
  }
  return batch;
}

}  // namespace rr::data
