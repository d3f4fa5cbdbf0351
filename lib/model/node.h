// Helpers to write a node of torch's graph. Private to the room.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>

#include "model/functions.h"
#include "model/torch_globals.h"

namespace rr::model {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

inline SavedVariable save(const at::Tensor& tensor, bool is_output = false) {
  return SavedVariable(tensor, is_output);
}

// A node N over `inputs`, whose gradients its apply() returns in that order.
template <class N, class... Inputs>
std::shared_ptr<N> make_node(const Inputs&... inputs) {
  std::shared_ptr<N> node(new N(), torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(inputs...));
  return node;
}

inline void set_output(const at::Tensor& output, const std::shared_ptr<Node>& node) {
  torch::autograd::set_history(output, node);
}

// fp32 memory for a moment.
inline at::Tensor scratch(std::int64_t elements) { return empty({elements}, DType::f32); }
// The same for what arithmetic in bf16 would not need; `type` f32: counted like any other.
inline at::Tensor emulation_scratch(DType type, std::int64_t elements) {
  if (type == DType::f32) return scratch(elements);
  const Uncounted uncounted;
  return scratch(elements);
}

// The values as fp32: the tensor's own memory, or a widened copy.
class Fp32 {
 public:
  Fp32(const void* data, std::int64_t count, DType type) : data_(static_cast<const float*>(data)) {
    if (type == DType::f32) return;
    copy_ = emulation_scratch(type, count);
    widen(data, copy_.mutable_data_ptr<float>(), count);
    data_ = copy_.const_data_ptr<float>();
  }
  Fp32(const at::Tensor& tensor, DType type)
      : Fp32(tensor.const_data_ptr(), tensor.numel(), type) {}
  const float* data() const { return data_; }

 private:
  const float* data_;
  at::Tensor copy_;
};

}  // namespace rr::model
