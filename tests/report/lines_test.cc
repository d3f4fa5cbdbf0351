// Console lines against what Python's format strings of the reference print.
#include <catch2/catch.hpp>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "report/report.h"

namespace {

using rr::report::Iteration;
using rr::report::memory_line;
using rr::report::training_line;
using rr::report::validation_text;

// 2026-11-29 13:42:22 of the local time zone.
std::time_t noon() {
  std::tm local = {};
  local.tm_year = 126;
  local.tm_mon = 10;
  local.tm_mday = 29;
  local.tm_hour = 13;
  local.tm_min = 42;
  local.tm_sec = 22;
  local.tm_isdst = -1;
  return std::mktime(&local);
}

Iteration plain() {
  Iteration at;
  at.iteration = 20;
  at.train_iters = 200;
  at.consumed_samples = 160;
  at.elapsed_ms = 4189.25;
  at.learning_rate = 3e-4;
  at.global_batch = 8;
  at.losses = {{"lm loss", 5.5490761}};
  return at;
}

TEST_CASE("the training line with every field is the reference's, byte for byte") {
  Iteration at = plain();
  at.skipped_samples = 8;
  at.tflops_per_gpu = 299.351;
  at.losses = {{"lm loss", 5.5490761}, {"load_balancing_loss", 1.0625}, {"z_loss", 0.0}};
  at.grad_norm = 1.2346;
  at.num_zeros = 17;
  at.params_norm = 1234.5678;
  at.skipped_iterations = 1;
  at.nan_iterations = 2;
  CHECK(training_line(at, noon()) ==
        " [2026-11-29 13:42:22] iteration       20/     200 | consumed samples:          160 |"
        " skipped samples:            8 | elapsed time per iteration (ms): 4189.2 |"
        " throughput per GPU (TFLOP/s/GPU): 299.4 | learning rate: 3.000000E-04 |"
        " global batch size:     8 | lm loss: 5.549076E+00 | load_balancing_loss: 1.062500E+00 |"
        " z_loss: 0.000000E+00 | loss scale: 1.0 | grad norm: 1.235 | num zeros: 17 |"
        " params norm: 1234.568 | number of skipped iterations:   1 |"
        " number of nan iterations:   2 |");
}

TEST_CASE("optional fields are left out, not printed empty") {
  CHECK(training_line(plain(), noon()) ==
        " [2026-11-29 13:42:22] iteration       20/     200 | consumed samples:          160 |"
        " elapsed time per iteration (ms): 4189.2 | learning rate: 3.000000E-04 |"
        " global batch size:     8 | lm loss: 5.549076E+00 | loss scale: 1.0 |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |");
}

TEST_CASE("B118: a loss that is negative or not a number is not printed as if it were one") {
  for (const double loss : {-1.0, -1e-9, std::nan("")}) {
    Iteration at = plain();
    at.losses = {{"lm loss", loss}};
    CHECK(training_line(at, noon()).find("lm loss") == std::string::npos);
  }
  Iteration at = plain();
  at.losses = {{"lm loss", std::numeric_limits<double>::infinity()}};
  CHECK(training_line(at, noon()).find(" lm loss: INF |") != std::string::npos);
}

TEST_CASE("numbers wider than their column keep all their digits") {
  Iteration at = plain();
  at.iteration = at.train_iters = 1234567890;
  at.consumed_samples = 1234567890123456;
  at.global_batch = 1234567;
  const std::string line = training_line(at, noon());
  CHECK_THAT(line, Catch::Contains("iteration 1234567890/1234567890 |") &&
                       Catch::Contains("consumed samples: 1234567890123456 |") &&
                       Catch::Contains("global batch size: 1234567 |"));
}

TEST_CASE("B026: the lines do not follow the user's locale") {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  const std::string line = training_line(plain(), noon());
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"}) {  // where it is installed
    std::setlocale(LC_ALL, name);
    CHECK(training_line(plain(), noon()) == line);
    CHECK(memory_line(0, 1, {47200000000, 0, 0}, {}).find("47.2") != std::string::npos);
  }
  std::setlocale(LC_ALL, before.c_str());
}

TEST_CASE("the step time line is the reference's") {
  CHECK(rr::report::step_time_line(4.18949, 299.351) ==
        "Step Time : 4.19s GPU utilization: 299.4MODEL_TFLOP/s/GPU");
}

TEST_CASE("the validation text stands between dashes one longer than itself") {
  CHECK(validation_text("iteration 100", 5.5490761) ==
        std::string(95, '-') +
            "\n validation loss at iteration 100 | lm loss value: 5.549076E+00 |"
            " lm loss PPL: 2.570000E+02 | \n" +
            std::string(95, '-'));
}

TEST_CASE("the perplexity is capped at exp(20), as the reference caps it") {
  CHECK(validation_text("iteration 7 on test set", 25.0) ==
        std::string(105, '-') +
            "\n validation loss at iteration 7 on test set | lm loss value: 2.500000E+01 |"
            " lm loss PPL: 4.851652E+08 | \n" +
            std::string(105, '-'));
}

TEST_CASE("the memory line shows both pools in gigabytes with five digits, as Python prints them") {
  CHECK(memory_line(3, 2, {47200000000, 46983456789, 812}, {0, 12345, 7}) ==
        "[Rank 3] (after 2 iterations) memory (GB)"
        " | mem-allocated-gigabytes: 47.2 | mem-max-allocated-gigabytes: 46.983"
        " | mem-allocated-count: 812"
        " | host-allocated-gigabytes: 0.0 | host-max-allocated-gigabytes: 1.2345e-05"
        " | host-allocated-count: 7");
  const auto first = [](std::int64_t bytes) {
    const std::string line = memory_line(0, 1, {bytes, 0, 0}, {});
    const std::size_t begin = line.find("gigabytes: ") + 11;
    return line.substr(begin, line.find(' ', begin) - begin);
  };
  CHECK(first(2000000000) == "2.0");
  CHECK(first(81920) == "8.192e-05");
  CHECK(first(999996) == "0.001");
  CHECK(first(123456789012) == "123.46");
  CHECK(first(1) == "1e-09");
}

TEST_CASE("the comparison says equal, the difference in bytes, or an estimate's percent") {
  CHECK(rr::report::comparison_table({{"weights", "device", 1024, 1024, true},
                                      {"moments", "host", 2048, 2304, true},
                                      {"staging", "host", 1000, 900, true},
                                      {"activations", "device", 1000000, 1041000, false},
                                      {"logits", "device", 0, 5, false}}) ==
        "memory       pool    planned (B)  measured (B)  difference\n"
        "weights      device        1,024         1,024  equal\n"
        "moments      host          2,048         2,304  +256 B\n"
        "staging      host          1,000           900  -100 B\n"
        "activations  device    1,000,000     1,041,000  +4.1 % (estimate)\n"
        "logits       device            0             5  +5 B\n");
}

TEST_CASE("the progress bar fits its width at every size and step") {
  using rr::report::progress_bar;
  CHECK(progress_bar(50, 200, 123.4, 5.5432, 70) ==
        "\r[=====                  ] 50/200  loss 5.5432  123.4 ms  left 0:00:19");
  for (int width = 0; width < 120; ++width) {
    for (const int iteration : {0, 1, 199, 200, 201}) {
      const std::string bar = progress_bar(iteration, 200, 3.6e6, 1.0, width);
      REQUIRE(bar.size() <= static_cast<std::size_t>(std::max(1, width)));
      REQUIRE(bar[0] == '\r');
    }
  }
  CHECK_THAT(progress_bar(0, 0, 1, 1, 80), Catch::Contains("0/1"));
  CHECK_THAT(progress_bar(1, 2, 7.3e6, 1, 90), Catch::Contains("left 2:01:40"));
}

}  // namespace
