// Chooses the instruction set once and cuts each kernel's rows over the threads.
#include "model/kernels.h"

#include <algorithm>
#include <cstring>

#include "model/kernels_table.h"
#include "model/parallel.h"

namespace rr::model {

namespace {

const KernelTable& table() {
  static const KernelTable& chosen = __builtin_cpu_supports("avx512bw") &&
                                             __builtin_cpu_supports("avx512vl") &&
                                             __builtin_cpu_supports("avx512dq")
                                         ? avx512::kTable
                                     : __builtin_cpu_supports("avx2") ? avx2::kTable
                                                                      : generic::kTable;
  return chosen;
}

const KernelTable::PerType& typed(DType type) { return table().typed[type == DType::bf16 ? 1 : 0]; }

// Rows of one piece of work: enough elements to be worth handing to a thread.
std::int64_t grain(std::int64_t width) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, width));
}

// Rows that share one block of partial sums. Depends on the number of rows only.
std::int64_t partial_grain(std::int64_t rows) {
  return std::max<std::int64_t>(16, ceil_div(rows, 64));
}

}  // namespace

std::int64_t partial_rows(std::int64_t rows) { return ceil_div(rows, partial_grain(rows)); }

void widen(const void* bf16, float* out, std::int64_t count) {
  for_ranges(count, 65536, count, [&](std::int64_t begin, std::int64_t end) {
    table().widen(static_cast<const char*>(bf16) + begin * 2, out + begin, end - begin);
  });
}

void round_to_bf16(const float* in, void* bf16, std::int64_t count) {
  for_ranges(count, 65536, count, [&](std::int64_t begin, std::int64_t end) {
    table().round_to_bf16(in + begin, static_cast<char*>(bf16) + begin * 2, end - begin);
  });
}

void norm_forward(const NormForward& args) {
  for_ranges(args.shape.rows, grain(args.shape.width), args.shape.rows * args.shape.width,
             [&](std::int64_t begin, std::int64_t end) {
               typed(args.shape.type).norm_forward(args, begin, end);
             });
}

void norm_backward(const NormBackward& args) {
  const std::int64_t rows = args.shape.rows, width = args.shape.width;
  const std::int64_t block = partial_grain(rows);
  for_ranges(rows, block, rows * width, [&](std::int64_t begin, std::int64_t end) {
    typed(args.shape.type)
        .norm_backward(args, begin, end, args.scratch + begin / block * 2 * width);
  });
  const std::int64_t partials = partial_rows(rows);
  table().sum_partials(args.scratch, partials, 2 * width, width, args.dweight);
  if (args.dbias.data != nullptr) {
    table().sum_partials(args.scratch + width, partials, 2 * width, width, args.dbias);
  }
}

void heads_forward(const HeadsForward& args) {
  const HeadsShape& shape = args.shape;
  RR_CHECK(shape.dim <= 512, "head dimension above 512");
  const std::int64_t width = (shape.heads + 2 * shape.groups) * shape.dim;
  const std::int64_t rows = shape.batch * shape.seq;
  for_ranges(rows, grain(width), rows * width, [&](std::int64_t begin, std::int64_t end) {
    typed(shape.type).heads_forward(args, begin, end);
  });
}

void heads_backward(const HeadsBackward& args) {
  const HeadsShape& shape = args.shape;
  const std::int64_t rows = shape.batch * shape.seq;
  const std::int64_t block = partial_grain(rows);
  const std::int64_t q_width = shape.dim * (shape.whole ? shape.heads : 1);
  const std::int64_t k_width = shape.dim * (shape.whole ? shape.groups : 1);
  const std::int64_t width = q_width + k_width;
  const std::int64_t cost = rows * (shape.heads + 2 * shape.groups) * shape.dim;
  for_ranges(rows, block, cost, [&](std::int64_t begin, std::int64_t end) {
    float* partial = args.scratch == nullptr ? nullptr : args.scratch + begin / block * width;
    typed(shape.type).heads_backward(args, begin, end, partial);
  });
  if (args.scratch == nullptr) return;
  const std::int64_t partials = partial_rows(rows);
  table().sum_partials(args.scratch, partials, width, q_width, args.dq_weight);
  table().sum_partials(args.scratch + q_width, partials, width, k_width, args.dk_weight);
}

void activation_forward(const ActivationShape& shape, const void* h, const float* probability,
                        void* y) {
  const std::int64_t cost = shape.rows * shape.width * 4;
  for_ranges(shape.rows, grain(shape.width * 4), cost, [&](std::int64_t begin, std::int64_t end) {
    typed(shape.type).activation_forward(shape, h, probability, y, begin, end);
  });
}

void activation_backward(const ActivationShape& shape, const void* h, const float* probability,
                         const void* dy, void* dh, float* dprobability) {
  const std::int64_t cost = shape.rows * shape.width * 4;
  for_ranges(shape.rows, grain(shape.width * 4), cost, [&](std::int64_t begin, std::int64_t end) {
    typed(shape.type).activation_backward(shape, h, probability, dy, dh, dprobability, begin, end);
  });
}

void linear_epilogue(DType type, std::int64_t rows, std::int64_t width, const float* acc,
                     const void* bias, const void* residual, void* y) {
  for_ranges(rows, grain(width), rows * width, [&](std::int64_t begin, std::int64_t end) {
    typed(type).linear_epilogue(width, acc, bias, residual, y, begin, end);
  });
}

void column_sums(DType type, std::int64_t rows, std::int64_t width, const void* x, GradientOut out,
                 float* scratch) {
  const std::int64_t block = partial_grain(rows);
  for_ranges(rows, block, rows * width, [&](std::int64_t begin, std::int64_t end) {
    typed(type).column_sums(width, x, begin, end, scratch + begin / block * width);
  });
  table().sum_partials(scratch, partial_rows(rows), width, width, out);
}

void gather_rows(DType type, std::int64_t count, std::int64_t width, const void* in,
                 const std::int32_t* index, void* out) {
  const std::int64_t bytes = width * size_of(type);
  for_ranges(count, grain(width), count * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::memcpy(static_cast<char*>(out) + row * bytes,
                  static_cast<const char*>(in) + index[row] * bytes,
                  static_cast<std::size_t>(bytes));
    }
  });
}

void sum_rows(DType type, std::int64_t tokens, std::int64_t per_token, std::int64_t width,
              const void* in, const std::int32_t* index, const void* residual, void* out) {
  for_ranges(tokens, grain(width * per_token), tokens * width * per_token,
             [&](std::int64_t begin, std::int64_t end) {
               typed(type).sum_rows(per_token, width, in, index, residual, out, begin, end);
             });
}

void scatter_add_rows(DType type, std::int64_t tokens, std::int64_t width, const void* dy,
                      const std::int64_t* ids, float* out) {
  // Cut by columns: two tokens may be the same word.
  for_ranges(width, 64, tokens * width, [&](std::int64_t begin, std::int64_t end) {
    typed(type).scatter_add(tokens, width, dy, ids, out, begin, end);
  });
}

void cross_entropy(DType type, std::int64_t rows, std::int64_t width, void* logits,
                   const std::int64_t* labels, const float* scale, float* loss) {
  for_ranges(rows, grain(width), rows * width, [&](std::int64_t begin, std::int64_t end) {
    typed(type).cross_entropy(width, logits, labels, scale, loss, begin, end);
  });
}

void softmax_rows(const ScoreRows& shape, float* scores, float* inverse_sum, float* log_sum) {
  table().softmax_rows(shape, scores, inverse_sum, log_sum);
}

void softmax_rows_backward(const ScoreRows& shape, float* scores, float* dp, const float* log_sum,
                           const float* delta) {
  table().softmax_rows_backward(shape, scores, dp, log_sum, delta);
}

void row_dots(DType type, std::int64_t rows, std::int64_t width, const void* a, std::int64_t lda,
              const void* b, std::int64_t ldb, float* out) {
  typed(type).row_dots(rows, width, a, lda, b, ldb, out);
}

void scale_rows(DType type, std::int64_t rows, std::int64_t width, const float* in,
                std::int64_t ldi, const float* factor, void* out, std::int64_t ldo) {
  typed(type).scale_rows(rows, width, in, ldi, factor, out, ldo);
}

}  // namespace rr::model
