// MT19937 (Matsumoto and Nishimura, 1998) and PCG64 (O'Neill, 2014) as NumPy seeds and uses them.
#include "data/numpy_random.h"

#include <bit>

namespace rr::data {

// ---- MT19937 --------------------------------------------------------------------------------

RandomState::RandomState(std::uint32_t seed) {
  std::uint32_t word = seed;
  for (std::uint32_t i = 0; i < state_.size(); ++i) {
    state_[i] = word;
    word = 1812433253U * (word ^ (word >> 30)) + i + 1;
  }
}

void RandomState::refill() {
  constexpr std::size_t n = 624, m = 397;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t mixed = (state_[i] & 0x80000000U) | (state_[(i + 1) % n] & 0x7fffffffU);
    state_[i] = state_[(i + m) % n] ^ (mixed >> 1) ^ ((mixed & 1U) ? 0x9908b0dfU : 0U);
  }
  used_ = 0;
}

std::uint32_t RandomState::next() {
  if (used_ == 624) refill();
  std::uint32_t word = state_[static_cast<std::size_t>(used_++)];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680U;
  word ^= (word << 15) & 0xefc60000U;
  return word ^ (word >> 18);
}

std::uint32_t RandomState::interval(std::uint32_t max) {
  if (max == 0) return 0;
  const std::uint32_t mask = 0xffffffffU >> std::countl_zero(max);
  std::uint32_t value = next() & mask;
  while (value > max) value = next() & mask;
  return value;
}

// ---- PCG64 ----------------------------------------------------------------------------------

namespace {

constexpr int kPoolWords = 4;

// NumPy's SeedSequence for one 32-bit word of entropy: a pool of hashed words, mixed pairwise, from
// which the state is drawn.
std::array<std::uint32_t, 8> seed_words(std::uint32_t seed) {
  std::uint32_t hash = 0x43b0d7e5U;
  const auto hashed = [&hash](std::uint32_t value) {
    value ^= hash;
    hash *= 0x931e8875U;
    value *= hash;
    return value ^ (value >> 16);
  };
  std::array<std::uint32_t, kPoolWords> pool;
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = hashed(i == 0 ? seed : 0);
  for (std::size_t from = 0; from < pool.size(); ++from) {
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      const std::uint32_t mixed = 0xca01f9ddU * pool[to] - 0x4973f715U * hashed(pool[from]);
      pool[to] = mixed ^ (mixed >> 16);
    }
  }
  std::array<std::uint32_t, 8> words;
  std::uint32_t output_hash = 0x8b51f9ddU;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::uint32_t value = pool[i % pool.size()] ^ output_hash;
    output_hash *= 0x58f38dedU;
    value *= output_hash;
    words[i] = value ^ (value >> 16);
  }
  return words;
}

// The upper half of a 64 by 64 bit product.
std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a_low = a & 0xffffffffU, a_high = a >> 32;
  const std::uint64_t b_low = b & 0xffffffffU, b_high = b >> 32;
  const std::uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32);
  const std::uint64_t carry = (middle & 0xffffffffU) + a_low * b_high;
  return a_high * b_high + (middle >> 32) + (carry >> 32);
}

}  // namespace

Pcg64::Pcg64(std::uint32_t seed) {
  const auto words = seed_words(seed);
  const auto wide_word = [&words](std::size_t i) {
    return static_cast<std::uint64_t>(words[2 * i + 1]) << 32 | words[2 * i];
  };
  increment_ = {wide_word(2) << 1 | wide_word(3) >> 63, wide_word(3) << 1 | 1};
  step();
  const std::uint64_t low = state_.low + wide_word(1);
  state_ = {state_.high + wide_word(0) + (low < state_.low ? 1 : 0), low};
  step();
}

void Pcg64::step() {
  constexpr std::uint64_t kHigh = 2549297995355413924U, kLow = 4865540595714422341U;
  const std::uint64_t low = state_.low * kLow;
  const std::uint64_t high =
      multiply_high(state_.low, kLow) + state_.high * kLow + state_.low * kHigh;
  state_.low = low + increment_.low;
  state_.high = high + increment_.high + (state_.low < low ? 1 : 0);
}

std::uint64_t Pcg64::next64() {
  step();
  return std::rotr(state_.high ^ state_.low, static_cast<int>(state_.high >> 58));
}

std::uint32_t Pcg64::next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const std::uint64_t word = next64();
  has_half_ = true;
  half_ = static_cast<std::uint32_t>(word >> 32);
  return static_cast<std::uint32_t>(word);
}

std::int64_t Pcg64::integer(std::int64_t low, std::int64_t high) {
  const auto range = static_cast<std::uint32_t>(high - low);
  // Products whose low half is under 2^32 mod range would make some values likelier: drawn again.
  const std::uint32_t threshold = (0U - range) % range;
  std::uint64_t product = static_cast<std::uint64_t>(next32()) * range;
  while (static_cast<std::uint32_t>(product) < threshold) {
    product = static_cast<std::uint64_t>(next32()) * range;
  }
  return low + static_cast<std::int64_t>(product >> 32);
}

}  // namespace rr::data
