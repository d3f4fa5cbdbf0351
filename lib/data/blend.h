// Several sample orders read as one: sample i of a blend is sample `sample[i]` of part `part[i]`
// (megatron.md 9.3).
#pragma once

#include <cstdint>
#include <vector>

namespace rr::data {

struct Blend {
  std::vector<std::int16_t> part;
  std::vector<std::int64_t> sample;
};

// `size` samples, each from the part that lags most behind its weight; the first wins a tie. The
// weights sum to 1.
Blend blend_by_weight(const std::vector<double>& weights, std::int64_t size);

// Every sample of every part once, in proportion to their sizes.
Blend blend_everything(const std::vector<std::int64_t>& sizes);

// weights / sum, with NumPy's order of summation: the quotients decide ties.
std::vector<double> normalised(const std::vector<double>& weights);

}  // namespace rr::data
