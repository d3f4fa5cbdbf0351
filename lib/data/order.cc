// Epochs, then the shuffled sequences, then where samples start, then the shuffled samples: one
// generator serves them all, in this order.
#include "data/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "data/numpy_random.h"

namespace rr::data {

namespace {

// Token counts stay far from the ends of 64 bits.
constexpr std::int64_t kMost = std::int64_t{1} << 61;

using Lengths = std::vector<std::int32_t>;

[[noreturn]] void refuse(const OrderSpec& spec, std::string what, std::string remedy) {
  throw UsageError({Severity::error, spec.corpus, "", std::move(what), std::move(remedy)});
}

[[noreturn]] void refuse_size(const OrderSpec& spec, std::int64_t tokens) {
  refuse(spec,
         fmt::format("{} samples of {} tokens need more passes over {} tokens in {} sequences than "
                     "the sample index can hold.",
                     spec.samples == kOneEpoch ? "all" : format_count(spec.samples),
                     spec.seq_length, format_count(tokens), format_count(spec.num_sequences)),
         "Ask for fewer samples (train.train_iters, validation.eval_iters), or give more data.");
}

std::int64_t count_tokens(const Lengths& lengths, const OrderSpec& spec) {
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < spec.num_sequences; ++i) {
    tokens += lengths[static_cast<std::size_t>(spec.first_sequence + i)];
  }
  return tokens;
}

// Mixed samples that are never asked for are missing from every epoch. Where they would be many (a
// short last epoch), the other epochs are read whole first and the last one apart.
bool last_epoch_is_short(const OrderSpec& spec, const Order& order, std::int64_t samples_before) {
  const std::int64_t from_last = spec.samples - samples_before;
  const std::int64_t per_epoch = (order.tokens_per_epoch - spec.extra_tokens) / spec.seq_length;
  return from_last < static_cast<std::int64_t>(0.80 * static_cast<double>(per_epoch));
}

void append_epochs(const OrderSpec& spec, std::int64_t epochs, RandomState& random,
                   std::vector<std::int32_t>& documents) {
  const auto begin = static_cast<std::ptrdiff_t>(documents.size());
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (std::int64_t i = 0; i < spec.num_sequences; ++i) {
      documents.push_back(static_cast<std::int32_t>(spec.first_sequence + i));
    }
  }
  random.shuffle(documents.data() + begin, epochs * spec.num_sequences);
}

// Samples take seq_length tokens each; the extra ones are read by the next sample again.
std::vector<Place> cut_samples(const Lengths& lengths, const OrderSpec& spec, const Order& order,
                               std::int64_t samples) {
  std::vector<Place> places(static_cast<std::size_t>(samples) + 1);
  const auto last = static_cast<std::int64_t>(order.documents.size()) - 1;
  std::int64_t document = 0, offset = 0;
  const auto length_of = [&](std::int64_t i) {
    return lengths[static_cast<std::size_t>(order.documents[static_cast<std::size_t>(i)])];
  };
  for (std::size_t k = 1; k < places.size(); ++k) {
    std::int64_t missing = spec.seq_length + spec.extra_tokens;
    std::int64_t left = length_of(document) - offset;
    while (left < missing && document < last) {
      missing -= left;
      ++document;
      offset = 0;
      left = length_of(document);
    }
    // Only a partial last sample, where it is kept, finds less than it misses.
    offset += std::min(missing, left) - spec.extra_tokens;
    places[k] = {static_cast<std::int32_t>(document), static_cast<std::int32_t>(offset)};
  }
  return places;
}

void append_shuffled(std::int64_t begin, std::int64_t end, RandomState& random,
                     std::vector<std::uint32_t>& shuffle) {
  const std::size_t first = shuffle.size();
  shuffle.resize(first + static_cast<std::size_t>(end - begin));
  std::iota(shuffle.begin() + static_cast<std::ptrdiff_t>(first), shuffle.end(),
            static_cast<std::uint32_t>(begin));
  random.shuffle(shuffle.data() + first, end - begin);
}

}  // namespace

Order build_order(const Lengths& lengths, const OrderSpec& spec) {
  Order order;
  order.tokens_per_epoch = count_tokens(lengths, spec);
  const std::int64_t per_epoch = order.tokens_per_epoch, extra = spec.extra_tokens;
  if (per_epoch == 0) {
    refuse(spec,
           fmt::format("sequences {} to {} hold no token.", spec.first_sequence,
                       spec.first_sequence + spec.num_sequences - 1),
           "Give this split more sequences (dataset.split).");
  }
  std::int64_t samples_before = 0;
  if (spec.samples != kOneEpoch) {
    if (spec.samples > kMost / spec.seq_length) refuse_size(spec, per_epoch);
    order.epochs =
        std::max<std::int64_t>(1, ceil_div(spec.samples * spec.seq_length + extra, per_epoch));
    if (order.epochs > 1) {
      samples_before = ((order.epochs - 1) * per_epoch - extra) / spec.seq_length;
      order.separate_last_epoch = last_epoch_is_short(spec, order, samples_before);
    }
  }
  const std::int64_t tokens = order.epochs * per_epoch - extra;
  const std::int64_t samples =
      spec.drop_last_partial ? tokens / spec.seq_length : ceil_div(tokens, spec.seq_length);
  if (order.epochs > std::numeric_limits<std::int32_t>::max() / spec.num_sequences ||
      samples >= std::numeric_limits<std::uint32_t>::max()) {
    refuse_size(spec, per_epoch);
  }

  RandomState random(spec.seed);
  const std::int64_t mixed_epochs = order.epochs - (order.separate_last_epoch ? 1 : 0);
  order.documents.reserve(static_cast<std::size_t>(order.epochs * spec.num_sequences));
  append_epochs(spec, mixed_epochs, random, order.documents);
  if (order.separate_last_epoch) append_epochs(spec, 1, random, order.documents);

  order.places = cut_samples(lengths, spec, order, samples);

  order.shuffle.reserve(static_cast<std::size_t>(samples));
  const std::int64_t mixed_samples = order.separate_last_epoch ? samples_before : samples;
  append_shuffled(0, mixed_samples, random, order.shuffle);
  if (order.separate_last_epoch) append_shuffled(mixed_samples, samples, random, order.shuffle);
  return order;
}

std::pair<std::int64_t, std::int64_t> split_range(const std::array<double, 3>& split, int which,
                                                  std::int64_t sequences) {
  double begin = 0;
  for (int i = 0; i < which; ++i) begin += split[static_cast<std::size_t>(i)];
  const double end = begin + split[static_cast<std::size_t>(which)];
  // The sum of three rounded fractions may pass 1 in the last bit, never enough to reach a
  // sequence.
  const auto border = [sequences](double fraction) {
    const double exact = fraction * static_cast<double>(sequences);
    return std::min(sequences, static_cast<std::int64_t>(std::nearbyint(exact)));
  };
  return {border(begin), border(end)};
}

}  // namespace rr::data
