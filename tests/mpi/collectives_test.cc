// Every collective against its definition: odd sizes, uneven and zero counts, small pieces, in
// place, and sums whose bits depend on the order.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "mpi/world.h"

using namespace rr;
using namespace rr::comm;
using rr::test::all_ranks;
using rr::test::world;

namespace {

// Groups over the whole world: with the default pieces and with pieces of 1,000 bytes.
std::vector<std::unique_ptr<Communicator>> both_piece_sizes() {
  static const std::unique_ptr<World> small = make_mpi_world({.piece_bytes = 1000});
  std::vector<std::unique_ptr<Communicator>> groups;
  groups.push_back(world().make_group(all_ranks()));
  groups.push_back(small->make_group(all_ranks()));
  return groups;
}

// Values of one rank whose fp32 sum depends on the order: magnitudes over 12 decades.
std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto bits =
        static_cast<std::uint32_t>(i) * 2654435761U + static_cast<std::uint32_t>(rank) * 40503U;
    bits = (bits ^ (bits >> 15)) * 2246822519U;
    bits ^= bits >> 13;
    // Any sign and mantissa; the exponent from 2^-20 to 2^19.
    values[i] = std::bit_cast<float>((bits & 0x807fffffU) | ((107U + (bits >> 8) % 40U) << 23));
  }
  return values;
}

// Left to right over the ranks: the definition of our sums.
std::vector<float> sum_in_rank_order(int ranks, std::size_t count) {
  std::vector<float> sum = values_of(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<float> values = values_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return sum;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

// Byte `i` of what `from` has for `to`.
std::byte pattern(int from, int to, std::int64_t i) {
  return static_cast<std::byte>((from * 37 + to * 101 + i * 7) % 251);
}

constexpr std::size_t kSizes[] = {0, 1, 2, 3, 7, 249, 250, 251, 1001, 4096, 4097, 33'333};

}  // namespace

TEST_CASE("the order of a sum is visible in the values these tests use", "[np3]") {
  const std::size_t count = 4096;
  const std::vector<float> forward = sum_in_rank_order(3, count);
  std::vector<float> backward = values_of(2, count);
  for (int rank : {1, 0}) {
    const std::vector<float> values = values_of(rank, count);
    for (std::size_t i = 0; i < count; ++i) backward[i] += values[i];
  }
  CHECK_FALSE(same_bits(forward, backward));
}

TEST_CASE("all_reduce_sum gives every rank the sum in rank order, bit for bit",
          "[np2][np3][np4][np8]") {
  for (const auto& group : both_piece_sizes()) {
    for (const std::size_t size : kSizes) {
      INFO("size " << size);
      std::vector<float> data = values_of(world().rank(), size);
      group->all_reduce_sum(std::span(data));
      CHECK(same_bits(data, sum_in_rank_order(world().size(), size)));
    }
  }
}

TEST_CASE("sums follow the order of the group, not of the world", "[np3][np4]") {
  std::vector<int> members = all_ranks();
  std::reverse(members.begin(), members.end());
  const auto group = world().make_group(members);
  CHECK(group->rank() == world().size() - 1 - world().rank());
  const std::size_t size = 5001;
  std::vector<float> expected = values_of(members.front(), size);
  for (std::size_t m = 1; m < members.size(); ++m) {
    const std::vector<float> values = values_of(members[m], size);
    for (std::size_t i = 0; i < size; ++i) expected[i] += values[i];
  }
  std::vector<float> data = values_of(world().rank(), size);
  group->all_reduce_sum(std::span(data));
  CHECK(same_bits(data, expected));
}

TEST_CASE("all_reduce_sum of doubles keeps double precision", "[np2][np4]") {
  for (const auto& group : both_piece_sizes()) {
    for (const std::size_t size : {1UL, 3UL, 5000UL}) {
      std::vector<double> data(size, 1.0 + std::ldexp(world().rank() + 1, -40));
      group->all_reduce_sum(std::span(data));
      const int n = world().size();
      const double expected = n + std::ldexp(n * (n + 1) / 2, -40);
      CHECK(std::all_of(data.begin(), data.end(), [&](double x) { return x == expected; }));
    }
  }
}

TEST_CASE("all_reduce_max finds the largest, and NaN from any rank wins", "[np2][np3]") {
  const auto group = world().make_group(all_ranks());
  for (const std::size_t size : {1UL, 5000UL}) {
    std::vector<double> data(size);
    for (std::size_t i = 0; i < size; ++i) data[i] = i % 2 ? world().rank() : -world().rank();
    group->all_reduce_max(std::span(data));
    for (std::size_t i = 0; i < size; ++i) REQUIRE(data[i] == (i % 2 ? world().size() - 1 : 0));
  }
  for (int culprit = 0; culprit < world().size(); ++culprit) {
    double value = world().rank() == culprit ? std::nan("") : 1.0;
    group->all_reduce_max(std::span(&value, 1));
    CHECK(std::isnan(value));
  }
}

TEST_CASE("reduce_scatter_sum gives each rank its part of the sum in rank order",
          "[np2][np3][np4][np8]") {
  const std::size_t n = static_cast<std::size_t>(world().size());
  const std::size_t me = static_cast<std::size_t>(world().rank());
  for (const auto& group : both_piece_sizes()) {
    for (const std::size_t part : kSizes) {
      INFO("part of " << part);
      std::vector<float> in = values_of(world().rank(), part * n);
      const std::vector<float> sum = sum_in_rank_order(world().size(), part * n);
      const std::span<const float> expected = std::span(sum).subspan(me * part, part);

      std::vector<float> out(part);
      group->reduce_scatter_sum(in, out);
      CHECK(same_bits(out, expected));
      CHECK(same_bits(in, values_of(world().rank(), part * n)));  // the input is untouched

      const std::span<float> own = std::span(in).subspan(me * part, part);
      group->reduce_scatter_sum(in, own);  // in place
      CHECK(same_bits(own, expected));
    }
  }
}

// 3 parts of 4.2 million floats: more than the scratch holds at once.
TEST_CASE("a sum that goes through in rounds has the same bits", "[np2][np3]") {
  const std::size_t n = static_cast<std::size_t>(world().size());
  const std::size_t part = 4'200'001;
  const auto group = world().make_group(all_ranks());
  std::vector<float> out(part);
  group->reduce_scatter_sum(values_of(world().rank(), part * n), out);
  const std::vector<float> sum = sum_in_rank_order(world().size(), part * n);
  CHECK(same_bits(out,
                  std::span(sum).subspan(static_cast<std::size_t>(world().rank()) * part, part)));
}

TEST_CASE("all_gather collects everybody's bytes in rank order, also in place",
          "[np2][np3][np4][np8]") {
  const int n = world().size(), me = world().rank();
  for (const auto& group : both_piece_sizes()) {
    for (const std::size_t part : kSizes) {
      std::vector<std::byte> expected(part * static_cast<std::size_t>(n)), in(part);
      for (int r = 0; r < n; ++r) {
        for (std::size_t i = 0; i < part; ++i) {
          expected[static_cast<std::size_t>(r) * part + i] =
              pattern(r, 0, static_cast<std::int64_t>(i));
        }
      }
      const auto own = expected.begin() + me * static_cast<std::ptrdiff_t>(part);
      std::copy_n(own, part, in.begin());
      std::vector<std::byte> out(expected.size());
      group->all_gather(in, out);
      CHECK(out == expected);

      std::vector<std::byte> in_place(expected.size());
      const std::span<std::byte> place =
          std::span(in_place).subspan(static_cast<std::size_t>(me) * part, part);
      std::copy_n(own, part, place.begin());
      group->all_gather(place, in_place);
      CHECK(in_place == expected);
    }
  }
}

TEST_CASE("all_to_all delivers uneven and zero counts", "[np2][np3][np4][np8]") {
  const int n = world().size(), me = world().rank();
  // Counts between from and to of round `round`; about a third are zero, one round is all zero.
  const auto count = [](int from, int to, int round) -> std::int64_t {
    const int key = from * 5 + to * 3 + round;
    return round == 0 || key % 3 == 0 ? 0 : key * 211 % 4000;
  };
  for (const auto& group : both_piece_sizes()) {
    for (int round = 0; round < 6; ++round) {
      std::vector<std::int64_t> counts_in, counts_out;
      std::vector<std::byte> in, expected;
      for (int other = 0; other < n; ++other) {
        counts_in.push_back(count(me, other, round));
        counts_out.push_back(count(other, me, round));
        for (std::int64_t i = 0; i < counts_in.back(); ++i) in.push_back(pattern(me, other, i));
        for (std::int64_t i = 0; i < counts_out.back(); ++i) {
          expected.push_back(pattern(other, me, i));
        }
      }
      std::vector<std::byte> out(expected.size());
      group->all_to_all(in, counts_in, out, counts_out);
      CHECK(out == expected);
    }
  }
}

TEST_CASE("bf16 values travel as bytes unchanged", "[np2][np4]") {
  const auto group = world().make_group(all_ranks());
  std::vector<std::uint16_t> mine(333);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i] = bf16_from_float(static_cast<float>(world().rank()) + 0.37F * static_cast<float>(i));
  }
  mine[5] = 0x7fc1;  // a NaN with a payload
  std::vector<std::uint16_t> all(mine.size() * static_cast<std::size_t>(world().size()));
  group->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  for (int r = 0; r < world().size(); ++r) {
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const std::uint16_t expected =
          i == 5 ? 0x7fc1 : bf16_from_float(static_cast<float>(r) + 0.37F * static_cast<float>(i));
      REQUIRE(all[static_cast<std::size_t>(r) * mine.size() + i] == expected);
    }
  }
}

TEST_CASE("broadcast reaches all from any root", "[np2][np3][np4][np8]") {
  for (const auto& group : both_piece_sizes()) {
    for (int root = 0; root < world().size(); ++root) {
      for (const std::size_t size : kSizes) {
        std::vector<std::byte> data(size), expected(size);
        for (std::size_t i = 0; i < size; ++i) {
          expected[i] = pattern(root, 1, static_cast<std::int64_t>(i));
        }
        if (world().rank() == root) data = expected;
        group->broadcast(data, root);
        CHECK(data == expected);
      }
    }
  }
}

TEST_CASE("calls of different kinds one after another do not mix", "[np2][np3][np4]") {
  const auto group = world().make_group(all_ranks());
  const float n = static_cast<float>(world().size());
  for (int i = 0; i < 30; ++i) {
    std::vector<float> small{1.0F}, large(9000, 2.0F);
    group->all_reduce_sum(std::span(small));
    group->barrier();
    group->all_reduce_sum(std::span(large));
    std::vector<std::byte> token(3, static_cast<std::byte>(world().rank()));
    group->broadcast(token, i % world().size());
    REQUIRE(small[0] == n);
    REQUIRE(large.front() == 2 * n);
    REQUIRE(large.back() == 2 * n);
    REQUIRE(token[2] == static_cast<std::byte>(i % world().size()));
  }
}
