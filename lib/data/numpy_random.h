// NumPy's two generators, bit for bit: Megatron's sample order is a function of them.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

namespace rr::data {

// numpy.random.RandomState(seed): MT19937, seeded from one 32-bit number.
class RandomState {
 public:
  explicit RandomState(std::uint32_t seed);

  std::uint32_t next();

  // Uniform in [0, max], by rejection under the smallest mask of ones that covers max.
  std::uint32_t interval(std::uint32_t max);

  // RandomState.shuffle of a one-dimensional array of fewer than 2^32 elements.
  template <class T>
  void shuffle(T* values, std::int64_t count) {
    for (std::int64_t i = count - 1; i > 0; --i) {
      std::swap(values[i], values[interval(static_cast<std::uint32_t>(i))]);
    }
  }

 private:
  void refill();

  std::array<std::uint32_t, 624> state_;
  int used_ = 624;
};

// numpy.random.default_rng(seed): PCG64 (XSL-RR 128/64) seeded through SeedSequence.
class Pcg64 {
 public:
  explicit Pcg64(std::uint32_t seed);

  std::uint64_t next64();
  // The low half of a 64-bit draw, then its high half.
  std::uint32_t next32();
  // Generator.integers(low, high) for 0 < high - low < 2^32: Lemire's method on 32-bit draws.
  std::int64_t integer(std::int64_t low, std::int64_t high);

 private:
  // 128-bit numbers as two halves: a native type for them is not in the standard.
  struct Wide {
    std::uint64_t high = 0, low = 0;
  };
  void step();

  Wide state_, increment_;
  bool has_half_ = false;
  std::uint32_t half_ = 0;
};

}  // namespace rr::data
