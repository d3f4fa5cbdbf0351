// The run folder: what is in it, what survives, what is refused.
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/base.h"
#include "base/temp_folder.h"
#include "report/report.h"

namespace {

using nlohmann::json;
using rr::report::Iteration;
using rr::report::RunFolder;
using rr::test::read_file;
using rr::test::TempFolder;
using rr::test::write_file;

std::vector<json> lines_of(const std::string& path) {
  std::istringstream text(read_file(path));
  std::vector<json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

Iteration numbered(std::int64_t iteration) {
  Iteration at;
  at.iteration = iteration;
  at.consumed_samples = iteration * 8;
  at.elapsed_ms = 12.5;
  at.learning_rate = 3e-4;
  at.global_batch = 8;
  at.losses = {{"lm loss", 0.1 + 0.2}, {"load_balancing_loss", 1.5}};
  return at;
}

TEST_CASE("a run folder is made with its parents and holds the configuration") {
  const TempFolder folder;
  const RunFolder run(folder.path("runs/a/b"), "train:\n  train_iters: 5\n");
  CHECK(read_file(folder.path("runs/a/b/run_config.yaml")) == "train:\n  train_iters: 5\n");
  CHECK(read_file(folder.path("runs/a/b/metrics.jsonl")).empty());
}

TEST_CASE("a logged iteration is one JSON object with every number exact") {
  const TempFolder folder;
  RunFolder run(folder.path(), "");
  Iteration at = numbered(7);
  at.grad_norm = 1.0 / 3;
  at.num_zeros = 5;
  at.params_norm = 2.5;
  at.tflops_per_gpu = 0.25;
  run.write(at, {{"device_peak_bytes", 1e9}});
  const json line = lines_of(folder.path("metrics.jsonl")).at(0);
  CHECK(line == json{{"iteration", 7},
                     {"consumed_samples", 56},
                     {"skipped_samples", 0},
                     {"elapsed_ms", 12.5},
                     {"tflops_per_gpu", 0.25},
                     {"learning_rate", 3e-4},
                     {"global_batch_size", 8},
                     {"lm loss", 0.30000000000000004},
                     {"load_balancing_loss", 1.5},
                     {"loss_scale", 1.0},
                     {"grad_norm", 1.0 / 3},
                     {"num_zeros", 5},
                     {"params_norm", 2.5},
                     {"skipped_iterations", 0},
                     {"nan_iterations", 0},
                     {"device_peak_bytes", 1e9}});
}

TEST_CASE("what is unknown is missing and what is not finite is null") {
  const TempFolder folder;
  RunFolder run(folder.path(), "");
  Iteration at = numbered(1);
  at.losses = {{"lm loss", std::nan("")}, {"z_loss", std::numeric_limits<double>::infinity()}};
  run.write(at, {});
  const json line = lines_of(folder.path("metrics.jsonl")).at(0);
  CHECK(line.at("lm loss").is_null());
  CHECK(line.at("z_loss").is_null());
  CHECK_FALSE(line.contains("grad_norm"));
  CHECK_FALSE(line.contains("tflops_per_gpu"));
}

TEST_CASE("a validation is a line of its own") {
  const TempFolder folder;
  RunFolder run(folder.path(), "");
  run.write_validation(40, 2.0, 4096);
  CHECK(lines_of(folder.path("metrics.jsonl")).at(0) == json{{"iteration", 40},
                                                             {"validation_loss", 2.0},
                                                             {"validation_ppl", std::exp(2.0)},
                                                             {"validation_tokens", 4096}});
}

TEST_CASE("B117: a killed run keeps every line it wrote") {
  const TempFolder folder;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    RunFolder run(folder.path(), "");
    for (int i = 1; i <= 10; ++i) run.write(numbered(i), {});
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  const auto lines = lines_of(folder.path("metrics.jsonl"));
  REQUIRE(lines.size() == 10);
  CHECK(lines.back().at("iteration") == 10);
}

TEST_CASE("a second run in the same folder keeps the first one's numbers under another name") {
  const TempFolder folder;
  for (int run = 1; run <= 3; ++run) RunFolder(folder.path(), "").write(numbered(run), {});
  CHECK(lines_of(folder.path("metrics.jsonl")).at(0).at("iteration") == 3);
  CHECK(lines_of(folder.path("metrics.jsonl.1")).at(0).at("iteration") == 1);
  CHECK(lines_of(folder.path("metrics.jsonl.2")).at(0).at("iteration") == 2);
}

std::string refusal(const std::string& path, const std::string& config = "a: 1\n") {
  try {
    const RunFolder run(path, config);
    return "";
  } catch (const rr::UsageError& error) {
    return error.what();
  }
}

TEST_CASE("a file in the folder's way is refused, naming the key and the path") {
  const TempFolder folder;
  write_file(folder.path("taken"), "");
  CHECK_THAT(refusal(folder.path("taken")),
             Catch::Contains("logger.run_dir") && Catch::Contains(folder.path("taken")));
  CHECK_THAT(refusal(folder.path("taken/below")), Catch::Contains("Not a directory"));
  CHECK_THAT(refusal("/proc/none"), Catch::Contains("/proc/none"));
}

TEST_CASE("a full disk is refused at the start and leaves no half configuration") {
  const TempFolder folder;
  if (!rr::test::mount_small_disk(folder.path())) {
    WARN("skipped: cannot mount a tmpfs");
    return;
  }
  CHECK_THAT(refusal(folder.path("run"), std::string(100'000, '#')),
             Catch::Contains("No space left") && Catch::Contains("logger.run_dir"));
  CHECK(std::filesystem::is_empty(folder.path("run")));
  umount(folder.path().c_str());
}

TEST_CASE("a disk that fills up during a run is an error and leaves whole lines only") {
  const TempFolder folder;
  if (!rr::test::mount_small_disk(folder.path())) {
    WARN("skipped: cannot mount a tmpfs");
    return;
  }
  {
    RunFolder run(folder.path("run"), "");
    const auto fill = [&] {
      for (int i = 1; i <= 1000; ++i) run.write(numbered(i), {});
    };
    CHECK_THROWS_WITH(fill(), Catch::Contains("metrics.jsonl") && Catch::Contains("No space left"));
    CHECK_THROWS_AS(fill(), rr::Error);
  }
  const std::string text = read_file(folder.path("run/metrics.jsonl"));
  REQUIRE(!text.empty());
  CHECK(text.back() == '\n');
  CHECK(lines_of(folder.path("run/metrics.jsonl")).size() > 100);
  umount(folder.path().c_str());
}

}  // namespace
