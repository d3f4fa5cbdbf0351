// The console lines that people have parsers for, byte for byte as Megatron Bridge prints them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/text.h"
#include "report/report.h"

namespace rr::report {
namespace {

std::string time_text(std::time_t now) {
  std::tm local = {};
  localtime_r(&now, &local);
  return fmt::format("{:04d}-{:02d}-{:02d} {:02d}:{:02d}:{:02d}", local.tm_year + 1900,
                     local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec);
}

// Five significant digits, written as Python prints a float.
std::string gigabytes(std::int64_t bytes) {
  const double rounded = std::stod(fmt::format("{:.4e}", static_cast<double>(bytes) / 1e9));
  std::string text = format_real(rounded);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string pool_text(const char* prefix, const PoolNumbers& pool) {
  return fmt::format(
      " | {0}-allocated-gigabytes: {1} | {0}-max-allocated-gigabytes: {2} | {0}-allocated-count: "
      "{3}",
      prefix, gigabytes(pool.now), gigabytes(pool.peak), pool.allocations);
}

}  // namespace

std::string training_line(const Iteration& at, std::time_t now) {
  std::string line;
  auto out = std::back_inserter(line);
  fmt::format_to(out, " [{}] iteration {:8d}/{:8d} |", time_text(now), at.iteration,
                 at.train_iters);
  fmt::format_to(out, " consumed samples: {:12d} |", at.consumed_samples);
  if (at.skipped_samples > 0) fmt::format_to(out, " skipped samples: {:12d} |", at.skipped_samples);
  fmt::format_to(out, " elapsed time per iteration (ms): {:.1f} |", at.elapsed_ms);
  if (at.tflops_per_gpu) {
    fmt::format_to(out, " throughput per GPU (TFLOP/s/GPU): {:.1f} |", *at.tflops_per_gpu);
  }
  fmt::format_to(out, " learning rate: {:.6E} |", at.learning_rate);
  fmt::format_to(out, " global batch size: {:5d} |", at.global_batch);
  for (const auto& [name, loss] : at.losses) {
    // The reference leaves a negative average out, and with the same comparison a NaN.
    if (loss >= 0.0) fmt::format_to(out, " {}: {:.6E} |", name, loss);
  }
  fmt::format_to(out, " loss scale: {:.1f} |", at.loss_scale);
  if (at.grad_norm) fmt::format_to(out, " grad norm: {:.3f} |", *at.grad_norm);
  if (at.num_zeros) fmt::format_to(out, " num zeros: {} |", *at.num_zeros);
  if (at.params_norm) fmt::format_to(out, " params norm: {:.3f} |", *at.params_norm);
  fmt::format_to(out, " number of skipped iterations: {:3d} |", at.skipped_iterations);
  fmt::format_to(out, " number of nan iterations: {:3d} |", at.nan_iterations);
  return line;
}

std::string step_time_line(double seconds, double tflops_per_gpu) {
  return fmt::format("Step Time : {:.2f}s GPU utilization: {:.1f}MODEL_TFLOP/s/GPU", seconds,
                     tflops_per_gpu);
}

std::string validation_text(const std::string& where, double loss) {
  const double perplexity = std::exp(std::min(20.0, loss));
  const std::string line =
      fmt::format(" validation loss at {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | ", where,
                  loss, perplexity);
  const std::string dashes(line.size() + 1, '-');
  return dashes + "\n" + line + "\n" + dashes;
}

std::string memory_line(int rank, std::int64_t iterations, const PoolNumbers& device,
                        const PoolNumbers& host) {
  return fmt::format("[Rank {}] (after {} iterations) memory (GB){}{}", rank, iterations,
                     pool_text("mem", device), pool_text("host", host));
}

}  // namespace rr::report
