// The training loop: iterations, log lines, evaluation, the end.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <ctime>
#include <optional>

#include "base/log.h"
#include "plan/planner.h"
#include "report/report.h"
#include "train/build.h"
#include "train/narrate.h"
#include "train/signals.h"
#include "train/step.h"
#include "train/train.h"

namespace rr::train {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Means over the iterations since the last log line.
struct Interval {
  std::int64_t iterations = 0;
  double loss = 0, load_balancing = 0, z = 0;
  double d2h_ms = 0, adam_ms = 0, h2d_ms = 0;
  Clock::time_point start = Clock::now();

  void add(const StepReport& step) {
    ++iterations;
    loss += step.loss;
    load_balancing += step.load_balancing;
    z += step.z;
    d2h_ms += step.optimizer.d2h_ms;
    adam_ms += step.optimizer.adam_ms;
    h2d_ms += step.optimizer.h2d_ms;
  }
};

class Loop {
 public:
  Loop(Runtime& runtime, const Options& options, report::RunFolder* folder,
       report::TensorBoard* board)
      : runtime_(runtime), plan_(runtime.plan), options_(options), folder_(folder), board_(board) {
    device_after_build_ = runtime.device->usage(Pool::device).now;
  }

  // Returns the exit code.
  int run();

 private:
  bool ends_early(std::int64_t iteration, const StepReport& step) const;
  void after_step(std::int64_t iteration, const StepReport& step);
  void log_interval(std::int64_t iteration, const StepReport& step);
  // Where the interval asks for it. Returns the signal that cut it short, else 0.
  int validate(std::int64_t iteration);
  void write_board(const report::Iteration& line) const;

  Runtime& runtime_;
  const plan::Plan& plan_;
  const Options& options_;
  report::RunFolder* folder_;   // the speaking rank's; else null
  report::TensorBoard* board_;  // likewise
  std::int64_t device_after_build_ = 0;
  Interval interval_;
};

int Loop::run() {
  const SignalsPolled polled;
  runtime_.device->reset_peaks();
  for (std::int64_t iteration = 1; iteration <= plan_.batch.train_iters; ++iteration) {
    const StepReport step = train_step(runtime_, iteration);
    after_step(iteration, step);
    const int signal = step.signal != 0 ? step.signal : validate(iteration);
    if (signal != 0) {
      if (runtime_.rank.rank == 0)
        log_warning(fmt::format("stopped by signal {} after iteration {} of {}", signal, iteration,
                                plan_.batch.train_iters));
      return 128 + signal;
    }
    if (ends_early(iteration, step)) break;
  }
  runtime_.optimizer->finish();
  print_comparison(runtime_, device_after_build_);
  return 0;
}

// The recipe's own reasons to stop before train_iters.
bool Loop::ends_early(std::int64_t iteration, const StepReport& step) const {
  const plan::BatchPlan& batch = plan_.batch;
  const bool interval = batch.exit_interval > 0 && iteration % batch.exit_interval == 0;
  if ((interval || step.out_of_time) && runtime_.rank.rank == 0) {
    log_info(fmt::format("exiting program at iteration {}: {}", iteration,
                         interval ? "train.exit_interval" : "train.exit_duration_in_mins"));
  }
  return interval || step.out_of_time;
}

void Loop::after_step(std::int64_t iteration, const StepReport& step) {
  interval_.add(step);
  if (iteration % plan_.log.interval == 0) log_interval(iteration, step);
  if (iteration <= 2) print_memory(runtime_, iteration);
}

void Loop::log_interval(std::int64_t iteration, const StepReport& step) {
  const double n = static_cast<double>(interval_.iterations);
  const double ms = ms_since(interval_.start) / n;
  const std::int64_t consumed = iteration * plan_.batch.global_batch;
  // Of the slowest and of the fullest rank.
  std::array<double, 5> most = {interval_.d2h_ms / n, interval_.adam_ms / n, interval_.h2d_ms / n,
                                static_cast<double>(runtime_.device->usage(Pool::device).peak),
                                static_cast<double>(runtime_.device->usage(Pool::host).peak)};
  runtime_.world().all_reduce_max(most);
  const Interval finished = interval_;
  interval_ = Interval();
  if (!runtime_.speaks()) return;

  report::Iteration line;
  line.iteration = iteration;
  line.train_iters = plan_.batch.train_iters;
  line.consumed_samples = consumed;
  line.elapsed_ms = ms;
  const double tokens =
      static_cast<double>(plan_.batch.global_batch) * static_cast<double>(plan_.model.seq_length);
  const double tflops = plan_.flops_per_token * tokens / (ms / 1e3) / plan_.topology.world / 1e12;
  if (plan_.log.throughput) line.tflops_per_gpu = tflops;
  line.learning_rate = plan::learning_rate(plan_.schedule, consumed);
  line.global_batch = plan_.batch.global_batch;
  line.losses.emplace_back("lm loss", finished.loss / n);
  if (step.has_moe && plan_.model.load_balance != plan::LoadBalance::none)
    line.losses.emplace_back("load_balancing_loss", finished.load_balancing / n);
  if (step.has_moe && plan_.model.z_loss_coefficient > 0)
    line.losses.emplace_back("z_loss", finished.z / n);
  line.grad_norm = step.optimizer.grad_norm;
  if (plan_.log.params_norm) line.params_norm = step.optimizer.params_norm;
  if (plan_.log.num_zeros) line.num_zeros = static_cast<std::int64_t>(step.optimizer.num_zeros);
  print_line(report::training_line(line, std::time(nullptr)));
  folder_->write(line, {{"tflops_per_gpu", tflops},
                        {"tokens_per_second_per_gpu", tokens / (ms / 1e3) / plan_.topology.world},
                        {"offload_d2h_ms", most[0]},
                        {"offload_adam_ms", most[1]},
                        {"offload_h2d_ms", most[2]},
                        {"device_peak_bytes", most[3]},
                        {"host_peak_bytes", most[4]}});
  if (board_ != nullptr) write_board(line);
  if (options_.progress_bar)
    std::fputs(report::progress_bar(iteration, line.train_iters, ms, finished.loss / n, 80).c_str(),
               stderr);
}

int Loop::validate(std::int64_t iteration) {
  const std::int64_t every = plan_.batch.eval_interval;
  if (every <= 0 || plan_.batch.eval_iters <= 0 || iteration % every != 0) return 0;
  const Clock::time_point start = Clock::now();
  const auto [loss, signal] = evaluate(runtime_);
  interval_.start += Clock::now() - start;  // evaluation is no training time
  if (signal != 0 || !runtime_.speaks()) return signal;
  print_line(report::validation_text(fmt::format("iteration {}", iteration), loss));
  folder_->write_validation(
      iteration, loss,
      plan_.batch.eval_iters * plan_.batch.eval_global_batch * plan_.model.seq_length);
  if (board_ != nullptr)
    board_->scalar("lm loss validation", loss, iteration, static_cast<double>(std::time(nullptr)));
  return 0;
}

void Loop::write_board(const report::Iteration& line) const {
  const auto now = static_cast<double>(std::time(nullptr));
  const auto put = [&](const std::string& tag, double value) {
    board_->scalar(tag, value, line.iteration, now);
  };
  put("learning-rate", line.learning_rate);
  put("batch-size", static_cast<double>(line.global_batch));
  for (const auto& [name, value] : line.losses) {
    put(name, value);
    board_->scalar(name + " vs samples", value, line.consumed_samples, now);
  }
  put("grad-norm", *line.grad_norm);
  put("iteration-time", line.elapsed_ms / 1e3);
  put("world-size", plan_.topology.world);
  board_->flush();
}

}  // namespace

int run(const plan::Plan& plan, comm::World& world, const Options& options) {
  std::unique_ptr<report::RunFolder> folder;
  std::unique_ptr<report::TensorBoard> board;
  try {
    print_start(plan, world.rank());
    Runtime runtime = build(plan, world);
    together(runtime.world(), [&] {
      if (!runtime.speaks()) return;
      folder = std::make_unique<report::RunFolder>(plan.log.run_dir, plan.config_yaml);
      if (!plan.log.tensorboard_dir.empty())
        board = std::make_unique<report::TensorBoard>(plan.log.tensorboard_dir);
    });
    return Loop(runtime, options, folder.get(), board.get()).run();
  } catch (const JobFailed& failed) {
    return failed.exit_code;
  }
}

}  // namespace rr::train
