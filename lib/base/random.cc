// Philox4x32-10 and the inverse normal distribution function, in plain IEEE double arithmetic.
//
// The function is Wichura's AS 241 (Applied Statistics 37, 1988), routine PPND7, relative error
// about 1e-7. Its logarithm is our own (exponent bits and an atanh series), because two libm
// versions may differ in the last bit.
#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/philox.h"

namespace rr {
namespace {

// Numbers drawn at a time: small enough for the first-level cache, and a whole number of blocks.
constexpr std::int64_t kBatch = 512;

constexpr std::uint64_t mix(std::uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

PhiloxBlock block_at(std::uint64_t counter, const std::uint32_t (&key)[2]) {
  const auto low = static_cast<std::uint32_t>(counter);
  const auto high = static_cast<std::uint32_t>(counter >> 32);
  return philox4x32({low, high, 0, 0}, key[0], key[1]);
}

// The probability a draw stands for is (draw + 0.5) / 2^32; minus one half it is exact and odd.
double centred(std::uint32_t draw) {
  return (static_cast<double>(static_cast<std::int32_t>(draw ^ 0x80000000U)) + 0.5) * 0x1p-32;
}

constexpr double kCentral = 0.425;

double central_normal(double q) {
  const double r = 0.180625 - q * q;
  const double up = ((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179;
  const double down = ((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0;
  return q * up / down;
}

// -ln(p) for a normal number p in (0, 1), absolute error under 1e-9.
double minus_log(double p) {
  constexpr double kLn2 = 0.69314718055994530942;
  constexpr std::uint64_t kMantissa = 0xfffffffffffffULL;
  const auto bits = std::bit_cast<std::uint64_t>(p);
  // Mantissa in [0.75, 1.5): the exponent is taken after adding half of the top mantissa range.
  const std::uint64_t shifted = bits + 0x8000000000000ULL;
  const double exponent = static_cast<double>(static_cast<std::int32_t>(shifted >> 52) - 1023);
  const double m = std::bit_cast<double>((bits & kMantissa) | 0x3ff0000000000000ULL) *
                   ((bits & 0x8000000000000ULL) != 0 ? 0.5 : 1.0);
  const double s = (m - 1.0) / (m + 1.0);
  const double t = s * s;
  const double series =
      ((((((t / 13.0 + 1.0 / 11.0) * t + 1.0 / 9.0) * t + 1.0 / 7.0) * t + 0.2) * t) + 1.0 / 3.0) *
          t +
      1.0;
  return -(exponent * kLn2 + 2.0 * s * series);
}

// Draws have 33 significant bits, so r stays under 4.79 and AS 241's far tail (r > 5) is not
// needed.
double tail_normal(double q) {
  const double r = std::sqrt(minus_log(0.5 - std::fabs(q))) - 1.6;
  const double up = ((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777;
  const double down = (0.12021132975 * r + 0.73700164250) * r + 1.0;
  return std::copysign(up / down, q);
}

// The tails (15 of 100) are collected and done after the rest, which keeps both loops free of
// branches that cannot be predicted.
void normal_batch(const std::uint32_t* draws, int count, double deviation, float* out) {
  double tails[kBatch];
  int places[kBatch];
  double q[kBatch];
  int num_tails = 0;
  for (int i = 0; i < count; ++i) q[i] = centred(draws[i]);
  for (int i = 0; i < count; ++i) out[i] = static_cast<float>(deviation * central_normal(q[i]));
  for (int i = 0; i < count; ++i) {
    tails[num_tails] = q[i];
    places[num_tails] = i;
    num_tails += std::fabs(q[i]) > kCentral ? 1 : 0;
  }
  for (int i = 0; i < num_tails; ++i) tails[i] = tail_normal(tails[i]);
  for (int i = 0; i < num_tails; ++i) out[places[i]] = static_cast<float>(deviation * tails[i]);
}

}  // namespace

RandomStream::RandomStream(std::uint64_t seed, std::string_view name) {
  const std::uint64_t key = mix(mix(seed) ^ hash64(name));
  key_[0] = static_cast<std::uint32_t>(key);
  key_[1] = static_cast<std::uint32_t>(key >> 32);
}

std::uint32_t RandomStream::bits(std::uint64_t index) const {
  return block_at(index / 4, key_)[index % 4];
}

float RandomStream::uniform(std::uint64_t index) const {
  return static_cast<float>(bits(index) >> 8) * 0x1p-24F;
}

void RandomStream::normal(std::uint64_t first, std::int64_t count, float deviation,
                          float* out) const {
  std::uint32_t draws[kBatch];
  while (count > 0) {
    const auto skip = static_cast<int>(first % 4);
    const auto take = static_cast<int>(std::min<std::int64_t>(count, kBatch - skip));
    const std::uint64_t counter = first / 4;
    for (int block = 0; block * 4 < skip + take; ++block) {
      const PhiloxBlock four = block_at(counter + static_cast<std::uint64_t>(block), key_);
      std::copy(four.begin(), four.end(), draws + block * 4);
    }
    normal_batch(draws + skip, take, deviation, out);
    first += static_cast<std::uint64_t>(take);
    count -= take;
    out += take;
  }
}

std::uint64_t hash64(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace rr
