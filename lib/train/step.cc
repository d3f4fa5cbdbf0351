// The training step, top to bottom.
#include "train/step.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>

#include "base/log.h"
#include "plan/planner.h"
#include "train/pipeline.h"
#include "train/signals.h"
#include "train/train.h"

namespace rr::train {
namespace {

// What all ranks must know of the step before the optimizer runs, summed over the world in one
// message. Only last-stage ranks have losses; every stage has its own MoE layers.
struct Shared {
  double loss_sum = 0, num_tokens = 0, load_balancing = 0, z = 0, moe_terms = 0;
  double not_finite = 0;  // ranks whose loss is NaN or infinite
  double signals = 0;     // ranks that received a signal
  double out_of_time = 0;

  void reduce(comm::Communicator& world) {
    std::array<double, 8> values = {loss_sum,  num_tokens, load_balancing, z,
                                    moe_terms, not_finite, signals,        out_of_time};
    world.all_reduce_sum(values);
    loss_sum = values[0];
    num_tokens = values[1];
    load_balancing = values[2];
    z = values[3];
    moe_terms = values[4];
    not_finite = values[5];
    signals = values[6];
    out_of_time = values[7];
  }
};

// The lowest rank whose `mine` is true; -1 if none. Collective.
int lowest_rank(comm::Communicator& world, bool mine) {
  std::array<double, 1> best = {mine ? static_cast<double>(world.size() - world.rank()) : 0.0};
  world.all_reduce_max(best);
  return best[0] == 0.0 ? -1 : world.size() - static_cast<int>(best[0]);
}

int agreed_signal(comm::Communicator& world) {
  std::array<double, 1> number = {static_cast<double>(signal_received())};
  world.all_reduce_max(number);
  return static_cast<int>(number[0]);
}

// One clock decides for all ranks.
bool out_of_time(const Runtime& runtime) {
  const double limit = runtime.plan.batch.exit_after_minutes;
  const std::chrono::duration<double, std::ratio<60>> minutes =
      std::chrono::steady_clock::now() - runtime.start;
  return runtime.rank.rank == 0 && limit > 0 && minutes.count() > limit;
}

[[noreturn]] void stop_for(const Runtime& runtime, int rank, std::int64_t iteration,
                           const char* what) {
  if (runtime.rank.rank == rank) {
    log_error(fmt::format(
        "error: found NaN or infinity in {} at iteration {} on rank {} (stage {}, data rank {}); "
        "the weights are those before this step. Lower optimizer.lr, set optimizer.clip_grad, or "
        "inspect the data of that iteration.",
        what, iteration, rank, runtime.rank.at.pipeline, runtime.rank.at.data));
  }
  throw JobFailed{1};
}

}  // namespace

StepReport train_step(Runtime& runtime, std::int64_t iteration) {
  const plan::Plan& plan = runtime.plan;
  const std::int64_t consumed = (iteration - 1) * plan.batch.global_batch;

  // Forward and backward of all micro-batches; gradients are reduced as layers become final.
  runtime.optimizer->begin();
  runtime.model->begin_step();
  const Losses losses = run_training_schedule(runtime, consumed);
  const model::AuxiliaryLosses auxiliary = runtime.model->auxiliary_losses();

  Shared shared{
      .loss_sum = losses.sum,
      .num_tokens = losses.num_tokens,
      .load_balancing = auxiliary.load_balancing,
      .z = auxiliary.z,
      .moe_terms = static_cast<double>(auxiliary.moe_layers) * plan.batch.num_micro_batches,
      .not_finite = std::isfinite(losses.sum) ? 0.0 : 1.0,
      .signals = signal_received() == 0 ? 0.0 : 1.0,
      .out_of_time = out_of_time(runtime) ? 1.0 : 0.0};
  const bool own_loss_is_finite = shared.not_finite == 0.0;
  shared.reduce(runtime.world());
  if (shared.not_finite > 0)
    stop_for(runtime, lowest_rank(runtime.world(), !own_loss_is_finite), iteration, "the loss");

  // Norm, clip, AdamW wherever the state lives, weights gathered. Iteration i runs at the rate of
  // the samples consumed before it.
  StepReport report;
  report.optimizer =
      runtime.optimizer->step({.learning_rate = plan::learning_rate(plan.schedule, consumed),
                               .weight_decay = plan::weight_decay(plan.schedule, consumed),
                               .step = iteration});
  if (!report.optimizer.finite)
    stop_for(runtime, report.optimizer.failed_rank, iteration, "the gradients");

  report.loss = shared.loss_sum / std::max(shared.num_tokens, 1.0);
  report.out_of_time = shared.out_of_time > 0;
  report.has_moe = shared.moe_terms > 0;
  if (report.has_moe) {
    report.load_balancing = shared.load_balancing / shared.moe_terms;
    report.z = shared.z / shared.moe_terms;
  }
  if (shared.signals > 0) report.signal = agreed_signal(runtime.world());
  return report;
}

Evaluation evaluate(Runtime& runtime) {
  const plan::BatchPlan& batch = runtime.plan.batch;
  runtime.optimizer->finish();
  std::array<double, 2> totals = {0.0, 0.0};
  for (std::int64_t i = 0; i < batch.eval_iters; ++i) {
    const Losses losses = run_evaluation_schedule(runtime, i * batch.eval_global_batch);
    totals[0] += losses.sum;
    totals[1] += losses.num_tokens;
    // An evaluation may take longer than a scheduler waits between TERM and KILL.
    if (const int signal = agreed_signal(runtime.world())) return {.signal = signal};
  }
  runtime.world().all_reduce_sum(totals);
  return {.loss = totals[0] / std::max(totals[1], 1.0)};
}

}  // namespace rr::train
