// The parameters of a stage as tensors over the borrowed flat buffers. Private to the room.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "model/kernels.h"
#include "model/model.h"

namespace rr::model {

// One parameter: its value in compute dtype and the view of its fp32 main gradient. No autograd
// leaf: every operation that uses a weight adds the gradient itself.
struct Weight {
  const plan::Parameter* plan = nullptr;
  at::Tensor value;
  at::Tensor gradient;
  // Per expert, or one: no gradient was written in this step yet, so the next one overwrites.
  std::vector<char> fresh;

  std::int64_t pieces() const { return static_cast<std::int64_t>(fresh.size()); }
  std::int64_t piece_size() const { return plan->size / pieces(); }
  const void* data(std::int64_t piece = 0) const;
  // Where the next gradient of `piece` goes; from then on it is not fresh.
  GradientOut take(std::int64_t piece = 0);
  void zero_if_fresh();
};

class Weights {
 public:
  // `buffers` as StagePlan::buffers; throws Error when a span has another size than planned.
  Weights(const plan::StagePlan& stage, const std::vector<BufferView>& buffers);

  Weight& at(const std::string& name);
  // nullptr when the stage has none of that name.
  Weight* find(const std::string& name);

  void begin_step();
  // Zeroes what got no gradient in this step.
  void finish_layer(int layer);

 private:
  std::map<std::string, Weight> by_name_;
};

at::ScalarType scalar_type(DType type);

}  // namespace rr::model
