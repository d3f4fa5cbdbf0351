// Blocks of queries; bf16 operands are widened once, products run in fp32.
#include "model/attention.h"

#include <algorithm>
#include <cmath>

#include "model/kernels.h"
#include "model/parallel.h"

namespace rr::model {

namespace {

constexpr std::int64_t kBlock = 128;  // queries at once

std::int64_t block_rows(const AttentionShape& shape) { return std::min(kBlock, shape.seq); }
std::int64_t num_blocks(const AttentionShape& shape) { return ceil_div(shape.seq, kBlock); }
bool is_bf16(const AttentionShape& shape) { return shape.type == DType::bf16; }

// Cuts a scratch into parts.
class Cutter {
 public:
  explicit Cutter(float* data) : data_(data) {}
  float* take(std::int64_t elements) {
    float* part = data_;
    data_ += round_up(elements, 16);
    return part;
  }

 private:
  float* data_;
};
std::int64_t padded(std::int64_t elements) { return round_up(elements, 16); }

// `in` itself for f32, else its fp32 copy in `buffer`.
const float* widened(const AttentionShape& shape, const void* in, std::int64_t count,
                     Cutter& scratch) {
  if (!is_bf16(shape)) return static_cast<const float*>(in);
  float* out = scratch.take(count);
  widen(in, out, count);
  return out;
}

std::int64_t cost_of(const AttentionShape& shape) { return shape.q_size() * shape.seq; }

float scale_of(const AttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.dim)));
}

// One block of queries: rows [begin, begin + rows) of a sequence see columns [first, columns).
struct Block {
  std::int64_t begin, rows, first, columns;
  ScoreRows scores;
};
Block block_of(const AttentionShape& shape, std::int64_t batch, std::int64_t index) {
  Block block;
  block.begin = index * kBlock;
  block.rows = std::min(kBlock, shape.seq - block.begin);
  block.columns = block.begin + block.rows;
  const std::int64_t* starts =
      shape.starts == nullptr ? nullptr : shape.starts + batch * shape.seq + block.begin;
  // Documents start in ascending order, so the first row sees farthest back.
  block.first = starts == nullptr ? 0 : std::min(starts[0], block.begin);
  block.scores = {block.rows, block.columns, shape.seq, block.begin, starts};
  return block;
}

void add(const float* in, float* out, std::int64_t count) {
  linear_epilogue(DType::f32, 1, count, out, nullptr, in, out);
}

}  // namespace

std::int64_t attention_forward_scratch(const AttentionShape& shape) {
  const std::int64_t rows = block_rows(shape);
  const std::int64_t thread = padded(rows * shape.seq) + padded(rows) + padded(rows * shape.dim);
  return max_threads() * thread +
         (is_bf16(shape) ? padded(shape.q_size()) + 2 * padded(shape.kv_size()) : 0);
}

void attention_forward(const AttentionShape& shape, const void* q, const void* k, const void* v,
                       void* out, float* log_sum, float* scratch) {
  Cutter cutter(scratch);
  const float* q32 = widened(shape, q, shape.q_size(), cutter);
  const float* k32 = widened(shape, k, shape.kv_size(), cutter);
  const float* v32 = widened(shape, v, shape.kv_size(), cutter);
  const std::int64_t rows = block_rows(shape);
  const std::int64_t per_thread =
      padded(rows * shape.seq) + padded(rows) + padded(rows * shape.dim);
  float* threads = cutter.take(max_threads() * per_thread);
  const std::int64_t dim = shape.dim, blocks = num_blocks(shape);
  const std::int64_t out_ld = shape.heads * dim, sequence = shape.seq * dim;
  for_items(shape.batch * shape.heads * blocks, cost_of(shape), [&](std::int64_t item, int thread) {
    Cutter own(threads + thread * per_thread);
    float* scores = own.take(rows * shape.seq);
    float* inverse = own.take(rows);
    float* result = own.take(rows * dim);
    // Long blocks first: they are what a thread could be left waiting for.
    const std::int64_t head = item % (shape.batch * shape.heads);
    const std::int64_t index = blocks - 1 - item / (shape.batch * shape.heads);
    const std::int64_t batch = head / shape.heads;
    const std::int64_t group =
        batch * shape.groups + head % shape.heads / (shape.heads / shape.groups);
    const Block block = block_of(shape, batch, index);
    const std::int64_t seen = block.columns - block.first;
    gemm(block.rows, seen, dim, scale_of(shape), {q32 + head * sequence + block.begin * dim, dim},
         {k32 + group * sequence + block.first * dim, dim, true}, 0.0F, scores + block.first,
         shape.seq);
    softmax_rows(block.scores, scores, inverse, log_sum + head * shape.seq + block.begin);
    gemm(block.rows, dim, seen, 1.0F, {scores + block.first, shape.seq},
         {v32 + group * sequence + block.first * dim, dim}, 0.0F, result, dim);
    char* target = static_cast<char*>(out) +
                   ((batch * shape.seq + block.begin) * out_ld + head % shape.heads * dim) *
                       size_of(shape.type);
    scale_rows(shape.type, block.rows, dim, result, dim, inverse, target, out_ld);
  });
}

namespace {

std::int64_t backward_thread_scratch(const AttentionShape& shape) {
  const std::int64_t rows = block_rows(shape);
  return 2 * padded(rows * shape.seq) + padded(rows) +
         (is_bf16(shape) ? padded(rows * shape.dim) : 0);
}

struct BackwardBuffers {
  const float *q, *k, *v;
  float *dq, *dk, *dv;  // dk, dv per query head [B, N, S, D]
};

// One query head: its blocks in order, so that dk and dv have one order of summation.
void head_backward(const AttentionShape& shape, const AttentionBackward& args,
                   const BackwardBuffers& buffers, std::int64_t head, float* scratch) {
  const std::int64_t rows = block_rows(shape), dim = shape.dim;
  const std::int64_t sequence = shape.seq * dim, ld = shape.heads * dim;
  Cutter own(scratch);
  float* scores = own.take(rows * shape.seq);
  float* dp = own.take(rows * shape.seq);
  float* delta = own.take(rows);
  float* widened_dout = is_bf16(shape) ? own.take(rows * dim) : nullptr;
  const std::int64_t batch = head / shape.heads;
  const std::int64_t group =
      batch * shape.groups + head % shape.heads / (shape.heads / shape.groups);
  const float scale = scale_of(shape);
  float* dk = buffers.dk + head * sequence;
  float* dv = buffers.dv + head * sequence;
  // From the last block, which sees every key unless documents hide some.
  for (std::int64_t index = num_blocks(shape) - 1; index >= 0; --index) {
    const Block block = block_of(shape, batch, index);
    const std::int64_t seen = block.columns - block.first;
    const std::int64_t at =
        ((batch * shape.seq + block.begin) * ld + head % shape.heads * dim) * size_of(shape.type);
    const void* out = static_cast<const char*>(args.out) + at;
    const void* dout = static_cast<const char*>(args.dout) + at;
    const float* q = buffers.q + head * sequence + block.begin * dim;
    const float* k = buffers.k + group * sequence + block.first * dim;
    const float* v = buffers.v + group * sequence + block.first * dim;
    Matrix grad{static_cast<const float*>(dout), ld};
    if (is_bf16(shape)) {
      for (std::int64_t i = 0; i < block.rows; ++i) {
        widen(static_cast<const char*>(dout) + i * ld * 2, widened_dout + i * dim, dim);
      }
      grad = {widened_dout, dim};
    }
    row_dots(shape.type, block.rows, dim, out, ld, dout, ld, delta);
    gemm(block.rows, seen, dim, scale, {q, dim}, {k, dim, true}, 0.0F, scores + block.first,
         shape.seq);
    gemm(block.rows, seen, dim, 1.0F, grad, {v, dim, true}, 0.0F, dp + block.first, shape.seq);
    softmax_rows_backward(block.scores, scores, dp, args.log_sum + head * shape.seq + block.begin,
                          delta);
    const Matrix probabilities{scores + block.first, shape.seq, true};
    const Matrix ds{dp + block.first, shape.seq};
    gemm(block.rows, dim, seen, scale, ds, {k, dim}, 0.0F,
         buffers.dq + head * sequence + block.begin * dim, dim);
    gemm(seen, dim, block.rows, scale, {ds.data, ds.ld, true}, {q, dim}, 1.0F,
         dk + block.first * dim, dim);
    Matrix grad_rows = grad;
    gemm(seen, dim, block.rows, 1.0F, probabilities, grad_rows, 1.0F, dv + block.first * dim, dim);
  }
}

// Adds the query heads of each group, ascending, and rounds where the type asks for it.
void sum_heads(const AttentionShape& shape, float* per_head, void* out) {
  const std::int64_t sequence = shape.seq * shape.dim;
  const std::int64_t heads = shape.heads / shape.groups;
  for_items(shape.batch * shape.groups, shape.q_size(), [&](std::int64_t group, int) {
    float* sum = per_head + group * heads * sequence;
    for (std::int64_t i = 1; i < heads; ++i) add(sum + i * sequence, sum, sequence);
    char* target = static_cast<char*>(out) + group * sequence * size_of(shape.type);
    linear_epilogue(shape.type, 1, sequence, sum, nullptr, nullptr, target);
  });
}

}  // namespace

std::int64_t attention_backward_scratch(const AttentionShape& shape) {
  std::int64_t total = max_threads() * backward_thread_scratch(shape);
  if (is_bf16(shape)) total += 2 * padded(shape.q_size()) + 2 * padded(shape.kv_size());
  if (is_bf16(shape) || shape.heads != shape.groups) total += 2 * padded(shape.q_size());
  return total;
}

void attention_backward(const AttentionShape& shape, const AttentionBackward& args,
                        float* scratch) {
  Cutter cutter(scratch);
  BackwardBuffers buffers;
  buffers.q = widened(shape, args.q, shape.q_size(), cutter);
  buffers.k = widened(shape, args.k, shape.kv_size(), cutter);
  buffers.v = widened(shape, args.v, shape.kv_size(), cutter);
  const bool per_head = is_bf16(shape) || shape.heads != shape.groups;
  buffers.dq = is_bf16(shape) ? cutter.take(shape.q_size()) : static_cast<float*>(args.dq);
  buffers.dk = per_head ? cutter.take(shape.q_size()) : static_cast<float*>(args.dk);
  buffers.dv = per_head ? cutter.take(shape.q_size()) : static_cast<float*>(args.dv);
  const std::int64_t per_thread = backward_thread_scratch(shape);
  float* threads = cutter.take(max_threads() * per_thread);
  const std::int64_t sequence = shape.seq * shape.dim;
  for_items(shape.batch * shape.heads, 2 * cost_of(shape), [&](std::int64_t head, int thread) {
    std::fill_n(buffers.dk + head * sequence, sequence, 0.0F);
    std::fill_n(buffers.dv + head * sequence, sequence, 0.0F);
    head_backward(shape, args, buffers, head, threads + thread * per_thread);
  });
  if (is_bf16(shape)) round_to_bf16(buffers.dq, args.dq, shape.q_size());
  if (per_head) {
    sum_heads(shape, buffers.dk, args.dk);
    sum_heads(shape, buffers.dv, args.dv);
  }
}

}  // namespace rr::model
