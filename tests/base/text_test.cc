// Text of numbers, nearest names, dtypes, problems and checks.
#include "base/text.h"

#include <catch2/catch.hpp>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/base.h"
#include "base/crc32c.h"

namespace {

using rr::format_bytes;
using rr::format_count;
using rr::format_real;
using rr::nearest;
using Names = std::vector<std::string>;

TEST_CASE("bytes print in decimal units with three or four digits") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(999) == "999 B");
  CHECK(format_bytes(1000) == "1.00 kB");
  CHECK(format_bytes(46980000000) == "46.98 GB");
  CHECK(format_bytes(469800000000) == "469.8 GB");
  CHECK(format_bytes(99994999) == "99.99 MB");
  CHECK(format_bytes(99995000) == "100.0 MB");
  CHECK(format_bytes(999949999) == "999.9 MB");
  CHECK(format_bytes(999950000) == "1.00 GB");
  CHECK(format_bytes(-3800000000) == "-3.80 GB");
  CHECK(format_bytes(std::numeric_limits<std::int64_t>::max()) == "9.22 EB");
  CHECK(format_bytes(std::numeric_limits<std::int64_t>::min()) == "-9.22 EB");
}

TEST_CASE("counts print with commas") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(30532122624) == "30,532,122,624");
  CHECK(format_count(-999) == "-999");
  CHECK(format_count(-123456) == "-123,456");
}

TEST_CASE("reals print as the shortest text that reads back as the same double") {
  CHECK(format_real(0.1) == "0.1");
  CHECK(format_real(1e-4) == "0.0001");
  CHECK(format_real(3e-5) == "3e-05");
  CHECK(format_real(1e16) == "1e+16");
  CHECK(format_real(0.1 + 0.2) == "0.30000000000000004");
  for (const double value : {1.0 / 3, 6.02214076e23, 5e-324, 1.7976931348623157e308, 123456.789}) {
    CHECK(std::strtod(format_real(value).c_str(), nullptr) == value);
  }
}

TEST_CASE("B026: numbers print in the C locale whatever the user's") {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  // Not every machine has these locales; where none is there, the claim holds trivially.
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"}) {
    std::setlocale(LC_ALL, name);
    CHECK(format_real(1234.5) == "1234.5");
    CHECK(format_bytes(1234567) == "1.23 MB");
    CHECK(format_count(1234567) == "1,234,567");
  }
  std::setlocale(LC_ALL, before.c_str());
}

TEST_CASE("a mistyped word finds its nearest names, best first") {
  const Names keys = {"optimizer.lr", "optimizer.min_lr", "optimizer.weight_decay",
                      "optimizer.optimizer_cpu_offload", "train.train_iters"};
  CHECK(nearest("optimizer.lrr", keys).at(0) == "optimizer.lr");
  CHECK(nearest("optimizer.optimiser_cpu_ofload", keys) ==
        Names{"optimizer.optimizer_cpu_offload"});
  CHECK(nearest("optimizer.weight-decay", keys).at(0) == "optimizer.weight_decay");
  CHECK(nearest("Train.Train_Iters", keys) == Names{"train.train_iters"});
  CHECK(nearest("train.tarin_iters", keys) == Names{"train.train_iters"});
  CHECK(nearest("nothing.like.it", keys).empty());
  CHECK(nearest("x", {"a", "b"}).empty());
  CHECK(nearest("", {"a"}).empty());
  CHECK(nearest("ab", {"abc", "ac", "ab", "b", "a"}, 2) == Names{"ab", "abc"});
}

TEST_CASE("join puts the separator between the parts only") {
  CHECK(rr::join({}, ", ").empty());
  CHECK(rr::join({"a"}, ", ") == "a");
  CHECK(rr::join({"a", "b", "c"}, ", ") == "a, b, c");
}

TEST_CASE("bf16 rounds to nearest, ties to even, and keeps what is special") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(rr::bf16_from_float(1.0F) == 0x3f80);
  CHECK(rr::bf16_from_float(1.00390625F) == 0x3f80);  // half way: down to even
  CHECK(rr::bf16_from_float(1.01171875F) == 0x3f82);  // half way: up to even
  CHECK(rr::bf16_from_float(1.00390637F) == 0x3f81);
  CHECK(rr::bf16_from_float(-0.0F) == 0x8000);
  CHECK(rr::bf16_from_float(3.4e38F) == 0x7f80);  // rounds to infinity
  CHECK(rr::float_from_bf16(rr::bf16_from_float(-infinity)) == -infinity);
  CHECK(std::isnan(rr::float_from_bf16(rr::bf16_from_float(std::nanf("")))));
  // A NaN whose payload sits in the lower half must not become infinity.
  CHECK(std::isnan(rr::float_from_bf16(rr::bf16_from_float(std::bit_cast<float>(0x7f800001U)))));
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const float value = rr::float_from_bf16(static_cast<std::uint16_t>(i));
    if (!std::isnan(value)) REQUIRE(rr::bf16_from_float(value) == i);
  }
}

TEST_CASE("every problem of a usage error is in its text, one a line") {
  const rr::Problem wrong{rr::Severity::error, "optimizer.lr", "override 2", "is -1.", "Use 1e-4."};
  const rr::Problem doubtful{rr::Severity::warning, "", "", "nothing is offloaded", ""};
  const rr::UsageError error({wrong, doubtful});
  CHECK(std::string(error.what()) ==
        "error: optimizer.lr (override 2): is -1. Use 1e-4.\nwarning: nothing is offloaded");
  CHECK(error.problems().size() == 2);
}

TEST_CASE("a failed check names expression, file and detail") {
  const auto check = [](int value) { RR_CHECK(value == 1, "of the test"); };
  CHECK_NOTHROW(check(1));
  CHECK_THROWS_WITH(check(2), Catch::Contains("value == 1") && Catch::Contains("text_test.cc:") &&
                                  Catch::Contains("of the test"));
}

// One bit at a time, from the polynomial.
std::uint32_t slow_crc32c(const std::string& text) {
  std::uint32_t crc = ~0U;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

TEST_CASE("CRC-32C gives the vectors of RFC 3720 and its polynomial's values at every length") {
  CHECK(rr::crc32c("123456789", 9) == 0xe3069283);
  CHECK(rr::crc32c("", 0) == 0);
  CHECK(rr::crc32c(std::string(32, '\0').data(), 32) == 0x8a9136aa);
  CHECK(rr::crc32c(std::string(32, '\xff').data(), 32) == 0x62a8ab43);
  std::string text;
  for (int i = 0; i < 40; ++i) {
    CHECK(rr::crc32c(text.data(), text.size()) == slow_crc32c(text));
    text += static_cast<char>(i * 37 + 11);
  }
}

TEST_CASE("a CRC-32C can be continued at any cut") {
  const std::string text = "The quick brown fox jumps over the lazy dog";
  const std::uint32_t whole = rr::crc32c(text.data(), text.size());
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const std::uint32_t head = rr::crc32c(text.data(), cut);
    CHECK(rr::crc32c(text.data() + cut, text.size() - cut, head) == whole);
  }
}

}  // namespace
