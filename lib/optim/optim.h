// The optimizer: flat weights and gradients, sharded AdamW, and where its state lives.
//
// optim owns the flat buffers; the model only sees Spans of them. The masters of this rank's shard
// are drawn or imported here, weight = round(master), then gathered. Every home gives the same
// bits.
//
// One iteration:  begin() ... backward passes, gradients_ready(layer) per layer of the last one ...
// step() ... finish() before anything else reads weights (the next forward may start before that:
// wait_for(layer)).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/base.h"
#include "base/threads.h"
#include "comm/comm.h"
#include "device/device.h"
#include "plan/plan.h"

namespace rr::optim {

struct StepInput {
  double learning_rate = 0;
  double weight_decay = 0;
  std::int64_t step = 1;  // Adam's t, from 1; bias correction is a pure function of it
};

struct StepResult {
  double grad_norm = 0;    // before clipping, over the whole model, each parameter once
  bool finite = true;      // false: the step was not taken, nothing changed
  int failed_rank = -1;    // lowest world rank whose gradients brought a NaN or infinity, as far as
                           // the reduced ones can tell
  double num_zeros = 0;    // gradient elements that are zero; only when asked for
  double params_norm = 0;  // of the masters; only when asked for
  // Host part of the step: what each stream and the host's Adam were busy with since the last step.
  // With overlap the copies run beside it and beside backward and forward.
  double d2h_ms = 0, adam_ms = 0, h2d_ms = 0;
};

// One piece of optimizer state of this rank, for checkpoints and tests.
struct StatePiece {
  std::string name;  // logical parameter name + ".master" | ".exp_avg" | ".exp_avg_sq"
  DType dtype = DType::f32;
  std::int64_t first = 0;  // element of the full tensor that data[0] is
  Span data;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Flat arrays of StagePlan::buffers[buffer]; fixed addresses for the program's life. Weights are
  // written by this room only.
  virtual Span weights(int buffer) const = 0;
  virtual Span gradients(int buffer) const = 0;  // fp32 main gradients

  // Draws the masters (plan::Init, by name and element) and fills the weights of every rank.
  virtual void initialize() = 0;
  // Same, from values: fill(parameter, first, count, out) writes `count` fp32 master elements of
  // the full tensor from element `first` on. Once per stretch of this rank's shard, in one thread.
  // Moments stay as they are: zero at the start.
  using Fill = std::function<void(const plan::Parameter& parameter, std::int64_t first,
                                  std::int64_t count, float* out)>;
  virtual void import(const Fill& fill) = 0;

  // A new iteration: gradients of the last one are no longer needed.
  virtual void begin() = 0;
  // All gradients of `layer` of this stage are final: its buckets may be reduced as soon as every
  // later bucket was issued.
  virtual void gradients_ready(int layer) = 0;
  // Finishes the reductions, norm, clip, AdamW on every home. Collective over the world. When it
  // returns the state is that of the step and gradients may be overwritten; weights may still be on
  // their way to the device and to the replicas.
  virtual StepResult step(const StepInput& input) = 0;
  // The weights of `layer` are those of the last step when this returns.
  virtual void wait_for(int layer) = 0;
  // Everything pending is done.
  virtual void finish() = 0;

  // This rank's shard; call finish() first.
  virtual std::vector<StatePiece> state() = 0;
};

struct Environment {
  const plan::Plan& plan;
  const plan::RankPlan& rank;
  device::Device& device;
  const comm::Groups& groups;
  ThreadPool& threads;
  std::int64_t chunk_elements = std::int64_t{1} << 20;  // of the pipeline of copies and host steps
};
std::unique_ptr<Optimizer> make_optimizer(const Environment& environment);

// ---- the kernel, one definition for every home ------------------------------------------------

// torch.optim.AdamW, one rounding per operation:
//
//   g = gradient_scale * gradient
//   m = fma(1 - beta1, g - m, m)
//   v = fma((1 - beta2) * g, g, beta2 * v)
//   p = p * decay_factor - (step_size * m) / (sqrt(v) / bias2_sqrt + epsilon)
//
// The factors are computed in double, once per step, and rounded here.
struct AdamArguments {
  float one_minus_beta1, beta2, one_minus_beta2, epsilon;
  float decay_factor;    // 1 - learning rate * weight decay; 1 where nothing decays
  float step_size;       // learning rate / (1 - beta1^t)
  float bias2_sqrt;      // sqrt(1 - beta2^t)
  float gradient_scale;  // clip coefficient
};
AdamArguments adam_arguments(const plan::OptimizerPlan& plan, const StepInput& input,
                             double clip_coefficient, bool decay);

// Which instruction set runs; `best` picks by the CPU. All give the same bits.
enum class Isa : std::uint8_t { best, generic, avx2, avx512 };
bool isa_available(Isa isa);

// p, m, v and weight [n] are updated in place from gradient [n]. weight_out gets round(p) as
// `weight_dtype` (f32 or bf16, to nearest even); may be p itself for f32, or null for none.
void adam_step(const AdamArguments& arguments, std::int64_t n, float* p, float* m, float* v,
               const float* gradient, void* weight_out, DType weight_dtype, Isa isa = Isa::best);

// Sum of squares in a fixed order that depends on n only: blocks of 4096, pairwise over blocks.
double sum_of_squares(const float* data, std::int64_t n);

}  // namespace rr::optim
