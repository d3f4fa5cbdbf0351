// The mixture of experts of one layer: router, way to the experts of all ranks of the expert group,
// grouped linear layers, way back. Dropless. Private to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "comm/comm.h"
#include "model/functions.h"
#include "model/routing.h"

namespace rr::model {

// How the token copies of one micro-batch reach their experts and come back. Lives as long as the
// graph that used it. Every member of the expert group makes the same calls.
class Exchange {
 public:
  // Exchanges the counts. `experts` is the number over all ranks.
  Exchange(const RouterShape& shape, const Routing& routing, comm::Communicator& group);

  std::int64_t rows() const { return offsets_.back(); }  // R, at this rank's experts
  // First row of each local expert, and the end. [local experts + 1]
  const std::vector<std::int64_t>& offsets() const { return offsets_; }

  // [T, H] -> [R, H], each token at each of its experts.
  at::Tensor to_rows(DType type, const at::Tensor& tokens);
  // [R, H] -> [T, H]: the sum over each token's experts, plus `residual` unless undefined. Adjoint
  // of to_rows.
  at::Tensor to_tokens(DType type, const at::Tensor& rows, const at::Tensor& residual);
  // One number per token and expert: [T, K] -> [R] and back, f32.
  at::Tensor values_to_rows(const float* values);
  at::Tensor values_to_slots(const at::Tensor& row_values);

 private:
  at::Tensor outward(DType type, const at::Tensor& send, std::int64_t width);
  at::Tensor homeward(DType type, const at::Tensor& rows, std::int64_t width);

  std::int64_t tokens_, per_token_;
  Permutation local_;
  comm::Communicator& group_;
  std::vector<std::int64_t> send_, receive_;  // rows by rank
  std::vector<std::int64_t> offsets_;
  std::vector<std::int32_t> received_of_sorted_, sorted_of_received_;  // empty for one rank
};

struct Dispatched {
  at::Tensor rows;           // [R, H]
  at::Tensor probabilities;  // [R] f32
  std::shared_ptr<Exchange> exchange;
  double load_balancing = 0, z = 0;
};
// x [T, H] is scored by `router` [E, H] in fp32 and sent to its experts.
Dispatched dispatch(const Run& run, const at::Tensor& x, Weight& router, const RouterShape& shape,
                    comm::Communicator& group);
// rows [R, in] -> [R, out] by the weight [local experts, out, in] of each row's expert.
at::Tensor grouped_linear(const Run& run, const at::Tensor& rows, Weight& weight,
                          const std::shared_ptr<Exchange>& exchange);
// [R, H] -> residual + the sum of each token's experts [T, H].
at::Tensor combine(const Run& run, const at::Tensor& rows,
                   const std::shared_ptr<Exchange>& exchange, const at::Tensor& residual);

}  // namespace rr::model
