// The loops over elements and rows that torch has no fused operation for, without torch's headers.
//
// All arithmetic is fp32 in a fixed order with IEEE additions, multiplications, divisions and
// square roots, so the bits are the same on every CPU and for every number of threads; bf16 arrays
// are widened when read and rounded once when written. Arrays are row-major and dense.
#pragma once

#include <cstdint>

#include "base/base.h"

namespace rr::model {

// ---- conversion -------------------------------------------------------------------------------

void widen(const void* bf16, float* out, std::int64_t count);
void round_to_bf16(const float* in, void* bf16, std::int64_t count);

// ---- normalisation ----------------------------------------------------------------------------

// y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + epsilon); `center` (LayerNorm) subtracts the
// mean first and adds `bias`.
struct NormShape {
  DType type = DType::f32;  // of x, y, weight, bias and their gradients dy, dx
  std::int64_t rows = 0, width = 0;
  bool center = false;
  float epsilon = 1e-5F;
};
struct NormForward {
  NormShape shape;
  const void* x;
  const void* weight;
  const void* bias;  // null unless centered
  void* y;
  float* rstd;  // [rows]
  float* mean;  // [rows], null unless centered
};
void norm_forward(const NormForward& args);

// Where a parameter's gradient goes: fp32, overwritten or added to.
struct GradientOut {
  float* data = nullptr;
  bool overwrite = false;
};
struct NormBackward {
  NormShape shape;
  const void* x;
  const void* weight;
  const float* rstd;
  const float* mean;
  const void* dy;
  const void* residual;  // added to dx; may be null
  void* dx;
  GradientOut dweight, dbias;
  float* scratch;  // [partial_rows(rows), 2, width]
};
std::int64_t partial_rows(std::int64_t rows);
void norm_backward(const NormBackward& args);

// ---- attention heads --------------------------------------------------------------------------

// From the fused projection [T, G, R + 2, D] to q [B, N, S, D], k and v [B, G, S, D]: optional
// RMSNorm of q and k (per head, or over all heads at once), then rotate-half RoPE on the first
// `rotary` dimensions.
struct HeadsShape {
  DType type = DType::f32;
  std::int64_t batch = 0, seq = 0, heads = 0, groups = 0, dim = 0;
  std::int64_t rotary = 0;         // 0: none
  const float* cosines = nullptr;  // [positions, rotary / 2]
  const float* sines = nullptr;
  const std::int64_t* positions = nullptr;  // [T]
  const void* q_weight = nullptr;           // null: no norm
  const void* k_weight = nullptr;
  bool whole = false;
  float epsilon = 1e-6F;
};
struct HeadsForward {
  HeadsShape shape;
  const void* qkv;
  void *q, *k, *v;
};
void heads_forward(const HeadsForward& args);
struct HeadsBackward {
  HeadsShape shape;
  const void* qkv;  // read only with a norm
  const void *dq, *dk, *dv;
  void* dqkv;
  GradientOut dq_weight, dk_weight;
  float* scratch;  // [partial_rows(T), weight sizes of q and k]; null without a norm
};
void heads_backward(const HeadsBackward& args);

// ---- feed-forward -----------------------------------------------------------------------------

// y = act(h) or act(gate) * up with h = [gate | up], times probability[row] where given.
struct ActivationShape {
  DType type = DType::f32;
  std::int64_t rows = 0, width = 0;  // of y
  bool gated = true, gelu = false;
};
void activation_forward(const ActivationShape& shape, const void* h, const float* probability,
                        void* y);
// dprobability: [rows], null without probabilities.
void activation_backward(const ActivationShape& shape, const void* h, const float* probability,
                         const void* dy, void* dh, float* dprobability);

// y = acc + bias + residual; bias and residual may be null; acc may be y for f32.
void linear_epilogue(DType type, std::int64_t rows, std::int64_t width, const float* acc,
                     const void* bias, const void* residual, void* y);
// out[j] (+)= sum over rows of x[., j]. scratch: [partial_rows(rows), width].
void column_sums(DType type, std::int64_t rows, std::int64_t width, const void* x, GradientOut out,
                 float* scratch);

// ---- rows by index ----------------------------------------------------------------------------

// out[i] = in[index[i]].
void gather_rows(DType type, std::int64_t count, std::int64_t width, const void* in,
                 const std::int32_t* index, void* out);
// out[t] = residual[t] + sum over k of in[index[t * per_token + k]], k ascending; residual may be
// null.
void sum_rows(DType type, std::int64_t tokens, std::int64_t per_token, std::int64_t width,
              const void* in, const std::int32_t* index, const void* residual, void* out);
// out[ids[t]] += dy[t], t ascending.
void scatter_add_rows(DType type, std::int64_t tokens, std::int64_t width, const void* dy,
                      const std::int64_t* ids, float* out);

// ---- loss -------------------------------------------------------------------------------------

// loss[t] = log sum exp(logits[t]) - logits[t, label]; with `scale` (per row, may be null) the row
// is then overwritten by scale[t] * (softmax - one hot).
void cross_entropy(DType type, std::int64_t rows, std::int64_t width, void* logits,
                   const std::int64_t* labels, const float* scale, float* loss);

// ---- attention, rows of a block of scores -------------------------------------------------------

// Row i of `scores` [rows, ld] may see columns [first[i], last_first_row + i]; elsewhere up to
// `columns` it becomes zero. softmax_rows leaves exp(score - max) and gives 1 / sum and the
// logarithm of the sum with the maximum added.
struct ScoreRows {
  std::int64_t rows, columns, ld;
  std::int64_t first_position;  // of row 0: it sees columns up to this one
  const std::int64_t* starts;   // [rows] or null: from 0
};
void softmax_rows(const ScoreRows& shape, float* scores, float* inverse_sum, float* log_sum);
// scores -> probabilities p; dp -> p * (dp - delta).
void softmax_rows_backward(const ScoreRows& shape, float* scores, float* dp, const float* log_sum,
                           const float* delta);
// out[i] = sum_j a[i * lda + j] * b[i * ldb + j].
void row_dots(DType type, std::int64_t rows, std::int64_t width, const void* a, std::int64_t lda,
              const void* b, std::int64_t ldb, float* out);
// out[i * ldo + j] = factor[i] * in[i * ldi + j].
void scale_rows(DType type, std::int64_t rows, std::int64_t width, const float* in,
                std::int64_t ldi, const float* factor, void* out, std::int64_t ldo);

}  // namespace rr::model
