// Random numbers that are a pure function of (seed, name, index): the same model in every layout,
// on every CPU. Philox4x32-10 counters (Salmon et al., SC 2011); no libm.
#pragma once

#include <cstdint>
#include <string_view>

namespace rr {

// A stream of numbers for one named thing. Cheap to copy; immutable, so any thread may read.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view name);

  // 32 random bits for element `index`.
  std::uint32_t bits(std::uint64_t index) const;
  // Uniform in [0, 1), 2^-24 steps.
  float uniform(std::uint64_t index) const;
  // out[i] = standard deviation * N(0, 1) for elements first .. first + count - 1. The normal comes
  // from the inverse distribution function, evaluated with IEEE additions, multiplications,
  // divisions and square roots only, so the bits are the same on every machine. Any split of the
  // range gives the same values.
  void normal(std::uint64_t first, std::int64_t count, float deviation, float* out) const;

 private:
  std::uint32_t key_[2];
};

// 64-bit FNV-1a, for keys of streams and for cheap content hashes.
std::uint64_t hash64(std::string_view text);

}  // namespace rr
