// Causal attention with query groups over blocks of rows, by matrix products; no torch headers.
//
// Scores of one block of queries against all keys it may see live in a scratch of the thread, so
// memory is linear in the sequence. A row never looks before the start of its document.
#pragma once

#include <cstdint>

#include "base/base.h"

namespace rr::model {

struct AttentionShape {
  DType type = DType::f32;
  std::int64_t batch = 0, seq = 0, heads = 0, groups = 0, dim = 0;
  const std::int64_t* starts = nullptr;  // [B, S] first position of the row's document, or null

  std::int64_t q_size() const { return batch * heads * seq * dim; }
  std::int64_t kv_size() const { return batch * groups * seq * dim; }
};

// fp32 elements of scratch for one call, at the threads of this moment.
std::int64_t attention_forward_scratch(const AttentionShape& shape);
std::int64_t attention_backward_scratch(const AttentionShape& shape);

// q [B, N, S, D], k and v [B, G, S, D] -> out [B * S, N * D] and log_sum [B, N, S] (logarithm of
// each row's sum of exponentials).
void attention_forward(const AttentionShape& shape, const void* q, const void* k, const void* v,
                       void* out, float* log_sum, float* scratch);
// dout as out -> dq, dk, dv as q, k, v.
struct AttentionBackward {
  const void *q, *k, *v, *out, *dout;
  const float* log_sum;
  void *dq, *dk, *dv;
};
void attention_backward(const AttentionShape& shape, const AttentionBackward& args, float* scratch);

}  // namespace rr::model
