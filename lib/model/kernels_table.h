// What each instruction set provides: the kernels over a range of rows. Private to kernels*.cc.
#pragma once

#include "model/kernels.h"

namespace rr::model {

// A column range for partial sums over rows: this range's own block of the scratch.
struct KernelTable {
  void (*widen)(const void* bf16, float* out, std::int64_t count);
  void (*round_to_bf16)(const float* in, void* bf16, std::int64_t count);
  // [0] f32, [1] bf16.
  struct PerType {
    void (*norm_forward)(const NormForward&, std::int64_t begin, std::int64_t end);
    void (*norm_backward)(const NormBackward&, std::int64_t begin, std::int64_t end,
                          float* partial);
    void (*heads_forward)(const HeadsForward&, std::int64_t begin, std::int64_t end);
    void (*heads_backward)(const HeadsBackward&, std::int64_t begin, std::int64_t end,
                           float* partial);
    void (*activation_forward)(const ActivationShape&, const void* h, const float* probability,
                               void* y, std::int64_t begin, std::int64_t end);
    void (*activation_backward)(const ActivationShape&, const void* h, const float* probability,
                                const void* dy, void* dh, float* dprobability, std::int64_t begin,
                                std::int64_t end);
    void (*linear_epilogue)(std::int64_t width, const float* acc, const void* bias,
                            const void* residual, void* y, std::int64_t begin, std::int64_t end);
    void (*column_sums)(std::int64_t width, const void* x, std::int64_t begin, std::int64_t end,
                        float* partial);
    void (*sum_rows)(std::int64_t per_token, std::int64_t width, const void* in,
                     const std::int32_t* index, const void* residual, void* out, std::int64_t begin,
                     std::int64_t end);
    void (*scatter_add)(std::int64_t tokens, std::int64_t width, const void* dy,
                        const std::int64_t* ids, float* out, std::int64_t begin_column,
                        std::int64_t end_column);
    void (*cross_entropy)(std::int64_t width, void* logits, const std::int64_t* labels,
                          const float* scale, float* loss, std::int64_t begin, std::int64_t end);
    void (*row_dots)(std::int64_t rows, std::int64_t width, const void* a, std::int64_t lda,
                     const void* b, std::int64_t ldb, float* out);
    void (*scale_rows)(std::int64_t rows, std::int64_t width, const float* in, std::int64_t ldi,
                       const float* factor, void* out, std::int64_t ldo);
  } typed[2];
  void (*softmax_rows)(const ScoreRows&, float* scores, float* inverse_sum, float* log_sum);
  void (*softmax_rows_backward)(const ScoreRows&, float* scores, float* dp, const float* log_sum,
                                const float* delta);
  // out (+)= sum of `count` partials, `stride` apart.
  void (*sum_partials)(const float* partials, std::int64_t count, std::int64_t stride,
                       std::int64_t width, GradientOut out);
};

namespace generic {
extern const KernelTable kTable;
}
namespace avx2 {
extern const KernelTable kTable;
}
namespace avx512 {
extern const KernelTable kTable;
}

}  // namespace rr::model
