// Megatron's sample order over one corpus: which tokens make up sample i (megatron.md 9.3).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/base.h"

namespace rr::data {

// Asked for as many samples as one pass over the tokens gives.
inline constexpr std::int64_t kOneEpoch = -1;

struct OrderSpec {
  std::string corpus;  // for messages
  std::int64_t first_sequence = 0, num_sequences = 0;
  std::int64_t samples = kOneEpoch;
  std::int64_t seq_length = 0;
  std::int64_t extra_tokens = 1;  // 1: labels come from the token after the last; 0: they do not
  bool drop_last_partial = true;
  std::uint32_t seed = 0;
};

// A place in the stream of tokens that the shuffled sequences make.
struct Place {
  std::int32_t document = 0;  // index into Order::documents
  std::int32_t offset = 0;    // tokens into that sequence
  bool operator==(const Place&) const = default;
};

struct Order {
  std::vector<std::int32_t> documents;  // every epoch's sequences, shuffled
  std::vector<Place> places;            // [samples + 1]; sample k lies between places k and k + 1
  std::vector<std::uint32_t> shuffle;   // [samples] the order in which they are read
  std::int64_t tokens_per_epoch = 0;
  std::int64_t epochs = 1;
  bool separate_last_epoch = false;  // the last epoch's samples come after all others
};

// Throws UsageError when the sequences hold no token or the order does not fit its 32-bit numbers.
Order build_order(const std::vector<std::int32_t>& lengths, const OrderSpec& spec);

// Sequences [first, second) of `sequences` that split 0, 1 or 2 gets; borders round half to even.
std::pair<std::int64_t, std::int64_t> split_range(const std::array<double, 3>& split, int which,
                                                  std::int64_t sequences);

}  // namespace rr::data
