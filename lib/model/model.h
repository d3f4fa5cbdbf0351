// The GPT / mixture-of-experts decoder of one pipeline stage: forward and backward of a micro-batch
// over borrowed flat weights, gradients added into borrowed flat main gradients.
//
// The model keeps the graph of a micro-batch between its forward and its backward, so any 1F1B
// order works. All calls come from one thread. Weights must not change while a graph is alive.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "comm/comm.h"
#include "device/device.h"
#include "offload/offload.h"
#include "plan/plan.h"

namespace rr::model {

// Spans of one FlatBuffer.
struct BufferView {
  Span weights;    // plan::FlatBuffer::dtype
  Span gradients;  // f32, same element offsets
};

// Tokens of one micro-batch; first stage reads tokens and positions, last stage labels and mask.
struct Tokens {
  at::Tensor tokens, labels, positions;  // [B, S] i64
  at::Tensor loss_mask;                  // [B, S] f32
  at::Tensor document_starts;            // [B, S] i64 or undefined
};

struct Loss {
  double sum = 0;         // of token losses, fp32 cross entropy, masked
  double num_tokens = 0;  // mask sum
};

// Sums over this stage's MoE layers and the micro-batches since begin_step(), without their
// coefficients, as the reference logs them: perfect balance is 1 per layer and micro-batch.
struct AuxiliaryLosses {
  double load_balancing = 0, z = 0;
  int moe_layers = 0;  // of this stage
};

struct Hooks {
  // Before a layer's weights are read in forward; after a layer's gradients are final in the
  // backward of the last micro-batch. Layer 0 embedding, 1..L decoder, L+1 final norm and head.
  std::function<void(int layer)> before_layer;
  std::function<void(int layer)> gradients_ready;
};

struct Environment {
  const plan::Plan& plan;
  const plan::RankPlan& rank;
  device::Device& device;
  const comm::Groups& groups;
  std::vector<BufferView> buffers;  // as StagePlan::buffers
  offload::Store* store = nullptr;  // null: activations stay
  Hooks hooks;
};

class Model {
 public:
  explicit Model(Environment environment);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // A new optimizer step: the first gradient of each parameter overwrites.
  void begin_step();

  // First stage: `input` undefined. Others: [T, H] from the previous stage. Returns [T, H] in
  // compute dtype to send, undefined on the last stage.
  // `loss_scale`: what the mean token loss of this micro-batch is multiplied by before backward,
  // micro_batch size / global batch, so that sums over micro-batches and replicas need no divisor.
  at::Tensor forward(int micro_batch, const Tokens& tokens, const at::Tensor& input,
                     double loss_scale);
  // `grad_output` undefined on the last stage. Returns d loss / d input [T, H], undefined on the
  // first stage. `last`: the last backward of this step, hooks.gradients_ready fires; parameters
  // that got no gradient are zeroed.
  at::Tensor backward(int micro_batch, const at::Tensor& grad_output, bool last);

  // Forward without a graph.
  at::Tensor evaluate(const Tokens& tokens, const at::Tensor& input);

  // Of the micro-batch last run forward or evaluated, last stage only.
  Loss loss() const;
  // [T, V] f32 of the last evaluate() when asked for; for tests and tools.
  void keep_logits(bool keep);
  at::Tensor logits() const;
  AuxiliaryLosses auxiliary_losses() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Process-wide set-up that torch forces on us, once, before any tensor: its CPU allocator counts
// into `device`, its autograd engine gets our saved-tensor hooks, `threads` intra-op threads of the
// calling thread. May be called again, for another device or number of threads.
void install_torch_globals(device::Device& device, int threads);
// Nothing is counted any more: before the device goes, if a tensor may outlive it.
void release_torch_globals();

// ---- Hugging Face names -----------------------------------------------------------------------

// llama, qwen3, qwen3_moe and olmoe spell alike; mixtral names its experts in its own way.
enum class HfNames : std::uint8_t { common, mixtral };

// Reads full tensors by Hugging Face name and answers in plan names and layout: fills `count`
// elements of the full tensor of `parameter` from element `first` on, fp32. `read(name)` returns a
// contiguous fp32 tensor. For Optimizer::import.
void fill_from_hf(const plan::Plan& plan, const plan::Parameter& parameter, std::int64_t first,
                  std::int64_t count, float* out,
                  const std::function<at::Tensor(const std::string& name)>& read,
                  HfNames names = HfNames::common);
// Hugging Face names with the pieces of `parameter`'s full tensor they are: for tests and export.
struct HfPiece {
  std::string name;
  at::Tensor value;  // a view or copy of the piece
};
// `full`: the whole tensor of `parameter` (all experts), fp32.
std::vector<HfPiece> to_hf(const plan::Plan& plan, const plan::Parameter& parameter,
                           const at::Tensor& full, HfNames names = HfNames::common);

}  // namespace rr::model
