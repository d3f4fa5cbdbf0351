// What a run tells: the Megatron training line, the memory line, metrics.jsonl, the last table.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/base.h"
#include "plan/plan.h"

namespace rr::report {

// One logged iteration; averages are over the log interval's iterations that were not skipped.
struct Iteration {
  std::int64_t iteration = 0, train_iters = 0;
  std::int64_t consumed_samples = 0, skipped_samples = 0;
  double elapsed_ms = 0;                 // per iteration
  std::optional<double> tflops_per_gpu;  // printed only when there
  double learning_rate = 0;              // of the next step, as in the reference
  std::int64_t global_batch = 0;
  std::vector<std::pair<std::string, double>> losses;  // "lm loss", "load_balancing_loss", ...
  double loss_scale = 1.0;
  std::optional<double> grad_norm, params_norm;
  std::optional<std::int64_t> num_zeros;
  std::int64_t skipped_iterations = 0, nan_iterations = 0;
};

// megatron.md 5.4, byte for byte, without a line end.
std::string training_line(const Iteration& iteration, std::time_t now);
// "Step Time : ..." of rank 0.
std::string step_time_line(double seconds, double tflops_per_gpu);
// Dashes, " validation loss at ...", dashes; `where` is "iteration N", at the end "iteration N on
// validation set". Without a line end.
std::string validation_text(const std::string& where, double loss);

struct PoolNumbers {
  std::int64_t now = 0, peak = 0, allocations = 0;
};
// "[Rank r] (after N iterations) memory (GB) | mem-allocated-gigabytes: ... | host-...": the
// reference's keys that a pool has (1 GB = 1e9 bytes, five digits), for the device as mem-*, for
// pinned host memory as host-*.
std::string memory_line(int rank, std::int64_t iterations, const PoolNumbers& device,
                        const PoolNumbers& host);

// Planned against measured, a row each; `exact` rows say their difference in bytes, estimates in
// percent.
struct ComparisonRow {
  std::string what;
  std::string pool;
  std::int64_t planned = 0, measured = 0;
  bool exact = true;
};
std::string comparison_table(const std::vector<ComparisonRow>& rows);

// The run folder: run_config.yaml and metrics.jsonl. One rank owns it. An earlier run's
// metrics.jsonl in the same folder is kept as metrics.jsonl.1, .2 and so on.
class RunFolder {
 public:
  // Creates the folder and writes run_config.yaml (temporary, then renamed). Throws UsageError when
  // it cannot: not writable, a file in the way, disk full.
  RunFolder(const std::string& path, const std::string& config_yaml);
  ~RunFolder();
  // One JSON object per logged iteration, one line, flushed; losses stand under their own names,
  // NaN and infinity are null, `extra` joins it. Throws Error when the disk is full; the file then
  // ends with the last whole line.
  void write(const Iteration& iteration, const std::map<std::string, double>& extra);
  void write_validation(std::int64_t iteration, double loss, std::int64_t tokens);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// TensorBoard scalars (ecosystem.md 2.4). Off when never made. Throws UsageError when the folder
// cannot be written. Scalars wait in memory until flush(), which throws Error when the disk is
// full.
class TensorBoard {
 public:
  explicit TensorBoard(const std::string& folder);
  ~TensorBoard();
  void scalar(const std::string& tag, double value, std::int64_t step, double wall_time);
  void flush();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A one-line progress bar for the terminal of a single process, starting with "\r", at most
// `width` - 1 columns; for standard error.
std::string progress_bar(std::int64_t iteration, std::int64_t total, double ms_per_iteration,
                         double loss, int width);

}  // namespace rr::report
