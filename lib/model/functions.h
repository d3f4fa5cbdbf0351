// The differentiable operations of the decoder, each one node of torch's graph that runs our
// kernels and adds weight gradients straight into the fp32 main gradients. Private to the room.
//
// Tensors are dense and of the compute dtype unless said. In a run without training nothing is
// saved. Letters as in plan.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "model/weights.h"

namespace rr::model {

// One forward pass of one micro-batch.
struct Run {
  bool training = false;
  DType type = DType::f32;
  std::int64_t batch = 0, seq = 0;  // B, S
  double loss_scale = 1.0;
  const Tokens* tokens = nullptr;
  // Called in backward when everything of `layer` has run.
  std::function<void(int layer)> layer_done;

  std::int64_t rows() const { return batch * seq; }
};

at::Tensor empty(at::IntArrayRef sizes, DType type);

// Rows of the word embedding, plus learned positions where given: [B, S] -> [T, H].
at::Tensor embedding(const Run& run, Weight& words, Weight* positions);

// RMSNorm, or LayerNorm with a bias.
struct NormWeights {
  Weight* weight = nullptr;
  Weight* bias = nullptr;
  float epsilon = 1e-5F;
  bool center = false;
};
// `normal` feeds the block, `residual` (x itself) is added to its result. The node's backward adds
// the two gradients and then reports `layer_done`, unless it is negative.
struct Split {
  at::Tensor normal, residual;
};
Split norm_split(const Run& run, const at::Tensor& x, const NormWeights& weights, int layer_done);
// The final norm, without a residual.
at::Tensor norm(const Run& run, const at::Tensor& x, const NormWeights& weights, int layer_done);

// x [T, in] -> x weight^T + bias + residual [T, out]; bias may be null, residual undefined.
at::Tensor linear(const Run& run, const at::Tensor& x, Weight& weight, Weight* bias,
                  const at::Tensor& residual);

// See kernels.h for the layouts.
struct Heads {
  at::Tensor q, k, v;
};
Heads split_heads(const Run& run, const at::Tensor& qkv, const HeadsShape& shape, Weight* q_norm,
                  Weight* k_norm);
at::Tensor attention(const Run& run, const Heads& heads, const HeadsShape& shape);

// h [rows, F or 2F] -> [rows, F]; `probability` [rows] f32 or undefined.
at::Tensor activation(const Run& run, const at::Tensor& h, const at::Tensor& probability,
                      bool gated, bool gelu);

// The sum of masked token losses of x [T, H] under the head: a f32 scalar whose gradient is that of
// loss_scale * mean. `logits`, where asked for, gets [T, V] f32.
at::Tensor head_loss(const Run& run, const at::Tensor& x, Weight& head, std::int64_t vocab,
                     Loss& loss, at::Tensor* logits);

}  // namespace rr::model
